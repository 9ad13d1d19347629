//! Substitution in one built object: on its YAML text, which is then read again, so that a value may change type.

use std::collections::BTreeMap;

use flux_api::names::{DISABLED, KUSTOMIZE_SUBSTITUTE};
use serde_json::Value;

use super::{Error as SubstituteError, is_variable_name, substitute};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("envsubst error: {0}")]
    Unreadable(String),
    #[error("envsubst error: '{0}' var name is invalid, must match '^[_[:alpha:]][_[:alpha:][:digit:]]*$'")]
    VariableName(String),
    #[error("envsubst error: variable substitution failed: {0}")]
    Substitute(#[from] SubstituteError),
    #[error("envsubst error: YAMLToJSON: {0}")]
    NoLongerYaml(String),
}

/// The text of an object after substitution; one that opted out, or holds no dollar sign, stays as it is.
pub fn resource(text: &str, variables: &BTreeMap<String, String>, strict: bool) -> Result<String, Error> {
    let unreadable = |error: &dyn std::fmt::Display| Error::Unreadable(error.to_string());
    let document = yaml::parse_one(text.as_bytes(), &yaml::Options::new(yaml::Schema::V3))
        .map_err(|error| unreadable(&error))?;
    let Some(document) = document else { return Ok(String::new()) };
    let text = yaml::kustomize_yaml(&document.root).map_err(|error| unreadable(&error))?;
    let object = yaml::to_json(text.as_bytes()).map_err(|error| unreadable(&error))?;
    match built(&text, &object, variables, strict)? {
        Some(changed) => yaml::to_yaml_sigs(&changed).map_err(|error| unreadable(&error)),
        None => Ok(text),
    }
}

/// The same for an object whose text and value are at hand; `None` when nothing changes.
pub fn built(
    text: &str,
    object: &Value,
    variables: &BTreeMap<String, String>,
    strict: bool,
) -> Result<Option<Value>, Error> {
    if opted_out(object) {
        return Ok(None);
    }
    // Checked even when the variable is not used, as upstream does.
    if let Some(bad) = variables.keys().find(|name| !is_variable_name(name)) {
        return Err(Error::VariableName(bad.clone()));
    }
    if !text.contains('$') {
        return Ok(None);
    }
    let flat = variables.iter().map(|(name, value)| (name.clone(), value.replace('\n', ""))).collect();
    let substituted = substitute(text, &flat, strict)?;
    yaml::to_json(substituted.as_bytes()).map(Some).map_err(|error| Error::NoLongerYaml(error.to_string()))
}

fn opted_out(object: &Value) -> bool {
    ["labels", "annotations"].iter().any(|place| {
        let mark = object
            .get("metadata")
            .and_then(|metadata| metadata.get(place))
            .and_then(|map| map.get(KUSTOMIZE_SUBSTITUTE));
        mark.and_then(Value::as_str) == Some(DISABLED)
    })
}
