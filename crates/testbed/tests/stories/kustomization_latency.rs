//! Kustomization: however many never get healthy, the others are as quick as without them. Here with two hundred, which any
//! machine can bear; with `--peers` with a thousand.

use std::time::{Duration, Instant};

use flux_api::kinds::KUSTOMIZATION;
use futures::future::join_all;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::{Flux, condition};
use crate::kustomization::{BOTH, config_map, spec};

const WELL: usize = 10;
/// For what chance does to ten runs on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_that_never_get_healthy_leave_the_others_as_quick() {
    latency_beside(&Cluster::embedded().await.unwrap(), 200).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: takes minutes"]
async fn a_thousand_that_never_get_healthy_leave_the_others_as_quick() {
    latency_beside(&Cluster::real().await.unwrap(), 1000).await;
}

async fn latency_beside(cluster: &Cluster, sick: usize) {
    let flux = Flux::start(cluster, BOTH).await;
    let mut files: Vec<(String, String)> = (0..sick)
        .map(|number| (format!("sick{number}/a.yaml"), config_map(&format!("sick{number}"), "x")))
        .collect();
    for round in ["alone", "beside"] {
        files.extend(
            (0..WELL).map(|number| {
                (format!("{round}{number}/a.yaml"), config_map(&format!("{round}{number}"), "x"))
            }),
        );
    }
    let borrowed: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    flux.fleet.commit("first", &borrowed).unwrap();
    flux.git_repository("fleet").await;
    flux.ready(&flux_api::kinds::GIT_REPOSITORY, "fleet").await;

    // The first run of all pays for the artifact and for what the API server has to learn.
    flux.apply(&KUSTOMIZATION, "warm", spec(&flux, "alone0", json!({ "prune": false }))).await;
    flux.ready(&KUSTOMIZATION, "warm").await;
    let alone = median_latency(&flux, "alone").await;
    let never = json!({ "wait": true, "timeout": "1h", "healthCheckExprs": [
        { "apiVersion": "v1", "kind": "ConfigMap", "current": "false" }] });
    for number in 0..sick {
        let name = format!("sick{number}");
        flux.apply(&KUSTOMIZATION, &name, spec(&flux, &name, never.clone())).await;
    }
    let waits = |object: &&&DynamicObject| {
        let object: Value = serde_json::to_value(object).unwrap_or_default();
        condition(&object, "Healthy").0 == "Unknown"
    };
    let all = |objects: &[&DynamicObject]| objects.iter().filter(waits).count() == sick;
    let limit = Duration::from_secs(600);
    testbed::wait::until_all(&flux.api(&KUSTOMIZATION), limit, "all wait for health", all).await.unwrap();
    let beside = median_latency(&flux, "beside").await;
    println!("ready after {alone:?} alone and after {beside:?} beside {sick} that never get healthy");
    assert!(beside < alone * 2 + SLACK, "{alone:?} alone, {beside:?} beside {sick} that never get healthy");
}

/// From the write of the object until it is ready, of ten at once.
async fn median_latency(flux: &Flux, round: &str) -> Duration {
    let one = |number: usize| async move {
        let name = format!("{round}{number}");
        let started = Instant::now();
        flux.apply(&KUSTOMIZATION, &name, spec(flux, &name, json!({ "wait": true }))).await;
        flux.ready(&KUSTOMIZATION, &name).await;
        started.elapsed()
    };
    let mut all = join_all((0..WELL).map(one)).await;
    all.sort();
    all[WELL / 2]
}
