//! Reading and writing the metadata every Kubernetes object has, on plain JSON.
//!
//! Objects stay `serde_json::Value` from the wire to the store: the server treats builtin and custom kinds alike.

use serde_json::{Map, Value};

static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// `metadata`, or an empty map.
pub fn meta(object: &Value) -> &Map<String, Value> {
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// `metadata`, created when missing or of the wrong type.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// The map under `key`, created when missing or of the wrong type.
pub fn child_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let fields = object.as_object_mut().expect("made an object above");
    map_in(fields, key)
}

/// The map under `key` of a map, created when missing or of the wrong type.
pub fn map_in<'a>(fields: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let slot = fields.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("made an object above")
}

/// The list under `key` of a map, created when missing or of the wrong type.
pub fn list_in<'a>(fields: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let slot = fields.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut().expect("made an array above")
}

pub fn meta_str<'a>(object: &'a Value, key: &str) -> &'a str {
    meta(object).get(key).and_then(Value::as_str).unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    meta_str(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

/// The string at a JSON pointer, or "".
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn integer(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

pub fn is_deleting(object: &Value) -> bool {
    meta(object).get("deletionTimestamp").is_some_and(|at| !at.is_null())
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = meta(object).get("finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    meta(object).get("annotations")?.get(key)?.as_str()
}

/// Sets or removes a metadata field.
pub fn set_meta(object: &mut Value, key: &str, value: Option<Value>) {
    let fields = meta_mut(object);
    match value {
        Some(value) => drop(fields.insert(key.into(), value)),
        None => drop(fields.remove(key)),
    }
}

/// Depth of nesting, cut off at `limit`: bodies deeper than that are refused before anything recurses over them.
pub fn deeper_than(value: &Value, limit: usize) -> bool {
    match value {
        Value::Array(items) => limit == 0 || items.iter().any(|item| deeper_than(item, limit - 1)),
        Value::Object(fields) => limit == 0 || fields.values().any(|item| deeper_than(item, limit - 1)),
        _ => false,
    }
}
