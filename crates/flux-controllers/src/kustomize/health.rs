//! Waiting until what was applied is healthy. The wait is outside of the worker, and anything newer ends it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus, HEALTHY};
use flux_api::duration::GoDuration;
use flux_api::kustomize::Kustomization;
use flux_apply::health::Status;
use flux_apply::health_exprs::Judge;
use flux_apply::{Cluster, ObjectId};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::Notify;

use super::failure::Failure;
use super::observe::{SourceKey, artifact};
use super::run::{KIND, Run, since};

/// How long a wait looks at an object before it looks again; longer for objects that take their time.
const FIRST_POLL: Duration = Duration::from_millis(250);
const LAST_POLL: Duration = Duration::from_secs(5);
/// The same for what is watched, where only the clock may change a verdict.
const WATCHED_POLL: Duration = Duration::from_secs(20);
/// Objects that are looked at together.
const AT_ONCE: usize = 8;

/// What was applied, as far as health is concerned.
pub(super) struct Checked {
    pub(super) applied: Vec<ObjectId>,
    /// Jobs that delete themselves when they are done.
    pub(super) jobs: Vec<ObjectId>,
    /// Whether the apply wrote anything.
    pub(super) changed: bool,
}

pub(super) async fn check(run: &mut Run<'_>, cluster: &Cluster, checked: Checked) -> Result<(), Failure> {
    let watched = watched(run.object, checked.applied);
    if watched.is_empty() {
        run.conditions().delete(HEALTHY);
        return Ok(());
    }
    let was_healthy = condition::is(&run.status.conditions, HEALTHY, ConditionStatus::True);
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.clone());
    let is_new = run.status.last_applied_revision != revision;
    let started = Instant::now();
    let eyes = Eyes { cluster, judge: &run.judge.clone(), jobs: &checked.jobs, fail_fast: fail_fast(run) };
    // What is healthy at the first look needs no word about a wait.
    let mut open = eyes.look(watched).await;
    if !open.is_settled() {
        announce(run).await;
        open = wait(run, &eyes, open).await?;
    }
    let took = since(started);
    let Some(problem) = open.problem() else {
        let message = format!("Health check passed in {took}");
        if !was_healthy || (is_new && checked.changed) {
            run.tell_progress(message.clone());
        }
        run.conditions().set(HEALTHY, ConditionStatus::True, "Succeeded", message);
        return Ok(());
    };
    run.conditions().set(HEALTHY, ConditionStatus::False, "HealthCheckFailed", problem.clone());
    Err(Failure::Unhealthy(format!("health check failed after {took}: {problem}")))
}

/// Whether all of these are healthy now.
pub(super) async fn are_current(run: &Run<'_>, cluster: &Cluster, ids: Vec<ObjectId>) -> bool {
    let eyes = Eyes { cluster, judge: &run.judge, jobs: &[], fail_fast: true };
    eyes.look(ids).await.objects.is_empty()
}

/// Waits until all of these are healthy; what is not when the time is up, or one has failed for good.
pub(super) async fn settle(
    run: &mut Run<'_>,
    cluster: &Cluster,
    ids: Vec<ObjectId>,
) -> Result<Option<String>, Failure> {
    let judge = run.judge.clone();
    let eyes = Eyes { cluster, judge: &judge, jobs: &[], fail_fast: true };
    let mut open = eyes.look(ids).await;
    if !open.is_settled() {
        let timeout = GoDuration::from(run.timeout());
        let message = format!("Waiting for the controllers of this set with a timeout of {timeout}");
        run.conditions().set(condition::RECONCILING, ConditionStatus::True, "Progressing", message);
        run.write_progress().await;
        open = wait(run, &eyes, open).await?;
    }
    Ok(open.problem())
}

fn fail_fast(run: &Run<'_>) -> bool {
    !run.ctx.options.gates.disable_fail_fast_behavior
}

async fn announce(run: &mut Run<'_>) {
    let timeout = GoDuration::from(run.timeout());
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.to_string()).unwrap_or_default();
    let message = format!("Running health checks for revision {revision} with a timeout of {timeout}");
    let mut conditions = run.conditions();
    conditions.set(condition::RECONCILING, ConditionStatus::True, "Progressing", message.clone());
    conditions.set(condition::READY, ConditionStatus::Unknown, "Progressing", "Reconciliation in progress");
    conditions.set(HEALTHY, ConditionStatus::Unknown, "Progressing", message);
    run.write_progress().await;
}

/// Ends when all is settled, when the time is up, or when something newer arrives.
async fn wait(run: &Run<'_>, eyes: &Eyes<'_>, mut open: Open) -> Result<Open, Failure> {
    let deadline = tokio::time::Instant::now() + run.timeout();
    let drift = run.object.spec.kube_config.is_none().then(|| run.ctx.memory.drift.clone());
    let told = Arc::new(Notify::new());
    let watching = async {
        let mut pause = FIRST_POLL;
        if let Some(drift) = &drift {
            drift.subscribe(open.ids(), &told);
        }
        let mut is_first = true;
        loop {
            // Whatever is watched tells when there is something to see; only the clock may change a verdict besides. The
            // first look after the subscription is for what happened before it.
            let all_watched = !is_first && drift.as_ref().is_some_and(|drift| drift.sees_all(open.ids()));
            let wait = if all_watched { WATCHED_POLL } else { pause };
            tokio::select! {
                () = told.notified() => tokio::time::sleep(FIRST_POLL).await,
                () = tokio::time::sleep_until(deadline.min(tokio::time::Instant::now() + wait)) => {}
            }
            is_first = false;
            pause = (pause * 2).min(LAST_POLL);
            open = eyes.again(open).await;
            if open.is_settled() || tokio::time::Instant::now() >= deadline {
                return open;
            }
        }
    };
    run.worker
        .outside(async {
            tokio::select! {
                open = watching => Ok(open),
                () = run.worker.preempted() => Err(Failure::Preempted(trigger(run))),
            }
        })
        .await
}

/// What a newer run is about: another revision of a source, or the object itself.
fn trigger(run: &Run<'_>) -> String {
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.clone());
    let source = SourceKey::primary(run.object);
    let newer = source.filter(|source| {
        let found = run.ctx.cache.get(source.kind_row(), &source.key);
        found.as_deref().and_then(artifact).map(|artifact| artifact.revision) != revision
    });
    match newer {
        Some(source) => source.to_string(),
        None => format!("{}/{}/{}", KIND.kind, run.namespace(), run.object.name()),
    }
}

struct Eyes<'a> {
    cluster: &'a Cluster,
    judge: &'a Judge,
    jobs: &'a [ObjectId],
    fail_fast: bool,
}

/// What is not current yet, with what it is instead.
struct Open {
    objects: Vec<(ObjectId, Status)>,
    fail_fast: bool,
}

impl Open {
    fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.objects.iter().map(|(id, _)| id)
    }

    fn is_settled(&self) -> bool {
        let failed = |(_, status): &(ObjectId, Status)| *status == Status::Failed;
        self.objects.iter().all(failed) || (self.fail_fast && self.objects.iter().any(failed))
    }

    fn problem(&self) -> Option<String> {
        if self.objects.is_empty() {
            return None;
        }
        let only_failed = self.is_settled();
        let shown: Vec<String> = self
            .objects
            .iter()
            .filter(|(_, status)| !only_failed || *status == Status::Failed)
            .map(|(id, status)| format!("{id} status: '{}'", status.as_str()))
            .collect();
        let shown = shown.join(", ");
        Some(if only_failed {
            format!("failed early due to stalled resources: [{shown}]")
        } else {
            format!("timeout waiting for: [{shown}]")
        })
    }
}

impl Eyes<'_> {
    async fn look(&self, objects: Vec<ObjectId>) -> Open {
        let looked: Vec<(ObjectId, Status)> = futures::stream::iter(objects)
            .map(|id: ObjectId| async move {
                let status = self.status(&id).await;
                (id, status)
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let objects = looked.into_iter().filter(|(_, status)| *status != Status::Current).collect();
        Open { objects, fail_fast: self.fail_fast }
    }

    /// Looks at what is open; a failed one may recover where failing fast is off.
    async fn again(&self, open: Open) -> Open {
        self.look(open.objects.into_iter().map(|(id, _)| id).collect()).await
    }

    async fn status(&self, id: &ObjectId) -> Status {
        match self.cluster.get(id).await {
            Ok(Some(object)) => self.judge.judge(&object, Timestamp::now().as_second()).status,
            Ok(None) => gone(id, self.jobs),
            Err(_) => Status::Unknown,
        }
    }
}

/// What is not there has not come yet, unless it was to delete itself when it is done.
fn gone(id: &ObjectId, jobs: &[ObjectId]) -> Status {
    if jobs.contains(id) { Status::Current } else { Status::NotFound }
}

/// The objects whose health counts: all that were applied with `wait`, else those named. Never itself.
fn watched(object: &Kustomization, applied: Vec<ObjectId>) -> Vec<ObjectId> {
    let is_itself = |id: &ObjectId| {
        id.kind == KIND.kind && id.name == object.name() && id.namespace == Object::namespace(object)
    };
    let watched: Vec<ObjectId> = if object.spec.wait {
        applied
    } else {
        object.spec.health_checks.iter().map(health_check_id).collect()
    };
    watched.into_iter().filter(|id| !is_itself(id)).collect()
}

fn health_check_id(reference: &flux_api::meta::ObjectReference) -> ObjectId {
    let api_version = reference.api_version.as_deref().unwrap_or("apps/v1");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ObjectId {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: reference.kind.clone(),
        namespace: reference.namespace.clone().unwrap_or_default(),
        name: reference.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn kustomization(more: Value) -> Kustomization {
        let mut spec =
            json!({ "interval": "1h", "prune": true, "sourceRef": { "kind": "Bucket", "name": "b" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": "apps", "namespace": "flux-system" }, "spec": spec,
        }))
        .unwrap()
    }

    fn id(text: &str) -> ObjectId {
        ObjectId::from_inventory(text, "v1").unwrap()
    }

    #[test]
    fn nobody_waits_for_itself_and_names_count_only_without_wait() {
        let applied =
            || vec![id("flux-system_apps_kustomize.toolkit.fluxcd.io_Kustomization"), id("a_b__Secret")];
        let all =
            kustomization(json!({ "wait": true, "healthChecks": [{ "kind": "Deployment", "name": "d" }] }));
        assert_eq!(watched(&all, applied()), [id("a_b__Secret")]);
        let named = kustomization(json!({ "healthChecks": [
            { "kind": "Deployment", "name": "d" },
            { "apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": "n" },
        ]}));
        // Without a version it is apps/v1; a namespace that is not given stays empty.
        assert_eq!(watched(&named, applied()), [id("_d_apps_Deployment"), id("n_s__Secret")]);
        assert!(watched(&kustomization(json!({})), applied()).is_empty());
    }

    #[test]
    fn a_job_that_deletes_itself_is_done_when_it_is_gone() {
        let job = |name: &str, ttl: Value| {
            json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": "n" },
                "spec": { "ttlSecondsAfterFinished": ttl } })
        };
        let other =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "n" } });
        let jobs =
            super::super::apply::jobs_with_ttl(&[job("ends", json!(0)), job("stays", Value::Null), other]);
        let named: Vec<&str> = jobs.iter().map(|id| id.name.as_str()).collect();
        assert_eq!(named, ["ends"]);
        assert_eq!(gone(&jobs[0], &jobs), Status::Current);
        assert_eq!(gone(&id("n_s__Secret"), &jobs), Status::NotFound);
    }

    #[test]
    fn a_failed_object_ends_a_wait_at_once_unless_the_gate_is_on() {
        let open = |fail_fast, statuses: &[Status]| {
            let objects = statuses.iter().enumerate();
            let objects = objects.map(|(at, status)| (id(&format!("n_{at}__Secret")), *status)).collect();
            Open { objects, fail_fast }
        };
        let mixed = [Status::InProgress, Status::Failed];
        assert!(open(true, &mixed).is_settled() && !open(false, &mixed).is_settled());
        assert!(open(false, &[Status::Failed]).is_settled(), "there is nothing left to wait for");
        assert_eq!(open(true, &[]).problem(), None);
        let early = "failed early due to stalled resources: [Secret/n/1 status: 'Failed']";
        assert_eq!(open(true, &mixed).problem().as_deref(), Some(early));
        let late = "timeout waiting for: [Secret/n/0 status: 'InProgress', Secret/n/1 status: 'Failed']";
        assert_eq!(open(false, &mixed).problem().as_deref(), Some(late));
    }
}
