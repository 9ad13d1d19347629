//! The placeholders of cases: `{{name}}`, and `{{ .name }}` in files that upstream runs through Go templates.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use regex::{Captures, Regex};
use serde_json::Value;

/// A number for each name, so that no two cases share a namespace.
static NEXT: AtomicUsize = AtomicUsize::new(100_000);

#[derive(Default, Clone)]
pub struct Values(BTreeMap<String, String>);

impl Values {
    /// A value for each placeholder of the case, as long as the tables around it want it.
    pub fn of(case: &Value) -> Values {
        let mut values = Values::default();
        let mut text = case.clone();
        text.as_object_mut().unwrap().remove("real");
        for found in Regex::new(r"\{\{(\w+)\}\}").unwrap().captures_iter(&text.to_string()) {
            let name = found[1].to_owned();
            let known = match name.as_str() {
                "fluxns" => "flux-system",
                "ns2" => "other",
                "targetns" => "target",
                "emptyns" => "empty",
                other => other,
            };
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let length = case["value_lengths"][&name].as_u64().map(|length| length as usize);
            let mut value = format!("{known}-{number}");
            if let Some(length) = length {
                let digits = length.saturating_sub(known.len() + 1);
                value = format!("{known}-{number:0>digits$}");
                value.truncate(length);
            }
            values.0.insert(name, value);
        }
        values
    }

    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub fn set_path(&mut self, name: &str, path: &Path) {
        self.set(name, path.to_string_lossy());
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn fill(&self, text: &str) -> String {
        replace(text, r"\{\{(\w+)\}\}", |name| self.0.get(name).cloned())
    }

    pub fn fill_all(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill(text).into(),
            Value::Array(items) => items.iter().map(|item| self.fill_all(item)).collect(),
            Value::Object(fields) => {
                let filled = fields.iter().map(|(key, value)| (self.fill(key), self.fill_all(value)));
                Value::Object(filled.collect())
            }
            other => other.clone(),
        }
    }

    /// Both kinds of placeholder, and ranges over nothing.
    pub fn template(&self, text: &str, case: &Value) -> String {
        let text = self.fill(text);
        let ranges = Regex::new(r"(?s)\{\{range [^}]*\}\}.*?\{\{end\}\}").unwrap();
        let text = ranges.replace_all(&text, "");
        replace(&text, r"\{\{\s*\.(\w+)\s*\}\}", |name| {
            case["template_values"][name].as_str().map(|value| self.fill(value))
        })
    }
}

fn replace(text: &str, pattern: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let pattern = Regex::new(pattern).unwrap();
    let replaced = pattern
        .replace_all(text, |found: &Captures<'_>| value(&found[1]).unwrap_or_else(|| found[0].to_owned()));
    replaced.into_owned()
}
