//! Ownership: who gains and loses fields when an object is applied or updated.

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::conflict::Conflict;
use super::managed::{Manager, Operation, Owned, Owners};
use super::merge::merge;
use super::reconcile::reconcile;
use super::remove::remove;
use super::schema::Type;
use super::set::Set;
use super::typed::{Mismatches, field_set};

/// What all steps of one request need.
pub(super) struct Updater<'a> {
    pub(super) type_: Type<'a>,
    pub(super) api_version: &'a str,
    /// Fields that this endpoint resets: whoever sends them does not own them.
    pub(super) reset: &'a Set,
    /// Whether a version is still served; ownership in versions that are gone is dropped.
    pub(super) served: &'a dyn Fn(&str) -> bool,
}

pub(super) enum Failure {
    Conflicts(Vec<Conflict>),
    Mismatch(String),
}

impl Updater<'_> {
    /// The merged object, or none if nothing changes, and who owns what afterwards.
    pub(super) fn apply(
        &self,
        live: &Value,
        config: &Value,
        owners: Owners,
        manager: &Manager,
        force: bool,
    ) -> Result<(Option<Value>, Owners), Failure> {
        let mut owners = self.reconciled(owners);
        let failed = |what: &str| {
            let what = what.to_owned();
            move |mismatches: Mismatches| Failure::Mismatch(format!("{what}: {mismatches}"))
        };
        let merged = merge(Some(live), Some(config), self.type_).map_err(failed("failed to merge config"))?;
        let set = field_set(config, self.type_).map_err(failed("failed to get field set"))?;
        let set = set.recursive_difference(self.reset);
        let last = owners.get(manager).map(|owned| owned.set.clone());
        let time = owners.get(manager).and_then(|owned| owned.time.clone());
        owners.insert(manager.clone(), Owned { set, api_version: self.api_version.to_owned(), time });
        let merged = merged.unwrap_or_default();
        // Who names everything they named before leaves nothing behind: most applies end here.
        let left_behind = last.filter(|last| !last.difference(&owners[manager].set).is_empty());
        let object = self.prune(&merged, &owners, left_behind).map_err(failed("failed to prune fields"))?;
        let owners = self.update_owners(live, &object, owners, manager, force)?.0;
        let changed = !super::path::equal(live, &object);
        Ok((changed.then_some(object), owners))
    }

    /// Who owns what after the object became `after` by another way than apply.
    pub(super) fn update(
        &self,
        before: &Value,
        after: &Value,
        owners: Owners,
        manager: &Manager,
    ) -> Result<Owners, Failure> {
        let owners = self.reconciled(owners);
        let (mut owners, changes) = self.update_owners(before, after, owners, manager, true)?;
        let own = owners.get(manager);
        let set = own.map(|owned| owned.set.clone()).unwrap_or_default();
        let set = set.difference(&changes.removed).union(&changes.modified).union(&changes.added);
        let set = set.recursive_difference(self.reset);
        let time = own.and_then(|owned| owned.time.clone());
        if set.is_empty() {
            owners.remove(manager);
        } else {
            owners.insert(manager.clone(), Owned { set, api_version: self.api_version.to_owned(), time });
        }
        Ok(owners)
    }

    /// Takes changed fields from everyone else, or answers who is in the way.
    fn update_owners(
        &self,
        before: &Value,
        after: &Value,
        mut owners: Owners,
        manager: &Manager,
        force: bool,
    ) -> Result<(Owners, Comparison), Failure> {
        let changes = compare(before, after, self.type_)
            .map_err(|mismatches| Failure::Mismatch(format!("failed to compare objects: {mismatches}")))?
            .without(self.reset);
        owners.retain(|other, owned| other == manager || (self.served)(&owned.api_version));
        let touched = changes.modified.union(&changes.added);
        let mut conflicts = Vec::new();
        for (other, owned) in owners.iter_mut().filter(|(other, _)| *other != manager) {
            let taken = owned.set.intersection(&touched);
            conflicts.extend(taken.paths().into_iter().map(|path| Conflict { manager: other.clone(), path }));
            owned.set = owned.set.difference(&taken).difference(&changes.removed);
        }
        if !force && !conflicts.is_empty() {
            return Err(Failure::Conflicts(conflicts));
        }
        owners.retain(|_, owned| !owned.set.is_empty());
        Ok((owners, changes))
    }

    /// Removes what the manager applied last time and not this time, unless someone else owns it too.
    fn prune(&self, merged: &Value, owners: &Owners, last: Option<Set>) -> Result<Value, Mismatches> {
        let Some(last) = last.filter(|last| !last.is_empty()) else { return Ok(merged.clone()) };
        let named = |set: &Set| set.with_named_fields(self.type_);
        let all = named(&field_set(merged, self.type_)?);

        let pruned = remove(merged, &named(&last), self.type_);
        let owned = owners.values().fold(Set::default(), |all, owned| all.union(&owned.set));
        let kept = named(&field_set(&pruned, self.type_)?).union(&named(&owned));
        let pruned = remove(merged, &all.difference(&kept), self.type_);

        // What goes must have been owned by this manager, not merely lie inside something that was.
        let gone = all.difference(&named(&field_set(&pruned, self.type_)?));
        Ok(remove(merged, &gone.intersection(&named(&last)), self.type_))
    }

    fn reconciled(&self, owners: Owners) -> Owners {
        let served = owners.into_iter().filter(|(_, owned)| (self.served)(&owned.api_version));
        served
            .map(|(manager, owned)| {
                let set = reconcile(&owned.set, self.type_).unwrap_or(owned.set);
                (manager, Owned { set, ..owned })
            })
            .collect()
    }
}

impl Manager {
    /// Stands for the request itself while its changes are computed, so that earlier fields of the same manager do not
    /// look like changes.
    pub(super) fn current_operation(api_version: &str) -> Self {
        Manager {
            name: "current-operation".to_owned(),
            operation: Operation::Update,
            api_version: api_version.to_owned(),
            subresource: String::new(),
        }
    }
}
