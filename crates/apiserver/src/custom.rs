//! Custom resources by their CRD's schema: reading, defaults, validating. The schema itself is `structural`'s.

use serde_json::Value;

use crate::kinds::CustomKind;
use crate::status::{Cause, CauseReason};
use crate::structural::{ErrorKind, FieldError};

/// Reads `value` by the schema, in place: unknown fields fall away and are named.
pub fn read(custom: &CustomKind, value: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = crate::decode::metadata(value)?;
    if let (Some(schema), false) = (&custom.structural, custom.preserve_unknown_fields) {
        unknown.extend(schema.prune(value));
    }
    Ok(unknown)
}

pub fn fill_defaults(custom: &CustomKind, value: &mut Value) {
    if let Some(schema) = &custom.structural {
        schema.default(value);
    }
}

/// What is wrong with an object, by its schema and then by its rules.
pub fn validate(custom: &CustomKind, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(rules) = &custom.rules else { return Vec::new() };
    rules.validate(value, old).iter().map(cause).collect()
}

/// A complaint about a field as a Status carries it.
pub fn cause(error: &FieldError) -> Cause {
    let reason = match error.kind {
        ErrorKind::Required => CauseReason::Required,
        ErrorKind::Invalid => CauseReason::Invalid,
        ErrorKind::TypeInvalid => CauseReason::TypeInvalid,
        ErrorKind::NotSupported => CauseReason::NotSupported,
        ErrorKind::Duplicate => CauseReason::Duplicate,
        ErrorKind::Forbidden => CauseReason::Forbidden,
        ErrorKind::TooLong => CauseReason::TooLong,
        ErrorKind::TooMany => CauseReason::TooMany,
    };
    Cause::new(reason, error.field.clone(), error.message())
}
