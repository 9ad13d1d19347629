//! Fields that somebody else looks after (`spec.ignore`): they are no drift, and an apply leaves them as they are. Pure.

use flux_api::meta::{IgnoreRule, Selector};
use kustomize::LabelSelector;
use regex::Regex;
use serde_json::Value;

/// Which fields of which objects are left alone.
#[derive(Clone, Debug, Default)]
pub struct IgnoreRules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    paths: Vec<String>,
    target: Option<Target>,
}

#[derive(Clone, Debug)]
struct Target {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: LabelSelector,
    annotations: LabelSelector,
}

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.ignore[{index}]: {problem}")]
pub struct InvalidRule {
    pub index: usize,
    pub problem: String,
}

impl IgnoreRules {
    /// Reads the rules: JSON pointers, and the objects they hold for. A target without anything selects everything.
    pub fn new(rules: &[IgnoreRule]) -> Result<Self, InvalidRule> {
        let read = |(index, rule): (usize, &IgnoreRule)| {
            Rule::new(rule).map_err(|problem| InvalidRule { index, problem })
        };
        rules.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pointers that hold for `object`.
    pub fn of<'a>(&'a self, object: &Value) -> Vec<&'a str> {
        let matching =
            self.0.iter().filter(|rule| rule.target.as_ref().is_none_or(|target| target.selects(object)));
        matching.flat_map(|rule| rule.paths.iter().map(String::as_str)).collect()
    }
}

impl Rule {
    fn new(rule: &IgnoreRule) -> Result<Self, String> {
        if let Some(bad) = rule.paths.iter().find(|path| !path.is_empty() && !path.starts_with('/')) {
            return Err(format!("'{bad}' is not a JSON pointer; it must begin with a slash"));
        }
        let target = rule.target.as_ref().map(Target::new).transpose()?;
        Ok(Self { paths: rule.paths.clone(), target })
    }
}

impl Target {
    /// Names are regular expressions of the whole name.
    fn new(selector: &Selector) -> Result<Self, String> {
        let regex = |field: &str, text: &Option<String>| {
            let Some(text) = text.as_ref().filter(|text| !text.is_empty()) else { return Ok(None) };
            let anchored = format!("^(?:{text})$");
            Regex::new(&anchored)
                .map(Some)
                .map_err(|_| format!("target.{field}: '{text}' is no regular expression"))
        };
        let labels = |field: &str, text: &Option<String>| {
            LabelSelector::parse(text.as_deref().unwrap_or_default())
                .map_err(|problem| format!("target.{field}: {problem}"))
        };
        Ok(Self {
            group: regex("group", &selector.group)?,
            version: regex("version", &selector.version)?,
            kind: regex("kind", &selector.kind)?,
            name: regex("name", &selector.name)?,
            namespace: regex("namespace", &selector.namespace)?,
            labels: labels("labelSelector", &selector.label_selector)?,
            annotations: labels("annotationSelector", &selector.annotation_selector)?,
        })
    }

    fn selects(&self, object: &Value) -> bool {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let fits =
            |regex: &Option<Regex>, text: &str| regex.as_ref().is_none_or(|regex| regex.is_match(text));
        let metadata = |place: &str, selector: &LabelSelector| {
            let map = object.get("metadata").and_then(|metadata| metadata.get(place));
            selector.matches(|key| map?.get(key)?.as_str())
        };
        fits(&self.group, group)
            && fits(&self.version, version)
            && fits(&self.kind, text("/kind"))
            && fits(&self.name, text("/metadata/name"))
            && fits(&self.namespace, text("/metadata/namespace"))
            && metadata("labels", &self.labels)
            && metadata("annotations", &self.annotations)
    }
}

/// `object` without the fields at `pointers`.
pub fn without(object: &Value, pointers: &[&str]) -> Value {
    let mut rest = object.clone();
    for pointer in pointers {
        remove(&mut rest, pointer);
    }
    rest
}

/// What is to be applied instead of `object`: a field that was changed in the cluster is left out if another
/// applier owns it, and otherwise keeps the value it has there.
pub fn adopted(object: &Value, live: &Value, dry_run: &Value, pointers: &[&str], manager: &str) -> Value {
    let mut payload = object.clone();
    for pointer in pointers {
        let (now, then) = (live.pointer(pointer), dry_run.pointer(pointer));
        if now == then {
            continue;
        }
        match now {
            Some(value) if !owned_by_other_applier(live, pointer, manager) => {
                if let Some(place) = payload.pointer_mut(pointer) {
                    *place = value.clone();
                }
            }
            _ => remove(&mut payload, pointer),
        }
    }
    payload
}

fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return;
    };
    let key = last.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(&key);
        }
        Some(Value::Array(list)) => {
            if let Ok(index) = key.parse::<usize>()
                && index < list.len()
            {
                list.remove(index);
            }
        }
        _ => {}
    }
}

fn owned_by_other_applier(live: &Value, pointer: &str, manager: &str) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let appliers: Vec<&Value> = entries
        .into_iter()
        .flatten()
        .filter(|entry| text(entry, "operation") == "Apply" && text(entry, "subresource").is_empty())
        .collect();
    let Some(segments) = segments(live, pointer, &appliers) else { return false };
    appliers
        .iter()
        .filter(|entry| text(entry, "manager") != manager)
        .any(|entry| entry.get("fieldsV1").is_some_and(|fields| find(fields, &segments).is_some()))
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A pointer as managedFields writes it: `f:name` for a field, `k:{…}` for an item of a keyed list.
fn segments(live: &Value, pointer: &str, appliers: &[&Value]) -> Option<Vec<String>> {
    let (mut segments, mut at) = (Vec::new(), live);
    for part in pointer.strip_prefix('/')?.split('/') {
        let part = part.replace("~1", "/").replace("~0", "~");
        if let (Value::Array(list), Ok(index)) = (at, part.parse::<usize>()) {
            at = list.get(index)?;
            segments.push(key_of(at, &segments, appliers)?);
        } else {
            at = at.get(&part).unwrap_or(&Value::Null);
            segments.push(format!("f:{part}"));
        }
    }
    Some(segments)
}

/// The `k:{…}` that names `item` among the entries of all appliers.
fn key_of(item: &Value, parent: &[String], appliers: &[&Value]) -> Option<String> {
    let nodes = appliers.iter().filter_map(|entry| find(entry.get("fieldsV1")?, parent)?.as_object());
    nodes.flat_map(|node| node.keys()).find_map(|key| {
        let wanted: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
        let fits = wanted.as_object()?.iter().all(|(field, value)| item.get(field) == Some(value));
        fits.then(|| key.clone())
    })
}

fn find<'a>(fields: &'a Value, segments: &[String]) -> Option<&'a Value> {
    segments.iter().try_fold(fields, |node, segment| node.get(segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(rules: Value) -> Result<IgnoreRules, InvalidRule> {
        IgnoreRules::new(&serde_json::from_value::<Vec<IgnoreRule>>(rules).unwrap())
    }

    fn deployment(replicas: i64) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": "b"}},
            "spec": {"replicas": replicas, "paused": false}})
    }

    #[test]
    fn a_rule_holds_for_what_its_target_selects() {
        let object = deployment(1);
        for (target, expected) in [
            (Value::Null, 1),
            (json!({"kind": "Deployment"}), 1),
            (json!({"kind": "Deploy"}), 0),
            (json!({"kind": "Deploy.*"}), 1),
            (json!({"name": "w.*", "group": "apps"}), 1),
            (json!({"name": "e.*"}), 0),
            (json!({"labelSelector": "a=b"}), 1),
            (json!({"labelSelector": "a=c"}), 0),
            (json!({"labelSelector": "a in (b,c),!d"}), 1),
            (json!({"labelSelector": "a!=b"}), 0),
            (json!({"annotationSelector": "a"}), 0),
        ] {
            let rules = rules(json!([{"paths": ["/spec/replicas"], "target": target}])).unwrap();
            assert_eq!(rules.of(&object).len(), expected, "{target}");
        }
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_named() {
        let error = rules(json!([{"paths": ["/spec"], "target": {"name": "("}}])).unwrap_err();
        assert_eq!(error.to_string(), "spec.ignore[0]: target.name: '(' is no regular expression");
        assert!(rules(json!([{"paths": ["spec"]}])).is_err());
    }

    #[test]
    fn fields_and_elements_are_taken_away() {
        let object = json!({"a": {"b/c": 1, "d": 2}, "l": [1, 2]});
        let rest = without(&object, &["/a/b~1c", "/l/0", "/missing/x", "/l/9"]);
        assert_eq!(rest, json!({"a": {"d": 2}, "l": [2]}));
    }

    #[test]
    fn an_ignored_field_keeps_the_value_it_has_in_the_cluster() {
        let (live, dry_run) = (deployment(5), deployment(1));
        let payload = adopted(&deployment(1), &live, &dry_run, &["/spec/replicas"], "kustomize-controller");
        assert_eq!(payload["spec"]["replicas"], 5);
    }

    #[test]
    fn a_field_that_another_applier_owns_is_left_to_it() {
        let mut live = deployment(5);
        live["metadata"]["managedFields"] = json!([
            {"manager": "kustomize-controller", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "autoscaler", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        ]);
        let payload =
            adopted(&deployment(1), &live, &deployment(1), &["/spec/replicas"], "kustomize-controller");
        assert_eq!(payload["spec"], json!({"paused": false}));
    }

    #[test]
    fn an_index_is_found_by_the_key_of_its_item() {
        let fields = json!({"f:spec": {"f:list": {"k:{\"name\":\"b\"}": {"f:value": {}}}}});
        let live = json!({
            "metadata": {"managedFields": [{"manager": "other", "operation": "Apply", "fieldsV1": fields}]},
            "spec": {"list": [{"name": "a", "value": 1}, {"name": "b", "value": 2}]},
        });
        assert!(owned_by_other_applier(&live, "/spec/list/1/value", "us"));
        assert!(!owned_by_other_applier(&live, "/spec/list/0/value", "us"));
        assert!(!owned_by_other_applier(&live, "/spec/list/7/value", "us"));
    }
}
