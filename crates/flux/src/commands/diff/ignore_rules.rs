//! `spec.ignore` of a Kustomization: fields whose drift does not count. Pure.

use regex::Regex;
use serde_json::{Map, Value};

use crate::error::{CliError, fail};
use crate::kinds::{self, text};

/// Rules ready to be used.
pub(super) struct IgnoreRules(Vec<Rule>);

struct Rule {
    paths: Vec<String>,
    target: Vec<(Field, Regex)>,
    labels: String,
    annotations: String,
}

#[derive(Clone, Copy)]
enum Field {
    Group,
    Version,
    Kind,
    Name,
    Namespace,
}

const FIELDS: [(&str, Field); 5] = [
    ("group", Field::Group),
    ("version", Field::Version),
    ("kind", Field::Kind),
    ("name", Field::Name),
    ("namespace", Field::Namespace),
];

impl IgnoreRules {
    pub(super) fn of(kustomization: &Value) -> Result<IgnoreRules, CliError> {
        let rules = kustomization.pointer("/spec/ignore").and_then(Value::as_array);
        rules.into_iter().flatten().map(Rule::read).collect::<Result<_, _>>().map(IgnoreRules)
    }

    /// Takes the fields that the rules for `object` name out of `from`.
    pub(super) fn strip(&self, object: &Value, from: &mut Value) {
        for rule in self.0.iter().filter(|rule| rule.fits(object)) {
            for path in &rule.paths {
                remove(from, path);
            }
        }
    }
}

impl Rule {
    fn read(rule: &Value) -> Result<Rule, CliError> {
        let paths = rule.get("paths").and_then(Value::as_array).into_iter().flatten();
        let paths = paths.filter_map(Value::as_str).map(str::to_owned).collect();
        let mut target = Vec::new();
        for (name, field) in FIELDS {
            let pattern = text(rule, &format!("/target/{name}"));
            if !pattern.is_empty() {
                let whole = Regex::new(&format!("^(?:{pattern})$"));
                target.push((field, whole.map_err(|error| fail!("invalid {name} regex: {error}"))?));
            }
        }
        let selector = |name: &str| text(rule, &format!("/target/{name}")).to_owned();
        Ok(Rule {
            paths,
            target,
            labels: selector("labelSelector"),
            annotations: selector("annotationSelector"),
        })
    }

    fn fits(&self, object: &Value) -> bool {
        let version = text(object, "/apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let value = |field: Field| match field {
            Field::Group => group,
            Field::Version => version,
            Field::Kind => text(object, "/kind"),
            Field::Name => kinds::name(object),
            Field::Namespace => kinds::namespace(object),
        };
        let map = |place: &str| object.pointer(&format!("/metadata/{place}")).and_then(Value::as_object);
        self.target.iter().all(|(field, pattern)| pattern.is_match(value(*field)))
            && selected(&self.labels, map("labels"))
            && selected(&self.annotations, map("annotations"))
    }
}

/// Whether labels meet a selector: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`.
fn selected(selector: &str, labels: Option<&Map<String, Value>>) -> bool {
    let get = |key: &str| labels.and_then(|labels| labels.get(key.trim())).and_then(Value::as_str);
    requirements(selector).iter().all(|requirement| {
        let requirement = requirement.trim();
        let listed = |list: &str, value: Option<&str>| {
            let list = list.trim().trim_start_matches('(').trim_end_matches(')');
            value.is_some_and(|value| list.split(',').any(|one| one.trim() == value))
        };
        if let Some((key, list)) = requirement.split_once(" notin ") {
            !listed(list, get(key))
        } else if let Some((key, list)) = requirement.split_once(" in ") {
            listed(list, get(key))
        } else if let Some((key, value)) = requirement.split_once("!=") {
            get(key) != Some(value.trim())
        } else if let Some((key, value)) = requirement.split_once('=') {
            get(key) == Some(value.trim_start_matches('=').trim())
        } else if let Some(key) = requirement.strip_prefix('!') {
            get(key).is_none()
        } else {
            requirement.is_empty() || get(requirement).is_some()
        }
    })
}

/// Splits at commas outside of parentheses.
fn requirements(selector: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_i32);
    for letter in selector.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        match (letter, depth, parts.last_mut()) {
            (',', 0, _) => parts.push(String::new()),
            (letter, _, Some(last)) => last.push(letter),
            (_, _, None) => {}
        }
    }
    parts
}

/// Removes what a JSON pointer names, if it is there.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&last);
        }
        Some(Value::Array(items)) => {
            if let Ok(at) = last.parse::<usize>()
                && at < items.len()
            {
                items.remove(at);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rule_is_for_what_its_target_names() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"replicas": 1, "list": [1, 2]}});
        for (target, stripped) in [
            (json!({"kind": "Deploy.*"}), true),
            (json!({"kind": "Deploy"}), false),
            (json!({"labelSelector": "a in (b,c),!d"}), true),
            (json!({"labelSelector": "a!=b"}), false),
        ] {
            let rule = json!({"spec": {"ignore": [{"paths": ["/spec/replicas", "/spec/list/0"], "target": target}]}});
            let mut live = object.clone();
            IgnoreRules::of(&rule).expect("a rule").strip(&object, &mut live);
            assert_eq!(live["spec"] == json!({"list": [2]}), stripped, "{target}");
        }
    }
}
