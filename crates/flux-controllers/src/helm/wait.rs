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

    /// Waits for hooks: Jobs and Pods run to their end, everything else is done when it exists. A failed Pod of a Job
    /// may be tried again by the Job, so only the Job's own word counts.
    pub async fn until_completed(
        &self,
        cluster: &Cluster,
        subjects: Vec<Subject>,
        timeout: Duration,
    ) -> Result<(), Fault> {
        let runs = |subject: &Subject| {
            matches!((subject.id.group.as_str(), subject.id.kind.as_str()), ("batch", "Job") | ("", "Pod"))
        };
        self.wait(cluster, subjects.into_iter().filter(runs).collect(), Goal::Completed, timeout).await
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
            return Some(match goal {
                Goal::Ready { .. } => format!("failed early due to stalled resources: [{}]", names(true)),
                Goal::Completed => format!("timeout waiting for: [{}]", names(true)),
            });
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
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        match goal {
            Goal::Completed if kind == "Pod" => completed_pod(object),
            Goal::Completed => judge(object, now),
            Goal::Ready { jobs: false } if kind == "Job" => health(Status::Current, "Job is not waited for"),
            Goal::Ready { .. } => match self.checks.by_expressions(object) {
                Some(health) => health,
                None if self.strategy == WaitStrategyName::Legacy => as_helm_3(object, now),
                None => judge(object, now),
            },
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
