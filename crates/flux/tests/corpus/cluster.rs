//! A cluster of its own for each worker: the embedded API server, Flux's CRDs, no controllers; and stand-ins for controllers.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::objects::Objects;

const REQUESTED: &str = "/metadata/annotations/reconcile.fluxcd.io~1requestedAt";

pub struct Cluster {
    server: apiserver::Handle,
    pub kubeconfig: String,
    pub objects: Arc<Objects>,
}

impl Cluster {
    pub async fn start() -> Cluster {
        let cluster = Cluster::empty().await;
        for mut crd in flux_api::crds::all() {
            // As the recorded runs had them.
            crd["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "flux"});
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let created = cluster.objects.request("POST", path, "application/json", &crd).await;
            assert!(created.is_fine(), "{:?}", created.body);
        }
        for kind in flux_api::kinds::ALL {
            cluster.served(kind).await;
        }
        cluster
    }

    /// Waits until the kind of a definition can be asked for.
    async fn served(&self, kind: &flux_api::kinds::Kind) {
        let path = format!("/apis/{}", kind.api_version());
        for _ in 0..1000 {
            let listed = self.objects.request("GET", &path, "application/json", &Value::Null).await;
            let resources = listed.body["resources"].as_array().cloned().unwrap_or_default();
            if resources.iter().any(|one| one["name"] == kind.plural) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} is not served", kind.kind);
    }

    /// Without the CRDs, and with Deployments that become ready.
    pub async fn with_workloads() -> Cluster {
        Cluster::serve(apiserver::Simulation::On { delay: Duration::ZERO }).await
    }

    /// Without the CRDs.
    async fn empty() -> Cluster {
        Cluster::serve(apiserver::Simulation::Off).await
    }

    async fn serve(workloads: apiserver::Simulation) -> Cluster {
        let server = apiserver::Server::builder().simulation(workloads).start().await.unwrap();
        let listening = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
        let objects = Arc::new(Objects::new(Client::new(server.service(), "default")));
        Cluster { kubeconfig: listening.kubeconfig(), server, objects }
    }

    pub async fn version(&self) -> String {
        let answer = self.objects.request("GET", "/version", "application/json", &Value::Null).await;
        answer.body["gitVersion"].as_str().unwrap_or_default().trim_start_matches('v').to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

/// Writes a status once, as soon as the object exists (and was asked to reconcile, where the status tells of that).
pub async fn write_once(objects: Arc<Objects>, step: Value, now: String) {
    loop {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let Some(mut live) = objects.get(&named(&step)).await else { continue };
        let mut status = observed(&step["status"], &live, &now);
        if status["lastHandledReconcileAt"] == "__annotation__" {
            let Some(requested) = live.pointer(REQUESTED).cloned() else { continue };
            status["lastHandledReconcileAt"] = requested;
        }
        live["status"] = status;
        if objects.put_status(&live).await.is_fine() {
            return;
        }
    }
}

/// Keeps writing the statuses of objects that are not suspended and whose spec or annotation moved on.
pub async fn stand_in(objects: Arc<Objects>, listed: Vec<Value>, now: String) {
    loop {
        for wanted in &listed {
            let object = named(wanted);
            let Some(mut live) = objects.get(&object).await else {
                if wanted["create"].is_object() {
                    let mut object = object;
                    object["spec"] = wanted["create"].clone();
                    objects.create(&object).await;
                }
                continue;
            };
            let requested = live.pointer(REQUESTED).and_then(Value::as_str).unwrap_or_default().to_owned();
            let handled = live["status"]["lastHandledReconcileAt"].as_str().unwrap_or_default().to_owned();
            let seen = live["status"]["observedGeneration"] == live["metadata"]["generation"];
            if live["spec"]["suspend"] == true || (seen && requested == handled) {
                continue;
            }
            let mut status = observed(&wanted["status"], &live, &now);
            if !requested.is_empty() {
                status["lastHandledReconcileAt"] = requested.into();
            }
            live["status"] = status;
            objects.put_status(&live).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn named(step: &Value) -> Value {
    json!({
        "apiVersion": step["apiVersion"], "kind": step["kind"],
        "metadata": { "name": step["name"], "namespace": step["namespace"] },
    })
}

fn observed(status: &Value, live: &Value, now: &str) -> Value {
    let mut status = status.clone();
    let generation = &live["metadata"]["generation"];
    status["observedGeneration"] = generation.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["observedGeneration"] = generation.clone();
        if condition["lastTransitionTime"].is_null() {
            condition["lastTransitionTime"] = now.into();
        }
    }
    status
}

/// Tasks that end with the case.
#[derive(Default)]
pub struct Background(Vec<JoinHandle<()>>);

impl Background {
    pub fn add(&mut self, task: JoinHandle<()>) {
        self.0.push(task);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}
