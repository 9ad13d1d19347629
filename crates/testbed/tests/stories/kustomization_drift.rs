//! Kustomization: what others do to applied objects is noticed at once, and whoever never gets healthy costs nobody a turn.

use std::time::{Duration, Instant};

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::Change;

use crate::flux::{Flux, condition, ready};
use crate::kustomization::{BOTH, applied, config_map, config_maps, push, spec, start, value};

crate::stories!(
    a_change_by_hand_a_deletion_and_a_lost_label_are_put_back_at_once,
    what_nobody_touched_is_not_even_tried,
    two_owners_are_named_on_both,
    whoever_never_gets_healthy_delays_nobody,
    a_wait_for_health_ends_when_the_object_is_healthy,
);

async fn patch(maps: &Api<ConfigMap>, manager: &str, change: serde_json::Value) {
    let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..Default::default() };
    maps.patch("a", &parameters, &Patch::Merge(change)).await.unwrap();
}

/// The interval is an hour, so only the watch can have told.
async fn a_change_by_hand_a_deletion_and_a_lost_label_are_put_back_at_once(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "git"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let maps = config_maps(cluster, &flux);
    patch(&maps, "somebody", json!({ "data": { "key": "s3cret" } })).await;
    cluster.await_condition(&maps, "a", "is as in Git", |map| value(map) == "git").await.unwrap();
    let told = flux.told("apps", "drifted: /data/key set by somebody (Update) at 20").await;
    assert_eq!(told.reason.as_deref(), Some("DriftCorrected"));
    assert!(!told.message.unwrap().contains("s3cret"));

    // What kubectl adds is not in Git, and goes, too; what a controller keeps there stays.
    patch(&maps, "a-controller", json!({ "metadata": { "annotations": { "theirs": "1" } } })).await;
    patch(&maps, "kubectl-edit", json!({ "data": { "more": "1" } })).await;
    let is_clean = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| !data.contains_key("more"));
    cluster.await_condition(&maps, "a", "has nothing more than Git", is_clean).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap().metadata.annotations.unwrap()["theirs"], "1");

    maps.delete("a", &DeleteParams::default()).await.unwrap();
    cluster.await_condition(&maps, "a", "is there again", |map| value(map) == "git").await.unwrap();
    flux.told("apps", "/a was gone and is there again").await;

    let unlabelled = json!({ "metadata": { "labels": { "kustomize.toolkit.fluxcd.io/name": null } } });
    patch(&maps, "somebody", unlabelled).await;
    let has_label = |map: &ConfigMap| {
        map.metadata.labels.as_ref().is_some_and(|labels| {
            labels.get("kustomize.toolkit.fluxcd.io/name").is_some_and(|name| name == "apps")
        })
    };
    cluster.await_condition(&maps, "a", "has its label", has_label).await.unwrap();
}

async fn what_nobody_touched_is_not_even_tried(cluster: &Cluster) {
    let flux =
        start(cluster, &[("apps/a.yaml", &config_map("a", "one")), ("apps/b.yaml", &config_map("b", "one"))])
            .await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let tries = testbed::trouble::Breaker::recorder(|path| path.contains("/configmaps/"));
    let mut flux = flux;
    flux.stop().await;
    flux.through(tries.client(&cluster.client()));
    flux.resume().await;
    flux.through(cluster.client());
    // After a restart nothing is known, so everything is tried; and again until the watch has seen it.
    let limit = Instant::now() + Duration::from_secs(60);
    let mut round = 0;
    loop {
        let before = tries.dry_runs();
        round += 1;
        let commit = push(&flux, &[("apps/a.yaml", &config_map("a", &format!("v{round}")))]).await;
        applied(&flux, "apps", &commit).await;
        if round > 1 && tries.dry_runs() - before == 1 {
            break;
        }
        assert!(round > 1 || tries.dry_runs() >= 2, "a restart forgets");
        assert!(Instant::now() < limit, "what nobody touched is still tried after {round} rounds");
    }
    assert_eq!(value(&config_maps(cluster, &flux).get("a").await.unwrap()), format!("v{round}"));
    // On request everything is tried. What is known and still the same need not be read for it, once the watch has
    // seen the last write.
    for request in 1.. {
        let (dry_runs, reads) = (tries.dry_runs(), tries.reads());
        let token = format!("request-{request}");
        flux.reconcile_as(&KUSTOMIZATION, "apps", &token).await;
        flux.until(&KUSTOMIZATION, "apps", "handled the request", |object| {
            object["status"]["lastHandledReconcileAt"] == token.as_str()
        })
        .await;
        assert_eq!(tries.dry_runs() - dry_runs, 2, "a request looks at everything");
        if tries.reads() == reads {
            break;
        }
        assert!(Instant::now() < limit, "what is known is still read at request {request}");
    }
    assert!(tries.writes().iter().all(|write| write.ends_with("/a")), "{:?}", tries.writes());
}

async fn two_owners_are_named_on_both(cluster: &Cluster) {
    let flux =
        start(cluster, &[("one/a.yaml", &config_map("a", "one")), ("two/a.yaml", &config_map("a", "two"))])
            .await;
    flux.apply(&KUSTOMIZATION, "one", spec(&flux, "one", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "one").await;
    flux.apply(&KUSTOMIZATION, "two", spec(&flux, "two", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "two").await;
    // The first looks again, as it does at its interval.
    flux.reconcile(&KUSTOMIZATION, "one").await;
    let namespace = flux.namespace.name();
    for (name, other) in [("one", "two"), ("two", "one")] {
        let text = format!("ConfigMap/{namespace}/a is applied by Kustomization {namespace}/{other}, too");
        let object = flux
            .until(&KUSTOMIZATION, name, "names the other", |object| {
                condition(object, "OwnerConflict").2.contains(&text)
            })
            .await;
        assert_eq!(crate::flux::ready(&object).0, "True", "it is told, and nothing fails");
        flux.told(name, &text).await;
    }
    // When one of them gives the object up, the other hears of it.
    let changes = [Change::Remove("two/a.yaml"), Change::Write("two/b.yaml", &config_map("b", "x"))];
    let commit = flux.fleet.commit_to("main", "settle", &changes).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    applied(&flux, "two", &commit).await;
    for name in ["one", "two"] {
        flux.until(&KUSTOMIZATION, name, "is the only owner", |object| {
            condition(object, "OwnerConflict").0.is_empty()
        })
        .await;
    }
    let maps = config_maps(cluster, &flux);
    cluster.await_condition(&maps, "a", "is the one's", |map| value(map) == "one").await.unwrap();
}

/// With two turns for all, and many more that wait for ever.
async fn whoever_never_gets_healthy_delays_nobody(cluster: &Cluster) {
    const SICK: usize = 25;
    let flux = Flux::start_with(cluster, BOTH, |options| options.concurrent = Some(2)).await;
    let never = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NAME}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: a}}\n  \
                 template:\n    metadata: {labels: {app: a}}\n    spec: {containers: [{name: c, image: i}]}\n";
    let mut files: Vec<(String, String)> = (0..SICK)
        .map(|number| (format!("sick{number}/d.yaml"), never.replace("NAME", &format!("sick{number}"))))
        .collect();
    files.push(("well/a.yaml".to_owned(), config_map("well", "x")));
    let borrowed: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    flux.fleet.commit("first", &borrowed).unwrap();
    flux.git_repository("fleet").await;
    let sick = json!({ "wait": true, "timeout": "10m", "healthCheckExprs": [{
        "apiVersion": "apps/v1", "kind": "Deployment", "current": "false",
    }]});
    for number in 0..SICK {
        flux.apply(
            &KUSTOMIZATION,
            &format!("sick{number}"),
            spec(&flux, &format!("sick{number}"), sick.clone()),
        )
        .await;
    }
    for number in 0..SICK {
        flux.until(&KUSTOMIZATION, &format!("sick{number}"), "waits for health", |object| {
            condition(object, "Healthy").0 == "Unknown"
        })
        .await;
    }
    let started = Instant::now();
    flux.apply(&KUSTOMIZATION, "well", spec(&flux, "well", json!({ "wait": true }))).await;
    flux.ready(&KUSTOMIZATION, "well").await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "with {SICK} that never get healthy it took {took:?}");
}

async fn a_wait_for_health_ends_when_the_object_is_healthy(cluster: &Cluster) {
    let flux =
        start(cluster, &[("apps/a.yaml", &config_map("a", "one")), ("more/b.yaml", &config_map("b", "one"))])
            .await;
    // On an idle machine it is a few milliseconds, and a poll would always be half a minute later; a busy machine may
    // hold one of three up.
    let mut all = Vec::new();
    while all.len() < 3 && !all.iter().any(|took| *took < Duration::from_secs(1)) {
        all.push(from_ready_to_dependent(cluster, &flux, all.len()).await);
    }
    println!("dependents started so long after their dependency was ready: {all:?}");
    assert!(all.iter().any(|took| *took < Duration::from_secs(1)), "dependents start after {all:?}");
}

/// How long after its dependency is ready a Kustomization starts.
async fn from_ready_to_dependent(cluster: &Cluster, flux: &Flux, round: usize) -> Duration {
    let (first, second, done) = (format!("apps{round}"), format!("more{round}"), format!("done{round}"));
    let current = format!("has(metadata.annotations) && '{done}' in metadata.annotations");
    let checks = json!({ "wait": true, "timeout": "5m", "healthCheckExprs": [{
        "apiVersion": "v1", "kind": "ConfigMap", "current": current,
    }]});
    flux.apply(&KUSTOMIZATION, &first, spec(flux, "apps", checks)).await;
    flux.apply(&KUSTOMIZATION, &second, spec(flux, "more", json!({ "dependsOn": [{ "name": first }] })))
        .await;
    flux.until(&KUSTOMIZATION, &first, "waits for health", |object| {
        condition(object, "Healthy").0 == "Unknown"
    })
    .await;
    flux.not_ready(&KUSTOMIZATION, &second, "DependencyNotReady").await;
    let annotated = json!({ "metadata": { "annotations": { done: "yes" } } });
    patch(&config_maps(cluster, flux), "a-controller", annotated).await;
    let dependency = async {
        flux.ready(&KUSTOMIZATION, &first).await;
        Instant::now()
    };
    let dependent = async {
        let has_started = |object: &Value| ready(object).1 != "DependencyNotReady";
        flux.until(&KUSTOMIZATION, &second, "has started", has_started).await;
        Instant::now()
    };
    let (is_ready, has_started) = tokio::join!(dependency, dependent);
    flux.ready(&KUSTOMIZATION, &second).await;
    has_started.saturating_duration_since(is_ready)
}
