//! JSON values as sigs.k8s.io/yaml's `Marshal` and `JSONToYAML` write them: Helm's `toYaml`, kubectl, kustomize.
//!
//! Go gets there by way of JSON text that go-yaml v2 reads again. That detour has effects of its own: whole
//! floats become integers, control characters are refused, and a next-line character folds into a space.

use std::borrow::Cow;

use serde_json::Value;

use super::emitter::{CollectionStyle, Emitter};
use super::{Dialect, EmitError};
use crate::json::number_text;
use crate::node::ScalarStyle;
use crate::resolve::{Resolved, resolve_v2};
use crate::sort::sort_keys;

/// The YAML of a JSON value, ended by a line break.
pub fn to_yaml_sigs(value: &Value) -> Result<String, EmitError> {
    let mut emitter = Emitter::new(Dialect::V2);
    write_value(&mut emitter, value)?;
    Ok(emitter.finish())
}

fn write_value(emitter: &mut Emitter, value: &Value) -> Result<(), EmitError> {
    match value {
        Value::Null => emitter.null(),
        Value::Bool(value) => emitter.bool(*value),
        Value::Number(number) => write_json_number(emitter, &number_text(number)),
        Value::String(text) => write_json_string(emitter, text)?,
        Value::Array(items) => {
            emitter.begin_sequence(CollectionStyle::block(items.len()));
            for item in items {
                write_value(emitter, item)?;
            }
            emitter.end_sequence();
        }
        Value::Object(entries) => {
            let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
            sort_keys(&mut entries, |(key, _)| key.as_str(), Dialect::V2);
            emitter.begin_mapping(CollectionStyle::block(entries.len()));
            for (key, value) in entries {
                write_json_key(emitter, key)?;
                write_value(emitter, value)?;
            }
            emitter.end_mapping();
        }
    }
    Ok(())
}

/// A number that was printed as JSON and is now read by go-yaml v2.
pub(super) fn write_json_number(emitter: &mut Emitter, text: &str) {
    match resolve_v2(text) {
        Resolved::Int(value) => emitter.int(value),
        Resolved::Uint(value) => emitter.uint(value),
        Resolved::Float(value) => emitter.float(value),
        Resolved::Null
        | Resolved::Bool(_)
        | Resolved::String
        | Resolved::Timestamp(_)
        | Resolved::Binary
        | Resolved::Merge => emitter.scalar(text, ScalarStyle::Plain),
    }
}

/// A key that was printed as JSON. go-yaml finds the colon only if the key is on one line and not too long.
pub(super) fn write_json_key(emitter: &mut Emitter, key: &str) -> Result<(), EmitError> {
    if key.contains('\u{85}') {
        return Err(EmitError::Refused("line 1: did not find expected ',' or '}'"));
    }
    if key.len() > 170 && crate::json_text(&Value::String(key.to_owned())).chars().count() > 1024 {
        return Err(EmitError::Refused("did not find expected ',' or '}'"));
    }
    write_json_string(emitter, key)
}

/// A string that was printed as JSON and is now read by go-yaml v2.
pub(super) fn write_json_string(emitter: &mut Emitter, text: &str) -> Result<(), EmitError> {
    emitter.string(&through_json(text)?);
    Ok(())
}

fn through_json(text: &str) -> Result<Cow<'_, str>, EmitError> {
    if text.is_ascii() {
        // encoding/json leaves DEL as it is, and go-yaml refuses to read it.
        return if text.contains('\u{7f}') {
            Err(EmitError::ControlCharacter)
        } else {
            Ok(Cow::Borrowed(text))
        };
    }
    let refused = |c: char| matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(refused) {
        return Err(EmitError::ControlCharacter);
    }
    if text.contains('\u{85}') { Ok(Cow::Owned(fold_next_lines(text))) } else { Ok(Cow::Borrowed(text)) }
}

/// U+0085 stands raw in JSON text, where go-yaml v2 takes it for a line break: one folds into a space, of
/// several all but the first stay, and the blanks around them are lost.
fn fold_next_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{85}') {
        out.push_str(rest[..at].trim_end_matches([' ']));
        let mut breaks = 0;
        rest = rest[at..].trim_start_matches(|c| {
            breaks += usize::from(c == '\u{85}');
            matches!(c, '\u{85}' | ' ')
        });
        match breaks {
            1 => out.push(' '),
            _ => out.extend(std::iter::repeat_n('\n', breaks - 1)),
        }
    }
    out.push_str(rest);
    out
}
