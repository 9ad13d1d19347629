//! Services: ports, types, and what cannot change.

use std::collections::HashSet;

use serde_json::Value;

use super::names;
use crate::object::{integer, text};
use crate::status::Cause;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn service(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let kind = text(new, "/spec/type");
    if !TYPES.contains(&kind) {
        causes.push(Cause::not_supported("spec.type", &Value::from(kind), &TYPES));
    }
    let none = Vec::new();
    let ports = new["spec"]["ports"].as_array().unwrap_or(&none);
    let headless = text(new, "/spec/clusterIP") == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(new, "/spec/externalName").is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let (mut named, mut numbered) = (HashSet::new(), HashSet::new());
    for (at, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{at}].{name}");
        let name = text(port, "/name");
        if name.is_empty() && ports.len() > 1 {
            causes.push(Cause::required(field("name"), ""));
        } else if !name.is_empty() {
            if let Some(problem) = names::dns_label(name) {
                causes.push(Cause::invalid(field("name"), &Value::from(name), &problem));
            } else if !named.insert(name) {
                causes.push(Cause::duplicate(field("name"), &Value::from(name)));
            }
        }
        let number = integer(port, "/port").unwrap_or(0);
        if !(1..=65535).contains(&number) {
            causes.push(Cause::invalid(
                field("port"),
                &Value::from(number),
                "must be between 1 and 65535, inclusive",
            ));
        }
        if let Some(target) = integer(port, "/targetPort").filter(|target| !(1..=65535).contains(target)) {
            let detail = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(field("targetPort"), &Value::from(target), detail));
        }
        let protocol = text(port, "/protocol");
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            causes.push(Cause::not_supported(
                field("protocol"),
                &Value::from(protocol),
                &["SCTP", "TCP", "UDP"],
            ));
        }
        if !numbered.insert((protocol, number)) {
            let shown = serde_json::json!({ "protocol": protocol, "port": number });
            causes.push(Cause::duplicate(format!("spec.ports[{at}]"), &shown));
        }
    }
    let Some(old) = old.filter(|old| text(old, "/spec/type") != "ExternalName" && kind != "ExternalName")
    else {
        return;
    };
    let address = text(new, "/spec/clusterIP");
    if text(old, "/spec/clusterIP") != address && !text(old, "/spec/clusterIP").is_empty() {
        causes.push(Cause::invalid(
            "spec.clusterIPs[0]",
            &Value::from(vec![address]),
            "may not change once set",
        ));
    }
}
