//! What the metadata of every object must look like.

use serde_json::Value;

use super::names;
use crate::object;
use crate::rest::Call;
use crate::status::Cause;

/// Annotations together may not be larger than this.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

pub(super) fn check(call: &Call, object: &Value, causes: &mut Vec<Cause>) {
    let meta = object::meta(object);
    let name = object::name(object);
    let problem = match &*call.resource.storage {
        "namespaces" | "services" if name.contains('.') => Some("must not contain dots".into()),
        "namespaces" | "services" => names::dns_label(name),
        storage if storage.ends_with("rbac.authorization.k8s.io") => names::path_segment(name),
        _ => names::dns_subdomain(name),
    };
    if let Some(problem) = problem {
        causes.push(Cause::invalid("metadata.name", &Value::from(name), &problem));
    }
    labels("metadata.labels", meta.get("labels"), causes);
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
    for finalizer in object::finalizers(object) {
        if let Some(problem) = names::qualified_name(finalizer) {
            causes.push(Cause::invalid("metadata.finalizers", &Value::from(finalizer), &problem));
        }
    }
}

pub(super) fn labels(field: &str, map: Option<&Value>, causes: &mut Vec<Cause>) {
    for (key, value) in map.and_then(Value::as_object).into_iter().flatten() {
        if let Some(problem) = names::qualified_name(key) {
            causes.push(Cause::invalid(field, &Value::from(key.as_str()), &problem));
        }
        if let Some(problem) = names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(field, value, &problem));
        }
    }
}

fn owners(list: Option<&Value>, causes: &mut Vec<Cause>) {
    let mut controllers = Vec::new();
    for owner in list.and_then(Value::as_array).into_iter().flatten() {
        let field = |name: &str| format!("metadata.ownerReferences.{name}");
        let (_, version) = crate::kinds::split_api_version(object::text(owner, "/apiVersion"));
        if version.is_empty() {
            causes.push(Cause::invalid(
                field("apiVersion"),
                &Value::from(object::text(owner, "/apiVersion")),
                "version must not be empty",
            ));
        }
        for (key, what) in
            [("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty")]
        {
            if object::text(owner, &format!("/{key}")).is_empty() {
                causes.push(Cause::invalid(field(key), &Value::from(""), what));
            }
        }
        if owner["controller"] == true {
            controllers.push(object::text(owner, "/name").to_owned());
        }
    }
    if let [first, second, ..] = &controllers[..] {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        causes.push(Cause::invalid("metadata.ownerReferences", &list.cloned().unwrap_or_default(), &detail));
    }
}

/// A deletion in progress gets no new finalizers.
pub(super) fn unchanged(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if !object::is_deleting(old) {
        return;
    }
    let held = object::finalizers(old);
    let added: Vec<&str> =
        object::finalizers(new).into_iter().filter(|finalizer| !held.contains(finalizer)).collect();
    if !added.is_empty() {
        let list: Vec<String> = added.iter().map(|finalizer| format!("\"{finalizer}\"")).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            list.join(", ")
        );
        // The real server checks (and says) it twice.
        causes.push(Cause::forbidden("metadata.finalizers", &detail));
        causes.push(Cause::forbidden("metadata.finalizers", &detail));
    }
}
