//! Applying what was built and deleting what is gone. The inventory is written before the first create, and whatever
//! could not be deleted stays in it.

use flux_apply::ignore::InvalidRule;
use flux_apply::{Action, Change, Cluster, IgnoreRules, Inventory, ObjectId};
use serde_json::Value;

use super::brake::{self, Plan};
use super::drift::{self, Manifests};
use super::failure::Failure;
use super::run::Run;
use super::self_management::guard::Guard;
use super::self_management::locks_out;
use super::{drift_report, handover, health, identity, owners, teardown};
use crate::reconcile::{Cause, ObjectKey};

pub(super) const MANAGER: &str = "kustomize-controller";

/// Applies, prunes and waits for health; what health is about comes back.
pub(super) async fn apply(run: &mut Run<'_>, objects: Vec<Value>) -> Result<Applied, Failure> {
    let cluster = identity::cluster(run)
        .await
        .map_err(|error| Failure::Apply(format!("failed to build kube client: {}", error.message())))?;
    let mut guard = Guard::of(run, &objects).await;
    if let Some(pinned) = guard.take_if(|guard| guard.is_pinned()) {
        return Err(pinned.stay(run, &cluster).await);
    }
    if let Some(guard) = &mut guard {
        if let Some(why) = locks_out(&objects, run.object) {
            return Err(Failure::Apply(format!("nothing was applied: {why}")));
        }
        guard.begin(run).await;
    }
    let Brought { old, new, changes, jobs } = match bring(run, &cluster, objects, guard.is_some()).await {
        Ok(brought) => brought,
        Err((failure, written)) => {
            if let (Some(guard), false) = (guard, written) {
                guard.nothing_was_written(run).await;
            }
            return Err(failure);
        }
    };
    // What the controllers of a set need in order to roll is not deleted before they have.
    if let Some(guard) = guard {
        guard.settle(run, &cluster, &changes).await?;
    }
    prune(run, &cluster, &old, &new).await?;
    let changed = changes.iter().any(is_written);
    let applied = changes.into_iter().filter(|change| change.action != Action::Skipped);
    let applied: Vec<ObjectId> = applied.map(|change| change.id).collect();
    let checked = health::Checked { applied: applied.clone(), jobs: jobs.clone(), changed };
    health::check(run, &cluster, checked).await?;
    Ok(Applied { applied, jobs })
}

/// What is in the cluster after an apply, before anything is deleted.
pub(super) struct Brought {
    pub(super) old: Inventory,
    pub(super) new: Inventory,
    pub(super) changes: Vec<Change>,
    jobs: Vec<ObjectId>,
}

/// Applies; with a failure comes whether anything was written.
pub(super) async fn bring(
    run: &mut Run<'_>,
    cluster: &Cluster,
    objects: Vec<Value>,
    all_or_nothing: bool,
) -> Result<Brought, (Failure, bool)> {
    let mut options = options(run).map_err(|error| (Failure::Apply(error.to_string()), false))?;
    options.all_or_nothing = all_or_nothing;
    let ids = flux_apply::identities(cluster, &objects).await;
    let (old, new) = (run.inventory(), Inventory::of(&ids));
    let both = old.union(&new);
    if both != old {
        run.set_inventory(&both);
        // A crash after this must not leave objects that nobody knows of, so without it nothing is created.
        run.write().await.map_err(|error| {
            let text = format!("the inventory could not be written, so nothing was applied: {error}");
            (Failure::Apply(text), false)
        })?;
    }
    let jobs = jobs_with_ttl(&objects);
    let changes = match apply_objects(run, cluster, objects, options).await {
        Ok(changes) => changes,
        Err(error) => {
            let listed = list(&error.changes, is_written);
            let written = !listed.is_empty();
            let message = if written { format!("{error}\n{listed}") } else { error.to_string() };
            return Err((Failure::Apply(message), written));
        }
    };
    log(run, &changes);
    owners::report(run, &old, &changes);
    drift_report::report(run, &old, &changes);
    let listed = list(&changes, is_written);
    if !listed.is_empty() {
        run.tell_progress(listed);
    }
    Ok(Brought { old, new, changes, jobs })
}

/// What nobody touched since it was last applied is left alone; what is applied now is remembered as such.
async fn apply_objects(
    run: &Run<'_>,
    cluster: &Cluster,
    objects: Vec<Value>,
    mut options: flux_apply::Options,
) -> Result<Vec<Change>, flux_apply::apply::Error> {
    // Other clusters are not watched.
    if run.object.spec.kube_config.is_some() {
        return flux_apply::apply(cluster, objects, &options).await;
    }
    let (drift, key) = (run.ctx.memory.drift.clone(), ObjectKey::of(run.raw));
    // Another spec may mean another way to apply.
    let seed = run.raw.metadata.generation.unwrap_or_default().unsigned_abs();
    let manifests = Manifests::new(&objects, seed);
    // Whoever asks for a run wants to know how things are, and the watch may be a moment behind.
    options.try_all = run.worker.cause == Cause::Request;
    let (known, owner) = (drift.clone(), key.clone());
    options.verified = flux_apply::Verified::by(move |id, manifest| {
        known.is_verified(&owner, id, drift::mark(manifest, seed))
    });
    let applying = drift.applying(&key);
    let result = flux_apply::apply(cluster, objects, &options).await;
    if let Ok(changes) = &result {
        drift.verified(&run.ctx.cluster, &key, changes, &manifests);
    }
    drop(applying);
    result
}

/// What was applied and not skipped, and which of it are Jobs that delete themselves.
pub(super) struct Applied {
    pub(super) applied: Vec<ObjectId>,
    pub(super) jobs: Vec<ObjectId>,
}

fn options(run: &Run<'_>) -> Result<flux_apply::Options, InvalidRule> {
    let options = &run.ctx.options;
    Ok(flux_apply::Options {
        force: run.object.spec.force,
        concurrent: options.concurrent_ssa,
        custom_stages: options.custom_stage_kinds.clone(),
        override_managers: options.override_managers.clone(),
        ignore: IgnoreRules::new(&run.object.spec.ignore)?,
        migrate_api_version: options.gates.migrate_api_version,
        ..flux_apply::Options::new(MANAGER)
    })
}

/// Jobs that delete themselves: gone means done.
pub(super) fn jobs_with_ttl(objects: &[Value]) -> Vec<ObjectId> {
    let is_job = |object: &&Value| {
        object.get("kind").and_then(Value::as_str) == Some("Job")
            && object.pointer("/spec/ttlSecondsAfterFinished").is_some_and(|ttl| !ttl.is_null())
    };
    objects.iter().filter(is_job).filter_map(ObjectId::of).collect()
}

fn log(run: &Run<'_>, changes: &[Change]) {
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.to_string());
    if !run.ctx.options.gates.group_change_log {
        let output = list(changes, |_| true);
        tracing::info!(output, revision, "server-side apply completed");
        return;
    }
    for action in [Action::Created, Action::Configured, Action::Unchanged, Action::Skipped] {
        let output = list(changes, |change| change.action == action);
        if !output.is_empty() {
            tracing::info!(action = action.as_str(), output, revision, "server-side apply completed");
        }
    }
}

/// Deletes what is in `old` and not in `new`, as far as it may go by now.
pub(super) async fn prune(
    run: &mut Run<'_>,
    cluster: &Cluster,
    old: &Inventory,
    new: &Inventory,
) -> Result<(), Failure> {
    let gone = old.minus(new);
    if !run.object.spec.prune || gone.is_empty() {
        run.set_inventory(new);
        run.conditions().delete(brake::CONDITION);
        return Ok(());
    }
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.to_string()).unwrap_or_default();
    run.ctx.memory.drift.forget(&gone);
    if handover::is_pending(run, &revision, &gone).await {
        // They stay in the inventory, and the next run deletes what nobody took over.
        run.set_inventory(&old.union(new));
        run.again = Some(handover::AGAIN);
        return Ok(());
    }
    let plan = if run.ctx.options.upstream_only {
        Plan::without_brake(gone)
    } else {
        brake::plan(run, cluster, gone, old).await
    };
    brake::report(run, &plan);
    let steps = teardown::steps(run, cluster, plan.delete).await;
    if !steps.later.is_empty() {
        run.again = Some(teardown::AGAIN);
    }
    let kept =
        new.union(&Inventory::of(plan.held.iter().map(|(id, _)| id))).union(&Inventory::of(&steps.later));
    let mut listed: Vec<Change> = Vec::new();
    listed.extend(plan.protected.iter().map(|id| Change::new(id.clone(), Action::Skipped)));
    match flux_apply::prune(cluster, steps.now, &run.owner()).await {
        Ok(changes) => {
            run.set_inventory(&kept);
            listed.extend(changes);
            let listed = list(&listed, |_| true);
            if !listed.is_empty() {
                run.tell_progress(listed);
            }
            Ok(())
        }
        Err(error) => {
            // Whatever refused to go stays in the inventory, or it would be forgotten for ever.
            run.set_inventory(&kept.union(&Inventory::of(&error.survivors)));
            Err(Failure::Prune(error.to_string()))
        }
    }
}

pub(super) fn is_written(change: &Change) -> bool {
    matches!(change.action, Action::Created | Action::Configured)
}

/// One line for each of these changes, as events write them.
pub(super) fn list(changes: &[Change], wanted: impl Fn(&Change) -> bool) -> String {
    let lines: Vec<String> = changes
        .iter()
        .filter(|change| wanted(change))
        .map(|change| format!("{} {}", change.id, change.action.as_str()))
        .collect();
    lines.join("\n")
}
