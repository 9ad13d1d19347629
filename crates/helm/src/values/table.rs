//! Tables as templates hold them: reading from JSON, looking up paths, and writing back.

use gotemplate::{List, Map, Str, Value};
use serde_json::Value as Json;

/// A JSON tree as Go values: whole numbers are `int64`, since only `--set` makes them; all others are `float64`.
pub(crate) fn from_json(tree: &Json) -> Value {
    match tree {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int64(whole),
            None => Value::Float64(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::string(text.as_str()),
        Json::Array(items) => Value::List(List::new(items.iter().map(from_json).collect())),
        Json::Object(entries) => Value::Map(table(entries)),
    }
}

pub(crate) fn table(entries: &serde_json::Map<String, Json>) -> Map {
    Map::from_entries(entries.iter().map(|(key, value)| (Str::from(key), from_json(value))))
}

/// A value as the JSON tree of a release record. What has no JSON form becomes null.
pub(crate) fn to_json(value: &Value) -> Json {
    value.to_json().unwrap_or(Json::Null)
}

/// What a path such as `a.b.c` leads to.
pub(crate) enum Lookup {
    Found(Value),
    /// Nothing there, or a table where a value is wanted.
    Missing,
}

/// The table at a dotted path.
pub(crate) fn table_at(values: &Map, path: &str) -> Option<Map> {
    let mut current = values.clone();
    for name in path.split('.') {
        let Some(Value::Map(next)) = current.get(name) else { return None };
        current = next;
    }
    Some(current)
}

/// The value (no table) at a dotted path.
pub(crate) fn path_value(values: &Map, path: &str) -> Lookup {
    let (folder, key) = match path.rsplit_once('.') {
        Some((folder, key)) => (table_at(values, folder), key),
        None => (Some(values.clone()), path),
    };
    match folder.and_then(|folder| folder.get(key)) {
        None | Some(Value::Map(_)) => Lookup::Missing,
        Some(value) => Lookup::Found(value),
    }
}
