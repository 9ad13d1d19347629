//! The one node everything runs on.

use serde_json::json;

use super::Player;

pub(super) const NAME: &str = "simulated";

pub(super) async fn ensure(player: &Player) {
    let now = player.server.now();
    let capacity = json!({ "cpu": "64", "memory": "256Gi", "pods": "10000", "ephemeral-storage": "1Ti" });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": NAME, "labels": {
            "kubernetes.io/hostname": NAME, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        } },
        "spec": {},
    });
    let status = json!({
        "capacity": capacity, "allocatable": capacity,
        "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }, { "type": "Hostname", "address": NAME }],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastTransitionTime": now, "lastHeartbeatTime": now,
        }],
        "nodeInfo": {
            "kubeletVersion": "v1.36.3", "osImage": "simulated", "kernelVersion": "", "containerRuntimeVersion": "simulated://1",
            "architecture": "amd64", "operatingSystem": "linux", "bootID": "", "machineID": "", "systemUUID": "",
            "kubeProxyVersion": "",
        },
    });
    let made = player.create("nodes", node.clone()).await;
    let told = player.change("nodes", &node, "status", |node| node["status"] = status.clone()).await;
    // Admission marks a new node as not ready; whoever finds it ready takes the mark off.
    let untainted = player.change("nodes", &node, "", |node| {
        if let Some(spec) = node["spec"].as_object_mut() {
            spec.remove("taints");
        }
    });
    if let Err(status) = made.and(told).and(untainted.await) {
        tracing::warn!(reason = status.reason, "the simulated node could not be written");
    }
}
