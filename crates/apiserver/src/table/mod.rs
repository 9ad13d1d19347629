//! `Table` and `PartialObjectMetadata`: what `kubectl get` shows.
//!
//! The columns of builtin kinds are recorded from a real server; their cells are computed in `cells`. Custom kinds show
//! the columns their CRD names.

mod age;
mod cells;
mod json_path;
mod pod;

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::CustomKind;
use crate::object;
use crate::rest::Call;

pub use age::since;

/// Whether the column definitions are sent: in a watch only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    Shown,
    Left,
}

/// What of the object each row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Include {
    pub fn read(query: &crate::request::Query) -> Include {
        match query.get("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        }
    }
}

/// Only the metadata of an object.
pub fn metadata_only(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

/// Objects as rows.
pub fn of(call: &Call, objects: &[Value], list_meta: Value, header: Header, include: Include) -> Value {
    let now = call.server.time();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = match &call.resource.custom {
                Some(custom) => json!({ "cells": custom_cells(custom, object, now) }),
                None => cells::row(&call.resource.storage, object, now),
            };
            match include {
                Include::None => {}
                Include::Metadata => row["object"] = metadata_only(object),
                Include::Object => row["object"] = object.clone(),
            }
            row
        })
        .collect();
    let columns = match (header, &call.resource.custom) {
        (Header::Left, _) => Value::Null,
        (Header::Shown, Some(custom)) => custom_columns(custom),
        (Header::Shown, None) => builtin_columns(&call.resource.storage),
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta,
        "columnDefinitions": columns, "rows": rows,
    })
}

fn column(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority })
}

static COLUMNS: LazyLock<HashMap<&str, Value>> = LazyLock::new(|| {
    let lines = include_str!("columns.tsv").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('\t'))
        .map(|(place, columns)| (place, read_columns(columns)))
        .collect()
});

fn read_columns(text: &str) -> Value {
    text.split('\t')
        .map(|entry| {
            let mut parts = entry.split(':');
            let mut next = || parts.next().unwrap_or_default();
            let (name, kind, format, priority) = (next(), next(), next(), next());
            let kind = if kind.is_empty() { "string" } else { kind };
            column(name, kind, format, "", priority.parse().unwrap_or(0))
        })
        .collect()
}

fn builtin_columns(place: &str) -> Value {
    let default =
        || json!([column("Name", "string", "name", "", 0), column("Created At", "date", "", "", 0)]);
    COLUMNS.get(place).cloned().unwrap_or_else(default)
}

fn custom_columns(custom: &CustomKind) -> Value {
    let mut columns = vec![column("Name", "string", "name", "", 0)];
    for own in &custom.columns {
        columns.push(column(&own.name, &own.kind, &own.format, &own.description, own.priority));
    }
    if custom.columns.is_empty() {
        columns.push(column("Age", "date", "", "", 0));
    }
    columns.into()
}

fn custom_cells(custom: &CustomKind, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![object::name(object).into()];
    for own in &custom.columns {
        let found = json_path::find(object, &own.json_path);
        cells.push(custom_cell(&own.kind, found, now));
    }
    if custom.columns.is_empty() {
        cells.push(age::of_object(object, now).into());
    }
    cells
}

/// A value as its column's type shows it; what does not fit the type is shown as nothing.
fn custom_cell(kind: &str, found: Vec<&Value>, now: Timestamp) -> Value {
    let Some(first) = found.first() else { return Value::Null };
    match (kind, first) {
        ("integer", Value::Number(number)) => number.as_i64().map_or(Value::Null, Value::from),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => (*first).clone(),
        ("date", Value::String(text)) => since(text, now).into(),
        ("string", _) => {
            let texts: Vec<String> = found.iter().map(|value| cell_text(value)).collect();
            texts.join(" ").into()
        }
        _ => Value::Null,
    }
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
