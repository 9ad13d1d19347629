//! The loop that every controller shares: election, shards, metrics, probes, events.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use flux_api::kinds::{Controller, GIT_REPOSITORY, KUSTOMIZATION};
use flux_api::names;
use flux_controllers::manager::{Manager, ManagerOptions};
use flux_controllers::reconcile::election::ElectionOptions;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::webhook_sink::WebhookSink;

use crate::flux::{Flux, ready};

crate::stories!(
    of_two_replicas_one_works_and_the_other_takes_over_when_it_is_killed,
    a_standby_serves_no_artifacts_but_takes_events,
    a_shard_works_on_its_own_objects_and_sees_all_sources,
    metrics_tell_of_each_object_and_forget_what_is_gone,
    events_reach_the_cluster_and_the_address_they_are_sent_to,
    a_suspension_with_an_end_ends_by_itself_and_one_without_does_not,
);

fn options(flux: &Flux, storage: &std::path::Path, controllers: &[Controller]) -> ManagerOptions {
    let controllers: BTreeSet<Controller> = controllers.iter().copied().collect();
    ManagerOptions {
        namespace: Some(flux.namespace.name().to_owned()),
        least_retry: Duration::from_millis(200),
        most_retry: Duration::from_secs(2),
        ..ManagerOptions::new(controllers, storage.to_owned(), ([127, 0, 0, 1], 0).into())
    }
}

/// An address nobody listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Asks until the answer is as it should be; a server may not listen yet.
async fn until(address: SocketAddr, path: &str, what: &str, fits: impl Fn(u16, &str) -> bool) -> String {
    let asked = async {
        loop {
            if let Ok(answer) = reqwest::get(format!("http://{address}{path}")).await {
                let status = answer.status().as_u16();
                let text = answer.text().await.unwrap_or_default();
                if fits(status, &text) {
                    return text;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(Duration::from_secs(30), asked).await {
        Ok(text) => text,
        Err(_) => panic!("{path} never {what}"),
    }
}

async fn of_two_replicas_one_works_and_the_other_takes_over_when_it_is_killed(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[]).await;
    flux.fleet.commit("first", &[("a.yaml", "a: 1\n")]).unwrap();
    let election = ElectionOptions {
        namespace: flux.namespace.name().to_owned(),
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1500),
        retry_period: Duration::from_millis(200),
        release_on_cancel: true,
    };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let replica = |number: usize, health: SocketAddr| ManagerOptions {
        election: Some(election.clone()),
        health_addr: Some(health),
        ..options(&flux, folders[number].path(), &[Controller::Source, Controller::Kustomize])
    };
    let leader = Manager::start(cluster.client(), replica(0, free_address())).await.unwrap();
    flux.git_repository("fleet").await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;

    let health = free_address();
    let standby = tokio::spawn(Manager::start(cluster.client(), replica(1, health)));
    until(health, "/readyz", "is a standby", |status, text| status == 503 && text.contains("standby")).await;
    assert_eq!(get(health, "/healthz").await, (200, "ok".to_owned()));
    let leases: Api<Lease> = Api::namespaced(cluster.client(), flux.namespace.name());
    let holder = async |name: &str| leases.get(name).await.unwrap().spec.unwrap().holder_identity.unwrap();
    let first = holder("source-controller-leader-election").await;
    assert_eq!(first, holder("kustomize-controller-leader-election").await);
    assert!(!standby.is_finished());

    // Killed, not stopped: nothing is given back, the lease has to run out.
    drop(leader);
    let standby = standby.await.unwrap().unwrap();
    assert_ne!(holder("source-controller-leader-election").await, first);
    until(health, "/readyz", "is ready", |status, _| status == 200).await;
    let second = flux.fleet.commit("second", &[("a.yaml", "a: 2\n")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    flux.until(&GIT_REPOSITORY, "fleet", "has the second commit", |object| {
        object["status"]["artifact"]["revision"] == format!("main@sha1:{second}")
    })
    .await;

    // Stopped, it gives the leases back.
    standby.stop().await;
    assert_eq!(holder("source-controller-leader-election").await, "");
}

async fn a_standby_serves_no_artifacts_but_takes_events(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[]).await;
    let election = ElectionOptions {
        namespace: flux.namespace.name().to_owned(),
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_millis(200),
        release_on_cancel: true,
    };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let replica = |number: usize, [files, events, health]: [SocketAddr; 3]| {
        let both = [Controller::Source, Controller::Notification];
        let mut replica = options(&flux, folders[number].path(), &both);
        crate::notification::here(&mut replica);
        replica.notification.events_addr = events;
        ManagerOptions {
            election: Some(election.clone()),
            storage_addr: files,
            health_addr: Some(health),
            ..replica
        }
    };
    let addresses = || [free_address(), free_address(), free_address()];
    let leader = Manager::start(cluster.client(), replica(0, addresses())).await.unwrap();
    let at @ [files, events, health] = addresses();
    let standby = tokio::spawn(Manager::start(cluster.client(), replica(1, at)));
    until(health, "/readyz", "is a standby", |status, _| status == 503).await;
    assert!(reqwest::get(format!("http://{files}/")).await.is_err(), "nobody may find artifacts here");
    let event = json!({
        "involvedObject": { "kind": "Kustomization", "namespace": flux.namespace.name(), "name": "apps" },
        "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "message": "done", "reason": "Done",
        "reportingController": "kustomize-controller",
    });
    let post = reqwest::Client::new().post(format!("http://{events}")).json(&event);
    assert_eq!(post.send().await.unwrap().status(), 202);
    assert!(!standby.is_finished());

    leader.stop().await;
    let standby = standby.await.unwrap().unwrap();
    until(files, "/", "lists what there is", |status, _| status == 200).await;
    standby.stop().await;
}

async fn a_suspension_with_an_end_ends_by_itself_and_one_without_does_not(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("a.yaml", "a: 1\n")]).unwrap();
    for name in ["timed", "held"] {
        flux.git_repository(name).await;
        flux.ready(&GIT_REPOSITORY, name).await;
    }
    let suspend = async |name: &str, until: Value| {
        let annotations = json!({ names::SUSPEND_UNTIL: until, names::SUSPEND_REASON: "a change at night" });
        let patch = json!({ "metadata": { "annotations": annotations }, "spec": { "suspend": true } });
        flux.api(&GIT_REPOSITORY).patch(name, &Default::default(), &Patch::Merge(patch)).await.unwrap();
    };
    suspend("held", Value::Null).await;
    let far = k8s_openapi::jiff::Timestamp::now() + Duration::from_secs(3600);
    suspend("timed", far.to_string().into()).await;
    let second = flux.fleet.commit("second", &[("a.yaml", "a: 2\n")]).unwrap();

    // Only the annotation changes, which no generation tells of.
    let soon = k8s_openapi::jiff::Timestamp::now() + Duration::from_secs(1);
    suspend("timed", soon.to_string().into()).await;
    let timed = flux
        .until(&GIT_REPOSITORY, "timed", "is at work again", |object| {
            object["status"]["artifact"]["revision"] == format!("main@sha1:{second}")
        })
        .await;
    assert!(timed["spec"].get("suspend").is_none(), "{timed}");
    assert_eq!(timed.pointer("/metadata/annotations").and_then(|all| all.get(names::SUSPEND_REASON)), None);
    flux.event("timed", "Resumed", "resumed: the suspension until").await;
    let held = flux.api(&GIT_REPOSITORY).get("held").await.unwrap();
    assert_eq!(held.data["spec"]["suspend"], true, "nobody has said how long");
}

async fn a_shard_works_on_its_own_objects_and_sees_all_sources(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("a.yaml", CONFIG_MAP)]).unwrap();
    flux.git_repository("fleet").await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;

    let folder = tempfile::tempdir().unwrap();
    let mut sharded = options(&flux, folder.path(), &[Controller::Kustomize]);
    let mut tuning = sharded.tuning(Controller::Kustomize);
    tuning.watch_label_selector = Some("sharding.fluxcd.io/shard=one".to_owned());
    sharded.tuned.insert(Controller::Kustomize, tuning);
    let manager = Manager::start(cluster.client(), sharded).await.unwrap();
    let spec = json!({
        "interval": "1h", "prune": true, "path": "./", "targetNamespace": flux.namespace.name(),
        "sourceRef": { "kind": "GitRepository", "name": "fleet" },
    });
    flux.apply(&KUSTOMIZATION, "foreign", spec.clone()).await;
    flux.apply_labelled(&KUSTOMIZATION, "ours", spec, json!({ "sharding.fluxcd.io/shard": "one" })).await;
    // Its source has no label and is found all the same.
    flux.ready(&KUSTOMIZATION, "ours").await;
    let foreign = flux.api(&KUSTOMIZATION).get("foreign").await.unwrap();
    let foreign = serde_json::to_value(foreign).unwrap();
    assert!(foreign["metadata"].get("finalizers").is_none(), "nobody may touch it: {foreign}");

    // An object that joins the shard is taken up without a change of its spec.
    let label = json!({ "metadata": { "labels": { "sharding.fluxcd.io/shard": "one" } } });
    let patch = kube::api::Patch::Merge(label);
    flux.api(&KUSTOMIZATION).patch("foreign", &Default::default(), &patch).await.unwrap();
    flux.ready(&KUSTOMIZATION, "foreign").await;
    manager.stop().await;
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-fleet}\ndata: {a: b}\n";

async fn metrics_tell_of_each_object_and_forget_what_is_gone(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[]).await;
    flux.fleet.commit("first", &[("a.yaml", "a: 1\n")]).unwrap();
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let with_metrics = ManagerOptions {
        metrics_addr: Some(address),
        ..options(&flux, folder.path(), &[Controller::Source])
    };
    let manager = Manager::start(cluster.client(), with_metrics).await.unwrap();
    flux.git_repository("fleet").await;
    let url = flux.server.http_url("none");
    flux.apply(&GIT_REPOSITORY, "broken", json!({ "url": url, "interval": "1h" })).await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    flux.not_ready(&GIT_REPOSITORY, "broken", "GitOperationFailed").await;

    let namespace = flux.namespace.name();
    let of = |name: &str| format!("kind=\"GitRepository\",name=\"{name}\",namespace=\"{namespace}\"");
    let page = until(address, "/metrics", "tells of both", |_, page| {
        page.contains(&format!(
            "gotk_reconcile_condition{{{},type=\"Ready\",status=\"True\"}} 1",
            of("fleet")
        )) && page.contains(&format!(
            "gotk_reconcile_condition{{{},type=\"Ready\",status=\"False\"}} 1",
            of("broken")
        )) && page.contains(&format!("gotk_reconcile_error_total{{{}}}", of("broken")))
    })
    .await;
    for wanted in [
        format!("gotk_suspend_status{{{}}} 0", of("fleet")),
        format!("gotk_reconcile_duration_seconds_count{{{}}}", of("fleet")),
        format!("gotk_resource_info{{name=\"fleet\",exported_namespace=\"{namespace}\""),
        "controller_runtime_reconcile_total{controller=\"gitrepository\",result=\"requeue_after\"}"
            .to_owned(),
        "controller_runtime_reconcile_errors_total{controller=\"gitrepository\"}".to_owned(),
        "controller_runtime_max_concurrent_reconciles{controller=\"gitrepository\"} 2".to_owned(),
        "workqueue_adds_total{controller=\"gitrepository\",name=\"gitrepository\"}".to_owned(),
        "workqueue_depth{controller=\"gitrepository\",name=\"gitrepository\"}".to_owned(),
        "workqueue_retries_total{controller=\"gitrepository\",name=\"gitrepository\"}".to_owned(),
        "rest_client_requests_total{code=\"200\"".to_owned(),
    ] {
        assert!(page.contains(&wanted), "{wanted} is missing in\n{page}");
    }
    assert!(!page.contains(&format!("gotk_reconcile_error_total{{{}}}", of("fleet"))));

    flux.api(&GIT_REPOSITORY).delete("fleet", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&GIT_REPOSITORY), "fleet").await.unwrap();
    until(address, "/metrics", "forgets it", |_, page| !page.contains(&of("fleet"))).await;
    manager.stop().await;
}

async fn events_reach_the_cluster_and_the_address_they_are_sent_to(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[]).await;
    flux.fleet.commit("first", &[("a.yaml", "a: 1\n")]).unwrap();
    let (folder, sink) = (tempfile::tempdir().unwrap(), WebhookSink::start().unwrap());
    let told = ManagerOptions {
        events_addr: Some(sink.url()),
        ..options(&flux, folder.path(), &[Controller::Source])
    };
    let manager = Manager::start(cluster.client(), told).await.unwrap();
    flux.git_repository("fleet").await;
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    assert_eq!(ready(&object).1, "Succeeded");
    let annotation = json!({ "metadata": { "annotations": { "event.toolkit.fluxcd.io/env": "prod" } } });
    let annotate = Patch::Merge(annotation);
    flux.api(&GIT_REPOSITORY).patch("fleet", &Default::default(), &annotate).await.unwrap();
    let commit = flux.fleet.commit("second", &[("a.yaml", "a: 2\n")]).unwrap();
    let revision = format!("main@sha1:{commit}");
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;

    let received = sink.await_request("tells of the second commit", |request| {
        request.json().is_ok_and(|event| {
            event["reason"] == "NewArtifact"
                && event["metadata"]["source.toolkit.fluxcd.io/revision"] == revision.as_str()
        })
    });
    let event: Value = received.await.unwrap().json().unwrap();
    assert_eq!(event["severity"], "info");
    assert_eq!(event["reportingController"], "source-controller");
    assert_eq!(event["involvedObject"]["kind"], "GitRepository");
    assert_eq!(event["involvedObject"]["uid"], object["metadata"]["uid"]);
    assert!(event["metadata"]["source.toolkit.fluxcd.io/digest"].is_string(), "{event}");
    assert_eq!(event["metadata"]["event.toolkit.fluxcd.io/env"], "prod");
    let ours = flux.told("fleet", "stored artifact for commit 'second'").await;
    assert_eq!((ours.reason.as_deref(), ours.type_.as_deref()), (Some("NewArtifact"), Some("Normal")));
    let annotations = ours.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations["source.toolkit.fluxcd.io/revision"], revision);
    assert_eq!(annotations["event.toolkit.fluxcd.io/env"], "prod");
    // Traces stay beside the object.
    let sent = sink.received();
    assert!(sent.iter().all(|request| request.json().unwrap()["severity"] != "trace"));
    manager.stop().await;
}
