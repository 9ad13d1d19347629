//! Artifacts are understood by the other implementation: upstream's kustomize- and helm-controller live on ours, and
//! ours live on those of upstream's source-controller.

use std::time::Duration;

use flux_api::kinds::{
    Controller, GIT_REPOSITORY, HELM_CHART, HELM_RELEASE, HELM_REPOSITORY, KUSTOMIZATION, OCI_REPOSITORY,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;
use testbed::reference;
use testbed::registry::{Artifact, Blob, Registry};
use testbed::upstream::Upstream;

use crate::flux::Flux;

/// A repository, an image and a chart, each with a ConfigMap in it.
struct Servers {
    registry: Registry,
    charts: ChartRepository,
}

impl Servers {
    fn start(flux: &Flux) -> Self {
        flux.fleet.commit("first", &[("apps/map.yaml", &map("from-git"))]).unwrap();
        let registry = Registry::start().unwrap();
        let layer = tarball(&[("apps/map.yaml", &map("from-oci"))]);
        let layer = Blob { media_type: "application/vnd.cncf.flux.content.v1.tar+gzip", bytes: &layer };
        let config = Blob { media_type: "application/vnd.cncf.flux.config.v1+json", bytes: b"{}" };
        let image = Artifact { config, layers: &[layer], annotations: &[] };
        registry.put("fleet", "latest", &image).unwrap();
        let charts = ChartRepository::start().unwrap();
        charts.add(&Chart::new("app", "1.0.0").file("templates/map.yaml", &map("from-chart"))).unwrap();
        Self { registry, charts }
    }

    async fn apply_sources(&self, flux: &Flux) {
        flux.git_repository("fleet").await;
        let url = format!("oci://{}/fleet", self.registry.host());
        flux.apply(&OCI_REPOSITORY, "fleet", json!({ "url": url, "interval": "1h", "insecure": true })).await;
        let spec = json!({ "url": self.charts.url(), "interval": "1h" });
        flux.apply(&HELM_REPOSITORY, "charts", spec).await;
        let spec = json!({
            "chart": "app", "interval": "1h", "sourceRef": { "kind": "HelmRepository", "name": "charts" },
        });
        flux.apply(&HELM_CHART, "app", spec).await;
    }
}

fn map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: value}}\n")
}

fn tarball(files: &[(&str, &str)]) -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut archive = tar::Builder::new(encoder);
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// What makes use of each source, and that the objects in it arrive.
async fn consume(cluster: &Cluster, flux: &Flux) {
    let kustomization = |kind: &str| -> Value {
        json!({
            "interval": "1h", "prune": true, "path": "./apps", "targetNamespace": flux.namespace.name(),
            "sourceRef": { "kind": kind, "name": "fleet" },
        })
    };
    flux.apply(&KUSTOMIZATION, "git", kustomization("GitRepository")).await;
    flux.apply(&KUSTOMIZATION, "oci", kustomization("OCIRepository")).await;
    let release = json!({ "interval": "1h", "chartRef": { "kind": "HelmChart", "name": "app" } });
    flux.apply(&HELM_RELEASE, "chart", release).await;
    flux.ready(&KUSTOMIZATION, "git").await;
    flux.ready(&KUSTOMIZATION, "oci").await;
    flux.ready(&HELM_RELEASE, "chart").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), flux.namespace.name());
    for name in ["from-git", "from-oci", "from-chart"] {
        assert!(maps.get_opt(name).await.unwrap().is_some(), "{name} is missing");
    }
}

/// A new commit reaches the consumer too: the file it knew is gone by then.
async fn follow(cluster: &Cluster, flux: &Flux) {
    flux.fleet.commit("second", &[("apps/map.yaml", &map("from-git").replace("value", "second"))]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), flux.namespace.name());
    let is_new = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["key"] == "second");
    let limit = Duration::from_secs(90);
    testbed::wait::until(&maps, "from-git", limit, "follows the new commit", is_new).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: runs upstream's kustomize- and helm-controller"]
async fn upstreams_appliers_live_on_our_artifacts() {
    let cluster = Cluster::real().await.unwrap();
    let flux = Flux::start(&cluster, &[Controller::Source]).await;
    let servers = Servers::start(&flux);
    let appliers = [reference::Controller::Kustomize, reference::Controller::Helm];
    let _upstream =
        tokio::task::block_in_place(|| Upstream::start(&cluster, flux.namespace.name(), &appliers)).unwrap();
    servers.apply_sources(&flux).await;
    consume(&cluster, &flux).await;
    follow(&cluster, &flux).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: runs upstream's source-controller"]
async fn our_appliers_live_on_upstreams_artifacts() {
    let cluster = Cluster::real().await.unwrap();
    let flux = Flux::start(&cluster, &[Controller::Kustomize, Controller::Helm]).await;
    let servers = Servers::start(&flux);
    let source = [reference::Controller::Source];
    let _upstream =
        tokio::task::block_in_place(|| Upstream::start(&cluster, flux.namespace.name(), &source)).unwrap();
    servers.apply_sources(&flux).await;
    consume(&cluster, &flux).await;
    follow(&cluster, &flux).await;
}

/// Any client can: it needs HTTP, a digest and tar.
#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_is_downloaded_checked_and_unpacked_by_anybody() {
    let cluster = Cluster::embedded().await.unwrap();
    let flux = Flux::start(&cluster, &[Controller::Source]).await;
    let _servers = Servers::start(&flux);
    flux.git_repository("fleet").await;
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    let bytes = crate::sources::artifact(&object).await;
    let artifact = &object["status"]["artifact"];
    assert_eq!(artifact["digest"], testbed::registry::digest(&bytes));
    assert_eq!(artifact["size"], bytes.len());
    let mut archive = tar::Archive::new(flate2::read::MultiGzDecoder::new(&bytes[..]));
    let folder = tempfile::tempdir().unwrap();
    archive.unpack(folder.path()).unwrap();
    let text = std::fs::read_to_string(folder.path().join("apps/map.yaml")).unwrap();
    assert_eq!(text, map("from-git"));
    // Part of it, and only what it is like.
    let url = artifact["url"].as_str().unwrap();
    let client = reqwest::Client::new();
    let part = client.get(url).header("Range", "bytes=2-5").send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.unwrap(), bytes[2..6]);
    let head = client.head(url).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], bytes.len().to_string().as_str());
}
