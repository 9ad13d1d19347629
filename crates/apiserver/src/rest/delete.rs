//! Deleting objects: preconditions, finalizers, propagation to dependents, grace.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, Written, finish};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{self, About, Cause, Status};
use crate::storage::{Stored, WriteError};
use crate::{object, ownership, strategy};

const ATTEMPTS: usize = 32;
pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// What becomes of the objects this one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// `DeleteOptions`.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    pub grace_period: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub revision: Option<String>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// From the body and, where that is silent, the query.
    pub fn read(body: &Value, query: &crate::request::Query) -> Result<DeleteOptions, Status> {
        let policy = body["propagationPolicy"].as_str().or_else(|| query.get("propagationPolicy"));
        let orphan =
            body["orphanDependents"].as_bool().or_else(|| query.get("orphanDependents").map(|v| v == "true"));
        let propagation = match (policy, orphan) {
            (Some(_), Some(_)) => {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                let cause = Cause::invalid("propagationPolicy", &Value::from(policy), detail);
                return Err(Status::invalid_options("DeleteOptions", &[cause]));
            }
            (Some("Background"), _) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) => Some(Propagation::Orphan),
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let cause = Cause::not_supported("propagationPolicy", &Value::from(other), &supported);
                return Err(Status::invalid_options("DeleteOptions", &[cause]));
            }
            (None, Some(true)) => Some(Propagation::Orphan),
            (None, Some(false)) => Some(Propagation::Background),
            (None, None) => None,
        };
        Ok(DeleteOptions {
            grace_period: match body["gracePeriodSeconds"].as_i64() {
                Some(seconds) => Some(seconds),
                None => query.integer("gracePeriodSeconds")?,
            },
            propagation,
            uid: body.pointer("/preconditions/uid").and_then(Value::as_str).map(str::to_owned),
            revision: body
                .pointer("/preconditions/resourceVersion")
                .and_then(Value::as_str)
                .map(str::to_owned),
            dry_run: body["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
        })
    }
}

/// Deletes one object; it stays, marked, while finalizers or grace hold it.
pub async fn delete(call: &Call, options: &DeleteOptions) -> Result<Written, Status> {
    for _ in 0..ATTEMPTS {
        let stored = call.stored()?;
        match attempt(call, options, &stored).await {
            Err(Attempt::Raced) => continue,
            Err(Attempt::Failed(status)) => return Err(status),
            Ok(written) => return Ok(written),
        }
    }
    Err(Status::modified(call.about()))
}

enum Attempt {
    Raced,
    Failed(Status),
}

impl From<Status> for Attempt {
    fn from(status: Status) -> Attempt {
        Attempt::Failed(status)
    }
}

impl From<WriteError> for Attempt {
    fn from(error: WriteError) -> Attempt {
        match error {
            WriteError::Raced | WriteError::Missing => Attempt::Raced,
            other => Attempt::Failed(Status::internal(other)),
        }
    }
}

async fn attempt(call: &Call, options: &DeleteOptions, stored: &Arc<Stored>) -> Result<Written, Attempt> {
    let object = finish::shown(&call.resource, stored);
    check_preconditions(call, options, &object)?;
    crate::admission::delete(call, &object)?;
    let dry_run = options.dry_run || call.options.dry_run;
    let marked = mark(call, options, &object);
    let grace = object::integer(&marked, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
    if !object::finalizers(&marked).is_empty() || grace > 0 || holds_contents(call, &marked) {
        if dry_run {
            return Ok(Written::Imagined { object: marked, created: false });
        }
        if ownership::same_but_for_times(&object, &marked) {
            return Ok(Written::Updated(stored.clone()));
        }
        let kept = finish::to_storage(call, marked);
        let fields = finish::fields(call, &kept);
        let place = &call.resource.storage;
        let written = call.server.store.update(place, &stored.key, stored.revision, kept, fields).await?;
        call.server.written(&call.resource, &written);
        return Ok(Written::Updated(written));
    }
    if !dry_run {
        let last = call.server.store.delete(&call.resource.storage, &stored.key, stored.revision).await?;
        call.server.removed(&call.resource, &last);
        if &*call.resource.storage == "pods" {
            // Pods are deleted in two steps even when there is nothing to wait for, and the first one shows.
            return Ok(Written::Imagined { object: marked, created: false });
        }
        if strategy::of(&call.resource).returns_deleted {
            return Ok(Written::Imagined { object: finish::shown(&call.resource, &last), created: false });
        }
    } else if strategy::of(&call.resource).returns_deleted {
        return Ok(Written::Imagined { object, created: false });
    }
    Ok(Written::Answer(status::deleted(call.about(), &stored.uid)))
}

/// A namespace stays until its contents are gone (`cluster::namespaces`).
fn holds_contents(call: &Call, object: &Value) -> bool {
    let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array);
    &*call.resource.storage == "namespaces" && finalizers.is_some_and(|list| !list.is_empty())
}

fn check_preconditions(call: &Call, options: &DeleteOptions, object: &Value) -> Result<(), Status> {
    let about = About { kind: &call.resource.kind, ..call.about() };
    let uid = object::uid(object);
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(Status::conflict(
            about,
            &format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
                 been deleted and then recreated"
            ),
        ));
    }
    let revision = object::meta_str(object, "resourceVersion");
    if let Some(wanted) = options.revision.as_deref().filter(|wanted| *wanted != revision) {
        return Err(Status::conflict(
            about,
            &format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({revision}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

/// The object with its deletion begun: time, grace and the finalizers propagation asks for.
fn mark(call: &Call, options: &DeleteOptions, object: &Value) -> Value {
    let mut marked = object.clone();
    set_propagation(call, options, &mut marked);
    crate::admission::mark_deleted(call, &mut marked);
    let grace = grace_period(call, options, object);
    if object::is_deleting(object) {
        // A second delete can only shorten the grace.
        let old = object::integer(object, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        if grace < old {
            object::set_meta(&mut marked, "deletionGracePeriodSeconds", Some(grace.into()));
        }
        return marked;
    }
    let at = call.server.time_after(grace);
    object::set_meta(&mut marked, "deletionTimestamp", Some(at.into()));
    object::set_meta(&mut marked, "deletionGracePeriodSeconds", Some(grace.into()));
    if let Some(generation) =
        object::integer(object, "/metadata/generation").filter(|generation| *generation > 0)
    {
        object::set_meta(&mut marked, "generation", Some((generation + 1).into()));
    }
    if &*call.resource.storage == "namespaces" {
        object::child_mut(&mut marked, "status").insert("phase".into(), "Terminating".into());
    }
    marked
}

/// Only pods that run somewhere are given time to stop.
fn grace_period(call: &Call, options: &DeleteOptions, object: &Value) -> i64 {
    if &*call.resource.storage != "pods" {
        return 0;
    }
    let phase = object::text(object, "/status/phase");
    if object::text(object, "/spec/nodeName").is_empty() || matches!(phase, "Succeeded" | "Failed") {
        return 0;
    }
    let own = object::integer(object, "/spec/terminationGracePeriodSeconds").unwrap_or(30);
    options.grace_period.unwrap_or(own).max(0)
}

fn set_propagation(call: &Call, options: &DeleteOptions, object: &mut Value) {
    let held = object::finalizers(object).iter().map(|held| (*held).to_owned()).collect::<Vec<_>>();
    let propagation = options.propagation.unwrap_or_else(|| default_propagation(call, &held));
    let mut finalizers: Vec<String> =
        held.into_iter().filter(|held| held != FOREGROUND && held != ORPHAN).collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
    }
    object::set_meta(object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
}

fn default_propagation(call: &Call, held: &[String]) -> Propagation {
    if held.iter().any(|held| held == FOREGROUND) {
        return Propagation::Foreground;
    }
    if held.iter().any(|held| held == ORPHAN) {
        return Propagation::Orphan;
    }
    match &*call.resource.storage {
        "replicationcontrollers" => Propagation::Orphan,
        "jobs.batch" => {
            call.warn(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                 them or set propagationPolicy=Orphan to suppress this warning",
            );
            Propagation::Orphan
        }
        _ => Propagation::Background,
    }
}

/// Deletes every object the selectors match; answers with what was there.
pub async fn delete_collection(
    call: &Call,
    options: &DeleteOptions,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> Result<Value, Status> {
    let (revision, objects) = call.server.store.list(&call.resource.storage, &call.prefix());
    let mut items = Vec::new();
    for stored in objects {
        if !labels.matches(|key| stored.label(key)) || !fields.matches(|key| stored.field(key)) {
            continue;
        }
        let one = Call {
            server: call.server.clone(),
            resource: call.resource.clone(),
            namespace: stored.namespace().to_owned(),
            name: stored.name().to_owned(),
            subresource: String::new(),
            user: call.user.clone(),
            options: call.options.clone(),
            warnings: std::sync::Mutex::default(),
        };
        match delete(&one, options).await {
            Ok(_) => {}
            Err(status) if status.code == http::StatusCode::NOT_FOUND => continue,
            Err(status) => return Err(status),
        }
        items.push(finish::shown(&call.resource, &stored));
    }
    let mut meta = json!({ "resourceVersion": revision.to_string() });
    if call.resource.custom.is_some() {
        meta["continue"] = "".into();
    }
    Ok(json!({
        "kind": &*call.resource.list_kind, "apiVersion": call.resource.api_version(), "metadata": meta, "items": items,
    }))
}
