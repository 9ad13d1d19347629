//! `driftDetection.ignore`: fields that somebody else looks after. Pure.

use flux_api::meta::{IgnoreRule, Selector as Target};
use regex::Regex;
use serde_json::Value;

use crate::reconcile::Selector;

/// The rules of one HelmRelease.
#[derive(Debug, Default)]
pub struct IgnoreRules(Vec<(Vec<String>, Matcher)>);

#[derive(Debug, Default)]
struct Matcher {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Option<Selector>,
    annotations: Option<Selector>,
}

impl IgnoreRules {
    pub fn new(rules: &[IgnoreRule]) -> Result<Self, String> {
        let compiled = rules.iter().enumerate().map(|(index, rule)| {
            let matcher = rule.target.as_ref().map_or_else(|| Ok(Matcher::default()), Matcher::new);
            matcher
                .map(|matcher| (rule.paths.clone(), matcher))
                .map_err(|problem| format!("spec.driftDetection.ignore[{index}].target.{problem}"))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// The JSON pointers that hold for an object; an empty one means all of it.
    pub fn of(&self, object: &Value) -> Vec<&str> {
        let matching = self.0.iter().filter(|(_, matcher)| matcher.matches(object));
        matching.flat_map(|(paths, _)| paths.iter().map(String::as_str)).collect()
    }
}

impl Matcher {
    fn new(target: &Target) -> Result<Self, String> {
        let regex = |field: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            // A name is meant whole.
            let found = Regex::new(&format!("^(?:{text})$"));
            found.map(Some).map_err(|_| format!("{field}: '{text}' is no regular expression"))
        };
        let labels = |field: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            Selector::parse(text).map(Some).map_err(|error| format!("{field}: {error}"))
        };
        Ok(Self {
            group: regex("group", &target.group)?,
            version: regex("version", &target.version)?,
            kind: regex("kind", &target.kind)?,
            name: regex("name", &target.name)?,
            namespace: regex("namespace", &target.namespace)?,
            labels: labels("labelSelector", &target.label_selector)?,
            annotations: labels("annotationSelector", &target.annotation_selector)?,
        })
    }

    fn matches(&self, object: &Value) -> bool {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let fits =
            |regex: &Option<Regex>, text: &str| regex.as_ref().is_none_or(|regex| regex.is_match(text));
        let selected = |selector: &Option<Selector>, place: &str| {
            let map = object.pointer(place).and_then(Value::as_object);
            let map = map
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
            selector.as_ref().is_none_or(|selector| selector.matches(&map.collect()))
        };
        fits(&self.group, group)
            && fits(&self.version, version)
            && fits(&self.kind, text("/kind"))
            && fits(&self.name, text("/metadata/name"))
            && fits(&self.namespace, text("/metadata/namespace"))
            && selected(&self.labels, "/metadata/labels")
            && selected(&self.annotations, "/metadata/annotations")
    }
}

/// Takes the fields at `pointers` away.
pub fn remove(object: &mut Value, pointers: &[&str]) {
    for pointer in pointers {
        let Some((parent, last)) = pointer.rsplit_once('/') else { continue };
        let key = last.replace("~1", "/").replace("~0", "~");
        match object.pointer_mut(parent) {
            Some(Value::Object(fields)) => {
                fields.remove(&key);
            }
            Some(Value::Array(items)) => {
                if let Ok(index) = key.parse::<usize>()
                    && index < items.len()
                {
                    items.remove(index);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(rules: Value) -> Result<IgnoreRules, String> {
        let rules: Vec<IgnoreRule> = serde_json::from_value(rules).unwrap();
        IgnoreRules::new(&rules)
    }

    #[test]
    fn rules_hold_for_what_they_select_by_whole_names() {
        let all = rules(json!([
            {"paths": ["/spec/replicas"], "target": {"kind": "Deployment", "name": "web.*"}},
            {"paths": ["/data"], "target": {"labelSelector": "team=a"}},
            {"paths": ["/x"]},
        ]))
        .unwrap();
        let object = |kind: &str, name: &str| json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}});
        assert_eq!(all.of(&object("Deployment", "web-1")), ["/spec/replicas", "/x"]);
        assert_eq!(all.of(&object("Deployment", "my-web")), ["/x"]);
        let labelled = json!({"kind": "ConfigMap", "metadata": {"name": "c", "labels": {"team": "a"}}});
        assert_eq!(all.of(&labelled), ["/data", "/x"]);
        assert!(
            rules(json!([{"paths": [], "target": {"name": "("}}]))
                .unwrap_err()
                .contains("ignore[0].target.name")
        );
    }

    #[test]
    fn fields_and_elements_are_taken_away() {
        let mut object = json!({"a": {"b/c": 1, "d": 2}, "l": [1, 2]});
        remove(&mut object, &["/a/b~1c", "/l/0", "/missing/x", "/l/9"]);
        assert_eq!(object, json!({"a": {"d": 2}, "l": [2]}));
    }
}
