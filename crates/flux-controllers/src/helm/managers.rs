//! Which fields of an object are this controller's: from updates of a client-side release to applies. Pure.

use serde_json::{Map, Value, json};

use super::MANAGER;

/// Who else writes releases with the same intent: real helm, from a terminal or another tool.
const HELM: &str = "helm";

/// The JSON patch that makes what this controller set by updates, and what real helm set, fields that this controller
/// applied; `None` when there is nothing to do. Upstream leaves what helm applied with helm, so that a field which leaves
/// the chart afterwards stays in the cluster. `also` are further managers whose fields are taken over.
pub fn hand_over(live: &Value, also: &[String]) -> Option<Value> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let (taken, kept): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(|entry| is_taken(entry, also));
    if taken.is_empty() {
        return None;
    }
    let own = kept.iter().position(|entry| is_own(entry));
    let mut merged = own.map_or(taken[0], |at| kept[at]).clone();
    let mut fields = Value::Object(Map::new());
    for entry in own.map(|at| kept[at]).into_iter().chain(taken.iter().copied()) {
        unite(&mut fields, entry.get("fieldsV1").unwrap_or(&Value::Null));
    }
    merged["manager"] = json!(MANAGER);
    merged["operation"] = json!("Apply");
    merged["fieldsV1"] = fields;
    let mut result: Vec<Value> =
        kept.iter().filter(|entry| !is_own(entry)).map(|entry| (*entry).clone()).collect();
    result.insert(0, merged);
    let version = live.pointer("/metadata/resourceVersion")?;
    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": result},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]))
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_own(entry: &Value) -> bool {
    text(entry, "manager") == MANAGER
        && text(entry, "operation") == "Apply"
        && text(entry, "subresource").is_empty()
}

fn is_taken(entry: &Value, also: &[String]) -> bool {
    let manager = text(entry, "manager");
    text(entry, "subresource").is_empty()
        && ((manager == MANAGER && text(entry, "operation") == "Update")
            || manager == HELM
            || also.iter().any(|name| name == manager))
}

fn unite(into: &mut Value, from: &Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else {
        return;
    };
    for (key, value) in from {
        unite(into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn updates_become_applies_and_helm_hands_over() {
        let live = json!({"metadata": {"resourceVersion": "7", "managedFields": [
            entry("helm-controller", "Update", json!({"f:data": {"f:a": {}}})),
            entry("helm", "Apply", json!({"f:data": {"f:b": {}}})),
            entry("hpa", "Update", json!({"f:spec": {}})),
        ]}});
        let patch = hand_over(&live, &[]).unwrap();
        let managed = patch[0]["value"].as_array().unwrap();
        assert_eq!(managed.len(), 2);
        assert_eq!(
            (&managed[0]["manager"], &managed[0]["operation"], &managed[0]["fieldsV1"]),
            (&json!("helm-controller"), &json!("Apply"), &json!({"f:data": {"f:a": {}, "f:b": {}}}))
        );
        assert_eq!(patch[1]["value"], "7");
        let also = hand_over(&live, &["hpa".to_owned()]).unwrap();
        assert_eq!(also[0]["value"].as_array().unwrap().len(), 1);
        assert_eq!(also[0]["value"][0]["fieldsV1"], json!({"f:data": {"f:a": {}, "f:b": {}}, "f:spec": {}}));
    }

    #[test]
    fn what_is_ours_already_needs_nothing() {
        let live = json!({"metadata": {"managedFields": [entry("helm-controller", "Apply", json!({"f:data": {}}))]}});
        assert_eq!(hand_over(&live, &[]), None);
    }
}
