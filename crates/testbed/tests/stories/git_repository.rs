//! GitRepository: from a commit to an artifact that anybody can download.

use flux_api::kinds::{Controller, GIT_REPOSITORY};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::fault::{Fault, Times};

use crate::flux::{Flux, ready};

crate::stories!(
    a_commit_becomes_an_artifact_and_a_push_replaces_it,
    a_branch_that_does_not_exist_is_reported_and_recovers,
    an_outage_leaves_the_last_artifact_in_place,
    a_damaged_artifact_is_made_again,
    a_suspended_repository_is_left_alone,
    a_deleted_repository_takes_its_artifacts_along,
    a_malformed_object_does_not_hold_up_its_neighbours,
);

async fn start(cluster: &Cluster) -> Flux {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("apps/a.yaml", "a: 1\n"), ("logo.png", "binary")]).unwrap();
    flux
}

fn revision(object: &Value) -> &str {
    object.pointer("/status/artifact/revision").and_then(Value::as_str).unwrap_or_default()
}

async fn download(object: &Value) -> Vec<(String, Vec<u8>)> {
    let url = object["status"]["artifact"]["url"].as_str().unwrap();
    let bytes = reqwest::get(url).await.unwrap().error_for_status().unwrap().bytes().await.unwrap();
    let limits = flux_remote::archive::Limits { bytes: 1 << 20, files: 100 };
    let mut files = Vec::new();
    flux_remote::archive::unpack(&bytes[..], limits, |file| files.push((file.path.to_string(), file.bytes)))
        .unwrap();
    files
}

async fn a_commit_becomes_an_artifact_and_a_push_replaces_it(cluster: &Cluster) {
    let flux = start(cluster).await;
    let first = flux.fleet.resolve("main").unwrap();
    flux.git_repository("fleet").await;
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    assert_eq!(revision(&object), format!("main@sha1:{first}"));
    assert_eq!(ready(&object).2, format!("stored artifact for revision 'main@sha1:{first}'"));
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
    // The picture is left out by the default patterns.
    assert_eq!(download(&object).await, [("apps/a.yaml".to_owned(), b"a: 1\n".to_vec())]);

    let second = flux.fleet.commit("second", &[("apps/a.yaml", "a: 2\n")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let wanted = format!("main@sha1:{second}");
    let object = flux
        .until(&GIT_REPOSITORY, "fleet", "has the second commit", |object| revision(object) == wanted)
        .await;
    assert_eq!(download(&object).await, [("apps/a.yaml".to_owned(), b"a: 2\n".to_vec())]);
}

async fn a_branch_that_does_not_exist_is_reported_and_recovers(cluster: &Cluster) {
    let flux = start(cluster).await;
    let url = flux.server.http_url("fleet");
    let spec = json!({ "url": url, "interval": "1h", "ref": { "branch": "release" } });
    flux.apply(&GIT_REPOSITORY, "fleet", spec).await;
    let object = flux.not_ready(&GIT_REPOSITORY, "fleet", "GitOperationFailed").await;
    assert!(
        ready(&object).2.contains("couldn't find remote ref \"refs/heads/release\""),
        "{}",
        ready(&object).2
    );
    flux.fleet.git(&["branch", "release", "main"], b"").unwrap();
    flux.ready(&GIT_REPOSITORY, "fleet").await;
}

async fn an_outage_leaves_the_last_artifact_in_place(cluster: &Cluster) {
    let flux = start(cluster).await;
    flux.git_repository("fleet").await;
    let before = flux.ready(&GIT_REPOSITORY, "fleet").await;
    flux.server.http().faults().inject("", Times::Always, Fault::Status(503));
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let during = flux.not_ready(&GIT_REPOSITORY, "fleet", "GitOperationFailed").await;
    assert_eq!(during["status"]["artifact"], before["status"]["artifact"]);
    assert_eq!(download(&during).await.len(), 1);
    flux.server.http().faults().clear();
    flux.ready(&GIT_REPOSITORY, "fleet").await;
}

async fn a_damaged_artifact_is_made_again(cluster: &Cluster) {
    let flux = start(cluster).await;
    flux.git_repository("fleet").await;
    let before = flux.ready(&GIT_REPOSITORY, "fleet").await;
    let path = flux.storage().join(before["status"]["artifact"]["path"].as_str().unwrap());
    std::fs::write(&path, b"damaged").unwrap();
    let request = "reconcile it";
    flux.reconcile_as(&GIT_REPOSITORY, "fleet", request).await;
    let after = flux
        .until(&GIT_REPOSITORY, "fleet", "handled the request", |object| {
            object["status"]["lastHandledReconcileAt"] == request && ready(object).0 == "True"
        })
        .await;
    assert_eq!(revision(&after), revision(&before));
    assert_eq!(download(&after).await.len(), 1);
}

async fn a_suspended_repository_is_left_alone(cluster: &Cluster) {
    let flux = start(cluster).await;
    let url = flux.server.http_url("fleet");
    flux.apply(&GIT_REPOSITORY, "fleet", json!({ "url": url, "interval": "1h", "suspend": true })).await;
    flux.reconcile_as(&GIT_REPOSITORY, "fleet", "now").await;
    let object = flux
        .until(&GIT_REPOSITORY, "fleet", "handled the request", |object| {
            object["status"]["lastHandledReconcileAt"] == "now"
        })
        .await;
    assert!(object.pointer("/status/artifact").is_none());
}

async fn a_deleted_repository_takes_its_artifacts_along(cluster: &Cluster) {
    let flux = start(cluster).await;
    flux.git_repository("fleet").await;
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    let path = flux.storage().join(object["status"]["artifact"]["path"].as_str().unwrap());
    assert!(path.exists());
    flux.api(&GIT_REPOSITORY).delete("fleet", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&GIT_REPOSITORY), "fleet").await.unwrap();
    assert!(!path.exists());
}

async fn a_malformed_object_does_not_hold_up_its_neighbours(cluster: &Cluster) {
    let flux = start(cluster).await;
    let spec = json!({ "url": "ssh://[not-a-host", "interval": "1h" });
    flux.apply(&GIT_REPOSITORY, "broken", spec).await;
    flux.git_repository("fleet").await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    let broken = flux.not_ready(&GIT_REPOSITORY, "broken", "URLInvalid").await;
    assert!(broken["status"]["conditions"].as_array().unwrap().iter().any(|one| one["type"] == "Stalled"));
}
