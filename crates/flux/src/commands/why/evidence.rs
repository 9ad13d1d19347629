//! What speaks for an object being broken: conditions, events, what its Pods wait for, the last lines of their logs. Read
//! with the rights of whoever asks; what may not be read is said.

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::Client;
use kube::api::{Api, ListParams, LogParams};
use serde_json::Value;

use crate::kinds::{namespace, text};

const MOST_EVENTS: usize = 5;
const MOST_PODS: usize = 3;
const LINES: i64 = 10;

/// Lines about `object`, least specific first.
pub(super) async fn of(client: &Client, object: &Value) -> Vec<String> {
    let mut lines = conditions(object);
    lines.extend(events(client, object).await);
    lines.extend(pods(client, object).await);
    lines
}

fn conditions(object: &Value) -> Vec<String> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let all = all.into_iter().flatten().filter(|one| !text(one, "/message").is_empty());
    all.map(|one| {
        let (kind, status) = (text(one, "/type"), text(one, "/status"));
        format!("condition {kind}={status} {}: {}", text(one, "/reason"), text(one, "/message"))
    })
    .collect()
}

async fn events(client: &Client, object: &Value) -> Vec<String> {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let api: Api<Event> = match namespace(object) {
        "" => Api::all(client.clone()),
        namespace => Api::namespaced(client.clone(), namespace),
    };
    let found = match api.list(&ListParams::default().fields(&fields)).await {
        Ok(found) => found.items,
        Err(error) => return vec![format!("events cannot be read: {}", told(&error))],
    };
    let mut warnings: Vec<&Event> =
        found.iter().filter(|event| event.type_.as_deref() == Some("Warning")).collect();
    warnings.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    let newest = warnings.iter().rev().take(MOST_EVENTS).rev();
    newest
        .map(|event| {
            let (reason, message) = (event.reason.as_deref(), event.message.as_deref());
            format!("event {}: {}", reason.unwrap_or_default(), message.unwrap_or_default())
        })
        .collect()
}

async fn pods(client: &Client, object: &Value) -> Vec<String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace(object));
    let found = match text(object, "/kind") {
        "Pod" => api.get_opt(text(object, "/metadata/name")).await.map(|pod| pod.into_iter().collect()),
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => {
            let Some(selector) = selector(object) else { return Vec::new() };
            api.list(&ListParams::default().labels(&selector)).await.map(|list| list.items)
        }
        _ => return Vec::new(),
    };
    let found: Vec<Pod> = match found {
        Ok(found) => found,
        Err(error) => return vec![format!("pods cannot be read: {}", told(&error))],
    };
    let mut lines = Vec::new();
    for pod in found.iter().filter(|pod| !is_ready(pod)).take(MOST_PODS) {
        lines.extend(of_pod(&api, pod).await);
    }
    lines
}

fn selector(object: &Value) -> Option<String> {
    let labels = object.pointer("/spec/selector/matchLabels")?.as_object()?;
    let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    Some(pairs.collect::<Vec<_>>().join(",")).filter(|selector| !selector.is_empty())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|one| one.type_ == "Ready");
    ready.any(|one| one.status == "True")
}

async fn of_pod(api: &Api<Pod>, pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let Some(status) = &pod.status else { return vec![format!("pod {name}: nothing is known of it")] };
    let mut lines = Vec::new();
    for one in
        status.conditions.iter().flatten().filter(|one| one.type_ == "PodScheduled" && one.status == "False")
    {
        lines.push(format!("pod {name} is not scheduled: {}", one.message.as_deref().unwrap_or_default()));
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    for container in containers.filter(|container| !container.ready) {
        let Some(problem) = problem(container) else { continue };
        lines.push(format!("pod {name}, container {}: {problem}", container.name));
        if container.restart_count > 0 || container.started == Some(true) {
            lines.extend(log(api, &name, container).await);
        }
    }
    if lines.is_empty() {
        lines.push(format!("pod {name} is {}", status.phase.as_deref().unwrap_or("not ready")));
    }
    lines
}

/// Why a container does not run.
fn problem(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let (reason, message) = (waiting.reason.as_deref(), waiting.message.as_deref());
        return Some(
            format!("{} {}", reason.unwrap_or("Waiting"), message.unwrap_or_default()).trim().to_owned(),
        );
    }
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    Some(format!("{}, exit code {}", ended.reason.as_deref().unwrap_or("Terminated"), ended.exit_code))
}

async fn log(api: &Api<Pod>, pod: &str, container: &ContainerStatus) -> Vec<String> {
    let parameters = LogParams {
        container: Some(container.name.clone()),
        tail_lines: Some(LINES),
        // What ended is of interest, not what has just been started again.
        previous: container.restart_count > 0,
        ..LogParams::default()
    };
    match api.logs(pod, &parameters).await {
        Ok(text) => text.lines().map(|line| format!("  log: {line}")).collect(),
        Err(error) => vec![format!("  its log cannot be read: {}", told(&error))],
    }
}

fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => crate::session::innermost(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_says_why_it_does_not_run() {
        let container = |state: Value| -> ContainerStatus {
            serde_json::from_value(json!({ "name": "a", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state }))
                .unwrap()
        };
        let told = |state| problem(&container(state)).unwrap_or_default();
        assert_eq!(
            told(json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } })),
            "ImagePullBackOff no such image"
        );
        assert_eq!(told(json!({ "terminated": { "exitCode": 2, "reason": "Error" } })), "Error, exit code 2");
        assert_eq!(told(json!({ "terminated": { "exitCode": 0 } })), "");
    }

    #[test]
    fn a_selector_is_made_of_all_labels() {
        let object = json!({ "spec": { "selector": { "matchLabels": { "a": "b", "c": "d" } } } });
        assert_eq!(selector(&object).as_deref(), Some("a=b,c=d"));
        assert_eq!(selector(&json!({})), None);
    }
}
