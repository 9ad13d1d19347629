//! What keeps a release of upstream's controller stuck, unexplained or acting with too many rights does not happen here.

use flux_api::kinds::HELM_RELEASE;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::trouble::{Breaker, Cut};

use crate::flux::{Flux, condition, ready};
use crate::helm_release::{
    chart, chart_with_workload, event, handled, job, publish, released, spec, start, value_of,
};

crate::stories!(
    a_stalled_release_is_tried_again_when_anything_it_is_made_of_changes,
    what_passes_by_itself_uses_up_no_retries,
    a_rollback_finds_its_target_though_the_status_lost_it,
    a_failed_hook_is_explained_without_its_logs,
    drift_of_an_autoscaled_field_is_advised_on,
    everything_is_rendered_looked_up_and_written_by_the_account,
    a_wait_asks_seldom_and_sees_at_once,
);

async fn stalled(flux: &Flux, name: &str) -> Value {
    flux.until(&HELM_RELEASE, name, "stalled", |object| condition(object, "Stalled").0 == "True").await
}

async fn a_stalled_release_is_tried_again_when_anything_it_is_made_of_changes(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let values = |pod: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: vars}}\ndata: {{values.yaml: 'pod: {pod}'}}\n"
        )
    };
    cluster.apply_yaml(&namespace, &values("pending")).await.unwrap();
    let patched = |pod: &str| {
        let patch = json!([{ "op": "replace", "path": "/spec/template/metadata/annotations/testbed~1pod", "value": pod }]);
        json!([{ "kustomize": { "patches": [{ "target": { "kind": "Deployment" }, "patch": patch.to_string() }] } }])
    };
    let with = |extra: Value| {
        let mut with = spec(json!({ "timeout": "5s" }));
        with.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        with
    };
    flux.apply(
        &HELM_RELEASE,
        "values",
        with(json!({ "valuesFrom": [{ "kind": "ConfigMap", "name": "vars" }] })),
    )
    .await;
    flux.apply(&HELM_RELEASE, "renderers", with(json!({ "postRenderers": patched("pending") }))).await;
    flux.apply(&HELM_RELEASE, "chart", with(json!({ "values": { "pod": "pending" } }))).await;
    for name in ["values", "renderers", "chart"] {
        stalled(&flux, name).await;
    }
    // Nobody asks for a reconcile of any of them.
    cluster.apply_yaml(&namespace, &values("ready")).await.unwrap();
    released(&flux, "values", 2).await;
    flux.apply(&HELM_RELEASE, "renderers", with(json!({ "postRenderers": patched("ready") }))).await;
    released(&flux, "renderers", 2).await;
    let mended = chart("1.0.1").file("values.yaml", "value: default\n");
    publish(&flux, "app", &mended).await;
    let object = released(&flux, "chart", 2).await;
    assert_eq!(condition(&object, "Stalled").0, "");
    assert_eq!(object["status"].get("installFailures"), None);
}

async fn what_passes_by_itself_uses_up_no_retries(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.stop().await;
    // Whatever stands before the first object says 503, as a webhook that is not up does.
    let breaker = Breaker::at(Cut::Refused(1), |path| path.contains("/configmaps"));
    flux.resume_as(breaker.client(&cluster.client())).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "install": { "remediation": { "retries": 0 } } }))).await;
    breaker.reached().await;
    let object = flux.ready(&HELM_RELEASE, "web").await;
    assert_eq!(object["status"].get("installFailures"), None);
    assert_eq!(condition(&object, "Stalled").0, "");
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "default");
}

async fn a_rollback_finds_its_target_though_the_status_lost_it(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let with = |pod: &str, last: bool| {
        spec(json!({ "timeout": "5s", "values": { "pod": pod, "value": pod },
            "upgrade": { "remediation": { "retries": 0, "remediateLastFailure": last } } }))
    };
    flux.apply(&HELM_RELEASE, "web", with("ready", false)).await;
    released(&flux, "web", 1).await;
    flux.apply(&HELM_RELEASE, "web", with("pending", false)).await;
    let object = stalled(&flux, "web").await;
    flux.stop().await;
    // Restored from a backup, say: only the failed release is known.
    let history = json!([object["status"]["history"][0].clone()]);
    assert_eq!(history[0]["version"], 2);
    let status = json!({ "status": { "history": history } });
    flux.api(&HELM_RELEASE)
        .patch_status("web", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    flux.apply(&HELM_RELEASE, "web", with("pending", true)).await;
    flux.resume().await;
    let object = flux
        .until(&HELM_RELEASE, "web", "rolled back", |object| condition(object, "Remediated").0 == "True")
        .await;
    assert_eq!(condition(&object, "Remediated").1, "RollbackSucceeded");
    assert!(
        condition(&object, "Remediated").2.contains("web.v1 with chart"),
        "{}",
        condition(&object, "Remediated").2
    );
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "ready");
}

async fn a_failed_hook_is_explained_without_its_logs(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let hooked = chart("1.0.0").file("templates/pre.yaml", &job("migrate", "pre-install", "fail", ""));
    publish(&flux, "app", &hooked).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "hunter2" } }))).await;
    let object = stalled(&flux, "web").await;
    let message = ready(&object).2;
    let namespace = flux.namespace.name();
    assert!(message.contains("failed pre-install: "), "{message}");
    assert!(message.contains(&format!("Job/{namespace}/migrate status: 'Failed'")), "{message}");
    assert!(message.contains("container 'run' is terminated: Error, exit code 1"), "{message}");
    let told = event(cluster, &flux, "InstallFailed").await;
    assert!(told.contains("container 'run' is terminated: Error, exit code 1"), "{told}");
    assert!(!told.contains("hunter2") && !message.contains("hunter2"), "values are for nobody's chat");
}

async fn drift_of_an_autoscaled_field_is_advised_on(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "driftDetection": { "mode": "warn" } }))).await;
    released(&flux, "web", 1).await;
    // What an autoscaler does.
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), flux.namespace.name());
    let parameters =
        PatchParams { field_manager: Some("kube-controller-manager".into()), ..PatchParams::default() };
    let scale: Scale = deployments
        .patch_scale("web", &parameters, &Patch::Merge(json!({ "spec": { "replicas": 3 } })))
        .await
        .unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));
    flux.reconcile_as(&HELM_RELEASE, "web", "one").await;
    let object = handled(&flux, "web", "one").await;
    assert_eq!(condition(&object, "Drifted").0, "True");
    let told = event(cluster, &flux, "DriftDetected").await;
    let advice = "/spec/replicas set by an autoscaler: leave the field out of the chart's values, or add it to spec.driftDetection.ignore";
    assert!(told.contains(advice), "{told}");
    let ignoring = json!({ "mode": "enabled", "ignore": [{ "paths": ["/spec/replicas"], "target": { "kind": "Deployment" } }] });
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "driftDetection": ignoring }))).await;
    flux.reconcile_as(&HELM_RELEASE, "web", "two").await;
    let object = handled(&flux, "web", "two").await;
    assert_eq!(condition(&object, "Drifted").0, "False");
    assert_eq!(
        deployments.get("web").await.unwrap().spec.unwrap().replicas,
        Some(3),
        "the autoscaler's word counts"
    );
}

async fn everything_is_rendered_looked_up_and_written_by_the_account(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let looking = chart("1.0.0").file(
        "templates/looked.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-looked\ndata:\n  own: {{ (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"asked\").data.answer | quote }}\n",
    );
    publish(&flux, "app", &looking).await;
    let objects = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: asked}}\ndata: {{answer: forty-two}}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: deployer}}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: deployer}}\nrules: [{{apiGroups: [''], resources: [configmaps, secrets], verbs: ['*']}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: deployer}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}}\nsubjects: [{{kind: ServiceAccount, name: deployer, namespace: {namespace}}}]\n"
    );
    cluster.apply_yaml(&namespace, &objects).await.unwrap();
    let mark = cluster.audit_log().mark().unwrap();
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "serviceAccountName": "deployer" }))).await;
    released(&flux, "web", 1).await;
    assert_eq!(value_of(cluster, &flux, "web-looked", "own").await, "forty-two");
    let account = format!("system:serviceaccount:{namespace}:deployer");
    let mut seen = Vec::new();
    for entry in cluster.audit_log().since(mark).unwrap() {
        let Some(about) = &entry.object_ref else { continue };
        let ours =
            about.namespace == namespace && matches!(about.resource.as_str(), "configmaps" | "secrets");
        // Watches of metadata say that something changed, and no more; the story itself reads by its own name.
        let by_story = entry.impersonated_user.is_none() && entry.verb == "get" && about.name == "web-looked";
        if !ours
            || entry.verb == "watch"
            || entry.verb == "list" && about.resource == "configmaps"
            || by_story
        {
            continue;
        }
        let whose = entry.impersonated_user.map(|user| user.username).unwrap_or_default();
        assert_eq!(whose, account, "{} {} {}", entry.verb, about.resource, about.name);
        seen.push(format!("{} {}", entry.verb, about.name));
    }
    // The embedded server does not name what is yet to be made.
    assert!(seen.iter().any(|one| one.starts_with("create ")), "{seen:?}");
    assert!(seen.iter().any(|one| one == "update sh.helm.release.v1.web.v1"), "{seen:?}");
    assert!(seen.iter().any(|one| one == "patch web"), "{seen:?}");
    if cluster.control_plane().is_ok() {
        assert!(seen.iter().any(|one| one == "get asked"), "the look-up: {seen:?}");
    }
    // What the account may not see, no template sees.
    let other = cluster.namespace("other").await.unwrap();
    cluster
        .apply_yaml(
            other.name(),
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: asked}\ndata: {answer: secret}\n",
        )
        .await
        .unwrap();
    let prying = looking.with_version("1.0.1").file(
        "templates/looked.yaml",
        &format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-looked\ndata:\n  own: {{{{ (lookup \"v1\" \"ConfigMap\" \"{}\" \"asked\").data.answer | quote }}}}\n", other.name()),
    );
    publish(&flux, "app", &prying).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "UpgradeFailed").await;
    assert!(
        ready(&object).2.contains("forbidden") && ready(&object).2.contains(&account),
        "{}",
        ready(&object).2
    );
}

async fn a_wait_asks_seldom_and_sees_at_once(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let mark = cluster.audit_log().mark().unwrap();
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "timeout": "1m", "values": { "pod": "pending" } }))).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), flux.namespace.name());
    cluster
        .await_condition(&deployments, "web", "was seen", |one: &Deployment| {
            one.status.as_ref().is_some_and(|status| status.observed_generation.is_some())
        })
        .await
        .unwrap();
    // Long enough for any poll to show.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let help =
        json!({ "spec": { "template": { "metadata": { "annotations": { "testbed/pod": "ready" } } } } });
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(help)).await.unwrap();
    let is_available = |one: &Deployment| {
        let status = one.status.clone().unwrap_or_default();
        status.observed_generation == one.metadata.generation
            && status.available_replicas == Some(1)
            && status.updated_replicas == Some(1)
            && status.replicas == Some(1)
    };
    cluster.await_condition(&deployments, "web", "is available", is_available).await.unwrap();
    let available = std::time::Instant::now();
    released(&flux, "web", 1).await;
    assert!(available.elapsed().as_secs() < 3, "seen after {:?}", available.elapsed());
    if cluster.control_plane().is_err() {
        return;
    }
    // The embedded server records no reads.
    let gets = cluster.audit_log().since(mark).unwrap().into_iter().filter(|entry| {
        let about = entry.object_ref.clone().unwrap_or_default();
        entry.verb == "get" && about.resource == "deployments" && about.namespace == flux.namespace.name()
    });
    let agents: Vec<String> = gets.map(|entry| entry.user_agent.unwrap_or_default()).collect();
    let own = agents.iter().filter(|agent| !agent.starts_with("kube-")).count();
    assert!(own <= 12, "{own} looks: {agents:?}");
}
