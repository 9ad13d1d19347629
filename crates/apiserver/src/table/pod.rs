//! The pod row: phase, reasons, restarts, as kubectl users read them every day.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::{or_none, texts};
use crate::object::{self, integer, text};

pub fn row(pod: &Value, now: Timestamp) -> Value {
    let statuses = |key: &str| pod["status"][key].as_array().cloned().unwrap_or_default();
    let (containers, inits) = (statuses("containerStatuses"), statuses("initContainerStatuses"));
    let total = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let ready = containers.iter().filter(|status| status["ready"] == true).count();
    let mut reason = match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    };
    let (mut restarts, mut last_restart) = (0, None::<Timestamp>);
    let mut count = |status: &Value| {
        restarts += status["restartCount"].as_i64().unwrap_or(0);
        let finished = text(status, "/lastState/terminated/finishedAt").parse::<Timestamp>().ok();
        last_restart = last_restart.max(finished);
    };
    let initializing = initializing(pod, &inits);
    if let Some(text) = &initializing {
        inits.iter().for_each(&mut count);
        reason = text.clone();
    } else {
        containers.iter().for_each(&mut count);
        if let Some(found) = container_reason(pod, &containers) {
            reason = found;
        }
    }
    if object::is_deleting(pod) {
        reason =
            if text(pod, "/status/reason") == "NodeLost" { "Unknown".into() } else { "Terminating".into() };
    }
    let restarts = match last_restart {
        Some(then) if restarts > 0 => format!("{restarts} ({} ago)", age::since(&then.to_string(), now)),
        _ => restarts.to_string(),
    };
    let gates = pod["spec"]["readinessGates"].as_array().map_or(0, Vec::len);
    let mut row = json!({ "cells": [
        object::name(pod), format!("{ready}/{total}"), reason, restarts, age::of_object(pod, now),
        or_none(text(pod, "/status/podIP")), or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        if gates == 0 { "<none>".to_owned() } else { format!("{}/{gates}", passed_gates(pod)) },
    ] });
    let phase = text(pod, "/status/phase");
    if matches!(phase, "Succeeded" | "Failed") {
        let message =
            if phase == "Succeeded" { "The pod has completed successfully." } else { "The pod failed." };
        row["conditions"] =
            json!([{ "type": "Completed", "status": "True", "reason": phase, "message": message }]);
    }
    row
}

fn passed_gates(pod: &Value) -> usize {
    let gates = texts(&pod["spec"]["readinessGates"], "/conditionType");
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let holds = |gate: &&String| {
        conditions.iter().any(|c| text(c, "/type") == gate.as_str() && text(c, "/status") == "True")
    };
    gates.iter().filter(holds).count()
}

fn initializing(pod: &Value, inits: &[Value]) -> Option<String> {
    let total = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
    for (at, status) in inits.iter().enumerate() {
        let terminated = &status["state"]["terminated"];
        if !terminated.is_null() {
            match integer(terminated, "/exitCode").unwrap_or(0) {
                0 => continue,
                code => return Some(format!("Init:{}", exit_reason(terminated, code))),
            }
        }
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() && waiting != "PodInitializing" {
            return Some(format!("Init:{waiting}"));
        }
        return Some(format!("Init:{at}/{total}"));
    }
    None
}

fn exit_reason(terminated: &Value, code: i64) -> String {
    match (text(terminated, "/reason"), integer(terminated, "/signal").unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{code}"),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn container_reason(pod: &Value, containers: &[Value]) -> Option<String> {
    let mut reason = None;
    let mut running = false;
    for status in containers.iter().rev() {
        let waiting = text(status, "/state/waiting/reason");
        let terminated = &status["state"]["terminated"];
        if !waiting.is_empty() {
            reason = Some(waiting.to_owned());
        } else if !terminated.is_null() {
            reason = Some(exit_reason(terminated, integer(terminated, "/exitCode").unwrap_or(0)));
        } else if status["ready"] == true && !status["state"]["running"].is_null() {
            running = true;
        }
    }
    if reason.as_deref() == Some("Completed") && running {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True");
        return Some(if ready { "Running".into() } else { "NotReady".into() });
    }
    reason
}
