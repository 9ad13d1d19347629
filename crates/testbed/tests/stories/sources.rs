//! What stories about sources share: Secrets, downloads, conditions.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::Flux;

/// Makes a Secret, or replaces what is in it.
pub async fn secret(cluster: &Cluster, flux: &Flux, name: &str, kind: &str, data: &[(&str, &str)]) {
    let api: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    let data: serde_json::Map<String, Value> =
        data.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": { "name": name }, "stringData": data,
    });
    api.patch(name, &PatchParams::apply("story").force(), &Patch::Apply(object)).await.unwrap();
}

/// A pull secret for a registry.
pub async fn pull_secret(cluster: &Cluster, flux: &Flux, name: &str, host: &str, user: &str, password: &str) {
    let config = json!({ "auths": { host: { "username": user, "password": password } } }).to_string();
    secret(cluster, flux, name, "kubernetes.io/dockerconfigjson", &[(".dockerconfigjson", &config)]).await;
}

pub async fn service_account(cluster: &Cluster, flux: &Flux, name: &str, pull_secret: &str) {
    let api: Api<ServiceAccount> = Api::namespaced(cluster.client(), flux.namespace.name());
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name }, "imagePullSecrets": [{ "name": pull_secret }],
    });
    api.patch(name, &PatchParams::apply("story").force(), &Patch::Apply(object)).await.unwrap();
}

pub fn revision(object: &Value) -> &str {
    object.pointer("/status/artifact/revision").and_then(Value::as_str).unwrap_or_default()
}

/// The bytes behind an address that a status gives.
pub async fn bytes(url: &Value) -> Vec<u8> {
    let url = url.as_str().unwrap();
    reqwest::get(url).await.unwrap().error_for_status().unwrap().bytes().await.unwrap().to_vec()
}

/// The artifact's bytes.
pub async fn artifact(object: &Value) -> Vec<u8> {
    bytes(&object["status"]["artifact"]["url"]).await
}

/// The names and contents of an artifact's files.
pub async fn files(object: &Value) -> Vec<(String, String)> {
    let limits = flux_remote::archive::Limits { bytes: 1 << 20, files: 100 };
    let mut files = Vec::new();
    flux_remote::archive::unpack(&artifact(object).await[..], limits, |file| {
        files.push((file.path.to_string(), String::from_utf8(file.bytes).unwrap()));
    })
    .unwrap();
    files
}

/// Status and reason of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|one| one["type"] == kind)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?))
}

/// Asks for a reconcile and waits until it was done, well or not.
pub async fn reconciled(flux: &Flux, kind: &flux_api::kinds::Kind, name: &str) -> Value {
    let token = format!("{:?}", std::time::SystemTime::now());
    flux.reconcile_as(kind, name, &token).await;
    flux.until(kind, name, "handled the request", |object| {
        object["status"]["lastHandledReconcileAt"] == token.as_str()
    })
    .await
}

/// Files that the real helm and cosign made, with a key made for it.
pub mod signed {
    use flux_remote::oci::{ArtifactLayer, Digest, Registry as Client, Repository};
    use flux_remote::transport::Transport;
    use testbed::registry::Registry;

    pub const KEY: &str = include_str!("../../../flux-remote/tests/cosign/cosign.pub");
    pub const CHART: &[u8] = include_bytes!("../../../flux-remote/tests/cosign/chart/app-1.0.0.tgz");
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

    fn client(registry: &Registry, name: &str) -> Client {
        let repository = Repository::parse(&format!("{}/{name}", registry.host()), true).unwrap();
        Client::new(repository, &Transport::default(), None).unwrap()
    }

    async fn push(client: &Client, reference: &str, manifest: &[u8], blobs: &[&[u8]]) -> String {
        for bytes in blobs {
            let layer = ArtifactLayer { media_type: String::new(), bytes: bytes.to_vec() };
            client.push_blob(&layer).await.unwrap();
        }
        client.put_manifest(reference, MANIFEST, manifest.to_vec()).await.unwrap().to_string()
    }

    /// An image of one layer; its digest.
    pub async fn image(registry: &Registry, name: &str) -> String {
        let manifest = include_bytes!("../../../flux-remote/tests/cosign/image.json");
        push(&client(registry, name), "latest", manifest, &[b"{}", b"signed content\n"]).await
    }

    /// Its signature as cosign wrote it before there were bundles.
    pub async fn tag_signature(registry: &Registry, name: &str, digest: &str) {
        let manifest = include_bytes!("../../../flux-remote/tests/cosign/legacy-manifest.json");
        let payload = include_bytes!("../../../flux-remote/tests/cosign/legacy-payload.json");
        let config = include_bytes!("../../../flux-remote/tests/cosign/legacy-config.json");
        let tag = format!("{}.sig", digest.replacen(':', "-", 1));
        push(&client(registry, name), &tag, manifest, &[payload, config]).await;
    }

    /// Its signature as a bundle.
    pub async fn bundle(registry: &Registry, name: &str) {
        let manifest = include_bytes!("../../../flux-remote/tests/cosign/bundle-manifest.json");
        let bundle = include_bytes!("../../../flux-remote/tests/cosign/bundle.json");
        push(&client(registry, name), Digest::of(manifest).as_str(), manifest, &[b"{}", bundle]).await;
    }

    /// Something that stands beside the image with `digest`: a manifest of `kind` with one layer.
    pub async fn beside(registry: &Registry, name: &str, digest: &str, kind: &str, layer: (&str, &[u8])) {
        let client = client(registry, name);
        let subject = client.fetch(digest).await.unwrap();
        let mut push = Vec::new();
        for (media_type, bytes) in [("application/vnd.oci.empty.v1+json", &b"{}"[..]), layer] {
            let layer = ArtifactLayer { media_type: media_type.to_owned(), bytes: bytes.to_vec() };
            push.push(client.push_blob(&layer).await.unwrap());
        }
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "config": push[0], "layers": [push[1]],
            "subject": { "mediaType": subject.media_type, "digest": digest, "size": subject.bytes.len() },
        });
        let bytes = manifest.to_string().into_bytes();
        client.put_manifest(Digest::of(&bytes).as_str(), MANIFEST, bytes).await.unwrap();
    }

    /// The digest and the size of what a tag points to.
    pub async fn resolved(registry: &Registry, name: &str, tag: &str) -> (String, usize) {
        let fetched = client(registry, name).fetch(tag).await.unwrap();
        (fetched.digest.to_string(), fetched.bytes.len())
    }

    /// A chart that helm packaged and pushed.
    pub async fn chart(registry: &Registry, name: &str) {
        let manifest = include_bytes!("../../../flux-remote/tests/cosign/chart/manifest.json");
        let config = include_bytes!("../../../flux-remote/tests/cosign/chart/config.json");
        push(&client(registry, name), "1.0.0", manifest, &[config, CHART]).await;
    }

    /// Its signature as a bundle.
    pub async fn chart_bundle(registry: &Registry, name: &str) {
        let manifest = include_bytes!("../../../flux-remote/tests/cosign/chart/bundle-manifest.json");
        let bundle = include_bytes!("../../../flux-remote/tests/cosign/chart/bundle.json");
        push(&client(registry, name), Digest::of(manifest).as_str(), manifest, &[b"{}", bundle]).await;
    }
}
