//! Server-side apply and field ownership.
//!
//! The law is structured-merge-diff v6 with apimachinery's `managedfields`: who applies owns the fields they name,
//! who changes a field otherwise owns it too (operation `Update`), and applying against another owner's value is a
//! conflict unless forced. Fields a manager applied before and does not apply now are removed, unless someone else owns them.
//!
//! Pure functions over JSON: time, schema and stored object are arguments. Objects are compared as they are given,
//! so builtin kinds must come as Kubernetes would encode them (see `structural::builtin`).
//!
//! Deliberately absent: conversion between versions. Ownership recorded in another served version is read with the
//! schema of this one, which is what CRDs with conversion `None` mean; ownership in a version no longer served is dropped.

mod compare;
mod conflict;
mod managed;
mod merge;
mod path;
mod reconcile;
mod remove;
mod reset;
mod schema;
mod set;
mod typed;
mod updater;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use managed::{Owners, decode, encode};
use updater::{Failure, Updater};

pub use conflict::{Conflict, Conflicts};
pub use managed::{BadManagedFields, Manager, Operation};
pub use path::{Path, PathElement};
pub use reset::reset_fields;
pub use schema::Type;
pub use set::{BadFields, InOrder, Set};
pub use typed::Mismatches;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The size all annotations may have together.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// One endpoint's view of field management: a kind, or a subresource of it.
pub struct FieldManager<'a> {
    /// The root type: `Type::builtin(schema)`, `Type::CustomResource(schema)`, or `Type::Deduced` without a schema.
    pub type_: Type<'a>,
    /// `apps/v1`.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// What this endpoint ignores: see [`reset_fields`].
    pub reset: &'a Set,
    /// What an object that does not exist yet looks like: for builtin kinds the empty Go structure
    /// (`structural::builtin::empty`), else apiVersion and kind.
    pub empty: &'a Value,
    /// Whether an apiVersion is served.
    pub served: &'a dyn Fn(&str) -> bool,
    /// The request's time, RFC 3339 with seconds, as `managedFields` shows it.
    pub now: &'a str,
}

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Status 409, reason Conflict.
    #[error("{0}")]
    Conflict(Conflicts),
    /// Status 400.
    #[error("{0}")]
    BadRequest(String),
    /// Status 500: upstream does not classify these.
    #[error("{0}")]
    Internal(String),
}

impl FieldManager<'_> {
    /// Applies a configuration. The answer still needs defaults and admission; if it equals the live object nothing changed.
    pub fn apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, Error> {
        self.check_type(applied)?;
        let live = live.unwrap_or(self.empty);
        let owners = decode(live.pointer("/metadata/managedFields"))
            .map_err(|error| Error::Internal(format!("failed to decode managed fields: {error}")))?;
        let mut answer = self.apply_tracked(live, applied, &owners, manager, force);
        if manager == "kubectl"
            && let Err(Error::Conflict(conflicts)) = &answer
        {
            answer = self.take_over_client_side(live, applied, &owners, manager, conflicts.clone());
        }
        let (mut object, owners) = answer?;
        if manager == "kubectl" {
            refresh_last_applied(&mut object, applied);
        }
        set_managed_fields(&mut object, encode(&owners));
        Ok(object)
    }

    /// Records who changed what after a create, update or other patch. `after` may carry `managedFields` of its own: then
    /// those count (unless this is a subresource), and an empty list forgets everything, so do not round-trip it away for builtin
    /// kinds (custom resources lose it when their metadata is read, as upstream). What cannot be understood is
    /// dropped, for a broken record must not stop a write.
    pub fn track_update(&self, before: Option<&Value>, mut after: Value, manager: &str) -> Value {
        let live = before.unwrap_or(self.empty);
        let owners = self.owners_for_update(live, &after);
        set_managed_fields(&mut after, None);
        // Nobody tracks an object whose tracking was switched off, until it is applied.
        let untracked = owners.is_empty() && live.pointer("/metadata/uid").is_some_and(|uid| uid != "");
        if untracked {
            return after;
        }
        if let Ok(mut owners) = self.updated(&without_managed_fields(live), &after, owners, manager) {
            managed::cap_updaters(&mut owners);
            set_managed_fields(&mut after, encode(&owners));
        }
        after
    }

    fn apply_tracked(
        &self,
        live: &Value,
        applied: &Value,
        owners: &Owners,
        manager: &str,
        force: bool,
    ) -> Result<(Value, Owners), Error> {
        let live = without_managed_fields(live);
        let mut owners = owners.clone();
        if owners.is_empty() {
            // What was there before anyone was recorded belongs to nobody in particular.
            owners = self.updated(self.empty, &live, owners, "before-first-apply").map_err(|error| {
                Error::Internal(format!("failed to create manager for existing fields: {error}"))
            })?;
        }
        self.check(applied, false).map_err(|error| self.untyped("patch", applied, &error))?;
        self.check(&live, true).map_err(|error| self.untyped("live", &live, &error))?;
        let manager = self.manager(manager, Operation::Apply);
        let (object, mut owners) = self.updater().apply(&live, applied, owners, &manager, force).map_err(
            |failure| match failure {
                Failure::Conflicts(conflicts) => Error::Conflict(Conflicts(conflicts)),
                Failure::Mismatch(message) => Error::Internal(message),
            },
        )?;
        strip(&mut owners, &manager);
        if object.is_some()
            && let Some(owned) = owners.get_mut(&manager)
        {
            owned.time = Some(self.now.to_owned());
        }
        Ok((object.unwrap_or(live), owners))
    }

    /// kubectl's move from client-side to server-side apply: conflicts on fields that the annotation shows kubectl set
    /// itself, and nobody changed since, are no conflicts.
    fn take_over_client_side(
        &self,
        live: &Value,
        applied: &Value,
        owners: &Owners,
        manager: &str,
        conflicts: Conflicts,
    ) -> Result<(Value, Owners), Error> {
        let Some(allowed) = self.set_client_side(live) else { return Err(Error::Conflict(conflicts)) };
        let left: Vec<Conflict> =
            conflicts.iter().filter(|conflict| !allowed.has(&conflict.path)).cloned().collect();
        if !left.is_empty() {
            return Err(Error::Conflict(Conflicts(left)));
        }
        self.apply_tracked(live, applied, owners, manager, true)
    }

    fn set_client_side(&self, live: &Value) -> Option<Set> {
        let text = live["metadata"]["annotations"][LAST_APPLIED].as_str().filter(|text| !text.is_empty())?;
        let last: Value = serde_json::from_str(text).ok()?;
        if last["apiVersion"] != self.api_version {
            return None;
        }
        let live = without_managed_fields(live);
        self.check(&live, false).ok()?;
        self.check(&last, false).ok()?;
        let changes = compare::compare(&last, &live, self.type_).ok()?;
        let set = typed::field_set(&last, self.type_).ok()?;
        Some(set.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
    }

    fn updated(
        &self,
        before: &Value,
        after: &Value,
        owners: Owners,
        manager: &str,
    ) -> Result<Owners, String> {
        self.check(after, true).map_err(|error| error.to_string())?;
        self.check(before, true).map_err(|error| error.to_string())?;
        let current = Manager::current_operation(self.api_version);
        let mut owners =
            self.updater().update(before, after, owners, &current).map_err(|failure| match failure {
                Failure::Conflicts(_) => "conflict".to_owned(),
                Failure::Mismatch(message) => message,
            })?;
        strip(&mut owners, &current);
        if let Some(mut taken) = owners.remove(&current) {
            let manager = self.manager(manager, Operation::Update);
            if let Some(previous) = owners.get(&manager) {
                taken.set = taken.set.union(&previous.set);
            }
            taken.time = Some(self.now.to_owned());
            owners.insert(manager, taken);
        }
        Ok(owners)
    }

    fn owners_for_update(&self, live: &Value, after: &Value) -> Owners {
        let of = |object: &Value| decode(object.pointer("/metadata/managedFields"));
        let stored = || of(live).unwrap_or_default();
        if !self.subresource.is_empty() {
            return stored();
        }
        if managed::is_reset(after.pointer("/metadata/managedFields")) {
            return Owners::new();
        }
        match of(after) {
            Ok(owners) if !owners.is_empty() => owners,
            _ => stored(),
        }
    }

    /// Whether a configuration could be applied at all: it is of the kind, and has only fields the kind knows.
    pub fn check_applied(&self, applied: &Value) -> Result<(), Error> {
        self.check_type(applied)?;
        self.check(applied, false).map_err(|error| self.untyped("patch", applied, &error))
    }

    /// The live object with a configuration merged into it, without any change of ownership.
    pub fn merged(&self, live: &Value, configuration: &Value) -> Result<Value, Error> {
        self.check_applied(configuration)?;
        merge::merge(Some(live), Some(configuration), self.type_)
            .map(Option::unwrap_or_default)
            .map_err(|error| self.untyped("patch", configuration, &error))
    }

    fn check_type(&self, applied: &Value) -> Result<(), Error> {
        let text = |key: &str| applied[key].as_str().unwrap_or("");
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        if text("apiVersion") != self.api_version || text("kind") != self.kind {
            return Err(Error::BadRequest(format!(
                "invalid object type: {}",
                gvk_text(group, version, text("kind"))
            )));
        }
        match applied.pointer("/metadata/managedFields") {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(Error::BadRequest("metadata.managedFields must be nil".to_owned())),
        }
    }

    fn check(&self, object: &Value, duplicates: bool) -> Result<(), Mismatches> {
        typed::validate(object, self.type_, duplicates, typed::MAX_DEPTH).result(())
    }

    fn untyped(&self, what: &str, object: &Value, error: &Mismatches) -> Error {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        Error::Internal(format!(
            "failed to create typed {what} object ({}/{}; {}): {error}",
            text("/metadata/namespace"),
            text("/metadata/name"),
            gvk_text(group, version, self.kind)
        ))
    }

    fn manager(&self, name: &str, operation: Operation) -> Manager {
        let api_version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => self.api_version.to_owned(),
        };
        Manager { name: name.to_owned(), operation, api_version, subresource: self.subresource.to_owned() }
    }

    fn updater(&self) -> Updater<'_> {
        Updater { type_: self.type_, api_version: self.api_version, reset: self.reset, served: self.served }
    }
}

/// Go's `%v` of a GroupVersionKind: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
fn gvk_text(group: &str, version: &str, kind: &str) -> String {
    format!("{group}/{version}, Kind={kind}")
}

/// Takes out what nobody owns: identity and what the server sets.
fn strip(owners: &mut Owners, manager: &Manager) {
    static NEVER_OWNED: std::sync::LazyLock<Set> = std::sync::LazyLock::new(|| {
        let metadata = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        let mut set = Set::of(&[&["apiVersion"], &["kind"], &["metadata"]]);
        for field in metadata {
            set.insert(&[PathElement::field("metadata"), PathElement::field(field)]);
        }
        set
    });
    let Some(owned) = owners.get_mut(manager) else { return };
    owned.set = owned.set.difference(&NEVER_OWNED);
    if owned.set.is_empty() {
        owners.remove(manager);
    }
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    set_managed_fields(&mut object, None);
    object
}

fn set_managed_fields(object: &mut Value, fields: Option<Value>) {
    match (object.get_mut("metadata").and_then(Value::as_object_mut), fields) {
        (Some(metadata), Some(fields)) => {
            metadata.insert("managedFields".to_owned(), fields);
        }
        (Some(metadata), None) => {
            metadata.remove("managedFields");
        }
        (None, Some(fields)) => {
            if let Some(object) = object.as_object_mut() {
                object.insert("metadata".to_owned(), json!({"managedFields": fields}));
            }
        }
        (None, None) => {}
    }
}

/// Keeps kubectl's client-side annotation in step, if there is one, so that both ways of applying can be mixed.
fn refresh_last_applied(object: &mut Value, applied: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(own) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        own.remove(LAST_APPLIED);
    }
    // Upstream's encoder ends the text with a line feed.
    let text = format!("{}\n", path::go_json(&applied));
    annotations.insert(LAST_APPLIED.to_owned(), text.into());
    if size(annotations) > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

fn size(annotations: &Map<String, Value>) -> usize {
    annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}
