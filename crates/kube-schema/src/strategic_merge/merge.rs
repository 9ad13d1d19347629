//! Applying a patch: objects.

use serde_json::Value;

use super::{
    DELETE_FROM_LIST, DIRECTIVE, Error, Object, RETAIN_KEYS, SET_ORDER, Strategy, as_list, go_text, go_type,
    lists, lookup_list, lookup_object,
};
use crate::schema::Schema;

/// What the original is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// An object: directives act and vanish, nulls delete.
    Apply,
    /// Another patch: directives and nulls are kept for the server.
    Combine,
}

pub(super) fn merge_object(
    mut original: Object,
    mut patch: Object,
    schema: Schema<'_>,
    mode: Mode,
) -> Result<Object, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(bad_directive(directive.clone(), patch)),
        };
    }
    apply_retain_keys(&mut original, &mut patch, mode)?;
    lists::apply_set_order(&mut original, &mut patch, schema, mode)?;
    for (key, value) in patch {
        merge_key(&mut original, key, value, schema, mode)?;
    }
    Ok(original)
}

pub(super) fn bad_directive(directive: Value, map: Object) -> Error {
    // `%s` of something that is no string names its type; the common case is a string.
    let directive = match &directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", go_type(other), go_text(other)),
    };
    Error::BadDirective { directive, map: go_text(&Value::Object(map)) }
}

fn merge_key(
    original: &mut Object,
    mut key: String,
    mut value: Value,
    schema: Schema<'_>,
    mode: Mode,
) -> Result<(), Error> {
    let mut deletes = false;
    if key.starts_with(DELETE_FROM_LIST) {
        if mode == Mode::Combine {
            original.insert(key, value);
            return Ok(());
        }
        key = list_name(&key, DELETE_FROM_LIST).ok_or(Error::PrimitiveList)?;
        deletes = true;
    }
    if value.is_null() {
        original.remove(&key);
        if mode == Mode::Apply {
            return Ok(());
        }
    }
    let before = original.get_mut(&key).filter(|before| go_type(before) == go_type(&value));
    let Some(before) = before else {
        if !deletes {
            if mode == Mode::Apply {
                discard_nulls(&mut value);
            }
            set(original, key, without_directives(value));
        }
        return Ok(());
    };
    let before = std::mem::take(before);
    let merged = match (before, value) {
        (Value::Object(before), Value::Object(patch)) => {
            let field = lookup_object(schema, &key)?;
            Some(Value::Object(match field.strategy {
                Strategy::Replace => patch,
                Strategy::Merge | Strategy::Unstated => merge_object(before, patch, field.schema, mode)?,
            }))
        }
        (Value::Array(before), Value::Array(patch)) => {
            let field = lookup_list(schema, &key)?;
            Some(Value::Array(if field.strategy == Strategy::Merge || deletes {
                lists::merge_list(before, patch, field, mode, deletes)?
            } else {
                patch
            }))
        }
        (_, value) => without_directives(value),
    };
    set(original, key, merged);
    Ok(())
}

fn set(object: &mut Object, key: String, value: Option<Value>) {
    match value {
        Some(value) => object.insert(key, value),
        None => object.remove(&key),
    };
}

/// `$setElementOrder/ports` is about `ports`.
pub(super) fn list_name(key: &str, prefix: &str) -> Option<String> {
    let (found, name) = key.split_once('/')?;
    (found == prefix).then(|| name.to_owned())
}

/// Drops what carries a directive: there is nothing for it to act on.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(list) => Some(list.into_iter().filter_map(without_directives).collect()),
        other => Some(other),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn apply_retain_keys(original: &mut Object, patch: &mut Object, mode: Mode) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    if mode == Mode::Combine {
        match original.get(RETAIN_KEYS) {
            Some(before) if *before != keys => {
                return Err(Error::RetainKeysDiffer(go_text(before), go_text(&keys)));
            }
            Some(_) => {}
            None => {
                original.insert(RETAIN_KEYS.to_owned(), keys);
            }
        }
        return Ok(());
    }
    let keys = keys.as_array().ok_or(Error::RetainKeys)?;
    let kept = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let is_directive = |name: &str| name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
    let stray = patch.iter().any(|(name, value)| !value.is_null() && !is_directive(name) && !kept(name));
    if stray {
        return Err(Error::RetainKeys);
    }
    original.retain(|name, _| kept(name));
    Ok(())
}

/// The list under `key`, if there is one, or the error upstream gives for another type.
pub(super) fn list_at<'a>(object: &'a Object, key: &str) -> Result<Option<&'a Vec<Value>>, Error> {
    object.get(key).map(as_list).transpose()
}
