//! Swap: a fleet that upstream's controllers deployed is taken over without one write to a workload, and handed back.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_api::kinds::{Controller, GIT_REPOSITORY, KUSTOMIZATION};
use kube::Api;
use kube::api::DynamicObject;
use kube::core::TypeMeta;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::control_plane::Options;
use testbed::reference;
use testbed::upstream::Upstream;

use crate::flux::{Flux, ready};
use crate::kustomization::{push, spec};

const WORKLOADS: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, number: '1'}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      containers: [{name: web, image: 'web:1', ports: [{containerPort: 8080}], env: [{name: A, value: b}], resources: {}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: 'web:reader'}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";

const KINDS: [(&str, &str); 7] = [
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("apps/v1", "Deployment"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("policy/v1", "PodDisruptionBudget"),
];

/// Upstream's source- and kustomize-controller at work.
fn upstream(cluster: &Cluster, namespace: &str) -> Upstream {
    let controllers = [reference::Controller::Source, reference::Controller::Kustomize];
    tokio::task::block_in_place(|| Upstream::start(cluster, namespace, &controllers).unwrap())
}

/// What a swap must not touch: everything about each object but when it was last seen.
async fn fleet(cluster: &Cluster, namespace: &str) -> BTreeMap<String, Value> {
    let mut seen = BTreeMap::new();
    for (api_version, kind) in KINDS {
        let types = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
        let api: Api<DynamicObject> = cluster.dynamic(&types, namespace).await.unwrap();
        for object in api.list(&Default::default()).await.unwrap() {
            let labels = object.metadata.labels.clone().unwrap_or_default();
            if !labels.contains_key("kustomize.toolkit.fluxcd.io/name") {
                continue;
            }
            let name = format!("{kind}/{}", object.metadata.name.clone().unwrap());
            let metadata = json!({
                "resourceVersion": object.metadata.resource_version, "labels": labels,
                "annotations": object.metadata.annotations, "managedFields": object.metadata.managed_fields,
            });
            seen.insert(name, metadata);
        }
    }
    seen
}

async fn reconciled(flux: &Flux, token: &str) -> Value {
    flux.reconcile_as(&KUSTOMIZATION, "apps", token).await;
    let seen = |object: &DynamicObject| {
        let object = serde_json::to_value(object).unwrap();
        object["status"]["lastHandledReconcileAt"] == token && ready(&object).0 == "True"
    };
    let limit = Duration::from_secs(90);
    let api = flux.api(&KUSTOMIZATION);
    let mut object = testbed::wait::until(&api, "apps", limit, "handled it", seen).await.unwrap();
    // Upstream writes its status in several parts, the conditions first, and nothing tells which is the last.
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let again = api.get("apps").await.unwrap();
        if again.metadata.resource_version == object.metadata.resource_version {
            return serde_json::to_value(again).unwrap();
        }
        object = again;
    }
}

/// What both must write alike; times, counts and messages with durations differ from run to run.
fn comparable(object: &Value) -> Value {
    let status = &object["status"];
    let history: Vec<Value> = status["history"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| json!([entry["digest"], entry["lastReconciledStatus"], entry["metadata"]]))
        .collect();
    let conditions: Vec<Value> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| json!([one["type"], one["status"], one["reason"], one["observedGeneration"]]))
        .collect();
    json!({
        "inventory": status["inventory"], "history": history, "conditions": conditions,
        "observedGeneration": status["observedGeneration"],
        "lastAppliedRevision": status["lastAppliedRevision"],
        "lastAttemptedRevision": status["lastAttemptedRevision"],
        "finalizers": object["metadata"]["finalizers"],
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: runs upstream's source- and kustomize-controller"]
async fn a_fleet_of_upstream_is_taken_over_without_a_write_and_handed_back() {
    swap(false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: runs upstream's source- and kustomize-controller"]
async fn the_same_with_all_of_upstreams_behaviour() {
    swap(true).await;
}

async fn swap(upstream_only: bool) {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let controllers = [Controller::Source, Controller::Kustomize];
    let tune = move |options: &mut flux_controllers::manager::ManagerOptions| {
        options.kustomize.upstream_only = upstream_only;
    };
    let mut flux = Flux::start_with(&cluster, &controllers, tune).await;
    flux.stop().await;
    let namespace = flux.namespace.name().to_owned();
    flux.fleet.commit("first", &[("apps/all.yaml", WORKLOADS)]).unwrap();
    flux.git_repository("fleet").await;

    let theirs_at_work = upstream(&cluster, &namespace);
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "timeout": "1m" }))).await;
    let theirs = reconciled(&flux, "upstream").await;
    let before = fleet(&cluster, &namespace).await;
    assert_eq!(before.len(), KINDS.len(), "{before:#?}");
    theirs_at_work.stop();

    flux.resume().await;
    let ours = reconciled(&flux, "ours").await;
    assert_eq!(fleet(&cluster, &namespace).await, before, "taking over wrote to a workload");
    assert_eq!(comparable(&ours), comparable(&theirs));
    // A change of ours, for upstream to find.
    let commit = push(&flux, &[("apps/all.yaml", &WORKLOADS.replace("colour: blue", "colour: red"))]).await;
    crate::kustomization::applied(&flux, "apps", &commit).await;
    let ours = reconciled(&flux, "ours again").await;
    let before = fleet(&cluster, &namespace).await;
    flux.stop().await;

    let theirs_at_work = upstream(&cluster, &namespace);
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let theirs = reconciled(&flux, "upstream again").await;
    let after = fleet(&cluster, &namespace).await;
    assert_eq!(after, before, "handing back wrote to a workload");
    assert_eq!(comparable(&theirs), comparable(&ours));
    theirs_at_work.stop();
}
