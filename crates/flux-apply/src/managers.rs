//! Taking over objects that somebody applied with kubectl: their fields become ours, or they could never be
//! removed by removing them from Git. Pure.

use serde_json::{Map, Value, json};

/// Left behind by kubectl and by Flux v1; they would say something that is no longer true.
const STALE_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    "kustomize.toolkit.fluxcd.io/checksum",
    "fluxcd.io/sync-checksum",
];
const STALE_LABELS: &[&str] = &["fluxcd.io/sync-gc-mark"];

/// The JSON patch that makes `live` ours, or `None` when it already is. `also` are prefixes of further managers.
pub fn take_over(live: &Value, manager: &str, also: &[String]) -> Option<Value> {
    let mut patch = Vec::new();
    for (place, keys) in [("annotations", STALE_ANNOTATIONS), ("labels", STALE_LABELS)] {
        for key in keys {
            if live.pointer(&format!("/metadata/{place}")).is_some_and(|map| map.get(key).is_some()) {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                patch.push(json!({"op": "remove", "path": format!("/metadata/{place}/{escaped}")}));
            }
        }
    }
    if let Some(managed) = fold(live, manager, also) {
        patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": managed}));
    }
    if patch.is_empty() {
        return None;
    }
    let version = live.pointer("/metadata/resourceVersion")?;
    patch.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
    Some(Value::Array(patch))
}

/// The managed fields with foreign entries folded into our own.
fn fold(live: &Value, manager: &str, also: &[String]) -> Option<Vec<Value>> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let (foreign, kept): (Vec<&Value>, Vec<&Value>) =
        entries.iter().partition(|entry| is_taken_over(entry, manager, also));
    if foreign.is_empty() {
        return None;
    }
    let is_own = |entry: &&Value| {
        text(entry, "manager") == manager && text(entry, "operation") == "Apply" && !on_subresource(entry)
    };
    let own = kept.iter().find(|entry| is_own(entry)).copied();
    let mut merged = own.or(foreign.first().copied())?.clone();
    let mut fields = Value::Object(Map::new());
    for entry in own.into_iter().chain(foreign.iter().copied()) {
        unite(&mut fields, entry.get("fieldsV1").unwrap_or(&Value::Null));
    }
    merged["manager"] = json!(manager);
    merged["operation"] = json!("Apply");
    merged["fieldsV1"] = fields;
    let mut result: Vec<Value> = kept.into_iter().filter(|entry| !is_own(entry)).cloned().collect();
    result.insert(0, merged);
    Some(result)
}

/// The JSON patch that writes every managed-fields entry in `version`, or `None` when all are. After a CRD got
/// defaults in a new version, entries in the old one make an apply fail with "field not declared in schema".
pub fn migrate(live: &Value, version: &str) -> Option<Value> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    if entries.iter().all(|entry| text(entry, "apiVersion") == version) {
        return None;
    }
    let mut entries = entries.clone();
    for entry in &mut entries {
        entry["apiVersion"] = json!(version);
    }
    let resource_version = live.pointer("/metadata/resourceVersion")?;
    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
    ]))
}

fn is_taken_over(entry: &Value, manager: &str, also: &[String]) -> bool {
    if on_subresource(entry) {
        return false;
    }
    takes_over_from(text(entry, "manager"), text(entry, "operation"), manager, also)
}

/// Whether fields that `name` set by `operation` become ours with the next apply.
pub(crate) fn takes_over_from(name: &str, operation: &str, manager: &str, also: &[String]) -> bool {
    name.starts_with("kubectl")
        || (name == "before-first-apply" && operation == "Update")
        || (name == manager && operation == "Update")
        || also.iter().any(|prefix| name.starts_with(prefix.as_str()))
}

fn on_subresource(entry: &Value) -> bool {
    !text(entry, "subresource").is_empty()
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The union of two field sets, which are trees of names.
fn unite(into: &mut Value, more: &Value) {
    let (Value::Object(into), Value::Object(more)) = (into, more) else {
        return;
    };
    for (key, value) in more {
        unite(into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn live(entries: Vec<Value>, annotations: Value) -> Value {
        json!({"metadata": {"resourceVersion": "7", "annotations": annotations, "managedFields": entries}})
    }

    #[test]
    fn entries_are_written_in_the_version_that_is_applied() {
        let ours = live(vec![entry("kustomize-controller", "Apply", json!({}))], json!({}));
        assert_eq!(migrate(&ours, "v1"), None);
        let patch = migrate(&ours, "v2").unwrap();
        assert_eq!(patch[0]["value"][0]["apiVersion"], "v2");
        assert_eq!(patch[1]["value"], "7");
    }

    #[test]
    fn what_is_ours_needs_nothing() {
        let ours = live(vec![entry("kustomize-controller", "Apply", json!({"f:data": {}}))], json!({}));
        assert_eq!(take_over(&ours, "kustomize-controller", &[]), None);
    }

    #[test]
    fn fields_of_kubectl_are_united_with_ours() {
        let object = live(
            vec![
                entry("kustomize-controller", "Apply", json!({"f:data": {"f:a": {}}})),
                entry("kubectl-client-side-apply", "Update", json!({"f:data": {"f:b": {}}})),
                entry("hpa", "Update", json!({"f:spec": {}})),
            ],
            json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"}),
        );
        let patch = take_over(&object, "kustomize-controller", &[]).unwrap();
        assert_eq!(
            patch[0]["path"],
            "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"
        );
        let managed = patch[1]["value"].as_array().unwrap();
        assert_eq!(managed.len(), 2);
        assert_eq!(managed[0]["fieldsV1"], json!({"f:data": {"f:a": {}, "f:b": {}}}));
        assert_eq!(managed[1]["manager"], "hpa");
        assert_eq!(patch[2]["value"], "7");
    }

    #[test]
    fn a_manager_named_by_flag_is_taken_over_too_but_not_on_a_subresource() {
        let mut scale = entry("argocd", "Update", json!({"f:spec": {}}));
        scale["subresource"] = json!("scale");
        assert_eq!(
            take_over(&live(vec![scale], json!({})), "kustomize-controller", &["argo".to_owned()]),
            None
        );
        let plain = entry("argocd", "Update", json!({"f:spec": {}}));
        assert!(
            take_over(&live(vec![plain], json!({})), "kustomize-controller", &["argo".to_owned()]).is_some()
        );
    }
}
