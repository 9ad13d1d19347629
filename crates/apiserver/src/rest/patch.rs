//! `PATCH`: turning a patch of any of the four types into a change of the object.

use kube_schema::Schemas;
use serde_json::Value;

use super::update::{Managers, change, check_address};
use super::{Call, Written, create};
use crate::media::PatchType;
use crate::status::{Cause, Status};
use crate::{object, ownership};

/// As many operations as the real server takes in one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

pub async fn patch(call: &Call, patch_type: PatchType, body: &[u8]) -> Result<Written, Status> {
    if patch_type == PatchType::Apply {
        return apply(call, body).await;
    }
    change(call, Managers::Update, |old| checked(call, edit(call, patch_type, body, old)?)).await
}

/// The object a patch makes of `old`.
pub fn edit(call: &Call, patch_type: PatchType, body: &[u8], old: &Value) -> Result<Value, Status> {
    match patch_type {
        PatchType::Json => apply_json_patch(old, &json_patch(body)?),
        PatchType::Merge => {
            let mut new = old.clone();
            json_patch::merge(&mut new, &patch_object(body)?);
            Ok(new)
        }
        PatchType::Strategic => strategic(old, &patch_object(body)?),
        PatchType::Apply => {
            // Only `scale` comes here: its one field is taken over.
            let mut new = old.clone();
            json_patch::merge(&mut new, &crate::decode::applied(call, body)?);
            Ok(new)
        }
    }
}

/// What a patch made must still be the object at this address, and decode.
fn checked(call: &Call, new: Value) -> Result<Value, Status> {
    check_address(call, &new)?;
    crate::decode::check_object(call, new)
}

fn json_patch(body: &[u8]) -> Result<json_patch::Patch, Status> {
    let value: Value = parse(body)?;
    let Value::Array(operations) = &value else {
        let kind = go_type(&value);
        let problem = format!("json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp");
        return Err(Status::bad_request(format!("error decoding patch: {problem}")));
    };
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let message =
            format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(Status::too_large(message));
    }
    serde_json::from_value(value).map_err(|_| Status::patch_rejected())
}

fn apply_json_patch(old: &Value, patch: &json_patch::Patch) -> Result<Value, Status> {
    let mut new = old.clone();
    json_patch::patch(&mut new, patch).map_err(|_| Status::patch_rejected())?;
    Ok(new)
}

fn patch_object(body: &[u8]) -> Result<Value, Status> {
    let value = parse(body)?;
    if value.is_object() {
        return Ok(value);
    }
    let problem =
        format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", go_type(&value));
    Err(Status::bad_request(format!("error decoding patch: {problem}")))
}

fn parse(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body).map_err(|error| {
        Status::bad_request(format!("error decoding patch: {}", crate::decode::go_error(body, &error)))
    })
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn strategic(old: &Value, patch: &Value) -> Result<Value, Status> {
    let kind = Schemas::kubernetes().kind_of(object::text(old, "/apiVersion"), object::text(old, "/kind"));
    let Some(schema) = kind.and_then(|kind| kind.schema()) else {
        let mut new = old.clone();
        json_patch::merge(&mut new, patch);
        return Ok(new);
    };
    kube_schema::strategic_merge::merge(old, patch, schema)
        .map_err(|error| Status::unexpected(error.to_string()))
}

/// Server-side apply: creates the object when it is not there.
async fn apply(call: &Call, body: &[u8]) -> Result<Written, Status> {
    if call.options.field_manager.is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Status::invalid_options("PatchOptions", &[cause]));
    }
    let wanted = crate::decode::applied(call, body)?;
    check_address(call, &wanted)?;
    // Someone may delete or create the object between our look and our write: look again then.
    for _ in 0..3 {
        if call.stored().is_ok() {
            let changed =
                change(call, Managers::Given, |old| ownership::apply(call, Some(old), &wanted)).await;
            match changed {
                Err(status) if status.code == http::StatusCode::NOT_FOUND && call.subresource.is_empty() => {}
                other => return other,
            }
        }
        if !call.subresource.is_empty() {
            return Err(Status::not_found(call.about()));
        }
        if !object::uid(&wanted).is_empty() {
            let why = "uid mismatch: the provided object specified uid %s, and no existing object was found";
            return Err(Status::conflict(call.about(), &why.replace("%s", object::uid(&wanted))));
        }
        let new = ownership::apply(call, None, &wanted)?;
        match create::create_applied(call, new).await {
            Err(status) if status.reason == "AlreadyExists" => {}
            other => return other,
        }
    }
    Err(Status::modified(call.about()))
}
