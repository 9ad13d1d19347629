//! The published schema of a custom kind: what its CRD says, with metadata filled in.

use serde_json::{Map, Value, json};

use crate::kinds::Resource;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// `com.example.v1.Widget` for `widgets.example.com`.
pub fn definition_name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
}

fn reference(name: &str) -> Value {
    json!({ "allOf": [{ "$ref": format!("#/components/schemas/{META}.{name}") }] })
}

/// The kind's schema and its list's.
pub fn schemas(resource: &Resource) -> Vec<(String, Value)> {
    let name = definition_name(resource);
    let mut schema = match resource.custom.as_ref().map(|custom| custom.schema.clone()) {
        Some(Value::Object(schema)) => schema,
        _ => Map::new(),
    };
    let preserves = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true));
    if preserves && schema.get("properties").is_none() {
        schema = Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true)),
        ]);
    } else {
        let properties = crate::object::map_in(&mut schema, "properties");
        properties.insert(
            "apiVersion".into(),
            json!({ "type": "string", "description": "APIVersion defines which version of the kind this object is written in." }),
        );
        properties.insert(
            "kind".into(),
            json!({ "type": "string", "description": "Kind names what this object is; it cannot change." }),
        );
        let mut metadata = reference("ObjectMeta");
        metadata["description"] = "Standard object's metadata.".into();
        properties.insert("metadata".into(), metadata);
        schema.entry("type").or_insert(json!("object"));
    }
    let kind =
        |kind: &str| json!([{ "group": &*resource.group, "version": &*resource.version, "kind": kind }]);
    schema.insert("x-kubernetes-group-version-kind".into(), kind(&resource.kind));
    let list = json!({
        "type": "object", "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "metadata": reference("ListMeta"),
            "items": { "type": "array", "items": { "allOf": [{ "$ref": format!("#/components/schemas/{name}") }] } },
        },
        "x-kubernetes-group-version-kind": kind(&resource.list_kind),
    });
    vec![(format!("{name}List"), list), (name, Value::Object(schema))]
}
