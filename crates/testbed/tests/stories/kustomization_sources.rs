//! Kustomization: several sources as one tree, bases from elsewhere, and a source that is down.

use flux_api::kinds::{EXTERNAL_ARTIFACT, GIT_REPOSITORY, KUSTOMIZATION};
use kube::api::Patch;
use serde_json::json;
use testbed::Cluster;

use crate::flux::{Flux, ready};
use crate::kustomization::{BOTH, applied, config_map, config_maps, push, spec, start, value};

crate::parity_stories!(
    an_external_artifact_is_taken_from_whoever_made_it,
    several_sources_are_one_tree_and_each_wakes_it,
    a_remote_base_is_fetched_unless_that_is_forbidden,
    a_source_that_is_down_does_not_stop_what_it_brought,
);

/// Its maker is not among our controllers, and says nothing but where the files are.
async fn an_external_artifact_is_taken_from_whoever_made_it(cluster: &Cluster) {
    let flux =
        Flux::start_with(cluster, BOTH, |options| options.kustomize.gates.external_artifact = true).await;
    flux.fleet.commit("first", &[("apps/a.yaml", &config_map("a", "one"))]).unwrap();
    flux.git_repository("fleet").await;
    let mut artifact = flux.ready(&GIT_REPOSITORY, "fleet").await["status"]["artifact"].clone();
    artifact["path"] = json!("elsewhere/fleet.tar.gz");
    artifact["revision"] = json!("latest@sha256:1");
    artifact["metadata"] = json!({ "org.opencontainers.image.revision": "main@sha1:1" });
    let maker = json!({ "sourceRef": { "apiVersion": "example.org/v1", "kind": "Maker", "name": "m" } });
    flux.apply(&EXTERNAL_ARTIFACT, "made", maker).await;
    let source = json!({ "sourceRef": { "kind": "ExternalArtifact", "name": "made" } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", source)).await;
    flux.not_ready(&KUSTOMIZATION, "apps", "ArtifactFailed").await;
    let status = Patch::Merge(json!({ "status": { "artifact": artifact } }));
    flux.api(&EXTERNAL_ARTIFACT).patch_status("made", &Default::default(), &status).await.unwrap();
    let object = flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(object["status"]["lastAppliedRevision"], "latest@sha256:1");
    // What it was made from is told, too.
    assert_eq!(object["status"]["lastAppliedOriginRevision"], "main@sha1:1");
    let metadata = json!({ "revision": "latest@sha256:1", "originRevision": "main@sha1:1" });
    assert_eq!(object["status"]["history"][0]["metadata"], metadata);
    let told = flux.told("apps", "Reconciliation finished in ").await;
    let annotations = told.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["kustomize.toolkit.fluxcd.io/originRevision"], "main@sha1:1");
    assert_eq!(value(&config_maps(cluster, &flux).get("a").await.unwrap()), "one");
}

async fn second_repository(flux: &Flux, files: &[(&str, &str)]) -> testbed::git_server::Repository {
    let other = flux.server.create("other").unwrap();
    other.commit("first", files).unwrap();
    let url = flux.server.http_url("other");
    let source = json!({ "url": url, "interval": "1h", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "other", source).await;
    other
}

async fn several_sources_are_one_tree_and_each_wakes_it(cluster: &Cluster) {
    let all = "resources: [a.yaml, ../vendor/other/b.yaml]\n";
    let flux =
        start(cluster, &[("apps/kustomization.yaml", all), ("apps/a.yaml", &config_map("a", "one"))]).await;
    let other = second_repository(&flux, &[("b.yaml", &config_map("b", "one"))]).await;
    let refs = json!([
        { "kind": "GitRepository", "name": "fleet" },
        { "kind": "GitRepository", "name": "other", "as": "vendor/other" },
    ]);
    let mut composed = spec(&flux, "apps", json!({ "sourceRefs": refs }));
    composed.as_object_mut().unwrap().remove("sourceRef");
    flux.apply(&KUSTOMIZATION, "apps", composed).await;
    let object = flux.ready(&KUSTOMIZATION, "apps").await;
    let first = flux.fleet.resolve("main").unwrap();
    assert_eq!(object["status"]["lastAppliedRevision"], format!("main@sha1:{first}"));
    let maps = config_maps(cluster, &flux);
    assert_eq!(value(&maps.get("b").await.unwrap()), "one");
    other.commit("second", &[("b.yaml", &config_map("b", "two"))]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "other").await;
    cluster
        .await_condition(&maps, "b", "is as in the second source", |map| value(map) == "two")
        .await
        .unwrap();
    // The same path from two sources is a mistake, not a choice.
    push(&flux, &[("vendor/other/b.yaml", &config_map("b", "three"))]).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "BuildFailed").await;
    assert!(ready(&object).2.contains("vendor/other/b.yaml is supplied twice"), "{}", ready(&object).2);
}

async fn a_remote_base_is_fetched_unless_that_is_forbidden(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let base = flux.server.create("base").unwrap();
    base.commit(
        "first",
        &[("app/kustomization.yaml", "resources: [b.yaml]\n"), ("app/b.yaml", &config_map("b", "base"))],
    )
    .unwrap();
    let url = flux.server.http_url("base");
    let file = format!("namePrefix: my-\nresources: ['{url}//app?ref=main']\n");
    flux.fleet.commit("first", &[("apps/kustomization.yaml", &file)]).unwrap();
    flux.git_repository("fleet").await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(value(&config_maps(cluster, &flux).get("my-b").await.unwrap()), "base");

    let strict = Flux::start_with(cluster, BOTH, |options| options.kustomize.no_remote_bases = true).await;
    strict.fleet.commit("first", &[("apps/kustomization.yaml", &file)]).unwrap();
    strict.git_repository("fleet").await;
    strict.apply(&KUSTOMIZATION, "apps", spec(&strict, "apps", json!({}))).await;
    let object = strict.not_ready(&KUSTOMIZATION, "apps", "BuildFailed").await;
    assert!(ready(&object).2.contains("--no-remote-bases"), "{}", ready(&object).2);
}

async fn a_source_that_is_down_does_not_stop_what_it_brought(cluster: &Cluster) {
    let mut flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    let commit = flux.fleet.resolve("main").unwrap();
    applied(&flux, "apps", &commit).await;
    // Nothing answers there any more, and the controllers start anew: the artifact they kept will do.
    let nowhere = json!({ "url": "http://127.0.0.1:1/fleet", "interval": "1h", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "fleet", nowhere).await;
    flux.until(&GIT_REPOSITORY, "fleet", "is not ready", |object| ready(object).0 == "False").await;
    flux.stop().await;
    flux.resume().await;
    let maps = config_maps(cluster, &flux);
    maps.delete("a", &Default::default()).await.unwrap();
    flux.reconcile(&KUSTOMIZATION, "apps").await;
    cluster.await_condition(&maps, "a", "is back", |map| value(map) == "one").await.unwrap();
    flux.ready(&KUSTOMIZATION, "apps").await;
}
