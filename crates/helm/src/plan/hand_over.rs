//! From client-side to server-side apply: fields that a manager set by updates become fields that it applied, or they could never be
//! taken away again by leaving them out.

use serde_json::{Map, Value as Json, json};

/// The JSON patch that hands over, `None` when the manager holds nothing from client-side applies. It fails when the object has
/// changed since it was read.
pub fn hand_over(live: &Json, manager: &str) -> Option<Json> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let is = |entry: &Json, operation: &str| {
        text(entry, "manager") == manager
            && text(entry, "operation") == operation
            && text(entry, "subresource").is_empty()
    };
    if !entries.iter().any(|entry| is(entry, "Update")) {
        return None;
    }
    let at = entries
        .iter()
        .position(|entry| is(entry, "Apply"))
        .or_else(|| entries.iter().position(|entry| is(entry, "Update")))?;
    let mut own = entries[at].clone();
    // Fields of another version of the kind cannot be united; they are let go, as client-go does.
    let updated = entries
        .iter()
        .find(|entry| is(entry, "Update") && text(entry, "apiVersion") == text(&own, "apiVersion"));
    let mut fields = own.get("fieldsV1").cloned().unwrap_or_else(|| json!({}));
    if let Some(updated) = updated {
        unite(&mut fields, updated.get("fieldsV1").unwrap_or(&Json::Null));
    }
    own["operation"] = json!("Apply");
    own["fieldsV1"] = fields;
    let mut kept = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if index == at {
            kept.push(own.clone());
        } else if !is(entry, "Update") {
            kept.push(entry.clone());
        }
    }
    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live.pointer("/metadata/resourceVersion")?},
    ]))
}

fn text<'e>(entry: &'e Json, key: &str) -> &'e str {
    entry.get(key).and_then(Json::as_str).unwrap_or_default()
}

/// The union of two sets of fields, which are trees of names.
fn unite(into: &mut Json, from: &Json) {
    let Json::Object(from) = from else { return };
    if !into.is_object() {
        *into = Json::Object(Map::new());
    }
    let Some(into) = into.as_object_mut() else { return };
    for (name, below) in from {
        unite(into.entry(name.as_str()).or_insert_with(|| json!({})), below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Json) -> Json {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn object(entries: &[Json]) -> Json {
        json!({"metadata": {"resourceVersion": "7", "managedFields": entries}})
    }

    #[test]
    fn fields_of_updates_join_those_that_were_applied() {
        let live = object(&[
            entry("kubectl", "Update", json!({"f:a": {}})),
            entry("helm", "Update", json!({"f:data": {"f:x": {}, ".": {}}})),
            entry("helm", "Apply", json!({"f:data": {"f:y": {}}})),
        ]);
        let patch = hand_over(&live, "helm").unwrap();
        assert_eq!(
            patch[0]["value"],
            json!([
                entry("kubectl", "Update", json!({"f:a": {}})),
                entry("helm", "Apply", json!({"f:data": {"f:x": {}, ".": {}, "f:y": {}}})),
            ])
        );
        assert_eq!(patch[1]["value"], "7");
    }

    #[test]
    fn an_update_alone_becomes_an_apply() {
        let live = object(&[entry("helm", "Update", json!({"f:data": {}}))]);
        let patch = hand_over(&live, "helm").unwrap();
        assert_eq!(patch[0]["value"], json!([entry("helm", "Apply", json!({"f:data": {}}))]));
    }

    #[test]
    fn status_updates_and_other_managers_stay_as_they_are() {
        let mut status = entry("helm", "Update", json!({"f:status": {}}));
        status["subresource"] = json!("status");
        assert_eq!(hand_over(&object(&[status, entry("other", "Update", json!({}))]), "helm"), None);
        assert_eq!(hand_over(&json!({"metadata": {}}), "helm"), None);
    }
}
