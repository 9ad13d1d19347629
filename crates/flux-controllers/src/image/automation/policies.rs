//! Which ImagePolicies an automation writes into files: those of its namespace that its selector picks and that have
//! picked an image. Whether they are ready or suspended does not matter. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_api::image::{ImageReference, LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use kube::api::DynamicObject;

/// The images by the policies' names. An error means that the selector cannot be read.
pub fn select(
    policies: &[Arc<DynamicObject>],
    namespace: &str,
    selector: Option<&LabelSelector>,
) -> Result<BTreeMap<String, ImageReference>, String> {
    let failed = |error: String| format!("failed to parse policy selector: {error}");
    let mut images = BTreeMap::new();
    if let Some(selector) = selector {
        selector.match_expressions.iter().try_for_each(check).map_err(failed)?;
    }
    for policy in policies.iter().filter(|policy| policy.namespace().as_deref() == Some(namespace)) {
        let latest = policy.data.pointer("/status/latestRef").cloned().unwrap_or_default();
        let Ok(image) = serde_json::from_value::<ImageReference>(latest) else { continue };
        if selector.is_none_or(|selector| matches(selector, policy.labels())) {
            images.insert(policy.name_any(), image);
        }
    }
    Ok(images)
}

fn check(requirement: &LabelSelectorRequirement) -> Result<(), String> {
    match requirement.operator.as_str() {
        "In" | "NotIn" if requirement.values.is_empty() => {
            Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                .to_owned())
        }
        "Exists" | "DoesNotExist" if !requirement.values.is_empty() => {
            Err("values: Invalid value: values set must be empty for exists and does not exist".to_owned())
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => Ok(()),
        other => Err(format!("\"{other}\" is not a valid label selector operator")),
    }
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let holds = |requirement: &LabelSelectorRequirement| {
        let value = labels.get(&requirement.key);
        match requirement.operator.as_str() {
            "In" => value.is_some_and(|value| requirement.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !requirement.values.contains(value)),
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    };
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(namespace: &str, name: &str, team: &str, tag: Option<&str>) -> Arc<DynamicObject> {
        let mut object = json!({
            "apiVersion": "image.toolkit.fluxcd.io/v1", "kind": "ImagePolicy",
            "metadata": { "name": name, "namespace": namespace, "labels": { "team": team } },
            "spec": { "suspend": true },
        });
        if let Some(tag) = tag {
            object["status"] = json!({ "latestRef": { "name": "ghcr.io/a/b", "tag": tag } });
        }
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn selected(selector: Value) -> Result<String, String> {
        let all = [
            policy("apps", "one", "a", Some("1")),
            policy("apps", "two", "b", Some("2")),
            policy("apps", "none-yet", "a", None),
            policy("other", "three", "a", Some("3")),
        ];
        let selector: Option<LabelSelector> = serde_json::from_value(selector).unwrap();
        let found = select(&all, "apps", selector.as_ref())?;
        Ok(found.into_keys().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn policies_of_the_namespace_with_an_image_that_the_selector_picks() {
        let expression = |operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": "team", "operator": operator, "values": values }] });
        assert_eq!(selected(Value::Null).unwrap(), "one two");
        assert_eq!(selected(json!({})).unwrap(), "one two");
        assert_eq!(selected(json!({ "matchLabels": { "team": "a" } })).unwrap(), "one");
        assert_eq!(selected(expression("In", &["b", "c"])).unwrap(), "two");
        assert_eq!(selected(expression("NotIn", &["b"])).unwrap(), "one");
        assert_eq!(selected(expression("Exists", &[])).unwrap(), "one two");
        assert_eq!(selected(expression("DoesNotExist", &[])).unwrap(), "");
        let error = selected(expression("Like", &["b"])).unwrap_err();
        assert_eq!(error, "failed to parse policy selector: \"Like\" is not a valid label selector operator");
        assert!(selected(expression("In", &[])).is_err() && selected(expression("Exists", &["x"])).is_err());
    }
}
