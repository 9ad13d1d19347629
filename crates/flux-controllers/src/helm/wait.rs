//! Waiting until objects are ready, have completed, or are gone. Holds no worker: callers wait outside of their turn.

use std::time::Duration;

use flux_api::helm::WaitStrategyName;
use flux_apply::health::{Health, Status, judge};
use flux_apply::health_exprs::Judge;
use flux_apply::{Cluster, ObjectId};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::explain;
use super::fault::Fault;

/// The first look comes at once; then the pause grows, so that quick objects are seen quickly and slow ones cost little.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
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
            seen: None,
            id,
        }
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
        subjects: &[Subject],
        jobs: bool,
        timeout: Duration,
    ) -> Result<(), Fault> {
        let awaited: Vec<&Subject> = subjects.iter().filter(|subject| !subject.paused).collect();
        self.wait(cluster, awaited, Goal::Ready { jobs }, timeout).await
    }

    /// Waits for hooks: Jobs and Pods run to their end, everything else is done when it exists. A failed Pod of a Job
    /// may be tried again by the Job, so only the Job's own word counts.
    pub async fn until_completed(
        &self,
        cluster: &Cluster,
        subjects: &[Subject],
        timeout: Duration,
    ) -> Result<(), Fault> {
        let runs = |subject: &&Subject| {
            matches!((subject.id.group.as_str(), subject.id.kind.as_str()), ("batch", "Job") | ("", "Pod"))
        };
        self.wait(cluster, subjects.iter().filter(runs).collect(), Goal::Completed, timeout).await
    }

    async fn wait(
        &self,
        cluster: &Cluster,
        subjects: Vec<&Subject>,
        goal: Goal,
        timeout: Duration,
    ) -> Result<(), Fault> {
        let deadline = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        let is_ready = |subject: &&Subject| {
            subject.seen.as_ref().is_some_and(|seen| self.judge(seen, goal).status == Status::Current)
        };
        let mut left: Vec<&Subject> = subjects.into_iter().filter(|subject| !is_ready(subject)).collect();
        loop {
            let looks: Vec<_> = left.iter().map(|subject| self.look(cluster, subject, goal)).collect();
            let found: Vec<Health> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
            let looked: Vec<(&Subject, Health)> = left.into_iter().zip(found).collect();
            let failed: Vec<&(&Subject, Health)> =
                looked.iter().filter(|(_, health)| health.status == Status::Failed).collect();
            let fail_fast = self.strategy == WaitStrategyName::Poller || matches!(goal, Goal::Completed);
            if !failed.is_empty() && fail_fast {
                let names: Vec<String> =
                    failed.iter().map(|(subject, health)| named(subject, health)).collect();
                let message = match goal {
                    Goal::Ready { .. } => {
                        format!("failed early due to stalled resources: [{}]", names.join(", "))
                    }
                    Goal::Completed => format!("timeout waiting for: [{}]", names.join(", ")),
                };
                let unready: Vec<_> = failed.iter().map(|(subject, health)| (&subject.id, health)).collect();
                return Err(explained(cluster, message, &unready).await);
            }
            let unready: Vec<(&Subject, Health)> =
                looked.into_iter().filter(|(_, health)| health.status != Status::Current).collect();
            if unready.is_empty() {
                return Ok(());
            }
            if Instant::now() + pause >= deadline {
                if Instant::now() < deadline {
                    tokio::time::sleep_until(deadline).await;
                    pause = Duration::ZERO;
                    left = unready.iter().map(|(subject, _)| *subject).collect();
                    continue;
                }
                let names: Vec<String> =
                    unready.iter().map(|(subject, health)| named(subject, health)).collect();
                let message = format!("timeout waiting for: [{}]", names.join(", "));
                let unready: Vec<_> = unready.iter().map(|(subject, health)| (&subject.id, health)).collect();
                return Err(explained(cluster, message, &unready).await);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            left = unready.into_iter().map(|(subject, _)| subject).collect();
        }
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
        let deadline = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        let mut left: Vec<&ObjectId> = ids.iter().collect();
        loop {
            let looks: Vec<_> = left.iter().map(|id| is_gone(cluster, id)).collect();
            let gone: Vec<bool> = futures::stream::iter(looks).buffered(AT_ONCE).collect().await;
            left = left.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(id, _)| id).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let names: Vec<String> = left.iter().map(ToString::to_string).collect();
                return Err(Fault::new(format!("timeout waiting for: [{}] to terminate", names.join(", "))));
            }
            tokio::time::sleep(pause.min(deadline - Instant::now())).await;
            pause = (pause * 2).min(Duration::from_secs(2));
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
