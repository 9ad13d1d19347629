//! Waiting until objects are ready, have completed, or are gone. Holds no worker: callers wait outside of their turn.
//!
//! A wait is a subscription: an object is looked at when a watch says that it changed. Only where no watch can be had, and
//! now and then for what time alone changes, is it looked at unasked.

use std::collections::BTreeSet;
use std::time::Duration;

use flux_api::helm::WaitStrategyName;
use flux_api::names::HELM_RELEASE_NAME_LABEL;
use flux_apply::changes::{Among, Watching};
use flux_apply::health::{Health, Status, judge};
use flux_apply::health_exprs::Judge;
use flux_apply::{Cluster, ObjectId};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::explain;
use super::fault::Fault;

/// Without a watch the pause between two looks grows, so that quick objects are seen quickly and slow ones cost little.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// With a watch, a look is only for what time alone changes.
const WATCHED_PAUSE: Duration = Duration::from_secs(15);
/// Changes come in bursts: they are looked at together.
const BURST: Duration = Duration::from_millis(20);
const AT_ONCE: usize = 8;

/// How to tell that an object is ready.
#[derive(Clone, Copy)]
pub struct Waiter<'a> {
    pub checks: &'a Judge,
    pub strategy: WaitStrategyName,
}

/// An object that is waited for.
#[derive(Clone, Debug)]
pub struct Subject {
    pub id: ObjectId,
    paused: bool,
    /// Completed Jobs may delete themselves.
    vanishes: bool,
    /// Whether it says whose it is: then one watch does for it and its like.
    marked: bool,
    /// How it was a moment ago, if that is known.
    seen: Option<Value>,
}

impl Subject {
    pub fn new(id: ObjectId, manifest: Option<&Value>) -> Self {
        let field = |pointer: &str| manifest.and_then(|manifest| manifest.pointer(pointer));
        let is = |group: &str, kind: &str| id.group == group && id.kind == kind;
        Self {
            paused: is("apps", "Deployment") && field("/spec/paused").and_then(Value::as_bool) == Some(true),
            vanishes: is("batch", "Job")
                && field("/spec/ttlSecondsAfterFinished").is_some_and(|ttl| !ttl.is_null()),
            marked: field("/metadata/labels")
                .is_some_and(|labels| labels.get(HELM_RELEASE_NAME_LABEL).is_some()),
            seen: None,
            id,
        }
    }

    fn among(&self) -> Among {
        if self.marked { Among::Labelled(HELM_RELEASE_NAME_LABEL) } else { Among::Alone }
    }

    /// With what the server said of it just now.
    pub fn seen(mut self, answer: Option<Value>) -> Self {
        self.seen = answer;
        self
    }
}

/// What counts as done, and whether a failure ends the wait.
#[derive(Clone, Copy)]
enum Goal {
    Ready { jobs: bool },
    Completed,
}

impl Waiter<'_> {
    /// Ends when all are ready; as soon as one has failed for good; or when the time is up.
    pub async fn until_ready(
        &self,
        cluster: &Cluster,
        subjects: Vec<Subject>,
        jobs: bool,
        timeout: Duration,
    ) -> Result<(), Fault> {
        let awaited = subjects.into_iter().filter(|subject| !subject.paused).collect();
        self.wait(cluster, awaited, Goal::Ready { jobs }, timeout).await
    }

    /// Waits for hooks: Jobs and Pods run to their end, everything else is done when it exists, unless an expression says
    /// otherwise. A failed Pod of a Job may be tried again by the Job, so only the Job's own word counts.
    pub async fn until_completed(
        &self,
        cluster: &Cluster,
        subjects: Vec<Subject>,
        timeout: Duration,
    ) -> Result<(), Fault> {
        self.wait(cluster, subjects, Goal::Completed, timeout).await
    }

    async fn wait(
        &self,
        cluster: &Cluster,
        subjects: Vec<Subject>,
        goal: Goal,
        timeout: Duration,
    ) -> Result<(), Fault> {
        let is_ready = |subject: &Subject| {
            subject.seen.as_ref().is_some_and(|seen| self.judge(seen, goal).status == Status::Current)
        };
        // A thousand releases may wait at once: what was seen of their objects is not kept meanwhile.
        let subjects: Vec<Subject> = subjects
            .into_iter()
            .filter(|subject| !is_ready(subject))
            .map(|subject| Subject { seen: None, ..subject })
            .collect();
        let places: Vec<(ObjectId, Among)> =
            subjects.iter().map(|subject| (subject.id.clone(), subject.among())).collect();
        let mut rounds = Rounds::new(cluster, places, timeout);
        let mut open: Vec<Option<Health>> =
            subjects.iter().map(|_| Some(health(Status::Unknown, ""))).collect();
        loop {
            let due = rounds.next(&indices(&open)).await;
            let looks: Vec<_> =
                due.places.iter().map(|at| self.look(cluster, &subjects[*at], goal)).collect();
            let found: Vec<Health> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
            for (at, health) in due.places.iter().zip(found) {
                open[*at] = (health.status != Status::Current).then_some(health);
            }
            let unready: Vec<(&Subject, &Health)> = subjects
                .iter()
                .zip(&open)
                .filter_map(|(subject, health)| Some((subject, health.as_ref()?)))
                .collect();
            if unready.is_empty() {
                return Ok(());
            }
            if let Some(message) = self.given_up(&unready, goal, due.is_last) {
                let unready: Vec<_> = unready
                    .iter()
                    .filter(|(_, health)| due.is_last || health.status == Status::Failed)
                    .map(|(subject, health)| (&subject.id, *health))
                    .collect();
                return Err(explained(cluster, message, &unready).await);
            }
        }
    }

    /// Why it is of no use to wait any longer.
    fn given_up(&self, unready: &[(&Subject, &Health)], goal: Goal, is_last: bool) -> Option<String> {
        let names = |failed: bool| {
            let names: Vec<String> = unready
                .iter()
                .filter(|(_, health)| !failed || health.status == Status::Failed)
                .map(|(subject, health)| named(subject, health))
                .collect();
            names.join(", ")
        };
        let fails_fast = self.strategy == WaitStrategyName::Poller || matches!(goal, Goal::Completed);
        if fails_fast && unready.iter().any(|(_, health)| health.status == Status::Failed) {
            return Some(format!("failed early due to stalled resources: [{}]", names(true)));
        }
        is_last.then(|| format!("timeout waiting for: [{}]", names(false)))
    }

    async fn look(&self, cluster: &Cluster, subject: &Subject, goal: Goal) -> Health {
        match cluster.get(&subject.id).await {
            Ok(Some(object)) => self.judge(&object, goal),
            Ok(None) if subject.vanishes => health(Status::Current, "gone after it completed"),
            Ok(None) => health(Status::NotFound, "not found"),
            Err(cause) => health(Status::Unknown, &cause.to_string()),
        }
    }

    fn judge(&self, object: &Value, goal: Goal) -> Health {
        let now = Timestamp::now().as_second();
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if self.strategy == WaitStrategyName::Poller
            && let Some(health) = self.checks.by_expressions(object)
        {
            return health;
        }
        match (goal, version, kind) {
            (Goal::Completed, "v1", "Pod") => completed_pod(object),
            (Goal::Completed, "batch/v1", "Job") => judge(object, now),
            (Goal::Completed, ..) => health(Status::Current, "it runs nothing, so it is done when it exists"),
            (Goal::Ready { jobs: false }, _, "Job") => health(Status::Current, "Job is not waited for"),
            (Goal::Ready { .. }, ..) if self.strategy == WaitStrategyName::Legacy => as_helm_3(object, now),
            (Goal::Ready { .. }, ..) => judge(object, now),
        }
    }

    /// Whether all are ready now, without waiting.
    pub async fn are_ready(&self, cluster: &Cluster, subjects: &[Subject]) -> bool {
        for subject in subjects.iter().filter(|subject| !subject.paused) {
            if self.look(cluster, subject, Goal::Ready { jobs: true }).await.status != Status::Current {
                return false;
            }
        }
        true
    }

    pub async fn until_gone(
        &self,
        cluster: &Cluster,
        ids: &[ObjectId],
        timeout: Duration,
    ) -> Result<(), Fault> {
        let places = ids.iter().map(|id| (id.clone(), Among::Alone)).collect();
        let mut rounds = Rounds::new(cluster, places, timeout);
        let mut left: BTreeSet<usize> = (0..ids.len()).collect();
        loop {
            let due = rounds.next(&left).await;
            let looks: Vec<_> = due.places.iter().map(|at| is_gone(cluster, &ids[*at])).collect();
            let gone: Vec<bool> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
            for (at, _) in due.places.iter().zip(gone).filter(|(_, gone)| *gone) {
                left.remove(at);
            }
            if left.is_empty() {
                return Ok(());
            }
            if due.is_last {
                let names: Vec<String> = left.iter().map(|at| ids[*at].to_string()).collect();
                return Err(Fault::new(format!("timeout waiting for: [{}] to terminate", names.join(", "))));
            }
        }
    }
}

fn indices(open: &[Option<Health>]) -> BTreeSet<usize> {
    open.iter().enumerate().filter(|(_, health)| health.is_some()).map(|(at, _)| at).collect()
}

/// When to look at what.
struct Rounds<'a> {
    cluster: &'a Cluster,
    places: Vec<(ObjectId, Among)>,
    deadline: Instant,
    progress: Progress,
}

enum Progress {
    /// Most objects are as they should be at the first look; no watch is begun for them.
    First,
    Second,
    Watched(Watching, Duration),
}

/// What to look at now.
struct Due {
    places: BTreeSet<usize>,
    /// The time is up after this look.
    is_last: bool,
}

impl<'a> Rounds<'a> {
    fn new(cluster: &'a Cluster, places: Vec<(ObjectId, Among)>, timeout: Duration) -> Self {
        Self { cluster, places, deadline: Instant::now() + timeout, progress: Progress::First }
    }

    async fn next(&mut self, open: &BTreeSet<usize>) -> Due {
        let places = match &mut self.progress {
            Progress::First => {
                self.progress = Progress::Second;
                open.clone()
            }
            Progress::Second => {
                let places = open.iter().map(|at| {
                    let (id, among) = &self.places[*at];
                    (*at, id.clone(), among.clone())
                });
                let watching = self.cluster.changes.watch(&places.collect::<Vec<_>>()).await;
                self.progress = Progress::Watched(watching, FIRST_PAUSE);
                open.clone()
            }
            Progress::Watched(watching, pause) => {
                let most = if watching.is_live() { WATCHED_PAUSE } else { *pause };
                *pause = (*pause * 2).min(LONGEST_PAUSE);
                let until = self.deadline.min(Instant::now() + most);
                match timeout_at(until, watching.changed()).await {
                    Ok(changed) => {
                        tokio::time::sleep(BURST).await;
                        changed.intersection(open).copied().collect()
                    }
                    Err(_) => open.clone(),
                }
            }
        };
        match Instant::now() >= self.deadline {
            true => Due { places: open.clone(), is_last: true },
            false => Due { places, is_last: false },
        }
    }
}

async fn is_gone(cluster: &Cluster, id: &ObjectId) -> bool {
    match cluster.get(id).await {
        Ok(found) => found.is_none(),
        // Its kind is gone, and it with its kind.
        Err(cause) => cause.to_string().starts_with("no matches for kind"),
    }
}

async fn explained(cluster: &Cluster, message: String, unready: &[(&ObjectId, &Health)]) -> Fault {
    Fault { message, details: explain::unready(cluster, unready).await, ..Fault::default() }
}

fn named(subject: &Subject, health: &Health) -> String {
    format!("{} status: '{}'", subject.id, health.status.as_str())
}

fn health(status: Status, message: &str) -> Health {
    Health { status, message: message.to_owned() }
}

fn completed_pod(pod: &Value) -> Health {
    match pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default() {
        "Succeeded" => health(Status::Current, "Pod has completed"),
        "Failed" => health(Status::Failed, "Pod has failed"),
        phase => health(Status::InProgress, &format!("Pod is {phase}")),
    }
}

/// Helm 3 knows a few kinds, waits for nothing else, and never gives up before the time is up. A Deployment is ready
/// with as many replicas as its update strategy keeps available.
fn as_helm_3(object: &Value, now: i64) -> Health {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group).to_owned();
    let known = matches!(
        (group.as_str(), text("/kind")),
        ("", "Pod" | "PersistentVolumeClaim" | "Service" | "ReplicationController")
            | ("batch", "Job")
            | ("apps" | "extensions", "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    );
    if !known {
        return health(Status::Current, "Helm 3 does not wait for this kind");
    }
    if text("/kind") == "Deployment" && has_enough_replicas(object) {
        return health(Status::Current, "as many replicas as the update strategy asks for");
    }
    judge(object, now)
}

fn has_enough_replicas(deployment: &Value) -> bool {
    let number =
        |pointer: &str, missing: i64| deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or(missing);
    let observed = number("/status/observedGeneration", 0) >= number("/metadata/generation", 0);
    let wanted = number("/spec/replicas", 1);
    let unavailable = match deployment.pointer("/spec/strategy/rollingUpdate/maxUnavailable") {
        Some(Value::Number(count)) => count.as_i64().unwrap_or(0),
        Some(Value::String(text)) => {
            text.trim_end_matches('%').parse::<i64>().map_or(0, |share| wanted * share / 100)
        }
        _ => 0,
    };
    observed
        && number("/status/updatedReplicas", 0) >= wanted
        && number("/status/readyReplicas", 0) >= (wanted - unavailable.min(wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(strategy: WaitStrategyName, expressions: Value, goal: Goal, object: &Value) -> Status {
        let checks = Judge::new(&serde_json::from_value::<Vec<_>>(expressions).unwrap()).unwrap();
        Waiter { checks: &checks, strategy }.judge(object, goal).status
    }

    fn job(condition: &str) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "status": {"conditions": [{"type": condition, "status": "True"}]}})
    }

    #[test]
    fn hooks_are_done_when_their_jobs_and_pods_have_ended_and_else_at_once() {
        let hook = |object: &Value| judged(WaitStrategyName::Poller, json!([]), Goal::Completed, object);
        assert_eq!(hook(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), Status::Current);
        assert_eq!(hook(&json!({"apiVersion": "x/v1", "kind": "Job", "status": {}})), Status::Current);
        assert_eq!(hook(&job("Complete")), Status::Current);
        assert_eq!(hook(&job("Failed")), Status::Failed);
        let pod = |phase: &str| json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase}});
        assert_eq!(hook(&pod("Running")), Status::InProgress);
        assert_eq!((hook(&pod("Succeeded")), hook(&pod("Failed"))), (Status::Current, Status::Failed));
    }

    #[test]
    fn expressions_have_the_first_word_for_hooks_too_but_not_with_the_legacy_strategy() {
        let widget = json!({"apiVersion": "x/v1", "kind": "Widget", "status": {"done": false}});
        let checks = || json!([{"apiVersion": "x/v1", "kind": "Widget", "current": "status.done"}]);
        for goal in [Goal::Completed, Goal::Ready { jobs: true }] {
            assert_eq!(judged(WaitStrategyName::Poller, checks(), goal, &widget), Status::InProgress);
            assert_eq!(judged(WaitStrategyName::Legacy, checks(), goal, &widget), Status::Current);
        }
    }

    #[test]
    fn jobs_are_left_out_where_asked_and_a_failure_ends_the_wait_of_the_poller() {
        let unready = health(Status::Failed, "");
        let subject = Subject::new(ObjectId::of(&job("Failed")).unwrap(), None);
        let given_up = |strategy, goal| {
            let checks = Judge::default();
            Waiter { checks: &checks, strategy }.given_up(&[(&subject, &unready)], goal, false)
        };
        let ready = Goal::Ready { jobs: true };
        let early = "failed early due to stalled resources: [Job/j status: 'Failed']";
        assert_eq!(given_up(WaitStrategyName::Poller, ready).as_deref(), Some(early));
        assert_eq!(given_up(WaitStrategyName::Legacy, ready), None, "Helm 3 waits until the time is up");
        assert_eq!(given_up(WaitStrategyName::Poller, Goal::Completed).as_deref(), Some(early));
        let skipping = Goal::Ready { jobs: false };
        assert_eq!(judged(WaitStrategyName::Poller, json!([]), skipping, &job("Failed")), Status::Current);
    }

    #[test]
    fn paused_deployments_and_jobs_that_delete_themselves_are_known() {
        let subject = |object: Value| Subject::new(ObjectId::of(&object).unwrap(), Some(&object));
        let deployment = |paused: bool| {
            subject(
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"paused": paused}}),
            )
        };
        assert!(deployment(true).paused && !deployment(false).paused);
        let job = |spec: Value| {
            subject(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}))
        };
        assert!(job(json!({"ttlSecondsAfterFinished": 0})).vanishes && !job(json!({})).vanishes);
    }
}
