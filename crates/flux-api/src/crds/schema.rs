//! From the schema that schemars derives to the structural schema that Kubernetes takes.
//!
//! schemars describes what serde reads; the API is narrower. An `Option` is a field that may be missing, not one that may be `null`; a
//! default is what the API server fills in, not what serde does; numbers have the formats of Go. Four keys carry what the derive cannot
//! say and are gone afterwards: `x-default`, `x-required`, `x-no-format`, `x-no-pattern`.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// The structural schema of a type.
pub(super) fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_structural(&mut schema);
    schema
}

/// A field that may hold anything.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// Our own types are not deep, and none contains itself: the recursion ends with them.
fn make_structural(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    without_null(object);
    with_api_defaults(object);
    with_go_formats(object);
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    object.remove("title");
    with_required(object);
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            make_structural(inner);
        }
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
    }
}

fn without_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}

fn with_api_defaults(object: &mut Map<String, Value>) {
    object.remove("default");
    if let Some(default) = object.remove("x-default") {
        object.insert("default".into(), default);
    }
}

fn with_go_formats(object: &mut Map<String, Value>) {
    let unformatted = object.remove("x-no-format").is_some();
    if unformatted || !matches!(object.get("format").and_then(Value::as_str), Some("int64" | "date-time")) {
        object.remove("format");
    }
    if object.remove("x-no-pattern").is_some() {
        object.remove("pattern");
    }
}

/// A field that has a default and is still required is optional to serde.
fn with_required(object: &mut Map<String, Value>) {
    let mut required: Vec<String> = object
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for (name, property) in properties {
            if property.as_object_mut().is_some_and(|property| property.remove("x-required").is_some()) {
                required.push(name.clone());
            }
        }
    }
    required.sort();
    if !required.is_empty() {
        object.insert("required".into(), json!(required));
    }
}
