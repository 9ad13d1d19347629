//! Kustomization: a set that holds Flux itself. What does not come up is rolled back and stays so, visibly, until Git
//! offers another; a broken commit never leaves a cluster that cannot take the fix.

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::Change;

use crate::flux::{Flux, condition, ready};
use crate::kustomization::{BOTH, applied, push, spec, start};

crate::stories!(
    controllers_that_do_not_come_up_are_rolled_back_and_the_fix_is_taken,
    a_sync_that_cannot_be_built_is_rolled_back_and_the_fix_is_taken,
    a_source_that_cannot_be_fetched_is_rolled_back_and_the_fix_is_taken,
    what_applies_the_set_is_not_pruned_by_it,
    a_sync_that_suspends_itself_is_refused_and_the_fix_is_taken,
    as_upstream_nothing_is_kept_and_nothing_rolled_back,
);

/// A definition of the toolkit that is nobody else's.
fn definition(flux: &Flux) -> String {
    let group = format!("{}.toolkit.fluxcd.io", flux.namespace.name());
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.{group}}}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{kind: Thing, plural: things, singular: thing, listKind: ThingList}}\n  \
         versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]\n"
    )
}

/// As `flux install` writes one, as far as it matters; `pod` says what becomes of its Pods.
fn controller(name: &str, image: &str, pod: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  labels: {{app.kubernetes.io/part-of: flux, app.kubernetes.io/component: {name}}}\n\
         spec:\n  replicas: 1\n  progressDeadlineSeconds: 3\n  strategy: {{type: RollingUpdate, rollingUpdate: {{maxUnavailable: 0, maxSurge: 1}}}}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}, annotations: {{testbed/pod: {pod}}}}}\n    \
         spec: {{containers: [{{name: manager, image: 'example.org/{name}:{image}'}}]}}\n"
    )
}

fn deployments(cluster: &Cluster, flux: &Flux) -> Api<Deployment> {
    Api::namespaced(cluster.client(), flux.namespace.name())
}

async fn image(cluster: &Cluster, flux: &Flux) -> String {
    let deployment = deployments(cluster, flux).get("source-controller").await.unwrap();
    let containers = deployment.spec.unwrap().template.spec.unwrap().containers;
    containers[0].image.clone().unwrap_or_default()
}

/// Waits until the last good set is kept.
async fn kept(cluster: &Cluster, flux: &Flux, revision: &str) {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    let is_kept = |secret: &Secret| {
        let data = secret.data.clone().unwrap_or_default();
        let state: Value =
            data.get("state").and_then(|state| serde_json::from_slice(&state.0).ok()).unwrap_or_default();
        state["good"]["revision"] == format!("main@sha1:{revision}") && state["trial"].is_null()
    };
    cluster.await_condition(&secrets, "system-last-good", "holds the last good set", is_kept).await.unwrap();
}

async fn clean_up(cluster: &Cluster, flux: &Flux) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let name = format!("things.{}.toolkit.fluxcd.io", flux.namespace.name());
    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
}

async fn rolled_back(flux: &Flux, revision: &str) -> Value {
    let object = flux.not_ready(&KUSTOMIZATION, "system", "RolledBack").await;
    let (status, reason, message) = condition(&object, "Pinned");
    assert_eq!((status, reason), ("True", "RolledBack"));
    assert!(message.starts_with(&format!("revision main@sha1:{revision} was rolled back: ")), "{message}");
    assert_eq!(ready(&object).2, message);
    object
}

async fn controllers_that_do_not_come_up_are_rolled_back_and_the_fix_is_taken(cluster: &Cluster) {
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let flux = start(cluster, &[("README.md", "x")]).await;
    let files = |image: &str, pod: &str| {
        format!("{}---\n{}", definition(&flux), controller("source-controller", image, pod))
    };
    let first = push(&flux, &[("system/gotk-components.yaml", &files("one", "ready"))]).await;
    flux.apply(&KUSTOMIZATION, "system", spec(&flux, "system", json!({}))).await;
    applied(&flux, "system", &first).await;
    // The Deployment need not be ready when the Kustomization is; asking again spares the wait for the next look.
    let is_ready = |deployment: &Deployment| {
        deployment.status.as_ref().is_some_and(|status| status.available_replicas == Some(1))
    };
    cluster
        .await_condition(&deployments(cluster, &flux), "source-controller", "is ready", is_ready)
        .await
        .unwrap();
    flux.reconcile(&KUSTOMIZATION, "system").await;
    kept(cluster, &flux, &first).await;

    let broken = push(&flux, &[("system/gotk-components.yaml", &files("two", "crash"))]).await;
    let object = rolled_back(&flux, &broken).await;
    let message = condition(&object, "Pinned").2;
    assert!(message.contains("Deployment/") && message.contains("source-controller"), "{message}");
    assert!(message.contains(&format!("the last good set, of revision main@sha1:{first}")), "{message}");
    assert_eq!(object["status"]["lastAppliedRevision"], format!("main@sha1:{first}"));
    assert_eq!(object["status"]["lastAttemptedRevision"], format!("main@sha1:{broken}"));
    flux.told("system", "was rolled back").await;
    assert!(image(cluster, &flux).await.ends_with(":one"));

    // Neither a request nor a commit that changes nothing of the set tries it again.
    flux.reconcile_as(&KUSTOMIZATION, "system", "try again").await;
    let handled = |object: &Value| object["status"]["lastHandledReconcileAt"] == "try again";
    flux.until(&KUSTOMIZATION, "system", "handled the request", handled).await;
    let elsewhere = push(&flux, &[("README.md", "y")]).await;
    flux.until(&KUSTOMIZATION, "system", "saw the commit", |object| {
        object["status"]["lastAttemptedRevision"] == format!("main@sha1:{elsewhere}")
            && ready(object).0 == "False"
    })
    .await;
    assert!(image(cluster, &flux).await.ends_with(":one"), "it was tried again");

    let fixed = push(&flux, &[("system/gotk-components.yaml", &files("three", "ready"))]).await;
    let object = applied(&flux, "system", &fixed).await;
    assert_eq!(condition(&object, "Pinned"), ("", "", ""));
    assert!(image(cluster, &flux).await.ends_with(":three"));
    kept(cluster, &flux, &fixed).await;
    clean_up(cluster, &flux).await;
}

/// As `flux bootstrap` writes it: the source and the Kustomization that apply themselves.
fn sync(flux: &Flux, branch: &str, path: &str) -> String {
    let source = json!({
        "apiVersion": GIT_REPOSITORY.api_version(), "kind": "GitRepository", "metadata": {"name": "fleet"},
        "spec": {"url": flux.server.http_url("fleet"), "interval": "1h", "ref": {"branch": branch}},
    });
    let itself = json!({
        "apiVersion": KUSTOMIZATION.api_version(), "kind": "Kustomization", "metadata": {"name": "system"},
        "spec": spec(flux, path, json!({ "timeout": "30s" })),
    });
    format!("{source}\n---\n{itself}\n")
}

async fn synced(cluster: &Cluster) -> (Flux, String) {
    let flux = start(cluster, &[("README.md", "x")]).await;
    let first = push(&flux, &[("system/gotk-sync.yaml", &sync(&flux, "main", "system"))]).await;
    flux.apply(&KUSTOMIZATION, "system", spec(&flux, "system", json!({ "timeout": "30s" }))).await;
    applied(&flux, "system", &first).await;
    flux.reconcile(&KUSTOMIZATION, "system").await;
    kept(cluster, &flux, &first).await;
    (flux, first)
}

async fn a_sync_that_cannot_be_built_is_rolled_back_and_the_fix_is_taken(cluster: &Cluster) {
    let (flux, _) = synced(cluster).await;
    let broken = push(&flux, &[("system/gotk-sync.yaml", &sync(&flux, "main", "nowhere"))]).await;
    let object = rolled_back(&flux, &broken).await;
    assert!(ready(&object).2.contains("path not found"), "{}", ready(&object).2);
    flux.until(&KUSTOMIZATION, "system", "has its path back", |object| object["spec"]["path"] == "system")
        .await;
    let fixed = push(&flux, &[("system/gotk-sync.yaml", &sync(&flux, "main", "./system"))]).await;
    let object = applied(&flux, "system", &fixed).await;
    assert_eq!(object["spec"]["path"], "./system");
}

async fn a_source_that_cannot_be_fetched_is_rolled_back_and_the_fix_is_taken(cluster: &Cluster) {
    let (flux, _) = synced(cluster).await;
    let broken = push(&flux, &[("system/gotk-sync.yaml", &sync(&flux, "no-such-branch", "system"))]).await;
    flux.until(&GIT_REPOSITORY, "fleet", "is broken", |object| ready(object).0 == "False").await;
    rolled_back(&flux, &broken).await;
    flux.until(&GIT_REPOSITORY, "fleet", "works again", |object| {
        ready(object).0 == "True" && object["spec"]["ref"]["branch"] == "main"
    })
    .await;
    let fixed = push(&flux, &[("system/gotk-sync.yaml", &sync(&flux, "main", "./system"))]).await;
    applied(&flux, "system", &fixed).await;
}

async fn a_sync_that_suspends_itself_is_refused_and_the_fix_is_taken(cluster: &Cluster) {
    let (flux, first) = synced(cluster).await;
    let suspended = sync(&flux, "main", "system").replace("\"interval\":", "\"suspend\":true,\"interval\":");
    push(&flux, &[("system/gotk-sync.yaml", &suspended)]).await;
    let object = flux.not_ready(&KUSTOMIZATION, "system", "ReconciliationFailed").await;
    let message = ready(&object).2;
    assert!(message.contains("spec.suspend: true") && message.contains("flux suspend"), "{message}");
    assert_eq!(object["status"]["lastAppliedRevision"], format!("main@sha1:{first}"));
    let fixed = push(&flux, &[("system/gotk-sync.yaml", &sync(&flux, "main", "./system"))]).await;
    let object = applied(&flux, "system", &fixed).await;
    assert!(object["spec"]["suspend"].is_null());
}

async fn what_applies_the_set_is_not_pruned_by_it(cluster: &Cluster) {
    let flux = start(cluster, &[("README.md", "x")]).await;
    let source = controller("source-controller", "one", "ready");
    let reflector = controller("image-reflector-controller", "one", "ready");
    let first = push(
        &flux,
        &[
            ("system/crd.yaml", &definition(&flux)),
            ("system/source.yaml", &source),
            ("system/image.yaml", &reflector),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "system", spec(&flux, "system", json!({}))).await;
    applied(&flux, "system", &first).await;
    // A broken generator wrote nothing at all.
    let empty = [
        Change::Remove("system/source.yaml"),
        Change::Remove("system/image.yaml"),
        Change::Remove("system/crd.yaml"),
        Change::Write("system/kustomization.yaml", "resources: []\n"),
    ];
    flux.fleet.commit_to("main", "empty", &empty).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let held = flux
        .until(&KUSTOMIZATION, "system", "holds a prune", |object| condition(object, "PruneHeld").0 == "True")
        .await;
    let message = condition(&held, "PruneHeld").2;
    assert!(message.contains("source-controller (nothing can be applied without it)"), "{message}");
    cluster.await_gone(&deployments(cluster, &flux), "image-reflector-controller").await.unwrap();
    assert!(deployments(cluster, &flux).get_opt("source-controller").await.unwrap().is_some());
    clean_up(cluster, &flux).await;
}

async fn as_upstream_nothing_is_kept_and_nothing_rolled_back(cluster: &Cluster) {
    let flux = Flux::start_with(cluster, BOTH, |options| options.kustomize.upstream_only = true).await;
    let files = |image: &str, pod: &str| {
        format!("{}---\n{}", definition(&flux), controller("source-controller", image, pod))
    };
    flux.fleet.commit("first", &[("system/all.yaml", &files("one", "ready"))]).unwrap();
    flux.git_repository("fleet").await;
    flux.apply(&KUSTOMIZATION, "system", spec(&flux, "system", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "system").await;
    let broken = push(&flux, &[("system/all.yaml", &files("two", "crash"))]).await;
    applied(&flux, "system", &broken).await;
    assert!(image(cluster, &flux).await.ends_with(":two"));
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    let kept = secrets.list(&ListParams::default().labels("fluxcd.rs/last-good")).await.unwrap();
    assert!(kept.items.is_empty());
    clean_up(cluster, &flux).await;
}
