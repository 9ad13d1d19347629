//! Pods and pod templates: the rules users meet.

use std::collections::HashSet;

use serde_json::Value;

use super::{metadata, names};
use crate::object::text;
use crate::status::Cause;

pub(super) fn pod(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let Some(old) = old else { return spec("spec", &new["spec"], causes) };
    // Little of a pod can change once it is there.
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            for free in [
                "nodeName",
                "tolerations",
                "activeDeadlineSeconds",
                "terminationGracePeriodSeconds",
                "schedulingGates",
            ] {
                fields.remove(free);
            }
            for list in ["containers", "initContainers"] {
                for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(container) = container.as_object_mut() {
                        container.remove("image");
                    }
                }
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.push(Cause::forbidden("spec", detail));
    }
}

pub(super) fn template(field: &str, template: &Value, causes: &mut Vec<Cause>) {
    metadata::labels(&format!("{field}.labels"), template["metadata"].get("labels"), causes);
    spec(&format!("{field}.spec"), &template["spec"], causes);
}

fn spec(field: &str, spec: &Value, causes: &mut Vec<Cause>) {
    let volumes: HashSet<&str> =
        spec["volumes"].as_array().into_iter().flatten().map(|volume| text(volume, "/name")).collect();
    for (at, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let name = text(volume, "/name");
        let path = format!("{field}.volumes[{at}].name");
        if name.is_empty() {
            causes.push(Cause::required(path, ""));
        } else if let Some(problem) = names::dns_label(name) {
            causes.push(Cause::invalid(path, &Value::from(name), &problem));
        }
    }
    let none = Vec::new();
    let list = spec["containers"].as_array().unwrap_or(&none);
    if list.is_empty() {
        causes.push(Cause::required(format!("{field}.containers"), ""));
    }
    let mut seen = HashSet::new();
    for (key, list) in
        [("initContainers", spec["initContainers"].as_array().unwrap_or(&none)), ("containers", list)]
    {
        for (at, one) in list.iter().enumerate() {
            container(&format!("{field}.{key}[{at}]"), one, &volumes, &mut seen, causes);
        }
    }
    let policy = text(spec, "/restartPolicy");
    if !matches!(policy, "" | "Always" | "OnFailure" | "Never") {
        causes.push(Cause::not_supported(
            format!("{field}.restartPolicy"),
            &Value::from(policy),
            &["Always", "OnFailure", "Never"],
        ));
    }
    let dns = text(spec, "/dnsPolicy");
    if !matches!(dns, "" | "ClusterFirstWithHostNet" | "ClusterFirst" | "Default" | "None") {
        let supported = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
        causes.push(Cause::not_supported(format!("{field}.dnsPolicy"), &Value::from(dns), &supported));
    }
}

fn container<'a>(
    field: &str,
    container: &'a Value,
    volumes: &HashSet<&str>,
    seen: &mut HashSet<&'a str>,
    causes: &mut Vec<Cause>,
) {
    let name = text(container, "/name");
    if name.is_empty() {
        causes.push(Cause::required(format!("{field}.name"), ""));
    } else if let Some(problem) = names::dns_label(name) {
        causes.push(Cause::invalid(format!("{field}.name"), &Value::from(name), &problem));
    } else if !seen.insert(name) {
        causes.push(Cause::duplicate(format!("{field}.name"), &Value::from(name)));
    }
    let image = text(container, "/image");
    if image.is_empty() {
        causes.push(Cause::required(format!("{field}.image"), ""));
    } else if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        causes.push(Cause::invalid(format!("{field}.image"), &Value::from(image), detail));
    }
    for (at, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
        self::port(&format!("{field}.ports[{at}]"), port, causes);
    }
    for (at, variable) in container["env"].as_array().into_iter().flatten().enumerate() {
        if text(variable, "/name").is_empty() {
            causes.push(Cause::required(format!("{field}.env[{at}].name"), ""));
        }
        if !text(variable, "/value").is_empty() && !variable["valueFrom"].is_null() {
            let detail = "may not be specified when `value` is not empty";
            causes.push(Cause::invalid(format!("{field}.env[{at}].valueFrom"), &Value::from(""), detail));
        }
    }
    for (at, mount) in container["volumeMounts"].as_array().into_iter().flatten().enumerate() {
        let at = format!("{field}.volumeMounts[{at}]");
        let name = text(mount, "/name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !volumes.contains(name) {
            causes.push(Cause::not_found(format!("{at}.name"), &Value::from(name)));
        }
        if text(mount, "/mountPath").is_empty() {
            causes.push(Cause::required(format!("{at}.mountPath"), ""));
        }
    }
    resources(field, &container["resources"], causes);
    let policy = text(container, "/imagePullPolicy");
    if !matches!(policy, "" | "Always" | "IfNotPresent" | "Never") {
        let supported = ["Always", "IfNotPresent", "Never"];
        causes.push(Cause::not_supported(
            format!("{field}.imagePullPolicy"),
            &Value::from(policy),
            &supported,
        ));
    }
}

fn port(field: &str, port: &Value, causes: &mut Vec<Cause>) {
    let number = port["containerPort"].as_i64().unwrap_or(0);
    if number == 0 {
        causes.push(Cause::required(format!("{field}.containerPort"), ""));
    } else if !(1..=65535).contains(&number) {
        let detail = "must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid(format!("{field}.containerPort"), &Value::from(number), detail));
    }
    let protocol = text(port, "/protocol");
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        causes.push(Cause::not_supported(
            format!("{field}.protocol"),
            &Value::from(protocol),
            &["SCTP", "TCP", "UDP"],
        ));
    }
}

/// A request may not be larger than its limit.
fn resources(field: &str, resources: &Value, causes: &mut Vec<Cause>) {
    for (name, limit) in resources["limits"].as_object().into_iter().flatten() {
        let (Some(limit), Some(request)) = (limit.as_str(), resources["requests"][name].as_str()) else {
            continue;
        };
        let parse = |text: &str| kube_cel::Quantity::parse(text).ok();
        if let (Some(wanted), Some(most)) = (parse(request), parse(limit))
            && wanted.subtract(&most).sign() > 0
        {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            causes.push(Cause::invalid(
                format!("{field}.resources.requests"),
                &Value::from(request),
                &detail,
            ));
        }
    }
}
