//! OCIRepository: from a layer in a registry to an artifact.

use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use flux_api::kinds::{Controller, OCI_REPOSITORY};
use flux_controllers::manager::ManagerOptions;
use flux_remote::cosign;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::fault::{Fault, Times};
use testbed::http_server::Security;
use testbed::registry::{Access, Artifact, Blob, Options, Registry};
use testbed::sigstore::trust::TrustServer;
use testbed::tls::Authority;

use crate::flux::{Flux, ready};
use crate::sources::{
    artifact, bytes, condition, files, pull_secret, reconciled, revision, secret, service_account, signed,
};

crate::stories!(
    a_tag_becomes_an_artifact_and_moving_it_replaces_it,
    versions_filters_and_digests_pick_what_is_pulled,
    a_layer_is_chosen_and_kept_as_it_is,
    pull_secrets_open_a_registry_and_follow_a_rotation,
    a_registry_that_stumbles_is_asked_again,
    a_registry_behind_mutual_tls_and_one_without_verification,
    hostile_layers_leave_the_last_artifact_in_place,
    only_what_is_signed_becomes_an_artifact,
    verification_that_cannot_be_done_is_refused_by_name,
    a_cloud_without_its_gate_or_secret_is_refused_by_name,
    an_address_with_a_tag_is_not_tried,
    a_suspended_source_waits_and_a_deleted_one_leaves_nothing,
);

const NAME: &str = "app";
const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

async fn start(cluster: &Cluster) -> Flux {
    Flux::start(cluster, &[Controller::Source]).await
}

fn tarball(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, kind, text) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        header.set_cksum();
        tar.append(&header, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn layer(text: &str) -> Vec<u8> {
    tarball(&[("a.yaml", tar::EntryType::Regular, text), ("logo.png", tar::EntryType::Regular, "x")])
}

fn push(registry: &Registry, tag: &str, layer: &[u8]) -> String {
    let artifact = Artifact {
        config: Blob { media_type: "application/vnd.cncf.flux.config.v1+json", bytes: b"{}" },
        layers: &[Blob { media_type: LAYER, bytes: layer }],
        annotations: &[
            ("org.opencontainers.image.source", "https://git.example.com/app"),
            ("org.opencontainers.image.revision", "main@sha1:abc"),
        ],
    };
    registry.put("org/app", tag, &artifact).unwrap()
}

fn spec(registry: &Registry, more: Value) -> Value {
    let url = format!("oci://{}/org/app", registry.host());
    let mut spec = json!({ "url": url, "interval": "1h", "insecure": true });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec
}

async fn a_tag_becomes_an_artifact_and_moving_it_replaces_it(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let first = push(&registry, "latest", &layer("a: 1\n"));
    let flux = start(cluster).await;
    flux.apply(&OCI_REPOSITORY, NAME, spec(&registry, json!({}))).await;
    let object = flux.ready(&OCI_REPOSITORY, NAME).await;
    assert_eq!(revision(&object), format!("latest@{first}"));
    let text = format!("stored artifact for digest 'latest@{first}'");
    assert_eq!(ready(&object), ("True", "Succeeded", text.as_str()));
    assert_eq!(files(&object).await, [("a.yaml".to_owned(), "a: 1\n".to_owned())]);
    assert_eq!(
        object["status"]["artifact"]["metadata"]["org.opencontainers.image.revision"],
        "main@sha1:abc"
    );
    assert!(object["status"]["artifact"]["path"].as_str().unwrap().ends_with(&format!("/{first}.tar.gz")));
    assert!(object["status"]["url"].as_str().unwrap().ends_with("/latest.tar.gz"));
    assert_eq!(bytes(&object["status"]["url"]).await, artifact(&object).await);

    let url = format!("oci://{}/org/app", registry.host());
    let news = format!(
        "stored artifact with revision 'latest@{first}' from '{url}', origin source 'https://git.example.com/app', origin revision 'main@sha1:abc'"
    );
    flux.event(NAME, "NewArtifact", &news).await;

    // Nothing new: the layer is not pulled again.
    let before = registry.http().requests().len();
    let same = reconciled(&flux, &OCI_REPOSITORY, NAME).await;
    assert_eq!(same["status"]["artifact"], object["status"]["artifact"]);
    assert!(registry.http().requests()[before..].iter().all(|request| !request.path.contains("/blobs/")));

    let second = push(&registry, "latest", &layer("a: 2\n"));
    let object = reconciled(&flux, &OCI_REPOSITORY, NAME).await;
    assert_eq!(revision(&object), format!("latest@{second}"));
    assert_eq!(files(&object).await[0].1, "a: 2\n");
    // Other rules make another artifact of the same revision.
    flux.apply(&OCI_REPOSITORY, NAME, spec(&registry, json!({ "ignore": "*.yaml" }))).await;
    let object = flux
        .until(&OCI_REPOSITORY, NAME, "knows the rules", |object| {
            object["status"]["observedIgnore"] == "*.yaml"
        })
        .await;
    assert_eq!(files(&object).await, [("logo.png".to_owned(), "x".to_owned())]);
}

async fn versions_filters_and_digests_pick_what_is_pulled(cluster: &Cluster) {
    // Pages of two: the newest version is on the last one.
    let options = Options { page_size: 2, ..Options::default() };
    let registry = Registry::start_with(options, Security::Plain).unwrap();
    for tag in ["1.0.0", "1.1.0-rc.1", "1.9.0", "latest", "v1.10.0"] {
        push(&registry, tag, &layer(tag));
    }
    let flux = start(cluster).await;
    flux.apply(
        &OCI_REPOSITORY,
        "range",
        spec(&registry, json!({ "ref": { "semver": "1.x", "tag": "latest" } })),
    )
    .await;
    let filter = json!({ "ref": { "semver": ">=1.0.0-0", "semverFilter": ".*-rc.*" } });
    flux.apply(&OCI_REPOSITORY, "filter", spec(&registry, filter)).await;
    let digest = registry.digest("org/app", "1.0.0").unwrap();
    flux.apply(
        &OCI_REPOSITORY,
        "digest",
        spec(&registry, json!({ "ref": { "digest": digest, "semver": "1.x" } })),
    )
    .await;
    flux.apply(&OCI_REPOSITORY, "nothing", spec(&registry, json!({ "ref": { "semver": "9.x" } }))).await;
    assert!(revision(&flux.ready(&OCI_REPOSITORY, "range").await).starts_with("v1.10.0@sha256:"));
    assert!(revision(&flux.ready(&OCI_REPOSITORY, "filter").await).starts_with("1.1.0-rc.1@sha256:"));
    assert_eq!(revision(&flux.ready(&OCI_REPOSITORY, "digest").await), digest);
    let object = flux.not_ready(&OCI_REPOSITORY, "nothing", "ReadOperationFailed").await;
    assert!(ready(&object).2.ends_with("no match found for semver: 9.x"), "{}", ready(&object).2);
}

async fn a_layer_is_chosen_and_kept_as_it_is(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let chart = testbed::chart::Chart::new("app", "1.0.0").package().unwrap();
    let whole = Artifact {
        config: Blob { media_type: "application/vnd.cncf.helm.config.v1+json", bytes: b"{}" },
        layers: &[
            Blob { media_type: "application/vnd.cncf.helm.chart.provenance.v1.prov", bytes: b"prov" },
            Blob { media_type: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", bytes: &chart },
        ],
        annotations: &[],
    };
    registry.put("org/app", "1.0.0_build", &whole).unwrap();
    let flux = start(cluster).await;
    let selector =
        json!({ "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "operation": "copy" });
    let wanted = spec(&registry, json!({ "ref": { "semver": "1.x" }, "layerSelector": selector }));
    flux.apply(&OCI_REPOSITORY, NAME, wanted).await;
    let object = flux.ready(&OCI_REPOSITORY, NAME).await;
    assert!(revision(&object).starts_with("1.0.0_build@sha256:"), "{}", revision(&object));
    assert_eq!(artifact(&object).await, chart);
    assert_eq!(object["status"]["observedLayerSelector"]["operation"], "copy");
    let none = spec(
        &registry,
        json!({ "ref": { "tag": "1.0.0_build" }, "layerSelector": { "mediaType": "text/plain" } }),
    );
    flux.apply(&OCI_REPOSITORY, "none", none).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "none", "OCIArtifactLayerOperationFailed").await;
    assert_eq!(ready(&object).2, "failed to find layer with media type 'text/plain' in artifact");
}

async fn pull_secrets_open_a_registry_and_follow_a_rotation(cluster: &Cluster) {
    let access = |password: &str| Access::Token {
        user: "user".to_owned(),
        password: password.to_owned(),
        anonymous_pull: false,
    };
    let options = Options { access: access("first"), ..Options::default() };
    let registry = Registry::start_with(options, Security::Plain).unwrap();
    push(&registry, "latest", &layer("a: 1\n"));
    let flux = start(cluster).await;
    flux.apply(&OCI_REPOSITORY, NAME, spec(&registry, json!({ "secretRef": { "name": "login" } }))).await;
    let object = flux.not_ready(&OCI_REPOSITORY, NAME, "AuthenticationFailed").await;
    let missing = format!("failed to get credential: secret '{}/login' not found", flux.namespace.name());
    assert_eq!(ready(&object).2, missing);
    pull_secret(cluster, &flux, "login", &registry.host(), "user", "first").await;
    flux.ready(&OCI_REPOSITORY, NAME).await;
    // The ServiceAccount's secrets count as well.
    service_account(cluster, &flux, "puller", "login").await;
    flux.apply(&OCI_REPOSITORY, "by-account", spec(&registry, json!({ "serviceAccountName": "puller" })))
        .await;
    flux.ready(&OCI_REPOSITORY, "by-account").await;

    registry.set_access(access("second"));
    let object = reconciled(&flux, &OCI_REPOSITORY, NAME).await;
    assert_eq!(ready(&object).1, "OCIArtifactPullFailed");
    assert!(
        ready(&object).2.contains("UNAUTHORIZED") && !object.to_string().contains("first"),
        "{}",
        ready(&object).2
    );
    pull_secret(cluster, &flux, "login", &registry.host(), "user", "second").await;
    flux.ready(&OCI_REPOSITORY, NAME).await;
}

async fn a_registry_that_stumbles_is_asked_again(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "latest", &layer("a: 1\n"));
    let flux = start(cluster).await;
    registry.http().faults().inject("/manifests/", Times::Next(1), Fault::Status(429));
    registry.http().faults().inject("/manifests/", Times::Next(1), Fault::Status(503));
    registry.http().faults().inject("/blobs/", Times::Next(1), Fault::Status(502));
    flux.apply(&OCI_REPOSITORY, NAME, spec(&registry, json!({}))).await;
    let object = flux.ready(&OCI_REPOSITORY, NAME).await;
    // One that stays down is reported, and what was pulled stays.
    registry.http().faults().inject("/manifests/", Times::Always, Fault::Status(500));
    let down = reconciled(&flux, &OCI_REPOSITORY, NAME).await;
    assert_eq!(ready(&down).1, "OCIArtifactPullFailed");
    assert_eq!(condition(&down, "Reconciling"), Some(("True", "ProgressingWithRetry")));
    assert_eq!(down["status"]["artifact"], object["status"]["artifact"]);
    registry.http().faults().clear();
    flux.ready(&OCI_REPOSITORY, NAME).await;
}

async fn a_registry_behind_mutual_tls_and_one_without_verification(cluster: &Cluster) {
    let authority = Authority::new("story").unwrap();
    let registry = Registry::start_with(Options::default(), Security::MutualTls(&authority)).unwrap();
    push(&registry, "latest", &layer("a: 1\n"));
    let open = Registry::start_with(Options::default(), Security::Tls(&authority)).unwrap();
    push(&open, "latest", &layer("a: 1\n"));
    let flux = start(cluster).await;
    let pair = authority.client("flux", &[]).unwrap();
    let whole = [("ca.crt", authority.certificate()), ("tls.crt", &pair.certificate), ("tls.key", &pair.key)];
    secret(cluster, &flux, "tls", "Opaque", &whole).await;
    let wanted = json!({ "insecure": false, "certSecretRef": { "name": "tls" } });
    flux.apply(&OCI_REPOSITORY, "mutual", spec(&registry, wanted)).await;
    flux.apply(&OCI_REPOSITORY, "unverified", spec(&open, json!({}))).await;
    flux.apply(&OCI_REPOSITORY, "unknown", spec(&open, json!({ "insecure": false }))).await;
    flux.ready(&OCI_REPOSITORY, "mutual").await;
    flux.ready(&OCI_REPOSITORY, "unverified").await;
    flux.not_ready(&OCI_REPOSITORY, "unknown", "OCIArtifactPullFailed").await;
}

async fn hostile_layers_leave_the_last_artifact_in_place(cluster: &Cluster) {
    use tar::EntryType::{Block, Link, Regular, Symlink};
    let registry = Registry::start().unwrap();
    push(&registry, "latest", &layer("a: 1\n"));
    let flux = start(cluster).await;
    flux.apply(&OCI_REPOSITORY, NAME, spec(&registry, json!({}))).await;
    let good = flux.ready(&OCI_REPOSITORY, NAME).await;
    for hostile in ["../escape.yaml", "/etc/escape.yaml", "a/../../escape.yaml"] {
        push(&registry, "latest", &tarball(&[(hostile, Regular, "x")]));
        let object = reconciled(&flux, &OCI_REPOSITORY, NAME).await;
        assert_eq!(ready(&object).1, "OCIArtifactLayerOperationFailed", "{hostile}");
        assert_eq!(object["status"]["artifact"], good["status"]["artifact"]);
        assert_eq!(condition(&object, "ArtifactOutdated"), Some(("True", "NewRevision")));
    }
    push(&registry, "latest", b"no archive at all");
    assert_eq!(ready(&reconciled(&flux, &OCI_REPOSITORY, NAME).await).1, "OCIArtifactLayerOperationFailed");
    // Links and devices are left out.
    let entries =
        [("b.yaml", Regular, "b: 1\n"), ("hard", Link, ""), ("soft", Symlink, ""), ("device", Block, "")];
    push(&registry, "latest", &tarball(&entries));
    let object = reconciled(&flux, &OCI_REPOSITORY, NAME).await;
    assert_eq!(ready(&object).0, "True", "{object}");
    assert_eq!(files(&object).await, [("b.yaml".to_owned(), "b: 1\n".to_owned())]);
}

async fn an_address_with_a_tag_is_not_tried(cluster: &Cluster) {
    let flux = start(cluster).await;
    let wanted = json!({ "url": "oci://registry.example.com/org/app:v1", "interval": "1h" });
    flux.apply(&OCI_REPOSITORY, NAME, wanted).await;
    let object = flux.not_ready(&OCI_REPOSITORY, NAME, "URLInvalid").await;
    assert_eq!(
        ready(&object).2,
        "URL validation failed for 'oci://registry.example.com/org/app:v1': URL must not contain a tag; remove ':v1'"
    );
    assert_eq!(condition(&object, "Stalled"), Some(("True", "URLInvalid")));
}

async fn a_suspended_source_waits_and_a_deleted_one_leaves_nothing(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "latest", &layer("a: 1\n"));
    let flux = start(cluster).await;
    flux.apply(&OCI_REPOSITORY, NAME, spec(&registry, json!({ "suspend": true }))).await;
    let object = reconciled(&flux, &OCI_REPOSITORY, NAME).await;
    assert!(object.pointer("/status/artifact").is_none() && registry.http().requests().is_empty());
    flux.apply(&OCI_REPOSITORY, NAME, spec(&registry, json!({ "suspend": false }))).await;
    let object = flux.ready(&OCI_REPOSITORY, NAME).await;
    let path = flux.storage().join(object["status"]["artifact"]["path"].as_str().unwrap());
    assert!(path.exists());
    flux.api(&OCI_REPOSITORY).delete(NAME, &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&OCI_REPOSITORY), NAME).await.unwrap();
    assert!(!path.exists());
}

async fn only_what_is_signed_becomes_an_artifact(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let digest = signed::image(&registry, "tagged").await;
    signed::image(&registry, "bundled").await;
    let flux = start(cluster).await;
    secret(cluster, &flux, "keys", "Opaque", &[("cosign.pub", signed::KEY)]).await;
    let wanted = |name: &str| {
        json!({
            "url": format!("oci://{}/{name}", registry.host()), "interval": "1h", "insecure": true,
            "layerSelector": { "operation": "copy" },
            "verify": { "provider": "cosign", "secretRef": { "name": "keys" } },
        })
    };
    for name in ["tagged", "bundled"] {
        flux.apply(&OCI_REPOSITORY, name, wanted(name)).await;
        let object = flux.not_ready(&OCI_REPOSITORY, name, "VerificationError").await;
        let place = format!("{}/{name}@{digest}", registry.host());
        let text = format!(
            "failed to verify the signature using provider 'cosign': no matching signatures were found for '{place}'"
        );
        assert_eq!(ready(&object).2, text);
        assert_eq!(condition(&object, "SourceVerified"), Some(("False", "VerificationError")));
        assert!(object.pointer("/status/artifact").is_none());
    }
    signed::tag_signature(&registry, "tagged", &digest).await;
    signed::bundle(&registry, "bundled").await;
    for name in ["tagged", "bundled"] {
        let object = flux.ready(&OCI_REPOSITORY, name).await;
        assert_eq!(condition(&object, "SourceVerified"), Some(("True", "Succeeded")));
        assert_eq!(artifact(&object).await, b"signed content\n");
    }
    // A key that did not sign: what is there is served on, and the object says that it is not verified.
    secret(cluster, &flux, "keys", "Opaque", &[("cosign.pub", OTHER_KEY)]).await;
    let mut other = wanted("tagged");
    other["interval"] = json!("2h");
    flux.apply(&OCI_REPOSITORY, "tagged", other).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "tagged", "VerificationError").await;
    assert_eq!(artifact(&object).await, b"signed content\n");
}

/// A key that nobody here signs with.
const OTHER_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

async fn verification_that_cannot_be_done_is_refused_by_name(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "latest", &layer("a: 1\n"));
    // A machine that does not reach the place where the trust root is.
    let trust = TrustServer::start(&json!({})).unwrap();
    let nowhere = Arc::new(cosign::Sigstore::at("http://127.0.0.1:1".to_owned(), trust.first_root()));
    let tune = move |options: &mut ManagerOptions| options.sigstore = nowhere.clone();
    let flux = Flux::start_with(cluster, &[Controller::Source], tune).await;
    secret(cluster, &flux, "empty", "Opaque", &[("x", "y")]).await;
    let namespace = flux.namespace.name();
    for (name, verify, text) in [
        (
            "notation",
            json!({ "provider": "notation", "secretRef": { "name": "empty" } }),
            format!("'notation': 'trustpolicy.json' not found in secret '{namespace}/empty'"),
        ),
        (
            "no-policy",
            json!({ "provider": "notation" }),
            "'notation': verification secret cannot be empty".to_owned(),
        ),
        (
            "keyless",
            json!({ "provider": "cosign" }),
            "'cosign keyless': unable to initialize trusted root: http://127.0.0.1:1/2.root.json".to_owned(),
        ),
        (
            "no-keys",
            json!({ "provider": "cosign", "secretRef": { "name": "empty" } }),
            format!("no public keys found in secret '{namespace}/empty'"),
        ),
        (
            "no-root",
            json!({ "provider": "cosign", "trustedRootSecretRef": { "name": "empty" } }),
            format!("'trusted_root.json' not found in secret '{namespace}/empty'"),
        ),
    ] {
        flux.apply(&OCI_REPOSITORY, name, spec(&registry, json!({ "verify": verify }))).await;
        let object = flux.not_ready(&OCI_REPOSITORY, name, "VerificationError").await;
        assert!(ready(&object).2.contains(&text), "{}", ready(&object).2);
        assert!(object.pointer("/status/artifact").is_none());
    }
}

async fn a_cloud_without_its_gate_or_secret_is_refused_by_name(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "latest", &layer("a: 1\n"));
    let flux = start(cluster).await;
    service_account(cluster, &flux, "puller", "login").await;
    let gated = json!({ "provider": "aws", "serviceAccountName": "plain" });
    let api: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
        kube::Api::namespaced(cluster.client(), flux.namespace.name());
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "plain" } });
    let account = serde_json::from_value(account).unwrap();
    api.create(&kube::api::PostParams::default(), &account).await.unwrap();
    flux.apply(&OCI_REPOSITORY, "gated", spec(&registry, gated)).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "gated", "FeatureGateDisabled").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "FeatureGateDisabled")));
    flux.apply(&OCI_REPOSITORY, "ambient", spec(&registry, json!({ "provider": "aws" }))).await;
    let object = flux.not_ready(&OCI_REPOSITORY, "ambient", "AuthenticationFailed").await;
    assert!(ready(&object).2.starts_with("failed to get credential from aws: "), "{}", ready(&object).2);
    // Pull secrets win over the provider.
    pull_secret(cluster, &flux, "login", &registry.host(), "user", "any").await;
    let secrets = json!({ "provider": "aws", "secretRef": { "name": "login" } });
    flux.apply(&OCI_REPOSITORY, "secrets", spec(&registry, secrets)).await;
    flux.ready(&OCI_REPOSITORY, "secrets").await;
}
