//! The end of a Kustomization: its objects go or stay as its deletion policy says, then its finalizer goes.

use flux_api::condition::{self, READY};
use flux_api::kustomize::{DeletionPolicy, Kustomization};
use flux_api::names::FINALIZER;
use flux_apply::{Action, Inventory, ObjectId};

use super::apply::list;
use super::handover;
use super::identity::{self, NoIdentity};
use super::observe::{SourceKey, artifact};
use super::run::{KIND, Run, STATUS_MANAGER};
use super::teardown::{self, Steps};
use crate::reconcile::{Next, Severity, status};

pub(super) async fn finalize(run: &mut Run<'_>) -> Next {
    if takes_its_objects_along(run.object)
        && (is_waited_for(run).await || teardown::has_finalizing_dependents(run))
    {
        return Next::RetryAfter(handover::AGAIN);
    }
    if takes_its_objects_along(run.object) {
        match delete_objects(run).await {
            Ok(Left::Nothing) => {}
            Ok(Left::Some) => {
                return Next::RetryAfter(teardown::AGAIN).if_told(run.write().await);
            }
            Err(message) => {
                tracing::warn!(%message, "objects could not be deleted");
                run.note_request();
                return Next::Backoff.if_told(run.write().await);
            }
        }
    }
    match status::remove_finalizer(&run.ctx.client, KIND, run.raw, STATUS_MANAGER, FINALIZER).await {
        Ok(()) => Next::OnChange,
        Err(_) => Next::Backoff,
    }
}

/// A Kustomization that was renamed is one that goes and one that comes: the latter first takes over what both mean.
async fn is_waited_for(run: &Run<'_>) -> bool {
    let source = SourceKey::primary(run.object);
    let found = source.and_then(|source| run.ctx.cache.get(source.kind_row(), &source.key));
    let revision = found.as_deref().and_then(artifact).map(|artifact| artifact.revision.to_string());
    match revision {
        Some(revision) => handover::is_pending(run, &revision, &run.inventory().objects()).await,
        None => false,
    }
}

/// Whether there is more to delete when others are done.
enum Left {
    Nothing,
    Some,
}

async fn delete_objects(run: &mut Run<'_>) -> Result<Left, String> {
    let objects = run.inventory().objects();
    if objects.is_empty() {
        return Ok(Left::Nothing);
    }
    run.ctx.memory.drift.forget(&objects);
    let cluster = match identity::cluster(run).await {
        Ok(cluster) => cluster,
        // With the account or the cluster gone, nobody can delete them any more; waiting would be for ever.
        Err(NoIdentity::Missing(why)) => {
            tracing::warn!(%why, "the objects are left behind");
            tell(run, Severity::Error, format!("unable to prune objects: \n{}", names(&objects)));
            return Ok(Left::Nothing);
        }
        Err(NoIdentity::Refused(why)) => return Err(why),
    };
    let Steps { now, later } = teardown::steps(run, &cluster, objects).await;
    let changes = match flux_apply::prune(&cluster, now, &run.owner()).await {
        Ok(changes) => changes,
        Err(error) => {
            tell(run, Severity::Error, "pruning for deleted resource failed".to_owned());
            return Err(error.to_string());
        }
    };
    if !changes.is_empty() {
        tell(run, Severity::Info, list(&changes, |_| true));
    }
    if !later.is_empty() {
        run.set_inventory(&Inventory::of(&later));
        return Ok(Left::Some);
    }
    if run.object.spec.deletion_policy == Some(DeletionPolicy::WaitForTermination) {
        let deleted: Vec<ObjectId> = changes
            .into_iter()
            .filter(|change| change.action == Action::Deleted)
            .map(|change| change.id)
            .collect();
        let waiting = flux_apply::prune::wait_until_gone(&cluster, &deleted, run.timeout());
        if !run.worker.outside(waiting).await.is_empty() {
            tell(run, Severity::Error, "failed to wait for resources termination".to_owned());
        }
    }
    Ok(Left::Nothing)
}

/// With the reason that Ready has, as upstream does: an object that goes gets no new one.
fn tell(run: &Run<'_>, severity: Severity, message: String) {
    let ready = condition::find(&run.status.conditions, READY).map(|ready| ready.reason.clone());
    let fallback = if severity == Severity::Error { "error" } else { "info" };
    run.tell(severity, ready.as_deref().unwrap_or(fallback), message, None);
}

fn names(objects: &[ObjectId]) -> String {
    objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn takes_its_objects_along(object: &Kustomization) -> bool {
    if object.spec.suspend {
        return false;
    }
    match object.spec.deletion_policy.unwrap_or_default() {
        DeletionPolicy::MirrorPrune => object.spec.prune,
        DeletionPolicy::Delete | DeletionPolicy::WaitForTermination => true,
        DeletionPolicy::Orphan => false,
    }
}
