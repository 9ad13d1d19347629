//! The whole API as one Swagger 2 document, made from the v3 parts.

use serde_json::{Map, Value, json};

use super::{definition_name, paths, schemas};
use crate::kinds::Registry;

pub fn document(registry: &Registry) -> Value {
    let resources = || {
        registry
            .groups
            .iter()
            .flat_map(|group| &group.versions)
            .flat_map(|version| version.resources.values())
    };
    let mut routes = Map::new();
    for resource in resources() {
        paths::add(&mut routes, resource, &definition_name(resource));
    }
    let routes: Map<String, Value> = routes.into_iter().map(|(path, item)| (path, path_item(item))).collect();
    let definitions: Map<String, Value> = schemas(resources())
        .into_iter()
        .map(|(name, schema)| (name, lower(without_structure(schema))))
        .collect();
    json!({
        "swagger": "2.0", "info": { "title": "Kubernetes", "version": "v1.36.3" }, "paths": routes, "definitions": definitions,
        "securityDefinitions": { "BearerToken": {
            "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
        } },
        "security": [{ "BearerToken": [] }],
    })
}

/// Old readers of v2 take a kind that keeps unknown fields for one without any: its schema is left out.
fn without_structure(schema: Value) -> Value {
    let kind = &schema["x-kubernetes-group-version-kind"];
    match schema["x-kubernetes-preserve-unknown-fields"] == true && !kind.is_null() {
        true => json!({ "type": "object", "x-kubernetes-group-version-kind": kind }),
        false => schema,
    }
}

/// A schema as v2 can say it: references in their old place, none wrapped, nothing nullable.
fn lower(schema: Value) -> Value {
    match schema {
        Value::Object(mut fields) => {
            if let Some(Value::Array(all)) = fields.get("allOf")
                && let [only] = &all[..]
                && let Some(reference) = only.get("$ref").cloned()
            {
                fields.remove("allOf");
                fields.remove("default");
                fields.insert("$ref".into(), reference);
            }
            for key in ["nullable", "oneOf", "anyOf", "not"] {
                fields.remove(key);
            }
            let lowered = fields.into_iter().map(|(key, value)| match (key.as_str(), value) {
                ("$ref", Value::String(text)) => {
                    (key, text.replace("#/components/schemas/", "#/definitions/").into())
                }
                (_, value) => (key, lower(value)),
            });
            Value::Object(lowered.collect())
        }
        Value::Array(items) => items.into_iter().map(lower).collect(),
        other => other,
    }
}

fn path_item(item: Value) -> Value {
    let Value::Object(fields) = item else { return item };
    let converted = fields.into_iter().map(|(key, value)| match key.as_str() {
        "parameters" => (key, parameters(&value)),
        _ => (key, operation(value)),
    });
    Value::Object(converted.collect())
}

fn parameters(list: &Value) -> Value {
    let flat = |parameter: &Value| {
        let mut flat = parameter.clone();
        if let Some(fields) = flat.as_object_mut()
            && let Some(Value::Object(schema)) = fields.remove("schema")
        {
            fields.extend(schema);
        }
        flat
    };
    list.as_array().into_iter().flatten().map(flat).collect()
}

fn operation(mut operation: Value) -> Value {
    let mut list: Vec<Value> = parameters(&operation["parameters"]).as_array().cloned().unwrap_or_default();
    let Some(fields) = operation.as_object_mut() else { return operation };
    if let Some(body) = fields.remove("requestBody") {
        let schema = body["content"]
            .as_object()
            .and_then(|content| content.values().next())
            .map(|media| media["schema"].clone());
        list.insert(0, json!({ "name": "body", "in": "body", "required": true, "schema": lower(schema.unwrap_or_default()) }));
        let types: Vec<String> =
            body["content"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        fields.insert("consumes".into(), json!(types));
    }
    fields.insert("parameters".into(), list.into());
    fields.insert("produces".into(), json!(["application/json", "application/yaml"]));
    if let Some(responses) = fields.get_mut("responses").and_then(Value::as_object_mut) {
        for response in responses.values_mut() {
            let schema = response.pointer("/content/application~1json/schema").cloned();
            if let Some(response) = response.as_object_mut() {
                response.remove("content");
                if let Some(schema) = schema {
                    response.insert("schema".into(), lower(schema));
                }
            }
        }
    }
    operation
}
