//! What the API server would make of an object, and how a Secret is compared without being shown.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flux_apply::ObjectId;
use flux_apply::apply::{Cause, Cluster};
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::commands::build::MASK;

/// The object as it would be after `manager` applied it. Nothing is written.
pub(super) async fn dry_run(
    cluster: &Cluster,
    manager: &str,
    id: &ObjectId,
    object: &Value,
) -> Result<Value, Cause> {
    let api = cluster.mapper.api(&cluster.client, id).await;
    let api = api.map_err(|error| Cause::Unknown(error.to_string()))?;
    let parameters = PatchParams { dry_run: true, ..PatchParams::apply(manager).force() };
    let answer = api.patch(&id.name, &parameters, &Patch::Apply(object)).await.map_err(Cause::from)?;
    let mut answer = serde_json::to_value(answer).map_err(|error| Cause::Unknown(error.to_string()))?;
    answer["apiVersion"] = id.api_version().into();
    answer["kind"] = id.kind.clone().into();
    Ok(answer)
}

/// Without the book-keeping of who set which field.
pub(super) fn plain(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

pub(super) fn is_immutable(cause: &Cause) -> bool {
    matches!(cause, Cause::Refused { code: 409 | 422, .. }) || cause.to_string().contains("immutable")
}

pub(super) fn refusal(id: &ObjectId, cause: &Cause) -> String {
    match cause {
        Cause::Refused { code: 404, message, .. } if id.namespace.is_empty() => {
            format!("{id} namespace not specified: {message}")
        }
        Cause::Refused { code: 404, message, .. } => format!("{id} not found: {message}"),
        Cause::Refused { reason, message, .. } if !reason.is_empty() => {
            format!("{id} dry-run failed ({reason}): {message}")
        }
        cause => format!("{id} dry-run failed: {cause}"),
    }
}

/// A label or annotation, in any case.
pub(super) fn marked(object: &Value, key: &str, value: &str) -> bool {
    ["labels", "annotations"].iter().any(|place| {
        let found = object.pointer(&format!("/metadata/{place}")).and_then(|map| map.get(key));
        found.and_then(Value::as_str).is_some_and(|found| found.eq_ignore_ascii_case(value))
    })
}

/// `stringData` becomes `data`, so that it is compared as the server keeps it.
pub(super) fn normalized(mut object: Value) -> Value {
    if object.get("kind").and_then(Value::as_str) != Some("Secret") {
        return object;
    }
    let Some(Value::Object(plain)) = object.as_object_mut().and_then(|fields| fields.remove("stringData"))
    else {
        return object;
    };
    let mut data = object.get("data").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for (key, value) in plain {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        data.insert(key, BASE64_STANDARD.encode(text).into());
    }
    object["data"] = data.into();
    object
}

/// Values never show: `***`, and where they differ, before and after.
pub(super) fn mask(live: &mut Value, wanted: &mut Value) {
    let data = |object: &Value| object.get("data").and_then(Value::as_object).cloned();
    let (old, new) = (data(live), data(wanted));
    let masked = |own: &Map<String, Value>, other: Option<&Map<String, Value>>, differs: &str| -> Value {
        let value = |key: &String, value: &Value| match other.and_then(|other| other.get(key)) {
            Some(other) if other != value => json!(differs),
            _ => json!("***"),
        };
        own.iter().map(|(key, own)| (key.clone(), value(key, own))).collect::<Map<_, _>>().into()
    };
    if let Some(own) = &old {
        live["data"] = masked(own, new.as_ref(), "*** (before)");
    }
    if let Some(own) = &new {
        wanted["data"] = masked(own, old.as_ref(), "*** (after)");
    }
}

pub(super) fn is_encrypted(object: &Value) -> bool {
    object.get("data").and_then(Value::as_object).into_iter().flatten().any(|(_, value)| {
        let text = value.as_str().map(|text| text.replace(['\r', '\n'], ""));
        let decoded = text.and_then(|text| BASE64_STANDARD.decode(text).ok());
        decoded.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(MASK))
    })
}

/// The keys; the values all become the same, so that only keys differ.
pub(super) fn keys_only(object: &mut Value) -> Vec<String> {
    let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) else { return Vec::new() };
    for value in data.values_mut() {
        *value = json!("*****");
    }
    data.keys().cloned().collect()
}
