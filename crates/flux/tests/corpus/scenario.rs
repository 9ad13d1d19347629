//! The ordered scenario of an installation: a cluster without anything, an empty repository over HTTP, workloads that become ready,
//! and a stand-in that has `flux-system` follow the repository.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use serde_json::{Value, json};
use testbed::git_server::{Accounts, GitServer, Repository, Security};

use crate::Answer;
use crate::cluster::{Background, Cluster};
use crate::judge::differs;
use crate::objects::Objects;
use crate::play::{Place, Player};

pub fn play(player: &mut Player<'_>, group: &[Value]) -> Vec<Answer> {
    let cluster = player.runtime.block_on(Cluster::with_workloads());
    let accounts = Accounts { passwords: vec![("u".to_owned(), "p".to_owned())], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    let repository = Arc::new(server.create("repo").unwrap());
    let mut background = Background::default();
    background.add(player.runtime.spawn(follow(cluster.objects.clone(), repository.clone())));
    let place = Place::new(player.corpus);
    fs::write(place.kubeconfig(), &cluster.kubeconfig).unwrap();
    let version = player.runtime.block_on(cluster.version());
    let mut answers = Vec::new();
    for case in group {
        let mut values = place.values(case);
        values.set("git", server.http().address().to_string());
        values.set("serverversion", version.clone());
        let problems = match place.run(case, &values, None) {
            Ok(got) => {
                let expect = &case["expect"];
                let mut problems = Vec::new();
                if expect["rc"].as_i64() != Some(got.code.into()) {
                    problems.push(format!("rc {} instead of {}", got.code, expect["rc"]));
                }
                for (name, text) in [("stdout", &got.stdout), ("stderr", &got.stderr)] {
                    let want = values.fill(expect[name].as_str().unwrap_or_default());
                    problems.extend(differs(name, &masked(text), &masked(&want)));
                }
                problems.extend(git_after(&case["git_after"], &repository, &server));
                problems
            }
            Err(problem) => vec![problem],
        };
        answers.push(Answer::Played(problems));
    }
    answers
}

/// Commits and times are another run's.
fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, with) in [
        ("[0-9a-f]{40}|<commit[0-9]>", "<commit>"),
        (r"main@sha1:([0-9a-f]{8}\b|commit[0-9]\.\.\.)", "main@sha1:<short>"),
        (r#"requestedAt: ".*""#, "requestedAt: …"),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, with).into_owned();
    }
    text
}

/// What the repository must look like after a step.
fn git_after(want: &Value, repository: &Repository, server: &GitServer) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(log) = want["log"].as_array() else { return problems };
    let tidy = |text: &str| text.trim().trim_end_matches('|').trim().to_owned();
    let got = repository.git(&["log", "--format=%an <%ae> | %s | %b%x00", "main"], b"").unwrap();
    let got: Vec<String> = got.split('\0').map(tidy).filter(|line| !line.is_empty()).collect();
    let log: Vec<String> = log.iter().map(|line| tidy(line.as_str().unwrap_or_default())).collect();
    if got != log {
        problems.push(format!("commits {got:?} instead of {log:?}"));
    }
    let files = repository.git(&["ls-tree", "-r", "--name-only", "main"], b"").unwrap();
    let files: Vec<Value> = files.lines().map(Value::from).collect();
    if Some(&files) != want["files"].as_array() {
        problems.push(format!("files {files:?} instead of {}", want["files"]));
    }
    for name in ["gotk-sync.yaml", "kustomization.yaml"] {
        if let Some(text) = want[name].as_str() {
            let got = repository.read("main", &format!("clusters/my/flux-system/{name}")).unwrap();
            let text = text.replace("{{git}}", &server.http().address().to_string());
            problems.extend(differs(name, got.trim_end(), text.trim_end()));
        }
    }
    problems
}

/// Writes what the controllers would: that the newest commit is fetched and applied.
async fn follow(objects: Arc<Objects>, repository: Arc<Repository>) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Ok(head) = repository.resolve("main") else { continue };
        let revision = format!("main@sha1:{}", head.trim());
        for (api, kind) in [
            ("source.toolkit.fluxcd.io/v1", "GitRepository"),
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ] {
            let named = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "flux-system", "namespace": "flux-system"}});
            let Some(mut live) = objects.get(&named).await else { continue };
            let generation = live["metadata"]["generation"].clone();
            let mut status = json!({
                "observedGeneration": generation,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "x",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation}],
            });
            if kind == "GitRepository" {
                status["artifact"] = json!({"revision": revision, "path": "p", "url": "http://x/p",
                    "digest": format!("sha256:{}", "0".repeat(64)), "lastUpdateTime": "2026-01-01T00:00:00Z"});
            } else {
                status["lastAppliedRevision"] = revision.clone().into();
            }
            if let Some(asked) = live.pointer("/metadata/annotations/reconcile.fluxcd.io~1requestedAt") {
                status["lastHandledReconcileAt"] = asked.clone();
            }
            if live["status"] != status {
                live["status"] = status;
                objects.put_status(&live).await;
            }
        }
    }
}
