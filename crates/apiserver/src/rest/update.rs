//! Replacing an object or its status, with optimistic concurrency; the end of every patch too.

use std::sync::Arc;

use serde_json::Value;

use super::{Call, Written, create, finish};
use crate::status::{Cause, Status};
use crate::storage::{Stored, WriteError};
use crate::{admission, defaults, object, ownership, strategy, validate};

/// How often a write that carries no revision of its own is tried again when others write meanwhile.
const ATTEMPTS: usize = 32;

/// `PUT`: replaces the object with `new`.
pub async fn update(call: &Call, new: Value) -> Result<Written, Status> {
    check_address(call, &new)?;
    let strategy = strategy::of(&call.resource);
    if strategy.create_on_update && call.subresource.is_empty() && call.stored().is_err() {
        let mut new = new;
        object::set_meta(&mut new, "resourceVersion", None);
        return create::create(call, new).await;
    }
    change(call, Managers::Update, |_| Ok(new.clone())).await
}

/// Who owns the fields a change touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managers {
    /// The changer owns what it changed.
    Update,
    /// The new object's managedFields are right already (server-side apply).
    Given,
}

/// Reads, lets `edit` make the new object from the old one, and writes it; again when someone else was faster, unless
/// the new object names the revision it was made from.
pub async fn change(
    call: &Call,
    managers: Managers,
    mut edit: impl FnMut(&Value) -> Result<Value, Status>,
) -> Result<Written, Status> {
    for _ in 0..ATTEMPTS {
        let stored = call.stored()?;
        let old = finish::shown(&call.resource, &stored);
        let edited = edit(&old)?;
        pinned_revision(call, &edited, &stored)?;
        let Some(new) = prepare(call, managers, &old, edited)? else {
            return Ok(unchanged(call, stored));
        };
        if call.options.dry_run {
            return Ok(Written::Imagined { object: new, created: false });
        }
        match write(call, &stored, new).await {
            // Tried again on the newer object, as the real server does. A request that names a revision is
            // refused there; a patch that does not has only copied the old one.
            Err(WriteError::Raced) => continue,
            Err(WriteError::Missing) => return Err(Status::not_found(call.about())),
            Err(error) => return Err(Status::internal(error)),
            Ok(written) => return Ok(written),
        }
    }
    Err(Status::modified(call.about()))
}

fn unchanged(call: &Call, stored: Arc<Stored>) -> Written {
    if call.options.dry_run {
        return Written::Imagined { object: finish::shown(&call.resource, &stored), created: false };
    }
    Written::Updated(stored)
}

pub fn check_address(call: &Call, new: &Value) -> Result<(), Status> {
    let name = object::name(new);
    if name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    if name != call.name {
        let url = &call.name;
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url})"
        )));
    }
    let namespace = object::namespace(new);
    if call.resource.namespaced() && !namespace.is_empty() && namespace != call.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Whether the new object says which revision it was made from; an error when that is not the current one.
fn pinned_revision(call: &Call, new: &Value, stored: &Stored) -> Result<bool, Status> {
    let uid = object::uid(new);
    if !uid.is_empty() && *uid != *stored.uid {
        let folder = match (&call.resource.custom, &*call.resource.plural) {
            (Some(_), plural) => format!("{}/{plural}", call.resource.group),
            (None, "services") => "services/specs".to_owned(),
            (None, plural) => plural.to_owned(),
        };
        let key = format!("/registry/{folder}/{}", stored.key);
        return Err(Status::conflict(
            call.about(),
            &format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                stored.uid
            ),
        ));
    }
    match object::meta_str(new, "resourceVersion") {
        "" | "0" if strategy::of(&call.resource).unconditional_update => Ok(false),
        "" => {
            let cause = Cause::new(
                crate::status::CauseReason::Invalid,
                "metadata.resourceVersion",
                "Invalid value: 0: must be specified for an update",
            );
            Err(Status::invalid(call.about(), &[cause]))
        }
        text => {
            let asked: u64 = text.parse().map_err(|_| {
                let quoted = Value::from(text);
                Status::unexpected(format!("strconv.ParseUint: parsing {quoted}: invalid syntax"))
            })?;
            if asked == stored.revision { Ok(true) } else { Err(Status::modified(call.about())) }
        }
    }
}

/// The object to write, or `None` when nothing changes.
fn prepare(call: &Call, managers: Managers, old: &Value, mut new: Value) -> Result<Option<Value>, Status> {
    keep_server_fields(call, old, &mut new);
    defaults::apply(&call.resource, &mut new);
    // Who owns what is settled before the cluster adds its part, as in the real server.
    if managers == Managers::Update {
        ownership::after_write(call, Some(old), &mut new);
    }
    let strategy = strategy::of(&call.resource);
    match call.subresource.as_str() {
        "" if strategy.status => copy_field(old, &mut new, "status"),
        "status" => new = with_status(call, old, new),
        "finalize" => new = with_finalizers(old, &new),
        _ => {}
    }
    admission::mutate(call, Some(old), &mut new)?;
    validate::update(call, old, &new)?;
    admission::validate(call, Some(old), &new)?;
    if call.subresource != "status"
        && strategy.generation
        && strategy::desired_state_changed(strategy, old, &new)
    {
        let generation = object::integer(old, "/metadata/generation").unwrap_or(0) + 1;
        object::set_meta(&mut new, "generation", Some(generation.into()));
    }
    let same = ownership::same_but_for_times(old, &new);
    Ok((!same).then_some(new))
}

/// Metadata that no client may change keeps its value.
fn keep_server_fields(call: &Call, old: &Value, new: &mut Value) {
    let old_meta = object::meta(old);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "selfLink",
    ] {
        object::set_meta(new, field, old_meta.get(field).cloned());
    }
    if call.resource.namespaced() {
        object::set_meta(new, "namespace", Some(call.namespace.clone().into()));
    } else {
        object::set_meta(new, "namespace", None);
    }
    if !object::meta(new).contains_key("generateName") {
        object::set_meta(new, "generateName", old_meta.get("generateName").cloned());
    }
    if let Some(fields) = new.as_object_mut() {
        fields.insert("apiVersion".into(), call.resource.api_version().into());
        fields.insert("kind".into(), (&*call.resource.kind).into());
    }
}

fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(fields.insert(field.into(), value.clone())),
        None => drop(fields.remove(field)),
    }
}

/// The old object with the new status. Builtin kinds also take over metadata (as their strategies do), custom ones
/// only managedFields.
fn with_status(call: &Call, old: &Value, mut new: Value) -> Value {
    let mut result = old.clone();
    copy_field(&new, &mut result, "status");
    if call.resource.custom.is_none() {
        let managed = object::meta(&new).get("managedFields").cloned();
        let meta = std::mem::take(object::meta_mut(&mut new));
        *object::meta_mut(&mut result) = meta;
        object::set_meta(&mut result, "managedFields", managed);
    } else {
        object::set_meta(&mut result, "managedFields", object::meta(&new).get("managedFields").cloned());
    }
    result
}

/// `namespaces/finalize` changes the namespace's own finalizers and nothing else.
fn with_finalizers(old: &Value, new: &Value) -> Value {
    let mut result = old.clone();
    let finalizers = new.pointer("/spec/finalizers").cloned();
    let spec = object::child_mut(&mut result, "spec");
    match finalizers {
        Some(finalizers) => drop(spec.insert("finalizers".into(), finalizers)),
        None => drop(spec.remove("finalizers")),
    }
    object::set_meta(&mut result, "managedFields", object::meta(new).get("managedFields").cloned());
    result
}

async fn write(call: &Call, stored: &Stored, new: Value) -> Result<Written, WriteError> {
    let place = &call.resource.storage;
    let gone = stored.deleting && object::finalizers(&new).is_empty() && grace_is_over(&new);
    let new = finish::to_storage(call, new);
    if gone && call.subresource.is_empty() {
        let last = call.server.store.delete(place, &stored.key, stored.revision).await?;
        call.server.removed(&call.resource, &last);
        return Ok(Written::Imagined { object: new, created: false });
    }
    let fields = finish::fields(call, &new);
    let written = call.server.store.update(place, &stored.key, stored.revision, new, fields).await?;
    call.server.written(&call.resource, &written);
    Ok(Written::Updated(written))
}

fn grace_is_over(object: &Value) -> bool {
    object::integer(object, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0
}
