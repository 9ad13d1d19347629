//! `PATCH`: turning a patch of any of the four types into a change of the object.

use kube_schema::Schemas;
use serde_json::Value;

use super::update::{Managers, change, check_address};
use super::{Call, Written, create};
use crate::media::PatchType;
use crate::patch::{self, Rejected};
use crate::status::{Cause, Status};
use crate::{object, ownership};

pub async fn patch(call: &Call, patch_type: PatchType, body: &[u8]) -> Result<Written, Status> {
    if patch_type == PatchType::Apply {
        return apply(call, body).await;
    }
    change(call, Managers::Update, |old| checked(call, edit(call, patch_type, body, old)?)).await
}

/// The object a patch makes of `old`.
pub fn edit(call: &Call, patch_type: PatchType, body: &[u8], old: &Value) -> Result<Value, Status> {
    let changed = match patch_type {
        PatchType::Json => patch::json(old, &parse(body)?),
        PatchType::Merge => merge(old, &parse(body)?),
        PatchType::Strategic => strategic(old, &parse(body)?),
        // Only `scale` comes here: its one field is taken over.
        PatchType::Apply => merge(old, &crate::decode::applied(call, body)?),
    };
    changed.map_err(|rejected| match rejected {
        Rejected::BadRequest(message) => Status::bad_request(message),
        Rejected::TooLarge(message) => Status::too_large(message),
        Rejected::Unprocessable(_) => Status::patch_rejected(),
        Rejected::Internal(message) => Status::unexpected(message),
    })
}

fn merge(old: &Value, change: &Value) -> Result<Value, Rejected> {
    let mut new = old.clone();
    patch::merge(&mut new, change)?;
    Ok(new)
}

/// Kinds without a recorded structure are merged as plain JSON.
fn strategic(old: &Value, change: &Value) -> Result<Value, Rejected> {
    let kind = Schemas::kubernetes().kind_of(object::text(old, "/apiVersion"), object::text(old, "/kind"));
    match kind.and_then(|kind| kind.schema()) {
        Some(schema) => patch::strategic(old, change, schema),
        None => merge(old, change),
    }
}

/// What a patch made must still be the object at this address, and decode.
fn checked(call: &Call, new: Value) -> Result<Value, Status> {
    check_address(call, &new)?;
    crate::decode::check_object(call, new)
}

fn parse(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body).map_err(|error| {
        Status::bad_request(format!("error decoding patch: {}", crate::decode::go_error(body, &error)))
    })
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
            let changed = change(call, Managers::Given, |old| merged(call, Some(old), &wanted)).await;
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
        let new = merged(call, None, &wanted)?;
        match create::create_applied(call, new).await {
            Err(status) if status.reason == "AlreadyExists" => {}
            other => return other,
        }
    }
    Err(Status::modified(call.about()))
}

fn merged(call: &Call, live: Option<&Value>, wanted: &Value) -> Result<Value, Status> {
    crate::decode::merged(call, ownership::apply(call, live, wanted)?)
}
