//! StatefulSet: named pods with their claims, one after the other.

use serde_json::{Value, json};

use super::{Player, pods, template_hash, wanted_replicas};
use crate::object::{self, text};
use crate::status::Status;

const PLACE: &str = "statefulsets.apps";
const HASH: &str = "controller-revision-hash";

pub(super) async fn reconcile(player: &Player, set: &Value) -> Result<(), Status> {
    if object::is_deleting(set) {
        return Ok(());
    }
    let wanted = wanted_replicas(set);
    let revision = format!("{}-{}", object::name(set), template_hash(&set["spec"]["template"]));
    let parallel = text(set, "/spec/podManagementPolicy") == "Parallel";
    let existing = player.owned("pods", set);
    let pod = |ordinal: usize| {
        let name = format!("{}-{ordinal}", object::name(set));
        existing.iter().find(|pod| object::name(pod) == name)
    };
    let mut waiting = false;
    for ordinal in 0..wanted {
        match pod(ordinal) {
            None => {
                make_pod(player, set, ordinal, &revision).await?;
                waiting = true;
            }
            Some(pod) if !pods::is_ready(pod) || object::is_deleting(pod) => waiting = true,
            Some(_) => {}
        }
        if waiting && !parallel {
            break;
        }
    }
    for pod in existing.iter().filter(|pod| ordinal_of(set, pod).is_none_or(|ordinal| ordinal >= wanted)) {
        player.delete("pods", pod, Some(0)).await?;
    }
    if !waiting && text(set, "/spec/updateStrategy/type") != "OnDelete" {
        update_one(player, set, &existing, &revision, wanted).await?;
    }
    write_status(player, set, &revision).await
}

fn ordinal_of(set: &Value, pod: &Value) -> Option<usize> {
    object::name(pod).strip_prefix(object::name(set))?.strip_prefix('-')?.parse().ok()
}

async fn make_pod(player: &Player, set: &Value, ordinal: usize, revision: &str) -> Result<(), Status> {
    let name = format!("{}-{ordinal}", object::name(set));
    let mut pod = pods::from_template(set, &set["spec"]["template"], &name);
    let labels = object::map_in(object::meta_mut(&mut pod), "labels");
    for (key, value) in [
        (HASH, revision),
        ("statefulset.kubernetes.io/pod-name", name.as_str()),
        ("apps.kubernetes.io/pod-index", &ordinal.to_string()),
    ] {
        labels.insert(key.into(), value.into());
    }
    pod["spec"]["hostname"] = name.as_str().into();
    pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    for template in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
        let claim_name = format!("{}-{name}", object::name(template));
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": claim_name, "namespace": object::namespace(set),
                "labels": set["spec"]["selector"]["matchLabels"],
            },
            "spec": template["spec"],
        });
        player.create("persistentvolumeclaims", claim).await?;
        let spec = object::child_mut(&mut pod, "spec");
        object::list_in(spec, "volumes").push(
            json!({ "name": object::name(template), "persistentVolumeClaim": { "claimName": claim_name } }),
        );
    }
    player.create("pods", pod).await
}

/// The highest pod of an old revision goes; it comes back new.
async fn update_one(
    player: &Player,
    set: &Value,
    existing: &[Value],
    revision: &str,
    wanted: usize,
) -> Result<(), Status> {
    let partition = object::integer(set, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    let partition = usize::try_from(partition).unwrap_or(0);
    let mut old: Vec<(usize, &Value)> = existing
        .iter()
        .filter(|pod| {
            text(pod, "/metadata/labels/controller-revision-hash") != revision && !object::is_deleting(pod)
        })
        .filter_map(|pod| Some((ordinal_of(set, pod)?, pod)))
        .filter(|(ordinal, _)| *ordinal < wanted && *ordinal >= partition)
        .collect();
    old.sort_by_key(|(ordinal, _)| *ordinal);
    match old.last() {
        Some((_, pod)) => player.delete("pods", pod, Some(0)).await,
        None => Ok(()),
    }
}

async fn write_status(player: &Player, set: &Value, revision: &str) -> Result<(), Status> {
    let active = pods::active(player.owned("pods", set));
    let ready = pods::ready_count(&active);
    let updated = active
        .iter()
        .filter(|pod| text(pod, "/metadata/labels/controller-revision-hash") == revision)
        .count();
    let wanted = wanted_replicas(set);
    let generation = object::integer(set, "/metadata/generation").unwrap_or(1);
    player
        .change(PLACE, set, "status", |set| {
            let done = updated == wanted && ready == wanted;
            let current = match (done, text(set, "/status/currentRevision")) {
                (true, _) | (false, "") => revision.to_owned(),
                (false, current) => current.to_owned(),
            };
            let mut status = json!({
                "observedGeneration": generation, "replicas": active.len(), "collisionCount": 0, "availableReplicas": ready,
                "currentRevision": current, "updateRevision": revision,
            });
            let on_current = if current == revision { updated } else { active.len() - updated };
            for (key, count) in [("readyReplicas", ready), ("updatedReplicas", updated), ("currentReplicas", on_current)] {
                if count > 0 {
                    status[key] = count.into();
                }
            }
            set["status"] = status;
        })
        .await
}
