//! Values from and to JSON trees.

use super::{List, Map, MapEntries, Str, Value};

/// What whole numbers of a JSON tree become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// Every number is a `float64`, as in values that Helm reads: `1000000` prints `1e+06`.
    Float,
    /// Whole numbers are `int64`, as `--set` and Helm's own objects have them.
    Int64,
    /// Whole numbers are `int`.
    Int,
}

/// Why a value has no JSON form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToJsonError {
    #[error("json: unsupported type: {0}")]
    Unsupported(String),
    #[error("json: unsupported value: {0}")]
    UnsupportedValue(String),
    #[error("json: unsupported value: encountered a cycle via {0}")]
    Cycle(String),
    /// Maps that share what they hold can be small here and endless as text.
    #[error("json: value is too large")]
    TooLarge,
}

/// Deeper than this is a cycle, or might as well be one.
const MAX_DEPTH: usize = 1000;
/// More nodes than this are refused.
const MAX_NODES: usize = 2_000_000;

impl Value {
    pub fn from_json(json: &serde_json::Value, numbers: Numbers) -> Value {
        use serde_json::Value as Json;
        match json {
            Json::Null => Value::Nil,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => from_number(number, numbers),
            Json::String(text) => Value::String(text.into()),
            Json::Array(items) => {
                Value::List(List::new(items.iter().map(|item| Value::from_json(item, numbers)).collect()))
            }
            Json::Object(entries) => Value::Map(Map::from_entries(
                entries.iter().map(|(key, value)| (Str::from(key), Value::from_json(value, numbers))),
            )),
        }
    }

    /// The value as a JSON tree, as Go's `encoding/json` would write it; whole floats become whole numbers.
    pub fn to_json(&self) -> Result<serde_json::Value, ToJsonError> {
        to_json(self, 0, &mut 0)
    }

    /// A copy that shares nothing with this value. Beyond a depth of 1000 the rest is shared, so cycles end.
    pub fn deep_copy(&self) -> Value {
        deep_copy(self, 0)
    }
}

fn from_number(number: &serde_json::Number, numbers: Numbers) -> Value {
    let float = || Value::Float64(number.as_f64().unwrap_or(f64::INFINITY));
    match (numbers, number.as_i64(), number.as_u64()) {
        (Numbers::Float, _, _) => float(),
        (Numbers::Int64, Some(whole), _) => Value::Int64(whole),
        (Numbers::Int, Some(whole), _) => Value::Int(whole),
        (_, None, Some(whole)) => Value::Uint64(whole),
        (_, None, None) => float(),
    }
}

fn to_json(value: &Value, depth: usize, nodes: &mut usize) -> Result<serde_json::Value, ToJsonError> {
    use serde_json::Value as Json;
    *nodes += 1;
    if *nodes > MAX_NODES {
        return Err(ToJsonError::TooLarge);
    }
    if depth > MAX_DEPTH {
        return Err(ToJsonError::Cycle(value.type_of().to_string()));
    }
    Ok(match value {
        Value::Nil | Value::NoValue => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) | Value::Int64(value) => Json::from(*value),
        Value::Int32(value) => Json::from(*value),
        Value::Uint8(value) => Json::from(*value),
        Value::Uint32(value) => Json::from(*value),
        Value::Uint64(value) => Json::from(*value),
        Value::Duration(value) => Json::from(value.0),
        Value::Float64(value) => float_to_json(*value)?,
        Value::String(text) => Json::String(text.to_lossy().into_owned()),
        Value::Bytes(bytes) => {
            use base64::Engine;
            Json::String(base64::engine::general_purpose::STANDARD.encode(&**bytes))
        }
        Value::List(list) if list.is_nil() => Json::Null,
        Value::List(list) => crate::stack::grow(|| {
            list.iter().map(|item| to_json(item, depth + 1, nodes)).collect::<Result<_, _>>().map(Json::Array)
        })?,
        Value::Map(map) if map.is_nil() => Json::Null,
        Value::Map(map) => crate::stack::grow(|| {
            let mut object = serde_json::Map::new();
            for (key, value) in map.entries().iter() {
                object.insert(key.to_lossy().into_owned(), to_json(value, depth + 1, nodes)?);
            }
            Ok(Json::Object(object))
        })?,
        Value::Time(time) => Json::String(time.rfc3339_nano()),
        Value::Object(object) if object.marshal_text().is_some() => {
            Json::String(object.marshal_text().unwrap_or_default())
        }
        Value::Object(object) => {
            let mut json = serde_json::Map::new();
            for (name, value) in object.json_fields() {
                json.insert(name.to_owned(), to_json(&value, depth + 1, nodes)?);
            }
            Json::Object(json)
        }
        Value::Func(_) | Value::Complex(_) => {
            return Err(ToJsonError::Unsupported(value.type_of().to_string()));
        }
    })
}

fn float_to_json(value: f64) -> Result<serde_json::Value, ToJsonError> {
    if !value.is_finite() {
        let text = crate::strconv::format_float(value, b'g', -1);
        return Err(ToJsonError::UnsupportedValue(text));
    }
    // Exactly representable whole numbers only: beyond 2^53 the float is what was meant.
    if value.fract() == 0.0
        && value.abs() < 9_007_199_254_740_992.0
        && !(value == 0.0 && value.is_sign_negative())
    {
        return Ok(serde_json::Value::from(value as i64));
    }
    Ok(serde_json::Value::from(value))
}

fn deep_copy(value: &Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return value.clone();
    }
    match value {
        Value::List(list) => crate::stack::grow(|| {
            let items = list.iter().map(|item| deep_copy(item, depth + 1)).collect();
            Value::List(List::typed(list.type_of(), items))
        }),
        Value::Map(map) if map.is_nil() => Value::Map(Map::nil(map.type_of())),
        Value::Map(map) => crate::stack::grow(|| {
            let entries: MapEntries =
                map.entries().iter().map(|(key, value)| (key.clone(), deep_copy(value, depth + 1))).collect();
            Value::Map(Map::typed(map.type_of(), entries))
        }),
        other => other.clone(),
    }
}
