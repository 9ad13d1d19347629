//! Values seen through their type: are they what the schema says, and which fields do they name?

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::path::{Path, PathElement, go_quote};
use super::schema::{Atom, List, ListKind, MapOf, Scalar, Type, keys_of};
use super::set::Set;

/// Objects nested deeper than this are refused.
pub(super) const MAX_DEPTH: usize = 250;

/// What does not fit the schema, in structured-merge-diff's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mismatches(Vec<(String, String)>);

impl Mismatches {
    pub(super) fn one(message: impl Into<String>) -> Self {
        Mismatches(vec![(String::new(), message.into())])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, other: Mismatches, prefix: &dyn fmt::Display) {
        if !other.is_empty() {
            self.0.extend(other.0.into_iter().map(|(path, message)| (format!("{prefix}{path}"), message)));
        }
    }

    pub(super) fn result<T>(self, value: T) -> Result<T, Mismatches> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Mismatches {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |out: &mut fmt::Formatter<'_>, (path, message): &(String, String)| match path.as_str() {
            "" => write!(out, "{message}"),
            path => write!(out, "{path}: {message}"),
        };
        match self.0.as_slice() {
            [one] => write(out, one),
            many => {
                out.write_str("errors:")?;
                for mismatch in many {
                    out.write_str("\n  ")?;
                    write(out, mismatch)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Mismatches {}

/// The part of the atom that fits the value; null fits anything.
pub(super) fn deduce<'a>(atom: Atom<'a>, value: Option<&Value>) -> Atom<'a> {
    let none = Atom { scalar: None, list: None, map: None };
    match value {
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if atom.scalar.is_some() => {
            Atom { scalar: atom.scalar, ..none }
        }
        Some(Value::Array(_)) if atom.list.is_some() => Atom { list: atom.list, ..none },
        Some(Value::Object(_)) if atom.map.is_some() => Atom { map: atom.map, ..none },
        _ => atom,
    }
}

/// What an atom is treated as: a map if it may be one, else a scalar, else a list.
pub(super) enum Treated<'a> {
    Map(MapOf<'a>),
    Scalar(Scalar),
    List(List<'a>),
}

pub(super) fn treat(atom: Atom<'_>) -> Result<Treated<'_>, Mismatches> {
    match atom {
        Atom { map: Some(map), .. } => Ok(Treated::Map(map)),
        Atom { scalar: Some(scalar), .. } => Ok(Treated::Scalar(scalar)),
        Atom { list: Some(list), .. } => Ok(Treated::List(list)),
        Atom { .. } => Err(Mismatches::one("schema error: invalid atom: inlined")),
    }
}

/// Whether the object fits its type. Lists that others wrote may hold an item twice; applied ones may not.
pub(super) fn validate(value: &Value, type_: Type<'_>, duplicates: bool, depth: usize) -> Mismatches {
    let Some(depth) = depth.checked_sub(1) else { return Mismatches::one("nested too deep") };
    match treat(deduce(type_.atom(), Some(value))) {
        Err(mismatches) => mismatches,
        Ok(Treated::Scalar(scalar)) => check_scalar(scalar, value, ""),
        Ok(Treated::List(list)) => match value {
            Value::Null => Mismatches::default(),
            Value::Array(items) => validate_items(items, list, duplicates, depth),
            other => Mismatches::one(format!("expected list, got &{{{}}}", go_value(other))),
        },
        Ok(Treated::Map(map)) => match value {
            Value::Null => Mismatches::default(),
            Value::Object(entries) => {
                let mut out = Mismatches::default();
                for (name, value) in entries {
                    let prefix = PathElement::field(name);
                    let child = map.child(name);
                    if matches!(child, Type::Missing) {
                        out.add(Mismatches::one("field not declared in schema"), &prefix);
                        // Upstream stops at the first unknown field of an object.
                        break;
                    }
                    out.add(validate(value, child, duplicates, depth), &prefix);
                }
                out
            }
            other => Mismatches::one(format!("expected map, got &{{{}}}", go_value(other))),
        },
    }
}

fn validate_items(items: &[Value], list: List<'_>, duplicates: bool, depth: usize) -> Mismatches {
    let mut out = Mismatches::default();
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = if list.is_atomic() {
            PathElement::Index(index as i64)
        } else {
            match element_of(item, list) {
                Ok(element) => element,
                Err(error) => {
                    out.add(Mismatches::one(format!("element {index}: {error}")), &"");
                    return out;
                }
            }
        };
        if !list.is_atomic() && !seen.insert(element.clone()) && !duplicates {
            out.add(Mismatches::one(format!("duplicate entries for key {element}")), &"");
        }
        out.add(validate(item, list.items, duplicates, depth), &element);
    }
    out
}

pub(super) fn check_scalar(scalar: Scalar, value: &Value, side: &str) -> Mismatches {
    let fits = match (scalar, value) {
        (_, Value::Null) => true,
        (Scalar::Numeric, value) => value.is_number(),
        (Scalar::String, value) => value.is_string(),
        (Scalar::Boolean, value) => value.is_boolean(),
        (Scalar::Untyped, value) => !value.is_array() && !value.is_object(),
    };
    if fits {
        return Mismatches::default();
    }
    Mismatches::one(match scalar {
        Scalar::Numeric => format!("{side}expected numeric (int or float), got {}", go_type(value)),
        Scalar::String => {
            format!("{side}expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value))
        }
        Scalar::Boolean => format!("{side}expected boolean, got &{{{}}}", go_value(value)),
        Scalar::Untyped => format!("{side}expected any scalar, got &{{{}}}", go_value(value)),
    })
}

/// How the item is named in its list.
pub(super) fn element_of(item: &Value, list: List<'_>) -> Result<PathElement, String> {
    match list.kind {
        ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListKind::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            scalar => Ok(PathElement::Value(scalar.clone())),
        },
        ListKind::Map(schema) => {
            let entries = match item {
                Value::Null => {
                    return Err("associative list with keys may not have a null element".to_owned());
                }
                Value::Object(entries) => entries,
                _ => return Err("associative list with keys may not have non-map elements".to_owned()),
            };
            let names = keys_of(schema);
            let mut keys: Vec<(String, Value)> = Vec::new();
            for name in &names {
                // A key without value and default is left out: an item that sets it is another item.
                let default =
                    || schema.items().and_then(|items| items.field(name)).and_then(|field| field.default());
                if let Some(value) = entries.get(*name).cloned().or_else(default) {
                    keys.push(((*name).to_owned(), value));
                }
            }
            if keys.is_empty() && !names.is_empty() {
                let names: Vec<String> = names.iter().map(|name| go_quote(name)).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            keys.sort_by(|left, right| left.0.cmp(&right.0));
            Ok(PathElement::Key(keys))
        }
    }
}

/// Every leaf and item the object names.
pub(super) fn field_set(value: &Value, type_: Type<'_>) -> Result<Set, Mismatches> {
    let mut set = Set::default();
    collect(value, type_, &mut Vec::new(), &mut set)?;
    Ok(set)
}

fn collect(value: &Value, type_: Type<'_>, path: &mut Path, set: &mut Set) -> Result<(), Mismatches> {
    match treat(deduce(type_.atom(), Some(value)))? {
        Treated::Scalar(_) => set.insert(path),
        Treated::List(list) if list.is_atomic() => set.insert(path),
        Treated::List(list) => {
            if let Value::Array(items) = value {
                collect_items(items, list, path, set)?;
            }
        }
        Treated::Map(map) if map.atomic => set.insert(path),
        Treated::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                path.push(PathElement::field(name));
                collect(value, map.child(name), path, set)?;
                let empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
                if empty || map.field(name).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
    Ok(())
}

fn collect_items(items: &[Value], list: List<'_>, path: &mut Path, set: &mut Set) -> Result<(), Mismatches> {
    let elements: Vec<Option<PathElement>> = items.iter().map(|item| element_of(item, list).ok()).collect();
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for element in elements.iter().flatten() {
        if !seen.insert(element) {
            twice.insert(element);
        }
    }
    for (item, element) in items.iter().zip(&elements) {
        let Some(element) = element else { continue };
        path.push(element.clone());
        if !twice.contains(element) {
            collect(item, list.items, path, set)?;
        }
        set.insert(path);
        path.pop();
    }
    Ok(())
}

/// Go's `%T` of a decoded JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => go_quote(text),
        Value::Array(list) => {
            format!("[]interface {{}}{{{}}}", list.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{}:{}", go_quote(key), go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

/// Go's `%v`.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}
