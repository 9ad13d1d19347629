//! JSON patches (RFC 6902) as the Go library behind kustomize applies them.
//!
//! It is laxer than the RFC: `replace` may add a key, indexes may count from the end, and a path need not
//! begin with a slash.

use serde_json::{Map, Value};

use crate::error::{Class, Error};
use crate::tree::go_int;

/// One operation, its fields as they were written.
pub(crate) type Operation = Map<String, Value>;

/// Reads a patch from YAML or JSON.
pub(crate) fn parse(text: &str) -> Result<Vec<Operation>, String> {
    if text.is_empty() {
        return Err("empty json patch operations".to_owned());
    }
    if text.starts_with('[') {
        return parse_json(text);
    }
    decode(crate::yaml_text::to_json(text.as_bytes())?)
}

/// Reads a patch from JSON.
pub(crate) fn parse_json(text: &str) -> Result<Vec<Operation>, String> {
    decode(serde_json::from_str(text).map_err(|error| error.to_string())?)
}

fn decode(json: Value) -> Result<Vec<Operation>, String> {
    let refuse = |value: &Value, into: &str| {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        format!("json: cannot unmarshal {found} into Go value of type jsonpatch.{into}")
    };
    match json {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Value::Object(operation) => Ok(operation),
                Value::Null => Ok(Operation::new()),
                other => Err(refuse(&other, "Operation")),
            })
            .collect(),
        other => Err(refuse(&other, "Patch")),
    }
}

/// Applies all operations to a document.
pub(crate) fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), Error> {
    operations.iter().try_for_each(|operation| {
        apply_one(document, operation).map_err(|text| Error::new(Class::Patch, text))
    })
}

fn apply_one(document: &mut Value, operation: &Operation) -> Result<(), String> {
    let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
    match kind {
        "add" => add(document, operation),
        "remove" => remove(document, operation),
        "replace" => replace(document, operation),
        "move" => move_or_copy(document, operation, "move"),
        "copy" => move_or_copy(document, operation, "copy"),
        "test" => test(document, operation),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

const MISSING: &str = "missing value";

fn path(operation: &Operation) -> Option<&str> {
    operation.get("path").and_then(Value::as_str)
}

fn value(operation: &Operation) -> Value {
    operation.get("value").cloned().unwrap_or(Value::Null)
}

fn add(document: &mut Value, operation: &Operation) -> Result<(), String> {
    let path = path(operation).ok_or_else(|| format!("add operation failed to decode path: {MISSING}"))?;
    let (container, key) = find(document, path)
        .ok_or_else(|| format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}"))?;
    container.add(&key, value(operation)).map_err(|error| format!("error in add for path: '{path}': {error}"))
}

fn remove(document: &mut Value, operation: &Operation) -> Result<(), String> {
    let path = path(operation).ok_or_else(|| format!("remove operation failed to decode path: {MISSING}"))?;
    let (container, key) = find(document, path).ok_or_else(|| {
        format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}")
    })?;
    container.remove(&key).map(|_| ()).map_err(|error| format!("error in remove for path: '{path}': {error}"))
}

fn replace(document: &mut Value, operation: &Operation) -> Result<(), String> {
    let path = path(operation).ok_or_else(|| {
        format!("replace operation failed to decode path: operation missing path field: {MISSING}")
    })?;
    if path.is_empty() {
        *document = match value(operation) {
            new @ (Value::Object(_) | Value::Array(_)) => new,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err("replace operation value must be object or array".to_owned());
            }
        };
        return Ok(());
    }
    let (container, key) = find(document, path)
        .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: {MISSING}"))?;
    container
        .get(&key)
        .map_err(|_| format!("replace operation does not apply: doc is missing key: {path}: {MISSING}"))?;
    container
        .set(&key, value(operation))
        .map_err(|error| format!("error in remove for path: '{path}': {error}"))
}

fn move_or_copy(document: &mut Value, operation: &Operation, kind: &str) -> Result<(), String> {
    let from = operation.get("from").and_then(Value::as_str).ok_or_else(|| {
        format!("{kind} operation failed to decode from: operation, missing from field: {MISSING}")
    })?;
    let (container, key) = find(document, from).ok_or_else(|| {
        format!("{kind} operation does not apply: doc is missing from path: {from}: {MISSING}")
    })?;
    let value = if kind == "move" {
        let failed = |error: String| format!("error in move for path: '{key}': {error}");
        container.get(&key).map_err(failed)?;
        container.remove(&key).map_err(failed)?
    } else {
        let found =
            container.get(&key).map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
        found.cloned().unwrap_or(Value::Null)
    };
    let path = path(operation).ok_or_else(|| format!("{kind} operation failed to decode path: {MISSING}"))?;
    let (container, key) = find(document, path).ok_or_else(|| {
        format!("{kind} operation does not apply: doc is missing destination path: {path}: {MISSING}")
    })?;
    container.add(&key, value).map_err(|error| match kind {
        "move" => format!("error in move for path: '{path}': {error}"),
        _ => format!("error while adding value during copy: {error}"),
    })
}

fn test(document: &mut Value, operation: &Operation) -> Result<(), String> {
    let path = path(operation).ok_or_else(|| {
        format!("test operation failed to decode path: operation missing path field: {MISSING}")
    })?;
    let failed = || format!("testing value {path} failed: test failed");
    let wanted = value(operation);
    if path.is_empty() {
        return if *document == wanted { Ok(()) } else { Err(failed()) };
    }
    let (container, key) = find(document, path)
        .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: {MISSING}"))?;
    let found = container.get(&key).map_err(|error| format!("error in test for path: '{path}': {error}"))?;
    if found.unwrap_or(&Value::Null) == &wanted { Ok(()) } else { Err(failed()) }
}

/// An object or a list in which a key or an index is looked up.
enum Container<'a> {
    Object(&'a mut Map<String, Value>),
    List(&'a mut Vec<Value>),
}

/// The container that the path's last part is looked up in, and that part.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(Container<'a>, String)> {
    let parts: Vec<&str> = path.split('/').collect();
    let [_, inner @ .., last] = &parts[..] else { return None };
    let mut at = document;
    for part in inner {
        let key = unescape(part);
        at = match at {
            Value::Object(fields) => fields.get_mut(&key)?,
            Value::Array(items) => {
                let index = index(&key, items.len()).ok()?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    let container = match at {
        Value::Object(fields) => Container::Object(fields),
        Value::Array(items) => Container::List(items),
        _ => return None,
    };
    Some((container, unescape(last)))
}

fn unescape(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (text, skip) = match rest.as_bytes().get(at + 1) {
            Some(b'1') => ("/", 2),
            Some(b'0') => ("~", 2),
            _ => ("~", 1),
        };
        out.push_str(text);
        rest = &rest[at + skip..];
    }
    out + rest
}

fn number(key: &str) -> Result<i64, String> {
    go_int(key).ok_or_else(|| format!("strconv.Atoi: parsing {}: invalid syntax", crate::go_text::quote(key)))
}

/// A list index; negative ones count from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let index = number(key)?;
    let from_start = if index < 0 { index + length as i64 } else { index };
    usize::try_from(from_start)
        .map_err(|_| format!("Unable to access invalid index: {index}: invalid index referenced"))
}

fn within(key: &str, length: usize) -> Result<usize, String> {
    let index = index(key, length)?;
    if index < length {
        return Ok(index);
    }
    Err(format!("Unable to access invalid index: {}: invalid index referenced", number(key)?))
}

impl Container<'_> {
    fn get(&self, key: &str) -> Result<Option<&Value>, String> {
        match self {
            Self::Object(fields) => Ok(fields.get(key)),
            Self::List(items) => Ok(items.get(within(key, items.len())?)),
        }
    }

    fn set(self, key: &str, value: Value) -> Result<(), String> {
        match self {
            Self::Object(fields) => {
                fields.insert(key.to_owned(), value);
            }
            Self::List(items) => {
                let index = within(key, items.len())?;
                items[index] = value;
            }
        }
        Ok(())
    }

    fn add(self, key: &str, value: Value) -> Result<(), String> {
        match self {
            Self::Object(fields) => {
                fields.insert(key.to_owned(), value);
            }
            Self::List(items) if key == "-" => items.push(value),
            Self::List(items) => {
                let places = items.len() + 1;
                number(key)
                    .map_err(|error| format!("value was not a proper array index: '{key}': {error}"))?;
                let index = within(key, places)?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(self, key: &str) -> Result<Value, String> {
        match self {
            Self::Object(fields) => fields
                .remove(key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
            Self::List(items) => {
                let index = within(key, items.len())?;
                Ok(items.remove(index))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut document: Value, patch: Value) -> Result<Value, String> {
        apply(&mut document, &decode(patch).unwrap()).map_err(|error| error.to_string())?;
        Ok(document)
    }

    #[test]
    fn lists_accept_the_end_and_negative_indexes() {
        let patch = json!([{"op": "add", "path": "/a/-", "value": 3}, {"op": "remove", "path": "/a/-3"}]);
        assert_eq!(patched(json!({"a": [1, 2]}), patch), Ok(json!({"a": [2, 3]})));
    }

    #[test]
    fn replace_may_add_a_key_but_not_an_element() {
        let patch = |path: &str| json!([{"op": "replace", "path": path, "value": 1}]);
        assert_eq!(patched(json!({}), patch("/a")), Ok(json!({"a": 1})));
        assert_eq!(
            patched(json!({"a": []}), patch("/a/0")),
            Err("replace operation does not apply: doc is missing key: /a/0: missing value".to_owned())
        );
    }

    #[test]
    fn escapes_are_undone_once() {
        assert_eq!(unescape("a~1b~0c~01"), "a/b~c~1");
    }

    #[test]
    fn errors_are_those_of_the_go_library() {
        let patch = json!([{"op": "remove", "path": "/spec/nope"}]);
        assert_eq!(
            patched(json!({"spec": {}}), patch),
            Err("error in remove for path: '/spec/nope': Unable to remove nonexistent key: nope: missing value"
                .to_owned())
        );
    }
}
