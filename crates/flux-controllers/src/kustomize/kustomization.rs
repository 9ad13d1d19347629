//! Kustomization: build what the source holds, apply it, prune what is gone, check its health.
//!
//! Reads and writes await; decisions do not. What was achieved is kept in `status` even when a later step
//! fails, so the next run picks up from the truth.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus, READY, RECONCILING, STALLED};
use flux_api::duration::GoDuration;
use flux_api::kinds::Kind;
use flux_api::kustomize::Kustomization;
use flux_api::names::FINALIZER;
use flux_api::revision::Revision;
use flux_apply::health_exprs::Judge;
use futures::future::BoxFuture;
use kube::api::DynamicObject;

use super::apply::Applied;
use super::build::Inputs;
use super::failure::Failure;
use super::observe;
use super::run::{KIND, Run, STATUS_MANAGER, since};
use super::self_management::guard;
use super::unchanged::Remembered;
use super::{Context, apply, build, dependencies, finalize, unchanged};
use crate::reconcile::events::Happening;
use crate::reconcile::{Next, ObjectKey, Reconcile, Severity, Worker, jittered, status};

pub use super::wake::listen;

pub struct Kustomizations {
    pub ctx: Arc<Context>,
}

impl Reconcile for Kustomizations {
    fn kind(&self) -> &'static Kind {
        KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let object: Kustomization = match crate::reconcile::decode(&raw) {
                Ok(object) => object,
                Err(problem) => {
                    self.tell_unreadable(&raw, &problem);
                    return Next::OnChange;
                }
            };
            if object.is_deleting() {
                return finalize::finalize(&mut Run::new(&self.ctx, &raw, &object, &worker)).await;
            }
            match status::with_finalizer(&self.ctx.client, KIND, raw, STATUS_MANAGER, FINALIZER).await {
                Ok(Some(raw)) => work(&mut Run::new(&self.ctx, &raw, &object, &worker)).await,
                Ok(None) => Next::OnChange,
                Err(error) => {
                    tracing::warn!(%error, "finalizer could not be added");
                    Next::Backoff
                }
            }
        })
    }

    fn forget(&self, key: &ObjectKey) {
        self.ctx.memory.builds.forget(key);
        self.ctx.memory.undecided.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl Kustomizations {
    fn tell_unreadable(&self, raw: &DynamicObject, problem: &str) {
        let happening = Happening {
            severity: Severity::Error,
            reason: "Failed".to_owned(),
            message: format!("the object cannot be read: {problem}"),
            metadata: BTreeMap::new(),
        };
        self.ctx.events.tell(KIND, raw, happening);
    }
}

async fn work(run: &mut Run<'_>) -> Next {
    if run.object.spec.suspend {
        run.note_request();
        return Next::OnChange.if_told(run.write().await);
    }
    let result = match bring_about(run).await {
        Err(failure) => Err(guard::after(run, failure).await),
        done => done,
    };
    let next = conclude(run, result);
    run.note_request();
    next.if_told(run.write().await)
}

async fn bring_about(run: &mut Run<'_>) -> Result<(), Failure> {
    run.judge = Arc::new(judge(run.object)?);
    check_gates(run)?;
    let sources = observe::sources(run)?;
    let artifact = sources.main().clone();
    run.artifact = Some(artifact.clone());
    dependencies::check(run, &artifact.revision).await?;
    let inputs = build::inputs(run, &sources).await?;
    if !unchanged::conclude(run, &inputs).await? {
        announce(run, &artifact).await;
        build_and_apply(run, inputs, &artifact).await?;
    }
    run.status.last_applied_revision = Some(artifact.revision.clone());
    run.status.last_applied_origin_revision = artifact.origin_revision();
    Ok(())
}

async fn build_and_apply(run: &mut Run<'_>, inputs: Inputs, artifact: &Artifact) -> Result<(), Failure> {
    let key = ObjectKey::of(run.raw);
    // Whatever goes wrong from here on, the next run does all of it again.
    run.ctx.memory.builds.forget(&key);
    let seed = inputs.seed;
    let built = build::build(run, inputs, &artifact.revision).await?;
    let Applied { applied, jobs } = apply::apply(run, built.objects).await?;
    if let (Some((questions, answers)), Some(digest), None) = (built.basis, run.digest.clone(), run.again) {
        let build = Remembered { seed, questions, answers, digest, applied, jobs };
        run.ctx.memory.builds.remember(key, build);
    }
    Ok(())
}

fn judge(object: &Kustomization) -> Result<Judge, Failure> {
    Judge::new(&object.spec.health_check_exprs).map_err(|error| Failure::InvalidExpression(error.to_string()))
}

fn check_gates(run: &Run<'_>) -> Result<(), Failure> {
    let names_account = run
        .object
        .spec
        .decryption
        .as_ref()
        .is_some_and(|decryption| decryption.service_account_name.is_some());
    if names_account && !run.ctx.options.gates.object_level_workload_identity {
        return Err(Failure::FeatureGateDisabled);
    }
    Ok(())
}

/// Dependents read Ready, so that it is in doubt must be known before anything is applied.
async fn announce(run: &mut Run<'_>, artifact: &Artifact) {
    let is_new = run.status.last_applied_revision.as_ref() != Some(&artifact.revision)
        || run.object.observed_generation() != Some(run.object.generation())
        || !condition::is(&run.status.conditions, READY, ConditionStatus::True);
    if !is_new {
        return;
    }
    let timeout = GoDuration::from(run.timeout());
    let message =
        format!("Building manifests for revision {} with a timeout of {timeout}", artifact.revision);
    let mut conditions = run.conditions();
    conditions.set(RECONCILING, ConditionStatus::True, "Progressing", message);
    conditions.set(READY, ConditionStatus::Unknown, "Progressing", "Reconciliation in progress");
    run.write_progress().await;
}

fn conclude(run: &mut Run<'_>, result: Result<(), Failure>) -> Next {
    let failure = match result {
        Ok(()) => return conclude_success(run),
        Err(failure) => failure,
    };
    if let Failure::Superseded = &failure {
        return Next::Now;
    }
    if let Failure::Preempted(by) = &failure {
        return conclude_preempted(run, by, &failure);
    }
    conclude_failure(run, &failure)
}

fn conclude_success(run: &mut Run<'_>) -> Next {
    let interval = run.object.spec.interval;
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.clone());
    let message = format!("Applied revision: {}", revision.as_ref().map_or("", Revision::as_str));
    let mut conditions = run.conditions();
    conditions.delete(RECONCILING);
    conditions.delete(STALLED);
    conditions.set(READY, ConditionStatus::True, "ReconciliationSucceeded", message);
    run.status.observed_generation = run.object.generation();
    run.remember("ReconciliationSucceeded");
    let text = format!("Reconciliation finished in {}, next run in {interval}", since(run.started));
    let update = Some(("commit_status", "update"));
    run.tell(Severity::Info, "ReconciliationSucceeded", text, update);
    Next::After(run.again.unwrap_or_else(|| jittered(interval.to_std(), run.ctx.options.jitter_percent)))
}

/// A newer revision or request goes before the wait for health, always. Upstream does so, and tells of it, with its
/// feature gate only.
fn conclude_preempted(run: &mut Run<'_>, by: &str, failure: &Failure) -> Next {
    if run.ctx.options.gates.cancel_health_check_on_new_revision {
        run.conditions().set(READY, ConditionStatus::False, failure.reason(), failure.to_string());
        let text = format!("Health checks canceled due to new reconciliation triggered by {by}");
        run.tell(Severity::Info, failure.reason(), text, None);
    }
    Next::Now
}

fn conclude_failure(run: &mut Run<'_>, failure: &Failure) -> Next {
    let message = failure.to_string();
    let mut conditions = run.conditions();
    conditions.set(READY, ConditionStatus::False, failure.reason(), message.clone());
    if failure.is_final() {
        conditions.set(STALLED, ConditionStatus::True, failure.reason(), message.clone());
    } else {
        let progress = condition::find(conditions.list, RECONCILING).map(|last| last.message.clone());
        let progress = progress.unwrap_or_else(|| "Reconciliation in progress".to_owned());
        conditions.set(RECONCILING, ConditionStatus::True, "ProgressingWithRetry", progress);
    }
    if matches!(failure, Failure::InvalidExpression(_)) {
        run.status.observed_generation = run.object.generation();
    }
    if failure.is_remembered() {
        run.remember(failure.reason());
    }
    let requeue = run.ctx.options.requeue_dependency;
    if failure.is_quiet() {
        tracing::info!(%message, "source is not there yet");
    } else if matches!(failure, Failure::Dependency(_)) {
        let wait = GoDuration::from(requeue);
        let text = format!("Dependencies do not meet ready condition, retrying in {wait}");
        run.tell(Severity::Info, failure.reason(), text, None);
    } else {
        run.tell(Severity::Error, failure.reason(), message, None);
    }
    match failure {
        failure if failure.is_final() => Next::OnChange,
        Failure::Dependency(_) | Failure::NoArtifact(_) | Failure::ArtifactGone(_) => {
            Next::RetryAfter(requeue)
        }
        _ => {
            Next::RetryAfter(run.again.map_or(run.retry().to_std(), |again| again.min(run.retry().to_std())))
        }
    }
}

/// The message of an error from the API server, without its wrapping.
pub(super) fn short(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(answer) => answer.message.clone(),
        error => error.to_string(),
    }
}
