//! Signatures by the real cosign, recorded for this purpose (`cosign/`, made with cosign 3.0 and a key made for it), and
//! keyless ones by a Sigstore instance that exists only here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_remote::cosign::{self, Error, Identity, PublicKey, Trust, TrustRoot};
use flux_remote::oci::{ArtifactLayer, Digest, Registry, Repository};
use flux_remote::transport::Transport;
use jiff::Timestamp;
use rcgen::KeyPair;
use serde_json::{Value, json};
use testbed::sigstore::trust::{Mistake, TrustServer};
use testbed::sigstore::{Flaw, START, Sigstore};

const IMAGE: &[u8] = include_bytes!("cosign/image.json");
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

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

fn root(sigstore: &Sigstore) -> Arc<TrustRoot> {
    Arc::new(TrustRoot::from_json(sigstore.trusted_root().to_string().as_bytes()).unwrap())
}

fn keyless(sigstore: &Sigstore, issuer: &str, subject: &str) -> Trust {
    Trust::Keyless { root: root(sigstore), identities: vec![Identity::new(issuer, subject).unwrap()] }
}

/// Puts a signature under a tag, as cosign did before there were bundles.
async fn sign_under_tag(sigstore: &Sigstore, place: &Place, flaw: Flaw) {
    let signature = sigstore.tag_signature(place.digest.as_str(), flaw).unwrap();
    let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
    let mut layer = blob(&place.registry, kind, signature.payload.as_bytes()).await;
    layer["annotations"] = json!(signature.annotations);
    let config = blob(&place.registry, "application/vnd.oci.image.config.v1+json", b"{}").await;
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let tag = signature_tag(&place.digest);
    place.registry.put_manifest(&tag, MANIFEST, manifest.to_string().into_bytes()).await.unwrap();
}

/// Puts a bundle beside the image, as cosign does today.
async fn put_bundle(place: &Place, bundle: &Value) {
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

/// Images that are signed in each of the three ways.
async fn signed(sigstore: &Sigstore, flaw: Flaw) -> [Place; 3] {
    let places = [place().await, place().await, place().await];
    let digest = places[0].digest.as_str();
    sign_under_tag(sigstore, &places[0], flaw).await;
    put_bundle(&places[1], &sigstore.bundle(digest, flaw).unwrap()).await;
    put_bundle(&places[2], &sigstore.stamped_bundle(digest, flaw).unwrap()).await;
    places
}

const ISSUER: &str = "^https://accounts.example.com$";

#[tokio::test]
async fn a_keyless_signature_counts_for_the_identity_in_it() {
    let sigstore = Sigstore::new().unwrap();
    for place in &signed(&sigstore, Flaw::None).await {
        let verify =
            |trust: Trust| async move { cosign::verify(&place.registry, &place.digest, &trust).await };
        verify(keyless(&sigstore, ISSUER, "^dev@example.com$")).await.unwrap();
        verify(Trust::Keyless { root: root(&sigstore), identities: Vec::new() }).await.unwrap();
        for (issuer, subject) in
            [(ISSUER, "^other@example.com$"), ("^https://evil.example.com$", "^dev@example.com$")]
        {
            let refused = verify(keyless(&sigstore, issuer, subject)).await;
            assert!(
                matches!(refused, Err(Error::NoMatch(problem)) if problem.contains("expected identities"))
            );
        }
        // Another instance's root does not know this authority.
        let refused = verify(keyless(&Sigstore::new().unwrap(), ISSUER, "dev")).await;
        assert!(matches!(refused, Err(Error::NoMatch(problem)) if problem.contains("issued by nobody")));
        // A signature with a certificate is none of a key.
        assert!(matches!(verify(real_key()).await, Err(Error::NoMatch(_))));
    }
}

#[tokio::test]
async fn a_bundle_may_say_that_it_holds_no_timestamps() {
    let sigstore = Sigstore::new().unwrap();
    for nothing in
        [json!(null), json!({}), json!({ "rfc3161Timestamps": null }), json!({ "rfc3161Timestamps": [] })]
    {
        let place = place().await;
        let mut bundle = sigstore.bundle(place.digest.as_str(), Flaw::None).unwrap();
        bundle["verificationMaterial"]["timestampVerificationData"] = nothing;
        put_bundle(&place, &bundle).await;
        cosign::verify(&place.registry, &place.digest, &keyless(&sigstore, ISSUER, "dev")).await.unwrap();
    }
}

async fn refusals(sigstore: &Sigstore, flaw: Flaw) -> [String; 3] {
    let mut refusals = [const { String::new() }; 3];
    for (place, refusal) in signed(sigstore, flaw).await.iter().zip(&mut refusals) {
        let refused = cosign::verify(&place.registry, &place.digest, &keyless(sigstore, ISSUER, "dev")).await;
        *refusal = refused.err().map(|error| error.to_string()).unwrap_or_default();
    }
    refusals
}

#[tokio::test]
async fn keyless_signatures_with_a_flaw_do_not_count() {
    let sigstore = Sigstore::new().unwrap();
    for (flaw, words) in [
        (Flaw::Late, "was not valid"),
        (Flaw::NoCertificateTimestamp, "embedded SCT"),
        (Flaw::OtherEntry, "about another signature"),
        (Flaw::OtherAuthority, "issued by nobody"),
    ] {
        for problem in refusals(&sigstore, flaw).await {
            assert!(problem.contains(words), "{flaw:?}: {problem}");
        }
    }
    let [tagged, first, second] = refusals(&sigstore, Flaw::ForeignLog).await;
    for problem in [tagged, first] {
        assert!(problem.contains("not by a transparency log"), "{problem}");
    }
    assert!(second.contains("checkpoint is not signed"), "{second}");
}

#[tokio::test]
async fn a_log_has_to_prove_that_it_holds_a_signature() {
    let sigstore = Sigstore::new().unwrap();
    let [tagged, first, second] = refusals(&sigstore, Flaw::OtherTree).await;
    // Under a tag there is a promise and no proof.
    assert_eq!(tagged, "");
    for problem in [first, second] {
        assert!(problem.contains("does not hold the entry"), "{problem}");
    }
}

#[tokio::test]
async fn where_a_log_gives_no_time_an_authority_has_to() {
    let sigstore = Sigstore::new().unwrap();
    for (flaw, words) in [
        (Flaw::NoStamp, "there is no timestamp of an authority"),
        (Flaw::StampOfAnother, "timestamp is for another signature"),
        (Flaw::ForeignStamper, "by nobody in the trusted root"),
    ] {
        let [tagged, first, second] = refusals(&sigstore, flaw).await;
        assert_eq!((tagged.as_str(), first.as_str()), ("", ""), "{flaw:?}");
        assert!(second.contains(words), "{flaw:?}: {second}");
    }
}

#[tokio::test]
async fn a_timestamp_that_is_cut_off_or_changed_does_not_count() {
    let sigstore = Sigstore::new().unwrap();
    let good = place().await;
    let bundle = sigstore.stamped_bundle(good.digest.as_str(), Flaw::None).unwrap();
    let stamp = "/verificationMaterial/timestampVerificationData/rfc3161Timestamps/0/signedTimestamp";
    let bytes = STANDARD.decode(bundle.pointer(stamp).unwrap().as_str().unwrap()).unwrap();
    let with = async |stamped: &[u8]| {
        let mut bundle = bundle.clone();
        *bundle.pointer_mut(stamp).unwrap() = json!(STANDARD.encode(stamped));
        let place = place().await;
        put_bundle(&place, &bundle).await;
        cosign::verify(&place.registry, &place.digest, &keyless(&sigstore, ISSUER, "dev")).await
    };
    with(&bytes).await.unwrap();
    for length in (0..bytes.len()).step_by(17) {
        assert!(with(&bytes[..length]).await.is_err(), "{length} of {} bytes", bytes.len());
    }
    // The signature is at the end.
    for at in bytes.len() - 40..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        assert!(with(&changed).await.is_err(), "byte {at}");
    }
}

#[tokio::test]
async fn a_trust_root_is_fetched_and_its_keys_may_be_replaced() {
    let (one, two) = (Sigstore::new().unwrap(), Sigstore::new().unwrap());
    let mut server = TrustServer::start(&one.trusted_root()).unwrap();
    let fetched = cosign::Sigstore::at(server.http().url(), server.first_root());
    let day = |day: i64| Timestamp::from_second(START + day * 90_000).unwrap();
    let [place, ..] = signed(&one, Flaw::None).await;
    let [other, ..] = signed(&two, Flaw::None).await;
    let verify = async |at: Timestamp, place: &Place| {
        let root = fetched.trust_root(at).await.map_err(|error| error.to_string())?;
        let trust = Trust::Keyless { root, identities: Vec::new() };
        cosign::verify(&place.registry, &place.digest, &trust).await.map_err(|error| error.to_string())
    };
    verify(day(0), &place).await.unwrap();
    let asked = server.http().requests().len();
    verify(day(0), &place).await.unwrap();
    assert_eq!(server.http().requests().len(), asked, "what is fresh is not asked for again");
    // A day later there are other keys, and another trust root.
    server.rotate(false).unwrap();
    server.publish(&two.trusted_root(), Mistake::None).unwrap();
    verify(day(0), &place).await.unwrap();
    assert!(verify(day(2), &place).await.unwrap_err().contains("issued by nobody"));
    verify(day(2), &other).await.unwrap();
    // Whatever is wrong with the next one: the last one stays.
    let mistakes =
        [Mistake::Stranger, Mistake::Expired, Mistake::Old, Mistake::OtherVersion, Mistake::OtherFile];
    for (number, mistake) in (4..).step_by(2).zip(mistakes) {
        server.publish(&one.trusted_root(), mistake).unwrap();
        verify(day(number), &other).await.unwrap_or_else(|problem| panic!("{mistake:?}: {problem}"));
        server.publish(&two.trusted_root(), Mistake::None).unwrap();
        verify(day(number + 1), &other).await.unwrap();
    }
    server.rotate(true).unwrap();
    server.publish(&one.trusted_root(), Mistake::None).unwrap();
    verify(day(30), &other).await.unwrap();
}

#[tokio::test]
async fn without_a_trust_root_the_reason_is_told_and_asked_again_after_a_minute() {
    let one = Sigstore::new().unwrap();
    let at = |second: i64| Timestamp::from_second(START + second).unwrap();
    for (mistake, words) in [
        (Mistake::Stranger, "timestamp.json: 0 of 1 signatures that it takes"),
        (Mistake::Expired, "timestamp.json: expired at 2020-01-01T00:00:00Z"),
        (Mistake::OtherVersion, "targets.json: it says that it is version"),
        (Mistake::OtherFile, "not the file that was signed for"),
    ] {
        let mut server = TrustServer::start(&one.trusted_root()).unwrap();
        server.publish(&Sigstore::new().unwrap().trusted_root(), mistake).unwrap();
        let fetched = cosign::Sigstore::at(server.http().url(), server.first_root());
        let problem = fetched.trust_root(at(0)).await.err().unwrap().to_string();
        assert!(problem.starts_with("unable to initialize trusted root: "), "{problem}");
        assert!(problem.contains(words), "{mistake:?}: {problem}");
        server.publish(&one.trusted_root(), Mistake::None).unwrap();
        assert!(fetched.trust_root(at(30)).await.is_err(), "not yet");
        assert!(fetched.trust_root(at(61)).await.is_ok());
    }
    let mut server = TrustServer::start(&one.trusted_root()).unwrap();
    let fetched = cosign::Sigstore::at(server.http().url(), server.first_root());
    server.rotate(true).unwrap();
    let problem = fetched.trust_root(at(0)).await.err().unwrap().to_string();
    assert!(problem.contains("2.root.json: 0 of 2 signatures"), "{problem}");
    let nowhere = cosign::Sigstore::at("http://127.0.0.1:1".to_owned(), server.first_root());
    assert!(
        nowhere.trust_root(at(0)).await.err().unwrap().to_string().contains("http://127.0.0.1:1/2.root.json")
    );
    // A mirror of one's own needs a root of one's own.
    let rootless = cosign::Sigstore::at("http://127.0.0.1:1".to_owned(), Vec::new());
    assert!(rootless.trust_root(at(0)).await.err().unwrap().to_string().contains("TUF_ROOT_JSON"));
}
