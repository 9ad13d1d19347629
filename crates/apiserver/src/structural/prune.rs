//! Unknown fields, nulls and defaults: what happens to a custom resource as it is read.

use serde_json::Value;

use super::schema::{Additional, Structural};

/// Objects nested deeper than this are left as they are.
const MAX_DEPTH: usize = 250;

impl Structural {
    /// Removes what the schema does not know and answers the paths, sorted. The object's own `apiVersion`, `kind` and
    /// `metadata` stay.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut pruner = Pruner { path: Vec::new(), unknown: Vec::new() };
        pruner.prune(object, Some(self), true, false, MAX_DEPTH);
        super::embedded::read_metadata(object, self, "", &mut pruner.unknown);
        pruner.unknown.sort();
        whole_floats(object, MAX_DEPTH);
        pruner.unknown
    }

    /// As [`Structural::prune`], for a part of an object.
    pub(super) fn prune_part(&self, value: &mut Value) -> Vec<String> {
        let mut pruner = Pruner { path: Vec::new(), unknown: Vec::new() };
        pruner.prune(value, Some(self), false, false, MAX_DEPTH);
        pruner.unknown
    }

    /// Removes nulls where null is no value, then fills in defaults.
    pub fn default(&self, object: &mut Value) {
        drop_nulls(object, Some(self), MAX_DEPTH);
        fill(object, self, MAX_DEPTH);
    }
}

struct Pruner {
    path: Vec<String>,
    unknown: Vec<String>,
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

impl Pruner {
    /// `keep` is set for the items of a list that keeps unknown fields.
    fn prune(
        &mut self,
        value: &mut Value,
        schema: Option<&Structural>,
        is_root: bool,
        keep: bool,
        depth: usize,
    ) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let keeps_unknown = keep || schema.is_some_and(|schema| schema.preserve_unknown);
        match value {
            Value::Object(map) => {
                let names: Vec<String> = map.keys().cloned().collect();
                for name in names {
                    let is_resource = is_root || schema.is_some_and(|schema| schema.embedded);
                    if is_resource && is_meta(&name) {
                        continue;
                    }
                    let below =
                        schema.and_then(|schema| match (schema.properties.get(&name), &schema.additional) {
                            (Some(property), _) => Some(Some(property)),
                            (None, Some(Additional::Schema(schema))) => Some(Some(&**schema)),
                            // `true` says that there may be anything, and nothing of what.
                            (None, Some(Additional::Allowed(_))) => Some(None),
                            (None, None) => None,
                        });
                    match (below, map.get_mut(&name)) {
                        (Some(below), Some(value)) => {
                            self.path.push(name);
                            self.prune(value, below, false, false, depth);
                            self.path.pop();
                        }
                        _ if keeps_unknown => {}
                        _ => {
                            self.unknown.push(self.path_to(&name));
                            map.remove(&name);
                        }
                    }
                }
            }
            Value::Array(list) => {
                let below = schema.and_then(|schema| schema.items.as_deref());
                // Lists inside of what is kept are kept.
                if keeps_unknown && below.is_none() {
                    return;
                }
                for (index, item) in list.iter_mut().enumerate() {
                    self.path.push(format!("[{index}]"));
                    self.prune(item, below, false, keeps_unknown, depth);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn path_to(&self, name: &str) -> String {
        let mut out = String::new();
        for part in self.path.iter().map(String::as_str).chain([name]) {
            if !out.is_empty() && !part.starts_with('[') {
                out.push('.');
            }
            out += part;
        }
        out
    }
}

/// Go writes a float without a fraction as a whole number.
fn whole_floats(value: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(0.5);
            if float.fract() == 0.0 && float.abs() < 1e15 {
                *value = (float as i64).into();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|item| whole_floats(item, depth)),
        Value::Object(map) => map.values_mut().for_each(|value| whole_floats(value, depth)),
        _ => {}
    }
}

fn drop_nulls(value: &mut Value, schema: Option<&Structural>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(map) => {
            map.retain(|name, value| {
                let below = schema.and_then(|schema| schema.child(name));
                !(value.is_null() && below.is_some_and(|below| !below.nullable && below.default.is_none()))
            });
            for (name, value) in map {
                drop_nulls(value, schema.and_then(|schema| schema.child(name)), depth);
            }
        }
        Value::Array(list) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            list.iter_mut().for_each(|item| drop_nulls(item, below, depth));
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &Structural, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let stands_for_default = |value: Option<&Value>, schema: &Structural| match value {
        None => true,
        Some(value) => value.is_null() && !schema.nullable,
    };
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                if let Some(default) = &property.default
                    && stands_for_default(map.get(name), property)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map {
                let Some(below) = schema.child(name) else { continue };
                if value.is_null()
                    && !below.nullable
                    && let Some(default) = &below.default
                {
                    *value = default.clone();
                }
                fill(value, below, depth);
            }
        }
        Value::Array(list) => {
            let Some(below) = schema.items.as_deref() else { return };
            for item in list {
                if item.is_null()
                    && !below.nullable
                    && let Some(default) = &below.default
                {
                    *item = default.clone();
                }
                fill(item, below, depth);
            }
        }
        _ => {}
    }
}
