//! A set that holds this system is on trial until its controllers are ready and it can be built anew by itself. Where that
//! does not happen in time, the last good set is applied again, and what failed is not tried again until the source offers
//! another.
//!
//! ```text
//! set ──dry-run of all──▶ trial ──controllers ready, built as it says itself──▶ good (kept in a Secret)
//!                           └──timeout, or the new Kustomization cannot be built──▶ pinned: the good set is back
//! ```

use flux_api::Object;
use flux_api::condition::ConditionStatus;
use flux_apply::{Change, Cluster, ObjectId};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;

use super::super::apply::{self, Brought};
use super::super::failure::Failure;
use super::super::run::{KIND, Run};
use super::super::{health, identity};
use super::last_good::{self, State};
use super::{controllers, is_in, is_itself, source_id};
use crate::reconcile::Severity;

pub(in super::super) const CONDITION: &str = "Pinned";
const REASON: &str = "RolledBack";
/// How soon a set that is not up yet is looked at again, where there is nothing to go back to.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Watches over one apply of a set that holds this system.
pub(in super::super) struct Guard {
    state: State,
    /// What the set says, to be kept when it is good.
    objects: Vec<Value>,
    controllers: Vec<ObjectId>,
    digest: String,
    revision: String,
    /// This run began the trial.
    is_new: bool,
}

impl Guard {
    /// `None` where the set is not this system, or everything is to be done as upstream does.
    pub(in super::super) async fn of(run: &Run<'_>, objects: &[Value]) -> Option<Self> {
        if !may_guard(run) || !(is_itself(objects, run.object) || is_in(&run.inventory(), run.object)) {
            return None;
        }
        let state = match last_good::read(run).await {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%error, "the last good set cannot be read");
                State::default()
            }
        };
        let digest = run.digest.clone().unwrap_or_default();
        let revision =
            run.artifact.as_ref().map(|artifact| artifact.revision.to_string()).unwrap_or_default();
        let controllers = controllers(objects);
        Some(Self { state, objects: objects.to_vec(), controllers, digest, revision, is_new: false })
    }

    /// Whether this set was tried in vain.
    pub(in super::super) fn is_pinned(&self) -> bool {
        self.state.is_pinned(&self.digest)
    }

    /// Brings the last good set back, again; why this one is not applied.
    pub(in super::super) async fn stay(mut self, run: &mut Run<'_>, cluster: &Cluster) -> Failure {
        restore(run, cluster, &mut self.state).await
    }

    fn is_known_good(&self) -> bool {
        self.state.good.as_ref().is_some_and(|good| good.digest == self.digest)
            && self.state.trial.is_none()
            && self.state.pinned.is_none()
    }

    /// Notes before the first write that a set is on trial, so that whoever comes after a crash knows.
    pub(in super::super) async fn begin(&mut self, run: &Run<'_>) {
        if self.is_known_good() || self.state.good.is_none() {
            return;
        }
        let before = self.state.clone();
        self.is_new = before.trial.as_ref().is_none_or(|trial| trial.revision != self.revision);
        self.state.try_set(&self.revision, &self.digest, Timestamp::now().as_second());
        if self.state != before {
            self.write(run).await;
        }
    }

    /// The set was refused as a whole.
    pub(in super::super) async fn nothing_was_written(mut self, run: &Run<'_>) {
        if self.is_new && self.state.trial.take().is_some() {
            self.write(run).await;
        }
    }

    /// Waits for the controllers of the set, and keeps it when they are ready.
    pub(in super::super) async fn settle(
        mut self,
        run: &mut Run<'_>,
        cluster: &Cluster,
        changes: &[Change],
    ) -> Result<(), Failure> {
        if self.is_known_good() {
            return Ok(());
        }
        let mut watched = self.controllers.clone();
        let source = source_id(run.object)
            .filter(|id| self.objects.iter().filter_map(ObjectId::of).any(|one| one.is_same(id)));
        if let (Some(trial), Some(source)) = (&mut self.state.trial, source) {
            let written =
                changes.iter().any(|change| change.id.is_same(&source) && apply::is_written(change));
            if written && !trial.source_changed {
                trial.source_changed = true;
                last_good::write(run, &self.state).await.unwrap_or_else(|error| not_kept(&error));
            }
            if self.state.trial.as_ref().is_some_and(|trial| trial.source_changed) {
                watched.push(source);
            }
        }
        if self.state.trial.is_none() {
            // Nothing to go back to: upstream would not wait, so nobody does.
            if !health::are_current(run, cluster, watched).await {
                run.again = Some(run.again.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN));
                return Ok(());
            }
        } else if let Some(problem) = health::settle(run, cluster, watched).await? {
            return Err(Failure::Controllers(problem));
        }
        if is_built_by_itself(run, cluster).await {
            self.keep(run).await;
        }
        Ok(())
    }

    async fn keep(&self, run: &mut Run<'_>) {
        match last_good::keep(run, &self.revision, &self.digest, &self.objects).await {
            Ok(true) => {}
            Ok(false) => {
                let advice = "the set is too large to be kept, so a broken one cannot be rolled back";
                if run.advise(advice) {
                    run.tell(Severity::Error, "LastGoodNotKept", advice.to_owned(), None);
                }
            }
            Err(error) => not_kept(&error),
        }
        run.conditions().delete(CONDITION);
    }

    async fn write(&self, run: &Run<'_>) {
        last_good::write(run, &self.state).await.unwrap_or_else(|error| not_kept(&error));
    }
}

fn not_kept(error: &kube::Error) {
    tracing::warn!(%error, "the state of the last good set could not be written");
}

/// Remote clusters have controllers of their own.
fn may_guard(run: &Run<'_>) -> bool {
    !run.ctx.options.upstream_only && run.object.spec.kube_config.is_none()
}

/// Whether this run was made by the Kustomization as the set has it. Where the set changed it, the next run shows whether it
/// can be built.
async fn is_built_by_itself(run: &Run<'_>, cluster: &Cluster) -> bool {
    let own = ObjectId::of_kind(KIND, run.namespace(), run.object.name());
    let generation = |object: Value| object.pointer("/metadata/generation").and_then(Value::as_i64);
    match cluster.get(&own).await {
        Ok(Some(live)) => generation(live) == Some(run.object.generation()),
        // Whoever may not look cannot have changed it.
        Ok(None) | Err(_) => true,
    }
}

/// After a run that failed: what was on trial for too long goes, and what was good comes back.
pub(in super::super) async fn after(run: &mut Run<'_>, failure: Failure) -> Failure {
    if !may_guard(run) || !is_in(&run.inventory(), run.object) {
        return failure;
    }
    if matches!(failure, Failure::Preempted(_) | Failure::Superseded | Failure::RolledBack(_)) {
        return failure;
    }
    let Ok(mut state) = last_good::read(run).await else { return failure };
    let is_unrestored = state.pinned.as_ref().is_some_and(|pinned| !pinned.restored);
    match left(run, &state, &failure) {
        Some(left) if !left.is_zero() => {
            run.again = Some(left);
            return failure;
        }
        None if !is_unrestored => return failure,
        Some(_) | None => {}
    }
    state.give_up(&failure.to_string());
    let cluster = match identity::cluster(run).await {
        Ok(cluster) => cluster,
        Err(error) => {
            tracing::error!(error = error.message(), "the last good set cannot be applied again");
            return failure;
        }
    };
    if let Err(error) = last_good::write(run, &state).await {
        not_kept(&error);
        return failure;
    }
    restore(run, &cluster, &mut state).await
}

/// How long what is on trial may take still; nothing where nothing is on trial.
fn left(run: &Run<'_>, state: &State, failure: &Failure) -> Option<Duration> {
    let trial = state.trial.as_ref()?;
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.to_string());
    // The same files could be built before this set changed the Kustomization; waiting makes nothing better.
    let is_hopeless = failure.is_of_the_files() && revision.as_deref() == Some(&trial.revision);
    if matches!(failure, Failure::Controllers(_)) || is_hopeless {
        return Some(Duration::ZERO);
    }
    let passed = u64::try_from(Timestamp::now().as_second().saturating_sub(trial.since)).unwrap_or_default();
    Some(run.timeout().saturating_sub(Duration::from_secs(passed)))
}

/// Applies the last good set, takes away what the other one brought, and says so.
async fn restore(run: &mut Run<'_>, cluster: &Cluster, state: &mut State) -> Failure {
    let (Some(good), Some(pinned)) = (state.good.clone(), state.pinned.clone()) else {
        return Failure::Apply("there is no last good set".to_owned());
    };
    let why = format!("revision {} was rolled back: {}", pinned.revision, pinned.why);
    let objects = match last_good::load(run, &good).await {
        Ok(objects) => objects,
        Err(error) => return Failure::Apply(format!("{why}; the last good set cannot be had: {error}")),
    };
    // Tried as a whole only where it can be: half of a good set is better than none.
    let Brought { old, new, .. } = match apply::bring(run, cluster, objects, false).await {
        Ok(brought) => brought,
        Err((failure, _)) => {
            return Failure::Apply(format!("{why}; the last good set cannot be applied: {failure}"));
        }
    };
    if let Err(failure) = apply::prune(run, cluster, &old, &new).await {
        tracing::warn!(%failure, "what a set brought that was rolled back could not be deleted");
    }
    let message = format!(
        "{why}; the last good set, of revision {}, was applied again and stays until the source offers another set",
        good.revision
    );
    if !pinned.restored {
        state.pinned = Some(last_good::Pinned { restored: true, ..pinned });
        last_good::write(run, state).await.unwrap_or_else(|error| not_kept(&error));
    }
    run.conditions().set(CONDITION, ConditionStatus::True, REASON, message.clone());
    Failure::RolledBack(message)
}
