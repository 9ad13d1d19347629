//! GitRepository: from a commit to an artifact that anybody can download.

use flux_api::kinds::{Controller, GIT_REPOSITORY};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::fault::{Fault, Times};

use crate::flux::{Flux, condition, ready};

crate::stories!(
    a_commit_becomes_an_artifact_and_a_push_replaces_it,
    a_branch_that_does_not_exist_is_reported_and_recovers,
    an_outage_leaves_the_last_artifact_in_place,
    a_damaged_artifact_is_made_again,
    a_suspended_repository_is_left_alone,
    a_deleted_repository_takes_its_artifacts_along,
    a_malformed_object_does_not_hold_up_its_neighbours,
    every_reference_leads_to_its_commit,
    an_empty_repository_is_waited_for,
    another_address_means_another_artifact,
    ignored_and_sparse_files_stay_out,
    stalls_cuts_and_garbage_are_survived,
    a_poll_without_news_says_so,
    a_slow_fetch_is_told_while_it_lasts,
    an_old_artifact_is_served_until_the_next_look,
);

async fn start(cluster: &Cluster) -> Flux {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("apps/a.yaml", "a: 1\n"), ("logo.png", "binary")]).unwrap();
    flux
}

fn revision(object: &Value) -> &str {
    object.pointer("/status/artifact/revision").and_then(Value::as_str).unwrap_or_default()
}

pub async fn download(object: &Value) -> Vec<(String, Vec<u8>)> {
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
    flux.reconcile_as(&GIT_REPOSITORY, "fleet", "in trouble").await;
    let during = flux.not_ready(&GIT_REPOSITORY, "fleet", "GitOperationFailed").await;
    assert_eq!(during["status"]["artifact"], before["status"]["artifact"]);
    assert_eq!(during["status"]["lastHandledReconcileAt"], "in trouble", "a failure answers a request, too");
    assert_eq!(during["status"]["observedGeneration"], before["status"]["observedGeneration"]);
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
    flux.event(
        "fleet",
        "ArtifactVerificationFailed",
        "failed to verify integrity of artifact: computed digest",
    )
    .await;
    // The same when it is not there at all.
    std::fs::remove_file(&path).unwrap();
    flux.reconcile_as(&GIT_REPOSITORY, "fleet", "and again").await;
    let after = flux
        .until(&GIT_REPOSITORY, "fleet", "handled the second request", |object| {
            object["status"]["lastHandledReconcileAt"] == "and again" && ready(object).0 == "True"
        })
        .await;
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
    assert_eq!(object["metadata"]["finalizers"], json!(["finalizers.fluxcd.io"]));
    let managers = |object: &Value| -> Vec<String> {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let ours = entries.iter().filter(|entry| entry["subresource"] == "status");
        ours.filter_map(|entry| entry["manager"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(managers(&object), ["source-controller"]);
    flux.api(&GIT_REPOSITORY).delete("fleet", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&GIT_REPOSITORY), "fleet").await.unwrap();
    assert!(!path.exists());
    let what = "garbage collected artifacts for deleted resource";
    flux.event("fleet", "GarbageCollectionSucceeded", what).await;
}

async fn a_malformed_object_does_not_hold_up_its_neighbours(cluster: &Cluster) {
    let flux = start(cluster).await;
    let spec = json!({ "url": "ssh://[not-a-host", "interval": "1h" });
    flux.apply(&GIT_REPOSITORY, "broken", spec).await;
    flux.git_repository("fleet").await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    let broken = flux.not_ready(&GIT_REPOSITORY, "broken", "URLInvalid").await;
    assert_eq!(broken["status"]["observedGeneration"], 1, "there is nothing more to try");
    assert!(broken["status"]["conditions"].as_array().unwrap().iter().any(|one| one["type"] == "Stalled"));
}

async fn every_reference_leads_to_its_commit(cluster: &Cluster) {
    let flux = start(cluster).await;
    let first = flux.fleet.resolve("main").unwrap();
    flux.fleet.tag("v1.0.0", &first, Some("annotated")).unwrap();
    let second = flux.fleet.commit("second", &[("apps/a.yaml", "a: 2\n")]).unwrap();
    flux.fleet.tag("v1.1.0", &second, None).unwrap();
    flux.fleet.git(&["update-ref", "refs/pull/7/head", &second], b"").unwrap();
    let third = flux.fleet.commit("third", &[("apps/a.yaml", "a: 3\n")]).unwrap();
    let cases = [
        ("branch", json!({ "branch": "main" }), format!("main@sha1:{third}")),
        ("tag", json!({ "tag": "v1.0.0" }), format!("v1.0.0@sha1:{first}")),
        ("semver", json!({ "semver": "1.x" }), format!("v1.1.0@sha1:{second}")),
        ("pull", json!({ "name": "refs/pull/7/head" }), format!("refs/pull/7/head@sha1:{second}")),
        ("peeled", json!({ "name": "refs/tags/v1.0.0^{}" }), format!("refs/tags/v1.0.0^{{}}@sha1:{first}")),
        ("commit", json!({ "commit": second }), format!("sha1:{second}")),
        ("both", json!({ "commit": first, "branch": "main" }), format!("main@sha1:{first}")),
    ];
    let (plain, prefixed) =
        (same_version_twice(&flux, "3.0.0", "v3.0.0"), same_version_twice(&flux, "v4.0.0", "4.0.0"));
    let rivals = [
        ("plain", json!({ "semver": "3.x" }), format!("3.0.0@sha1:{plain}")),
        ("prefixed", json!({ "semver": "4.x" }), format!("v4.0.0@sha1:{prefixed}")),
    ];
    let cases = [&cases[..], &rivals[..]].concat();
    for (name, reference, _) in &cases {
        let spec = json!({ "url": flux.server.http_url("fleet"), "interval": "1h", "ref": reference });
        flux.apply(&GIT_REPOSITORY, name, spec).await;
    }
    for (name, _, wanted) in &cases {
        let object = flux.ready(&GIT_REPOSITORY, name).await;
        assert_eq!(revision(&object), wanted, "{name}");
        let file = wanted.rsplit(':').next().unwrap();
        assert!(object["status"]["artifact"]["path"].as_str().unwrap().ends_with(&format!("{file}.tar.gz")));
    }
    let spec = json!({ "url": flux.server.http_url("fleet"), "interval": "1h", "ref": { "commit": "1".repeat(40) } });
    flux.apply(&GIT_REPOSITORY, "absent", spec).await;
    let absent = flux.not_ready(&GIT_REPOSITORY, "absent", "GitOperationFailed").await;
    assert!(
        ready(&absent).2.starts_with("failed to checkout and determine revision: "),
        "{}",
        ready(&absent).2
    );
    let spec = json!({ "url": flux.server.http_url("fleet"), "interval": "1h", "ref": { "semver": ">=9" } });
    flux.apply(&GIT_REPOSITORY, "absent", spec).await;
    let what = "has no match";
    flux.until(&GIT_REPOSITORY, "absent", what, |object| {
        ready(object).2.ends_with("no match found for semver: >=9")
    })
    .await;
}

/// Two tags of one version, at commits of different age; the commit of the newer one.
fn same_version_twice(flux: &Flux, newer: &str, older: &str) -> String {
    let tagged = |tag: &str, seconds: u32| {
        let stream = format!(
            "commit refs/heads/{tag}\ncommitter testbed <testbed@example.com> {seconds} +0000\ndata 1\nx\n\
             M 100644 inline a.yaml\ndata 2\nx\n\n\ndone\n"
        );
        let import = ["fast-import", "--quiet", "--force", "--date-format=raw"];
        flux.fleet.git(&import, stream.as_bytes()).unwrap();
        let commit = flux.fleet.resolve(&format!("refs/heads/{tag}")).unwrap();
        flux.fleet.tag(tag, &commit, None).unwrap();
        commit
    };
    tagged(older, 1_700_000_000);
    tagged(newer, 1_700_000_600)
}

async fn an_empty_repository_is_waited_for(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.git_repository("fleet").await;
    let object = flux.not_ready(&GIT_REPOSITORY, "fleet", "EmptyGitRepository").await;
    assert_eq!(ready(&object).2, "git repository is empty");
    assert_eq!(condition(&object, "FetchFailed").0, "True");
    assert_eq!(condition(&object, "Reconciling").1, "ProgressingWithRetry");
    flux.fleet.commit("first", &[("a", "1")]).unwrap();
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    assert_eq!(condition(&object, "FetchFailed"), ("", "", ""));
    assert_eq!(condition(&object, "Reconciling"), ("", "", ""));
    assert_eq!(condition(&object, "ArtifactInStorage").1, "Succeeded");
    flux.event("fleet", "EmptyGitRepository", "git repository is empty").await;
    flux.event("fleet", "NewArtifact", "stored artifact for commit 'first'").await;
}

async fn another_address_means_another_artifact(cluster: &Cluster) {
    let flux = start(cluster).await;
    let other = flux.server.create("other").unwrap();
    other.commit("elsewhere", &[("b.yaml", "b: 1\n")]).unwrap();
    flux.git_repository("fleet").await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    let url = flux.server.http_url("nowhere");
    flux.apply(
        &GIT_REPOSITORY,
        "fleet",
        json!({ "url": url, "interval": "1h", "ref": { "branch": "main" } }),
    )
    .await;
    let broken = flux.not_ready(&GIT_REPOSITORY, "fleet", "GitOperationFailed").await;
    assert_eq!(download(&broken).await.len(), 1, "the last artifact is served on");
    assert!(ready(&broken).2.contains("repository not found"), "{}", ready(&broken).2);
    assert_ne!(broken["status"]["observedGeneration"], broken["metadata"]["generation"], "it is tried on");
    let url = flux.server.http_url("other");
    flux.apply(
        &GIT_REPOSITORY,
        "fleet",
        json!({ "url": url, "interval": "1h", "ref": { "branch": "main" } }),
    )
    .await;
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    assert_eq!(download(&object).await, [("b.yaml".to_owned(), b"b: 1\n".to_vec())]);
}

async fn ignored_and_sparse_files_stay_out(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let files = [
        ("apps/a.yaml", "a"),
        ("apps/notes.txt", "n"),
        ("apps/.sourceignore", "*.txt\n"),
        ("infra/b.yaml", "b"),
        ("infra/pic.png", "p"),
        ("README.md", "r"),
    ];
    flux.fleet.commit("first", &files).unwrap();
    let spec = |more: Value| {
        let mut spec =
            json!({ "url": flux.server.http_url("fleet"), "interval": "1h", "ref": { "branch": "main" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let cases = [
        (
            "plain",
            json!({}),
            vec!["README.md", "apps/.sourceignore", "apps/a.yaml", "infra/b.yaml", "infra/pic.png"],
        ),
        ("ignore", json!({ "ignore": "/*\n!/infra\n" }), vec!["infra/b.yaml", "infra/pic.png"]),
        ("sparse", json!({ "sparseCheckout": ["./infra"] }), vec!["infra/b.yaml"]),
    ];
    for (name, more, _) in &cases {
        flux.apply(&GIT_REPOSITORY, name, spec(more.clone())).await;
    }
    for (name, _, wanted) in &cases {
        let object = flux.ready(&GIT_REPOSITORY, name).await;
        let found: Vec<String> = download(&object).await.into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, *wanted, "{name}");
    }
    let object = flux.ready(&GIT_REPOSITORY, "sparse").await;
    assert_eq!(object["status"]["observedSparseCheckout"], json!(["./infra"]));
    // The same commit is packed anew when the rules change.
    flux.apply(&GIT_REPOSITORY, "sparse", spec(json!({ "sparseCheckout": ["apps"] }))).await;
    flux.until(&GIT_REPOSITORY, "sparse", "is sparse in another way", |object| {
        object["status"]["observedSparseCheckout"] == json!(["apps"]) && ready(object).0 == "True"
    })
    .await;
    flux.apply(&GIT_REPOSITORY, "sparse", spec(json!({ "sparseCheckout": ["nowhere"] }))).await;
    let object = flux.not_ready(&GIT_REPOSITORY, "sparse", "GitOperationFailed").await;
    assert!(ready(&object).2.contains("sparse checkout dir 'nowhere' does not exist in repository"));
}

async fn stalls_cuts_and_garbage_are_survived(cluster: &Cluster) {
    let flux = start(cluster).await;
    let url = flux.server.http_url("fleet");
    let spec = json!({ "url": url, "interval": "1h", "timeout": "1s", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "fleet", spec).await;
    let before = flux.ready(&GIT_REPOSITORY, "fleet").await;
    let troubles = [
        ("info/refs", Fault::Stall, "context deadline exceeded"),
        ("fleet.git/git-upload-pack", Fault::CutAfter(30), ""),
        ("fleet.git/git-upload-pack", Fault::CutAfter(200), ""),
        ("info/refs", Fault::Status(502), "502"),
    ];
    for (index, (path, fault, text)) in troubles.into_iter().enumerate() {
        let commit = flux.fleet.commit("next", &[("apps/a.yaml", &format!("a: {index}{index}\n"))]).unwrap();
        flux.server.http().faults().inject(path, Times::Always, fault.clone());
        flux.reconcile(&GIT_REPOSITORY, "fleet").await;
        let during = flux.not_ready(&GIT_REPOSITORY, "fleet", "GitOperationFailed").await;
        assert!(ready(&during).2.contains(text), "{fault:?}: {}", ready(&during).2);
        assert_eq!(download(&during).await.len(), 1, "{fault:?}");
        flux.server.http().faults().clear();
        let wanted = format!("main@sha1:{commit}");
        flux.until(&GIT_REPOSITORY, "fleet", "recovered alone", |object| {
            revision(object) == wanted && ready(object).0 == "True"
        })
        .await;
    }
    assert_ne!(before["status"]["artifact"]["digest"], json!(null));
}

async fn a_poll_without_news_says_so(cluster: &Cluster) {
    let flux = start(cluster).await;
    flux.git_repository("fleet").await;
    let before = flux.ready(&GIT_REPOSITORY, "fleet").await;
    flux.reconcile_as(&GIT_REPOSITORY, "fleet", "again").await;
    let after = flux
        .until(&GIT_REPOSITORY, "fleet", "handled the request", |object| {
            object["status"]["lastHandledReconcileAt"] == "again"
        })
        .await;
    assert_eq!(before["status"]["artifact"], after["status"]["artifact"]);
    assert_eq!(condition(&after, "Ready"), condition(&before, "Ready"));
    flux.event(
        "fleet",
        "GitOperationSucceeded",
        "no changes since last reconciliation: observed revision 'main@sha1:",
    )
    .await;
    let uploads =
        flux.server.http().requests().into_iter().filter(|one| one.path.ends_with("/git-upload-pack"));
    // List and fetch the first time, list the second time.
    assert_eq!(uploads.count(), 3);
}

async fn a_slow_fetch_is_told_while_it_lasts(cluster: &Cluster) {
    let flux = start(cluster).await;
    let faults = flux.server.http().faults();
    faults.inject("info/refs", Times::Always, Fault::Stall);
    flux.git_repository("fleet").await;
    let at_work = |object: &Value| condition(object, "Reconciling").0 == "True";
    let during = flux.until(&GIT_REPOSITORY, "fleet", "is at work", at_work).await;
    assert_eq!(condition(&during, "Reconciling"), ("True", "Progressing", "building artifact"));
    assert_eq!(ready(&during), ("Unknown", "Progressing", "building artifact"));
    faults.clear();
    let first = flux.ready(&GIT_REPOSITORY, "fleet").await;
    assert_eq!(condition(&first, "Reconciling"), ("", "", ""));

    // Whoever asked is answered at the end; until something newer is found the artifact is as good as it was.
    faults.inject("info/refs", Times::Always, Fault::Stall);
    flux.reconcile_as(&GIT_REPOSITORY, "fleet", "slowly").await;
    let during = flux.until(&GIT_REPOSITORY, "fleet", "is at work again", at_work).await;
    assert_eq!(condition(&during, "Reconciling"), ("True", "Progressing", "reconciliation in progress"));
    assert_eq!(ready(&during), ready(&first));
    assert_ne!(during["status"]["lastHandledReconcileAt"], "slowly");
    faults.clear();
    flux.until(&GIT_REPOSITORY, "fleet", "is done", |object| {
        object["status"]["lastHandledReconcileAt"] == "slowly"
            && condition(object, "Reconciling").0.is_empty()
            && ready(object).0 == "True"
    })
    .await;
}

/// Whoever has just read an object may still download what it named.
async fn an_old_artifact_is_served_until_the_next_look(cluster: &Cluster) {
    let flux = Flux::start_with(cluster, &[Controller::Source], |options| {
        options.artifact_retention_ttl = std::time::Duration::ZERO;
    })
    .await;
    flux.fleet.commit("first", &[("a.yaml", "a: 1\n")]).unwrap();
    flux.git_repository("fleet").await;
    let first = flux.ready(&GIT_REPOSITORY, "fleet").await;
    let second = format!("main@sha1:{}", flux.fleet.commit("second", &[("a.yaml", "a: 2\n")]).unwrap());
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    flux.until(&GIT_REPOSITORY, "fleet", "has the second commit", |object| revision(object) == second).await;
    assert_eq!(download(&first).await, [("a.yaml".to_owned(), b"a: 1\n".to_vec())]);

    flux.reconcile_as(&GIT_REPOSITORY, "fleet", "the next look").await;
    let after = flux
        .until(&GIT_REPOSITORY, "fleet", "was looked at", |object| {
            object["status"]["lastHandledReconcileAt"] == "the next look"
        })
        .await;
    flux.event("fleet", "GarbageCollectionSucceeded", "garbage collected 1 artifacts").await;
    let gone = reqwest::get(first["status"]["artifact"]["url"].as_str().unwrap()).await.unwrap();
    assert_eq!(gone.status(), 404);
    assert_eq!(download(&after).await, [("a.yaml".to_owned(), b"a: 2\n".to_vec())]);
}
