//! Signatures by the real cosign, recorded for this purpose (`cosign/`, made with cosign 3.0 and a key made for it), and
//! keyless ones by a Sigstore instance that exists only here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_remote::cosign::{self, Error, Identity, PublicKey, Trust, TrustRoot};
use flux_remote::oci::{ArtifactLayer, Digest, Registry, Repository};
use flux_remote::transport::Transport;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, SanType, SigningKey,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const IMAGE: &[u8] = include_bytes!("cosign/image.json");
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// 2026-01-01T00:00:00Z: when the certificates here begin to be valid, for ten minutes.
const START: i64 = 1_767_225_600;

struct Place {
    _server: testbed::registry::Registry,
    registry: Registry,
    digest: Digest,
}

/// A registry with the image that everything here is about.
async fn place() -> Place {
    let server = testbed::registry::Registry::start().unwrap();
    let repository = Repository::parse(&format!("{}/app", server.host()), true).unwrap();
    let registry = Registry::new(repository, &Transport::default(), None).unwrap();
    for bytes in [&b"{}"[..], b"signed content\n"] {
        blob(&registry, "application/octet-stream", bytes).await;
    }
    let digest = registry.put_manifest("v1", MANIFEST, IMAGE.to_vec()).await.unwrap();
    Place { _server: server, registry, digest }
}

async fn blob(registry: &Registry, media_type: &str, bytes: &[u8]) -> Value {
    let layer = ArtifactLayer { media_type: media_type.to_owned(), bytes: bytes.to_vec() };
    serde_json::to_value(registry.push_blob(&layer).await.unwrap()).unwrap()
}

fn signature_tag(digest: &Digest) -> String {
    format!("sha256-{}.sig", digest.hex())
}

fn key(pem: &[u8]) -> Trust {
    Trust::Key(PublicKey::from_pem(pem).unwrap())
}

fn real_key() -> Trust {
    key(include_bytes!("cosign/cosign.pub"))
}

fn other_key() -> Trust {
    key(KeyPair::generate().unwrap().public_key_pem().as_bytes())
}

#[tokio::test]
async fn a_signature_that_cosign_put_under_a_tag_is_verified_with_its_key() {
    let place = place().await;
    assert!(matches!(cosign::verify(&place.registry, &place.digest, &real_key()).await, Err(Error::None)));
    blob(&place.registry, "x", include_bytes!("cosign/legacy-config.json")).await;
    blob(&place.registry, "x", include_bytes!("cosign/legacy-payload.json")).await;
    let signature = include_bytes!("cosign/legacy-manifest.json").to_vec();
    place.registry.put_manifest(&signature_tag(&place.digest), MANIFEST, signature.clone()).await.unwrap();
    cosign::verify(&place.registry, &place.digest, &real_key()).await.unwrap();
    let refused = cosign::verify(&place.registry, &place.digest, &other_key()).await;
    assert!(matches!(refused, Err(Error::NoMatch(_))));

    // The same signature put beside another image is about the first one.
    let other = [IMAGE, b"\n"].concat();
    let other = place.registry.put_manifest("v2", MANIFEST, other).await.unwrap();
    place.registry.put_manifest(&signature_tag(&other), MANIFEST, signature).await.unwrap();
    let refused = cosign::verify(&place.registry, &other, &real_key()).await;
    assert!(matches!(refused, Err(Error::NoMatch(problem)) if problem.contains("is for sha256:")));
}

#[tokio::test]
async fn a_bundle_that_cosign_put_beside_an_image_is_verified_with_its_key() {
    let place = place().await;
    blob(&place.registry, BUNDLE, include_bytes!("cosign/bundle.json")).await;
    let manifest = include_bytes!("cosign/bundle-manifest.json").to_vec();
    let digest = Digest::of(&manifest);
    place.registry.put_manifest(digest.as_str(), MANIFEST, manifest).await.unwrap();
    cosign::verify(&place.registry, &place.digest, &real_key()).await.unwrap();
    let refused = cosign::verify(&place.registry, &place.digest, &other_key()).await;
    assert!(matches!(refused, Err(Error::NoMatch(_))));
    // Beside another image it says nothing.
    let other = place.registry.put_manifest("v2", MANIFEST, [IMAGE, b"\n"].concat()).await.unwrap();
    let mut manifest: Value = serde_json::from_slice(include_bytes!("cosign/bundle-manifest.json")).unwrap();
    manifest["subject"]["digest"] = json!(other.as_str());
    let manifest = serde_json::to_vec(&manifest).unwrap();
    place.registry.put_manifest(Digest::of(&manifest).as_str(), MANIFEST, manifest).await.unwrap();
    let refused = cosign::verify(&place.registry, &other, &real_key()).await;
    assert!(matches!(refused, Err(Error::NoMatch(problem)) if problem.contains("another image")));
}

#[test]
fn keys_that_are_none_are_refused() {
    for pem in [
        "",
        "canary",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    ] {
        let error = PublicKey::from_pem(pem.as_bytes()).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| !error.contains("canary")), "{pem}");
    }
}

/// An authority, a log of certificates and a log of signatures.
struct Sigstore {
    authority: Issuer<'static, KeyPair>,
    authority_der: Vec<u8>,
    authority_key: Vec<u8>,
    certificate_log: KeyPair,
    signature_log: KeyPair,
}

/// What a signer does otherwise than it should.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    Late,
    NoTimestamp,
    ForeignLog,
    OtherEntry,
    OtherAuthority,
}

impl Sigstore {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.not_before = rcgen::date_time_ymd(2025, 12, 31);
        params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        let key = KeyPair::generate().unwrap();
        let authority_key = rcgen::PublicKeyData::subject_public_key_info(&key);
        let authority_der = params.self_signed(&key).unwrap().der().to_vec();
        Self {
            authority: Issuer::new(params, key),
            authority_der,
            authority_key,
            certificate_log: KeyPair::generate().unwrap(),
            signature_log: KeyPair::generate().unwrap(),
        }
    }

    fn root(&self) -> TrustRoot {
        let log = |key: &KeyPair| {
            let der = rcgen::PublicKeyData::subject_public_key_info(key);
            json!({
                "publicKey": { "rawBytes": STANDARD.encode(&der), "validFor": { "start": "2025-01-01T00:00:00Z" } },
                "logId": { "keyId": STANDARD.encode(Sha256::digest(&der)) },
            })
        };
        let root = json!({
            "tlogs": [log(&self.signature_log)],
            "ctlogs": [log(&self.certificate_log)],
            "certificateAuthorities": [{
                "certChain": { "certificates": [{ "rawBytes": STANDARD.encode(&self.authority_der) }] },
                "validFor": { "start": "2025-01-01T00:00:00Z" },
            }],
        });
        TrustRoot::from_json(root.to_string().as_bytes()).unwrap()
    }

    fn keyless(&self, issuer: &str, subject: &str) -> Trust {
        let identities = vec![Identity::new(issuer, subject).unwrap()];
        Trust::Keyless { root: Box::new(self.root()), identities }
    }

    /// A certificate for `key`, with the timestamp of a log in it.
    fn certificate(&self, key: &KeyPair, flaw: Flaw) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![SanType::Rfc822Name("dev@example.com".try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = params.not_before + std::time::Duration::from_secs(600);
        params.serial_number = Some(vec![1, 2, 3].into());
        let issuer = b"https://accounts.example.com";
        let issuer = [&[0x0c, issuer.len() as u8][..], issuer].concat();
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], issuer)];
        let other = Sigstore::signer();
        let authority = if flaw == Flaw::OtherAuthority { &other } else { &self.authority };
        let bare = params.signed_by(key, authority).unwrap().der().to_vec();
        if flaw == Flaw::NoTimestamp {
            return bare;
        }
        let mut milliseconds = (START as u64 * 1000).to_be_bytes().to_vec();
        let tbs = signed_part(&bare);
        let mut message = vec![0, 0];
        message.extend_from_slice(&milliseconds);
        message.extend_from_slice(&[0, 1]);
        message.extend_from_slice(&Sha256::digest(&self.authority_key));
        message.extend_from_slice(&(tbs.len() as u32).to_be_bytes()[1..]);
        message.extend_from_slice(tbs);
        message.extend_from_slice(&[0, 0]);
        let signature = self.certificate_log.sign(&message).unwrap();
        let log = Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&self.certificate_log));
        let mut timestamp = vec![0];
        timestamp.extend_from_slice(&log);
        timestamp.append(&mut milliseconds);
        timestamp.extend_from_slice(&[0, 0, 4, 3]);
        timestamp.extend_from_slice(&(signature.len() as u16).to_be_bytes());
        timestamp.extend_from_slice(&signature);
        let mut list = ((timestamp.len() + 2) as u16).to_be_bytes().to_vec();
        list.extend_from_slice(&(timestamp.len() as u16).to_be_bytes());
        list.extend_from_slice(&timestamp);
        let content = [&[0x04, 0x81, list.len() as u8][..], &list].concat();
        let content =
            if list.len() < 128 { [&[0x04, list.len() as u8][..], &list].concat() } else { content };
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2], content);
        params.custom_extensions.push(extension);
        params.signed_by(key, authority).unwrap().der().to_vec()
    }

    fn signer() -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        Issuer::new(params, KeyPair::generate().unwrap())
    }

    /// Body, time, index and the log's signature over them.
    fn entry(&self, body: &Value, flaw: Flaw) -> (String, i64, Vec<u8>, Vec<u8>) {
        let body = STANDARD.encode(body.to_string());
        let at = if flaw == Flaw::Late { START + 601 } else { START + 5 };
        let id = Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&self.signature_log)).to_vec();
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let signed = json!({ "body": body, "integratedTime": at, "logID": hex, "logIndex": 7 }).to_string();
        let foreign = KeyPair::generate().unwrap();
        let log = if flaw == Flaw::ForeignLog { &foreign } else { &self.signature_log };
        (body, at, id, log.sign(signed.as_bytes()).unwrap())
    }

    /// Signs as cosign did before there were bundles.
    async fn sign_legacy(&self, place: &Place, flaw: Flaw) {
        let key = KeyPair::generate().unwrap();
        let leaf = self.certificate(&key, flaw);
        let payload = json!({
            "critical": {
                "identity": { "docker-reference": "" },
                "image": { "docker-manifest-digest": place.digest.as_str() },
                "type": "cosign container image signature",
            },
            "optional": null,
        })
        .to_string();
        let signature = STANDARD.encode(key.sign(payload.as_bytes()).unwrap());
        let hashed = if flaw == Flaw::OtherEntry { "another payload" } else { payload.as_str() };
        let body = json!({
            "apiVersion": "0.0.1", "kind": "hashedrekord",
            "spec": {
                "data": { "hash": { "algorithm": "sha256", "value": hex(hashed.as_bytes()) } },
                "signature": { "content": signature, "publicKey": { "content": STANDARD.encode(pem(&leaf)) } },
            },
        });
        let (body, at, id, signed) = self.entry(&body, flaw);
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let bundle = json!({
            "SignedEntryTimestamp": STANDARD.encode(signed),
            "Payload": { "body": body, "integratedTime": at, "logIndex": 7, "logID": id },
        });
        let mut layer =
            blob(&place.registry, "application/vnd.dev.cosign.simplesigning.v1+json", payload.as_bytes())
                .await;
        layer["annotations"] = json!({
            "dev.cosignproject.cosign/signature": signature,
            "dev.sigstore.cosign/certificate": pem(&leaf),
            "dev.sigstore.cosign/bundle": bundle.to_string(),
        });
        let config = blob(&place.registry, "application/vnd.oci.image.config.v1+json", b"{}").await;
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
        let tag = signature_tag(&place.digest);
        place.registry.put_manifest(&tag, MANIFEST, manifest.to_string().into_bytes()).await.unwrap();
    }

    /// Signs as cosign does today.
    async fn sign_bundle(&self, place: &Place, flaw: Flaw) {
        let key = KeyPair::generate().unwrap();
        let leaf = self.certificate(&key, flaw);
        let payload = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{ "digest": { "sha256": place.digest.hex() } }],
            "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": {},
        })
        .to_string();
        let kind = "application/vnd.in-toto+json";
        let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let signature = STANDARD.encode(key.sign(message.as_bytes()).unwrap());
        let hashed = if flaw == Flaw::OtherEntry { "another payload" } else { payload.as_str() };
        let body = json!({
            "apiVersion": "0.0.1", "kind": "dsse",
            "spec": {
                "payloadHash": { "algorithm": "sha256", "value": hex(hashed.as_bytes()) },
                "signatures": [{ "signature": signature, "verifier": STANDARD.encode(pem(&leaf)) }],
            },
        });
        let (body, at, id, signed) = self.entry(&body, flaw);
        let bundle = json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {
                "certificate": { "rawBytes": STANDARD.encode(&leaf) },
                "tlogEntries": [{
                    "logIndex": "7", "logId": { "keyId": STANDARD.encode(id) }, "integratedTime": at.to_string(),
                    "inclusionPromise": { "signedEntryTimestamp": STANDARD.encode(signed) },
                    "canonicalizedBody": body,
                }],
            },
            "dsseEnvelope": {
                "payload": STANDARD.encode(&payload), "payloadType": kind, "signatures": [{ "sig": signature }],
            },
        });
        let layer = blob(&place.registry, BUNDLE, bundle.to_string().as_bytes()).await;
        let config = blob(&place.registry, "application/vnd.oci.empty.v1+json", b"{}").await;
        let subject = json!({ "mediaType": MANIFEST, "digest": place.digest.as_str(), "size": IMAGE.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE,
            "config": config, "layers": [layer], "subject": subject,
        });
        let bytes = manifest.to_string().into_bytes();
        place.registry.put_manifest(Digest::of(&bytes).as_str(), MANIFEST, bytes).await.unwrap();
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

/// The first element within the outer sequence of a certificate.
fn signed_part(certificate: &[u8]) -> &[u8] {
    let header = |bytes: &[u8]| match bytes[1] {
        length @ 0..=127 => (2, usize::from(length)),
        count => {
            let count = usize::from(count & 0x7f);
            (2 + count, bytes[2..2 + count].iter().fold(0, |length, digit| length << 8 | usize::from(*digit)))
        }
    };
    let inner = &certificate[header(certificate).0..];
    let (start, length) = header(inner);
    &inner[..start + length]
}

const ISSUER: &str = "^https://accounts.example.com$";

#[tokio::test]
async fn a_keyless_signature_counts_for_the_identity_in_it() {
    let sigstore = Sigstore::new();
    let (tagged, bundled) = (place().await, place().await);
    sigstore.sign_legacy(&tagged, Flaw::None).await;
    sigstore.sign_bundle(&bundled, Flaw::None).await;
    for place in [&tagged, &bundled] {
        let verify =
            |trust: Trust| async move { cosign::verify(&place.registry, &place.digest, &trust).await };
        verify(sigstore.keyless(ISSUER, "^dev@example.com$")).await.unwrap();
        verify(Trust::Keyless { root: Box::new(sigstore.root()), identities: Vec::new() }).await.unwrap();
        for (issuer, subject) in
            [(ISSUER, "^other@example.com$"), ("^https://evil.example.com$", "^dev@example.com$")]
        {
            let refused = verify(sigstore.keyless(issuer, subject)).await;
            assert!(
                matches!(refused, Err(Error::NoMatch(problem)) if problem.contains("expected identities"))
            );
        }
        // Another instance's root does not know this authority.
        let refused = verify(Sigstore::new().keyless(ISSUER, "dev")).await;
        assert!(matches!(refused, Err(Error::NoMatch(problem)) if problem.contains("issued by nobody")));
        // A signature with a certificate is none of a key.
        assert!(matches!(verify(real_key()).await, Err(Error::NoMatch(_))));
    }
}

#[tokio::test]
async fn keyless_signatures_with_a_flaw_do_not_count() {
    let sigstore = Sigstore::new();
    for (flaw, words) in [
        (Flaw::Late, "was not valid"),
        (Flaw::NoTimestamp, "embedded SCT"),
        (Flaw::ForeignLog, "not by a transparency log"),
        (Flaw::OtherEntry, "about another signature"),
        (Flaw::OtherAuthority, "issued by nobody"),
    ] {
        let (tagged, bundled) = (place().await, place().await);
        sigstore.sign_legacy(&tagged, flaw).await;
        sigstore.sign_bundle(&bundled, flaw).await;
        for place in [&tagged, &bundled] {
            let refused =
                cosign::verify(&place.registry, &place.digest, &sigstore.keyless(ISSUER, "dev")).await;
            let problem = refused.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
