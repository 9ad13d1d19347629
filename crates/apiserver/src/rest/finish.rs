//! Between a kind's served version and the version it is kept in.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::Call;
use crate::kinds::{CustomKind, Resource};
use crate::storage::Stored;
use crate::{convert, strategy};

/// The object in the version it is kept in.
pub fn to_storage(call: &Call, object: Value) -> Value {
    match call.server.registry().stored(&call.resource.storage) {
        Some(stored) => convert::to(stored, object),
        None => object,
    }
}

/// Selector fields of an object as it is kept.
pub fn fields(call: &Call, object: &Value) -> Vec<(Box<str>, Box<str>)> {
    match call.server.registry().stored(&call.resource.storage) {
        Some(stored) => strategy::field_values(stored, object),
        None => Vec::new(),
    }
}

/// The object as this resource's version shows it.
pub fn shown(resource: &Resource, stored: &Stored) -> Value {
    let mut object = convert::to(resource, stored.value());
    if let Some(custom) = reread(resource) {
        // What cannot be read by the schema of today is shown as it is.
        let _ = crate::custom::read(custom, &mut object);
        crate::custom::fill_defaults(custom, &mut object);
    }
    object
}

/// Set when objects may have been written under another schema than the one they are read by.
pub fn reread(resource: &Resource) -> Option<&CustomKind> {
    resource.custom.as_deref().filter(|custom| custom.reread)
}

/// The same as bytes, without a copy when the stored version is the one asked for.
pub fn shown_json(resource: &Arc<Resource>, storage: &Arc<Resource>, stored: &Stored) -> Bytes {
    if Arc::ptr_eq(resource, storage) && reread(resource).is_none() {
        return stored.json.clone();
    }
    crate::storage::lay_out(&shown(resource, stored))
}
