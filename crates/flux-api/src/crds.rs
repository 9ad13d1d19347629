//! The kinds as CustomResourceDefinitions.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A field that may hold anything.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}
