//! Objects that move from one Kustomization to another within a commit: the one that loses them must not delete them
//! before the one that gets them has made them its own. So whoever has something to delete first lets every other
//! applier of the same source see the revision, for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kustomize::Kustomization;
use flux_api::revision::Revision;
use flux_apply::{Inventory, ObjectId};
use kube::api::DynamicObject;

use super::build;
use super::dependencies::kustomization;
use super::observe::{self, SourceKey};
use super::run::{KIND, Run};
use crate::reconcile::ObjectKey;

/// Nobody is waited for longer.
const LONGEST: Duration = Duration::from_secs(120);
/// How soon a run that left something undeleted comes again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
const MOST: usize = 100_000;

/// Since when somebody has been waiting for the others.
#[derive(Default)]
pub struct Waiting(Mutex<BTreeMap<ObjectKey, (String, Instant)>>);

/// What those apply that cannot start yet, by object, generation and revision; `None` where it cannot be told.
#[derive(Default)]
pub struct Claims(Mutex<BTreeMap<ObjectKey, Claim>>);

struct Claim {
    generation: i64,
    revision: String,
    ids: Option<Arc<Inventory>>,
}

/// Whether others may still take over `gone`, which this one would delete at `revision`.
pub(super) async fn is_pending(run: &Run<'_>, revision: &str, gone: &[ObjectId]) -> bool {
    if run.ctx.options.upstream_only {
        return false;
    }
    let key = ObjectKey::of(run.raw);
    let behind = others_are_behind(run, revision, gone).await;
    let mut waiting = run.ctx.memory.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
    if !behind {
        waiting.remove(&key);
        return false;
    }
    if waiting.len() >= MOST {
        waiting.clear();
    }
    let since = waiting.entry(key).or_insert_with(|| (revision.to_owned(), Instant::now()));
    if since.0 != revision {
        *since = (revision.to_owned(), Instant::now());
    }
    since.1.elapsed() < LONGEST
}

async fn others_are_behind(run: &Run<'_>, revision: &str, gone: &[ObjectId]) -> bool {
    let Some(source) = SourceKey::primary(run.object) else { return false };
    let own = ObjectKey::of(run.raw);
    let mut stuck = Vec::new();
    for raw in run.ctx.cache.list(KIND).into_iter().filter(|raw| ObjectKey::of(raw) != own) {
        let Some(other) = kustomization(&raw) else { continue };
        if !SourceKey::all(&other).contains(&source) || has_seen(&other, revision) {
            continue;
        }
        if !waits_for_dependencies(&other) {
            return true;
        }
        stuck.push((raw, other));
    }
    // Whoever waits for its dependencies may do so for ever; what it would apply can be found out now.
    for (raw, other) in stuck {
        if claims(run, &raw, &other, revision).await.is_none_or(|ids| gone.iter().any(|id| ids.contains(id)))
        {
            return true;
        }
    }
    false
}

fn waits_for_dependencies(other: &Kustomization) -> bool {
    let ready = condition::find(other.conditions(), condition::READY);
    ready.is_some_and(|ready| ready.status == ConditionStatus::False && ready.reason == "DependencyNotReady")
}

/// The ids of what `other` is going to apply.
async fn claims(
    run: &Run<'_>,
    raw: &DynamicObject,
    other: &Kustomization,
    revision: &str,
) -> Option<Arc<Inventory>> {
    let (key, generation) = (ObjectKey::of(raw), other.generation());
    let known = || run.ctx.memory.claims.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(claim) = known().get(&key)
        && claim.generation == generation
        && claim.revision == revision
    {
        return claim.ids.clone();
    }
    let ids = peek(run, raw, other).await.map(Arc::new);
    let mut known = known();
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(key, Claim { generation, revision: revision.to_owned(), ids: ids.clone() });
    ids
}

/// Builds what `other` would apply, and applies nothing.
async fn peek(run: &Run<'_>, raw: &DynamicObject, other: &Kustomization) -> Option<Inventory> {
    let mut theirs = Run::new(run.ctx, raw, other, run.worker);
    let sources = observe::sources(&theirs).ok()?;
    let revision = sources.main().revision.clone();
    let inputs = build::inputs(&theirs, &sources).await.ok()?;
    let built = build::build(&mut theirs, inputs, &revision).await.ok()?;
    let ids = flux_apply::identities(&run.ctx.cluster, &built.objects).await;
    Some(Inventory::of(&ids))
}

/// Whether `other` has done with `revision` what it can, or will do nothing at all.
fn has_seen(other: &Kustomization, revision: &str) -> bool {
    if other.spec.suspend || other.is_deleting() {
        return true;
    }
    let Some(status) = &other.status else { return false };
    if condition::is(&status.conditions, condition::STALLED, ConditionStatus::True) {
        return true;
    }
    let attempted = status.last_attempted_revision.as_ref().map(Revision::as_str) == Some(revision);
    let under_way = condition::is(&status.conditions, condition::READY, ConditionStatus::Unknown);
    let checks_health = condition::find(&status.conditions, condition::RECONCILING)
        .is_some_and(|doing| doing.message.starts_with("Running health checks"));
    attempted && (!under_way || checks_health)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn other(extra: Value, status: Value) -> Kustomization {
        let mut spec =
            json!({"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "b", "namespace": "n"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn status(revision: &str, ready: &str, doing: &str) -> Value {
        let condition = |kind: &str, status: &str, message: &str| json!({"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"lastAttemptedRevision": revision, "conditions": [
            condition("Ready", ready, "m"), condition("Reconciling", "True", doing)]})
    }

    #[test]
    fn whoever_tried_the_revision_has_seen_it() {
        for (status, expected) in [
            (status("new", "True", ""), true),
            (status("new", "False", ""), true),
            (status("new", "Unknown", "Building manifests for …"), false),
            (status("new", "Unknown", "Running health checks for …"), true),
            (status("old", "True", ""), false),
            (json!({}), false),
        ] {
            assert_eq!(has_seen(&other(json!({}), status.clone()), "new"), expected, "{status}");
        }
        assert!(has_seen(&other(json!({"suspend": true}), json!({})), "new"));
    }
}
