//! Deployment: a ReplicaSet for each template, rolled over when the template changes.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Player, controlled_by, template_hash, wanted_replicas};
use crate::cluster::crds::set_condition;
use crate::object::{self, integer, text};
use crate::status::Status;

const PLACE: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";
const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) async fn reconcile(player: &Player, deployment: &Value) -> Result<(), Status> {
    if object::is_deleting(deployment) {
        return Ok(());
    }
    let sets = player.owned(SETS, deployment);
    let paused = deployment["spec"]["paused"] == true;
    let current = sets.iter().find(|set| template_of(set) == deployment["spec"]["template"]).cloned();
    let Some(current) = current else {
        if paused {
            return Ok(());
        }
        let revision = sets.iter().map(revision_of).max().unwrap_or(0) + 1;
        return make_set(player, deployment, revision).await;
    };
    roll(player, deployment, &current, &sets).await?;
    forget_old_sets(player, deployment, &current, &sets).await?;
    write_status(player, deployment, &current, &player.owned(SETS, deployment)).await
}

fn revision_of(set: &Value) -> i64 {
    object::annotation(set, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The template without the label that tells the sets apart.
fn template_of(set: &Value) -> Value {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
        if labels.is_empty()
            && let Some(meta) = template["metadata"].as_object_mut()
        {
            meta.remove("labels");
        }
    }
    template
}

async fn make_set(player: &Player, deployment: &Value, revision: i64) -> Result<(), Status> {
    let mut template = deployment["spec"]["template"].clone();
    let hash = template_hash(&template);
    object::map_in(object::meta_mut(&mut template), "labels").insert(HASH.into(), hash.as_str().into());
    let mut selector = deployment["spec"]["selector"].clone();
    object::child_mut(&mut selector, "matchLabels").insert(HASH.into(), hash.as_str().into());
    let mut annotations = object::meta(deployment).get("annotations").cloned().unwrap_or_else(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.insert(REVISION.into(), revision.to_string().into());
        let replicas = wanted_replicas(deployment).to_string();
        annotations.insert("deployment.kubernetes.io/desired-replicas".into(), replicas.into());
    }
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", object::name(deployment)), "namespace": object::namespace(deployment),
            "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": controlled_by(deployment),
        },
        "spec": {
            "replicas": 0, "selector": selector, "template": template,
            "minReadySeconds": deployment["spec"]["minReadySeconds"],
        },
    });
    player.create(SETS, set).await?;
    // Through the status, as the real controller does: annotations would count as a change of the desired state.
    let revision = revision.to_string();
    player
        .change(PLACE, deployment, "status", |deployment| {
            let annotations = object::map_in(object::meta_mut(deployment), "annotations");
            annotations.insert(REVISION.into(), revision.as_str().into());
        })
        .await
}

/// New pods first, then old ones go; `Recreate` the other way round.
async fn roll(player: &Player, deployment: &Value, current: &Value, sets: &[Value]) -> Result<(), Status> {
    let wanted = wanted_replicas(deployment);
    let old: Vec<&Value> = sets.iter().filter(|set| object::uid(set) != object::uid(current)).collect();
    let old_running = old.iter().any(|set| integer(set, "/status/replicas").unwrap_or(0) > 0);
    let recreate = text(deployment, "/spec/strategy/type") == "Recreate";
    let ready = integer(current, "/status/readyReplicas").unwrap_or(0);
    if recreate || ready >= i64::try_from(wanted).unwrap_or(i64::MAX) {
        for set in &old {
            scale(player, set, 0).await?;
        }
    }
    if !(recreate && old_running) {
        scale(player, current, wanted).await?;
    }
    Ok(())
}

async fn scale(player: &Player, set: &Value, wanted: usize) -> Result<(), Status> {
    if wanted_replicas(set) == wanted {
        return Ok(());
    }
    player.change(SETS, set, "", |set| set["spec"]["replicas"] = wanted.into()).await
}

async fn forget_old_sets(
    player: &Player,
    deployment: &Value,
    current: &Value,
    sets: &[Value],
) -> Result<(), Status> {
    let keep =
        integer(deployment, "/spec/revisionHistoryLimit").and_then(|n| usize::try_from(n).ok()).unwrap_or(10);
    let mut old: Vec<&Value> = sets
        .iter()
        .filter(|set| object::uid(set) != object::uid(current) && !object::is_deleting(set))
        .filter(|set| wanted_replicas(set) == 0 && integer(set, "/status/replicas").unwrap_or(0) == 0)
        .collect();
    old.sort_by_key(|set| revision_of(set));
    let surplus = old.len().saturating_sub(keep);
    for set in &old[..surplus] {
        player.delete(SETS, set, None).await?;
    }
    Ok(())
}

struct Counts {
    replicas: i64,
    updated: i64,
    ready: i64,
    wanted: i64,
}

async fn write_status(
    player: &Player,
    deployment: &Value,
    current: &Value,
    sets: &[Value],
) -> Result<(), Status> {
    let count = |set: &Value, key: &str| integer(set, &format!("/status/{key}")).unwrap_or(0);
    let total = |key: &str| sets.iter().map(|set| count(set, key)).sum::<i64>();
    let counts = Counts {
        replicas: total("replicas"),
        updated: sets
            .iter()
            .find(|set| object::uid(set) == object::uid(current))
            .map_or(0, |set| count(set, "replicas")),
        ready: total("readyReplicas"),
        wanted: i64::try_from(wanted_replicas(deployment)).unwrap_or(i64::MAX),
    };
    let now = player.server.now();
    let set_name = object::name(current).to_owned();
    let mut deadline = None;
    let timed_out = timed_out(player, deployment, &mut deadline);
    player
        .change(PLACE, deployment, "status", |deployment| {
            fill_status(deployment, &counts, &set_name, timed_out, &now)
        })
        .await?;
    if let Some(deadline) = deadline {
        let key = format!("{}/{}", object::namespace(deployment), object::name(deployment));
        player.again((PLACE.into(), key.into()), deadline);
    }
    Ok(())
}

/// Whether the rollout took longer than it may; else when to look again.
fn timed_out(player: &Player, deployment: &Value, deadline: &mut Option<Duration>) -> bool {
    let conditions = deployment["status"]["conditions"].as_array();
    let progressing = conditions.into_iter().flatten().find(|c| text(c, "/type") == "Progressing");
    let Some(progressing) = progressing else { return false };
    match text(progressing, "/reason") {
        "ProgressDeadlineExceeded" => return true,
        "NewReplicaSetAvailable" => return false,
        _ => {}
    }
    let limit = integer(deployment, "/spec/progressDeadlineSeconds").unwrap_or(600);
    let Ok(since) = text(progressing, "/lastUpdateTime").parse::<jiff::Timestamp>() else { return false };
    let spent = player.server.time().as_second() - since.as_second();
    if spent >= limit {
        return true;
    }
    *deadline = u64::try_from(limit - spent).ok().map(|seconds| Duration::from_secs(seconds.min(3600) + 1));
    false
}

fn fill_status(deployment: &mut Value, counts: &Counts, set: &str, timed_out: bool, now: &str) {
    let generation = integer(deployment, "/metadata/generation").unwrap_or(1);
    let observed = integer(deployment, "/status/observedGeneration").unwrap_or(0);
    let status = object::child_mut(deployment, "status");
    status.insert("observedGeneration".into(), generation.into());
    let unavailable = (counts.wanted.max(counts.replicas) - counts.ready).max(0);
    for (key, count) in [
        ("replicas", counts.replicas),
        ("updatedReplicas", counts.updated),
        ("readyReplicas", counts.ready),
        ("availableReplicas", counts.ready),
        ("unavailableReplicas", unavailable),
    ] {
        match count {
            0 => drop(status.remove(key)),
            count => drop(status.insert(key.into(), count.into())),
        }
    }
    let complete =
        counts.updated == counts.wanted && counts.ready == counts.wanted && counts.replicas == counts.wanted;
    // Kubernetes counts a Deployment as available while at most maxUnavailable (a quarter, rounded down) is missing.
    let available = counts.ready >= counts.wanted - counts.wanted / 4;
    let progressing = |status: &str, reason: &str, message: String| json!({ "type": "Progressing", "status": status, "reason": reason, "message": message, "lastUpdateTime": now });
    let wanted = match (complete, timed_out && observed == generation) {
        (true, _) => progressing(
            "True",
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{set}\" has successfully progressed."),
        ),
        (false, true) => progressing(
            "False",
            "ProgressDeadlineExceeded",
            format!("ReplicaSet \"{set}\" has timed out progressing."),
        ),
        (false, false) => {
            progressing("True", "ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing."))
        }
    };
    let availability = match available {
        true => {
            json!({ "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability.", "lastUpdateTime": now })
        }
        false => {
            json!({ "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "Deployment does not have minimum availability.", "lastUpdateTime": now })
        }
    };
    for condition in [availability, wanted] {
        let same = status.get("conditions").and_then(Value::as_array).into_iter().flatten().any(|old| {
            ["type", "status", "reason", "message"].iter().all(|key| old[*key] == condition[*key])
        });
        // Unchanged conditions keep their times, so that an idle Deployment is not written again and again.
        if !same {
            set_condition(status, condition, now);
        }
    }
}
