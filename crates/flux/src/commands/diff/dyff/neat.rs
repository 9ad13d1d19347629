//! YAML as dyff shows it: not meant to be read back. Keys that name things come first.

use serde_json::{Map, Value};

use super::compare::{Entries, scalar};

/// Keys in the order people know them; the first set with the most hits wins.
const KNOWN_ORDERS: [&[&str]; 11] = [
    &["name", "director_uuid", "releases", "instance_groups", "networks", "resource_pools", "compilation"],
    &["name", "url", "version", "sha1"],
    &["jobs", "resources", "resource_types"],
    &["name", "type", "source"],
    &["get"],
    &["put"],
    &["task"],
    &["releases", "instance_groups", "configuration", "variables"],
    &["auth", "templates"],
    &["name"],
    &["key"],
];

pub(super) fn entries(entries: &Entries) -> String {
    let mut out = String::new();
    match entries {
        Entries::Map(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
            mapping(&mut out, "", false, ordered(fields), true);
        }
        Entries::List(items) => list(&mut out, "", false, items, true),
    }
    out
}

/// A value by itself; what is missing shows as `<nil>`.
pub(super) fn value(value: &Value) -> String {
    if value.is_null() {
        return "<nil>".to_owned();
    }
    let mut out = String::new();
    node(&mut out, "", false, value, false);
    out
}

fn node(out: &mut String, prefix: &str, started: bool, value: &Value, reorder: bool) {
    match value {
        Value::Object(fields) => mapping(out, prefix, started, in_order(fields, reorder), reorder),
        Value::Array(items) => list(out, prefix, started, items, reorder),
        value => scalar_line(out, prefix, value),
    }
}

fn in_order(fields: &Map<String, Value>, reorder: bool) -> Vec<(&str, &Value)> {
    let fields = fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
    if reorder { ordered(fields) } else { fields }
}

fn mapping(out: &mut String, prefix: &str, started: bool, fields: Vec<(&str, &Value)>, reorder: bool) {
    for (at, (key, value)) in fields.into_iter().enumerate() {
        if !started || at > 0 {
            out.push_str(prefix);
        }
        out.push_str(key);
        out.push(':');
        let deeper = format!("{prefix}  ");
        match value {
            Value::Object(inner) if inner.is_empty() => out.push_str(" {}\n"),
            Value::Array(items) if items.is_empty() => out.push_str(" []\n"),
            Value::Object(_) => {
                out.push('\n');
                node(out, &deeper, false, value, reorder);
            }
            Value::Array(_) => {
                out.push('\n');
                node(out, prefix, false, value, reorder);
            }
            value => {
                out.push(' ');
                scalar_line(out, &deeper, value);
            }
        }
    }
}

fn list(out: &mut String, prefix: &str, started: bool, items: &[Value], reorder: bool) {
    for (at, item) in items.iter().enumerate() {
        if !started || at > 0 {
            out.push_str(prefix);
        }
        out.push_str("- ");
        node(out, &format!("{prefix}  "), true, item, reorder);
    }
}

fn scalar_line(out: &mut String, prefix: &str, value: &Value) {
    let text = scalar(value);
    if text.contains('\n') {
        out.push_str("|\n");
        let lines: Vec<String> = text.split('\n').map(|line| format!("{prefix}{line}")).collect();
        out.push_str(&lines.join("\n"));
    } else if value.is_string() && needs_quotes(&text) {
        out.push_str(&format!("{text:?}"));
    } else {
        out.push_str(&text);
    }
    out.push('\n');
}

fn needs_quotes(text: &str) -> bool {
    matches!(text, "true" | "false" | "null")
        || text.starts_with('-')
        || text.contains([' ', '*', '&', ':', ','])
}

/// Known keys first, then the others, those with the least below them first.
fn ordered<'a>(fields: Vec<(&'a str, &'a Value)>) -> Vec<(&'a str, &'a Value)> {
    let has = |key: &str| fields.iter().any(|(known, _)| *known == key);
    let mut best: (usize, &[&str]) = (0, &[]);
    for order in KNOWN_ORDERS.iter().chain([&(&["id"] as &[&str])]) {
        let hits = order.iter().filter(|key| has(key)).count();
        if hits > best.0 {
            best = (hits, order);
        }
    }
    if best.0 == 0 {
        return fields;
    }
    let known = best.1.iter().filter_map(|key| fields.iter().find(|(name, _)| name == key).copied());
    let mut sorted: Vec<(&str, &Value)> = known.collect();
    let mut rest: Vec<(&str, &Value)> =
        fields.iter().filter(|(key, _)| !best.1.contains(key)).copied().collect();
    rest.sort_by_key(|(_, value)| depth(value));
    sorted.append(&mut rest);
    sorted
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.values().map(|value| depth(value) + 1).max().unwrap_or(0),
        Value::Array(items) => items.iter().map(|value| depth(value) + 1).max().unwrap_or(0),
        _ => 0,
    }
}
