//! The options of install, upgrade, rollback, uninstall and test, each seen at work.

use base64::Engine;
use flux_api::kinds::{Controller, HELM_RELEASE};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;

use crate::flux::{Flux, condition, ready};
use crate::helm_release::{
    annotate, chart, chart_with_workload, config_maps, definition, event, handled, job, publish, records,
    released, spec, start, value_of,
};

crate::stories!(
    hooks_are_left_out_where_disabled,
    nothing_is_waited_for_where_disabled,
    an_action_has_its_own_timeout,
    a_name_that_is_kept_is_used_again_only_with_replace,
    definitions_follow_their_policy,
    a_failed_upgrade_cleans_up_where_asked,
    removal_propagates_as_asked,
    tests_are_chosen_and_their_failures_ignored,
    retry_on_failure_tries_again_after_its_interval,
    a_failed_release_is_uninstalled_where_asked,
    another_chart_name_upgrades_in_place_where_asked,
    old_records_are_dropped,
    a_stalled_release_is_tried_again_on_request,
    a_release_goes_to_another_namespace,
    objects_of_others_are_not_taken_where_forbidden,
    values_and_objects_are_checked_unless_told_otherwise,
    force_replaces_and_preserved_values_stay,
    a_rollback_has_options_of_its_own,
    hooks_are_post_rendered_by_strategy,
    custom_resources_are_waited_for_by_strategy_and_expression,
    a_release_goes_to_another_cluster,
);

/// The object when it has failed for good.
async fn stalled(flux: &Flux, name: &str) -> Value {
    flux.until(&HELM_RELEASE, name, "stalled", |object| condition(object, "Stalled").0 == "True").await
}

async fn delete(cluster: &Cluster, flux: &Flux, name: &str) {
    flux.api(&HELM_RELEASE).delete(name, &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&HELM_RELEASE), name).await.unwrap();
}

async fn has_map(cluster: &Cluster, flux: &Flux, name: &str) -> bool {
    config_maps(cluster, flux).get_opt(name).await.unwrap().is_some()
}

fn map(name: &str, annotations: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  annotations:\n{annotations}")
}

async fn hooks_are_left_out_where_disabled(cluster: &Cluster) {
    let flux = start(cluster).await;
    let events = "    helm.sh/hook: pre-install,post-upgrade,pre-rollback,post-delete\n";
    let hooked =
        chart_with_workload("1.0.0").file("templates/hook.yaml", &map("{{ .Release.Name }}-hook", events));
    publish(&flux, "app", &hooked).await;
    let disabled = json!({ "disableHooks": true });
    let with = |value: &str| {
        spec(json!({ "install": disabled, "upgrade": disabled, "uninstall": disabled,
            "values": { "value": value, "pod": "ready" } }))
    };
    let _workloads = cluster.simulate_workloads().await.unwrap();
    flux.apply(&HELM_RELEASE, "web", with("one")).await;
    released(&flux, "web", 1).await;
    flux.apply(&HELM_RELEASE, "web", with("two")).await;
    released(&flux, "web", 2).await;
    delete(cluster, &flux, "web").await;
    assert!(!has_map(cluster, &flux, "web-hook").await, "no hook ran");
    // The same with hooks, but for the rollback.
    let with = |pod: &str| {
        spec(json!({ "timeout": "5s", "rollback": disabled, "values": { "pod": pod },
            "upgrade": { "disableHooks": true, "remediation": { "retries": 0, "remediateLastFailure": true } } }))
    };
    flux.apply(&HELM_RELEASE, "api", with("ready")).await;
    released(&flux, "api", 1).await;
    assert!(has_map(cluster, &flux, "api-hook").await, "the hook of the install ran");
    config_maps(cluster, &flux).delete("api-hook", &DeleteParams::default()).await.unwrap();
    flux.apply(&HELM_RELEASE, "api", with("pending")).await;
    let object = stalled(&flux, "api").await;
    assert_eq!(condition(&object, "Remediated").1, "RollbackSucceeded");
    assert!(!has_map(cluster, &flux, "api-hook").await, "the hook of the rollback did not run");
}

async fn nothing_is_waited_for_where_disabled(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let work = job("{{ .Release.Name }}-work", "none", "pending", "")
        .replace("    helm.sh/hook: none\n", "    note: none\n");
    let chart = chart_with_workload("1.0.0").file("templates/job.yaml", &work);
    publish(&flux, "app", &chart).await;
    let with = |options: Value, pod: &str| {
        spec(json!({ "timeout": "5s", "install": options, "upgrade": options, "values": { "pod": pod } }))
    };
    flux.apply(&HELM_RELEASE, "none", with(json!({ "disableWait": true }), "pending")).await;
    flux.apply(&HELM_RELEASE, "jobless", with(json!({ "disableWaitForJobs": true }), "ready")).await;
    flux.apply(&HELM_RELEASE, "all", with(json!({}), "ready")).await;
    released(&flux, "none", 1).await;
    released(&flux, "jobless", 1).await;
    let object = stalled(&flux, "all").await;
    let namespace = flux.namespace.name();
    assert!(
        ready(&object).2.contains(&format!("Job/{namespace}/all-work status: 'InProgress'")),
        "{}",
        ready(&object).2
    );
    // The same when they are upgraded.
    flux.apply(&HELM_RELEASE, "none", with(json!({ "disableWait": true }), "crash")).await;
    released(&flux, "none", 2).await;
    let jobs: Api<Job> = Api::namespaced(cluster.client(), namespace);
    assert!(jobs.get_opt("none-work").await.unwrap().is_some());
}

async fn an_action_has_its_own_timeout(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let with = |pod: &str| {
        spec(json!({ "timeout": "5m", "install": { "timeout": "1s" }, "values": { "pod": pod } }))
    };
    flux.apply(&HELM_RELEASE, "web", with("pending")).await;
    let object = stalled(&flux, "web").await;
    assert_eq!(ready(&object).1, "InstallFailed");
    let took = object["status"]["lastAttemptedReleaseActionDuration"].as_str().unwrap().to_owned();
    assert!(took.starts_with('1') || took.starts_with('2'), "{took}");
    // Without one of its own, an action has the release's.
    flux.apply(
        &HELM_RELEASE,
        "web",
        spec(json!({ "timeout": "5m", "upgrade": {}, "values": { "pod": "pending" } })),
    )
    .await;
    flux.until(&HELM_RELEASE, "web", "is upgraded with the release's timeout", |object| {
        condition(object, "Reconciling").2 == "Running 'upgrade' action with timeout of 5m0s"
    })
    .await;
}

async fn a_name_that_is_kept_is_used_again_only_with_replace(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "uninstall": { "keepHistory": true } }))).await;
    released(&flux, "web", 1).await;
    delete(cluster, &flux, "web").await;
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.web.v1 uninstalled"]);
    assert!(!has_map(cluster, &flux, "web").await);
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "InstallFailed").await;
    assert!(ready(&object).2.contains("cannot reuse a name that is still in use"), "{}", ready(&object).2);
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "install": { "replace": true } }))).await;
    flux.ready(&HELM_RELEASE, "web").await;
    assert!(has_map(cluster, &flux, "web").await);
    let all = records(cluster, &flux).await;
    assert_eq!(all.iter().filter(|record| record.ends_with(" deployed")).count(), 1, "{all:?}");
}

async fn definitions_follow_their_policy(cluster: &Cluster) {
    let flux = start(cluster).await;
    let group = format!("policy-{}.example.org", flux.namespace.name());
    let name = format!("widgets.{group}");
    let with =
        |version: &str, extra: &str| chart(version).file("crds/widgets.yaml", &definition(&group, extra));
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    publish(&flux, "app", &with("1.0.0", "")).await;
    let policies = |install: &str, upgrade: &str| {
        spec(json!({ "install": { "crds": install }, "upgrade": { "crds": upgrade } }))
    };
    // What is published next must not meet the policy that was there before.
    let choose = async |upgrade: &str| {
        flux.apply(&HELM_RELEASE, "web", policies("Skip", upgrade)).await;
        flux.until(&HELM_RELEASE, "web", "has taken the policy", |object| {
            object["status"]["observedGeneration"] == object["metadata"]["generation"]
                && ready(object).0 == "True"
        })
        .await;
    };
    flux.apply(&HELM_RELEASE, "web", policies("Skip", "Skip")).await;
    let object = released(&flux, "web", 1).await;
    assert!(definitions.get_opt(&name).await.unwrap().is_none(), "skipped");
    let listed = object["status"]["inventory"]["entries"].to_string();
    assert!(listed.contains("CustomResourceDefinition"), "listed all the same, as upstream: {listed}");
    choose("Create").await;
    publish(&flux, "app", &with("1.1.0", "")).await;
    released(&flux, "web", 2).await;
    assert!(definitions.get_opt(&name).await.unwrap().is_some(), "created");
    let has_colour = async || {
        let found = definitions.get(&name).await.unwrap();
        serde_json::to_string(&found).unwrap().contains("colour")
    };
    choose("Skip").await;
    publish(&flux, "app", &with("1.2.0", "              colour: {type: string}\n")).await;
    released(&flux, "web", 3).await;
    assert!(!has_colour().await, "skipped");
    choose("CreateReplace").await;
    publish(&flux, "app", &with("1.3.0", "              colour: {type: string}\n")).await;
    released(&flux, "web", 4).await;
    assert!(has_colour().await, "replaced");
    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
}

async fn a_failed_upgrade_cleans_up_where_asked(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let extra = format!(
        "{{{{- if .Values.extra }}}}\n{}{{{{- end }}}}\n",
        map("{{ .Release.Name }}-extra", "    note: new\n")
    );
    publish(&flux, "app", &chart_with_workload("1.0.0").file("templates/extra.yaml", &extra)).await;
    let with = |cleanup: bool, values: Value| {
        spec(json!({ "timeout": "5s", "upgrade": { "cleanupOnFail": cleanup }, "values": values }))
    };
    for (name, cleanup) in [("tidy", true), ("messy", false)] {
        flux.apply(&HELM_RELEASE, name, with(cleanup, json!({}))).await;
    }
    for (name, cleanup) in [("tidy", true), ("messy", false)] {
        released(&flux, name, 1).await;
        flux.apply(&HELM_RELEASE, name, with(cleanup, json!({ "pod": "pending", "extra": true }))).await;
    }
    for name in ["tidy", "messy"] {
        let object = stalled(&flux, name).await;
        assert_eq!(ready(&object).1, "UpgradeFailed");
    }
    assert!(!has_map(cluster, &flux, "tidy-extra").await, "what the failed upgrade made is gone");
    assert!(has_map(cluster, &flux, "messy-extra").await, "it stays unless asked");
}

async fn removal_propagates_as_asked(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), flux.namespace.name());
    for (name, how) in [("orphan", "orphan"), ("foreground", "foreground"), ("background", "background")] {
        let uninstall = json!({ "uninstall": { "deletionPropagation": how }, "values": { "pod": "ready" } });
        flux.apply(&HELM_RELEASE, name, spec(uninstall)).await;
    }
    for name in ["orphan", "foreground", "background"] {
        released(&flux, name, 1).await;
    }
    let of = async |name: &str| -> Vec<ReplicaSet> {
        let all = sets.list(&ListParams::default()).await.unwrap().items;
        let is_of = |set: &ReplicaSet| set.metadata.name.as_deref().unwrap_or_default().starts_with(name);
        all.into_iter().filter(is_of).collect()
    };
    assert_eq!(of("orphan-").await.len(), 1);
    delete(cluster, &flux, "foreground").await;
    assert!(of("foreground-").await.is_empty(), "what it owned went first");
    delete(cluster, &flux, "orphan").await;
    let left = of("orphan-").await;
    assert_eq!(left.len(), 1, "what it owned stays");
    delete(cluster, &flux, "background").await;
    cluster
        .eventually(&sets, "background's sets are gone", |all: &[&ReplicaSet]| {
            !all.iter().any(|set| set.metadata.name.as_deref().unwrap_or_default().starts_with("background-"))
        })
        .await
        .unwrap();
}

async fn tests_are_chosen_and_their_failures_ignored(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let tested = chart("1.0.0")
        .file("templates/good.yaml", &job("{{ .Release.Name }}-good", "test", "ready", ""))
        .file("templates/bad.yaml", &job("{{ .Release.Name }}-bad", "test", "fail", ""));
    publish(&flux, "app", &tested).await;
    let with = |test: Value| spec(json!({ "test": test }));
    let without = json!({ "enable": true, "filters": [{ "name": "without-bad", "exclude": true }] });
    let only = json!({ "enable": true, "filters": [{ "name": "only-good" }] });
    flux.apply(&HELM_RELEASE, "without", with(without)).await;
    flux.apply(&HELM_RELEASE, "only", with(only)).await;
    flux.apply(
        &HELM_RELEASE,
        "ignored",
        with(json!({ "enable": true, "ignoreFailures": true, "timeout": "20s" })),
    )
    .await;
    for name in ["without", "only"] {
        let object = released(&flux, name, 1).await;
        assert_eq!(ready(&object).1, "TestSucceeded");
        let hooks = object["status"]["history"][0]["testHooks"].as_object().unwrap().clone();
        assert_eq!(hooks.keys().collect::<Vec<_>>(), [&format!("{name}-good")]);
    }
    let object = flux
        .until(&HELM_RELEASE, "ignored", "tested", |object| {
            condition(object, "TestSuccess").1 == "TestFailed"
        })
        .await;
    let object = if ready(&object).0 == "True" { object } else { flux.ready(&HELM_RELEASE, "ignored").await };
    assert_eq!(ready(&object).1, "InstallSucceeded", "a failure that is ignored is told and no more");
    assert_eq!(object["status"]["history"][0]["testHooks"]["ignored-bad"]["phase"], "Failed");
}

async fn retry_on_failure_tries_again_after_its_interval(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let strategy = json!({ "strategy": { "name": "RetryOnFailure", "retryInterval": "1s" } });
    let with = |pod: &str| {
        spec(json!({ "timeout": "1s", "install": strategy, "upgrade": strategy, "values": { "pod": pod } }))
    };
    flux.apply(&HELM_RELEASE, "web", with("pending")).await;
    let object = flux
        .until(&HELM_RELEASE, "web", "waits for its next try", |object| {
            condition(object, "Reconciling").2 == "retrying after 1s"
        })
        .await;
    assert_eq!(condition(&object, "Reconciling").1, "ProgressingWithRetry");
    // Nobody asks: it is upgraded, not uninstalled.
    let object = flux
        .until(&HELM_RELEASE, "web", "was tried again", |object| {
            object["status"]["history"][0]["version"].as_i64() >= Some(3)
        })
        .await;
    assert_eq!(object["status"]["history"][0]["action"], "upgrade");
    assert_eq!(condition(&object, "Stalled").0, "", "it never stalls");
    flux.apply(&HELM_RELEASE, "web", with("ready")).await;
    let object = flux.ready(&HELM_RELEASE, "web").await;
    assert_eq!(object["status"].get("upgradeFailures"), None, "success forgets the failures");
}

async fn a_failed_release_is_uninstalled_where_asked(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let last = json!({ "remediation": { "retries": 0, "remediateLastFailure": true } });
    let failing = spec(json!({ "timeout": "1s", "install": last, "values": { "pod": "pending" } }));
    flux.apply(&HELM_RELEASE, "web", failing).await;
    let object = stalled(&flux, "web").await;
    assert_eq!(condition(&object, "Remediated").1, "UninstallSucceeded");
    assert!(records(cluster, &flux).await.is_empty());
    assert!(!has_map(cluster, &flux, "web").await);
    // A failed upgrade starts from nothing where that is the strategy.
    let by_uninstall = json!({ "remediation": { "retries": 1, "strategy": "uninstall" } });
    let with =
        |pod: &str| spec(json!({ "timeout": "5s", "upgrade": by_uninstall, "values": { "pod": pod } }));
    flux.apply(&HELM_RELEASE, "api", with("ready")).await;
    released(&flux, "api", 1).await;
    flux.apply(&HELM_RELEASE, "api", with("pending")).await;
    assert!(
        event(cluster, &flux, "UninstallSucceeded").await.contains("Helm uninstall remediation for release")
    );
    flux.until(&HELM_RELEASE, "api", "is installed anew", |object| {
        object["status"]["lastAttemptedReleaseAction"] == "install"
            && object["status"]["installFailures"] == 1
    })
    .await;
}

async fn another_chart_name_upgrades_in_place_where_asked(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let in_place = spec(json!({ "upgrade": { "chartNameChangeStrategy": "InPlaceUpdate" } }));
    flux.apply(&HELM_RELEASE, "web", in_place).await;
    released(&flux, "web", 1).await;
    let other = Chart::new("other", "2.0.0")
        .file("templates/map.yaml", &map("{{ .Release.Name }}", "    note: other\n"));
    publish(&flux, "app", &other).await;
    let object = released(&flux, "web", 2).await;
    assert_eq!(object["status"]["history"][0]["chartName"], "other");
    assert_eq!(object["status"]["history"][0]["action"], "upgrade");
}

async fn old_records_are_dropped(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    for number in 1..=4 {
        let values =
            json!({ "maxHistory": 2, "persistentClient": false, "values": { "value": number.to_string() } });
        flux.apply(&HELM_RELEASE, "web", spec(values)).await;
        released(&flux, "web", number).await;
    }
    assert_eq!(
        records(cluster, &flux).await,
        ["sh.helm.release.v1.web.v3 superseded", "sh.helm.release.v1.web.v4 deployed"]
    );
}

async fn a_stalled_release_is_tried_again_on_request(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    publish(&flux, "app", &chart_with_workload("1.0.0")).await;
    let failing = spec(json!({ "timeout": "1s", "values": { "pod": "pending" } }));
    flux.apply(&HELM_RELEASE, "web", failing).await;
    stalled(&flux, "web").await;
    let request = |token: &str, kind: &str| {
        let kind = format!("reconcile.fluxcd.io/{kind}");
        json!({ "reconcile.fluxcd.io/requestedAt": token, kind: token })
    };
    annotate(&flux, "web", request("one", "forceAt")).await;
    let object = handled(&flux, "web", "one").await;
    assert_eq!(object["status"]["history"][0]["version"], 2, "one more try");
    annotate(&flux, "web", request("two", "resetAt")).await;
    let object = handled(&flux, "web", "two").await;
    assert_eq!(object["status"]["history"][0]["version"], 3, "failures are forgotten, so it is tried");
    assert_eq!(object["status"]["upgradeFailures"], 1);
    flux.reconcile_as(&HELM_RELEASE, "web", "three").await;
    let object = handled(&flux, "web", "three").await;
    assert_eq!(object["status"]["history"][0]["version"], 3, "asking alone is not enough");
}

async fn a_release_goes_to_another_namespace(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let nowhere = format!("{}-nowhere", flux.namespace.name());
    flux.apply(&HELM_RELEASE, "lost", spec(json!({ "targetNamespace": nowhere }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "lost", "InstallFailed").await;
    assert!(
        ready(&object).2.contains(&format!("namespaces \"{nowhere}\" not found")),
        "{}",
        ready(&object).2
    );
    let target = format!("{}-made", flux.namespace.name());
    let making = json!({ "targetNamespace": target, "install": { "createNamespace": true } });
    flux.apply(&HELM_RELEASE, "web", spec(making)).await;
    let object = released(&flux, "web", 1).await;
    assert_eq!(object["status"]["history"][0]["namespace"], target.as_str());
    assert_eq!(object["status"]["storageNamespace"], flux.namespace.name(), "records stay with the object");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &target);
    assert!(
        maps.get_opt(&format!("{target}-web")).await.unwrap().is_some(),
        "named after namespace and object"
    );
    delete(cluster, &flux, "web").await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    assert!(namespaces.get_opt(&target).await.unwrap().is_some(), "what the release did not render stays");
    namespaces.delete(&target, &DeleteParams::default()).await.unwrap();
}

async fn objects_of_others_are_not_taken_where_forbidden(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let namespace = flux.namespace.name().to_owned();
    cluster.apply_yaml(&namespace, &map("web", "    note: mine\n")).await.unwrap();
    let with = |forbidden: bool| spec(json!({ "install": { "disableTakeOwnership": forbidden } }));
    flux.apply(&HELM_RELEASE, "web", with(true)).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "InstallFailed").await;
    assert!(ready(&object).2.contains("invalid ownership metadata"), "{}", ready(&object).2);
    flux.apply(&HELM_RELEASE, "web", with(false)).await;
    released(&flux, "web", 1).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "default");
}

async fn values_and_objects_are_checked_unless_told_otherwise(cluster: &Cluster) {
    let flux = start(cluster).await;
    let schema = "{\"properties\": {\"value\": {\"type\": \"string\", \"maxLength\": 5}}}";
    let unknown =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-odd\nfieldNobodyKnows: 1\n";
    publish(
        &flux,
        "app",
        &chart("1.0.0").file("values.schema.json", schema).file("templates/odd.yaml", unknown),
    )
    .await;
    let with = |skip: Value, value: &str| {
        spec(json!({ "install": skip, "upgrade": skip, "values": { "value": value } }))
    };
    flux.apply(&HELM_RELEASE, "web", with(json!({}), "too long")).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "InstallFailed").await;
    assert!(
        ready(&object).2.contains("values don't meet the specifications of the schema"),
        "{}",
        ready(&object).2
    );
    flux.apply(&HELM_RELEASE, "web", with(json!({ "disableSchemaValidation": true }), "too long")).await;
    let object = flux
        .until(&HELM_RELEASE, "web", "failed at the unknown field", |object| {
            ready(object).2.contains("fieldNobodyKnows")
        })
        .await;
    assert_eq!(ready(&object).1, "InstallFailed");
    publish(&flux, "app", &chart("1.0.1").file("values.schema.json", schema)).await;
    flux.ready(&HELM_RELEASE, "web").await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "too long");
}

async fn force_replaces_and_preserved_values_stay(cluster: &Cluster) {
    let flux = start(cluster).await;
    publish(&flux, "app", &chart("1.0.0")).await;
    let with = |force: bool, value: &str| {
        spec(
            json!({ "install": { "serverSideApply": false }, "upgrade": { "force": force }, "values": { "value": value } }),
        )
    };
    let by_hand = async |name: &str| {
        let parameters = PatchParams::apply("hand");
        let patch = json!({ "metadata": { "labels": { "by": "hand" } } });
        config_maps(cluster, &flux).patch(name, &parameters, &Patch::Merge(patch)).await.unwrap();
    };
    for (name, force) in [("replaced", true), ("patched", false)] {
        flux.apply(&HELM_RELEASE, name, with(force, "one")).await;
        released(&flux, name, 1).await;
        by_hand(name).await;
        flux.apply(&HELM_RELEASE, name, with(force, "two")).await;
        released(&flux, name, 2).await;
        let labels = config_maps(cluster, &flux).get(name).await.unwrap().metadata.labels.unwrap();
        assert_eq!(labels.contains_key("by"), !force, "{name}: {labels:?}");
    }
    // Applied from the server side, nothing is replaced.
    let applied = |value: &str| spec(json!({ "upgrade": { "force": true }, "values": { "value": value } }));
    flux.apply(&HELM_RELEASE, "applied", applied("one")).await;
    released(&flux, "applied", 1).await;
    by_hand("applied").await;
    flux.apply(&HELM_RELEASE, "applied", applied("two")).await;
    released(&flux, "applied", 2).await;
    let labels = config_maps(cluster, &flux).get("applied").await.unwrap().metadata.labels.unwrap();
    assert!(labels.contains_key("by"), "{labels:?}");
    // What the spec no longer says is forgotten, unless it is to be kept.
    flux.apply(&HELM_RELEASE, "fresh", spec(json!({ "values": { "value": "first" } }))).await;
    released(&flux, "fresh", 1).await;
    flux.apply(&HELM_RELEASE, "fresh", spec(json!({ "values": { "other": "second" } }))).await;
    released(&flux, "fresh", 2).await;
    assert_eq!(value_of(cluster, &flux, "fresh", "value").await, "default");
    let keep = |values: Value| spec(json!({ "upgrade": { "preserveValues": true }, "values": values }));
    flux.apply(&HELM_RELEASE, "kept", keep(json!({ "value": "first" }))).await;
    released(&flux, "kept", 1).await;
    flux.apply(&HELM_RELEASE, "kept", keep(json!({ "other": "second" }))).await;
    released(&flux, "kept", 2).await;
    assert_eq!(value_of(cluster, &flux, "kept", "value").await, "first");
}

/// Rolled back from an upgrade that was refused.
async fn a_rollback_has_options_of_its_own(cluster: &Cluster) {
    let flux = start(cluster).await;
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let refused = "{{- if .Values.refused }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-refused\ndata:\n  \"no such key!\": x\n{{- end }}\n";
    let secret = "{{- if .Values.secret }}\napiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-secret\n{{- end }}\n";
    let chart = chart_with_workload("1.0.0")
        .file("templates/refused.yaml", refused)
        .file("templates/secret.yaml", secret);
    publish(&flux, "app", &chart).await;
    let with = |rollback: &Value, values: Value| {
        spec(json!({ "timeout": "5s", "install": { "disableWait": true, "serverSideApply": false },
            "rollback": rollback, "values": values,
            "upgrade": { "remediation": { "retries": 0, "remediateLastFailure": true } } }))
    };
    let install = async |name: &str, rollback: &Value, values: Value| {
        flux.apply(&HELM_RELEASE, name, with(rollback, values)).await;
        released(&flux, name, 1).await;
    };
    let roll_back = async |name: &str, rollback: &Value| {
        flux.apply(&HELM_RELEASE, name, with(rollback, json!({ "refused": true }))).await;
        let object = stalled(&flux, name).await;
        condition(&object, "Remediated").1.to_owned()
    };
    // What it goes back to is not ready, and was not when it was installed.
    for (name, rollback, end) in [
        ("hasty", json!({ "disableWait": true }), "RollbackSucceeded"),
        ("patient", json!({ "timeout": "1s" }), "RollbackFailed"),
    ] {
        install(name, &rollback, json!({ "pod": "pending" })).await;
        assert_eq!(roll_back(name, &rollback).await, end, "{name}");
    }
    // Replaced, an object loses what others have added to it.
    for (name, force) in [("replaced", true), ("patched", false)] {
        let rollback = json!({ "force": force });
        install(name, &rollback, json!({})).await;
        let label = json!({ "metadata": { "labels": { "by": "hand" } } });
        config_maps(cluster, &flux)
            .patch(name, &PatchParams::apply("hand"), &Patch::Merge(label))
            .await
            .unwrap();
        assert_eq!(roll_back(name, &rollback).await, "RollbackSucceeded", "{name}");
        let labels = config_maps(cluster, &flux).get(name).await.unwrap().metadata.labels.unwrap();
        assert_eq!(labels.contains_key("by"), !force, "{name}: {labels:?}");
    }
    // It brings the Secret back and is refused at the ConfigMap, which cannot be changed any more.
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    for (name, cleanup) in [("tidy", true), ("messy", false)] {
        let rollback = json!({ "cleanupOnFail": cleanup });
        install(name, &rollback, json!({ "secret": true })).await;
        secrets.delete(&format!("{name}-secret"), &DeleteParams::default()).await.unwrap();
        let frozen = json!({ "immutable": true, "data": { "value": "by hand" } });
        config_maps(cluster, &flux)
            .patch(name, &PatchParams::apply("hand"), &Patch::Merge(frozen))
            .await
            .unwrap();
        assert_eq!(roll_back(name, &rollback).await, "RollbackFailed", "{name}");
        let is_there = secrets.get_opt(&format!("{name}-secret")).await.unwrap().is_some();
        assert_eq!(is_there, !cleanup, "{name}");
    }
}

async fn hooks_are_post_rendered_by_strategy(cluster: &Cluster) {
    let flux = start(cluster).await;
    let hook = map("{{ .Release.Name }}-hook", "    helm.sh/hook: pre-install\n");
    publish(&flux, "app", &chart("1.0.0").file("templates/hook.yaml", &hook)).await;
    let patch = "[{\"op\": \"add\", \"path\": \"/data\", \"value\": {\"patched\": \"yes\"}}]";
    let renderers =
        json!([{ "kustomize": { "patches": [{ "target": { "kind": "ConfigMap" }, "patch": patch }] } }]);
    for (name, hooks_too) in [("combined", true), ("separate", true), ("nohooks", false)] {
        let with = json!({ "postRenderStrategy": name, "postRenderers": renderers, "commonMetadata": { "annotations": { "team": "a" } } });
        flux.apply(&HELM_RELEASE, name, spec(with)).await;
        released(&flux, name, 1).await;
        assert_eq!(value_of(cluster, &flux, name, "patched").await, "yes");
        let hook = config_maps(cluster, &flux).get(&format!("{name}-hook")).await.unwrap();
        assert_eq!(hook.data.is_some(), hooks_too, "{name}");
        assert_eq!(hook.metadata.annotations.unwrap().contains_key("team"), hooks_too, "{name}");
    }
}

async fn custom_resources_are_waited_for_by_strategy_and_expression(cluster: &Cluster) {
    let flux = start(cluster).await;
    let group = format!("waits-{}.example.org", flux.namespace.name());
    let crd = definition(&group, "").replace(
        "          spec:\n",
        "          status: {type: object, x-kubernetes-preserve-unknown-fields: true}\n          spec:\n",
    );
    cluster.apply_crds(&crd).await.unwrap();
    let widget = format!(
        "apiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: {{{{ .Release.Name }}}}\nspec:\n  size: 1\nstatus:\n  conditions: [{{type: Ready, status: 'False', reason: NotYet, message: not yet}}]\n"
    );
    publish(&flux, "app", &chart("1.0.0").file("templates/widget.yaml", &widget)).await;
    let with = |extra: Value| {
        let mut spec = spec(json!({ "timeout": "3s" }));
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec
    };
    let expressions = json!([{ "apiVersion": format!("{group}/v1"), "kind": "Widget", "current": "has(spec.size) && spec.size == 1" }]);
    flux.apply(&HELM_RELEASE, "poller", with(json!({ "waitStrategy": { "name": "poller" } }))).await;
    flux.apply(&HELM_RELEASE, "legacy", with(json!({ "waitStrategy": { "name": "legacy" } }))).await;
    flux.apply(&HELM_RELEASE, "expression", with(json!({ "healthCheckExprs": expressions }))).await;
    let object = stalled(&flux, "poller").await;
    let namespace = flux.namespace.name();
    assert!(
        ready(&object).2.contains(&format!("Widget/{namespace}/poller status: 'InProgress'")),
        "{}",
        ready(&object).2
    );
    assert!(ready(&object).2.contains("not yet"), "what the object says of itself: {}", ready(&object).2);
    released(&flux, "legacy", 1).await;
    released(&flux, "expression", 1).await;
    let failing = json!([{ "apiVersion": format!("{group}/v1"), "kind": "Widget", "current": "false", "failed": "spec.size == 1" }]);
    flux.apply(&HELM_RELEASE, "failing", with(json!({ "timeout": "5m", "healthCheckExprs": failing }))).await;
    let object = stalled(&flux, "failing").await;
    assert!(ready(&object).2.contains("failed early due to stalled resources"), "{}", ready(&object).2);
    let broken = json!([{ "apiVersion": format!("{group}/v1"), "kind": "Widget", "current": "spec." }]);
    flux.apply(&HELM_RELEASE, "broken", with(json!({ "healthCheckExprs": broken }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "broken", "InvalidCELExpression").await;
    assert_eq!(condition(&object, "Stalled").0, "True");
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    definitions.delete(&format!("widgets.{group}"), &DeleteParams::default()).await.unwrap();
}

async fn a_release_goes_to_another_cluster(cluster: &Cluster) {
    let flux = Flux::start_with(cluster, &[Controller::Helm], |options| {
        options.helm.identity.default_kubeconfig_service_account = Some("default".to_owned());
    })
    .await;
    let namespace = flux.namespace.name().to_owned();
    publish(&flux, "app", &chart("1.0.0")).await;
    let file = std::fs::read_to_string(cluster.kubeconfig_path()).unwrap();
    let file: Value = serde_saphyr::from_str(&file).unwrap();
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "remote" },
        "stringData": { "value": file.to_string(), "exec": "users: [{name: u, user: {exec: {command: sh}}}]" } });
    cluster.apply_yaml(&namespace, &secret.to_string()).await.unwrap();
    let remote = |reference: Value| spec(json!({ "kubeConfig": reference }));
    flux.apply(&HELM_RELEASE, "web", remote(json!({ "secretRef": { "name": "remote" } }))).await;
    released(&flux, "web", 1).await;
    assert!(has_map(cluster, &flux, "web").await);
    flux.apply(&HELM_RELEASE, "exec", remote(json!({ "secretRef": { "name": "remote", "key": "exec" } })))
        .await;
    let object = flux.not_ready(&HELM_RELEASE, "exec", "RESTClientError").await;
    assert!(ready(&object).2.contains("runs a program (exec)"), "{}", ready(&object).2);
    // Where the kubeconfig is gone, nobody knows any more where the release is: the object can go.
    flux.apply(&HELM_RELEASE, "gone", remote(json!({ "secretRef": { "name": "nothing" } }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "gone", "RESTClientError").await;
    assert!(ready(&object).2.contains("secrets \"nothing\" not found"), "{}", ready(&object).2);
    delete(cluster, &flux, "gone").await;
    // A cluster that is logged in to with a token of an account here: this one knows the account, which may do nothing.
    let cluster_of = &file["clusters"][0]["cluster"];
    let authority = base64::engine::general_purpose::STANDARD
        .decode(cluster_of["certificate-authority-data"].as_str().unwrap())
        .unwrap();
    let login = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "login" }, "data": {
        "provider": "generic", "address": cluster_of["server"], "ca.crt": String::from_utf8(authority).unwrap(),
        "audiences": "https://kubernetes.default.svc" } });
    cluster.apply_yaml(&namespace, &login.to_string()).await.unwrap();
    flux.apply(&HELM_RELEASE, "token", remote(json!({ "configMapRef": { "name": "login" } }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "token", "StateError").await;
    let account = format!("system:serviceaccount:{namespace}:default");
    assert!(
        ready(&object).2.contains(&account) && ready(&object).2.contains("forbidden"),
        "{}",
        ready(&object).2
    );
    let cloud = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cloud" }, "data": { "provider": "moon" } });
    cluster.apply_yaml(&namespace, &cloud.to_string()).await.unwrap();
    flux.apply(&HELM_RELEASE, "cloud", remote(json!({ "configMapRef": { "name": "cloud" } }))).await;
    let object = flux.not_ready(&HELM_RELEASE, "cloud", "RESTClientError").await;
    assert!(ready(&object).2.contains("provider 'moon' is unknown"), "{}", ready(&object).2);
}
