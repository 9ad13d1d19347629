//! Claims are bound to volumes made for them, and load balancers get an address.

use serde_json::{Value, json};

use super::Player;
use crate::object::{self, text};
use crate::status::Status;

pub(super) async fn claim(player: &Player, claim: &Value) -> Result<(), Status> {
    if object::is_deleting(claim) || text(claim, "/status/phase") == "Bound" {
        return Ok(());
    }
    let (namespace, name, uid) = (object::namespace(claim), object::name(claim), object::uid(claim));
    let wanted = text(claim, "/spec/volumeName");
    let volume = if wanted.is_empty() { format!("pvc-{uid}") } else { wanted.to_owned() };
    let capacity = json!({ "storage": text(claim, "/spec/resources/requests/storage") });
    if wanted.is_empty() {
        let class = text(claim, "/spec/storageClassName");
        let mut object = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
            "spec": {
                "capacity": capacity, "accessModes": claim["spec"]["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete", "hostPath": { "path": format!("/simulated/{volume}") },
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid,
                },
            },
        });
        if !class.is_empty() {
            object["spec"]["storageClassName"] = class.into();
        }
        player.create("persistentvolumes", object.clone()).await?;
        player
            .change("persistentvolumes", &object, "status", |volume| {
                volume["status"] = json!({ "phase": "Bound" })
            })
            .await?;
        player
            .change("persistentvolumeclaims", claim, "", |claim| {
                claim["spec"]["volumeName"] = volume.as_str().into()
            })
            .await?;
    }
    let modes = claim["spec"]["accessModes"].clone();
    player
        .change("persistentvolumeclaims", claim, "status", |claim| {
            claim["status"] = json!({ "phase": "Bound", "accessModes": modes, "capacity": capacity });
        })
        .await
}

pub(super) async fn load_balancer(player: &Player, service: &Value) -> Result<(), Status> {
    let has = service.pointer("/status/loadBalancer/ingress/0").is_some();
    if text(service, "/spec/type") != "LoadBalancer" || has || object::is_deleting(service) {
        return Ok(());
    }
    let last = super::template_hash(&json!(object::uid(service)))
        .bytes()
        .fold(7u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    // An address of the block reserved for documentation: it leads nowhere.
    let address = format!("203.0.113.{}", last % 250 + 1);
    player
        .change("services", service, "status", |service| {
            service["status"]["loadBalancer"] = json!({ "ingress": [{ "ip": address, "ipMode": "VIP" }] });
        })
        .await
}
