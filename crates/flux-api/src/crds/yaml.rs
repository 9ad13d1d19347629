//! Writes a JSON value as block YAML, for the files in `manifests/crds/`.
//!
//! Only that: it need not equal what Go writes, and whoever reads YAML uses the `yaml` crate.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// The value as one document.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::from("---\n");
    block(&mut out, value, 0);
    out
}

/// A mapping or list, each entry on lines of its own. A scalar stands alone. Definitions are as deep as our types.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            // Sorted here and not left to serde_json, whose order depends on a feature that any crate may turn on.
            let sorted: BTreeMap<_, _> = entries.iter().collect();
            for (position, (key, entry)) in sorted.into_iter().enumerate() {
                // The first entry of a list item follows its dash.
                let pad = if position == 0 && out.ends_with("- ") { 0 } else { indent };
                let _ = write!(out, "{:pad$}{}:", "", scalar(key));
                nested(out, entry, indent, matches!(entry, Value::Array(_)));
            }
        }
        Value::Array(entries) if !entries.is_empty() => {
            for entry in entries {
                let _ = write!(out, "{:indent$}- ", "");
                block(out, entry, indent + 2);
            }
        }
        other => {
            let _ = writeln!(out, "{}", inline(other));
        }
    }
}

/// What follows `key:`. A list stays at the key's indentation, as Kubernetes' own files do.
fn nested(out: &mut String, entry: &Value, indent: usize, is_list: bool) {
    let empty = entry.as_object().is_some_and(|entries| entries.is_empty())
        || entry.as_array().is_some_and(|entries| entries.is_empty());
    if empty || !(entry.is_object() || entry.is_array()) {
        let _ = writeln!(out, " {}", inline(entry));
    } else {
        out.push('\n');
        block(out, entry, if is_list { indent } else { indent + 2 });
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // Empty containers, numbers, booleans and null are the same in both languages.
        other => other.to_string(),
    }
}

/// Plain where no reader of any YAML version could take it for something else, else quoted.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else if text.chars().any(char::is_control) {
        // JSON's escapes are YAML's.
        Value::String(text.to_owned()).to_string()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "y"];
    let reserved = WORDS.contains(&text.to_ascii_lowercase().as_str()) || text.eq_ignore_ascii_case("n");
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.') && text != ".";
    let number_like = text.starts_with('.') && !text[1..].starts_with(|c: char| c.is_ascii_alphabetic());
    let safe =
        |c: char| c.is_ascii_alphanumeric() || " ._/,;()<>$-+@=*|&".contains(c) || c == '\'' || c == ':';
    starts_well
        && !number_like
        && !reserved
        && ![".inf", ".nan"].contains(&text.to_ascii_lowercase().as_str())
        && text.chars().all(safe)
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
}
