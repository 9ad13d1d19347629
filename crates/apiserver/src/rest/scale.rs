//! The `scale` subresource: replicas of any scalable kind through one small object.

use serde_json::{Value, json};

use super::update::{Managers, change};
use super::{Call, Written, finish};
use crate::kinds::custom::ScalePaths;
use crate::object;
use crate::status::{Cause, Status};

pub fn get(call: &Call) -> Result<Value, Status> {
    let stored = call.stored()?;
    let object = finish::shown(&call.resource, &stored);
    has_replicas(call, &object)?;
    Ok(scale_of(call, &object))
}

/// A custom object that says nothing of replicas has no scale.
fn has_replicas(call: &Call, object: &Value) -> Result<(), Status> {
    let path = paths(call).spec_replicas;
    if call.resource.custom.is_some() && object.pointer(&pointer(&path)).is_none() {
        return Err(Status::internal(format!("the spec replicas field \"{path}\" does not exist")));
    }
    Ok(())
}

/// Replaces the scale; `edit` makes the wanted scale from the current one.
pub async fn set(
    call: &Call,
    mut edit: impl FnMut(&Value) -> Result<Value, Status>,
) -> Result<Value, Status> {
    let written = change(call, Managers::Update, |old| {
        let wanted = edit(&scale_of(call, old))?;
        let replicas = wanted.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            let detail = "must be greater than or equal to 0";
            let cause = Cause::invalid("spec.replicas", &Value::from(replicas), detail);
            let about = crate::status::About { group: "autoscaling", kind: "Scale", name: &call.name };
            return Err(Status::invalid(about, &[cause]));
        }
        let mut new = old.clone();
        let revision = object::meta_str(&wanted, "resourceVersion");
        if !revision.is_empty() {
            object::set_meta(&mut new, "resourceVersion", Some(revision.into()));
        }
        set_path(&mut new, &paths(call).spec_replicas, replicas.into());
        Ok(new)
    })
    .await?;
    Ok(scale_of(call, &shown(call, &written)))
}

fn shown(call: &Call, written: &Written) -> Value {
    crate::convert::to(&call.resource, written.value())
}

fn paths(call: &Call) -> ScalePaths {
    let custom = call.resource.custom.as_ref().and_then(|custom| custom.scale.clone());
    custom.unwrap_or_else(|| ScalePaths {
        spec_replicas: ".spec.replicas".into(),
        status_replicas: ".status.replicas".into(),
        label_selector: None,
    })
}

fn scale_of(call: &Call, object: &Value) -> Value {
    let paths = paths(call);
    let number = |path: &str| object.pointer(&pointer(path)).and_then(Value::as_i64).unwrap_or(0);
    let meta = object::meta(object);
    let mut shown = serde_json::Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.get(field) {
            shown.insert(field.into(), value.clone());
        }
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown,
        "spec": {}, "status": { "replicas": number(&paths.status_replicas) },
    });
    let replicas = number(&paths.spec_replicas);
    if replicas != 0 {
        scale["spec"]["replicas"] = replicas.into();
    }
    let selector = match (&call.resource.custom, &paths.label_selector) {
        (Some(_), Some(path)) => {
            object.pointer(&pointer(path)).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        (Some(_), None) => String::new(),
        (None, _) => selector_text(&object["spec"]["selector"]),
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// A selector object in the query language.
pub fn selector_text(selector: &Value) -> String {
    let labels =
        selector.get("matchLabels").or(selector.get("matchExpressions").is_none().then_some(selector));
    let mut parts: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = object::text(expression, "/key");
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match object::text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.sort();
    parts.join(",")
}

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let fields = match at {
            Value::Object(fields) => fields,
            other => {
                *other = json!({});
                other.as_object_mut().expect("made an object above")
            }
        };
        at = fields.entry(part).or_insert(Value::Null);
    }
    *at = value;
}
