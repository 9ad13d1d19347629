//! Kustomization: what Git holds is what the cluster holds.

use flux_api::kinds::{Controller, KUSTOMIZATION};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::{Flux, ready};

crate::parity_stories!(
    a_folder_becomes_objects_and_a_push_changes_them,
    what_git_drops_is_pruned_unless_told_otherwise,
    a_broken_file_is_named_and_the_fix_is_applied,
    a_dependent_starts_when_its_dependency_is_ready,
    variables_are_substituted_and_a_missing_one_is_named,
    what_somebody_changed_by_hand_is_put_back,
    deleting_a_kustomization_takes_its_objects_along,
    an_orphaning_kustomization_leaves_its_objects,
    all_refused_objects_are_reported_together,
    a_restart_changes_nothing,
);

pub(crate) const BOTH: &[Controller] = &[Controller::Source, Controller::Kustomize];

pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {value}\n")
}

pub(crate) fn spec(flux: &Flux, path: &str, extra: Value) -> Value {
    let mut spec = json!({
        "interval": "1h", "retryInterval": "1s", "prune": true, "path": path,
        "targetNamespace": flux.namespace.name(),
        "sourceRef": { "kind": "GitRepository", "name": "fleet" },
    });
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec
}

pub(crate) async fn start(cluster: &Cluster, files: &[(&str, &str)]) -> Flux {
    let flux = Flux::start(cluster, BOTH).await;
    flux.fleet.commit("first", files).unwrap();
    flux.git_repository("fleet").await;
    flux
}

/// Pushes and has the source look at once.
pub(crate) async fn push(flux: &Flux, files: &[(&str, &str)]) -> String {
    let commit = flux.fleet.commit("next", files).unwrap();
    flux.reconcile(&flux_api::kinds::GIT_REPOSITORY, "fleet").await;
    commit
}

pub(crate) fn config_maps(cluster: &Cluster, flux: &Flux) -> Api<ConfigMap> {
    Api::namespaced(cluster.client(), flux.namespace.name())
}

pub(crate) async fn applied(flux: &Flux, name: &str, commit: &str) -> Value {
    let revision = format!("main@sha1:{commit}");
    flux.until(&KUSTOMIZATION, name, &format!("applied {revision}"), |object| {
        object["status"]["lastAppliedRevision"] == revision.as_str() && ready(object).0 == "True"
    })
    .await
}

pub(crate) fn value(map: &ConfigMap) -> &str {
    map.data.as_ref().and_then(|data| data.get("key")).map_or("", String::as_str)
}

async fn a_folder_becomes_objects_and_a_push_changes_them(cluster: &Cluster) {
    let flux =
        start(cluster, &[("apps/a.yaml", &config_map("a", "one")), ("other/b.yaml", &config_map("b", "x"))])
            .await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "./apps", json!({}))).await;
    let first = flux.fleet.resolve("main").unwrap();
    let object = applied(&flux, "apps", &first).await;
    let namespace = flux.namespace.name();
    assert_eq!(
        ready(&object),
        ("True", "ReconciliationSucceeded", &*format!("Applied revision: main@sha1:{first}"))
    );
    assert_eq!(
        object["status"]["inventory"]["entries"],
        json!([{ "id": format!("{namespace}_a__ConfigMap"), "v": "v1" }])
    );
    assert_eq!(object["status"]["lastAttemptedRevision"], format!("main@sha1:{first}"));
    assert_eq!(object["status"]["history"][0]["lastReconciledStatus"], "ReconciliationSucceeded");
    let map = config_maps(cluster, &flux).get("a").await.unwrap();
    assert_eq!(value(&map), "one");
    let labels = map.metadata.labels.unwrap();
    assert_eq!(labels["kustomize.toolkit.fluxcd.io/name"], "apps");
    assert_eq!(labels["kustomize.toolkit.fluxcd.io/namespace"], namespace);
    let managers: Vec<_> =
        map.metadata.managed_fields.unwrap().into_iter().filter_map(|entry| entry.manager).collect();
    assert_eq!(managers, ["kustomize-controller"]);
    assert!(config_maps(cluster, &flux).get_opt("b").await.unwrap().is_none());

    let second = push(&flux, &[("apps/a.yaml", &config_map("a", "two"))]).await;
    applied(&flux, "apps", &second).await;
    assert_eq!(value(&config_maps(cluster, &flux).get("a").await.unwrap()), "two");
}

async fn what_git_drops_is_pruned_unless_told_otherwise(cluster: &Cluster) {
    let keep = config_map("keep", "x").replace(
        "  name: keep\n",
        "  name: keep\n  annotations:\n    kustomize.toolkit.fluxcd.io/prune: disabled\n",
    );
    let flux = start(
        cluster,
        &[(
            "apps/all.yaml",
            &format!("{}---\n{}---\n{keep}", config_map("a", "one"), config_map("b", "one")),
        )],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let commit = push(&flux, &[("apps/all.yaml", &config_map("a", "one"))]).await;
    let object = applied(&flux, "apps", &commit).await;
    assert_eq!(object["status"]["inventory"]["entries"].as_array().unwrap().len(), 1);
    assert!(config_maps(cluster, &flux).get_opt("b").await.unwrap().is_none());
    assert!(config_maps(cluster, &flux).get_opt("keep").await.unwrap().is_some());
    let namespace = flux.namespace.name();
    let told = flux.told("apps", &format!("ConfigMap/{namespace}/b deleted")).await;
    assert!(told.message.unwrap().contains(&format!("ConfigMap/{namespace}/keep skipped")));
    assert_eq!(told.reason.as_deref(), Some("Progressing"));
}

async fn a_broken_file_is_named_and_the_fix_is_applied(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    push(&flux, &[("apps/broken.yaml", "kind: [1\n")]).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "BuildFailed").await;
    assert!(ready(&object).2.contains("apps/broken.yaml"), "{}", ready(&object).2);
    assert!(
        config_maps(cluster, &flux).get_opt("a").await.unwrap().is_some(),
        "a failed build prunes nothing"
    );
    let fixed = push(&flux, &[("apps/broken.yaml", &config_map("b", "one"))]).await;
    applied(&flux, "apps", &fixed).await;

    let missing = spec(&flux, "no/such/folder", json!({}));
    flux.apply(&KUSTOMIZATION, "lost", missing).await;
    let object = flux.not_ready(&KUSTOMIZATION, "lost", "ArtifactFailed").await;
    assert!(ready(&object).2.starts_with("kustomization path not found"), "{}", ready(&object).2);
}

async fn a_dependent_starts_when_its_dependency_is_ready(cluster: &Cluster) {
    let flux =
        start(cluster, &[("infra/a.yaml", "kind: [1\n"), ("apps/b.yaml", &config_map("b", "one"))]).await;
    let depends = json!({ "dependsOn": [{ "name": "infra" }] });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", depends)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "DependencyNotReady").await;
    assert!(ready(&object).2.contains("/infra' not found"), "{}", ready(&object).2);
    flux.apply(&KUSTOMIZATION, "infra", spec(&flux, "infra", json!({}))).await;
    flux.not_ready(&KUSTOMIZATION, "infra", "BuildFailed").await;
    // The story waits at most 30 s, which is how long a poll would take; the wake-up does not.
    let commit = push(&flux, &[("infra/a.yaml", &config_map("a", "one"))]).await;
    applied(&flux, "infra", &commit).await;
    let started = std::time::Instant::now();
    applied(&flux, "apps", &commit).await;
    assert!(started.elapsed().as_secs() < 10, "the dependent took {:?}", started.elapsed());
}

async fn variables_are_substituted_and_a_missing_one_is_named(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "${greeting}-${who:=world}"))]).await;
    let namespace = flux.namespace.name();
    cluster
        .apply_yaml(
            namespace,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: vars}\ndata: {greeting: hello}\n",
        )
        .await
        .unwrap();
    let from = json!({ "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }] } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", from)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(value(&config_maps(cluster, &flux).get("a").await.unwrap()), "hello-world");
    let without = json!({ "postBuild": { "substitute": { "other": "x" } } });
    flux.apply(&KUSTOMIZATION, "strict", spec(&flux, "apps", without)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "strict", "BuildFailed").await;
    let expected = "post build failed for 'ConfigMap.v1.[noGrp]/a': envsubst error: variable substitution failed: \
                    variable not set (strict mode): \"greeting\"\n  ${greeting} in apps/a.yaml line 6";
    assert_eq!(ready(&object).2, expected);
}

async fn what_somebody_changed_by_hand_is_put_back(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "git"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let maps = config_maps(cluster, &flux);
    let by_hand = json!({ "data": { "key": "hand" } });
    maps.patch(
        "a",
        &PatchParams { field_manager: Some("kubectl-edit".into()), ..Default::default() },
        &Patch::Merge(by_hand),
    )
    .await
    .unwrap();
    flux.reconcile(&KUSTOMIZATION, "apps").await;
    cluster.await_condition(&maps, "a", "is as in Git", |map| value(map) == "git").await.unwrap();
}

async fn deleting_a_kustomization_takes_its_objects_along(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    flux.api(&KUSTOMIZATION).delete("apps", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "apps").await.unwrap();
    assert!(config_maps(cluster, &flux).get_opt("a").await.unwrap().is_none());
}

async fn an_orphaning_kustomization_leaves_its_objects(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "deletionPolicy": "Orphan" }))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    flux.api(&KUSTOMIZATION).delete("apps", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "apps").await.unwrap();
    assert!(config_maps(cluster, &flux).get_opt("a").await.unwrap().is_some());
}

async fn all_refused_objects_are_reported_together(cluster: &Cluster) {
    let bad = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: [not, text]\n")
    };
    let flux = start(
        cluster,
        &[("apps/all.yaml", &format!("{}---\n{}---\n{}", bad("one"), config_map("fine", "one"), bad("two")))],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "ReconciliationFailed").await;
    let message = ready(&object).2;
    for name in ["one", "two"] {
        let named = format!("ConfigMap/{}/{name} dry-run failed", flux.namespace.name());
        assert!(message.contains(&named), "{message}");
    }
    assert!(
        config_maps(cluster, &flux).get_opt("fine").await.unwrap().is_none(),
        "nothing of a refused stage is applied"
    );
}

async fn a_restart_changes_nothing(cluster: &Cluster) {
    let mut flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let before = config_maps(cluster, &flux).get("a").await.unwrap();
    flux.stop().await;
    flux.resume().await;
    flux.reconcile_as(&KUSTOMIZATION, "apps", "after the restart").await;
    flux.until(&KUSTOMIZATION, "apps", "handled the request", |object| {
        object["status"]["lastHandledReconcileAt"] == "after the restart" && ready(object).0 == "True"
    })
    .await;
    let after = config_maps(cluster, &flux).get("a").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
}
