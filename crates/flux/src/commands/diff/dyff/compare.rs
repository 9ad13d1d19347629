//! Finds the differences of two values. Lists are matched by what names their entries, if anything does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Fields that name the entries of a list, most usual first.
const IDENTIFIERS: [&str; 4] = ["name", "key", "id", "manager"];
/// Another field names the entries only if there are more than this many.
const ENOUGH_TO_GUESS: usize = 3;

/// One place and what is different there.
pub(super) struct Difference {
    pub(super) path: Vec<String>,
    pub(super) details: Vec<Detail>,
}

pub(super) enum Detail {
    Reordered(Vec<Value>, Vec<Value>),
    Removed(Entries),
    Added(Entries),
    Changed(Value, Value),
}

/// Entries of a map or of a list.
pub(super) enum Entries {
    Map(Vec<(String, Value)>),
    List(Vec<Value>),
}

/// What YAML would call the type.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    }
}

pub(super) fn compare(path: &[String], from: &Value, to: &Value) -> Vec<Difference> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => maps(path, from, to),
        (Value::Array(from), Value::Array(to)) => lists(path, from, to),
        _ if from == to => Vec::new(),
        _ => {
            vec![Difference { path: path.to_vec(), details: vec![Detail::Changed(from.clone(), to.clone())] }]
        }
    }
}

fn below(path: &[String], name: &str) -> Vec<String> {
    let mut path = path.to_vec();
    path.push(name.to_owned());
    path
}

fn maps(path: &[String], from: &Map<String, Value>, to: &Map<String, Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut removed = Vec::new();
    for (key, value) in from {
        match to.get(key) {
            Some(other) => found.extend(compare(&below(path, key), value, other)),
            None => removed.push((key.clone(), value.clone())),
        }
    }
    let added: Vec<(String, Value)> = to
        .iter()
        .filter(|(key, _)| !from.contains_key(*key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut details = Vec::new();
    if !removed.is_empty() {
        details.push(Detail::Removed(Entries::Map(removed)));
    }
    if !added.is_empty() {
        details.push(Detail::Added(Entries::Map(added)));
    }
    first(path, details, found)
}

/// What is told about the place itself comes before what is told about places below it.
fn first(path: &[String], details: Vec<Detail>, mut found: Vec<Difference>) -> Vec<Difference> {
    if !details.is_empty() {
        found.insert(0, Difference { path: path.to_vec(), details });
    }
    found
}

fn lists(path: &[String], from: &[Value], to: &[Value]) -> Vec<Difference> {
    match Identifier::of(from, to) {
        Some(identifier) => named_lists(path, &identifier, from, to),
        None => plain_lists(path, from, to),
    }
}

/// How the entries of two lists can be told apart.
enum Identifier {
    Field(String),
    /// apiVersion, kind, namespace and name.
    Object,
}

impl Identifier {
    fn of(from: &[Value], to: &[Value]) -> Option<Identifier> {
        if from.is_empty() && to.is_empty() {
            return None;
        }
        let usual = IDENTIFIERS.iter().find(|field| names_all(field, from) && names_all(field, to));
        if let Some(field) = usual {
            return Some(Identifier::Field((*field).to_owned()));
        }
        if let Some(field) = guess(from, to) {
            return Some(Identifier::Field(field));
        }
        let objects = |list: &[Value]| list.iter().all(|entry| object_name(entry).is_some());
        (objects(from) && objects(to)).then_some(Identifier::Object)
    }

    fn name(&self, entry: &Value) -> Option<String> {
        match self {
            Identifier::Field(field) => entry.get(field).map(scalar),
            Identifier::Object => object_name(entry),
        }
    }
}

fn names_all(field: &str, list: &[Value]) -> bool {
    let names: BTreeSet<String> = list.iter().filter_map(|entry| entry.get(field).map(scalar)).collect();
    !list.is_empty() && names.len() == list.len()
}

/// A text field that every entry has and no two share.
fn guess(from: &[Value], to: &[Value]) -> Option<String> {
    let (from_counts, to_counts) = (text_fields(from)?, text_fields(to)?);
    let fits = |field: &&String| {
        let (one, other) = (from_counts.get(*field), to_counts.get(*field));
        one.is_some_and(|names| names.len() == from.len() && names.len() > ENOUGH_TO_GUESS)
            && other.is_some_and(|names| names.len() == to.len())
    };
    from_counts.keys().find(fits).cloned()
}

fn text_fields(list: &[Value]) -> Option<BTreeMap<String, BTreeSet<String>>> {
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in list {
        for (key, value) in entry.as_object()? {
            if let Value::String(text) = value {
                fields.entry(key.clone()).or_default().insert(text.clone());
            }
        }
    }
    Some(fields)
}

fn object_name(entry: &Value) -> Option<String> {
    let field = |pointer: &str| entry.pointer(pointer).map(scalar);
    let mut parts = vec![field("/apiVersion")?, field("/kind")?];
    parts.extend(field("/metadata/namespace"));
    parts.push(field("/metadata/name")?);
    Some(parts.join("/"))
}

/// The text of a scalar; of anything else, nothing.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => String::new(),
        other => other.to_string(),
    }
}

fn named_lists(path: &[String], identifier: &Identifier, from: &[Value], to: &[Value]) -> Vec<Difference> {
    let find = |list: &[Value], name: &Option<String>| {
        list.iter().find(|entry| name.is_some() && identifier.name(entry) == *name).cloned()
    };
    let (mut found, mut removed, mut added) = (Vec::new(), Vec::new(), Vec::new());
    let (mut from_names, mut to_names) = (Vec::new(), Vec::new());
    for entry in from {
        let name = identifier.name(entry);
        match find(to, &name) {
            Some(other) => {
                let name = name.unwrap_or_default();
                found.extend(compare(&below(path, &name), entry, &other));
                from_names.push(Value::String(name));
            }
            None => removed.push(entry.clone()),
        }
    }
    for entry in to {
        let name = identifier.name(entry);
        match find(from, &name) {
            Some(_) => to_names.push(Value::String(name.unwrap_or_default())),
            None => added.push(entry.clone()),
        }
    }
    let reordered = (from_names != to_names).then_some((from_names, to_names));
    first(path, list_details(reordered, removed, added), found)
}

fn plain_lists(path: &[String], from: &[Value], to: &[Value]) -> Vec<Difference> {
    if let ([from], [to]) = (from, to) {
        return compare(&below(path, "0"), from, to);
    }
    let removed = missing(from, to);
    let added = missing(to, from);
    let common = |list: &[Value], other: &[Value]| -> Vec<Value> {
        list.iter().filter(|entry| count(other, entry) > 0).cloned().collect()
    };
    let (from_common, to_common) = (common(from, to), common(to, from));
    let same = from_common.iter().zip(&to_common).all(|(one, other)| alike(one) == alike(other));
    let reordered = (from_common.len() == to_common.len() && !same).then_some((from_common, to_common));
    first(path, list_details(reordered, removed, added), Vec::new())
}

fn count(list: &[Value], wanted: &Value) -> usize {
    let wanted = alike(wanted);
    list.iter().filter(|entry| alike(entry) == wanted).count()
}

/// Entries that the other list has not, or has fewer times.
fn missing(list: &[Value], other: &[Value]) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for entry in list {
        let (here, there) = (count(list, entry), count(other, entry));
        if there == 0 {
            found.push(entry.clone());
        } else if here > there && count(&found, entry) == 0 {
            found.extend(std::iter::repeat_n(entry.clone(), here - there));
        }
    }
    found
}

/// What two entries have in common when they are alike: scalars count by their text.
fn alike(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(alike).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), alike(value))).collect())
        }
        scalar_value => Value::String(scalar(scalar_value)),
    }
}

fn list_details(
    reordered: Option<(Vec<Value>, Vec<Value>)>,
    removed: Vec<Value>,
    added: Vec<Value>,
) -> Vec<Detail> {
    let mut details = Vec::new();
    details.extend(reordered.map(|(from, to)| Detail::Reordered(from, to)));
    if !removed.is_empty() {
        details.push(Detail::Removed(Entries::List(removed)));
    }
    if !added.is_empty() {
        details.push(Detail::Added(Entries::List(added)));
    }
    details
}
