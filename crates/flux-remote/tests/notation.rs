//! Signatures of the Notary Project, made here and held against trust policies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use flux_remote::notation::{self, Error, Trust, Verdict};
use flux_remote::oci::{ArtifactLayer, Digest, Registry, Repository};
use flux_remote::transport::Transport;
use jiff::Timestamp;
use serde_json::{Value, json};
use testbed::fault::{Fault, Times};
use testbed::notation::{BINARY_ENVELOPE, ENVELOPE, Flaw, Notary, SIGNATURE, SUBJECT};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

struct Place {
    server: testbed::registry::Registry,
    registry: Registry,
    digest: Digest,
    size: usize,
}

async fn blob(registry: &Registry, media_type: &str, bytes: &[u8]) -> Value {
    let layer = ArtifactLayer { media_type: media_type.to_owned(), bytes: bytes.to_vec() };
    serde_json::to_value(registry.push_blob(&layer).await.unwrap()).unwrap()
}

/// A registry with an image.
async fn place() -> Place {
    let server = testbed::registry::Registry::start().unwrap();
    let repository = Repository::parse(&format!("{}/org/app", server.host()), true).unwrap();
    let registry = Registry::new(repository, &Transport::default(), None).unwrap();
    let config = blob(&registry, "application/vnd.cncf.flux.config.v1+json", b"{}").await;
    let layer = blob(&registry, "application/vnd.cncf.flux.content.v1.tar+gzip", b"content").await;
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] }).to_string();
    let size = manifest.len();
    let digest = registry.put_manifest("v1", MANIFEST, manifest.into_bytes()).await.unwrap();
    Place { server, registry, digest, size }
}

impl Place {
    /// Puts an envelope beside the image; its manifest.
    async fn attach(&self, envelope: &[u8], media_type: &str) -> Value {
        let layer = blob(&self.registry, media_type, envelope).await;
        let config = blob(&self.registry, "application/vnd.oci.empty.v1+json", b"{}").await;
        let subject = json!({ "mediaType": MANIFEST, "digest": self.digest.as_str(), "size": self.size });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SIGNATURE,
            "config": config, "layers": [layer], "subject": subject,
        });
        let bytes = manifest.to_string().into_bytes();
        let (digest, size) = (Digest::of(&bytes), bytes.len());
        self.registry.put_manifest(digest.as_str(), MANIFEST, bytes).await.unwrap();
        json!({ "mediaType": MANIFEST, "digest": digest.as_str(), "size": size, "artifactType": SIGNATURE })
    }

    async fn sign(&self, notary: &Notary, flaw: Flaw) -> Value {
        let envelope = notary.sign(MANIFEST, self.digest.as_str(), self.size, flaw).unwrap();
        self.attach(envelope.to_string().as_bytes(), ENVELOPE).await
    }

    async fn sign_binary(&self, notary: &Notary, flaw: Flaw) -> Value {
        let envelope = notary.sign_binary(MANIFEST, self.digest.as_str(), self.size, flaw).unwrap();
        self.attach(&envelope, BINARY_ENVELOPE).await
    }

    async fn verify(&self, notary: &Notary, policy: Value) -> Result<Verdict, Error> {
        let trust =
            Trust::new(Notary::policy(policy).to_string().as_bytes(), &[notary.authority().as_bytes()])?;
        notation::verify(&self.registry, &self.digest, &trust, Timestamp::now()).await
    }
}

#[tokio::test]
async fn a_signature_counts_where_the_policy_trusts_its_signer() {
    let (place, notary) = (place().await, Notary::new(Flaw::None).unwrap());
    let refused = place.verify(&notary, json!({})).await;
    assert!(matches!(refused, Err(Error::None(_))), "nothing is signed yet");
    place.sign(&notary, Flaw::None).await;
    let scope = format!("{}/org/app", place.server.host());
    for good in [
        json!({}),
        json!({ "trustedIdentities": ["*"] }),
        json!({ "registryScopes": [scope] }),
        json!({ "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Fleet"] }),
        json!({ "signatureVerification": { "level": "audit" } }),
    ] {
        assert_eq!(place.verify(&notary, good.clone()).await.unwrap(), Verdict::Verified, "{good}");
    }
    for (bad, words) in [
        (
            json!({ "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Other"] }),
            "does not match the X.509 trusted identities",
        ),
        (json!({ "trustedIdentities": ["other:x"] }), "no x509 trusted identities"),
        (json!({ "trustStores": ["signingAuthority:fleet"] }), "no trusted certificates are found"),
        (
            json!({ "registryScopes": ["reg.example.com/org/app"] }),
            "no applicable oci trust policy statement",
        ),
    ] {
        let problem = place.verify(&notary, bad.clone()).await.unwrap_err().to_string();
        assert!(problem.contains(words), "{bad}: {problem}");
    }
    let stranger = Notary::new(Flaw::None).unwrap();
    let problem = place.verify(&stranger, json!({})).await.unwrap_err().to_string();
    assert!(problem.contains("does not contain any trusted certificate"), "{problem}");
    // Nobody minds whose it is: it is served, and not said to be verified.
    let audit = json!({ "signatureVerification": { "level": "audit" } });
    assert_eq!(place.verify(&stranger, audit).await.unwrap(), Verdict::Unverified);
    let skip = json!({ "signatureVerification": { "level": "skip" } });
    assert_eq!(place.verify(&stranger, skip).await.unwrap(), Verdict::Unverified);
    assert_eq!(SUBJECT, "C=US, ST=WA, O=Fleet, CN=signer");
}

#[tokio::test]
async fn a_flaw_counts_as_the_level_says() {
    let level = |name: &str| json!({ "signatureVerification": { "level": name } });
    for (flaw, words) in [
        (Flaw::Expired, "is after certificate"),
        (Flaw::Stale, "digital signature has expired"),
        (Flaw::Revocable, "revocation status is unknown"),
    ] {
        let (place, notary) = (place().await, Notary::new(flaw).unwrap());
        place.sign(&notary, flaw).await;
        let binary = self::place().await;
        binary.sign_binary(&notary, flaw).await;
        let problem = binary.verify(&notary, level("strict")).await.unwrap_err().to_string();
        assert!(problem.contains(words), "{flaw:?}: {problem}");
        assert_eq!(binary.verify(&notary, level("permissive")).await.unwrap(), Verdict::Verified);
        let problem = place.verify(&notary, level("strict")).await.unwrap_err().to_string();
        assert!(problem.contains(words), "{flaw:?}: {problem}");
        for lenient in ["permissive", "audit"] {
            assert_eq!(
                place.verify(&notary, level(lenient)).await.unwrap(),
                Verdict::Verified,
                "{flaw:?} {lenient}"
            );
        }
    }
    let (place, notary) = (place().await, Notary::new(Flaw::Revocable).unwrap());
    place.sign(&notary, Flaw::None).await;
    let custom =
        json!({ "signatureVerification": { "level": "strict", "override": { "revocation": "skip" } } });
    assert_eq!(place.verify(&notary, custom).await.unwrap(), Verdict::Verified);
    // A timestamp that the policy insists on cannot be checked; one that is not needed yet is not asked for.
    let stamped = |when: &str| {
        json!({
            "trustStores": ["ca:fleet", "tsa:stamps"],
            "signatureVerification": {
                "level": "strict", "verifyTimestamp": when, "override": { "revocation": "skip" },
            },
        })
    };
    let problem = place.verify(&notary, stamped("always")).await.unwrap_err().to_string();
    assert!(problem.contains("timestamp countersignatures are not supported"), "{problem}");
    assert_eq!(place.verify(&notary, stamped("afterCertExpiry")).await.unwrap(), Verdict::Verified);
}

#[tokio::test]
async fn what_is_not_whole_counts_at_no_level() {
    for (flaw, words) in [
        (Flaw::Changed, "it is not of the certificate's key"),
        (Flaw::OtherTarget, "content descriptor mismatch"),
        (Flaw::OtherPurpose, "extended key usage"),
        (Flaw::Critical, "marked critical and not known"),
        (Flaw::Cut, "must end with a certificate that signed itself"),
    ] {
        let (place, notary) = (place().await, Notary::new(flaw).unwrap());
        place.sign(&notary, flaw).await;
        let binary = self::place().await;
        binary.sign_binary(&notary, flaw).await;
        for (place, level) in [(&place, "strict"), (&place, "audit"), (&binary, "strict"), (&binary, "audit")]
        {
            let policy = json!({ "signatureVerification": { "level": level } });
            let problem = place.verify(&notary, policy).await.unwrap_err().to_string();
            assert!(problem.contains(words), "{flaw:?} {level}: {problem}");
        }
    }
    let (place, notary) = (place().await, Notary::new(Flaw::None).unwrap());
    for (text, media_type, words) in [
        ("not JSON", ENVELOPE, "unable to parse the digital signature"),
        (
            r#"{"payload":"","protected":"e30","header":{},"signature":""}"#,
            ENVELOPE,
            "certificate chain is not present",
        ),
    ] {
        place.attach(text.as_bytes(), media_type).await;
        let problem = place.verify(&notary, json!({})).await.unwrap_err().to_string();
        assert!(problem.contains(words), "{problem}");
    }
    // One of several is enough.
    place.sign(&notary, Flaw::None).await;
    assert_eq!(place.verify(&notary, json!({})).await.unwrap(), Verdict::Verified);
    // Of more than three nobody is looked at.
    let crowd = self::place().await;
    for number in 0..4 {
        crowd.attach(format!("not JSON {number}").as_bytes(), ENVELOPE).await;
    }
    let problem = crowd.verify(&notary, json!({})).await.unwrap_err().to_string();
    assert!(problem.contains("limit of 3 signatures"), "{problem}");
}

#[tokio::test]
async fn another_envelope_is_refused_by_name() {
    let (place, notary) = (place().await, Notary::new(Flaw::None).unwrap());
    place.attach(b"x", "application/pgp-signature").await;
    let problem = place.verify(&notary, json!({})).await.unwrap_err().to_string();
    assert!(problem.contains("media type \"application/pgp-signature\" is not supported"), "{problem}");
}

#[tokio::test]
async fn an_envelope_may_be_json_or_binary() {
    let (place, notary) = (place().await, Notary::new(Flaw::None).unwrap());
    place.sign_binary(&notary, Flaw::None).await;
    assert_eq!(place.verify(&notary, json!({})).await.unwrap(), Verdict::Verified);
    let stranger = Notary::new(Flaw::None).unwrap();
    let problem = place.verify(&stranger, json!({})).await.unwrap_err().to_string();
    assert!(problem.contains("does not contain any trusted certificate"), "{problem}");
    let good = notary.sign_binary(MANIFEST, place.digest.as_str(), place.size, Flaw::None).unwrap();
    // Whatever is cut off at its end, it is no envelope.
    for length in (0..good.len()).step_by(97) {
        let place = self::place().await;
        place.attach(&good[..length], BINARY_ENVELOPE).await;
        let problem = place.verify(&notary, json!({})).await.unwrap_err().to_string();
        assert!(problem.contains("it is no COSE"), "{length}: {problem}");
    }
}

/// Envelopes that the Notary Project's own library (notation-core-go 1.3) made, with keys made for it: RSA in JSON, a curve of
/// 384 bits in COSE.
#[tokio::test]
async fn envelopes_of_the_notary_project_are_verified() {
    let (json_envelope, binary): (&[u8], &[u8]) =
        (include_bytes!("notation/jws.json"), include_bytes!("notation/cose.bin"));
    let authority = include_bytes!("notation/authority.crt");
    for (envelope, media_type) in [(json_envelope, ENVELOPE), (binary, BINARY_ENVELOPE)] {
        let verify = async |envelope: &[u8], policy: Value| {
            let place = recorded_image().await;
            place.attach(envelope, media_type).await;
            let trust = Trust::new(Notary::policy(policy).to_string().as_bytes(), &[authority])?;
            notation::verify(&place.registry, &place.digest, &trust, Timestamp::now()).await
        };
        assert_eq!(verify(envelope, json!({})).await.unwrap(), Verdict::Verified, "{media_type}");
        let other = json!({ "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Other"] });
        assert!(verify(envelope, other).await.is_err());
        // The signature is at the end.
        let mut changed = envelope.to_vec();
        let last = changed.len() - 10;
        changed[last] ^= 1;
        assert!(verify(&changed, json!({})).await.is_err());
    }
}

/// A registry with the image that those envelopes are about.
async fn recorded_image() -> Place {
    let place = place().await;
    let image = include_bytes!("cosign/image.json");
    for bytes in [&b"{}"[..], b"signed content\n"] {
        blob(&place.registry, "application/octet-stream", bytes).await;
    }
    let digest = place.registry.put_manifest("signed", MANIFEST, image.to_vec()).await.unwrap();
    Place { digest, size: image.len(), ..place }
}

/// Registries without the referrers API keep the list under a tag.
#[tokio::test]
async fn signatures_are_found_under_a_tag() {
    let (place, notary) = (place().await, Notary::new(Flaw::None).unwrap());
    let entry = place.sign(&notary, Flaw::None).await;
    place.server.http().faults().inject("/referrers/", Times::Always, Fault::Status(404));
    assert!(matches!(place.verify(&notary, json!({})).await, Err(Error::None(_))));
    let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry] });
    let tag = place.digest.as_str().replacen(':', "-", 1);
    let kind = "application/vnd.oci.image.index.v1+json";
    place.registry.put_manifest(&tag, kind, index.to_string().into_bytes()).await.unwrap();
    assert_eq!(place.verify(&notary, json!({})).await.unwrap(), Verdict::Verified);
}
