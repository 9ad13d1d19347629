//! Defaults of RBAC, admission and flow control.

use serde_json::{Map, Value, json};

use super::{child, child_of, each, fields, get, set, set_all};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn binding(value: &mut Value) {
    let fields = fields(value);
    set(child_of(fields, "roleRef"), "apiGroup", json!(RBAC));
    for subject in each(fields, "subjects") {
        let kind = subject.get("kind").and_then(Value::as_str).unwrap_or_default();
        if matches!(kind, "User" | "Group") {
            set(subject, "apiGroup", json!(RBAC));
        }
    }
}

pub(super) fn webhooks(value: &mut Value, mutating: bool) {
    for webhook in each(fields(value), "webhooks") {
        set_all(
            webhook,
            [
                ("failurePolicy", json!("Fail")),
                ("matchPolicy", json!("Equivalent")),
                ("namespaceSelector", json!({})),
                ("objectSelector", json!({})),
                ("timeoutSeconds", json!(10)),
            ],
        );
        if mutating {
            set(webhook, "reinvocationPolicy", json!("Never"));
        }
        if let Some(service) = get(webhook, "clientConfig").and_then(|config| get(config, "service")) {
            set(service, "port", json!(443));
        }
        for rule in each(webhook, "rules") {
            set(rule, "scope", json!("*"));
        }
    }
}

pub(super) fn admission_policy(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    set(spec, "failurePolicy", json!("Fail"));
    if let Some(constraints) = get(spec, "matchConstraints") {
        match_resources(constraints);
    }
}

pub(super) fn policy_binding(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    if let Some(resources) = get(spec, "matchResources") {
        match_resources(resources);
    }
}

fn match_resources(resources: &mut Map<String, Value>) {
    set_all(
        resources,
        [
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
        ],
    );
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in each(resources, list) {
            set(rule, "scope", json!("*"));
        }
    }
}

pub(super) fn flow_schema(value: &mut Value) {
    set(fields(child(value, "spec")), "matchingPrecedence", json!(1000));
}

pub(super) fn priority_level(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    if let Some(limited) = get(spec, "limited") {
        set_all(limited, [("nominalConcurrencyShares", json!(30)), ("lendablePercent", json!(0))]);
        if let Some(response) = get(limited, "limitResponse")
            && let Some(queuing) = get(response, "queuing")
        {
            set_all(
                queuing,
                [("handSize", json!(8)), ("queues", json!(64)), ("queueLengthLimit", json!(50))],
            );
        }
    }
    if let Some(exempt) = get(spec, "exempt") {
        set_all(exempt, [("nominalConcurrencyShares", json!(0)), ("lendablePercent", json!(0))]);
    }
}
