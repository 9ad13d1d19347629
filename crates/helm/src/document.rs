//! YAML documents as Helm reads them: through `sigs.k8s.io/yaml`, which means JSON underneath.

use serde_json::Value as Json;

/// The longest document that is read. What it says takes a multiple of that in memory, and what a cluster stores is far smaller.
pub(crate) const MAX_DOCUMENT: usize = 5 << 20;

/// One document as a tree; whole numbers stay whole. The error is what Go prints.
pub(crate) fn parse(data: &[u8]) -> Result<Json, String> {
    if data.len() > MAX_DOCUMENT {
        return Err(format!("document is larger than the maximum size {MAX_DOCUMENT}"));
    }
    yaml::to_json(data).map_err(|error| conversion(&error.to_string()))
}

fn conversion(cause: &str) -> String {
    format!("error converting YAML to JSON: {cause}")
}

/// Every number as a float, which is all that Go's `interface{}` knows of JSON.
pub(crate) fn with_float_numbers(value: Json) -> Json {
    match value {
        Json::Number(number) => {
            number.as_f64().and_then(serde_json::Number::from_f64).map_or(Json::Null, Json::Number)
        }
        Json::Array(items) => Json::Array(items.into_iter().map(with_float_numbers).collect()),
        Json::Object(entries) => {
            Json::Object(entries.into_iter().map(|(k, v)| (k, with_float_numbers(v))).collect())
        }
        other => other,
    }
}
