//! Objects that move from one Kustomization to another within a commit: the one that loses them must not delete them
//! before the one that gets them has made them its own. So whoever has something to delete first lets every other
//! applier of the same source see the revision, for a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kustomize::Kustomization;
use flux_api::revision::Revision;

use super::dependencies::kustomization;
use super::observe::SourceKey;
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

/// Whether others may still take over what this one would delete at `revision`.
pub(super) fn is_pending(run: &Run<'_>, revision: &str) -> bool {
    if run.ctx.options.upstream_only {
        return false;
    }
    let key = ObjectKey::of(run.raw);
    let mut waiting = run.ctx.memory.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
    if !others_are_behind(run, revision) {
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

fn others_are_behind(run: &Run<'_>, revision: &str) -> bool {
    let Some(source) = SourceKey::primary(run.object) else { return false };
    let own = ObjectKey::of(run.raw);
    run.ctx.cache.list(KIND).iter().filter(|raw| ObjectKey::of(raw) != own).any(|raw| {
        kustomization(raw)
            .is_some_and(|other| SourceKey::all(&other).contains(&source) && !has_seen(&other, revision))
    })
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
