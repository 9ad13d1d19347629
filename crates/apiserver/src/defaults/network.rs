//! Defaults of kinds that connect.

use serde_json::{Value, json};

use super::{child, child_of, each, fields, set, set_all};

pub(super) fn service(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    set_all(spec, [("sessionAffinity", json!("None")), ("type", json!("ClusterIP"))]);
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let external = kind == "ExternalName";
    for port in each(spec, "ports") {
        set(port, "protocol", json!("TCP"));
        let number = port.get("port").cloned().unwrap_or_default();
        let unset = matches!(port.get("targetPort"), None | Some(Value::Null))
            || port.get("targetPort") == Some(&json!(0));
        if unset || port.get("targetPort") == Some(&json!("")) {
            port.insert("targetPort".into(), number);
        }
    }
    if spec.get("sessionAffinity") == Some(&json!("ClientIP")) {
        let config = child_of(child_of(spec, "sessionAffinityConfig"), "clientIP");
        set(config, "timeoutSeconds", json!(10800));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if !external {
        set(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    fields(child(value, "status"));
    if value["status"].as_object().is_some_and(serde_json::Map::is_empty) {
        value["status"] = json!({ "loadBalancer": {} });
    }
}

pub(super) fn endpoints(value: &mut Value) {
    for subset in each(fields(value), "subsets") {
        for port in each(subset, "ports") {
            set(port, "protocol", json!("TCP"));
        }
    }
}

pub(super) fn endpoint_slice(value: &mut Value) {
    for port in each(fields(value), "ports") {
        set_all(port, [("name", json!("")), ("protocol", json!("TCP"))]);
    }
}

pub(super) fn network_policy(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
        spec.insert(
            "policyTypes".into(),
            if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) },
        );
    }
    for direction in ["ingress", "egress"] {
        for rule in each(spec, direction) {
            for port in each(rule, "ports") {
                set(port, "protocol", json!("TCP"));
            }
        }
    }
}
