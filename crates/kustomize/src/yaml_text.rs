//! Texts that kustomize reads through sigs.k8s.io/yaml: kustomization files, plugin configuration, JSON patches.

use serde_json::Value;
use yaml::resolve::{Resolved, resolve_v2};

/// The first document of a text as JSON; of equal keys the last one counts.
pub(crate) fn to_json(content: &[u8]) -> Result<Value, String> {
    yaml::to_json(content).map_err(|error| error.to_string())
}

/// As [`to_json`]; equal keys are an error.
pub(crate) fn to_json_strict(content: &[u8]) -> Result<Value, String> {
    yaml::to_json_strict(content).map_err(|error| error.to_string())
}

/// JSON as YAML, keys sorted.
pub(crate) fn from_json(value: &Value) -> String {
    yaml::to_yaml_sigs(value).unwrap_or_default()
}

/// Whether go-yaml v2 takes a plain text for something other than a string.
pub(crate) fn is_yaml_1_1_non_string(text: &str) -> bool {
    match resolve_v2(text) {
        Resolved::String | Resolved::Timestamp(_) | Resolved::Binary | Resolved::Merge => false,
        Resolved::Null | Resolved::Bool(_) | Resolved::Int(_) | Resolved::Uint(_) | Resolved::Float(_) => {
            true
        }
    }
}
