//! Lists of type set and map: no item twice, and which old item a new one was.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::field_error::{FieldError, child};
use super::schema::{Additional, Structural};

/// Items that are there twice. `enabled` is false when the stored object had such items already.
pub(super) fn check(object: &Value, schema: &Structural, enabled: bool) -> Vec<FieldError> {
    let mut out = Vec::new();
    if enabled {
        walk(object, schema, "", &mut out);
    }
    out
}

fn walk(value: &Value, schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(property) = schema.properties.get(name) {
                    walk(value, property, &child(path, name), out);
                } else if let Some(Additional::Schema(schema)) = &schema.additional {
                    walk(value, schema, &format!("{path}[{name}]"), out);
                }
            }
        }
        Value::Array(list) => {
            match schema.list_type.as_deref() {
                Some("set") => twice(list.iter().cloned().map(Some).collect(), path, out),
                Some("map") => check_map(list, schema, path, out),
                _ => {}
            }
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    walk(item, items, &format!("{path}[{index}]"), out);
                }
            }
        }
        _ => {}
    }
}

fn check_map(list: &[Value], schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    for (index, item) in list.iter().enumerate() {
        if !item.is_object() && !item.is_null() {
            out.push(FieldError::invalid(
                format!("{path}[{index}]"),
                item.clone(),
                "must be an object for an array of list-type map",
            ));
            return;
        }
    }
    twice(list.iter().map(|item| Some(key_of(item, schema))).collect(), path, out);
}

fn key_of(item: &Value, schema: &Structural) -> Value {
    let mut key = Map::new();
    for name in &schema.list_map_keys {
        if let Some(value) = item.get(name) {
            key.insert(name.clone(), value.clone());
        }
    }
    Value::Object(key)
}

/// Reports the second of equal values, once.
fn twice(values: Vec<Option<Value>>, path: &str, out: &mut Vec<FieldError>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, value) in values.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            out.push(FieldError::duplicate(format!("{path}[{index}]"), value));
        }
    }
}

/// The old items of a list of type map, by key. Items of other lists have no past.
pub(super) struct Correlated<'a> {
    schema: &'a Structural,
    by_key: HashMap<String, &'a Value>,
}

impl<'a> Correlated<'a> {
    pub(super) fn new(schema: &'a Structural, old: Option<&'a Value>) -> Self {
        let mut by_key = HashMap::new();
        if schema.list_type.as_deref() == Some("map") {
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                by_key.entry(key_of(item, schema).to_string()).or_insert(item);
            }
        }
        Correlated { schema, by_key }
    }

    pub(super) fn get(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key_of(item, self.schema).to_string()).copied()
    }
}
