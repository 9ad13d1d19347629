//! Two Kustomizations that apply the same object: each undoes the other, at every interval. Both say so and name the
//! other; neither fails.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus};
use flux_apply::{Change, Inventory, ObjectId};

use super::dependencies::kustomization;
use super::run::{KIND, Run};
use crate::reconcile::{ObjectKey, Severity};

pub(super) const CONDITION: &str = "OwnerConflict";
/// Objects that one condition names.
const MOST_NAMED: usize = 10;
const MOST: usize = 10_000;
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The pairs that were told of each other.
#[derive(Default)]
pub struct Conflicts(Mutex<BTreeSet<(String, ObjectKey)>>);

/// Tells of what was ours, is wanted by us, and was found to be another's. `old` is what was ours before.
pub(super) fn report(run: &mut Run<'_>, old: &Inventory, changes: &[Change]) {
    if run.ctx.options.upstream_only {
        return;
    }
    let mut conflicts: Vec<(ObjectId, ObjectKey)> = Vec::new();
    for change in changes.iter().filter(|change| old.contains(&change.id)) {
        let Some((namespace, name)) = change.found.as_ref().and_then(|found| found.owner.clone()) else {
            continue;
        };
        let other = ObjectKey::new(namespace, name);
        if other != ObjectKey::of(run.raw) && still_applies(run, &other, &change.id) {
            conflicts.push((change.id.clone(), other));
        }
    }
    // What was not written this time may be in dispute still: whoever was named is asked again.
    for (id, other) in remembered(run) {
        let known = conflicts.iter().any(|(known, _)| known.inventory_id() == id);
        let ours = changes.iter().find(|change| change.id.inventory_id() == id);
        match ours {
            Some(change) if !known && still_applies(run, &other, &change.id) => {
                conflicts.push((change.id.clone(), other));
            }
            _ => {}
        }
    }
    remember(run, &conflicts);
    tell_of_what_was_given_up(run, changes);
    if conflicts.is_empty() {
        run.conditions().delete(CONDITION);
        return;
    }
    conflicts.sort();
    let message = message(&conflicts);
    let known = condition::find(&run.status.conditions, CONDITION).is_some_and(|now| now.message == message);
    if known {
        return;
    }
    run.conditions().set(CONDITION, ConditionStatus::True, "TwoOwners", message.clone());
    run.tell(Severity::Error, CONDITION, message, None);
    // An object that is just changing hands is no conflict a moment later.
    run.again = Some(run.again.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN));
    // The other one sees it when it looks, so it should look now.
    let others: BTreeSet<ObjectKey> = conflicts.into_iter().map(|(_, other)| other).collect();
    for other in others {
        run.ctx.memory.drift.look_again(&other);
    }
}

/// Whoever named this one as the other owner of something it applies no longer should look again, once that is known.
fn tell_of_what_was_given_up(run: &Run<'_>, changes: &[Change]) {
    let own = ObjectKey::of(run.raw);
    let applied: BTreeSet<String> = changes.iter().map(|change| change.id.inventory_id()).collect();
    let known = run.ctx.memory.conflicts.0.lock().unwrap_or_else(PoisonError::into_inner);
    for (pair, other) in known.iter().filter(|(_, other)| *other == own) {
        let Some((who, id)) = pair.split_once(' ') else { continue };
        let Some((namespace, name)) = who.split_once('/') else { continue };
        if !applied.contains(id) {
            tracing::info!(%other, who, id, "no longer applied by both");
            run.ctx.memory.drift.look_again_later(ObjectKey::new(namespace, name));
        }
    }
}

/// Whether another Kustomization still has the object among what it applied.
fn still_applies(run: &Run<'_>, other: &ObjectKey, id: &ObjectId) -> bool {
    let Some(other) = run.ctx.cache.get(KIND, other).and_then(|raw| kustomization(&raw)) else {
        return false;
    };
    if other.is_deleting() || other.spec.kube_config.is_some() != run.object.spec.kube_config.is_some() {
        return false;
    }
    let entries = other.status.iter().filter_map(|status| status.inventory.as_ref());
    let id = id.inventory_id();
    entries.flat_map(|inventory| &inventory.entries).any(|entry| entry.id == id)
}

fn remembered(run: &Run<'_>) -> Vec<(String, ObjectKey)> {
    let own = ObjectKey::of(run.raw).to_string();
    let known = run.ctx.memory.conflicts.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mine = known.iter().filter_map(|(pair, other)| {
        let (mine, id) = pair.split_once(' ')?;
        (mine == own).then(|| (id.to_owned(), other.clone()))
    });
    mine.collect()
}

fn remember(run: &Run<'_>, conflicts: &[(ObjectId, ObjectKey)]) {
    let own = format!("{} ", ObjectKey::of(run.raw));
    let mut known = run.ctx.memory.conflicts.0.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(pair, _)| !pair.starts_with(&own));
    if known.len() < MOST {
        known.extend(
            conflicts.iter().map(|(id, other)| (format!("{own}{}", id.inventory_id()), other.clone())),
        );
    }
}

fn message(conflicts: &[(ObjectId, ObjectKey)]) -> String {
    let mut named: Vec<String> = conflicts
        .iter()
        .take(MOST_NAMED)
        .map(|(id, other)| format!("{id} is applied by Kustomization {other}, too"))
        .collect();
    if conflicts.len() > MOST_NAMED {
        named.push(format!("and {} more", conflicts.len() - MOST_NAMED));
    }
    format!("{}; remove it from one of them", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_object_and_other_owner_and_stays_short() {
        let id = |name: &str| ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
        };
        let other = ObjectKey::new("n", "b");
        assert_eq!(
            message(&[(id("a"), other.clone())]),
            "ConfigMap/n/a is applied by Kustomization n/b, too; remove it from one of them"
        );
        let many: Vec<_> = (0..12).map(|n| (id(&n.to_string()), other.clone())).collect();
        assert!(message(&many).ends_with("and 2 more; remove it from one of them"));
    }
}
