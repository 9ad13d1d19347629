//! Whose signatures are trusted: of a Sigstore instance whose trust root is fetched, and of those whom a trust policy names.

use std::sync::Arc;

use flux_api::kinds::{Controller, HELM_CHART, HELM_REPOSITORY, OCI_REPOSITORY};
use flux_controllers::manager::ManagerOptions;
use flux_remote::cosign;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::notation::{self, Notary};
use testbed::registry::Registry;
use testbed::sigstore::trust::TrustServer;
use testbed::sigstore::{self, Flaw, Sigstore};

use crate::flux::{Flux, ready};
use crate::sources::{artifact, condition, secret, signed};

crate::stories!(
    signatures_without_a_key_are_held_against_the_trust_root_that_is_fetched,
    a_trust_policy_says_whose_signatures_count,
);

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn repository(registry: &Registry, name: &str, verify: Value) -> Value {
    json!({
        "url": format!("oci://{}/{name}", registry.host()), "interval": "1h", "insecure": true,
        "layerSelector": { "operation": "copy" }, "verify": verify,
    })
}

fn chart(verify: Value) -> Value {
    json!({
        "chart": "app", "version": "1.0.0", "interval": "1h", "verify": verify,
        "sourceRef": { "kind": "HelmRepository", "name": "charts" },
    })
}

async fn signatures_without_a_key_are_held_against_the_trust_root_that_is_fetched(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let instance = Sigstore::new().unwrap();
    let server = TrustServer::start(&instance.trusted_root()).unwrap();
    let public = Arc::new(cosign::Sigstore::at(server.http().url(), server.first_root()));
    let tune = move |options: &mut ManagerOptions| options.sigstore = public.clone();
    let flux = Flux::start_with(cluster, &[Controller::Source], tune).await;
    let identity = |subject: &str| json!({ "issuer": format!("^{}$", sigstore::ISSUER), "subject": subject });
    let keyless = |subject: &str| json!({ "provider": "cosign", "matchOIDCIdentity": [identity(subject)] });
    let digest = signed::image(&registry, "first").await;
    signed::image(&registry, "second").await;
    let bundle = instance.bundle(&digest, Flaw::None).unwrap().to_string();
    signed::beside(&registry, "first", &digest, BUNDLE, (BUNDLE, bundle.as_bytes())).await;
    // One by a log of the second generation, with a timestamp.
    let bundle = instance.stamped_bundle(&digest, Flaw::None).unwrap().to_string();
    signed::beside(&registry, "second", &digest, BUNDLE, (BUNDLE, bundle.as_bytes())).await;
    for name in ["first", "second"] {
        flux.apply(&OCI_REPOSITORY, name, repository(&registry, name, keyless("^dev@example.com$"))).await;
        let object = flux.ready(&OCI_REPOSITORY, name).await;
        assert_eq!(condition(&object, "SourceVerified"), Some(("True", "Succeeded")));
        assert_eq!(artifact(&object).await, b"signed content\n");
    }
    flux.apply(&OCI_REPOSITORY, "other", repository(&registry, "first", keyless("^other@example.com$")))
        .await;
    let object = flux.not_ready(&OCI_REPOSITORY, "other", "VerificationError").await;
    let text = ready(&object).2;
    assert!(text.starts_with("failed to verify the signature using provider 'cosign keyless': "), "{text}");
    assert!(text.contains("none of the expected identities matched"), "{text}");
    // A trust root of the object's own goes before the one that is fetched.
    let stranger = Sigstore::new().unwrap().trusted_root().to_string();
    secret(cluster, &flux, "stranger", "Opaque", &[("trusted_root.json", &stranger)]).await;
    let mut own = keyless("^dev@example.com$");
    own["trustedRootSecretRef"] = json!({ "name": "stranger" });
    flux.apply(&OCI_REPOSITORY, "own", repository(&registry, "first", own)).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "own", "VerificationError").await;
    assert!(ready(&object).2.contains("issued by nobody in the trusted root"), "{}", ready(&object).2);

    signed::chart(&registry, "charts/app").await;
    let url = format!("oci://{}/charts", registry.host());
    flux.apply(&HELM_REPOSITORY, "charts", json!({ "url": url, "type": "oci", "insecure": true })).await;
    flux.apply(&HELM_CHART, "app", chart(keyless("^dev@example.com$"))).await;
    flux.not_ready(&HELM_CHART, "app", "VerificationError").await;
    let (digest, _) = signed::resolved(&registry, "charts/app", "1.0.0").await;
    let bundle = instance.bundle(&digest, Flaw::None).unwrap().to_string();
    signed::beside(&registry, "charts/app", &digest, BUNDLE, (BUNDLE, bundle.as_bytes())).await;
    let object = flux.ready(&HELM_CHART, "app").await;
    assert_eq!(condition(&object, "SourceVerified"), Some(("True", "Succeeded")));
    let roots = server.http().requests().iter().filter(|one| one.path == "/timestamp.json").count();
    assert_eq!(roots, 1, "one fetch is for all of them");
}

async fn a_trust_policy_says_whose_signatures_count(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let notary = Notary::new(notation::Flaw::None).unwrap();
    let policy = |name: &'static str, more: Value| {
        let (policy, certificate) = (Notary::policy(more).to_string(), notary.authority().to_owned());
        let flux = &flux;
        async move {
            let data = [("trustpolicy.json", policy.as_str()), ("authority.crt", certificate.as_str())];
            secret(cluster, flux, name, "Opaque", &data).await;
            json!({ "provider": "notation", "secretRef": { "name": name } })
        }
    };
    let digest = signed::image(&registry, "app").await;
    let (_, size) = signed::resolved(&registry, "app", "latest").await;
    let strict = policy("strict", json!({})).await;
    flux.apply(&OCI_REPOSITORY, "app", repository(&registry, "app", strict.clone())).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "app", "VerificationError").await;
    let text = ready(&object).2;
    assert!(
        text.starts_with(
            "failed to verify the signature using provider 'notation': no signature is associated"
        ),
        "{text}"
    );
    assert!(object.pointer("/status/artifact").is_none());
    let envelope = notary.sign(MANIFEST, &digest, size, notation::Flaw::None).unwrap().to_string();
    let layer = (notation::ENVELOPE, envelope.as_bytes());
    signed::beside(&registry, "app", &digest, notation::SIGNATURE, layer).await;
    let object = flux.ready(&OCI_REPOSITORY, "app").await;
    assert_eq!(condition(&object, "SourceVerified"), Some(("True", "Succeeded")));
    assert_eq!(artifact(&object).await, b"signed content\n");

    let other = policy("other", json!({ "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Other"] })).await;
    flux.apply(&OCI_REPOSITORY, "other", repository(&registry, "app", other)).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "other", "VerificationError").await;
    assert!(ready(&object).2.contains("does not match the X.509 trusted identities"), "{}", ready(&object).2);
    // A policy that says not to look: what is not signed is served, and nobody says that it is verified.
    signed::image(&registry, "unsigned").await;
    let skip = policy("skip", json!({ "signatureVerification": { "level": "skip" } })).await;
    flux.apply(&OCI_REPOSITORY, "skipped", repository(&registry, "unsigned", skip)).await;
    let object = flux.ready(&OCI_REPOSITORY, "skipped").await;
    assert_eq!(condition(&object, "SourceVerified"), None);
    let broken = policy("broken", json!({ "trustStores": [] })).await;
    flux.apply(&OCI_REPOSITORY, "broken", repository(&registry, "app", broken)).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "broken", "VerificationError").await;
    assert!(ready(&object).2.contains("missing trust stores or trusted identities"), "{}", ready(&object).2);

    signed::chart(&registry, "charts/app").await;
    let url = format!("oci://{}/charts", registry.host());
    flux.apply(&HELM_REPOSITORY, "charts", json!({ "url": url, "type": "oci", "insecure": true })).await;
    flux.apply(&HELM_CHART, "app", chart(strict)).await;
    flux.not_ready(&HELM_CHART, "app", "VerificationError").await;
    let (digest, size) = signed::resolved(&registry, "charts/app", "1.0.0").await;
    let envelope = notary.sign(MANIFEST, &digest, size, notation::Flaw::None).unwrap().to_string();
    let layer = (notation::ENVELOPE, envelope.as_bytes());
    signed::beside(&registry, "charts/app", &digest, notation::SIGNATURE, layer).await;
    let object = flux.ready(&HELM_CHART, "app").await;
    assert_eq!(condition(&object, "SourceVerified"), Some(("True", "Succeeded")));
}
