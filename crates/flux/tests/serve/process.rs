//! A `flux serve` in a namespace of its own, and what it is given to do.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION, Kind};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::git_server::GitServer;
use testbed::process::Supervised;
use testbed::{Cluster, TemporaryNamespace};

const PATIENCE: Duration = Duration::from_secs(90);

/// A namespace and a repository with one manifest in it.
pub struct Fleet {
    pub cluster: Cluster,
    pub namespace: TemporaryNamespace,
    pub server: GitServer,
}

impl Fleet {
    pub async fn new(cluster: &Cluster) -> Self {
        cluster.provide_crds(flux_api::crds::yaml).await.unwrap();
        let namespace = cluster.namespace("serve").await.unwrap().keep();
        let server = GitServer::start().unwrap();
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {key: value}\n";
        server.create("fleet").unwrap().commit("first", &[("app.yaml", text)]).unwrap();
        Self { cluster: cluster.clone(), namespace, server }
    }

    pub fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let resource = flux_controllers::reconcile::resource(kind);
        Api::namespaced_with(self.cluster.client(), self.namespace.name(), &resource)
    }

    pub async fn apply(&self, kind: &Kind, name: &str, labels: Value, spec: Value) {
        let object = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": { "name": name, "labels": labels }, "spec": spec,
        });
        let parameters = PatchParams::apply("story").force();
        self.api(kind).patch(name, &parameters, &Patch::Apply(object)).await.unwrap();
    }

    pub async fn git_repository(&self, name: &str) {
        self.git_repository_at(name, "fleet").await;
    }

    pub async fn git_repository_at(&self, name: &str, repository: &str) {
        let spec = json!({
            "url": self.server.http_url(repository), "interval": "1h", "ref": { "branch": "main" },
        });
        self.apply(&GIT_REPOSITORY, name, json!({}), spec).await;
    }

    pub async fn kustomization(&self, name: &str, labels: Value) {
        let spec = json!({
            "interval": "1h", "prune": true, "path": "./", "targetNamespace": self.namespace.name(),
            "namePrefix": format!("{name}-"), "sourceRef": { "kind": "GitRepository", "name": "fleet" },
        });
        self.apply(&KUSTOMIZATION, name, labels, spec).await;
    }

    pub async fn get(&self, kind: &Kind, name: &str) -> Value {
        serde_json::to_value(self.api(kind).get(name).await.unwrap()).unwrap()
    }

    pub async fn ready(&self, kind: &Kind, name: &str) {
        self.until(kind, name, "True").await;
    }

    /// Waits until Ready has this status.
    pub async fn until(&self, kind: &Kind, name: &str, status: &str) -> Value {
        let is_there = |object: &DynamicObject| {
            let conditions = object.data["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == status)
        };
        let what = format!("has Ready {status}");
        let object = testbed::wait::until(&self.api(kind), name, PATIENCE, &what, is_there).await.unwrap();
        serde_json::to_value(object).unwrap()
    }
}

/// A running `flux serve` with its own listeners and storage.
pub struct Process {
    running: Supervised,
    folder: tempfile::TempDir,
    health: SocketAddr,
    metrics: SocketAddr,
    storage: SocketAddr,
}

/// How a process is told where its listeners and its storage are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Flags,
    Environment,
}

impl Process {
    pub fn start(fleet: &Fleet, flags: &[&str]) -> Self {
        Self::start_as(fleet, "", flags)
    }

    /// `flux serve <controller>`.
    pub fn start_as(fleet: &Fleet, controller: &str, flags: &[&str]) -> Self {
        Self::run(fleet, controller, By::Flags, &[], flags)
    }

    /// The same, with what upstream also reads from the environment told by it.
    pub fn start_by_environment(fleet: &Fleet, controller: &str, variables: &[String]) -> Self {
        Self::run(fleet, controller, By::Environment, variables, &[])
    }

    fn run(fleet: &Fleet, controller: &str, by: By, variables: &[String], flags: &[&str]) -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (health, metrics, storage) = (free(), free(), free());
        let kubeconfig = fleet.cluster.kubeconfig_path().display();
        let mut arguments =
            vec![format!("RUNTIME_NAMESPACE={}", fleet.namespace.name()), format!("KUBECONFIG={kubeconfig}")];
        arguments.extend_from_slice(variables);
        if by == By::Environment {
            arguments.extend([
                format!("METRICS_ADDR={metrics}"),
                format!("STORAGE_PATH={}", folder.path().display()),
                format!("STORAGE_ADDRESS={storage}"),
                format!("STORAGE_ADV_ADDR={storage}"),
            ]);
        }
        arguments.extend([env!("CARGO_BIN_EXE_flux").to_owned(), "serve".to_owned()]);
        arguments.extend(Some(controller.to_owned()).filter(|name| !name.is_empty()));
        arguments.extend(["--watch-all-namespaces=false".to_owned(), format!("--health-addr={health}")]);
        if by == By::Flags {
            arguments.push(format!("--metrics-addr={metrics}"));
        }
        if by == By::Flags && !flags.contains(&"--controllers=kustomize") {
            arguments.push(format!("--storage-path={}", folder.path().display()));
            arguments.push(format!("--storage-addr={storage}"));
            arguments.push(format!("--storage-adv-addr={storage}"));
        }
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let log = folder.path().join("log");
        let running = Supervised::start(Path::new("/usr/bin/env"), arguments, &log).unwrap();
        Self { running, folder, health, metrics, storage }
    }

    /// Where artifacts are served.
    pub fn storage(&self) -> SocketAddr {
        self.storage
    }

    /// Where they are kept.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until a probe answers so.
    pub async fn answers(&mut self, path: &str, status: u16) {
        let started = std::time::Instant::now();
        loop {
            let answer = reqwest::get(format!("http://{}{path}", self.health)).await;
            if answer.is_ok_and(|answer| answer.status() == status) {
                return;
            }
            let failure = self.running.failure().unwrap();
            assert!(failure.is_none(), "{}", failure.unwrap_or_default());
            assert!(started.elapsed() < PATIENCE, "{path} never answered {status}:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn metrics(&self) -> String {
        reqwest::get(format!("http://{}/metrics", self.metrics)).await.unwrap().text().await.unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Told to end, as by Kubernetes.
    pub fn terminate(&mut self) -> ExitStatus {
        self.running.terminate(Duration::from_secs(40)).unwrap()
    }

    /// Gone without a word.
    pub fn kill(&mut self) {
        self.running.stop();
    }
}
