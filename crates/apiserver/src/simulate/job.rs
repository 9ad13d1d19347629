//! Job: pods that finish, until enough have.

use serde_json::{Value, json};

use super::{Player, holds, pods};
use crate::cluster::crds::set_condition;
use crate::object::{self, integer, text};
use crate::status::Status;

const PLACE: &str = "jobs.batch";

pub(super) async fn reconcile(player: &Player, job: &Value) -> Result<(), Status> {
    if object::is_deleting(job) || holds(job, "Complete") || holds(job, "Failed") {
        return Ok(());
    }
    let own = player.owned("pods", job);
    let phase = |wanted: &str| own.iter().filter(|pod| text(pod, "/status/phase") == wanted).count();
    let (succeeded, failed) = (phase("Succeeded"), phase("Failed"));
    let active = pods::active(own.clone());
    let number =
        |pointer: &str, default: i64| usize::try_from(integer(job, pointer).unwrap_or(default)).unwrap_or(0);
    let parallelism = number("/spec/parallelism", 1);
    // Without completions one success is enough.
    let completions = number("/spec/completions", 1);
    let limit = number("/spec/backoffLimit", 6);
    let suspended = job["spec"]["suspend"] == true;
    let end = match () {
        () if succeeded >= completions => Some(true),
        () if failed > limit => Some(false),
        () => None,
    };
    if end.is_none() && !suspended {
        let room = parallelism.min(completions - succeeded).saturating_sub(active.len());
        for _ in 0..room {
            let mut pod = pods::from_template(job, &job["spec"]["template"], "");
            let name = crate::rest::create::generate_name(object::meta_str(&pod, "generateName"));
            object::set_meta(&mut pod, "name", Some(name.into()));
            player.create("pods", pod).await?;
        }
    }
    if suspended || end.is_some() {
        for pod in &active {
            player.delete("pods", pod, Some(0)).await?;
        }
    }
    let active = if end.is_some() { 0 } else { pods::active(player.owned("pods", job)).len() };
    let ready = if end.is_some() { 0 } else { pods::ready_count(&pods::active(player.owned("pods", job))) };
    let now = player.server.now();
    player
        .change(PLACE, job, "status", |job| {
            let status = object::child_mut(job, "status");
            if !suspended && !status.contains_key("startTime") {
                status.insert("startTime".into(), now.as_str().into());
            }
            status.insert("ready".into(), ready.into());
            status.insert("terminating".into(), 0.into());
            status.insert("uncountedTerminatedPods".into(), json!({}));
            for (key, count) in [("active", active), ("succeeded", succeeded), ("failed", failed)] {
                match count {
                    0 => drop(status.remove(key)),
                    count => drop(status.insert(key.into(), count.into())),
                }
            }
            match end {
                Some(true) => complete(status, &now),
                Some(false) => fail(status, &now),
                None => {}
            }
        })
        .await
}

fn condition(kind: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": now })
}

fn complete(status: &mut serde_json::Map<String, Value>, now: &str) {
    status.insert("completionTime".into(), now.into());
    for kind in ["SuccessCriteriaMet", "Complete"] {
        let message = "Reached expected number of succeeded pods";
        set_condition(status, condition(kind, "CompletionsReached", message, now), now);
    }
}

fn fail(status: &mut serde_json::Map<String, Value>, now: &str) {
    for kind in ["FailureTarget", "Failed"] {
        let message = "Job has reached the specified backoff limit";
        set_condition(status, condition(kind, "BackoffLimitExceeded", message, now), now);
    }
}
