//! Lines that a person types at a cluster where our controllers are at work, and objects for them.

#![allow(dead_code, reason = "not every test types every kind of line")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use flux_api::kinds::Kind;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;

pub const NAMESPACE: &str = "flux-system";

pub struct Flux<'a> {
    pub program: &'a Path,
    pub kubeconfig: &'a Path,
    pub folder: &'a Path,
}

impl Flux<'_> {
    pub fn run(&self, line: &str) -> Output {
        tokio::task::block_in_place(|| {
            Command::new(self.program)
                .args(line.split(' ').skip(1))
                .current_dir(self.folder)
                .env("KUBECONFIG", self.kubeconfig)
                .env("HOME", self.folder)
                .env("TZ", "UTC")
                .output()
                .unwrap()
        })
    }

    /// Runs the line; it succeeds, and what it says holds all of this.
    pub fn types(&self, line: &str, wanted: &[&str]) {
        let output = self.run(line);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let who = self.program.display();
        assert!(output.status.success(), "{who}: {line}: {said}");
        for text in wanted {
            assert!(said.contains(text), "{who}: {line}: no {text:?} in {said}");
        }
    }
}

impl Flux<'_> {
    /// Runs the line; it ends with exit code 1, and what it says holds all of this.
    pub fn fails(&self, line: &str, wanted: &[&str]) {
        let output = self.run(line);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        for text in wanted {
            assert!(said.contains(text), "{line}: no {text:?} in {said}");
        }
    }
}

pub fn api(cluster: &Cluster, kind: &Kind) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.client(), NAMESPACE, &flux_controllers::reconcile::resource(kind))
}

pub async fn apply(cluster: &Cluster, kind: &Kind, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    let parameters = PatchParams::apply("test").force();
    api(cluster, kind).patch(name, &parameters, &Patch::Apply(object)).await.unwrap();
}

pub async fn ready(cluster: &Cluster, kind: &Kind, name: &str) {
    let is_ready = |object: &DynamicObject| testbed::cluster::has_condition(object, "Ready", "True");
    testbed::wait::until(&api(cluster, kind), name, Duration::from_secs(30), "is ready", is_ready)
        .await
        .unwrap();
}
