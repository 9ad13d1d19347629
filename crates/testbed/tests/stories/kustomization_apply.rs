//! Kustomization: how objects are written, left alone, recreated and deleted.

use flux_api::kinds::{EXTERNAL_ARTIFACT, KUSTOMIZATION};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::Cluster;
use testbed::git_server::Change;

use crate::flux::{Flux, ready};
use crate::kustomization::{BOTH, applied, config_map, config_maps, push, spec, start, value};

crate::parity_stories!(
    an_ignored_field_belongs_to_somebody_else,
    objects_say_how_they_want_to_be_applied,
    what_is_made_only_once_is_nobodys_health,
    what_cannot_be_changed_is_recreated_only_when_forced,
    what_kubectl_applied_is_taken_over,
    kinds_of_a_crd_in_the_same_set_are_applied_after_it,
    a_deletion_waits_for_its_objects_to_be_gone,
    the_objects_of_a_vanished_account_are_left_behind,
    a_suspended_kustomization_is_left_alone_and_leaves_its_objects,
    metadata_for_all_wins_over_what_objects_say,
    an_object_that_moved_to_another_kustomization_stays,
);

fn marked(name: &str, value: &str, key: &str, mark: &str) -> String {
    config_map(name, value).replace(
        "\ndata:\n",
        &format!("\n  annotations:\n    kustomize.toolkit.fluxcd.io/{key}: {mark}\ndata:\n"),
    )
}

async fn by_hand(maps: &Api<ConfigMap>, name: &str, patch: serde_json::Value) {
    let parameters = PatchParams { field_manager: Some("somebody".into()), ..PatchParams::default() };
    maps.patch(name, &parameters, &Patch::Merge(patch)).await.unwrap();
}

async fn reconciled(flux: &Flux, name: &str, token: &str) {
    flux.reconcile_as(&KUSTOMIZATION, name, token).await;
    flux.until(&KUSTOMIZATION, name, "handled the request", |object| {
        object["status"]["lastHandledReconcileAt"] == token && ready(object).0 == "True"
    })
    .await;
}

async fn an_ignored_field_belongs_to_somebody_else(cluster: &Cluster) {
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: git\n  scaled: '1'\n";
    let flux = start(cluster, &[("apps/a.yaml", two)]).await;
    let rules =
        json!({ "ignore": [{ "paths": ["/data/scaled"], "target": { "kind": "ConfigMap", "name": "a" } }] });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", rules)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let maps = config_maps(cluster, &flux);
    by_hand(&maps, "a", json!({ "data": { "scaled": "5" } })).await;
    let before = maps.get("a").await.unwrap().metadata.resource_version;
    reconciled(&flux, "apps", "the ignored field alone is no drift").await;
    assert_eq!(maps.get("a").await.unwrap().metadata.resource_version, before);
    by_hand(&maps, "a", json!({ "data": { "key": "hand" } })).await;
    reconciled(&flux, "apps", "another field is").await;
    let map = maps.get("a").await.unwrap();
    assert_eq!((value(&map), map.data.as_ref().unwrap()["scaled"].as_str()), ("git", "5"));
    let bad = json!({ "ignore": [{ "paths": ["/data"], "target": { "name": "(" } }] });
    flux.apply(&KUSTOMIZATION, "bad", spec(&flux, "apps", bad)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "bad", "ReconciliationFailed").await;
    assert!(ready(&object).2.starts_with("spec.ignore[0]: target.name"), "{}", ready(&object).2);
}

async fn objects_say_how_they_want_to_be_applied(cluster: &Cluster) {
    let flux = start(
        cluster,
        &[
            ("apps/once.yaml", &marked("once", "git", "ssa", "IfNotPresent")),
            ("apps/never.yaml", &marked("never", "git", "ssa", "Ignore")),
            ("apps/off.yaml", &marked("off", "git", "reconcile", "disabled")),
            ("apps/merge.yaml", &marked("merge", "git", "ssa", "Merge")),
            ("apps/live.yaml", &config_map("live", "git")),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    let object = flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(
        object["status"]["inventory"]["entries"].as_array().unwrap().len(),
        5,
        "skipped ones are in it"
    );
    let maps = config_maps(cluster, &flux);
    assert!(maps.get_opt("never").await.unwrap().is_none() && maps.get_opt("off").await.unwrap().is_none());
    by_hand(&maps, "once", json!({ "data": { "key": "hand" } })).await;
    // At once: a change that is not protected yet would be put back before the label is there.
    let labels = json!({ "kustomize.toolkit.fluxcd.io/reconcile": "Disabled" });
    by_hand(&maps, "live", json!({ "metadata": { "labels": labels }, "data": { "key": "hand" } })).await;
    by_hand(&maps, "merge", json!({ "data": { "extra": "kept", "key": "hand" } })).await;
    reconciled(&flux, "apps", "again").await;
    for (name, expected) in [("once", "hand"), ("live", "hand"), ("merge", "git")] {
        assert_eq!(value(&maps.get(name).await.unwrap()), expected, "{name}");
    }
    assert_eq!(maps.get("merge").await.unwrap().data.unwrap()["extra"], "kept");
}

async fn what_is_made_only_once_is_nobodys_health(cluster: &Cluster) {
    let marked = "metadata:\n  name: made\n  annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}\n";
    let made =
        format!("apiVersion: source.toolkit.fluxcd.io/v1\nkind: ExternalArtifact\n{marked}spec: {{}}\n");
    let flux = start(cluster, &[("apps/made.yaml", &made)]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "wait": true, "timeout": "3s" }))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let sick = json!({ "type": "Ready", "status": "False", "reason": "Sick", "message": "on purpose",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = Patch::Merge(json!({ "status": { "observedGeneration": 1, "conditions": [sick] } }));
    flux.api(&EXTERNAL_ARTIFACT).patch_status("made", &PatchParams::default(), &status).await.unwrap();
    reconciled(&flux, "apps", "it is skipped").await;
}

async fn what_cannot_be_changed_is_recreated_only_when_forced(cluster: &Cluster) {
    let fixed = |value: &str| config_map("fixed", value).replace("\ndata:\n", "\nimmutable: true\ndata:\n");
    let flux = start(cluster, &[("apps/a.yaml", &fixed("one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    push(&flux, &[("apps/a.yaml", &fixed("two"))]).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "ReconciliationFailed").await;
    assert!(ready(&object).2.contains("dry-run failed (Invalid)"), "{}", ready(&object).2);
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "force": true }))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(value(&config_maps(cluster, &flux).get("fixed").await.unwrap()), "two");
    // The object itself may ask for it, too.
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "force": false }))).await;
    let marked = fixed("three").replace(
        "  name: fixed\n",
        "  name: fixed\n  labels: {kustomize.toolkit.fluxcd.io/force: Enabled}\n",
    );
    let commit = push(&flux, &[("apps/a.yaml", &marked)]).await;
    applied(&flux, "apps", &commit).await;
    assert_eq!(value(&config_maps(cluster, &flux).get("fixed").await.unwrap()), "three");
}

async fn what_kubectl_applied_is_taken_over(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "git"))]).await;
    let maps = config_maps(cluster, &flux);
    let before = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a",
        "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" } },
        "data": { "key": "kubectl", "left": "over" } });
    let kubectl = PatchParams::apply("kubectl").force();
    maps.patch("a", &kubectl, &Patch::Apply(before)).await.unwrap();
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let map = maps.get("a").await.unwrap();
    assert_eq!(map.data.as_ref().unwrap().len(), 1, "what Git does not hold is gone: {:?}", map.data);
    assert_eq!(map.metadata.annotations, None);
    let managers: Vec<_> =
        map.metadata.managed_fields.unwrap().into_iter().filter_map(|entry| entry.manager).collect();
    assert_eq!(managers, ["kustomize-controller"]);
}

async fn kinds_of_a_crd_in_the_same_set_are_applied_after_it(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    // Definitions are of the whole cluster, so each run brings its own group.
    let group = format!("{}.example.org", flux.namespace.name());
    let crd = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: widgets.{group}}}\n\
         spec:\n  group: {group}\n  scope: Cluster\n  names: {{kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}}\n  \
         versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}}}]\n"
    );
    let widget = format!(
        "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: w, namespace: stripped}}\nspec: {{size: 1}}\n"
    );
    flux.fleet.commit("first", &[("apps/a-widget.yaml", &widget), ("apps/crd.yaml", &crd)]).unwrap();
    flux.git_repository("fleet").await;
    let mut plain = spec(&flux, "apps", json!({ "wait": true }));
    plain.as_object_mut().unwrap().remove("targetNamespace");
    flux.apply(&KUSTOMIZATION, "apps", plain).await;
    let object = flux.ready(&KUSTOMIZATION, "apps").await;
    let entries = object["status"]["inventory"]["entries"].to_string();
    assert!(entries.contains(&format!("_w_{group}_Widget")) && !entries.contains("stripped"), "{entries}");
    flux.api(&KUSTOMIZATION).delete("apps", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "apps").await.unwrap();
}

async fn a_deletion_waits_for_its_objects_to_be_gone(cluster: &Cluster) {
    let held = config_map("held", "x").replace("\ndata:\n", "\n  finalizers: [example.org/hold]\ndata:\n");
    let flux = start(cluster, &[("apps/a.yaml", &held)]).await;
    let policy = json!({ "deletionPolicy": "WaitForTermination", "prune": false });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", policy)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let maps = config_maps(cluster, &flux);
    flux.api(&KUSTOMIZATION).delete("apps", &DeleteParams::default()).await.unwrap();
    cluster
        .await_condition(&maps, "held", "is being deleted", |map| map.metadata.deletion_timestamp.is_some())
        .await
        .unwrap();
    assert!(flux.api(&KUSTOMIZATION).get_opt("apps").await.unwrap().is_some(), "it waits");
    by_hand(&maps, "held", json!({ "metadata": { "finalizers": null } })).await;
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "apps").await.unwrap();
    flux.told("apps", "ConfigMap/").await;
    // As long as it may take, and no longer.
    let policy = json!({ "deletionPolicy": "WaitForTermination", "timeout": "1s" });
    flux.apply(&KUSTOMIZATION, "hasty", spec(&flux, "apps", policy)).await;
    flux.ready(&KUSTOMIZATION, "hasty").await;
    flux.api(&KUSTOMIZATION).delete("hasty", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "hasty").await.unwrap();
    flux.told("hasty", "failed to wait for resources termination").await;
    assert!(maps.get("held").await.unwrap().metadata.deletion_timestamp.is_some());
    by_hand(&maps, "held", json!({ "metadata": { "finalizers": null } })).await;
}

async fn the_objects_of_a_vanished_account_are_left_behind(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "x"))]).await;
    let namespace = flux.namespace.name();
    let account = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: admin}}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: admin}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\n\
         subjects: [{{kind: ServiceAccount, name: admin, namespace: {namespace}}}]\n"
    );
    cluster.apply_yaml(namespace, &account).await.unwrap();
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "serviceAccountName": "admin" }))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(cluster.client(), namespace);
    accounts.delete("admin", &DeleteParams::default()).await.unwrap();
    flux.api(&KUSTOMIZATION).delete("apps", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "apps").await.unwrap();
    let told = flux.told("apps", "unable to prune objects: ").await;
    assert!(told.message.unwrap().ends_with(&format!("ConfigMap/{namespace}/a")));
    assert!(config_maps(cluster, &flux).get_opt("a").await.unwrap().is_some());
}

async fn a_suspended_kustomization_is_left_alone_and_leaves_its_objects(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "suspend": true }))).await;
    flux.reconcile_as(&KUSTOMIZATION, "apps", "while suspended").await;
    flux.until(&KUSTOMIZATION, "apps", "notes the request", |object| {
        object["status"]["lastHandledReconcileAt"] == "while suspended"
    })
    .await;
    flux.api(&KUSTOMIZATION).delete("apps", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "apps").await.unwrap();
    assert_eq!(value(&config_maps(cluster, &flux).get("a").await.unwrap()), "one");
}

async fn metadata_for_all_wins_over_what_objects_say(cluster: &Cluster) {
    let labelled =
        config_map("a", "one").replace("\ndata:\n", "\n  labels: {team: theirs, own: kept}\ndata:\n");
    let flux = start(cluster, &[("apps/a.yaml", &labelled)]).await;
    let common = json!({ "commonMetadata": { "labels": { "team": "ours" }, "annotations": { "note": "n" } },
        "namePrefix": "p-", "nameSuffix": "-s" });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", common)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let map = config_maps(cluster, &flux).get("p-a-s").await.unwrap();
    let labels = map.metadata.labels.unwrap();
    assert_eq!((labels["team"].as_str(), labels["own"].as_str()), ("ours", "kept"));
    assert_eq!(map.metadata.annotations.unwrap()["note"], "n");
}

async fn an_object_that_moved_to_another_kustomization_stays(cluster: &Cluster) {
    let flux = start(
        cluster,
        &[
            ("one/a.yaml", &config_map("a", "x")),
            ("one/b.yaml", &config_map("b", "x")),
            ("two/c.yaml", &config_map("c", "x")),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "one", spec(&flux, "one", json!({}))).await;
    flux.apply(&KUSTOMIZATION, "two", spec(&flux, "two", json!({ "dependsOn": [] }))).await;
    flux.ready(&KUSTOMIZATION, "one").await;
    flux.ready(&KUSTOMIZATION, "two").await;
    let uid = config_maps(cluster, &flux).get("a").await.unwrap().metadata.uid;
    // Two takes `a` over first, then one lets it go.
    let commit = push(&flux, &[("two/a.yaml", &config_map("a", "x"))]).await;
    applied(&flux, "two", &commit).await;
    applied(&flux, "one", &commit).await;
    flux.apply(&KUSTOMIZATION, "one", spec(&flux, "one", json!({ "suspend": true }))).await;
    flux.reconcile_as(&KUSTOMIZATION, "two", "two has it last").await;
    flux.until(&KUSTOMIZATION, "two", "handled", |object| {
        object["status"]["lastHandledReconcileAt"] == "two has it last"
    })
    .await;
    flux.fleet.commit_to("main", "drop", &[Change::Remove("one/a.yaml")]).unwrap();
    flux.reconcile(&flux_api::kinds::GIT_REPOSITORY, "fleet").await;
    let commit = flux.fleet.resolve("main").unwrap();
    applied(&flux, "two", &commit).await;
    flux.apply(&KUSTOMIZATION, "one", spec(&flux, "one", json!({ "suspend": false }))).await;
    applied(&flux, "one", &commit).await;
    assert_eq!(config_maps(cluster, &flux).get("a").await.unwrap().metadata.uid, uid, "it was not deleted");
}
