//! Kinds that make pods: their selectors and templates.

use serde_json::{Value, json};

use super::pod;
use crate::object::{self, integer, text};
use crate::selector::LabelSelector;
use crate::status::Cause;

pub(super) fn selected(storage: &str, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    if let Some(replicas) = integer(new, "/spec/replicas").filter(|replicas| *replicas < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.replicas", &Value::from(replicas), detail));
    }
    let empty = spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    if spec["selector"].is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else if empty {
        let detail = format!("empty selector is invalid for {}", kind_word(storage));
        causes.push(Cause::invalid("spec.selector", &spec["selector"], &detail));
    }
    if spec["selector"].is_null() {
        // No selector selects nothing, so nothing matches it either.
        let detail = "`selector` does not match template `labels`";
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            &spec["template"]["metadata"]["labels"],
            detail,
        ));
    } else if !empty {
        let labels = &spec["template"]["metadata"]["labels"];
        let selector = LabelSelector::from_object(&spec["selector"]);
        if !selector.matches(|key| labels.get(key).and_then(Value::as_str)) {
            let detail = "`selector` does not match template `labels`";
            causes.push(Cause::invalid("spec.template.metadata.labels", &sorted(labels), detail));
        }
    }
    match storage {
        "statefulsets.apps" => pod::template("spec.template", &with_claims(spec), causes),
        _ => pod::template("spec.template", &spec["template"], causes),
    }
    let policy = text(new, "/spec/template/spec/restartPolicy");
    if !matches!(policy, "" | "Always") && matches!(policy, "OnFailure" | "Never") {
        causes.push(Cause::not_supported(
            "spec.template.spec.restartPolicy",
            &Value::from(policy),
            &["Always"],
        ));
    }
    let Some(old) = old else { return };
    match storage {
        "statefulsets.apps" => stateful_set_update(old, new, causes),
        _ if old["spec"]["selector"] != spec["selector"] => {
            causes.push(Cause::invalid("spec.selector", &spec["selector"], "field is immutable"));
        }
        _ => {}
    }
}

/// The template with a volume for each claim: the pods of a StatefulSet mount their claims by name.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let volumes: Vec<Value> = claims.map(|claim| json!({ "name": text(claim, "/metadata/name") })).collect();
    if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(known) = pod.entry("volumes").or_insert_with(|| json!([])).as_array_mut()
    {
        known.extend(volumes);
    }
    template
}

/// Counts that cannot be.
pub(super) fn deployment_status(new: &Value, causes: &mut Vec<Cause>) {
    let count = |key: &str| integer(new, &format!("/status/{key}")).unwrap_or(0);
    for (key, limit) in [
        ("updatedReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ] {
        if count(key) > count(limit) {
            let what = if limit == "replicas" { "status.replicas" } else { limit };
            let detail = format!("cannot be greater than {what}");
            causes.push(Cause::invalid(format!("status.{key}"), &Value::from(count(key)), &detail));
        }
    }
}

fn sorted(labels: &Value) -> Value {
    if labels.is_null() { Value::Null } else { labels.clone() }
}

fn kind_word(storage: &str) -> &'static str {
    match storage {
        "daemonsets.apps" => "daemonset",
        "statefulsets.apps" => "statefulset",
        _ => "deployment",
    }
}

fn stateful_set_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let fixed = |set: &Value| {
        let mut spec = set["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            for free in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                fields.remove(free);
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        causes.push(Cause::forbidden("spec", detail));
    }
}

pub(super) fn job(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    job_template("spec.template", &new["spec"]["template"], causes);
    for key in ["parallelism", "completions", "backoffLimit"] {
        if let Some(number) = integer(new, &format!("/spec/{key}")).filter(|number| *number < 0) {
            let detail = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("spec.{key}"), &Value::from(number), detail));
        }
    }
    let Some(old) = old else { return };
    for key in ["completions", "selector", "template", "completionMode"] {
        if old["spec"][key] != new["spec"][key] {
            causes.push(Cause::invalid(format!("spec.{key}"), &new["spec"][key], "field is immutable"));
        }
    }
}

fn job_template(field: &str, template: &Value, causes: &mut Vec<Cause>) {
    pod::template(field, template, causes);
    let policy = text(template, "/spec/restartPolicy");
    if policy == "Always" {
        // Kubernetes calls a wrong value missing here, as "Always" is also what is filled in for none.
        causes.push(Cause::required(
            format!("{field}.spec.restartPolicy"),
            "valid values: \"OnFailure\", \"Never\"",
        ));
    }
}

pub(super) fn cron_job(new: &Value, causes: &mut Vec<Cause>) {
    if text(new, "/spec/schedule").is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    }
    job_template("spec.jobTemplate.spec.template", &new["spec"]["jobTemplate"]["spec"]["template"], causes);
    if object::name(new).len() > 52 {
        let detail = "must be no more than 52 characters";
        causes.push(Cause::invalid("metadata.name", &Value::from(object::name(new)), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_a_stateful_set_mount_its_claims() {
        let set = json!({ "spec": {
            "selector": { "matchLabels": { "app": "db" } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
            "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{
                "name": "db", "image": "db:1",
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }] } },
        } });
        let problems = |storage: &str, set: &Value| {
            let mut causes = Vec::new();
            selected(storage, None, set, &mut causes);
            causes.len()
        };
        assert_eq!(problems("statefulsets.apps", &set), 0);
        assert_eq!(problems("deployments.apps", &set), 1, "nobody else has claims");
    }
}
