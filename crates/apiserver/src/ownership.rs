//! managedFields: who owns which field, kept on every write, and server-side apply on top of it.
//!
//! The merge itself is `apply`'s; this file fits it to requests: manager names, times, schemas, refusals.

use kube_schema::{Schema, Schemas};
use serde_json::{Value, json};

use crate::apply::{Error, FieldManager, Type, reset_fields};
use crate::object;
use crate::rest::Call;
use crate::status::{Cause, CauseReason, Status};
use crate::strategy;
use crate::structural::builtin;

/// The name a manager goes by: the `fieldManager` parameter, else what the user agent begins with.
pub fn manager_name(parameter: &str, user_agent: &str) -> String {
    if !parameter.is_empty() {
        return parameter.to_owned();
    }
    let name = user_agent.split('/').next().unwrap_or_default();
    if name.is_empty() { "unknown".to_owned() } else { name.chars().take(128).collect() }
}

/// The schema of a builtin kind.
pub fn builtin_schema(call: &Call) -> Option<Schema<'static>> {
    let kind = Schemas::kubernetes().kind_of(&call.resource.api_version(), &call.resource.kind)?;
    kind.schema()
}

/// Gives the caller every field that `new` changed or added against `old`.
pub fn after_write(call: &Call, old: Option<&Value>, new: &mut Value) {
    if call.subresource == "scale" && call.resource.custom.is_some() {
        // Scaling a custom object changes nobody's ownership, as on the real server.
        let owners = old.and_then(|old| object::meta(old).get("managedFields").cloned());
        return object::set_meta(new, "managedFields", owners);
    }
    let after = std::mem::take(new);
    *new = with_manager(call, |fields| fields.track_update(old, after, &call.options.field_manager));
    if call.subresource == "scale" {
        without_scale_time(new);
    }
}

/// The real server translates ownership between a scale and its parent, and loses the time on the way.
fn without_scale_time(object: &mut Value) {
    let entries = object::meta_mut(object).get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter(|entry| entry["subresource"] == "scale") {
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
        }
    }
}

/// Server-side apply: the new object, or why not.
pub fn apply(call: &Call, live: Option<&Value>, wanted: &Value) -> Result<Value, Status> {
    let options = &call.options;
    let applied =
        with_manager(call, |fields| fields.apply(live, wanted, &options.field_manager, options.force));
    applied.map_err(refusal)
}

/// Whether an applied configuration has only fields that its kind knows, each of its type.
pub fn check_declared(call: &Call, wanted: &Value) -> Result<(), Status> {
    // A scale is read as the one field it sets.
    if call.subresource == "scale" {
        return Ok(());
    }
    with_manager(call, |fields| fields.check_applied(wanted)).map_err(refusal)
}

/// An object with a configuration merged into it by its kind's list and map types, owned by nobody.
pub fn merged(call: &Call, live: &Value, mut configuration: Value) -> Result<Value, String> {
    if let Some(fields) = configuration.as_object_mut() {
        fields.insert("apiVersion".into(), call.resource.api_version().into());
        fields.insert("kind".into(), (&*call.resource.kind).into());
    }
    with_manager(call, |fields| fields.merged(live, &configuration)).map_err(|error| error.to_string())
}

fn refusal(error: Error) -> Status {
    match error {
        Error::Conflict(conflicts) => {
            let causes: Vec<Cause> = conflicts
                .iter()
                .map(|one| Cause::new(CauseReason::ManagerConflict, one.field(), one.message()))
                .collect();
            Status::apply_conflict(conflicts.to_string(), &causes)
        }
        Error::BadRequest(message) => Status::bad_request(message),
        Error::Internal(message) => Status::unexpected(message),
    }
}

/// An object of the kind that nobody has filled in.
pub fn nothing(call: &Call) -> Value {
    let api_version = call.resource.api_version();
    match builtin_schema(call) {
        Some(schema) => builtin::empty(&api_version, &call.resource.kind, schema),
        None => json!({ "apiVersion": api_version, "kind": &*call.resource.kind }),
    }
}

fn with_manager<R>(call: &Call, act: impl FnOnce(&FieldManager<'_>) -> R) -> R {
    let resource = &call.resource;
    let api_version = resource.api_version();
    let nothing = json!({ "apiVersion": api_version, "kind": &*resource.kind });
    let (type_, empty) = match (&resource.custom, builtin_schema(call)) {
        (Some(custom), _) => match &custom.schemas {
            Some(schemas) => (Type::CustomResource(schemas.root()), nothing),
            None => (Type::Deduced, nothing),
        },
        (None, Some(schema)) => (Type::builtin(schema), builtin::empty(&api_version, &resource.kind, schema)),
        (None, None) => (Type::Deduced, nothing),
    };
    let registry = call.server.registry();
    let served = |version: &str| registry.by_kind(version, &resource.kind).is_some();
    act(&FieldManager {
        type_,
        api_version: &api_version,
        kind: &resource.kind,
        subresource: &call.subresource,
        reset: &reset_fields(
            &resource.group,
            &resource.kind,
            &call.subresource,
            strategy::of(resource).status,
        ),
        empty: &empty,
        served: &served,
        now: &call.now(),
    })
}

/// Whether two states differ in nothing but the times of their managers.
pub fn same_but_for_times(old: &Value, new: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(Value::Array(list)) = object::meta_mut(&mut object).get_mut("managedFields") {
            for entry in list {
                if let Some(fields) = entry.as_object_mut() {
                    fields.remove("time");
                }
            }
        }
        object
    };
    strip(old) == strip(new)
}
