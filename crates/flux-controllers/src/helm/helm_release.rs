//! HelmRelease: look, decide, act, and look again until nothing is left to do.
//!
//! Reads and writes await; decisions do not. What was achieved is kept in `status` even when a later step fails, so the
//! next run picks up from the truth.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus, READY, RECONCILING, RELEASED, REPLACE_HELD, STALLED};
use flux_api::duration::GoDuration;
use flux_api::helm::{ChartNameChangeStrategy, HelmRelease, HelmReleaseStatus, ReleaseSnapshot};
use flux_api::kinds::Kind;
use flux_api::names::{FINALIZER, RECONCILE_REQUEST};
use flux_api::request;
use flux_apply::health_exprs::Judge;
use futures::future::BoxFuture;
use helm::plan::{ReuseValues, objects_of, reuse_values};
use helm::release::{Release, Status};
use helm::{HookEvent, Values};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::actions::{Actor, ClusterKinds};
use super::chart_object::{self, Happened};
use super::execute::{Validation, id_of};
use super::identity::Target;
use super::next::{self, Action, Decision, Onward, Situation, Sort, Stall};
use super::policy::{self, Policy};
use super::prerequisites::Unmet;
use super::report::{KIND, Run, tell};
use super::state::{Observed, State};
use super::storage::{Records, Storage};
use super::values::compose;
use super::wait::Subject;
use super::{Context, Loaded, MANAGER, digest, names, outcomes, snapshot};
use crate::reconcile::{Next, ObjectKey, Reconcile, Severity, Worker, decode, jittered, resource, status};

pub struct HelmReleases {
    pub ctx: Arc<Context>,
    recent: Recent,
}

impl HelmReleases {
    pub fn new(ctx: Arc<Context>) -> Self {
        Self { ctx, recent: Recent::default() }
    }
}

/// Histories that were written and that the cache may not show yet. Acting on an older one would look like somebody
/// else's release.
#[derive(Default)]
struct Recent(Mutex<HashMap<ObjectKey, Vec<ReleaseSnapshot>>>);

impl Recent {
    fn put(&self, key: ObjectKey, history: Vec<ReleaseSnapshot>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, history);
    }

    /// Whether what the cache shows is older than what was written.
    fn is_ahead_of(&self, key: &ObjectKey, shown: &[ReleaseSnapshot]) -> bool {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match recent.get(key) {
            Some(history) if history != shown => true,
            Some(_) => {
                recent.remove(key);
                false
            }
            None => false,
        }
    }

    fn forget(&self, key: &ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl Reconcile for HelmReleases {
    fn kind(&self) -> &'static Kind {
        KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let raw = match self.up_to_date(raw).await {
                Ok(Some(raw)) => raw,
                Ok(None) => return Next::OnChange,
                Err(error) => {
                    tracing::warn!(%error, "the object could not be read again");
                    return Next::Backoff;
                }
            };
            let object: HelmRelease = match decode(&raw) {
                Ok(object) => object,
                Err(problem) => {
                    let text = format!("the object cannot be read: {problem}");
                    tell(&self.ctx.events, &raw, Severity::Error, "Failed", text, None);
                    return Next::OnChange;
                }
            };
            if !has_one_chart(&object) {
                tracing::error!("invalid Chart reference");
                return Next::OnChange;
            }
            if object.is_deleting() {
                return self.finalize(&raw, &object, &worker).await;
            }
            if raw.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
                return self.work(&raw, &object, &worker).await;
            }
            match self.add_finalizer(&raw).await {
                Ok(marked) => self.work(&marked, &object, &worker).await,
                // Somebody else was faster: the watch brings the newer object.
                Err(kube::Error::Api(answer)) if answer.code == 409 => Next::Backoff,
                Err(kube::Error::Api(answer)) if answer.code == 404 => Next::OnChange,
                Err(error) => {
                    tracing::warn!(%error, "finalizer could not be added");
                    Next::Backoff
                }
            }
        })
    }

    fn forget(&self, key: &ObjectKey) {
        self.recent.forget(key);
    }
}

/// How a run ended.
pub(super) enum End {
    /// Nothing left to do until the interval is over.
    Settled,
    /// Not yet; the wait doubles each time.
    Backoff,
    /// Not yet, for a while that is known.
    After(Duration),
    /// Something else has to be done first, at once.
    Again,
    Stalled,
    Unmet(Unmet),
}

impl HelmReleases {
    /// The object with the status that was written last; `None` when it is gone.
    async fn up_to_date(&self, raw: Arc<DynamicObject>) -> Result<Option<Arc<DynamicObject>>, kube::Error> {
        let key = ObjectKey::of(&raw);
        let shown: Vec<ReleaseSnapshot> = raw
            .data
            .pointer("/status/history")
            .and_then(|history| serde_json::from_value(history.clone()).ok())
            .unwrap_or_default();
        if !self.recent.is_ahead_of(&key, &shown) {
            return Ok(Some(raw));
        }
        self.recent.forget(&key);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.ctx.client.clone(), &key.namespace, &resource(KIND));
        Ok(api.get_opt(&key.name).await?.map(Arc::new))
    }

    async fn work(&self, raw: &DynamicObject, object: &HelmRelease, worker: &Worker) -> Next {
        let written = object.status.clone().unwrap_or_default();
        let mut run = Run {
            raw,
            object,
            status: written.clone(),
            written,
            algorithm: self.ctx.options.snapshot_digest_algo,
        };
        if object.spec.suspend {
            self.note_request(&mut run);
            return Next::OnChange.if_told(self.write(&mut run).await);
        }
        let end = self.bring_about(&mut run, worker).await;
        let next = self.conclude(&mut run, end);
        self.note_request(&mut run);
        next.if_told(self.write(&mut run).await)
    }

    async fn bring_about(&self, run: &mut Run<'_>, worker: &Worker) -> End {
        let checks = match Judge::new(&run.object.spec.health_check_exprs) {
            Ok(checks) => checks,
            Err(problem) => return End::Unmet(Unmet::Expression(problem.to_string())),
        };
        let (loaded, values, target) = match self.prerequisites(run, worker).await {
            Ok(met) => met,
            Err(unmet) => return End::Unmet(unmet),
        };
        if let Some(reason) = target_changed(run.object, &run.status, loaded.chart.name()) {
            if let Some(held) = self.held(run, &target, reason).await {
                return held;
            }
            tracing::info!(
                reason,
                "release target configuration changed: running uninstall for current release"
            );
            return self.leave_old_target(run, &target, worker).await;
        }
        condition::delete(&mut run.status.conditions, REPLACE_HELD);
        self.note_attempt(run, &loaded, &values);
        self.release(run, worker, &target, &checks, &loaded, &values).await
    }

    async fn prerequisites(
        &self,
        run: &mut Run<'_>,
        worker: &Worker,
    ) -> Result<(Loaded, Values, Target), Unmet> {
        let no_cross = self.ctx.options.no_cross_namespace_refs;
        let made =
            chart_object::reconcile(&self.ctx.client, &self.ctx.cache, run.object, &mut run.status, no_cross)
                .await;
        let made = made.map_err(|error| match error {
            chart_object::Error::AccessDenied(_) => Unmet::AccessDenied(error.to_string()),
            error => Unmet::ChartObject(error.to_string()),
        })?;
        made.iter().for_each(|happened| self.trace(run.raw, happened));
        if !condition::is(&run.status.conditions, STALLED, ConditionStatus::True) {
            run.set(RECONCILING, ConditionStatus::True, "Progressing", "Fulfilling prerequisites");
        }
        let dependencies = self.ctx.check_dependencies(run.object).await;
        if !matches!(dependencies, Err(Unmet::DependencyCycle(_))) {
            run.clear_cycle();
        }
        dependencies?;
        run.clear_ready(&["DependencyNotReady"]);
        let (source, artifact) = self.ctx.artifact(run.object)?;
        run.clear_ready(&["AccessDenied", "SourceNotReady"]);
        let referenced = self.ctx.referenced(run.object).await?;
        let spec = &run.object.spec;
        let composed =
            compose(Object::namespace(run.object), spec.values.as_ref(), &spec.values_from, &referenced);
        let composed = composed.map_err(|error| Unmet::Values(error.to_string()))?;
        run.clear_ready(&["ValuesError"]);
        let loaded = worker.outside(self.ctx.chart(&source, &artifact)).await?;
        run.clear_ready(&["ArtifactFailed", "ChartMutateError"]);
        let target =
            self.ctx.target(run.object).await.map_err(|error| Unmet::Identity(error.message().to_owned()))?;
        run.clear_ready(&["RESTClientError", "HelmChartSyncErr", "InvalidCELExpression"]);
        Ok((loaded, composed.values, target))
    }

    fn note_attempt(&self, run: &mut Run<'_>, loaded: &Loaded, values: &Values) {
        let object = run.object;
        run.status.storage_namespace = Some(names::storage_namespace(object).to_owned());
        let reset = request::reset_requested(
            object.metadata.annotations.as_ref(),
            run.status.last_handled_reconcile_at.as_deref(),
            run.status.last_handled_reset_at.as_deref(),
        );
        let last = policy::attempted_values(&run.status).unwrap_or_default();
        let compared = digest::of_values(digest::algorithm_of(&last), values.as_map());
        let why = policy::resets_failures(object, &run.status, loaded.version(), &compared, reset.honour);
        if let Some(why) = why {
            tracing::debug!(why, "resetting failure count");
            policy::clear_failures(&mut run.status);
        }
        if let Some(token) = reset.record {
            run.status.last_handled_reset_at = Some(token.to_owned());
        }
        run.status.last_attempted_generation = object.generation();
        run.status.last_attempted_revision = Some(loaded.version().to_owned());
        run.status.last_attempted_revision_digest.clone_from(&loaded.oci_digest);
        run.status.last_attempted_config_digest = Some(digest::of_values(run.algorithm, values.as_map()));
        run.status.last_attempted_values_checksum = None;
        run.status.last_release_revision = 0;
    }

    /// Looks, decides and acts until nothing is left to do.
    async fn release(
        &self,
        run: &mut Run<'_>,
        worker: &Worker,
        target: &Target,
        checks: &Judge,
        loaded: &Loaded,
        values: &Values,
    ) -> End {
        let (object, cluster) = (run.object, &target.cluster);
        let storage =
            Storage::new(cluster.client.clone(), names::storage_namespace(object), helm::Dialect::Helm4);
        let policy = self.policy(object);
        let kube_version = match target.kube_version().await {
            Ok(version) => version,
            Err(problem) => return self.no_state(run, &problem),
        };
        let actor = Actor {
            object,
            policy,
            cluster,
            storage: &storage,
            worker,
            checks,
            kube_version,
            dialect: self.ctx.options.dialect(),
            enable_dns: self.ctx.options.allow_dns_lookups,
            cancel_health_check: self.ctx.options.cancel_health_check,
            override_managers: &self.ctx.options.override_managers,
        };
        let force = request::force_requested(
            object.metadata.annotations.as_ref(),
            run.status.last_handled_reconcile_at.as_deref(),
            run.status.last_handled_force_at.as_deref(),
        );
        let mut forced = force.honour;
        if let Some(token) = force.record {
            run.status.last_handled_force_at = Some(token.to_owned());
        }
        let mut done: Vec<Sort> = Vec::new();
        let mut known: Option<Records> = None;
        loop {
            let records = match known.take() {
                Some(records) => Ok(records),
                None => storage.read(&names::release_name(object)).await,
            };
            let mut records = match records {
                Ok(records) => records,
                Err(error) => {
                    return self
                        .no_state(run, &format!("failed to retrieve last release from storage: {error}"));
                }
            };
            let (state, drift) = match self.look(run, &actor, &records, loaded, values).await {
                Ok(seen) => seen,
                Err(problem) => return self.no_state(run, &problem),
            };
            tracing::debug!(?state, "state of the release");
            let rollback = match &state {
                State::Failed { .. } => {
                    let ignore = policy.upgrade(&run.status).ignore_test_failures;
                    next::rollback_target(&run.status.history, &records.history, ignore)
                }
                _ => next::Target::None,
            };
            let situation = Situation { policy, status: &run.status, force: forced, target: rollback };
            let decision = situation.decide(&state);
            forced = false;
            outcomes::prepare(run, policy, &state, &self.ctx.events, drift.as_ref());
            let action = match decision {
                Decision::Do(action) => action,
                Decision::Nothing => {
                    condition::delete(&mut run.status.conditions, RECONCILING);
                    run.summarize(policy);
                    return End::Settled;
                }
                Decision::Stall(stall) => {
                    if stall == Stall::RetriesExceeded
                        && state == (State::Failed { why: "" })
                        && self.recover(run, &actor, &mut records, loaded, values).await
                    {
                        continue;
                    }
                    return self.stall(run, policy, stall);
                }
            };
            if done.contains(&action.sort()) {
                let onward = next::before_repeating(policy, &run.status);
                return self.onward(run, policy, onward).unwrap_or(End::Backoff);
            }
            self.announce(run, policy, action).await;
            let started = Instant::now();
            let ended =
                outcomes::act(run, &actor, action, &mut records, loaded, values, drift, &self.ctx.events)
                    .await;
            run.summarize(policy);
            tracing::info!(action = action.name(), took = ?started.elapsed(), failed = ended.is_err(), "action ended");
            if let Err(fault) = ended {
                if fault.canceled {
                    return self.canceled(run, loaded);
                }
                if let Some(reason) = fault.lasting {
                    run.stall(policy, reason, "the same would be refused again", &self.again(run.object));
                    return End::Stalled;
                }
                if let Some(interval) = policy.active_retry(&run.status) {
                    return self.onward(run, policy, Onward::RetryAfter(interval)).unwrap_or(End::Backoff);
                }
                if run.ready().is_some_and(|ready| ready.status == ConditionStatus::True) {
                    run.set(READY, ConditionStatus::False, "ReconcileError", fault.message);
                }
                self.will_retry(run);
                return End::Backoff;
            }
            if let Some(end) = self.onward(run, policy, next::after(action, policy, &run.status)) {
                return end;
            }
            // After a release that went well, the records are what was just written: a write of somebody else would
            // have been refused. After anything else they are read again.
            let went_well = action.sort() == Sort::Release
                && condition::is(&run.status.conditions, RELEASED, ConditionStatus::True);
            known = went_well.then_some(records);
            done.push(action.sort());
        }
    }

    async fn look(
        &self,
        run: &Run<'_>,
        actor: &Actor<'_>,
        records: &Records,
        loaded: &Loaded,
        values: &Values,
    ) -> Result<(State, Option<super::drift::Drift>), String> {
        let last = records.history.last();
        // With values that are kept from release to release, what is wanted is what comes of both.
        let preserves = run.object.spec.upgrade.as_ref().is_some_and(|upgrade| upgrade.preserve_values);
        let kept = last
            .filter(|_| preserves)
            .map(|last| reuse_values(values.clone(), last, ReuseValues::ResetThenReuse));
        let (spec, status) = (&run.object.spec, &run.status);
        let like = |digest: Option<&str>| digest::algorithm_of(digest.unwrap_or_default());
        let latest = snapshot::latest(&status.history).map(|latest| latest.config_digest.as_str());
        let config_digest = digest::of_values(like(latest), kept.as_ref().unwrap_or(values).as_map());
        let algorithm = like(status.observed_post_renderers_digest.as_deref());
        let post_renderers = digest::of_post_renderers(algorithm, &spec.post_renderers);
        let algorithm = like(status.observed_common_metadata_digest.as_deref());
        let common_metadata = digest::of_common_metadata(algorithm, spec.common_metadata.as_ref());
        let mut observed = Observed {
            policy: actor.policy,
            status: &run.status,
            last,
            chart_name: loaded.chart.name(),
            chart_version: loaded.version(),
            config_digest: &config_digest,
            post_renderers_digest: post_renderers.as_deref(),
            common_metadata_digest: common_metadata.as_deref(),
            has_drifted: false,
        };
        let state = observed.state();
        let (State::InSync, Some(last), true) = (&state, last, actor.policy.detects_drift()) else {
            return Ok((state, None));
        };
        let drift = super::drift::detect(actor, last).await?;
        observed.has_drifted = drift.has_changes();
        Ok((observed.state(), Some(drift)))
    }

    /// A release that took too long and is healthy now has arrived after all.
    async fn recover(
        &self,
        run: &mut Run<'_>,
        actor: &Actor<'_>,
        records: &mut Records,
        loaded: &Loaded,
        values: &Values,
    ) -> bool {
        let Some(last) = records.history.last().cloned() else {
            return false;
        };
        if !may_recover(&last, &run.status, loaded, values) {
            return false;
        }
        let Ok(kinds) = actor.kinds(Duration::from_secs(60)).await else {
            return false;
        };
        let Ok(objects) = objects_of(&last.manifest, &last.namespace, &ClusterKinds(&kinds)) else {
            return false;
        };
        let subjects: Vec<Subject> =
            objects.iter().map(|object| Subject::new(id_of(object), Some(&object.json))).collect();
        let executor = actor.executor(&kinds, Duration::ZERO, Validation::Strict);
        if !executor.waiter.are_ready(actor.cluster, &subjects).await {
            return false;
        }
        outcomes::recovered(run, actor, records, last, &self.ctx.events).await
    }

    async fn announce(&self, run: &mut Run<'_>, policy: Policy<'_>, action: Action) {
        let timeout = GoDuration::from(policy.timeout(action));
        let text = format!("Running '{}' action with timeout of {timeout}", action.name());
        run.set(RECONCILING, ConditionStatus::True, "Progressing", text.clone());
        if action.sort() == Sort::Release {
            run.set(READY, ConditionStatus::Unknown, "Progressing", text);
        }
        if let Err(error) = self.write(run).await {
            tracing::warn!(%error, "progress could not be written");
        }
    }

    fn onward(&self, run: &mut Run<'_>, policy: Policy<'_>, onward: Onward) -> Option<End> {
        match onward {
            Onward::Continue => None,
            Onward::Retry => {
                self.will_retry(run);
                Some(End::Backoff)
            }
            Onward::RetryAfter(interval) => {
                let text = format!("retrying after {}", GoDuration::from(interval));
                run.set(RECONCILING, ConditionStatus::True, "ProgressingWithRetry", text);
                Some(End::After(jittered(interval, self.ctx.jitter_percent)))
            }
            Onward::Rest => {
                condition::delete(&mut run.status.conditions, RECONCILING);
                Some(End::Settled)
            }
            Onward::Stall(stall) => Some(self.stall(run, policy, stall)),
        }
    }

    /// Something newer arrived while a release was waited for: that comes first.
    fn canceled(&self, run: &mut Run<'_>, loaded: &Loaded) -> End {
        let by = self.ctx.newer_than(run.object, loaded);
        let text = format!("New reconciliation triggered by {by}");
        run.set(READY, ConditionStatus::False, "HealthCheckCanceled", text);
        let text = format!("Health checks canceled due to new reconciliation triggered by {by}");
        tell(&self.ctx.events, run.raw, Severity::Info, "HealthCheckCanceled", text, None);
        End::Again
    }

    fn will_retry(&self, run: &mut Run<'_>) {
        let message = run.ready().map(|ready| ready.message.clone()).unwrap_or_default();
        run.set(RECONCILING, ConditionStatus::True, "ProgressingWithRetry", message);
    }

    fn stall(&self, run: &mut Run<'_>, policy: Policy<'_>, stall: Stall) -> End {
        let (reason, message) = match stall {
            Stall::RetriesExceeded => {
                let action = run.status.last_attempted_release_action.map_or("release", |action| action.as_str());
                let failures = policy.active(&run.status).map_or(0, |remediation| remediation.failures);
                ("RetriesExceeded", format!("Failed to {action} after {failures} attempt(s)"))
            }
            Stall::MissingRollbackTarget => (
                "MissingRollbackTarget",
                "Failed to perform remediation: missing target release for rollback: cannot remediate failed release"
                    .to_owned(),
            ),
        };
        run.stall(policy, reason, &message, &self.again(run.object));
        End::Stalled
    }

    /// When a stalled release is looked at next.
    fn again(&self, object: &HelmRelease) -> String {
        let interval = object.spec.interval;
        format!(
            "its objects are looked at every {interval}, and it is tried again when chart, values or spec change"
        )
    }

    fn no_state(&self, run: &mut Run<'_>, problem: &str) -> End {
        let text = format!("Could not determine release state: {problem}");
        run.set(READY, ConditionStatus::False, "StateError", text);
        self.will_retry(run);
        End::Backoff
    }

    fn conclude(&self, run: &mut Run<'_>, end: End) -> Next {
        let interval = || jittered(run.object.spec.interval.to_std(), self.ctx.jitter_percent);
        let generation = run.object.generation();
        match end {
            End::Settled => {
                run.status.observed_generation = generation;
                Next::After(interval())
            }
            End::Stalled => {
                run.status.observed_generation = generation;
                Next::After(interval())
            }
            End::After(wait) => {
                run.status.observed_generation = generation;
                Next::RetryAfter(wait)
            }
            End::Backoff => Next::Backoff,
            End::Again => Next::Now,
            End::Unmet(unmet) => self.conclude_unmet(run, &unmet),
        }
    }

    fn conclude_unmet(&self, run: &mut Run<'_>, unmet: &Unmet) -> Next {
        let (reason, message) = (unmet.reason(), unmet.to_string());
        let requeue = self.ctx.options.requeue_dependency;
        let event = |severity, text: &str| tell(&self.ctx.events, run.raw, severity, reason, text, None);
        match unmet {
            Unmet::Expression(_) => {
                event(Severity::Error, &message);
                let text = format!("Reconciliation failed terminally due to configuration error: {message}");
                run.set(READY, ConditionStatus::False, reason, text.clone());
                run.set(STALLED, ConditionStatus::True, reason, text);
                run.status.observed_generation = run.object.generation();
                return Next::OnChange;
            }
            Unmet::AccessDenied(_) | Unmet::DependencyCycle(_) => {
                event(Severity::Error, &message);
                condition::delete(&mut run.status.conditions, RECONCILING);
                run.set(READY, ConditionStatus::False, reason, message.clone());
                run.set(STALLED, ConditionStatus::True, reason, message);
                run.status.observed_generation = run.object.generation();
                return Next::OnChange;
            }
            Unmet::Dependency(_) => event(Severity::Info, &message),
            Unmet::Values(_) | Unmet::Artifact(_) => event(Severity::Error, &message),
            Unmet::ChartObject(_) => event(Severity::Trace, &message),
            Unmet::SourceMissing(_)
            | Unmet::SourceNotReady(_)
            | Unmet::ArtifactGone(_)
            | Unmet::ChartVersion(_)
            | Unmet::Identity(_) => tracing::info!(%message, "not yet"),
        }
        run.set(READY, ConditionStatus::False, reason, message);
        match unmet {
            Unmet::Dependency(_) | Unmet::ArtifactGone(_) => Next::RetryAfter(requeue),
            Unmet::SourceNotReady(_) => Next::RetryAfter(jittered(requeue, self.ctx.jitter_percent)),
            _ => Next::Backoff,
        }
    }

    pub(super) fn policy<'o>(&self, object: &'o HelmRelease) -> Policy<'o> {
        Policy { object, retry_by_default: self.ctx.options.retry_on_failure_by_default }
    }

    pub(super) fn trace(&self, raw: &DynamicObject, happened: &Happened) {
        let (reason, text) = match happened {
            Happened::Created(text) => ("HelmChartCreated", text),
            Happened::Configured(text) => ("HelmChartConfigured", text),
            Happened::Deleted(text) => ("HelmChartDeleted", text),
        };
        tell(&self.ctx.events, raw, Severity::Trace, reason, text, None);
    }

    pub(super) fn note_request(&self, run: &mut Run<'_>) {
        if let Some(token) = run.raw.annotations().get(RECONCILE_REQUEST) {
            run.status.last_handled_reconcile_at = Some(token.clone());
        }
    }

    pub(super) async fn write(&self, run: &mut Run<'_>) -> Result<(), kube::Error> {
        let key = ObjectKey::of(run.raw);
        status::write(&self.ctx.client, KIND, &key, MANAGER, &run.written, &run.status).await?;
        if run.written.history != run.status.history {
            self.recent.put(key, run.status.history.clone());
        }
        run.written = run.status.clone();
        Ok(())
    }

    /// The object with the finalizer: nothing is released before it is there.
    async fn add_finalizer(&self, raw: &DynamicObject) -> Result<DynamicObject, kube::Error> {
        let mut finalizers = raw.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        self.patch_finalizers(raw, &finalizers, raw.metadata.resource_version.as_deref()).await
    }

    /// `unless_changed_from`: the version that must still be there.
    pub(super) async fn patch_finalizers(
        &self,
        raw: &DynamicObject,
        finalizers: &[String],
        unless_changed_from: Option<&str>,
    ) -> Result<DynamicObject, kube::Error> {
        let mut patch = json!({ "metadata": { "finalizers": finalizers } });
        if let Some(version) = unless_changed_from {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let key = ObjectKey::of(raw);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.ctx.client.clone(), &key.namespace, &resource(KIND));
        api.patch(&key.name, &parameters, &Patch::Merge(&patch)).await
    }
}

/// The API server sees to it; this is for objects that got past it.
fn has_one_chart(object: &HelmRelease) -> bool {
    object.spec.chart.is_some() != object.spec.chart_ref.is_some()
}

/// Why the release stands somewhere else than it should: then it is uninstalled there first.
fn target_changed(object: &HelmRelease, status: &HelmReleaseStatus, chart: &str) -> Option<&'static str> {
    let latest = snapshot::latest(&status.history)?;
    let stored = status.storage_namespace.as_deref()?;
    let in_place = object
        .spec
        .upgrade
        .as_ref()
        .and_then(|upgrade| upgrade.chart_name_change_strategy)
        .is_some_and(|strategy| strategy == ChartNameChangeStrategy::InPlaceUpdate);
    match () {
        () if names::storage_namespace(object) != stored => Some("storage namespace"),
        () if names::release_namespace(object) != latest.namespace => Some("release namespace"),
        () if names::release_name(object) != latest.name => Some("release name"),
        () if chart != latest.chart_name && !in_place => Some("chart name"),
        () => None,
    }
}

fn is_of(values: &Values, config_digest: &str) -> bool {
    digest::of_values(digest::algorithm_of(config_digest), values.as_map()) == config_digest
}

/// Whether a failed release is what is wanted and failed only by taking too long. Hooks that come after the wait have not
/// run then, so a release that has some is not complete.
fn may_recover(last: &Release, status: &HelmReleaseStatus, loaded: &Loaded, values: &Values) -> bool {
    let late =
        ["timeout waiting for: ", "failed early due to stalled resources", "context deadline exceeded"];
    let known = snapshot::latest(&status.history)
        .is_some_and(|latest| snapshot::verifies(latest, last) && is_of(values, &latest.config_digest));
    let has_later_hooks = last.hooks.iter().any(|hook| {
        hook.events.iter().any(|event| matches!(event, HookEvent::PostInstall | HookEvent::PostUpgrade))
    });
    let in_hooks = last.info.description.contains("hooks failed: ")
        || last.info.description.contains("failed: failed p");
    last.info.status == Status::Failed
        && known
        && last.chart_name() == loaded.chart.name()
        && last.chart_version() == loaded.version()
        && late.iter().any(|words| last.info.description.contains(words))
        && !in_hooks
        && !has_later_hooks
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::{knows, object, release};
    use super::*;

    #[test]
    fn a_history_that_was_written_counts_before_the_cache_shows_it() {
        let (recent, key) = (Recent::default(), ObjectKey::new("apps", "web"));
        let (old, new) =
            (knows(&release(1, Status::Deployed)).history, knows(&release(2, Status::Deployed)).history);
        assert!(!recent.is_ahead_of(&key, &old));
        recent.put(key.clone(), new.clone());
        assert!(recent.is_ahead_of(&key, &old), "the cache is behind");
        assert!(!recent.is_ahead_of(&key, &new), "it has caught up");
        assert!(!recent.is_ahead_of(&key, &old), "from then on it is trusted");
        recent.put(key.clone(), new);
        recent.forget(&key);
        assert!(!recent.is_ahead_of(&key, &old));
    }

    #[test]
    fn a_release_has_one_chart_or_one_reference() {
        let mut object = object(json!({}));
        assert!(has_one_chart(&object));
        let chart = json!({"spec": {"chart": "c", "sourceRef": {"kind": "HelmRepository", "name": "r"}}});
        object.spec.chart = serde_json::from_value(chart).unwrap();
        assert!(!has_one_chart(&object), "both");
        object.spec.chart_ref = None;
        assert!(has_one_chart(&object));
        object.spec.chart = None;
        assert!(!has_one_chart(&object), "neither");
    }

    #[test]
    fn a_release_has_moved_when_its_place_its_name_or_its_chart_is_another() {
        let mut status = knows(&release(1, Status::Deployed));
        let changed = |spec, status: &HelmReleaseStatus, chart| target_changed(&object(spec), status, chart);
        assert_eq!(changed(json!({"releaseName": "x"}), &status, "c"), None, "nothing is stored yet");
        status.storage_namespace = Some("apps".to_owned());
        assert_eq!(changed(json!({}), &status, "c"), None);
        for (spec, why) in [
            (json!({"storageNamespace": "x"}), "storage namespace"),
            (json!({"targetNamespace": "x", "releaseName": "web"}), "release namespace"),
            (json!({"releaseName": "x"}), "release name"),
        ] {
            assert_eq!(changed(spec, &status, "c"), Some(why));
        }
        assert_eq!(changed(json!({}), &status, "d"), Some("chart name"));
        let in_place = json!({"upgrade": {"chartNameChangeStrategy": "InPlaceUpdate"}});
        assert_eq!(changed(in_place, &status, "d"), None);
        status.history.clear();
        assert_eq!(changed(json!({"releaseName": "x"}), &status, "c"), None, "nothing was released yet");
    }
}
