//! Go's typed decoding of `Chart.yaml` fields: scalars become strings where a string is wanted, and mismatches are told in the
//! words of `encoding/json`.

use serde_json::Value as Json;

/// Where in a Go struct a value is being put, for messages.
pub(super) struct Field<'a> {
    pub(super) structure: &'a str,
    pub(super) path: String,
}

impl Field<'_> {
    pub(super) fn mismatch(&self, value: &Json, wanted: &str) -> String {
        format!(
            "{PREFIX}json: cannot unmarshal {} into Go struct field {}.{} of type {wanted}",
            json_kind(value),
            self.structure,
            self.path
        )
    }

    pub(super) fn string(&self, value: &Json) -> Result<String, String> {
        scalar_text(value).ok_or_else(|| self.mismatch(value, "string"))
    }

    pub(super) fn boolean(&self, value: &Json) -> Result<bool, String> {
        match value {
            Json::Null => Ok(false),
            Json::Bool(value) => Ok(*value),
            value => Err(self.mismatch(value, "bool")),
        }
    }

    pub(super) fn strings(&self, value: &Json) -> Result<Vec<String>, String> {
        match value {
            Json::Null => Ok(Vec::new()),
            Json::Array(items) => items.iter().map(|item| self.string(item)).collect(),
            value => Err(self.mismatch(value, "[]string")),
        }
    }
}

/// What `sigs.k8s.io/yaml` puts before a decoding error.
pub(crate) const PREFIX: &str = "error unmarshaling JSON: while decoding JSON: ";

/// The string a scalar becomes when Go wants a string: numbers and booleans are spelled out, null is the empty string.
pub(crate) fn scalar_text(value: &Json) -> Option<String> {
    match value {
        Json::Null => Some(String::new()),
        Json::String(text) => Some(text.clone()),
        Json::Bool(value) => Some(value.to_string()),
        Json::Number(number) => Some(match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(whole)) => whole.to_string(),
            // sigs.k8s.io/yaml spells floats with 32-bit precision.
            (None, None) => yaml::format_float_g32(number.as_f64().unwrap_or_default()),
        }),
        Json::Array(_) | Json::Object(_) => None,
    }
}

/// What `encoding/json` calls the kind of a value it cannot use.
pub(crate) fn json_kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}
