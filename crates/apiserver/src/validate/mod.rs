//! What values an object may hold: first what all kinds share (names, labels, owners), then rules of builtin kinds.

pub mod names;

use serde_json::Value;

use crate::object;
use crate::rest::Call;
use crate::status::{Cause, Status};

/// Annotations together may not be larger than this.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

pub fn create(call: &Call, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    metadata(call, object, &mut causes);
    verdict(call, object, causes)
}

pub fn update(call: &Call, _old: &Value, new: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    metadata(call, new, &mut causes);
    verdict(call, new, causes)
}

fn verdict(call: &Call, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(call.invalid(object::name(object), &causes)) }
}

fn metadata(call: &Call, object: &Value, causes: &mut Vec<Cause>) {
    let meta = object::meta(object);
    let name = object::name(object);
    let problem = match &*call.resource.storage {
        "namespaces" => names::dns_label(name),
        "services" => names::dns1035_label(name),
        storage if storage.ends_with("rbac.authorization.k8s.io") => names::path_segment(name),
        _ => names::dns_subdomain(name),
    };
    if let Some(problem) = problem {
        causes.push(Cause::invalid("metadata.name", &Value::from(name), &problem));
    }
    for (key, value) in meta.get("labels").and_then(Value::as_object).into_iter().flatten() {
        if let Some(problem) = names::qualified_name(key) {
            causes.push(Cause::invalid("metadata.labels", &Value::from(key.as_str()), &problem));
        }
        if let Some(problem) = names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("metadata.labels", value, &problem));
        }
    }
    let mut size = 0;
    for (key, value) in meta.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        if let Some(problem) = names::qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &Value::from(key.as_str()), &problem));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
    owners(meta.get("ownerReferences"), causes);
    finalizers(object, causes);
}

fn owners(list: Option<&Value>, causes: &mut Vec<Cause>) {
    let mut controllers = 0;
    for (at, owner) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let field = |name: &str| format!("metadata.ownerReferences[{at}].{name}");
        for (key, what) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if object::text(owner, &format!("/{key}")).is_empty() {
                causes.push(Cause::invalid(field(key), &Value::from(""), what));
            }
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        let detail = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", &Value::Null, detail));
    }
}

fn finalizers(object: &Value, causes: &mut Vec<Cause>) {
    for finalizer in object::finalizers(object) {
        if let Some(problem) = names::qualified_name(finalizer) {
            causes.push(Cause::invalid("metadata.finalizers", &Value::from(finalizer), &problem));
        }
    }
}
