//! Objects as their builtin kinds know them: upstream reads them into Go structs and writes them again, which drops
//! fields that the kind does not have and nulls; in maps and lists a null becomes the empty value. The API server would
//! refuse the former. Pure.

use kube_schema::{Schema, Schemas, Type};
use serde_json::Value;

/// Deeper fields are left as they are.
const DEEPEST: usize = 64;
/// Fields of one object that are named.
const MOST_NAMED: usize = 20;

/// Drops what the builtin kind of `object` does not know, and says which fields; other kinds stay as they are.
pub fn drop_unknown(object: &mut Value) -> Vec<String> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
    // Upstream leaves roles alone because of a bug in Go's serializer; so do we, since the result is the same.
    if api_version == "rbac.authorization.k8s.io/v1" && matches!(kind.as_str(), "Role" | "ClusterRole") {
        return Vec::new();
    }
    // CRDs are no part of the scheme upstream uses.
    if kind == "CustomResourceDefinition" {
        return Vec::new();
    }
    let Some(schema) = Schemas::kubernetes().kind_of(&api_version, &kind).and_then(|kind| kind.schema())
    else {
        return Vec::new();
    };
    let mut dropped = Vec::new();
    walk(object, schema, "", 0, &mut dropped);
    dropped
}

fn walk(value: &mut Value, schema: Schema<'_>, path: &str, depth: usize, dropped: &mut Vec<String>) {
    if depth > DEEPEST || schema.preserves_unknown_fields() {
        return;
    }
    match value {
        Value::Object(map) => {
            let has_fields = schema.fields().len() > 0;
            map.retain(|key, value| {
                if value.is_null() && has_fields {
                    return false;
                }
                match schema.child(key) {
                    Some(child) => {
                        walk(value, child, &field(path, key), depth + 1, dropped);
                        true
                    }
                    None if has_fields => {
                        if dropped.len() < MOST_NAMED {
                            dropped.push(field(path, key));
                        }
                        false
                    }
                    None => true,
                }
            });
        }
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                for (index, item) in list.iter_mut().enumerate() {
                    walk(item, items, &format!("{path}[{index}]"), depth + 1, dropped);
                }
            }
        }
        Value::Null => {
            if let Some(empty) = empty_value(schema) {
                *value = empty;
            }
        }
        _ => {}
    }
}

fn empty_value(schema: Schema<'_>) -> Option<Value> {
    if schema.is_quantity() {
        return Some("0".into());
    }
    match schema.type_() {
        Type::String => Some("".into()),
        Type::Integer | Type::Number => Some(0.into()),
        Type::Boolean => Some(false.into()),
        Type::Object | Type::Array | Type::Any => None,
    }
}

fn field(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_that_the_kind_does_not_have_is_dropped() {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "annotations": {"x": "y"}},
            "spec": {"replicas": 1, "nonsense": true, "paused": null, "selector": {"matchLabels": {"any": "label"}},
                "template": {"spec": {"containers": [{"name": "c", "imagePolicy": "x", "resources": {"limits": {"cpu": 1}}}]}}},
        });
        let dropped = drop_unknown(&mut object);
        assert_eq!(dropped, ["spec.nonsense", "spec.template.spec.containers[0].imagePolicy"]);
        assert_eq!(
            object["spec"],
            json!({"replicas": 1, "selector": {"matchLabels": {"any": "label"}},
                "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1}}}]}}})
        );
        assert_eq!(object["metadata"]["annotations"], json!({"x": "y"}));
    }

    #[test]
    fn null_in_a_map_or_list_is_the_empty_value() {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"l": null}},
            "spec": {"containers": [{"name": "c", "args": ["a", null], "image": null,
                "resources": {"limits": {"cpu": null}}}]},
        });
        assert!(drop_unknown(&mut object).is_empty());
        assert_eq!(object["metadata"]["labels"], json!({"l": ""}));
        let container = json!({"name": "c", "args": ["a", ""], "resources": {"limits": {"cpu": "0"}}});
        assert_eq!(object["spec"]["containers"], json!([container]));
        let mut map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": null}, "binaryData": null});
        drop_unknown(&mut map);
        assert_eq!(map, json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": ""}}));
    }

    #[test]
    fn other_kinds_keep_everything() {
        let mut object = json!({"apiVersion": "example.org/v1", "kind": "Widget", "spec": {"any": null}});
        let before = object.clone();
        drop_unknown(&mut object);
        assert_eq!(object, before);
    }
}
