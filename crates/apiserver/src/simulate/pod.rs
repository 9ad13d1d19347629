//! A pod's life: scheduled at once, ready after the delay, finished if it is a job's; or stuck, when its annotation
//! says so.

use serde_json::{Value, json};

use super::{Player, node};
use crate::object::{self, text};
use crate::status::Status;

/// What a pod does instead of becoming ready.
const ANNOTATION: &str = "testbed/pod";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Ready,
    Pending,
    Crash,
    ImagePull,
    Fail,
}

impl Fate {
    fn of(pod: &Value) -> Fate {
        match object::annotation(pod, ANNOTATION) {
            Some("pending") => Fate::Pending,
            Some("crash") => Fate::Crash,
            Some("image-pull") => Fate::ImagePull,
            Some("fail") => Fate::Fail,
            _ => Fate::Ready,
        }
    }
}

pub(super) async fn reconcile(player: &Player, pod: &Value) -> Result<(), Status> {
    if object::is_deleting(pod) {
        return match object::finalizers(pod).is_empty() {
            true => player.delete("pods", pod, Some(0)).await,
            false => Ok(()),
        };
    }
    if text(pod, "/spec/nodeName").is_empty() {
        return schedule(player, pod).await;
    }
    let stage = next_stage(pod);
    let Some(stage) = stage else { return Ok(()) };
    if waited(player, pod) {
        let now = player.server.now();
        return player.change("pods", pod, "status", |pod| pod["status"] = status(pod, stage, &now)).await;
    }
    let key = (("pods").into(), format!("{}/{}", object::namespace(pod), object::name(pod)).into());
    player.again(key, player.delay);
    if text(pod, "/status/startTime").is_empty() {
        let now = player.server.now();
        return player.change("pods", pod, "status", |pod| pod["status"] = starting(pod, &now)).await;
    }
    Ok(())
}

async fn schedule(player: &Player, pod: &Value) -> Result<(), Status> {
    player.change("pods", pod, "", |pod| pod["spec"]["nodeName"] = node::NAME.into()).await
}

/// Whether the pod has spent the delay where it is. Times have seconds only, so a short delay is spent by being asked twice.
fn waited(player: &Player, pod: &Value) -> bool {
    let start = text(pod, "/status/startTime");
    let Ok(start) = start.parse::<jiff::Timestamp>() else { return player.delay.is_zero() };
    let spent = player.server.time().duration_since(start);
    spent.as_millis() >= i128::try_from(player.delay.as_millis()).unwrap_or(0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Succeeded,
    Failed,
    CrashLoop,
    ImagePullBackOff,
}

fn next_stage(pod: &Value) -> Option<Stage> {
    let runs_once = text(pod, "/spec/restartPolicy") != "Always";
    let phase = text(pod, "/status/phase");
    let waiting = text(pod, "/status/containerStatuses/0/state/waiting/reason");
    match (Fate::of(pod), phase) {
        (_, "Succeeded" | "Failed") => None,
        (Fate::Pending, _) => None,
        (Fate::ImagePull, _) => (waiting != "ImagePullBackOff").then_some(Stage::ImagePullBackOff),
        (Fate::Fail, _) if runs_once => Some(Stage::Failed),
        (Fate::Crash | Fate::Fail, _) => (waiting != "CrashLoopBackOff").then_some(Stage::CrashLoop),
        (Fate::Ready, _) if runs_once => Some(Stage::Succeeded),
        (Fate::Ready, "Running") => None,
        (Fate::Ready, _) => Some(Stage::Running),
    }
}

fn condition(kind: &str, status: bool, now: &str, reason: &str) -> Value {
    let mut condition =
        json!({ "type": kind, "status": if status { "True" } else { "False" }, "lastTransitionTime": now });
    if !reason.is_empty() {
        condition["reason"] = reason.into();
    }
    condition
}

/// Conditions that others have set on the pod stay, as a kubelet leaves them.
fn with_conditions_of_others(mut status: Value, pod: &Value) -> Value {
    let own = |condition: &&Value| {
        matches!(
            text(condition, "/type"),
            "PodReadyToStartContainers" | "Initialized" | "Ready" | "ContainersReady" | "PodScheduled"
        )
    };
    let others = pod["status"]["conditions"].as_array().into_iter().flatten();
    let others: Vec<Value> = others.filter(|condition| !own(condition)).cloned().collect();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.extend(others);
    }
    status
}

fn base(pod: &Value, phase: &str, ready: bool, reason: &str, now: &str) -> Value {
    let start = match text(pod, "/status/startTime") {
        "" => now,
        start => start,
    };
    let status = json!({
        "phase": phase, "startTime": start, "hostIP": "192.0.2.1", "hostIPs": [{ "ip": "192.0.2.1" }],
        "qosClass": "BestEffort", "observedGeneration": object::integer(pod, "/metadata/generation").unwrap_or(1),
        "conditions": [
            condition("PodReadyToStartContainers", true, now, ""), condition("Initialized", true, now, ""),
            condition("Ready", ready, now, reason), condition("ContainersReady", ready, now, reason),
            condition("PodScheduled", true, now, ""),
        ],
    });
    with_conditions_of_others(status, pod)
}

fn starting(pod: &Value, now: &str) -> Value {
    let mut status = base(pod, "Pending", false, "ContainersNotReady", now);
    let waiting = json!({ "waiting": { "reason": "ContainerCreating" } });
    status["containerStatuses"] = containers(pod, &waiting, false, 0);
    status
}

fn containers(pod: &Value, state: &Value, ready: bool, restarts: i64) -> Value {
    let list = pod["spec"]["containers"].as_array().into_iter().flatten();
    list.map(|container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": ready,
            "restartCount": restarts, "started": ready, "state": state, "lastState": {},
        })
    })
    .collect()
}

fn status(pod: &Value, stage: Stage, now: &str) -> Value {
    let start = match text(pod, "/status/startTime") {
        "" => now,
        start => start,
    };
    let terminated = |reason: &str, code: i64| json!({ "terminated": { "reason": reason, "exitCode": code, "startedAt": start, "finishedAt": now } });
    let (mut status, list) = match stage {
        Stage::Running => {
            let running = json!({ "running": { "startedAt": now } });
            (base(pod, "Running", true, "", now), containers(pod, &running, true, 0))
        }
        Stage::Succeeded => (
            base(pod, "Succeeded", false, "PodCompleted", now),
            containers(pod, &terminated("Completed", 0), false, 0),
        ),
        Stage::Failed => {
            (base(pod, "Failed", false, "PodFailed", now), containers(pod, &terminated("Error", 1), false, 0))
        }
        Stage::CrashLoop => {
            let message = "back-off 10s restarting failed container";
            let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } });
            (base(pod, "Running", false, "ContainersNotReady", now), containers(pod, &waiting, false, 1))
        }
        Stage::ImagePullBackOff => {
            let image = text(pod, "/spec/containers/0/image");
            let message = format!("Back-off pulling image \"{image}\"");
            let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": message } });
            (base(pod, "Pending", false, "ContainersNotReady", now), containers(pod, &waiting, false, 0))
        }
    };
    status["containerStatuses"] = list;
    if stage == Stage::Running {
        let hash = super::template_hash(&json!(object::uid(pod)))
            .bytes()
            .fold(1u32, |hash, byte| hash.wrapping_mul(31) + u32::from(byte));
        let ip = format!("10.244.{}.{}", hash >> 8 & 0xff, hash % 250 + 1);
        status["podIP"] = ip.as_str().into();
        status["podIPs"] = json!([{ "ip": ip }]);
    }
    status
}
