//! Kustomization: what Git dropped goes, but never what only moved, and not without asking what holds data.

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::Cluster;
use testbed::git_server::Change;

use crate::flux::Flux;
use crate::kustomization::{BOTH, applied, config_map, config_maps, spec, start};

crate::stories!(
    splitting_a_kustomization_deletes_nothing,
    renaming_a_kustomization_deletes_nothing,
    a_claim_that_holds_data_is_held_until_released,
    a_changed_secret_or_config_map_is_applied_at_once,
    a_commit_elsewhere_notes_the_revision_and_does_nothing_more,
);

async fn uid(maps: &Api<ConfigMap>, name: &str) -> Option<String> {
    maps.get(name).await.unwrap().metadata.uid
}

async fn commit(flux: &Flux, changes: &[Change<'_>]) -> String {
    let commit = flux.fleet.commit_to("main", "change", changes).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    commit
}

async fn splitting_a_kustomization_deletes_nothing(cluster: &Cluster) {
    let moved = config_map("moved", "x");
    let flux = start(
        cluster,
        &[
            ("one/a.yaml", &config_map("a", "x")),
            ("one/moved.yaml", &moved),
            ("two/b.yaml", &config_map("b", "x")),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "one", spec(&flux, "one", json!({}))).await;
    // The one that gets the object starts only after the one that loses it: the worst order.
    flux.apply(&KUSTOMIZATION, "two", spec(&flux, "two", json!({ "dependsOn": [{ "name": "one" }] }))).await;
    flux.ready(&KUSTOMIZATION, "two").await;
    let maps = config_maps(cluster, &flux);
    let before = uid(&maps, "moved").await;
    let revision =
        commit(&flux, &[Change::Remove("one/moved.yaml"), Change::Write("two/moved.yaml", &moved)]).await;
    applied(&flux, "two", &revision).await;
    flux.until(&KUSTOMIZATION, "one", "has let it go", |object| {
        object["status"]["inventory"]["entries"].as_array().is_some_and(|entries| entries.len() == 1)
    })
    .await;
    assert_eq!(uid(&maps, "moved").await, before, "it was deleted on the way");
}

async fn renaming_a_kustomization_deletes_nothing(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "x"))]).await;
    flux.apply(&KUSTOMIZATION, "old", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "old").await;
    let maps = config_maps(cluster, &flux);
    let before = uid(&maps, "a").await;
    flux.apply(&KUSTOMIZATION, "new", spec(&flux, "apps", json!({}))).await;
    flux.api(&KUSTOMIZATION).delete("old", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "old").await.unwrap();
    flux.ready(&KUSTOMIZATION, "new").await;
    assert_eq!(uid(&maps, "a").await, before);
}

async fn a_claim_that_holds_data_is_held_until_released(cluster: &Cluster) {
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], \
                 resources: {requests: {storage: 1Gi}}}\n";
    let flux = start(cluster, &[("apps/claim.yaml", claim), ("apps/a.yaml", &config_map("a", "x"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let revision = commit(&flux, &[Change::Remove("apps/claim.yaml")]).await;
    let object = applied(&flux, "apps", &revision).await;
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let held = conditions.iter().find(|one| one["type"] == "PruneHeld").unwrap();
    assert!(object["status"]["inventory"].to_string().contains("_data__PersistentVolumeClaim"));
    let message = held["message"].as_str().unwrap();
    assert!(message.contains("(it holds data)"), "{message}");
    let plan = message.split("fluxcd.rs/release-prune: ").nth(1).unwrap().split(',').next().unwrap();
    flux.told("apps", "fluxcd.rs/release-prune").await;
    let release = json!({ "metadata": { "annotations": { "fluxcd.rs/release-prune": plan } } });
    flux.api(&KUSTOMIZATION).patch("apps", &PatchParams::default(), &Patch::Merge(release)).await.unwrap();
    flux.reconcile(&KUSTOMIZATION, "apps").await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client(), flux.namespace.name());
    flux.until(&KUSTOMIZATION, "apps", "holds nothing", |object| {
        object["status"]["conditions"].as_array().unwrap().iter().all(|one| one["type"] != "PruneHeld")
            && object["status"]["inventory"]["entries"].as_array().unwrap().len() == 1
    })
    .await;
    // Something else may hold a finalizer on it; what counts is that it was asked to go.
    let left = claims.get_opt("data").await.unwrap();
    assert!(left.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some()));
}

async fn a_changed_secret_or_config_map_is_applied_at_once(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "${colour}"))]).await;
    let vars = |colour: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: vars}}\ndata: {{colour: {colour}}}\n")
    };
    cluster.apply_yaml(flux.namespace.name(), &vars("blue")).await.unwrap();
    let from = json!({ "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }] } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", from)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    // It has no label that asks for it, and the interval is an hour.
    cluster.apply_yaml(flux.namespace.name(), &vars("red")).await.unwrap();
    let maps = config_maps(cluster, &flux);
    let is_red = |map: &ConfigMap| crate::kustomization::value(map) == "red";
    cluster.await_condition(&maps, "a", "has the new value", is_red).await.unwrap();
}

async fn a_commit_elsewhere_notes_the_revision_and_does_nothing_more(cluster: &Cluster) {
    // With the watch of applied objects, a change by hand would be put back at once.
    let flux = Flux::start_with(cluster, BOTH, |options| options.kustomize.watch_drift = false).await;
    let files = [("apps/a.yaml", config_map("a", "x")), ("other/b.yaml", config_map("b", "x"))];
    flux.fleet.commit("first", &files.each_ref().map(|(path, text)| (*path, text.as_str()))).unwrap();
    flux.git_repository("fleet").await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    let first = flux.fleet.resolve("main").unwrap();
    applied(&flux, "apps", &first).await;
    // A build would put this back; the commit does not concern this folder, so there is none.
    let maps = config_maps(cluster, &flux);
    let by_hand = json!({ "data": { "key": "hand" } });
    maps.patch("a", &PatchParams::default(), &Patch::Merge(by_hand)).await.unwrap();
    let second = commit(&flux, &[Change::Write("other/b.yaml", &config_map("b", "y"))]).await;
    let object = applied(&flux, "apps", &second).await;
    assert_eq!(crate::kustomization::value(&maps.get("a").await.unwrap()), "hand");
    let history = object["status"]["history"].as_array().unwrap();
    assert_eq!((history.len(), &history[0]["totalReconciliations"]), (1, &json!(2)));
    // On request it is looked at, whatever changed.
    flux.reconcile(&KUSTOMIZATION, "apps").await;
    let is_back = |map: &ConfigMap| crate::kustomization::value(map) == "x";
    cluster.await_condition(&maps, "a", "is as in Git", is_back).await.unwrap();
    // A file that appears in a folder that was listed is a change.
    let third = commit(&flux, &[Change::Write("apps/c.yaml", &config_map("c", "new"))]).await;
    applied(&flux, "apps", &third).await;
    assert!(maps.get_opt("c").await.unwrap().is_some());
}
