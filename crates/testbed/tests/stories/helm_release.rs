//! HelmRelease: charts become releases that real helm sees, and stay what was asked for.

use flux_api::kinds::{Controller, HELM_CHART, HELM_RELEASE};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::reference::Tool;
use testbed::trouble::Breaker;

use crate::flux::{Flux, ready};

crate::stories!(
    a_chart_is_installed_and_upgraded,
    a_restart_and_an_interval_change_nothing,
    values_come_from_references_and_a_change_is_seen_at_once,
    real_helm_inspects_rolls_back_and_uninstalls_our_release,
    a_release_of_real_helm_is_adopted_and_upgraded,
    a_failed_install_is_explained_and_stalls_until_something_changes,
    a_failed_upgrade_is_rolled_back,
    a_stalled_release_that_became_healthy_is_taken_as_it_is,
    an_abandoned_operation_is_taken_up_at_once,
    hooks_run_in_order_and_tests_are_reported,
    drift_is_corrected_named_and_ignored_where_asked,
    deletion_uninstalls_unless_suspended,
    a_release_that_moves_is_uninstalled_where_it_was,
    definitions_come_before_their_objects_and_stay,
    a_release_too_large_for_its_secret_is_refused_before_anything_is_applied,
    a_dependent_waits_for_its_dependency,
    a_chart_template_becomes_a_helm_chart,
    post_renderers_change_what_is_released,
    an_account_without_rights_releases_nothing,
    forcing_and_resetting_are_honoured_once,
    client_side_releases_stay_client_side,
);

pub fn workload(annotation: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{{{ .Release.Name }}}}\nspec:\n  replicas: 1\n  selector:\n    matchLabels: {{app: web}}\n  template:\n    metadata:\n      labels: {{app: web}}\n      annotations:\n        testbed/pod: {annotation}\n    spec:\n      containers:\n      - name: app\n        image: app:1\n"
    )
}

/// The same chart with a Deployment whose Pods do what `.Values.pod` says.
pub fn chart_with_workload(version: &str) -> Chart {
    chart(version)
        .file("values.yaml", "value: default\npod: ready\n")
        .file("templates/web.yaml", &workload("{{ .Values.pod }}"))
}

/// A chart of one ConfigMap whose value comes from `value`.
pub fn chart(version: &str) -> Chart {
    Chart::new("app", version)
        .file("values.yaml", "value: default\n")
        .file(
            "templates/map.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  value: {{ .Values.value | quote }}\n  version: {{ .Chart.Version }}\n  revision: {{ .Release.Revision | quote }}\n",
        )
}

pub async fn start(cluster: &Cluster) -> Flux {
    Flux::start(cluster, &[Controller::Helm]).await
}

/// Plays source-controller: a HelmChart whose artifact is `chart`.
pub async fn publish(flux: &Flux, name: &str, chart: &Chart) {
    let bytes = chart.package().unwrap();
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("helmchart/{name}/{digest}.tgz");
    let file = flux.storage().join(&path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, bytes).unwrap();
    let spec = json!({ "chart": chart.name, "interval": "1h", "sourceRef": { "kind": "HelmRepository", "name": "none" } });
    flux.apply(&HELM_CHART, name, spec).await;
    let generation = flux.api(&HELM_CHART).get(name).await.unwrap().metadata.generation;
    let status = json!({ "status": {
        "observedGeneration": generation,
        "artifact": {
            "url": format!("http://127.0.0.1:9/{path}"), "path": path, "revision": chart.version,
            "digest": format!("sha256:{digest}"), "lastUpdateTime": "2026-01-01T00:00:00Z",
        },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "ChartPullSucceeded", "message": "pulled",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    } });
    flux.api(&HELM_CHART).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

pub fn spec(extra: Value) -> Value {
    let mut spec =
        json!({ "interval": "1h", "timeout": "20s", "chartRef": { "kind": "HelmChart", "name": "app" } });
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec
}

pub fn config_maps(cluster: &Cluster, flux: &Flux) -> Api<ConfigMap> {
    Api::namespaced(cluster.client(), flux.namespace.name())
}

pub async fn value_of(cluster: &Cluster, flux: &Flux, name: &str, key: &str) -> String {
    let map = config_maps(cluster, flux).get(name).await.unwrap();
    map.data.unwrap_or_default().get(key).cloned().unwrap_or_default()
}

/// Waits until the newest release of the status is `version` and Ready.
pub async fn released(flux: &Flux, name: &str, version: i64) -> Value {
    flux.until(&HELM_RELEASE, name, &format!("released v{version}"), |object| {
        let generation = &object["metadata"]["generation"];
        object["status"]["history"][0]["version"] == version
            && ready(object).0 == "True"
            && object["status"]["observedGeneration"] == *generation
    })
    .await
}

pub async fn records(cluster: &Cluster, flux: &Flux) -> Vec<String> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    let found = secrets.list(&ListParams::default().labels("owner=helm")).await.unwrap();
    let describe = |secret: Secret| {
        let labels = secret.metadata.labels.unwrap_or_default();
        format!("{} {}", secret.metadata.name.unwrap_or_default(), labels["status"])
    };
    found.into_iter().map(describe).collect()
}

async fn a_chart_is_installed_and_upgraded(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "one" } }))).await;
    let object = released(&flux, "web", 1).await;
    let message = format!("Helm install succeeded for release {namespace}/web.v1 with chart app@1.0.0");
    assert_eq!(ready(&object), ("True", "InstallSucceeded", message.as_str()));
    let status = &object["status"];
    assert_eq!(status["lastAttemptedRevision"], "1.0.0");
    assert_eq!(status["lastAttemptedReleaseAction"], "install");
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["storageNamespace"], namespace.as_str());
    assert_eq!(status["history"][0]["status"], "deployed");
    assert_eq!(status["history"][0]["action"], "install");
    assert_eq!(
        status["inventory"]["entries"],
        json!([{ "id": format!("{namespace}_web__ConfigMap"), "v": "v1" }])
    );
    let map = config_maps(cluster, &flux).get("web").await.unwrap();
    assert_eq!(map.data.as_ref().unwrap()["value"], "one");
    let labels = map.metadata.labels.unwrap();
    assert_eq!(labels["helm.toolkit.fluxcd.io/name"], "web");
    assert_eq!(labels["helm.toolkit.fluxcd.io/namespace"], namespace);
    assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm");
    assert_eq!(map.metadata.annotations.unwrap()["meta.helm.sh/release-name"], "web");
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.web.v1 deployed"]);

    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "two" } }))).await;
    let object = released(&flux, "web", 2).await;
    assert_eq!(ready(&object).1, "UpgradeSucceeded");
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "two");
    assert_eq!(object["status"]["history"][1]["status"], "superseded");

    publish(&flux, "app", &chart("1.1.0")).await;
    released(&flux, "web", 3).await;
    assert_eq!(value_of(cluster, &flux, "web", "version").await, "1.1.0");
    assert_eq!(
        records(cluster, &flux).await,
        [
            "sh.helm.release.v1.web.v1 superseded",
            "sh.helm.release.v1.web.v2 superseded",
            "sh.helm.release.v1.web.v3 deployed"
        ]
    );
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind)
}

/// Real helm, against the cluster and the namespace of the story.
fn helm(cluster: &Cluster, flux: &Flux, tool: Tool, arguments: &[&str]) -> String {
    let binary = testbed::reference::binary(tool, "helm").unwrap();
    let output = std::process::Command::new(binary)
        .args(arguments)
        .args(["--namespace", flux.namespace.name(), "--kubeconfig"])
        .arg(cluster.kubeconfig_path())
        .env("HELM_CACHE_HOME", flux.storage())
        .env("HELM_CONFIG_HOME", flux.storage())
        .output()
        .unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "helm {arguments:?}: {out}{error}");
    out.into_owned()
}

pub async fn helm_task(cluster: &Cluster, flux: &Flux, tool: Tool, arguments: &[&str]) -> String {
    tokio::task::block_in_place(|| helm(cluster, flux, tool, arguments))
}

pub async fn handled(flux: &Flux, name: &str, token: &str) -> Value {
    flux.until(&HELM_RELEASE, name, &format!("handled {token}"), |object| {
        object["status"]["lastHandledReconcileAt"] == token
    })
    .await
}

pub async fn annotate(flux: &Flux, name: &str, annotations: Value) {
    let patch = json!({ "metadata": { "annotations": annotations } });
    flux.api(&HELM_RELEASE).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Messages of the events with a reason.
pub async fn events(cluster: &Cluster, flux: &Flux, reason: &str) -> Vec<String> {
    let api: Api<Event> = Api::namespaced(cluster.client(), flux.namespace.name());
    let found = api.list(&ListParams::default()).await.unwrap();
    found
        .into_iter()
        .filter(|one| one.reason.as_deref() == Some(reason))
        .filter_map(|one| one.message)
        .collect()
}

pub async fn event(cluster: &Cluster, flux: &Flux, reason: &str) -> String {
    let started = std::time::Instant::now();
    loop {
        if let Some(message) = events(cluster, flux, reason).await.pop() {
            return message;
        }
        assert!(started.elapsed().as_secs() < 20, "no event {reason}");
        tokio::task::yield_now().await;
    }
}

async fn a_restart_and_an_interval_change_nothing(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    let before = released(&flux, "web", 1).await;
    flux.stop().await;
    let recorder = Breaker::recorder(|_| true);
    flux.resume_as(recorder.client(&cluster.client())).await;
    flux.reconcile_as(&HELM_RELEASE, "web", "after").await;
    let after = handled(&flux, "web", "after").await;
    let writes = recorder.writes();
    let status = format!(
        "PATCH /apis/helm.toolkit.fluxcd.io/v2/namespaces/{}/helmreleases/web/status",
        flux.namespace.name()
    );
    assert_eq!(writes, [status], "only that it was asked is written, and nothing is told");
    assert_eq!(after["status"]["history"], before["status"]["history"]);
    assert_eq!(ready(&after), ready(&before));
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.web.v1 deployed"]);
}

async fn values_come_from_references_and_a_change_is_seen_at_once(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart("1.0.0")).await;
    let from = json!([{ "kind": "ConfigMap", "name": "vars" }, { "kind": "Secret", "name": "gone", "optional": true }]);
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "valuesFrom": from }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "ValuesError").await;
    assert_eq!(
        ready(&object).2,
        format!(
            "could not resolve ConfigMap chart values reference '{namespace}/vars' with key 'values.yaml': configmaps \"vars\" not found"
        )
    );
    let map = |value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: vars}}\ndata: {{values.yaml: 'value: {value}'}}\n"
        )
    };
    cluster.apply_yaml(&namespace, &map("one")).await.unwrap();
    released(&flux, "web", 1).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "one");
    // No label asks for a watch, and nobody asks for a reconcile.
    cluster.apply_yaml(&namespace, &map("two")).await.unwrap();
    released(&flux, "web", 2).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "two");
}

async fn real_helm_inspects_rolls_back_and_uninstalls_our_release(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "one" } }))).await;
    released(&flux, "web", 1).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "two" } }))).await;
    released(&flux, "web", 2).await;
    for tool in [Tool::Helm3, Tool::Helm4] {
        let listed: Value =
            serde_json::from_str(&helm_task(cluster, &flux, tool, &["list", "-o", "json"]).await).unwrap();
        assert_eq!(
            (&listed[0]["name"], &listed[0]["status"], &listed[0]["chart"]),
            (&json!("web"), &json!("deployed"), &json!("app-1.0.0"))
        );
        let history: Value =
            serde_json::from_str(&helm_task(cluster, &flux, tool, &["history", "web", "-o", "json"]).await)
                .unwrap();
        let statuses: Vec<&str> =
            history.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["superseded", "deployed"]);
        assert_eq!(
            helm_task(cluster, &flux, tool, &["get", "values", "web", "-o", "json"]).await.trim(),
            "{\"value\":\"two\"}"
        );
        assert!(helm_task(cluster, &flux, tool, &["get", "manifest", "web"]).await.contains("value: two"));
    }
    let suspended = spec(json!({ "values": { "value": "two" }, "suspend": true }));
    flux.apply(&HELM_RELEASE, "web", suspended).await;
    helm_task(cluster, &flux, Tool::Helm4, &["rollback", "web", "1", "--force-conflicts"]).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "one");
    // What somebody else made is brought to what is wanted, on top of it.
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "two" }, "suspend": false }))).await;
    released(&flux, "web", 4).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "two");
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "two" }, "suspend": true }))).await;
    helm_task(cluster, &flux, Tool::Helm3, &["uninstall", "web"]).await;
    assert!(config_maps(cluster, &flux).get_opt("web").await.unwrap().is_none());
    assert!(records(cluster, &flux).await.is_empty());
}

async fn a_release_of_real_helm_is_adopted_and_upgraded(cluster: &Cluster) {
    let flux = start(cluster).await;
    let archive = flux.storage().join("app.tgz");
    std::fs::write(&archive, chart("1.0.0").package().unwrap()).unwrap();
    let archive = archive.to_str().unwrap();
    publish(&flux, "app", &chart("1.0.0")).await;
    for (tool, name, method) in [(Tool::Helm3, "three", "csa"), (Tool::Helm4, "four", "ssa")] {
        helm_task(cluster, &flux, tool, &["install", name, archive, "--set", "value=cli"]).await;
        flux.apply(&HELM_RELEASE, name, spec(json!({ "values": { "value": "hr" } }))).await;
        let object = released(&flux, name, 2).await;
        assert_eq!(ready(&object).1, "UpgradeSucceeded");
        assert_eq!(value_of(cluster, &flux, name, "value").await, "hr");
        let history = helm_task(cluster, &flux, tool, &["history", name, "-o", "json"]).await;
        assert_eq!(history.matches("\"revision\"").count(), 2, "{history}");
        let record: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
        let record = record.get(&format!("sh.helm.release.v1.{name}.v2")).await.unwrap();
        let record = helm::release::from_storage(&serde_json::to_value(&record).unwrap()).unwrap();
        assert_eq!(serde_json::to_value(record.apply_method).unwrap(), method, "as it was applied before");
        // One owner of the fields, or what leaves the chart would stay in the cluster.
        let map = config_maps(cluster, &flux).get(name).await.unwrap();
        let managers: Vec<String> =
            map.metadata.managed_fields.unwrap().into_iter().filter_map(|one| one.manager).collect();
        if method == "ssa" {
            assert_eq!(managers, ["helm-controller"]);
        }
    }
}

async fn a_failed_install_is_explained_and_stalls_until_something_changes(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let with = |pod: &str| spec(json!({ "timeout": "3s", "values": { "pod": pod } }));
    flux.apply(&HELM_RELEASE, "web", with("crash")).await;
    let object = flux
        .until(&HELM_RELEASE, "web", "stalled", |object| {
            condition(object, "Stalled").is_some_and(|one| one["status"] == "True")
        })
        .await;
    let stalled = condition(&object, "Stalled").unwrap();
    assert_eq!(
        (&stalled["reason"], &stalled["message"]),
        (&json!("RetriesExceeded"), &json!("Failed to install after 1 attempt(s)"))
    );
    let (status, reason, message) = ready(&object);
    assert_eq!((status, reason), ("False", "InstallFailed"));
    let namespace = flux.namespace.name();
    assert!(
        message
            .starts_with(&format!("Helm install failed for release {namespace}/web with chart app@1.0.0: ")),
        "{message}"
    );
    assert!(message.contains(&format!("Deployment/{namespace}/web status: '")), "{message}");
    assert!(message.contains("container 'app'") && message.contains("CrashLoopBackOff"), "{message}");
    assert!(
        message.contains(
            "RetriesExceeded: Failed to install after 1 attempt(s); its objects are looked at every 1h0m0s"
        ),
        "{message}"
    );
    assert_eq!(object["status"]["installFailures"], 1);
    assert!(event(cluster, &flux, "InstallFailed").await.contains("CrashLoopBackOff"));
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.web.v1 failed"]);
    // Other values: the failure is forgotten, and nobody has to ask.
    flux.apply(&HELM_RELEASE, "web", with("ready")).await;
    let object = released(&flux, "web", 2).await;
    assert!(condition(&object, "Stalled").is_none());
    assert_eq!(object["status"].get("installFailures"), None);
}

async fn a_failed_upgrade_is_rolled_back(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let with = |pod: &str, value: &str| {
        spec(
            json!({ "timeout": "3s", "values": { "pod": pod, "value": value }, "rollback": { "recreate": true },
            "upgrade": { "remediation": { "retries": 0, "remediateLastFailure": true } } }),
        )
    };
    flux.apply(&HELM_RELEASE, "web", with("ready", "good")).await;
    released(&flux, "web", 1).await;
    flux.apply(&HELM_RELEASE, "web", with("crash", "bad")).await;
    let object = flux
        .until(&HELM_RELEASE, "web", "rolled back", |object| {
            condition(object, "Stalled").is_some_and(|one| one["status"] == "True")
        })
        .await;
    let namespace = flux.namespace.name();
    let remediated = condition(&object, "Remediated").unwrap();
    assert_eq!(remediated["reason"], "RollbackSucceeded");
    assert_eq!(
        remediated["message"],
        format!("Helm rollback to previous release {namespace}/web.v1 with chart app@1.0.0 succeeded")
    );
    assert_eq!((ready(&object).0, ready(&object).1), ("False", "RollbackSucceeded"));
    assert_eq!(object["status"]["upgradeFailures"], 1);
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "good");
    assert_eq!(
        records(cluster, &flux).await,
        [
            "sh.helm.release.v1.web.v1 superseded",
            "sh.helm.release.v1.web.v2 failed",
            "sh.helm.release.v1.web.v3 deployed"
        ]
    );
    // Back to what works: that is what the rollback left, so nothing is released.
    flux.apply(&HELM_RELEASE, "web", with("ready", "good")).await;
    let object = flux.ready(&HELM_RELEASE, "web").await;
    assert_eq!(object["status"]["history"][0]["version"], 3);
    assert!(condition(&object, "Remediated").is_none() && condition(&object, "Stalled").is_none());
}

async fn a_stalled_release_that_became_healthy_is_taken_as_it_is(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    flux.apply(
        &HELM_RELEASE,
        "web",
        spec(json!({ "timeout": "2s", "interval": "2s", "values": { "pod": "pending" } })),
    )
    .await;
    flux.until(&HELM_RELEASE, "web", "stalled", |object| {
        condition(object, "Stalled").is_some_and(|one| one["status"] == "True")
    })
    .await;
    // Somebody helps the Pods; the release itself is not touched.
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), flux.namespace.name());
    let help =
        json!({ "spec": { "template": { "metadata": { "annotations": { "testbed/pod": "ready" } } } } });
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(help)).await.unwrap();
    let object = released(&flux, "web", 1).await;
    assert_eq!(ready(&object).1, "RecoveredAfterTimeout");
    assert!(condition(&object, "Stalled").is_none());
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.web.v1 deployed"]);
}

async fn an_abandoned_operation_is_taken_up_at_once(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "one" } }))).await;
    released(&flux, "web", 1).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    for (status, expected) in [("pending-upgrade", 3), ("pending-rollback", 5), ("uninstalling", 1)] {
        flux.stop().await;
        // A process died in the middle of making the next revision.
        let names = records(cluster, &flux).await;
        let newest = names.last().unwrap().split(' ').next().unwrap().to_owned();
        let found = secrets.get(&newest).await.unwrap();
        let mut record = helm::release::from_storage(&serde_json::to_value(&found).unwrap()).unwrap();
        record.version += i64::from(status != "uninstalling");
        record.info.status = serde_json::from_value(json!(status)).unwrap();
        let when = helm::release::Written::Created(1_700_000_000);
        let object =
            helm::release::storage_object(&record, helm::release::Driver::Secret, helm::Dialect::Helm4, when)
                .unwrap();
        let secret: Secret = serde_json::from_value(object).unwrap();
        if status == "uninstalling" {
            secrets.replace(&newest, &PostParams::default(), &secret).await.unwrap();
        } else {
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
        flux.resume().await;
        let started = std::time::Instant::now();
        flux.reconcile(&HELM_RELEASE, "web").await;
        released(&flux, "web", expected).await;
        assert!(started.elapsed().as_secs() < 20, "{status} took {:?}", started.elapsed());
        assert_eq!(value_of(cluster, &flux, "web", "value").await, "one");
    }
    assert!(event(cluster, &flux, "PendingRelease").await.contains("Unlocked Helm release"));
}

pub fn job(name: &str, hook: &str, pod: &str, extra: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations:\n    helm.sh/hook: {hook}\n{extra}spec:\n  backoffLimit: 0\n  template:\n    metadata:\n      annotations:\n        testbed/pod: {pod}\n    spec:\n      restartPolicy: Never\n      containers:\n      - name: run\n        image: run:1\n"
    )
}

async fn hooks_run_in_order_and_tests_are_reported(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let hooked = chart("1.0.0")
        .file("values.yaml", "value: default\ntest: ready\nmigrate: ready\n")
        .file(
            "templates/pre.yaml",
            &job(
                "migrate",
                "pre-install,pre-upgrade",
                "{{ .Values.migrate }}",
                "    helm.sh/hook-delete-policy: before-hook-creation\n",
            ),
        )
        .file(
            "templates/post.yaml",
            &job("announce", "post-install", "ready", "    helm.sh/hook-delete-policy: hook-succeeded\n"),
        )
        .file("templates/test.yaml", &job("check", "test", "{{ .Values.test }}", ""));
    publish(&flux, "app", &hooked).await;
    let with = |values: Value| spec(json!({ "test": { "enable": true }, "values": values }));
    flux.apply(&HELM_RELEASE, "web", with(json!({}))).await;
    let object = released(&flux, "web", 1).await;
    let namespace = flux.namespace.name().to_owned();
    let text = format!(
        "Helm test succeeded for release {namespace}/web.v1 with chart app@1.0.0: 1 test hook completed successfully"
    );
    assert_eq!(ready(&object), ("True", "TestSucceeded", text.as_str()));
    assert_eq!(object["status"]["history"][0]["testHooks"]["check"]["phase"], "Succeeded");
    let jobs: Api<Job> = Api::namespaced(cluster.client(), &namespace);
    assert!(jobs.get_opt("migrate").await.unwrap().is_some());
    assert!(jobs.get_opt("announce").await.unwrap().is_none(), "deleted when it succeeded");
    // A test that fails makes the release fail, without remediation it stalls.
    flux.apply(&HELM_RELEASE, "web", with(json!({ "test": "fail" }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "TestFailed").await;
    assert!(
        ready(&object)
            .2
            .starts_with(&format!("Helm test failed for release {namespace}/web.v2 with chart app@1.0.0: ")),
        "{}",
        ready(&object).2
    );
    // A hook that fails ends the upgrade before anything is applied.
    flux.apply(&HELM_RELEASE, "web", with(json!({ "migrate": "fail", "value": "never" }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "UpgradeFailed").await;
    assert!(ready(&object).2.contains("pre-upgrade hooks failed: "), "{}", ready(&object).2);
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "default");
}

async fn drift_is_corrected_named_and_ignored_where_asked(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let with = |drift: Value| spec(json!({ "driftDetection": drift }));
    flux.apply(
        &HELM_RELEASE,
        "web",
        with(json!({ "mode": "enabled", "ignore": [{ "paths": ["/data/version"] }] })),
    )
    .await;
    released(&flux, "web", 1).await;
    let maps = config_maps(cluster, &flux);
    let by_hand = |data: Value| {
        let maps = maps.clone();
        async move {
            let parameters = PatchParams { field_manager: Some("kubectl-edit".into()), ..Default::default() };
            maps.patch("web", &parameters, &Patch::Merge(json!({ "data": data }))).await.unwrap();
        }
    };
    by_hand(json!({ "value": "hand", "version": "mine" })).await;
    flux.reconcile_as(&HELM_RELEASE, "web", "one").await;
    let object = handled(&flux, "web", "one").await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "default");
    assert_eq!(value_of(cluster, &flux, "web", "version").await, "mine", "ignored");
    assert_eq!(object["status"]["history"][0]["version"], 1, "no release is made of it");
    assert_eq!(condition(&object, "Drifted").unwrap()["status"], "False");
    let namespace = flux.namespace.name();
    let detected = event(cluster, &flux, "DriftDetected").await;
    assert_eq!(
        detected,
        format!(
            "Cluster state of release {namespace}/web.v1 has drifted from the desired state:\nConfigMap/{namespace}/web changed (0 additions, 1 changes, 0 removals)\n  /data/value set by kubectl-edit"
        )
    );
    assert!(
        event(cluster, &flux, "DriftCorrected")
            .await
            .ends_with(&format!("ConfigMap/{namespace}/web configured"))
    );
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    flux.reconcile_as(&HELM_RELEASE, "web", "two").await;
    handled(&flux, "web", "two").await;
    assert!(maps.get_opt("web").await.unwrap().is_some(), "what is missing is created");
    flux.apply(&HELM_RELEASE, "web", with(json!({ "mode": "warn" }))).await;
    by_hand(json!({ "value": "hand" })).await;
    flux.reconcile_as(&HELM_RELEASE, "web", "three").await;
    let object = handled(&flux, "web", "three").await;
    assert_eq!(condition(&object, "Drifted").unwrap()["status"], "True");
    assert_eq!(ready(&object).0, "True");
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "hand");
}

async fn deletion_uninstalls_unless_suspended(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    for name in ["web", "kept"] {
        flux.apply(&HELM_RELEASE, name, spec(json!({}))).await;
        released(&flux, name, 1).await;
    }
    flux.apply(&HELM_RELEASE, "kept", spec(json!({ "suspend": true }))).await;
    for name in ["web", "kept"] {
        flux.api(&HELM_RELEASE).delete(name, &DeleteParams::default()).await.unwrap();
        cluster.await_gone(&flux.api(&HELM_RELEASE), name).await.unwrap();
    }
    assert!(config_maps(cluster, &flux).get_opt("web").await.unwrap().is_none());
    assert!(config_maps(cluster, &flux).get_opt("kept").await.unwrap().is_some());
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.kept.v1 deployed"]);
}

async fn a_release_that_moves_is_uninstalled_where_it_was(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "releaseName": "old" }))).await;
    released(&flux, "web", 1).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "releaseName": "new" }))).await;
    flux.until(&HELM_RELEASE, "web", "moved", |object| {
        object["status"]["history"][0]["name"] == "new" && ready(object).0 == "True"
    })
    .await;
    assert!(config_maps(cluster, &flux).get_opt("old").await.unwrap().is_none());
    assert!(config_maps(cluster, &flux).get_opt("new").await.unwrap().is_some());
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.new.v1 deployed"]);
    // Another chart is another application, unless told otherwise.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-other\n";
    let other = Chart::new("other", "2.0.0").file("templates/map.yaml", map);
    publish(&flux, "app", &other).await;
    flux.until(&HELM_RELEASE, "web", "has the other chart", |object| {
        object["status"]["history"][0]["chartName"] == "other" && ready(object).0 == "True"
    })
    .await;
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.new.v1 deployed"], "reinstalled");
    assert!(config_maps(cluster, &flux).get_opt("new").await.unwrap().is_none());
}

pub fn definition(group: &str, extra: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: widgets.{group}\nspec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: widgets, singular: widget, kind: Widget}}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          spec:\n            type: object\n            properties:\n              size: {{type: integer}}\n{extra}"
    )
}

async fn definitions_come_before_their_objects_and_stay(cluster: &Cluster) {
    let flux = start(cluster).await;
    let group = format!("{}.example.org", flux.namespace.name());
    let widget = format!(
        "{{{{- if .Capabilities.APIVersions.Has \"{group}/v1/Widget\" }}}}\napiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: one\nspec:\n  size: 1\n{{{{- end }}}}\n"
    );
    let with = |version: &str, extra: &str| {
        chart(version)
            .file("crds/widgets.yaml", &definition(&group, extra))
            .file("templates/widget.yaml", &widget)
    };
    publish(&flux, "app", &with("1.0.0", "")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    let object = released(&flux, "web", 1).await;
    let namespace = flux.namespace.name();
    assert_eq!(
        object["status"]["inventory"]["entries"],
        json!([
            { "id": format!("{namespace}_web__ConfigMap"), "v": "v1" },
            { "id": format!("{namespace}_one_{group}_Widget"), "v": "v1" },
            { "id": format!("_widgets.{group}_apiextensions.k8s.io_CustomResourceDefinition"), "v": "v1" },
        ])
    );
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let name = format!("widgets.{group}");
    let found = definitions.get(&name).await.unwrap();
    assert_eq!(found.metadata.labels.unwrap()["helm.toolkit.fluxcd.io/name"], "web");
    publish(&flux, "app", &with("1.1.0", "              colour: {type: string}\n")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "upgrade": { "crds": "CreateReplace" } }))).await;
    released(&flux, "web", 2).await;
    let has_colour =
        |definition: &CustomResourceDefinition| serde_json::to_string(definition).unwrap().contains("colour");
    assert!(has_colour(&definitions.get(&name).await.unwrap()));
    flux.api(&HELM_RELEASE).delete("web", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&HELM_RELEASE), "web").await.unwrap();
    assert!(definitions.get_opt(&name).await.unwrap().is_some(), "definitions are never removed");
    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
}

async fn a_release_too_large_for_its_secret_is_refused_before_anything_is_applied(cluster: &Cluster) {
    let flux = start(cluster).await;
    // Text that does not compress: every byte from a small generator.
    let mut state = 7_u64;
    let noise: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + u8::try_from((state >> 33) % 90).unwrap())
    })
    .take(1_900_000)
    .collect();
    publish(&flux, "app", &chart("1.0.0").file("dashboards/all.json", &noise)).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "InstallFailed").await;
    let message = ready(&object).2;
    assert!(
        message.contains("the release would not fit into its Secret")
            && message.contains("the chart's other files"),
        "{message}"
    );
    assert!(config_maps(cluster, &flux).get_opt("web").await.unwrap().is_none());
    assert!(records(cluster, &flux).await.is_empty());
}

async fn a_dependent_waits_for_its_dependency(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "dependsOn": [{ "name": "db" }] }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "DependencyNotReady").await;
    let namespace = flux.namespace.name();
    assert_eq!(
        ready(&object).2,
        format!(
            "unable to get '{namespace}/db' dependency: helmreleases.helm.toolkit.fluxcd.io \"db\" not found"
        )
    );
    flux.apply(&HELM_RELEASE, "db", spec(json!({}))).await;
    released(&flux, "db", 1).await;
    let started = std::time::Instant::now();
    released(&flux, "web", 1).await;
    assert!(started.elapsed().as_secs() < 10, "the dependent took {:?}", started.elapsed());
    let by_expression =
        json!({ "dependsOn": [{ "name": "db", "readyExpr": "dep.metadata.labels.go == 'yes'" }] });
    flux.apply(&HELM_RELEASE, "late", spec(by_expression)).await;
    flux.not_ready(&HELM_RELEASE, "late", "DependencyNotReady").await;
    let broken = json!({ "dependsOn": [{ "name": "db", "readyExpr": "dep." }] });
    flux.apply(&HELM_RELEASE, "late", spec(broken)).await;
    let object = flux.not_ready(&HELM_RELEASE, "late", "InvalidCELExpression").await;
    assert!(condition(&object, "Stalled").is_some());
}

async fn a_chart_template_becomes_a_helm_chart(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let template = json!({ "spec": { "chart": "app", "version": "1.x", "sourceRef": { "kind": "HelmRepository", "name": "none" } } });
    let by_template = json!({ "interval": "1h", "chart": template });
    flux.apply(&HELM_RELEASE, "web", by_template).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "SourceNotReady").await;
    let chart_name = format!("{namespace}-web");
    assert_eq!(object["status"]["helmChart"], format!("{namespace}/{chart_name}"));
    assert_eq!(
        ready(&object).2,
        format!(
            "HelmChart '{namespace}/{chart_name}' is not ready: latest generation of object has not been reconciled"
        )
    );
    let made = serde_json::to_value(flux.api(&HELM_CHART).get(&chart_name).await.unwrap()).unwrap();
    assert_eq!((&made["spec"]["version"], &made["spec"]["interval"]), (&json!("1.x"), &json!("1h0m0s")));
    assert_eq!(made["metadata"]["labels"]["helm.toolkit.fluxcd.io/name"], "web");
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.api(&HELM_RELEASE).delete("web", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&HELM_RELEASE), "web").await.unwrap();
    assert!(flux.api(&HELM_CHART).get_opt(&chart_name).await.unwrap().is_none(), "it goes with its release");
}

async fn post_renderers_change_what_is_released(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let with = |value: &str| {
        let patch = format!("[{{\"op\": \"replace\", \"path\": \"/data/value\", \"value\": \"{value}\"}}]");
        spec(json!({
            "postRenderers": [{ "kustomize": { "patches": [{ "target": { "kind": "ConfigMap" }, "patch": patch }] } }],
            "commonMetadata": { "labels": { "team": "a" } },
        }))
    };
    flux.apply(&HELM_RELEASE, "web", with("patched")).await;
    let object = released(&flux, "web", 1).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "patched");
    let map = config_maps(cluster, &flux).get("web").await.unwrap();
    assert_eq!(map.metadata.labels.unwrap()["team"], "a");
    assert!(object["status"]["observedPostRenderersDigest"].as_str().unwrap().starts_with("sha256:"));
    // Only the post-renderer changes: that is a new release, too.
    flux.apply(&HELM_RELEASE, "web", with("again")).await;
    released(&flux, "web", 2).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "again");
}

async fn an_account_without_rights_releases_nothing(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart("1.0.0")).await;
    cluster
        .apply_yaml(&namespace, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: deployer}\n")
        .await
        .unwrap();
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "serviceAccountName": "deployer" }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "StateError").await;
    let message = ready(&object).2;
    assert!(
        message.contains(&format!("system:serviceaccount:{namespace}:deployer"))
            && message.contains("secrets"),
        "{message}"
    );
    let rights = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: deployer}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}}\nsubjects: [{{kind: ServiceAccount, name: deployer, namespace: {namespace}}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: all}}\nrules: [{{apiGroups: ['*'], resources: ['*'], verbs: ['*']}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: all}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: all}}\nsubjects: [{{kind: ServiceAccount, name: deployer, namespace: {namespace}}}]\n"
    );
    cluster.apply_yaml(&namespace, &rights).await.unwrap();
    released(&flux, "web", 1).await;
}

async fn forcing_and_resetting_are_honoured_once(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    released(&flux, "web", 1).await;
    let asked = json!({ "reconcile.fluxcd.io/requestedAt": "one", "reconcile.fluxcd.io/forceAt": "one", "reconcile.fluxcd.io/resetAt": "one" });
    annotate(&flux, "web", asked).await;
    let object = released(&flux, "web", 2).await;
    assert_eq!(object["status"]["lastHandledForceAt"], "one");
    assert_eq!(object["status"]["lastHandledResetAt"], "one");
    flux.reconcile_as(&HELM_RELEASE, "web", "two").await;
    let object = handled(&flux, "web", "two").await;
    assert_eq!(object["status"]["history"][0]["version"], 2, "a request that does not match forces nothing");
}

async fn client_side_releases_stay_client_side(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let with =
        |value: &str| spec(json!({ "install": { "serverSideApply": false }, "values": { "value": value } }));
    flux.apply(&HELM_RELEASE, "web", with("one")).await;
    released(&flux, "web", 1).await;
    let map = config_maps(cluster, &flux).get("web").await.unwrap();
    let operations: Vec<String> =
        map.metadata.managed_fields.unwrap().into_iter().filter_map(|one| one.operation).collect();
    assert_eq!(operations, ["Update"]);
    flux.apply(&HELM_RELEASE, "web", with("two")).await;
    released(&flux, "web", 2).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "two");
    assert_eq!(
        helm_task(cluster, &flux, Tool::Helm3, &["get", "values", "web", "-o", "json"]).await.trim(),
        "{\"value\":\"two\"}"
    );
}
