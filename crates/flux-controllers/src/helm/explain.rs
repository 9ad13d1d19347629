//! Why objects are not ready: what they say themselves, what their Pods wait for, and what the cluster warned about.
//!
//! Neither logs nor values: what is said here is sent to chats and pull requests.

use flux_apply::health::Health;
use flux_apply::{Cluster, ObjectId};
use k8s_openapi::api::core::v1::{ContainerState, Event, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

const MOST_OBJECTS: usize = 10;
const MOST_PODS: usize = 20;
const MOST_LINES: usize = 20;
const LONGEST_LINE: usize = 300;

/// Lines about what is not ready, the most telling first.
pub async fn unready(cluster: &Cluster, objects: &[(&ObjectId, &Health)]) -> Vec<String> {
    let (mut telling, mut rest) = (Vec::new(), Vec::new());
    for (id, health) in objects.iter().take(MOST_OBJECTS) {
        if !health.message.is_empty() {
            rest.push(format!("{id}: {}", health.message));
        }
        if id.namespace.is_empty() {
            continue;
        }
        let pods = pods_of(cluster, id).await;
        for pod in &pods {
            telling.extend(pod_reasons(pod));
        }
        let names: Vec<String> =
            std::iter::once(id.name.clone()).chain(pods.iter().map(ResourceExt::name_any)).collect();
        rest.extend(warnings(&cluster.client, &id.namespace, &names).await);
    }
    telling.dedup();
    telling.extend(rest);
    telling.truncate(MOST_LINES);
    telling.into_iter().map(|line| cut(&line)).collect()
}

async fn pods_of(cluster: &Cluster, id: &ObjectId) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &id.namespace);
    if id.kind == "Pod" && id.group.is_empty() {
        return pods.get(&id.name).await.into_iter().collect();
    }
    let Ok(Some(object)) = cluster.get(id).await else {
        return Vec::new();
    };
    let Some(labels) = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object) else {
        return Vec::new();
    };
    let selector: Vec<String> =
        labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    if selector.is_empty() {
        return Vec::new();
    }
    let parameters = ListParams::default().labels(&selector.join(",")).limit(MOST_PODS as u32);
    pods.list(&parameters).await.map(|list| list.items).unwrap_or_default()
}

fn pod_reasons(pod: &Pod) -> Vec<String> {
    let name = pod.name_any();
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    for container in containers {
        let now = container.state.as_ref().and_then(|state| state_reason(state, "is"));
        let before = container.last_state.as_ref().and_then(|state| state_reason(state, "was"));
        for reason in now.into_iter().chain(before) {
            lines.push(format!("Pod/{name}: container '{}' {reason}", container.name));
        }
    }
    let conditions = status.conditions.iter().flatten();
    for condition in conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "False") {
        let message = condition.message.as_deref().unwrap_or_default();
        lines.push(format!("Pod/{name}: not scheduled: {message}"));
    }
    if status.phase.as_deref() == Some("Failed") && lines.is_empty() {
        let reason = status.reason.as_deref().unwrap_or("failed");
        lines.push(
            format!("Pod/{name}: {reason} {}", status.message.as_deref().unwrap_or_default())
                .trim_end()
                .to_owned(),
        );
    }
    lines
}

fn state_reason(state: &ContainerState, verb: &str) -> Option<String> {
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or("unknown");
        // Every container begins like this; it explains nothing.
        if matches!(reason, "ContainerCreating" | "PodInitializing") {
            return None;
        }
        return Some(with_message(&format!("{verb} waiting: {reason}"), waiting.message.as_deref()));
    }
    let terminated = state.terminated.as_ref()?;
    if terminated.exit_code == 0 {
        return None;
    }
    let reason = terminated.reason.as_deref().unwrap_or("Error");
    // The message of a terminated container can be the end of its log.
    Some(format!("{verb} terminated: {reason}, exit code {}", terminated.exit_code))
}

fn with_message(text: &str, message: Option<&str>) -> String {
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{text} ({message})"),
        None => text.to_owned(),
    }
}

async fn warnings(client: &Client, namespace: &str, names: &[String]) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut lines: Vec<String> = Vec::new();
    for name in names.iter().take(MOST_PODS) {
        let parameters =
            ListParams::default().fields(&format!("type=Warning,involvedObject.name={name}")).limit(50);
        let Ok(found) = events.list(&parameters).await else { continue };
        for event in found {
            let kind = event.involved_object.kind.as_deref().unwrap_or_default();
            let line = format!(
                "{kind}/{name}: {}: {}",
                event.reason.as_deref().unwrap_or_default(),
                event.message.as_deref().unwrap_or_default()
            );
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

fn cut(line: &str) -> String {
    let line = line.replace('\n', " ");
    match line.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web-1"}, "status": status})).unwrap()
    }

    #[test]
    fn pods_say_what_they_wait_for_and_how_they_ended() {
        let pod = pod(json!({"phase": "Pending", "containerStatuses": [
            {"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 3,
             "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
             "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "password=hunter2"}}},
            {"name": "new", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"waiting": {"reason": "ContainerCreating"}}},
        ]}));
        assert_eq!(
            pod_reasons(&pod),
            [
                "Pod/web-1: container 'app' is waiting: CrashLoopBackOff (back-off 40s)",
                "Pod/web-1: container 'app' was terminated: Error, exit code 1",
            ]
        );
    }

    #[test]
    fn a_pod_that_finds_no_node_says_so() {
        let pod = pod(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]}));
        assert_eq!(pod_reasons(&pod), ["Pod/web-1: not scheduled: 0/3 nodes are available"]);
    }

    #[test]
    fn lines_stay_short() {
        assert_eq!(cut("a\nb"), "a b");
        assert!(cut(&"ü".repeat(999)).chars().count() <= LONGEST_LINE + 1);
    }
}
