//! `flux serve` as a process: what Kubernetes, Prometheus, `flux logs` and a second replica see of it, and that no
//! credential is ever among it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "serve/canaries.rs"]
mod canaries;
#[path = "serve/process.rs"]
mod process;

use std::time::Duration;

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::webhook_sink::WebhookSink;

use process::{Fleet, Process};

const TWO_KINDS: &str = "--controllers=source,kustomize";

#[tokio::test(flavor = "multi_thread")]
async fn probes_metrics_logs_and_a_graceful_end() {
    let cluster = Cluster::real().await.unwrap();
    let fleet = Fleet::new(&cluster).await;
    let mut process = Process::start(&fleet, &[TWO_KINDS, "--log-level=debug"]);
    process.answers("/readyz", 200).await;
    process.answers("/healthz", 200).await;
    fleet.git_repository("fleet").await;
    fleet.kustomization("apps", json!({})).await;
    fleet.git_repository_at("broken", "nowhere").await;
    fleet.ready(&KUSTOMIZATION, "apps").await;
    fleet.until(&GIT_REPOSITORY, "broken", "False").await;

    let page = process.metrics().await;
    let of = |kind: &str, name: &str| {
        format!("kind=\"{kind}\",name=\"{name}\",namespace=\"{}\"", fleet.namespace.name())
    };
    for wanted in [
        format!("gotk_reconcile_duration_seconds_count{{{}}}", of("GitRepository", "fleet")),
        format!("gotk_reconcile_duration_seconds_count{{{}}}", of("Kustomization", "apps")),
        format!("gotk_reconcile_error_total{{{}}}", of("GitRepository", "broken")),
        "controller_runtime_reconcile_total{controller=\"kustomization\"".to_owned(),
        "workqueue_depth{".to_owned(),
        "rest_client_requests_total{".to_owned(),
        "gotk_token_cached_items".to_owned(),
    ] {
        assert!(page.contains(&wanted), "{wanted} is missing in\n{page}");
    }

    let status = process.terminate();
    assert_eq!(status.code(), Some(0), "{}", process.log());
    let lines: Vec<Value> = process.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines
            .iter()
            .all(|line| line["level"].is_string() && line["ts"].is_string() && line["msg"].is_string())
    );
    let stored =
        lines.iter().find(|line| line["msg"].as_str().unwrap().starts_with("stored artifact")).unwrap();
    for (key, wanted) in [
        ("controller", json!("gitrepository")),
        ("controllerGroup", json!("source.toolkit.fluxcd.io")),
        ("controllerKind", json!("GitRepository")),
        ("GitRepository", json!({ "name": "fleet", "namespace": fleet.namespace.name() })),
        ("name", json!("fleet")),
        ("namespace", json!(fleet.namespace.name())),
    ] {
        assert_eq!(stored[key], wanted, "{key} of {stored}");
    }
    assert!(stored["reconcileID"].is_string());
    let failed = lines.iter().find(|line| line["level"] == "error" && line["name"] == "broken").unwrap();
    assert!(failed["error"].as_str().is_some_and(|error| !error.is_empty()), "{failed}");
    assert_eq!(lines.last().unwrap()["msg"], "stopping");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_the_other_takes_over_when_the_leader_is_killed() {
    let cluster = Cluster::real().await.unwrap();
    let fleet = Fleet::new(&cluster).await;
    let elected = [
        TWO_KINDS,
        "--enable-leader-election",
        "--leader-election-lease-duration=4s",
        "--leader-election-renew-deadline=3s",
        "--leader-election-retry-period=500ms",
    ];
    let mut leader = Process::start(&fleet, &elected);
    leader.answers("/readyz", 200).await;
    let mut standby = Process::start(&fleet, &elected);
    standby.answers("/readyz", 503).await;
    fleet.git_repository("fleet").await;
    fleet.ready(&GIT_REPOSITORY, "fleet").await;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), fleet.namespace.name());
    let holder = async |name: &str| leases.get(name).await.unwrap().spec.unwrap().holder_identity.unwrap();
    let first = holder("source-controller-leader-election").await;
    assert_eq!(first, holder("kustomize-controller-leader-election").await);

    leader.kill();
    standby.answers("/readyz", 200).await;
    assert_ne!(holder("source-controller-leader-election").await, first);
    // The new leader has a storage of its own: everything is fetched again and served from there.
    fleet.kustomization("apps", json!({})).await;
    fleet.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(standby.terminate().code(), Some(0), "{}", standby.log());
    assert_eq!(holder("source-controller-leader-election").await, "", "given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_share_the_work_and_see_each_others_sources() {
    let cluster = Cluster::real().await.unwrap();
    let fleet = Fleet::new(&cluster).await;
    let _main = Process::start(&fleet, &[TWO_KINDS, "--watch-label-selector=!sharding.fluxcd.io/shard"]);
    let _shard = Process::start(
        &fleet,
        &["--controllers=kustomize", "--watch-label-selector=sharding.fluxcd.io/shard=one"],
    );
    fleet.git_repository("fleet").await;
    fleet.kustomization("unsharded", json!({})).await;
    fleet.kustomization("sharded", json!({ "sharding.fluxcd.io/shard": "one" })).await;
    fleet.kustomization("nobodys", json!({ "sharding.fluxcd.io/shard": "two" })).await;
    fleet.ready(&KUSTOMIZATION, "unsharded").await;
    fleet.ready(&KUSTOMIZATION, "sharded").await;
    let nobodys = fleet.get(&KUSTOMIZATION, "nobodys").await;
    assert!(nobodys["metadata"].get("finalizers").is_none(), "{nobodys}");
}

/// The upstream command line, under upstream's name of the controller.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_by_its_own_name_and_flags() {
    let cluster = Cluster::real().await.unwrap();
    let fleet = Fleet::new(&cluster).await;
    let mut process =
        Process::start_as(&fleet, "source-controller", &["--log-encoding=json", "--concurrent=1"]);
    fleet.git_repository("fleet").await;
    fleet.ready(&GIT_REPOSITORY, "fleet").await;
    process.answers("/readyz", 200).await;
    let page = process.metrics().await;
    assert!(page.contains("controller_runtime_max_concurrent_reconciles{controller=\"gitrepository\"} 1"));
    assert_eq!(process.terminate().code(), Some(0));
}

/// Upstream's Deployments tell their controllers by variables where they are.
#[tokio::test(flavor = "multi_thread")]
async fn the_environment_says_what_flags_do_not() {
    let cluster = Cluster::real().await.unwrap();
    let (fleet, elsewhere) = (Fleet::new(&cluster).await, Fleet::new(&cluster).await);
    elsewhere.git_repository("fleet").await;
    let sink = WebhookSink::start().unwrap();
    let events = [format!("EVENTS_ADDR={}", sink.url())];
    let mut process = Process::start_by_environment(&fleet, "source-controller", &events);
    fleet.git_repository("fleet").await;
    let object = fleet.until(&GIT_REPOSITORY, "fleet", "True").await;
    let artifact = &object["status"]["artifact"];
    let path = artifact["path"].as_str().unwrap();
    assert_eq!(artifact["url"], format!("http://{}/{path}", process.storage()));
    assert!(process.folder().join(path).exists(), "{path}");
    let told = sink.await_request("tells of the artifact", |request| {
        request.json().is_ok_and(|event| event["reason"] == "NewArtifact")
    });
    told.await.unwrap();
    assert!(process.metrics().await.contains("gotk_reconcile_duration_seconds_count"));
    // RUNTIME_NAMESPACE is the only one that is looked at.
    let other = elsewhere.get(&GIT_REPOSITORY, "fleet").await;
    assert!(other["metadata"].get("finalizers").is_none(), "{other}");
    assert_eq!(process.terminate().code(), Some(0), "{}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_credential_is_seen_anywhere() {
    canaries::run(&Cluster::real().await.unwrap(), Duration::from_secs(90)).await;
}
