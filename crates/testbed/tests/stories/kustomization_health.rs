//! Kustomization: healthy means what the objects, or an expression, say.

use flux_api::kinds::KUSTOMIZATION;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::ready;
use crate::kustomization::{config_map, config_maps, push, spec, start};

crate::parity_stories!(
    an_expression_tells_the_health_of_a_kind,
    a_failed_object_ends_the_wait_and_a_push_recovers,
    a_new_commit_does_not_wait_for_an_old_wait,
    health_checks_by_name_default_to_apps,
);

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == name)
}

async fn an_expression_tells_the_health_of_a_kind(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "working"))]).await;
    let checks = json!({ "wait": true, "healthCheckExprs": [{
        "apiVersion": "v1", "kind": "ConfigMap",
        "current": "data.key == 'done'", "failed": "data.key == 'broken'",
    }]});
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", checks)).await;
    flux.until(&KUSTOMIZATION, "apps", "waits for health", |object| {
        condition(object, "Healthy").is_some_and(|healthy| healthy["status"] == "Unknown")
    })
    .await;
    push(&flux, &[("apps/a.yaml", &config_map("a", "broken"))]).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "HealthCheckFailed").await;
    let namespace = flux.namespace.name();
    let text = format!("failed early due to stalled resources: [ConfigMap/{namespace}/a status: 'Failed']");
    assert!(ready(&object).2.starts_with("health check failed after "), "{}", ready(&object).2);
    assert!(ready(&object).2.ends_with(&text), "{}", ready(&object).2);
    assert_eq!(condition(&object, "Healthy").unwrap()["message"], text);
    assert_eq!(object["status"]["history"][0]["lastReconciledStatus"], "HealthCheckFailed");
    push(&flux, &[("apps/a.yaml", &config_map("a", "done"))]).await;
    let object = flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(condition(&object, "Healthy").unwrap()["reason"], "Succeeded");
    flux.told("apps", "Health check passed in ").await;
}

async fn a_failed_object_ends_the_wait_and_a_push_recovers(cluster: &Cluster) {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  suspend: true\n  template:\n    spec:\n      \
               restartPolicy: Never\n      containers: [{name: c, image: i}]\n";
    let flux = start(cluster, &[("apps/job.yaml", job)]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "wait": true }))).await;
    // A suspended Job is as far as it gets.
    let object = flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(condition(&object, "Healthy").unwrap()["status"], "True");
    // Without anything to check the condition goes.
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "wait": false }))).await;
    flux.until(&KUSTOMIZATION, "apps", "has no Healthy condition", |object| {
        condition(object, "Healthy").is_none()
            && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    })
    .await;
}

async fn a_new_commit_does_not_wait_for_an_old_wait(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "never"))]).await;
    let checks = json!({ "wait": true, "timeout": "10m", "healthCheckExprs": [{
        "apiVersion": "v1", "kind": "ConfigMap", "current": "data.key == 'good'",
    }]});
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", checks)).await;
    flux.until(&KUSTOMIZATION, "apps", "waits for health", |object| {
        condition(object, "Healthy").is_some_and(|healthy| healthy["status"] == "Unknown")
    })
    .await;
    push(&flux, &[("apps/a.yaml", &config_map("a", "good"))]).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    // An object that becomes unhealthy later is noticed by the next check.
    let by_hand = json!({ "metadata": { "annotations": { "kustomize.toolkit.fluxcd.io/ssa": "ignore" } }, "data": { "key": "bad" } });
    config_maps(cluster, &flux).patch("a", &PatchParams::default(), &Patch::Merge(by_hand)).await.unwrap();
    flux.reconcile_as(&KUSTOMIZATION, "apps", "skipped objects are not checked").await;
    flux.until(&KUSTOMIZATION, "apps", "handled the request", |object| {
        object["status"]["lastHandledReconcileAt"] == "skipped objects are not checked"
            && ready(object).0 == "True"
    })
    .await;
}

async fn health_checks_by_name_default_to_apps(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "x"))]).await;
    let checks = json!({ "timeout": "30s", "healthChecks": [
        { "kind": "Deployment", "name": "missing", "namespace": flux.namespace.name() }] });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", checks)).await;
    flux.until(&KUSTOMIZATION, "apps", "waits for health", |object| {
        condition(object, "Healthy").is_some_and(|healthy| healthy["status"] == "Unknown")
    })
    .await;
    let found = json!({ "healthChecks": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": flux.namespace.name() }] });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", found)).await;
    flux.until(&KUSTOMIZATION, "apps", "is ready in its new shape", |object| {
        ready(object).0 == "True"
            && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    })
    .await;
}
