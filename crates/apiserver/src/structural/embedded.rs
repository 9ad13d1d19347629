//! Resources inside of resources (`x-kubernetes-embedded-resource`): they must say what they are, and their metadata is
//! read like any object's.
//!
//! Deliberately absent: the syntax of names, labels and annotations inside of them.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::field_error::{FieldError, child};
use super::schema::{Additional, Structural};

/// Reads the metadata of every embedded resource and answers unknown fields in it.
pub(super) fn read_metadata(value: &mut Value, schema: &Structural, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if schema.embedded
                && let Some(metadata @ Value::Object(_)) = map.get_mut("metadata")
            {
                let read = super::builtin::metadata(metadata);
                let lost = metadata
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !super::builtin::is_metadata_field(name));
                unknown.extend(lost.map(|(name, _)| format!("{}.{name}", child(path, "metadata"))));
                *metadata = read;
            }
            for (name, value) in map {
                if let Some(below) = schema.child(name) {
                    read_metadata(value, below, &child(path, name), unknown);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, item) in list.iter_mut().enumerate() {
                    read_metadata(item, items, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

/// What embedded resources say wrongly of themselves.
pub(super) fn check(value: &Value, schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                check_type(map.get("apiVersion"), map.get("kind"), path, out);
            }
            for (name, value) in map {
                if let Some(property) = schema.properties.get(name) {
                    check(value, property, &child(path, name), out);
                } else if let Some(Additional::Schema(of)) = &schema.additional {
                    check(value, of, &format!("{path}[{name}]"), out);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    check(item, items, &format!("{path}[{index}]"), out);
                }
            }
        }
        _ => {}
    }
}

fn check_type(api_version: Option<&Value>, kind: Option<&Value>, path: &str, out: &mut Vec<FieldError>) {
    static KIND: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("(?i)^[a-z]([-a-z0-9]*[a-z0-9])?$").expect("the pattern is a constant and compiles")
    });
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
    let (version_field, kind_field) = (child(path, "apiVersion"), child(path, "kind"));
    match text(api_version) {
        version if version.is_empty() => out.push(FieldError::required(version_field, "")),
        version if version.matches('/').count() > 1 => {
            let detail = format!("unexpected GroupVersion string: {version}");
            out.push(FieldError::invalid(version_field, version.as_str(), detail));
        }
        _ => {}
    }
    match text(kind) {
        kind if kind.is_empty() => out.push(FieldError::required(kind_field, "")),
        kind if !KIND.is_match(&kind) || kind.len() > 63 => {
            let detail = "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric \
                          characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
                          'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
            out.push(FieldError::invalid(kind_field, kind.as_str(), detail));
        }
        _ => {}
    }
}
