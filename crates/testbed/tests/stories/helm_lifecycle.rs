//! A release from its first attempt to its removal, where things do not go by themselves.

use flux_api::kinds::{Controller, HELM_RELEASE, KUSTOMIZATION};
use flux_controllers::manager::ManagerOptions;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::reference::Tool;

use crate::flux::{Flux, condition, ready};
use crate::helm_release::{
    annotate, chart, chart_with_workload, config_maps, definition, event, events, handled, helm_task, job,
    publish, records, released, spec, start, value_of,
};

crate::stories!(
    a_suspended_release_is_left_alone_and_knows_that_it_was_asked,
    a_release_moves_with_its_storage_and_target_namespaces,
    what_was_never_stored_counts_as_a_failure_and_uses_up_no_retries,
    tests_that_somebody_runs_by_hand_disturb_nothing,
    deletion_is_not_held_up_by_what_is_gone,
    secrets_are_set_at_paths,
    a_wait_is_given_up_for_something_newer_where_the_gate_says_so,
    referenced_objects_are_not_watched_where_the_gate_says_so,
    helm_3s_defaults_come_with_their_gate,
    drift_that_cannot_be_corrected_is_told_and_fails_nothing,
    removal_waits_for_what_goes_slowly_unless_told_not_to,
    a_release_with_data_is_not_replaced_unless_somebody_says_so,
    definitions_that_a_policy_leaves_behind_are_named,
    what_cannot_be_listed_is_told,
    dependencies_can_be_of_other_kinds,
    releases_that_wait_for_each_other_are_named,
    an_expression_is_not_enough_where_the_gate_says_so,
    a_remediation_that_fails_is_told,
    tests_are_awaited_before_they_are_run,
);

async fn stalled(flux: &Flux, name: &str) -> Value {
    flux.until(&HELM_RELEASE, name, "stalled", |object| condition(object, "Stalled").0 == "True").await
}

async fn delete(cluster: &Cluster, flux: &Flux, name: &str) {
    flux.api(&HELM_RELEASE).delete(name, &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&HELM_RELEASE), name).await.unwrap();
}

async fn a_suspended_release_is_left_alone_and_knows_that_it_was_asked(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let with = |suspend: bool, value: &str| spec(json!({ "suspend": suspend, "values": { "value": value } }));
    flux.apply(&HELM_RELEASE, "web", with(false, "one")).await;
    let before = released(&flux, "web", 1).await;
    flux.apply(&HELM_RELEASE, "web", with(true, "two")).await;
    publish(&flux, "app", &chart("1.1.0")).await;
    flux.reconcile_as(&HELM_RELEASE, "web", "asked").await;
    let object = handled(&flux, "web", "asked").await;
    assert_eq!(object["status"]["history"], before["status"]["history"]);
    assert_eq!(object["status"]["observedGeneration"], before["status"]["observedGeneration"]);
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "one");
    flux.apply(&HELM_RELEASE, "web", with(false, "two")).await;
    released(&flux, "web", 2).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "two");
}

async fn a_release_moves_with_its_storage_and_target_namespaces(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let (vault, home) = (cluster.namespace("vault").await.unwrap(), cluster.namespace("home").await.unwrap());
    let stored = async |namespace: &str| -> usize {
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace);
        secrets.list(&ListParams::default().labels("owner=helm,name=web")).await.unwrap().items.len()
    };
    let with = |extra: Value| {
        let mut with = spec(json!({ "releaseName": "web" }));
        with.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        with
    };
    flux.apply(&HELM_RELEASE, "web", with(json!({}))).await;
    released(&flux, "web", 1).await;
    let own = flux.namespace.name().to_owned();
    assert_eq!((stored(&own).await, stored(vault.name()).await), (1, 0));
    // Its records are to be kept elsewhere: it is uninstalled where they were.
    flux.apply(&HELM_RELEASE, "web", with(json!({ "storageNamespace": vault.name() }))).await;
    flux.until(&HELM_RELEASE, "web", "keeps its records elsewhere", |object| {
        object["status"]["storageNamespace"] == vault.name() && ready(object).0 == "True"
    })
    .await;
    assert_eq!((stored(&own).await, stored(vault.name()).await), (0, 1));
    assert!(config_maps(cluster, &flux).get_opt("web").await.unwrap().is_some());
    let told = event(cluster, &flux, "UninstallSucceeded").await;
    assert_eq!(told, format!("Helm uninstall succeeded for release {own}/web.v1 with chart app@1.0.0"));
    // Its objects are to stand elsewhere.
    let moved = json!({ "storageNamespace": vault.name(), "targetNamespace": home.name() });
    flux.apply(&HELM_RELEASE, "web", with(moved)).await;
    flux.until(&HELM_RELEASE, "web", "stands elsewhere", |object| {
        object["status"]["history"][0]["namespace"] == home.name() && ready(object).0 == "True"
    })
    .await;
    assert!(config_maps(cluster, &flux).get_opt("web").await.unwrap().is_none());
    let there: Api<ConfigMap> = Api::namespaced(cluster.client(), home.name());
    assert!(there.get_opt("web").await.unwrap().is_some());
    delete(cluster, &flux, "web").await;
    assert_eq!(stored(vault.name()).await, 0);
    assert!(there.get_opt("web").await.unwrap().is_none());
}

async fn what_was_never_stored_counts_as_a_failure_and_uses_up_no_retries(cluster: &Cluster) {
    let flux = start(cluster).await;
    let broken = chart("1.0.0").file("templates/broken.yaml", "{{ fail \"not like this\" }}\n");
    publish(&flux, "app", &broken).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "install": { "remediation": { "retries": 0 } } }))).await;
    let object = flux
        .until(&HELM_RELEASE, "web", "was tried more than once", |object| {
            object["status"]["failures"].as_i64() > Some(1)
        })
        .await;
    let namespace = flux.namespace.name();
    let (status, reason, message) = ready(&object);
    assert_eq!((status, reason), ("False", "InstallFailed"));
    let text = format!("Helm install failed for release {namespace}/web with chart app@1.0.0: ");
    assert!(message.starts_with(&text) && message.contains("not like this"), "{message}");
    assert_eq!(object["status"].get("installFailures"), None, "nothing was stored");
    assert_eq!(condition(&object, "Stalled").0, "");
    assert_eq!(object["status"]["lastAttemptedReleaseAction"], "install");
    assert_eq!(object["status"].get("history"), None);
    assert_eq!(object["status"]["observedGeneration"], -1);
    assert!(records(cluster, &flux).await.is_empty());
    publish(&flux, "app", &chart("1.0.1")).await;
    released(&flux, "web", 1).await;
}

async fn tests_that_somebody_runs_by_hand_disturb_nothing(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let tested = chart("1.0.0").file("templates/test.yaml", &job("check", "test", "ready", ""));
    publish(&flux, "app", &tested).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    let before = released(&flux, "web", 1).await;
    helm_task(cluster, &flux, Tool::Helm4, &["test", "web"]).await;
    flux.reconcile_as(&HELM_RELEASE, "web", "after").await;
    let after = handled(&flux, "web", "after").await;
    assert_eq!(after["status"]["history"], before["status"]["history"], "nobody but us released it");
    assert_eq!(condition(&after, "TestSuccess").0, "");
    // Asked to test, it tests what is there and releases nothing.
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "test": { "enable": true } }))).await;
    let object =
        flux.until(&HELM_RELEASE, "web", "is tested", |object| ready(object).1 == "TestSucceeded").await;
    assert_eq!(object["status"]["history"][0]["version"], 1);
    // Tests that are no longer asked for leave no condition behind.
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "test": { "enable": false } }))).await;
    let object = flux
        .until(&HELM_RELEASE, "web", "forgot the tests", |object| {
            condition(object, "TestSuccess").0.is_empty()
        })
        .await;
    assert_eq!((ready(&object).0, ready(&object).1), ("True", "InstallSucceeded"));
}

async fn deletion_is_not_held_up_by_what_is_gone(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart("1.0.0")).await;
    // Never released: there is nothing to uninstall.
    let nothing = json!({ "interval": "1h", "chartRef": { "kind": "HelmChart", "name": "none" } });
    flux.apply(&HELM_RELEASE, "never", nothing).await;
    flux.not_ready(&HELM_RELEASE, "never", "ArtifactFailed").await;
    delete(cluster, &flux, "never").await;
    // Uninstalled by hand.
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    released(&flux, "web", 1).await;
    helm_task(cluster, &flux, Tool::Helm3, &["uninstall", "web"]).await;
    delete(cluster, &flux, "web").await;
    // Uninstalled by hand, its history kept, as it is to be kept.
    let keeping = spec(json!({ "uninstall": { "keepHistory": true } }));
    flux.apply(&HELM_RELEASE, "kept", keeping).await;
    released(&flux, "kept", 1).await;
    helm_task(cluster, &flux, Tool::Helm4, &["uninstall", "kept", "--keep-history"]).await;
    delete(cluster, &flux, "kept").await;
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.kept.v1 uninstalled"]);
    // The account that it was released by is gone: nobody is left who could uninstall it.
    let account = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: deployer}}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: deployer}}\nrules: [{{apiGroups: [''], resources: [configmaps, secrets], verbs: ['*']}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: deployer}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}}\nsubjects: [{{kind: ServiceAccount, name: deployer, namespace: {namespace}}}]\n"
    );
    cluster.apply_yaml(&namespace, &account).await.unwrap();
    flux.apply(&HELM_RELEASE, "alone", spec(json!({ "serviceAccountName": "deployer" }))).await;
    released(&flux, "alone", 1).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), &namespace);
    accounts.delete("deployer", &DeleteParams::default()).await.unwrap();
    delete(cluster, &flux, "alone").await;
    assert!(config_maps(cluster, &flux).get_opt("alone").await.unwrap().is_some(), "left where it is");
}

async fn secrets_are_set_at_paths(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let odd = "a,b={c}\\d";
    flux.secret("vars", &[("values.yaml", "value: from-secret\n"), ("path", "1.50"), ("verbatim", odd)])
        .await;
    let chart = chart("1.0.0").file("values.yaml", "value: default\nquoted: none\nversion: none\ndropped: here\n").file(
        "templates/more.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-more\ndata:\n  quoted: {{ .Values.quoted | quote }}\n  number: {{ .Values.deep.number | quote }}\n  dropped: {{ .Values.dropped | default \"nothing\" | quote }}\n",
    );
    publish(&flux, "app", &chart).await;
    let from = json!([
        { "kind": "Secret", "name": "vars" },
        { "kind": "Secret", "name": "vars", "valuesKey": "path", "targetPath": "deep.number" },
        { "kind": "Secret", "name": "vars", "valuesKey": "verbatim", "targetPath": "quoted", "literal": true },
        { "kind": "Secret", "name": "vars", "valuesKey": "nothing", "targetPath": "value", "optional": true },
    ]);
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "valuesFrom": from, "values": { "dropped": null } })))
        .await;
    released(&flux, "web", 1).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "from-secret");
    assert_eq!(value_of(cluster, &flux, "web-more", "quoted").await, odd);
    assert_eq!(value_of(cluster, &flux, "web-more", "number").await, "1.50");
    assert_eq!(value_of(cluster, &flux, "web-more", "dropped").await, "nothing", "null takes a default away");
    let missing = json!([{ "kind": "Secret", "name": "vars", "valuesKey": "gone" }]);
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "valuesFrom": missing }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "ValuesError").await;
    let text = format!(
        "could not resolve Secret chart values reference '{namespace}/vars' with key 'gone': key not found"
    );
    assert_eq!(ready(&object).2, text);
    assert_eq!(event(cluster, &flux, "ValuesError").await, text);
}

async fn referenced_objects_are_not_watched_where_the_gate_says_so(cluster: &Cluster) {
    let gated = |options: &mut ManagerOptions| options.helm.disable_config_watchers = true;
    let flux = Flux::start_with(cluster, &[Controller::Helm], gated).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let say = async |value: &str| {
        let map = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: vars}}\ndata: {{values.yaml: 'value: {value}'}}\n"
        );
        cluster.apply_yaml(flux.namespace.name(), &map).await.unwrap();
    };
    say("one").await;
    let from = json!([{ "kind": "ConfigMap", "name": "vars" }]);
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "valuesFrom": from }))).await;
    released(&flux, "web", 1).await;
    say("two").await;
    // Had a watch told of it, it would have been released by the time that another was installed.
    flux.apply(&HELM_RELEASE, "other", spec(json!({}))).await;
    released(&flux, "other", 1).await;
    say("three").await;
    flux.reconcile(&HELM_RELEASE, "web").await;
    released(&flux, "web", 2).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "three");
}

async fn a_wait_is_given_up_for_something_newer_where_the_gate_says_so(cluster: &Cluster) {
    let gated = |options: &mut ManagerOptions| options.helm.cancel_health_check = true;
    let flux = Flux::start_with(cluster, &[Controller::Helm], gated).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let with = |pod: &str| spec(json!({ "timeout": "5m", "values": { "pod": pod } }));
    flux.apply(&HELM_RELEASE, "web", with("pending")).await;
    flux.until(&HELM_RELEASE, "web", "waits", |object| {
        condition(object, "Reconciling").2 == "Running 'install' action with timeout of 5m0s"
    })
    .await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let exists = |_: &Deployment| true;
    cluster.await_condition(&deployments, "web", "exists", exists).await.unwrap();
    let started = std::time::Instant::now();
    flux.apply(&HELM_RELEASE, "web", with("ready")).await;
    let object = flux.ready(&HELM_RELEASE, "web").await;
    assert!(started.elapsed().as_secs() < 60, "nobody waits for what is no longer wanted");
    assert_eq!(object["status"].get("installFailures"), None);
    let told = event(cluster, &flux, "HealthCheckCanceled").await;
    let by = format!("HelmRelease/{namespace}/web");
    assert_eq!(told, format!("Health checks canceled due to new reconciliation triggered by {by}"));
}

async fn helm_3s_defaults_come_with_their_gate(cluster: &Cluster) {
    let gated = |options: &mut ManagerOptions| options.helm.helm_3_defaults = true;
    let flux = Flux::start_with(cluster, &[Controller::Helm], gated).await;
    let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-hook\n  annotations:\n    helm.sh/hook: pre-install\n";
    publish(&flux, "app", &chart("1.0.0").file("templates/hook.yaml", hook)).await;
    let labelled = json!({ "commonMetadata": { "labels": { "team": "a" } } });
    flux.apply(&HELM_RELEASE, "web", spec(labelled)).await;
    released(&flux, "web", 1).await;
    let maps = config_maps(cluster, &flux);
    let map = maps.get("web").await.unwrap();
    assert_eq!(map.metadata.labels.unwrap()["team"], "a");
    let operations: Vec<String> =
        map.metadata.managed_fields.unwrap().into_iter().filter_map(|one| one.operation).collect();
    assert_eq!(operations, ["Update"], "from the client side");
    let hook = maps.get("web-hook").await.unwrap();
    assert_eq!(
        hook.metadata.labels.and_then(|labels| labels.get("team").cloned()),
        None,
        "hooks are left alone"
    );
}

async fn drift_that_cannot_be_corrected_is_told_and_fails_nothing(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let kept = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-kept\n  annotations:\n    helm.toolkit.fluxcd.io/driftDetection: disabled\ndata:\n  value: chart\n";
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-other\n";
    let charted = chart("1.0.0").file("templates/kept.yaml", kept).file("templates/other.yaml", other);
    publish(&flux, "app", &charted).await;
    let rights = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: deployer}}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: deployer}}\nrules: [{{apiGroups: [''], resources: [configmaps, secrets], verbs: ['*']}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: deployer}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}}\nsubjects: [{{kind: ServiceAccount, name: deployer, namespace: {namespace}}}]\n"
    );
    cluster.apply_yaml(&namespace, &rights).await.unwrap();
    let with = json!({ "serviceAccountName": "deployer", "driftDetection": { "mode": "enabled" } });
    flux.apply(&HELM_RELEASE, "web", spec(with)).await;
    let object = released(&flux, "web", 1).await;
    assert_eq!(condition(&object, "Drifted").1, "NoDriftDetected");
    let maps = config_maps(cluster, &flux);
    let by_hand = json!({ "data": { "value": "hand" } });
    maps.patch("web-kept", &PatchParams::default(), &Patch::Merge(&by_hand)).await.unwrap();
    // Who made it and which release it is of belongs to the release, too.
    let unmarked = json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": null } } });
    maps.patch("web", &PatchParams::default(), &Patch::Merge(&unmarked)).await.unwrap();
    flux.reconcile_as(&HELM_RELEASE, "web", "one").await;
    handled(&flux, "web", "one").await;
    assert_eq!(value_of(cluster, &flux, "web-kept", "value").await, "hand", "left out as it asks for");
    let labels = maps.get("web").await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm");
    let told = event(cluster, &flux, "DriftDetected").await;
    assert!(told.contains(&format!("ConfigMap/{namespace}/web-kept excluded")), "{told}");
    // What is missing may no longer be made, nor the rest be compared: that is told, and fails nothing.
    let fewer = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: deployer}\nrules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}, {apiGroups: [''], resources: [secrets], verbs: ['*']}]\n";
    cluster.apply_yaml(&namespace, fewer).await.unwrap();
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    flux.reconcile_as(&HELM_RELEASE, "web", "two").await;
    let told = event(cluster, &flux, "DriftCorrectionFailed").await;
    let text = format!(
        "Failed to correct cluster state of release {namespace}/web.v1:\nConfigMap/{namespace}/web creation failure: "
    );
    assert!(told.starts_with(&text) && told.contains("forbidden"), "{told}");
    let object = handled(&flux, "web", "two").await;
    assert_eq!(object["status"]["history"][0]["version"], 1);
    assert_eq!(condition(&object, "Drifted").0, "True");
    assert_eq!(object["status"].get("upgradeFailures"), None);
    // With nothing that is known to have drifted, nobody knows anything.
    let back = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n";
    cluster.apply_yaml(&namespace, back).await.unwrap();
    let object = flux.not_ready(&HELM_RELEASE, "web", "StateError").await;
    let text = format!(
        "Could not determine release state: unable to determine cluster state: ConfigMap/{namespace}/web dry-run failed: "
    );
    assert!(ready(&object).2.starts_with(&text), "{}", ready(&object).2);
    let all = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: deployer}\nrules: [{apiGroups: [''], resources: [configmaps, secrets], verbs: ['*']}]\n";
    cluster.apply_yaml(&namespace, all).await.unwrap();
    let object = flux.ready(&HELM_RELEASE, "web").await;
    assert_eq!(object["status"]["history"][0]["version"], 1, "no release is made of it");
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "default");
}

async fn removal_waits_for_what_goes_slowly_unless_told_not_to(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let slow = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-slow\n  finalizers: [example.org/hold]\n";
    publish(&flux, "app", &chart("1.0.0").file("templates/slow.yaml", slow)).await;
    for (name, uninstall) in
        [("waits", json!({ "timeout": "1s" })), ("quick", json!({ "disableWait": true }))]
    {
        flux.apply(&HELM_RELEASE, name, spec(json!({ "uninstall": uninstall }))).await;
        released(&flux, name, 1).await;
    }
    delete(cluster, &flux, "quick").await;
    let releases = flux.api(&HELM_RELEASE);
    releases.delete("waits", &DeleteParams::default()).await.unwrap();
    let object = flux
        .until(&HELM_RELEASE, "waits", "is held up", |object| {
            condition(object, "Released").1 == "UninstallFailed"
        })
        .await;
    let (status, reason, message) = ready(&object);
    assert_eq!((status, reason), ("False", "UninstallFailed"));
    let text = format!("Helm uninstall failed for release {namespace}/waits.v1 with chart app@1.0.0: ");
    assert!(message.starts_with(&text) && message.contains("waits-slow"), "{message}");
    assert!(event(cluster, &flux, "UninstallFailed").await.starts_with(&text));
    let maps = config_maps(cluster, &flux);
    for name in ["waits-slow", "quick-slow"] {
        let free = json!({ "metadata": { "finalizers": null } });
        maps.patch(name, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    }
    cluster.await_gone(&releases, "waits").await.unwrap();
    assert!(records(cluster, &flux).await.is_empty());
}

async fn a_release_with_data_is_not_replaced_unless_somebody_says_so(cluster: &Cluster) {
    let flux = start(cluster).await;
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: {{ .Release.Name }}-data\nspec:\n  accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: 1Mi}}\n";
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart("1.0.0").file("templates/data.yaml", claim)).await;
    let with =
        |value: &str| spec(json!({ "values": { "value": value }, "install": { "disableWait": true } }));
    flux.apply(&HELM_RELEASE, "web", with("one")).await;
    released(&flux, "web", 1).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client(), flux.namespace.name());
    let before = claims.get("web-data").await.unwrap().metadata.uid;
    let other = Chart::new("other", "2.0.0").file("templates/data.yaml", claim);
    publish(&flux, "app", &other).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "ReplaceHeld").await;
    let message = ready(&object).2.to_owned();
    let namespace = flux.namespace.name();
    assert!(message.contains(&format!("PersistentVolumeClaim/{namespace}/web-data")), "{message}");
    assert!(message.contains("chartNameChangeStrategy to InPlaceUpdate"), "{message}");
    assert_eq!(condition(&object, "Stalled").1, "ReplaceHeld");
    assert_eq!(event(cluster, &flux, "ReplaceHeld").await, message);
    // It is held as long as nobody says otherwise, and told once.
    flux.reconcile_as(&HELM_RELEASE, "web", "one").await;
    handled(&flux, "web", "one").await;
    assert_eq!(claims.get("web-data").await.unwrap().metadata.uid, before);
    assert_eq!(events(cluster, &flux, "ReplaceHeld").await.len(), 1);
    let plan = message.split("fluxcd.rs/release-replace: ").nth(1).unwrap().split(',').next().unwrap();
    annotate(
        &flux,
        "web",
        json!({ "fluxcd.rs/release-replace": plan, "reconcile.fluxcd.io/requestedAt": "two" }),
    )
    .await;
    let object = flux
        .until(&HELM_RELEASE, "web", "is of the other chart", |object| {
            object["status"]["history"][0]["chartName"] == "other" && ready(object).0 == "True"
        })
        .await;
    assert_eq!((condition(&object, "ReplaceHeld").0, condition(&object, "Stalled").0), ("", ""));
    assert_ne!(claims.get("web-data").await.unwrap().metadata.uid, before, "installed anew");
}

async fn definitions_that_a_policy_leaves_behind_are_named(cluster: &Cluster) {
    let flux = start(cluster).await;
    let group = format!("left-{}.example.org", flux.namespace.name());
    let name = format!("widgets.{group}");
    let stray = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray}\n";
    let with = |version: &str, extra: &str| {
        chart(version).file("crds/widgets.yaml", &definition(&group, extra)).file("crds/stray.yaml", stray)
    };
    let colour = "              colour: {type: string}\n";
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let has_colour = async || {
        let found = definitions.get(&name).await.unwrap();
        serde_json::to_string(&found).unwrap().contains("colour")
    };
    // Left to its defaults, an upgrade brings definitions along.
    publish(&flux, "app", &with("1.0.0", "")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "install": { "skipCRDs": true } }))).await;
    let object = released(&flux, "web", 1).await;
    assert!(definitions.get_opt(&name).await.unwrap().is_some(), "the old field has no effect");
    assert_eq!(condition(&object, "CRDsOutdated").0, "");
    assert!(
        config_maps(cluster, &flux).get_opt("stray").await.unwrap().is_none(),
        "the crds folder is for definitions only"
    );
    publish(&flux, "app", &with("1.1.0", colour)).await;
    released(&flux, "web", 2).await;
    assert!(has_colour().await, "applied with force");
    // From the client side, `Create` leaves what is there, and so does `Skip`.
    let size = "              weight: {type: integer}\n";
    let by_client = json!({ "upgrade": { "serverSideApply": "disabled", "crds": "Create" } });
    flux.apply(&HELM_RELEASE, "web", spec(by_client)).await;
    publish(&flux, "app", &with("1.2.0", size)).await;
    let object = released(&flux, "web", 3).await;
    assert!(has_colour().await, "not replaced");
    let outdated = condition(&object, "CRDsOutdated");
    assert_eq!((outdated.0, outdated.1), ("True", "LeftByPolicy"));
    assert!(outdated.2.contains(&format!("{name} differs in v1 at ")), "{}", outdated.2);
    assert!(outdated.2.contains("/weight"), "{}", outdated.2);
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "upgrade": { "crds": "Skip" } }))).await;
    publish(&flux, "app", &with("1.3.0", size)).await;
    let object = released(&flux, "web", 4).await;
    assert_eq!(condition(&object, "CRDsOutdated").0, "True");
    assert_eq!(ready(&object).0, "True");
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "upgrade": { "crds": "CreateReplace" } }))).await;
    publish(&flux, "app", &with("1.4.0", size)).await;
    let object = released(&flux, "web", 5).await;
    assert!(!has_colour().await, "replaced");
    assert_eq!(condition(&object, "CRDsOutdated").0, "");
    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
}

async fn what_cannot_be_listed_is_told(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0").file("crds/broken.yaml", "kind: [\n")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "install": { "crds": "Skip" } }))).await;
    let object = released(&flux, "web", 1).await;
    assert_eq!(object["status"].get("inventory"), None);
    let namespace = flux.namespace.name();
    let told = event(cluster, &flux, "InventoryBuildFailed").await;
    assert!(told.starts_with(&format!("failed to build inventory for {namespace}/web: ")), "{told}");
    assert!(told.contains("crds/broken.yaml"), "{told}");
    // Where they are wanted, they must be readable.
    flux.apply(&HELM_RELEASE, "api", spec(json!({}))).await;
    let object = flux.not_ready(&HELM_RELEASE, "api", "InstallFailed").await;
    assert!(ready(&object).2.contains("failed to parse CustomResourceDefinitions"), "{}", ready(&object).2);
}

async fn dependencies_can_be_of_other_kinds(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart("1.0.0")).await;
    let needs = |dependency: Value| spec(json!({ "dependsOn": [dependency] }));
    flux.apply(&HELM_RELEASE, "web", needs(json!({ "kind": "Kustomization", "name": "infra" }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "DependencyNotReady").await;
    let missing = format!(
        "unable to get '{namespace}/infra' dependency: kustomizations.kustomize.toolkit.fluxcd.io \"infra\" not found"
    );
    assert_eq!(ready(&object).2, missing);
    assert_eq!(event(cluster, &flux, "DependencyNotReady").await, missing);
    assert_eq!(object["status"]["observedGeneration"], -1);
    let source = json!({ "kind": "GitRepository", "name": "fleet" });
    let infra = json!({ "interval": "1h", "prune": true, "path": "./", "sourceRef": source });
    flux.apply(&KUSTOMIZATION, "infra", infra).await;
    let well = json!({ "status": { "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": "True",
        "reason": "ReconciliationSucceeded", "message": "Applied", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    let infra = flux.api(&KUSTOMIZATION);
    infra.patch_status("infra", &PatchParams::default(), &Patch::Merge(well)).await.unwrap();
    let started = std::time::Instant::now();
    released(&flux, "web", 1).await;
    assert!(started.elapsed().as_secs() < 20, "it is woken: {:?}", started.elapsed());
    // Anything else is read as the account of the release, and judged by an expression or by its Ready condition.
    let gate = |open: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: gate}}\ndata: {{open: '{open}'}}\n")
    };
    let by_map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "gate", "readyExpr": "dep.data.open == 'yes'" });
    flux.apply(&HELM_RELEASE, "api", needs(by_map)).await;
    let absent = format!("unable to get 'ConfigMap/{namespace}/gate' dependency: not found");
    flux.until(&HELM_RELEASE, "api", "misses it", |object| ready(object).2 == absent).await;
    cluster.apply_yaml(&namespace, &gate("no")).await.unwrap();
    flux.reconcile(&HELM_RELEASE, "api").await;
    let shut = format!("dependency '{namespace}/gate' is not ready according to readyExpr eval");
    flux.until(&HELM_RELEASE, "api", "waits for it", |object| ready(object).2 == shut).await;
    cluster.apply_yaml(&namespace, &gate("yes")).await.unwrap();
    flux.reconcile(&HELM_RELEASE, "api").await;
    released(&flux, "api", 1).await;
    flux.apply(&HELM_RELEASE, "odd", needs(json!({ "kind": "ConfigMap", "name": "gate" }))).await;
    let object = stalled(&flux, "odd").await;
    assert!(ready(&object).2.contains("'ConfigMap/gate' needs an apiVersion"), "{}", ready(&object).2);
}

async fn releases_that_wait_for_each_other_are_named(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let on = |name: &str| spec(json!({ "dependsOn": [{ "name": name }] }));
    flux.apply(&HELM_RELEASE, "free", spec(json!({}))).await;
    for (name, dependency) in [("a", "b"), ("b", "c"), ("c", "a")] {
        flux.apply(&HELM_RELEASE, name, on(dependency)).await;
    }
    for (name, circle) in [("a", "a → b → c → a"), ("b", "b → c → a → b"), ("c", "c → a → b → c")]
    {
        let object = flux.not_ready(&HELM_RELEASE, name, "DependencyCycle").await;
        assert!(ready(&object).2.contains(circle), "{}", ready(&object).2);
        assert_eq!(condition(&object, "Stalled").1, "DependencyCycle");
    }
    released(&flux, "free", 1).await;
    flux.apply(&HELM_RELEASE, "c", spec(json!({ "dependsOn": [] }))).await;
    let started = std::time::Instant::now();
    for name in ["c", "b", "a"] {
        let object = released(&flux, name, 1).await;
        assert_eq!(condition(&object, "Stalled").0, "");
    }
    assert!(started.elapsed().as_secs() < 20, "they are woken: {:?}", started.elapsed());
}

async fn an_expression_is_not_enough_where_the_gate_says_so(cluster: &Cluster) {
    let gated = |options: &mut ManagerOptions| options.helm.additive_cel_dependency_check = true;
    let flux = Flux::start_with(cluster, &[Controller::Helm], gated).await;
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "db", spec(json!({ "suspend": true }))).await;
    let always = json!({ "dependsOn": [{ "name": "db", "readyExpr": "dep.metadata.name == 'db'" }] });
    flux.apply(&HELM_RELEASE, "web", spec(always)).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "DependencyNotReady").await;
    assert_eq!(ready(&object).2, format!("dependency '{namespace}/db' is not ready"));
    flux.apply(&HELM_RELEASE, "db", spec(json!({ "suspend": false }))).await;
    released(&flux, "web", 1).await;
}

async fn a_remediation_that_fails_is_told(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let undo = job("{{ .Release.Name }}-undo", "pre-rollback", "fail", "");
    let remove = job("{{ .Release.Name }}-remove", "pre-delete", "{{ .Values.remove }}", "");
    let fragile = chart_with_workload("1.0.0")
        .file("values.yaml", "value: default\npod: ready\nremove: ready\n")
        .file("templates/undo.yaml", &undo)
        .file("templates/remove.yaml", &remove);
    publish(&flux, "app", &fragile).await;
    let last = json!({ "remediation": { "retries": 0, "remediateLastFailure": true } });
    let with =
        |values: Value| spec(json!({ "timeout": "5s", "install": last, "upgrade": last, "values": values }));
    flux.apply(&HELM_RELEASE, "web", with(json!({}))).await;
    released(&flux, "web", 1).await;
    let failing =
        spec(json!({ "timeout": "5s", "upgrade": { "timeout": "1s", "remediation": last["remediation"] },
        "values": { "pod": "pending" } }));
    flux.apply(&HELM_RELEASE, "web", failing).await;
    let object = stalled(&flux, "web").await;
    let text = format!("Helm rollback to previous release {namespace}/web.v1 with chart app@1.0.0 failed: ");
    let remediated = condition(&object, "Remediated");
    assert_eq!((remediated.0, remediated.1), ("False", "RollbackFailed"));
    assert!(remediated.2.starts_with(&text), "{}", remediated.2);
    assert_eq!((ready(&object).0, ready(&object).1), ("False", "RollbackFailed"));
    assert_eq!(condition(&object, "Stalled").2, "Failed to upgrade after 1 attempt(s)");
    assert!(event(cluster, &flux, "RollbackFailed").await.starts_with(&text));
    // An install that is to be taken back, and cannot be.
    flux.apply(&HELM_RELEASE, "api", with(json!({ "pod": "pending", "remove": "fail" }))).await;
    let object = flux
        .until(&HELM_RELEASE, "api", "cannot be removed", |object| {
            condition(object, "Remediated").1 == "UninstallFailed"
        })
        .await;
    let text =
        format!("Helm uninstall remediation for release {namespace}/api.v1 with chart app@1.0.0 failed: ");
    assert!(condition(&object, "Remediated").2.starts_with(&text), "{}", condition(&object, "Remediated").2);
    assert_eq!(condition(&object, "Remediated").0, "False");
    assert!(event(cluster, &flux, "UninstallFailed").await.starts_with(&text));
    // Its inventory stays: what is listed may still be there.
    assert!(object["status"]["inventory"]["entries"].as_array().is_some_and(|all| !all.is_empty()));
}

async fn tests_are_awaited_before_they_are_run(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let tested = chart("1.0.0").file("templates/test.yaml", &job("check", "test", "pending", ""));
    publish(&flux, "app", &tested).await;
    let test = json!({ "enable": true, "timeout": "3s" });
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "test": test }))).await;
    let object = flux
        .until(&HELM_RELEASE, "web", "is being tested", |object| {
            condition(object, "Reconciling").2 == "Running 'test' action with timeout of 3s"
        })
        .await;
    let awaiting = format!("Helm release {namespace}/web.v1 with chart app@1.0.0 is awaiting tests");
    assert_eq!(condition(&object, "TestSuccess"), ("Unknown", "AwaitingTests", awaiting.as_str()));
    let object = flux.not_ready(&HELM_RELEASE, "web", "TestFailed").await;
    assert_eq!(object["status"]["history"][0]["testHooks"]["check"]["phase"], "Failed");
    let object = stalled(&flux, "web").await;
    assert_eq!(object["status"]["installFailures"], 1, "a failed test counts for what it tested");
}
