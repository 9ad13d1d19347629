//! `Table` and `PartialObjectMetadata`: what `kubectl get` shows.

use serde_json::{Value, json};

use crate::object;
use crate::rest::Call;

/// Whether the column definitions are sent: in a watch only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    Shown,
    Left,
}

/// Only the metadata of an object.
pub fn metadata_only(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

/// Objects as rows.
pub fn of(call: &Call, objects: &[Value], list_meta: Value, header: Header) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells = json!([object::name(object), object::meta_str(object, "creationTimestamp")]);
            json!({ "cells": cells, "object": metadata_only(object) })
        })
        .collect();
    let _ = call;
    let columns = match header {
        Header::Shown => json!([
            { "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0 },
            { "name": "Created At", "type": "date", "format": "", "description": "", "priority": 0 },
        ]),
        Header::Left => Value::Null,
    };
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": columns, "rows": rows })
}
