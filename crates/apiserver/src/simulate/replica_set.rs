//! ReplicaSet: as many pods as it wants.

use serde_json::{Value, json};

use super::{Player, pods, wanted_replicas};
use crate::object;
use crate::status::Status;

pub(super) async fn reconcile(player: &Player, set: &Value) -> Result<(), Status> {
    if object::is_deleting(set) {
        return Ok(());
    }
    let wanted = wanted_replicas(set);
    let mut active = pods::active(player.owned("pods", set));
    for _ in active.len()..wanted {
        let mut pod = pods::from_template(set, &set["spec"]["template"], "");
        let name = crate::rest::create::generate_name(object::meta_str(&pod, "generateName"));
        object::set_meta(&mut pod, "name", Some(name.into()));
        player.create("pods", pod).await?;
    }
    if active.len() > wanted {
        // Those that are not ready go first.
        active.sort_by_key(pods::is_ready);
        for pod in &active[..active.len() - wanted] {
            player.delete("pods", pod, Some(0)).await?;
        }
    }
    let active = pods::active(player.owned("pods", set));
    let ready = pods::ready_count(&active);
    let generation = object::integer(set, "/metadata/generation").unwrap_or(1);
    player
        .change("replicasets.apps", set, "status", |set| {
            let mut status = json!({ "replicas": active.len(), "observedGeneration": generation });
            for (key, count) in [
                ("fullyLabeledReplicas", active.len()),
                ("readyReplicas", ready),
                ("availableReplicas", ready),
            ] {
                if count > 0 {
                    status[key] = count.into();
                }
            }
            set["status"] = status;
        })
        .await?;
    requeue_owner(player, set);
    Ok(())
}

/// The Deployment counts what its sets have.
fn requeue_owner(player: &Player, set: &Value) {
    for owner in object::meta(set).get("ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        if object::text(owner, "/kind") == "Deployment" {
            let key = format!("{}/{}", object::namespace(set), object::text(owner, "/name"));
            player.server.controllers.workloads.add(("deployments.apps".into(), key.into()));
        }
    }
}
