//! The commands and manifests of the seed documents, verbatim, on the embedded server and on a real control plane.
//!
//! The manifests are read from the shared folder, never copied. Addresses they name (GitHub, chart repositories) lead to
//! folders here; everything else is as it would be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod fleet;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flux_api::kinds::Controller;
use flux_controllers::manager::{Manager, ManagerOptions};
use flux_controllers::source::depot::{Depot, Network, StandIn};
use flux_remote::local::Place;
use kube::api::DynamicObject;
use kube::core::TypeMeta;
use serde_json::Value;
use testbed::Cluster;
use testbed::cluster::has_condition;

use commands::Shell;

const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seed_documents_on_the_embedded_server() {
    seeds(&Cluster::start_embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seed_documents_on_a_real_control_plane() {
    seeds(&Cluster::real().await.unwrap()).await;
}

fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("FLUX_SHARED").map_or(beside, PathBuf::from).join("seeds");
    folder.is_dir().then_some(folder)
}

async fn seeds(cluster: &Cluster) {
    let Some(shared) = shared() else {
        println!("skipped: no corpus (the seed documents are not beside the project)");
        return;
    };
    let _pods = cluster.simulate_workloads().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shell = tokio::task::spawn_blocking({
        let (folder, kubeconfig) = (folder.path().to_owned(), cluster.kubeconfig_path().to_owned());
        move || Shell::new(folder, kubeconfig)
    })
    .await
    .unwrap();
    fleet::write(folder.path());
    shell.types(
        "flux install --components-extra=image-reflector-controller,image-automation-controller",
        &["✔ install finished"],
    );
    let mut ran = commands::BEFORE.iter().filter(|seed| shell.seed(seed)).count();
    for line in fleet::SURROUNDINGS {
        shell.types(line, &[]);
    }
    let manager = start(cluster, folder.path()).await;
    // Accounts come before those who act as them: whoever finds none looks again only when its interval is over.
    for file in ["sources", "tenancy", "kustomizations", "helmreleases", "notification", "image"] {
        let path = shared.join(format!("manifests/{file}.yaml"));
        shell.types(&format!("kubectl apply -f {}", path.display()), &[]);
        for object in documents(&path) {
            stored_whole(cluster, &object).await;
        }
    }
    for (kind, namespace, name) in fleet::READY {
        ready(cluster, kind, namespace, name).await;
    }
    ran += commands::AFTER.iter().filter(|seed| shell.seed(seed)).count();
    let all = commands::BEFORE.len() + commands::AFTER.len();
    println!("seed documents: {ran} commands passed, 0 failed, {} skipped", all - ran);
    every_command_is_listed(&shared);
    manager.stop().await;
}

/// Our controllers, with the network replaced by folders.
async fn start(cluster: &Cluster, folder: &Path) -> Manager {
    let controllers = BTreeSet::from([Controller::Source, Controller::Kustomize, Controller::Helm]);
    let mut options = ManagerOptions::new(controllers, folder.join("artifacts"), ([127, 0, 0, 1], 0).into());
    let stand_in = |below: &str, urls: &[&str]| StandIn {
        place: Place { folder: folder.join(below), revision: None },
        urls: urls.iter().map(|url| (*url).to_owned()).collect(),
    };
    let stand_ins = vec![
        stand_in("fleet", &["https://github.com/my-org/fleet-infra"]),
        stand_in("alpha", &["https://github.com/team-alpha/apps"]),
        stand_in(
            "charts",
            &[
                "https://prometheus-community.github.io/helm-charts",
                "https://charts.jetstack.io",
                "https://charts.example.com/my-api",
            ],
        ),
    ];
    options.depot = Some(Depot { stand_ins, cache: None, network: Network::Never });
    Manager::start(cluster.client(), options).await.unwrap()
}

fn documents(path: &Path) -> Vec<Value> {
    let bytes = std::fs::read(path).unwrap();
    let stream = yaml::parse_stream(&bytes, &yaml::Options::new(yaml::Schema::V2)).unwrap();
    let all = stream.iter().map(|document| yaml::node_to_json(&document.root, yaml::Schema::V2).unwrap());
    all.filter(|object| object.get("kind").is_some()).collect()
}

/// The server kept every field that was written, under the version that it was written in.
async fn stored_whole(cluster: &Cluster, object: &Value) {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let types = TypeMeta { api_version: text("/apiVersion").to_owned(), kind: text("/kind").to_owned() };
    let api = cluster.dynamic(&types, text("/metadata/namespace")).await.unwrap();
    let found = serde_json::to_value(api.get(text("/metadata/name")).await.unwrap()).unwrap();
    for (key, wanted) in object.as_object().unwrap().iter().filter(|(key, _)| *key != "metadata") {
        if let Some(path) = lost(wanted, &found[key]) {
            panic!("{} {}: {key}{path} was not kept: {found:#}", types.kind, text("/metadata/name"));
        }
    }
}

/// Where `found` lacks something of `wanted`.
fn lost(wanted: &Value, found: &Value) -> Option<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, value)| {
            lost(value, found.get(key).unwrap_or(&Value::Null)).map(|path| format!(".{key}{path}"))
        }),
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let mut pairs = wanted.iter().zip(found).enumerate();
            pairs.find_map(|(at, (wanted, found))| lost(wanted, found).map(|path| format!("[{at}]{path}")))
        }
        // Durations and quantities may be written another way.
        (Value::String(wanted), Value::String(found)) if wanted != found => {
            let same = found.starts_with(wanted.as_str())
                && found[wanted.len()..].chars().all(|one| "0ms".contains(one));
            (!same).then(String::new)
        }
        _ => (wanted != found).then(String::new),
    }
}

async fn ready(cluster: &Cluster, kind: &str, namespace: &str, name: &str) {
    let kind = flux_api::kinds::by_kind(kind).unwrap();
    let types = TypeMeta { api_version: kind.api_version(), kind: kind.kind.to_owned() };
    let api = cluster.dynamic(&types, namespace).await.unwrap();
    let is_ready = |object: &DynamicObject| has_condition(object, "Ready", "True");
    testbed::wait::until(&api, name, PATIENCE, "is ready", is_ready).await.unwrap();
}

/// Nothing of the list is left out in silence.
fn every_command_is_listed(shared: &Path) {
    let text = std::fs::read_to_string(shared.join("commands.md")).unwrap();
    let lines =
        text.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| !line.trim().is_empty());
    let known: Vec<&str> = commands::BEFORE.iter().chain(commands::AFTER).map(|seed| seed.line).collect();
    let missing: Vec<&str> = lines.filter(|line| !known.contains(line)).collect();
    assert!(missing.is_empty(), "commands of the seed documents that no test runs: {missing:#?}");
}
