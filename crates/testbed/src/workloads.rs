//! Plays scheduler, kubelet, volume provisioner and load balancer for a control plane that has none of them.
//!
//! Pods become ready, or fail on request, so that the controller manager makes Deployments, StatefulSets and
//! Jobs ready or failed as on a real cluster. What a Pod does is told by an annotation on it, that is, on the
//! template of its owner: `testbed/pod: ready` (the default), `crash`, `pending`; for the Pod of a Job `fail`.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::http_server::runtime;

/// The annotation that says what a Pod does.
pub const ANNOTATION: &str = "testbed/pod";
const FIELD_MANAGER: &str = "testbed-workloads";

/// A running simulation; it ends when this value is dropped.
pub struct Workloads {
    playing: AbortHandle,
}

impl Workloads {
    /// Plays the workloads of the whole cluster that `config` leads to.
    pub fn start(config: Config) -> Result<Self> {
        // The client belongs to the servers' runtime, so that a test that blocks does not stop the Pods.
        let _guard = runtime().enter();
        let client = Client::try_from(config)?;
        Ok(Self::with(client))
    }

    /// The same with a client of the servers' runtime or, for an in-process server, of any.
    pub fn with(client: Client) -> Self {
        let playing = runtime().spawn(async move {
            tokio::join!(
                follow(Api::<Pod>::all(client.clone()), play_pod, &client),
                follow(Api::<PersistentVolumeClaim>::all(client.clone()), provision, &client),
                follow(Api::<Service>::all(client.clone()), balance, &client),
            );
        });
        Self { playing: playing.abort_handle() }
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        self.playing.abort();
    }
}

/// Calls `play` for every object, at first and after each change.
async fn follow<K, F>(api: Api<K>, play: fn(K, Client) -> F, client: &Client)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
    F: Future<Output = Result<(), kube::Error>>,
{
    let objects = watcher::watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut objects = std::pin::pin!(objects);
    while let Some(object) = next(&mut objects).await {
        // Another version of the object is on its way if this one was outdated or is gone.
        let _ = play(object, client.clone()).await;
    }
}

/// The next object; the watcher itself recovers from errors.
async fn next<K>(objects: &mut (impl Stream<Item = watcher::Result<K>> + Unpin)) -> Option<K> {
    loop {
        match objects.next().await? {
            Ok(object) => return Some(object),
            Err(_) => continue,
        }
    }
}

async fn play_pod(pod: Pod, client: Client) -> Result<(), kube::Error> {
    let Some(status) = status_of(&pod) else {
        return Ok(());
    };
    let namespace = pod.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let patch = json!({"metadata": {"resourceVersion": pod.resource_version()}, "status": status});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    pods.patch_status(&pod.name_any(), &params, &Patch::Merge(patch)).await?;
    Ok(())
}

/// What a kubelet would report about a Pod; none if it has been reported, or if nothing happens to it.
fn status_of(pod: &Pod) -> Option<Value> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let waiting = pod.status.as_ref().is_some_and(|status| status.container_statuses.is_some());
    if pod.metadata.deletion_timestamp.is_some() || phase != Some("Pending") || waiting {
        return None;
    }
    let behaviour = pod.annotations().get(ANNOTATION).map_or("ready", String::as_str);
    let of_a_job = pod.owner_references().iter().any(|owner| owner.kind == "Job");
    match (behaviour, of_a_job) {
        ("pending", _) => None,
        ("fail", true) => Some(finished(pod, "Failed", 1)),
        ("crash" | "fail", _) => Some(crashing(pod)),
        (_, true) => Some(finished(pod, "Succeeded", 0)),
        (_, false) => Some(running(pod)),
    }
}

fn running(pod: &Pod) -> Value {
    let state = json!({"running": {"startedAt": now(pod)}});
    json!({
        "phase": "Running",
        "conditions": conditions(pod, true),
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": now(pod),
        "containerStatuses": containers(pod, &state, true),
    })
}

fn crashing(pod: &Pod) -> Value {
    let state =
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}});
    json!({
        "phase": "Pending",
        "conditions": conditions(pod, false),
        "startTime": now(pod),
        "containerStatuses": containers(pod, &state, false),
    })
}

fn finished(pod: &Pod, phase: &str, code: i32) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    let state = json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": now(pod), "finishedAt": now(pod),
    }});
    json!({
        "phase": phase,
        "conditions": conditions(pod, false),
        "startTime": now(pod),
        "containerStatuses": containers(pod, &state, false),
    })
}

fn conditions(pod: &Pod, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    let condition =
        |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now(pod)});
    json!([
        condition("PodScheduled", "True"),
        condition("Initialized", "True"),
        condition("ContainersReady", ready),
        condition("Ready", ready),
    ])
}

fn containers(pod: &Pod, state: &Value, ready: bool) -> Vec<Value> {
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    containers
        .iter()
        .map(|container| {
            json!({
                "name": container.name,
                "image": container.image.clone().unwrap_or_default(),
                "imageID": "",
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": state,
            })
        })
        .collect()
}

/// Everything about a Pod happens when it is made: simulated containers start at once.
fn now(pod: &Pod) -> Value {
    json!(pod.metadata.creation_timestamp)
}

/// Gives a claim a volume of its own; the controller manager binds the two.
async fn provision(claim: PersistentVolumeClaim, client: Client) -> Result<(), kube::Error> {
    let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    if bound || claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let volumes: Api<PersistentVolume> = Api::all(client);
    let volume = volume_for(&claim);
    match serde_json::from_value(volume) {
        Ok(volume) => match volumes.create(&PostParams::default(), &volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            result => result.map(|_| ()),
        },
        Err(error) => Err(kube::Error::SerdeError(error)),
    }
}

fn volume_for(claim: &PersistentVolumeClaim) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests);
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("testbed-{}", claim.uid().unwrap_or_default())},
        "spec": {
            "capacity": requests.map_or_else(|| json!({"storage": "1Gi"}), |requests: BTreeMap<_, _>| json!(requests)),
            "accessModes": spec.access_modes.unwrap_or_default(),
            "volumeMode": spec.volume_mode,
            "storageClassName": spec.storage_class_name.unwrap_or_default(),
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": "/nowhere"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(),
                "name": claim.name_any(),
                "uid": claim.uid(),
            },
        },
    })
}

/// Gives a Service of type LoadBalancer an address.
async fn balance(service: Service, client: Client) -> Result<(), kube::Error> {
    let balanced = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
    let addressed = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .is_some_and(|balancer| balancer.ingress.is_some());
    if !balanced || addressed || service.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let namespace = service.namespace().unwrap_or_default();
    let services: Api<Service> = Api::namespaced(client, &namespace);
    let patch = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    services.patch_status(&service.name_any(), &params, &Patch::Merge(patch)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotation: Option<&str>, owner: &str) -> Pod {
        let annotations = annotation.map(|value| json!({ANNOTATION: value}));
        serde_json::from_value(json!({
            "metadata": {
                "name": "a",
                "annotations": annotations,
                "ownerReferences": [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "u"}],
            },
            "spec": {"containers": [{"name": "app", "image": "app:1"}]},
            "status": {"phase": "Pending"},
        }))
        .unwrap()
    }

    fn phase(annotation: Option<&str>, owner: &str) -> Option<Value> {
        status_of(&pod(annotation, owner)).map(|status| status["phase"].clone())
    }

    #[test]
    fn pods_run_jobs_finish_and_annotations_change_that() {
        assert_eq!(phase(None, "ReplicaSet"), Some(json!("Running")));
        assert_eq!(phase(None, "Job"), Some(json!("Succeeded")));
        assert_eq!(phase(Some("fail"), "Job"), Some(json!("Failed")));
        assert_eq!(phase(Some("pending"), "ReplicaSet"), None);
        let crashing = status_of(&pod(Some("crash"), "ReplicaSet")).unwrap();
        let reason = &crashing["containerStatuses"][0]["state"]["waiting"]["reason"];
        assert_eq!(reason, "CrashLoopBackOff");
    }

    #[test]
    fn a_pod_that_has_been_played_is_left_alone() {
        let mut played = pod(None, "ReplicaSet");
        let status = status_of(&played).unwrap();
        played.status = serde_json::from_value(status).unwrap();
        assert_eq!(status_of(&played), None);
    }
}
