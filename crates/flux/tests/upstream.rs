//! The command at a cluster that upstream's controllers work on: it says what the real `flux` says, of objects and of logs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use kube::api::DynamicObject;
use regex::Regex;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::GitServer;
use testbed::reference::{self, Controller, Tool};
use testbed::upstream::Upstream;

#[path = "at_work/flux.rs"]
mod flux;
#[path = "at_work/log_api.rs"]
mod log_api;

use flux::{Flux, NAMESPACE, api, apply};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n";

/// Lines whose answer depends on the objects alone.
const LINES: [&str; 16] = [
    "flux get sources git",
    "flux get source git fleet",
    "flux get kustomizations",
    "flux get ks apps",
    "flux get ks --status-selector ready=false",
    "flux get all",
    "flux tree kustomization apps",
    "flux trace settings --kind ConfigMap --api-version v1 --namespace flux-system",
    "flux events --for Kustomization/broken",
    "flux events --for GitRepository/fleet --types Normal",
    "flux stats",
    "flux export kustomization --all",
    "flux export source git fleet",
    "flux suspend kustomization apps",
    "flux resume kustomization apps",
    "flux reconcile kustomization apps --with-source",
];

const LOG_LINES: [&str; 6] = [
    "flux logs",
    "flux logs --level=error",
    "flux logs --kind=Kustomization --name=broken",
    "flux logs --kind=GitRepository --all-namespaces",
    "flux logs --tail=3",
    "flux logs --level=info --namespace=flux-system",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "peers: runs upstream's source- and kustomize-controller"]
async fn the_command_says_the_same_as_the_real_one_of_upstreams_controllers() {
    let cluster = Cluster::real().await.unwrap();
    cluster.provide_crds(flux_api::crds::yaml).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.apply_yaml("default", &namespace.to_string()).await.unwrap();
    let server = GitServer::start().unwrap();
    server.create("fleet").unwrap().commit("first", &[("apps/map.yaml", MAP)]).unwrap();
    let controllers = [Controller::Source, Controller::Kustomize];
    let upstream =
        tokio::task::block_in_place(|| Upstream::start(&cluster, NAMESPACE, &controllers)).unwrap();
    let source = json!({"url": server.http_url("fleet"), "interval": "1h", "ref": {"branch": "main"}});
    apply(&cluster, &GIT_REPOSITORY, "fleet", source).await;
    for (name, path) in [("apps", "./apps"), ("broken", "./nowhere")] {
        let spec = json!({
            "interval": "1h", "retryInterval": "1h", "prune": true, "path": path, "targetNamespace": NAMESPACE,
            "sourceRef": {"kind": "GitRepository", "name": "fleet"},
        });
        apply(&cluster, &KUSTOMIZATION, name, spec).await;
    }
    for (name, message) in [("apps", "Applied revision"), ("broken", "path not found")] {
        let judged = |object: &DynamicObject| {
            let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|one| {
                one["type"] == "Ready" && one["message"].as_str().is_some_and(|said| said.contains(message))
            })
        };
        let limit = Duration::from_secs(90);
        let api = api(&cluster, &KUSTOMIZATION);
        testbed::wait::until(&api, name, limit, "is judged", judged).await.unwrap();
    }

    let folder = tempfile::tempdir().unwrap();
    let real = tokio::task::block_in_place(|| reference::binary(Tool::Flux, "flux")).unwrap();
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_flux"));
    compare(&LINES, [&real, &ours], cluster.kubeconfig_path(), folder.path());

    for controller in controllers {
        let log = upstream.log(controller).unwrap();
        assert!(log.contains("\"level\":\"info\""), "{log}");
        let logs = log_api::log_api(log);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "logs",
            "clusters": [{"name": "logs", "cluster": {"server": logs.url()}}],
            "contexts": [{"name": "logs", "context": {"cluster": "logs", "user": "logs"}}],
            "users": [{"name": "logs", "user": {}}],
        });
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        compare(&LOG_LINES, [&real, &ours], &path, folder.path());
    }
    upstream.stop();
}

/// Both say the same, up to the time that passes between them.
fn compare(lines: &[&str], programs: [&Path; 2], kubeconfig: &Path, folder: &Path) {
    // An age, and what a table makes of its width.
    let age = Regex::new(r"\b(?:\d+[hms])+\b").unwrap();
    let space = Regex::new(r"[ \t]+").unwrap();
    for line in lines {
        let [theirs, ours] = programs.map(|program| {
            let output = Flux { program, kubeconfig, folder }.run(line);
            let text = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                space.replace_all(&age.replace_all(&text, "AGE"), " ").into_owned()
            };
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        });
        println!("{line}: exit code {:?}, {} lines", ours.0, ours.1.lines().count() + ours.2.lines().count());
        assert_eq!(ours, theirs, "{line}");
    }
}
