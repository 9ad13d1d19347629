//! Whether an object has become what its spec asks for, by the rules of kstatus. Pure.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Current,
    InProgress,
    Failed,
    Terminating,
    NotFound,
    Unknown,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Current => "Current",
            Status::InProgress => "InProgress",
            Status::Failed => "Failed",
            Status::Terminating => "Terminating",
            Status::NotFound => "NotFound",
            Status::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub status: Status,
    pub message: String,
}

fn is(status: Status, message: impl Into<String>) -> Health {
    Health { status, message: message.into() }
}

fn progress(message: impl Into<String>) -> Health {
    is(Status::InProgress, message)
}

fn current(message: impl Into<String>) -> Health {
    is(Status::Current, message)
}

/// A Pod that cannot be scheduled is given this long before it counts as failed.
const SCHEDULE_WINDOW_SECONDS: i64 = 15;

/// Judges `object` at `now`, in seconds since the epoch.
pub fn judge(object: &Value, now: i64) -> Health {
    if let Some(health) = judge_in_general(object) {
        return health;
    }
    let group = object.get("apiVersion").and_then(Value::as_str).and_then(|version| version.split_once('/'));
    let group = group.map_or("", |(group, _)| group);
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    match (group, kind) {
        ("", "Service") => service(object),
        ("", "Pod") => pod(object, now),
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") => current("Resource is always ready"),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps" | "extensions", "DaemonSet") => daemon_set(object),
        ("apps" | "extensions", "Deployment") => deployment(object),
        ("apps" | "extensions", "ReplicaSet") => replica_set(object),
        ("policy", "PodDisruptionBudget") => current("AllowedDisruptions has been computed."),
        ("batch", "Job") => job(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition(object),
        _ => by_ready_condition(object),
    }
}

/// What holds for every kind; `None` leaves it to the kind's own rule.
fn judge_in_general(object: &Value) -> Option<Health> {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return Some(is(Status::Terminating, "Resource scheduled for deletion"));
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        let message = format!(
            "{} generation is {generation}, but latest observed generation is {observed}",
            kind(object)
        );
        return Some(progress(message));
    }
    if let Some(("True", _, message)) = condition(object, "Reconciling") {
        return Some(progress(message));
    }
    if let Some(("True", _, message)) = condition(object, "Stalled") {
        return Some(is(Status::Failed, message));
    }
    None
}

fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Status, reason and message of a condition.
fn condition<'a>(object: &'a Value, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(name))?;
    let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
    Some((text("status"), text("reason"), text("message")))
}

fn number(object: &Value, pointer: &str, missing: i64) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(missing)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn by_ready_condition(object: &Value) -> Health {
    match condition(object, "Ready") {
        Some(("True", _, _)) => current("Resource is Ready"),
        Some((_, _, message)) => progress(message),
        None => current("Resource is current"),
    }
}

fn service(object: &Value) -> Health {
    if text(object, "/spec/type") == "LoadBalancer" && text(object, "/spec/clusterIP").is_empty() {
        return progress("ClusterIP not set. Service type: LoadBalancer");
    }
    current("Service is ready")
}

fn pod(object: &Value, now: i64) -> Health {
    match text(object, "/status/phase") {
        "Succeeded" => current("Pod has completed successfully"),
        "Failed" => is(Status::Failed, "Pod has completed, but not successfully"),
        "Running" => match condition(object, "Ready") {
            Some(("True", _, _)) => current("Pod is Ready"),
            _ if crash_looping(object) => is(Status::Failed, "Containers in CrashLoop state"),
            _ => progress("Pod is running but is not Ready"),
        },
        "Pending" => pending_pod(object, now),
        phase => progress(format!("Pod phase is {phase:?}")),
    }
}

fn pending_pod(object: &Value, now: i64) -> Health {
    if let Some(("False", "Unschedulable", _)) = condition(object, "PodScheduled") {
        if now - seconds(text(object, "/metadata/creationTimestamp")).unwrap_or(now) > SCHEDULE_WINDOW_SECONDS
        {
            return is(Status::Failed, "Pod could not be scheduled");
        }
        return progress("Pod has not been scheduled");
    }
    progress("Pod is in the Pending phase")
}

fn crash_looping(object: &Value) -> bool {
    let statuses = object.pointer("/status/containerStatuses").and_then(Value::as_array);
    statuses.into_iter().flatten().any(|one| text(one, "/state/waiting/reason") == "CrashLoopBackOff")
}

/// Seconds since the epoch of an RFC 3339 time in UTC.
fn seconds(time: &str) -> Option<i64> {
    time.parse::<k8s_openapi::jiff::Timestamp>().ok().map(k8s_openapi::jiff::Timestamp::as_second)
}

fn persistent_volume_claim(object: &Value) -> Health {
    match text(object, "/status/phase") {
        "Bound" => current("PVC is Bound"),
        phase => progress(format!("PVC is not Bound. phase: {phase}")),
    }
}

fn deployment(object: &Value) -> Health {
    let wanted = number(object, "/spec/replicas", 1);
    let replicas = number(object, "/status/replicas", 0);
    let updated = number(object, "/status/updatedReplicas", 0);
    let ready = number(object, "/status/readyReplicas", 0);
    let available = number(object, "/status/availableReplicas", 0);
    if let Some((_, "ProgressDeadlineExceeded", _)) = condition(object, "Progressing") {
        return is(Status::Failed, "Progress deadline exceeded");
    }
    // Without a deadline there is no Progressing condition to wait for.
    let rolled_out = object.pointer("/spec/progressDeadlineSeconds").is_none()
        || matches!(condition(object, "Progressing"), Some(("True", "NewReplicaSetAvailable", _)));
    let is_available = matches!(condition(object, "Available"), Some(("True", _, _)));
    if wanted > replicas {
        return progress(format!("replicas: {replicas}/{wanted}"));
    }
    if wanted > updated {
        return progress(format!("Updated: {updated}/{wanted}"));
    }
    if replicas > wanted {
        return progress(format!("Pending termination: {}", replicas - wanted));
    }
    if updated > available {
        return progress(format!("Available: {available}/{updated}"));
    }
    if wanted > ready {
        return progress(format!("Ready: {ready}/{wanted}"));
    }
    if !rolled_out {
        return progress("ReplicaSet not Available");
    }
    if !is_available {
        return progress("Deployment not Available");
    }
    current(format!("Deployment is available. Replicas: {replicas}"))
}

fn stateful_set(object: &Value) -> Health {
    if text(object, "/spec/updateStrategy/type") == "OnDelete" {
        return current("StatefulSet is using the ondelete update strategy");
    }
    let wanted = number(object, "/spec/replicas", 1);
    let replicas = number(object, "/status/replicas", 0);
    let ready = number(object, "/status/readyReplicas", 0);
    if wanted > replicas {
        return progress(format!("Replicas: {replicas}/{wanted}"));
    }
    if wanted > ready {
        return progress(format!("Ready: {ready}/{wanted}"));
    }
    if replicas > wanted {
        return progress(format!("Pending termination: {}", replicas - wanted));
    }
    let updated = number(object, "/status/updatedReplicas", 0);
    let partition = number(object, "/spec/updateStrategy/rollingUpdate/partition", 0);
    if partition > 0 {
        if updated < wanted - partition {
            return progress(format!("updated: {updated}/{}", wanted - partition));
        }
        return current("Partition rollout complete");
    }
    let on_revision = number(object, "/status/currentReplicas", 0);
    if wanted > on_revision {
        return progress(format!("current: {on_revision}/{wanted}"));
    }
    if text(object, "/status/currentRevision") != text(object, "/status/updateRevision") {
        return progress("Waiting for updated revision to match current");
    }
    current(format!("All replicas scheduled as expected. Replicas: {replicas}"))
}

fn daemon_set(object: &Value) -> Health {
    let desired = number(object, "/status/desiredNumberScheduled", -1);
    if desired == -1 {
        return progress("Missing .status.desiredNumberScheduled");
    }
    for (name, field) in [
        ("Current", "currentNumberScheduled"),
        ("Updated", "updatedNumberScheduled"),
        ("Available", "numberAvailable"),
        ("Ready", "numberReady"),
    ] {
        let have = number(object, &format!("/status/{field}"), 0);
        if desired > have {
            return progress(format!("{name}: {have}/{desired}"));
        }
    }
    current(format!("All replicas scheduled as expected. Replicas: {desired}"))
}

fn replica_set(object: &Value) -> Health {
    if let Some(("True", _, message)) = condition(object, "ReplicaFailure") {
        return progress(format!("Replica Failure condition: {message}"));
    }
    let wanted = number(object, "/spec/replicas", 1);
    for (name, field) in
        [("Labelled", "fullyLabeledReplicas"), ("Available", "availableReplicas"), ("Ready", "readyReplicas")]
    {
        let have = number(object, &format!("/status/{field}"), 0);
        if wanted > have {
            return progress(format!("{name}: {have}/{wanted}"));
        }
    }
    let replicas = number(object, "/status/replicas", 0);
    if replicas > wanted {
        return progress(format!("replicas: {replicas}/{wanted}"));
    }
    current(format!("ReplicaSet is available. Replicas: {replicas}"))
}

/// Flux counts a Job as done only when it has completed; plain kstatus is content when it has started.
fn job(object: &Value) -> Health {
    if object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        return current("Job is suspended");
    }
    for (name, status) in
        [("Complete", Status::Current), ("Failed", Status::Failed), ("Suspended", Status::Current)]
    {
        if let Some(("True", _, message)) = condition(object, name) {
            let message = if message.is_empty() { format!("Job {name}") } else { message.to_owned() };
            return is(status, message);
        }
    }
    progress("Job in progress")
}

fn custom_resource_definition(object: &Value) -> Health {
    if let Some(("False", _, message)) = condition(object, "NamesAccepted") {
        return is(Status::Failed, message);
    }
    match condition(object, "Established") {
        Some(("True", _, _)) => current("CRD is established"),
        Some(("False", reason, message)) if reason != "Installing" => is(Status::Failed, message),
        _ => progress("Install in progress"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(object: &Value) -> Status {
        judge(object, 1_700_000_000).status
    }

    fn deployment_with(fields: Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"generation": 2},
            "spec": {"replicas": 2, "progressDeadlineSeconds": 600},
            "status": fields,
        })
    }

    #[test]
    fn a_deployment_is_current_when_every_replica_is_new_and_available() {
        let conditions = json!([
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            {"type": "Available", "status": "True"},
        ]);
        let done = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "conditions": conditions});
        assert_eq!(status(&deployment_with(done.clone())), Status::Current);
        for (field, value) in
            [("updatedReplicas", 1), ("replicas", 3), ("availableReplicas", 1), ("observedGeneration", 1)]
        {
            let mut partial = done.clone();
            partial[field] = json!(value);
            assert_eq!(status(&deployment_with(partial)), Status::InProgress, "{field}");
        }
        let late = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
        assert_eq!(status(&deployment_with(late)), Status::Failed);
    }

    #[test]
    fn an_unknown_kind_goes_by_its_ready_condition() {
        let with = |state: &str| json!({"apiVersion": "x/v1", "kind": "X", "status": {"conditions": [{"type": "Ready", "status": state}]}});
        assert_eq!(status(&with("True")), Status::Current);
        assert_eq!(status(&with("False")), Status::InProgress);
        assert_eq!(status(&json!({"apiVersion": "x/v1", "kind": "X"})), Status::Current);
        let stalled = json!({"apiVersion": "x/v1", "kind": "X", "status": {"conditions": [{"type": "Stalled", "status": "True"}]}});
        assert_eq!(status(&stalled), Status::Failed);
    }

    #[test]
    fn a_job_is_done_when_it_completed() {
        let with = |name: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"conditions": [{"type": name, "status": "True"}]}});
        assert_eq!(status(&with("Complete")), Status::Current);
        assert_eq!(status(&with("Failed")), Status::Failed);
        assert_eq!(
            status(&json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"active": 1}})),
            Status::InProgress
        );
    }

    #[test]
    fn each_builtin_kind_has_its_own_rule() {
        let of = |version: &str, kind: &str, spec: Value, state: Value| {
            status(&json!({ "apiVersion": version, "kind": kind, "spec": spec, "status": state }))
        };
        let (done, busy) = (Status::Current, Status::InProgress);
        let nothing = || json!({});
        for (version, kind) in [("v1", "Secret"), ("v1", "ConfigMap"), ("batch/v1", "CronJob")] {
            assert_eq!(of(version, kind, nothing(), nothing()), done, "{kind}");
        }
        assert_eq!(of("policy/v1", "PodDisruptionBudget", nothing(), nothing()), done);

        let service = |spec| of("v1", "Service", spec, nothing());
        assert_eq!(service(json!({ "type": "LoadBalancer" })), busy);
        assert_eq!(service(json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.1" })), done);
        assert_eq!(service(json!({ "type": "ClusterIP" })), done);

        let claim = |phase: &str| of("v1", "PersistentVolumeClaim", nothing(), json!({ "phase": phase }));
        assert_eq!((claim("Pending"), claim("Bound")), (busy, done));

        let pod = |state: Value| of("v1", "Pod", nothing(), state);
        let ready = |is: &str| json!([{ "type": "Ready", "status": is }]);
        assert_eq!(pod(json!({ "phase": "Succeeded" })), done);
        assert_eq!(pod(json!({ "phase": "Failed" })), Status::Failed);
        assert_eq!(pod(json!({ "phase": "Running", "conditions": ready("True") })), done);
        assert_eq!(pod(json!({ "phase": "Running", "conditions": ready("False") })), busy);
        let crashing = json!([{ "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]);
        let running = json!({ "phase": "Running", "containerStatuses": crashing });
        assert_eq!(pod(running), Status::Failed);

        let all = |count: i64| {
            json!({ "replicas": count, "readyReplicas": count, "currentReplicas": count, "updatedReplicas": count,
                "availableReplicas": count, "fullyLabeledReplicas": count,
                "currentRevision": "a", "updateRevision": "a" })
        };
        let set = |spec: Value, state: Value| of("apps/v1", "StatefulSet", spec, state);
        assert_eq!(set(json!({ "replicas": 2 }), all(2)), done);
        assert_eq!(set(json!({ "replicas": 2 }), all(1)), busy);
        assert_eq!(set(json!({ "replicas": 2 }), all(3)), busy, "one has to go");
        let mut rolling = all(2);
        rolling["updateRevision"] = json!("b");
        assert_eq!(set(json!({ "replicas": 2 }), rolling), busy);
        let on_delete = json!({ "replicas": 2, "updateStrategy": { "type": "OnDelete" } });
        assert_eq!(set(on_delete, nothing()), done);
        let mut partial = all(3);
        partial["updatedReplicas"] = json!(1);
        let part = |count: i64| json!({ "replicas": 3, "updateStrategy": { "rollingUpdate": { "partition": count } } });
        assert_eq!(set(part(2), partial.clone()), done, "one of three was asked for");
        assert_eq!(set(part(1), partial), busy);

        let nodes = |desired: i64, ready: i64| {
            json!({ "desiredNumberScheduled": desired, "currentNumberScheduled": desired,
                "updatedNumberScheduled": desired, "numberAvailable": ready, "numberReady": ready })
        };
        let daemons = |state: Value| of("apps/v1", "DaemonSet", nothing(), state);
        assert_eq!((daemons(nodes(2, 1)), daemons(nodes(2, 2)), daemons(nothing())), (busy, done, busy));

        let replicas = |state: Value| of("apps/v1", "ReplicaSet", json!({ "replicas": 2 }), state);
        assert_eq!((replicas(all(1)), replicas(all(2)), replicas(all(3))), (busy, done, busy));

        let definition = |name: &str, is: &str, reason: &str| {
            let conditions = json!([{ "type": name, "status": is, "reason": reason }]);
            of(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                nothing(),
                json!({ "conditions": conditions }),
            )
        };
        assert_eq!(definition("Established", "True", "InitialNamesAccepted"), done);
        assert_eq!(definition("Established", "False", "Installing"), busy);
        assert_eq!(definition("NamesAccepted", "False", "Conflict"), Status::Failed);
        assert_eq!(of("batch/v1", "Job", json!({ "suspend": true }), nothing()), done);
    }

    #[test]
    fn what_an_object_says_about_itself_goes_before_the_rule_of_its_kind() {
        let with = |observed: i64, conditions: Value| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generation": 2 },
                "status": { "observedGeneration": observed, "conditions": conditions } })
        };
        let say = |name: &str| json!([{ "type": name, "status": "True" }]);
        assert_eq!(status(&with(1, json!([]))), Status::InProgress, "what it says is about another spec");
        assert_eq!(status(&with(1, say("Stalled"))), Status::InProgress);
        assert_eq!(status(&with(2, say("Reconciling"))), Status::InProgress);
        assert_eq!(status(&with(2, say("Stalled"))), Status::Failed);
        assert_eq!(status(&with(2, json!([]))), Status::Current);
    }

    #[test]
    fn deletion_goes_before_everything() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(status(&object), Status::Terminating);
    }

    #[test]
    fn an_unschedulable_pod_is_given_a_moment() {
        let pod = |created: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": created}, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        assert_eq!(status(&pod("2023-11-14T22:13:19Z")), Status::InProgress);
        assert_eq!(status(&pod("2023-11-14T22:13:00Z")), Status::Failed);
    }
}
