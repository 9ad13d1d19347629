//! The cells of builtin kinds, in the order of their recorded columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, pod};
use crate::object::{self, integer, text};
use crate::rest::scale::selector_text;

pub fn row(place: &str, object: &Value, now: Timestamp) -> Value {
    match place {
        "pods" => pod::row(object, now),
        "jobs.batch" => job(object, now),
        _ => json!({ "cells": cells(place, object, now) }),
    }
}

pub fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn or_unset(text: &str) -> String {
    if text.is_empty() { "<unset>".into() } else { text.into() }
}

/// The texts at `pointer` of each item of a list.
pub fn texts(list: &Value, pointer: &str) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| text(item, pointer).to_owned()).collect()
}

fn count(value: &Value) -> i64 {
    match value {
        Value::Array(items) => items.len() as i64,
        Value::Object(fields) => fields.len() as i64,
        _ => 0,
    }
}

fn number(object: &Value, pointer: &str) -> i64 {
    integer(object, pointer).unwrap_or(0)
}

fn containers(template: &Value) -> (String, String) {
    let list = &template["spec"]["containers"];
    (texts(list, "/name").join(","), texts(list, "/image").join(","))
}

fn labels(map: &Value) -> String {
    let parts: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or_none(&parts.join(","))
}

fn int_or_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "N/A".into(),
        other => other.to_string(),
    }
}

fn cells(place: &str, object: &Value, now: Timestamp) -> Value {
    let name = object::name(object);
    let age = age::of_object(object, now);
    let (names, images) = containers(&object["spec"]["template"]);
    let selector = || or_none(&selector_text(&object["spec"]["selector"]));
    match place {
        "configmaps" => json!([name, count(&object["data"]) + count(&object["binaryData"]), age]),
        "secrets" => json!([name, text(object, "/type"), count(&object["data"]), age]),
        "namespaces" => json!([name, text(object, "/status/phase"), age]),
        "serviceaccounts" => json!([name, age]),
        "services" => {
            json!([
                name,
                text(object, "/spec/type"),
                cluster_ip(object),
                external_ip(object),
                ports(object),
                age,
                labels(&object["spec"]["selector"])
            ])
        }
        "endpoints" => json!([name, endpoints(object), age]),
        "deployments.apps" => json!([
            name,
            format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")),
            number(object, "/status/updatedReplicas"),
            number(object, "/status/availableReplicas"),
            age,
            names,
            images,
            selector(),
        ]),
        "replicasets.apps" | "replicationcontrollers" => json!([
            name,
            number(object, "/spec/replicas"),
            number(object, "/status/replicas"),
            number(object, "/status/readyReplicas"),
            age,
            names,
            images,
            selector(),
        ]),
        "statefulsets.apps" => json!([
            name,
            format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")),
            age,
            names,
            images,
        ]),
        "daemonsets.apps" => json!([
            name,
            number(object, "/status/desiredNumberScheduled"),
            number(object, "/status/currentNumberScheduled"),
            number(object, "/status/numberReady"),
            number(object, "/status/updatedNumberScheduled"),
            number(object, "/status/numberAvailable"),
            labels(&object["spec"]["template"]["spec"]["nodeSelector"]),
            age,
            names,
            images,
            selector(),
        ]),
        "controllerrevisions.apps" => json!([name, controller(object), number(object, "/revision"), age]),
        "cronjobs.batch" => cron_job(object, now),
        "ingresses.networking.k8s.io" => ingress(object, now),
        "ingressclasses.networking.k8s.io" => {
            let parameters = match text(object, "/spec/parameters/kind") {
                "" => "<none>".to_owned(),
                kind => format!(
                    "{kind}.{}/{}",
                    text(object, "/spec/parameters/apiGroup"),
                    text(object, "/spec/parameters/name")
                ),
            };
            json!([name, text(object, "/spec/controller"), parameters, age])
        }
        "networkpolicies.networking.k8s.io" => {
            json!([name, or_none(&selector_text(&object["spec"]["podSelector"])), age])
        }
        "horizontalpodautoscalers.autoscaling" => autoscaler(object, now),
        "poddisruptionbudgets.policy" => json!([
            name,
            int_or_text(&object["spec"]["minAvailable"]),
            int_or_text(&object["spec"]["maxUnavailable"]),
            number(object, "/status/disruptionsAllowed"),
            age,
        ]),
        "persistentvolumeclaims" => json!([
            name,
            claim_phase(object),
            text(object, "/spec/volumeName"),
            text(object, "/status/capacity/storage"),
            access_modes(&object["status"]["accessModes"]),
            text(object, "/spec/storageClassName"),
            or_unset(text(object, "/spec/volumeAttributesClassName")),
            age,
            text(object, "/spec/volumeMode"),
        ]),
        "persistentvolumes" => {
            let claim = match text(object, "/spec/claimRef/name") {
                "" => String::new(),
                claim => format!("{}/{claim}", text(object, "/spec/claimRef/namespace")),
            };
            json!([
                name,
                text(object, "/spec/capacity/storage"),
                access_modes(&object["spec"]["accessModes"]),
                text(object, "/spec/persistentVolumeReclaimPolicy"),
                claim_phase(object),
                claim,
                text(object, "/spec/storageClassName"),
                or_unset(text(object, "/spec/volumeAttributesClassName")),
                text(object, "/status/reason"),
                age,
                text(object, "/spec/volumeMode"),
            ])
        }
        "storageclasses.storage.k8s.io" => {
            let default =
                object::annotation(object, "storageclass.kubernetes.io/is-default-class") == Some("true");
            let shown = if default { format!("{name} (default)") } else { name.to_owned() };
            json!([
                shown,
                text(object, "/provisioner"),
                text(object, "/reclaimPolicy"),
                text(object, "/volumeBindingMode"),
                object["allowVolumeExpansion"] == true,
                age,
            ])
        }
        "nodes" => node(object, now),
        "events" => event(object, now),
        "leases.coordination.k8s.io" => json!([name, text(object, "/spec/holderIdentity"), age]),
        "roles.rbac.authorization.k8s.io"
        | "clusterroles.rbac.authorization.k8s.io"
        | "limitranges"
        | "customresourcedefinitions.apiextensions.k8s.io"
        | "csistoragecapacities.storage.k8s.io" => {
            json!([name, object::meta_str(object, "creationTimestamp")])
        }
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            binding(object, now)
        }
        "priorityclasses.scheduling.k8s.io" => {
            json!([
                name,
                number(object, "/value"),
                object["globalDefault"] == true,
                age,
                text(object, "/preemptionPolicy")
            ])
        }
        "endpointslices.discovery.k8s.io" => endpoint_slice(object, now),
        "resourcequotas" => json!([name, quota(object, "requests"), quota(object, "limits"), age]),
        "podtemplates" => {
            let (names, images) = containers(&object["template"]);
            json!([name, names, images, labels(&object["template"]["metadata"]["labels"])])
        }
        "apiservices.apiregistration.k8s.io" => {
            let service = match text(object, "/spec/service/name") {
                "" => "Local".to_owned(),
                service => format!("{}/{service}", text(object, "/spec/service/namespace")),
            };
            json!([name, service, condition_text(object, "Available"), age])
        }
        "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "validatingwebhookconfigurations.admissionregistration.k8s.io" => {
            json!([name, count(&object["webhooks"]), age])
        }
        "validatingadmissionpolicies.admissionregistration.k8s.io" => {
            json!([name, count(&object["spec"]["validations"]), param_kind(object), age])
        }
        "mutatingadmissionpolicies.admissionregistration.k8s.io" => {
            json!([name, count(&object["spec"]["mutations"]), param_kind(object), age])
        }
        "validatingadmissionpolicybindings.admissionregistration.k8s.io"
        | "mutatingadmissionpolicybindings.admissionregistration.k8s.io" => {
            let param = &object["spec"]["paramRef"];
            let shown = match (text(param, "/namespace"), text(param, "/name")) {
                ("", "") => "<unset>".to_owned(),
                ("", name) => name.to_owned(),
                (namespace, name) => format!("{namespace}/{name}"),
            };
            json!([name, text(object, "/spec/policyName"), shown, age])
        }
        "flowschemas.flowcontrol.apiserver.k8s.io" => json!([
            name,
            text(object, "/spec/priorityLevelConfiguration/name"),
            number(object, "/spec/matchingPrecedence"),
            or_none(text(object, "/spec/distinguisherMethod/type")),
            age,
            match condition_text(object, "Dangling").as_str() {
                "" => "?".to_owned(),
                status => status.to_owned(),
            },
        ]),
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => priority_level(object, now),
        "csidrivers.storage.k8s.io" => {
            let spec = &object["spec"];
            let audiences = texts(&spec["tokenRequests"], "/audience");
            let modes: Vec<String> = spec["volumeLifecycleModes"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            json!([
                name,
                spec["attachRequired"] != false,
                spec["podInfoOnMount"] == true,
                spec["storageCapacity"] == true,
                or_unset(&audiences.join(",")),
                spec["requiresRepublish"] == true,
                or_none(&modes.join(",")),
                age,
            ])
        }
        "csinodes.storage.k8s.io" => json!([name, count(&object["spec"]["drivers"]), age]),
        "volumeattachments.storage.k8s.io" => json!([
            name,
            text(object, "/spec/attacher"),
            text(object, "/spec/source/persistentVolumeName"),
            text(object, "/spec/nodeName"),
            object["status"]["attached"] == true,
            age,
        ]),
        "volumeattributesclasses.storage.k8s.io" => json!([name, text(object, "/driverName"), age]),
        "runtimeclasses.node.k8s.io" => json!([name, text(object, "/handler"), age]),
        "ipaddresses.networking.k8s.io" => {
            let parent = &object["spec"]["parentRef"];
            let parts =
                ["/group", "/resource", "/namespace", "/name"].map(|part| text(parent, part)).join("/");
            json!([name, parts.trim_start_matches('/')])
        }
        "servicecidrs.networking.k8s.io" => {
            let cidrs: Vec<&str> =
                object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            json!([name, cidrs.join(","), age])
        }
        "certificatesigningrequests.certificates.k8s.io" => json!([
            name,
            age,
            text(object, "/spec/signerName"),
            text(object, "/spec/username"),
            integer(object, "/spec/expirationSeconds").map_or("<none>".to_owned(), age::duration),
            "Pending",
        ]),
        "resourceclaims.resource.k8s.io" => {
            json!([name, if object["status"]["allocation"].is_null() { "pending" } else { "allocated" }, age])
        }
        "resourceslices.resource.k8s.io" => {
            json!([
                name,
                or_unset(text(object, "/spec/nodeName")),
                text(object, "/spec/driver"),
                text(object, "/spec/pool/name"),
                age
            ])
        }
        "deviceclasses.resource.k8s.io" | "resourceclaimtemplates.resource.k8s.io" => json!([name, age]),
        _ => json!([name, object::meta_str(object, "creationTimestamp")]),
    }
}

fn condition_text(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| text(condition, "/type") == kind);
    found.map(|condition| text(condition, "/status").to_owned()).unwrap_or_default()
}

fn param_kind(object: &Value) -> String {
    match text(object, "/spec/paramKind/kind") {
        "" => "<unset>".into(),
        kind => format!("{}/{kind}", text(object, "/spec/paramKind/apiVersion")),
    }
}

fn controller(object: &Value) -> String {
    let owners = object::meta(object).get("ownerReferences").and_then(Value::as_array);
    let found = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    let Some(owner) = found else { return "<none>".into() };
    let (group, _) = crate::kinds::split_api_version(text(owner, "/apiVersion"));
    format!("{}.{group}/{}", text(owner, "/kind").to_lowercase(), text(owner, "/name"))
}

fn cluster_ip(service: &Value) -> String {
    or_none(text(service, "/spec/clusterIP"))
}

fn external_ip(service: &Value) -> String {
    let own: Vec<&str> =
        service["spec"]["externalIPs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let balancer: Vec<String> = service["status"]["loadBalancer"]["ingress"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| match text(entry, "/ip") {
            "" => text(entry, "/hostname").to_owned(),
            ip => ip.to_owned(),
        })
        .collect();
    match text(service, "/spec/type") {
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let all: Vec<String> = balancer.into_iter().chain(own.into_iter().map(str::to_owned)).collect();
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        _ => or_none(&own.join(",")),
    }
}

fn ports(service: &Value) -> String {
    let list: Vec<String> = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| {
            let (number, protocol) = (port["port"].as_i64().unwrap_or(0), text(port, "/protocol"));
            match port["nodePort"].as_i64().unwrap_or(0) {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    or_none(&list.join(","))
}

fn endpoints(object: &Value) -> String {
    let mut list = Vec::new();
    for subset in object["subsets"].as_array().into_iter().flatten() {
        let ports: Vec<i64> =
            subset["ports"].as_array().into_iter().flatten().filter_map(|p| p["port"].as_i64()).collect();
        for address in texts(&subset["addresses"], "/ip") {
            match ports.is_empty() {
                true => list.push(address),
                false => list.extend(ports.iter().map(|port| format!("{address}:{port}"))),
            }
        }
    }
    shortened(list)
}

/// Three entries and how many more.
fn shortened(list: Vec<String>) -> String {
    if list.len() <= 3 {
        return or_none(&list.join(","));
    }
    format!("{} + {} more...", list[..3].join(","), list.len() - 3)
}

fn endpoint_slice(object: &Value, now: Timestamp) -> Value {
    let ports: Vec<String> = object["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| match port["port"].as_i64() {
            Some(port) => port.to_string(),
            None => "*".into(),
        })
        .collect();
    let addresses: Vec<String> = object["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|endpoint| endpoint["addresses"].as_array().cloned().unwrap_or_default())
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let unset = |list: String| if list == "<none>" { "<unset>".to_owned() } else { list };
    json!([
        object::name(object),
        text(object, "/addressType"),
        unset(shortened(ports)),
        unset(shortened(addresses)),
        age::of_object(object, now)
    ])
}

fn cron_job(object: &Value, now: Timestamp) -> Value {
    let (names, images) = containers(&object["spec"]["jobTemplate"]["spec"]["template"]);
    let last = match text(object, "/status/lastScheduleTime") {
        "" => "<none>".to_owned(),
        time => age::since(time, now),
    };
    json!([
        object::name(object),
        text(object, "/spec/schedule"),
        or_none(text(object, "/spec/timeZone")),
        if object["spec"]["suspend"] == true { "True" } else { "False" },
        count(&object["status"]["active"]),
        last,
        age::of_object(object, now),
        names,
        images,
        or_none(&selector_text(&object["spec"]["jobTemplate"]["spec"]["selector"])),
    ])
}

fn job(object: &Value, now: Timestamp) -> Value {
    let (names, images) = containers(&object["spec"]["template"]);
    let done = number(object, "/status/succeeded");
    let completions = match (object["spec"]["completions"].as_i64(), object["spec"]["parallelism"].as_i64()) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    };
    let holds = |kind: &str| condition_text(object, kind) == "True";
    let status = match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if object::is_deleting(object) => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () => "Running",
    };
    let duration = match (text(object, "/status/startTime"), text(object, "/status/completionTime")) {
        ("", _) => String::new(),
        (start, "") => age::since(start, now),
        (start, end) => end.parse().map_or_else(|_| String::new(), |end| age::since(start, end)),
    };
    let cells = json!([
        object::name(object),
        status,
        completions,
        duration,
        age::of_object(object, now),
        names,
        images,
        or_none(&selector_text(&object["spec"]["selector"])),
    ]);
    json!({ "cells": cells })
}

fn ingress(object: &Value, now: Timestamp) -> Value {
    let hosts: Vec<String> =
        texts(&object["spec"]["rules"], "/host").into_iter().filter(|host| !host.is_empty()).collect();
    let hosts = if hosts.is_empty() { "*".to_owned() } else { shortened(hosts) };
    let addresses: Vec<String> = object["status"]["loadBalancer"]["ingress"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            if text(entry, "/ip").is_empty() { text(entry, "/hostname") } else { text(entry, "/ip") }
                .to_owned()
        })
        .collect();
    let ports = if count(&object["spec"]["tls"]) > 0 { "80, 443" } else { "80" };
    let class = or_none(text(object, "/spec/ingressClassName"));
    json!([object::name(object), class, hosts, addresses.join(","), ports, age::of_object(object, now)])
}

fn autoscaler(object: &Value, now: Timestamp) -> Value {
    let target = &object["spec"]["scaleTargetRef"];
    let reference = format!("{}/{}", text(target, "/kind"), text(target, "/name"));
    let targets: Vec<String> = object["spec"]["metrics"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|metric| {
            let name = text(metric, "/resource/name");
            match metric.pointer("/resource/target/averageUtilization").and_then(Value::as_i64) {
                Some(percent) => format!("{name}: <unknown>/{percent}%"),
                None => "<unknown>/<auto>".to_owned(),
            }
        })
        .collect();
    // autoscaling/v1 names its one target elsewhere.
    let mut targets = targets;
    if let Some(percent) = integer(object, "/spec/targetCPUUtilizationPercentage") {
        targets.push(format!("cpu: <unknown>/{percent}%"));
    }
    let minimum =
        integer(object, "/spec/minReplicas").map_or("<unset>".to_owned(), |minimum| minimum.to_string());
    json!([
        object::name(object),
        reference,
        or_none(&targets.join(", ")),
        minimum,
        number(object, "/spec/maxReplicas"),
        number(object, "/status/currentReplicas"),
        age::of_object(object, now),
    ])
}

fn claim_phase(object: &Value) -> String {
    if object::is_deleting(object) { "Terminating".into() } else { text(object, "/status/phase").to_owned() }
}

fn access_modes(modes: &Value) -> String {
    let short = modes.as_array().into_iter().flatten().filter_map(Value::as_str).map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    short.collect::<Vec<_>>().join(",")
}

fn node(object: &Value, now: Timestamp) -> Value {
    let ready = match condition_text(object, "Ready").as_str() {
        "True" => "Ready",
        "" => "Unknown",
        _ => "NotReady",
    };
    let status = if object["spec"]["unschedulable"] == true {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    };
    let labels = object::meta(object).get("labels").and_then(Value::as_object);
    let mut roles: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned))
        .collect();
    roles.sort();
    let address = |kind: &str| {
        let list = object["status"]["addresses"].as_array();
        let found = list.into_iter().flatten().find(|address| text(address, "/type") == kind);
        or_none(found.map(|address| text(address, "/address")).unwrap_or_default())
    };
    let info = |key: &str| match text(object, &format!("/status/nodeInfo/{key}")) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    json!([
        object::name(object),
        status,
        or_none(&roles.join(",")),
        age::of_object(object, now),
        text(object, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ])
}

/// Events come in both shapes: core and events.k8s.io.
fn event(object: &Value, now: Timestamp) -> Value {
    let first_of = |pointers: &[&str]| {
        pointers.iter().map(|pointer| text(object, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let first = first_of(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let last =
        first_of(&["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"]);
    let regarding =
        if object["involvedObject"].is_null() { &object["regarding"] } else { &object["involvedObject"] };
    let target = format!("{}/{}", text(regarding, "/kind").to_lowercase(), text(regarding, "/name"));
    let source = [
        first_of(&[
            "/source/component",
            "/deprecatedSource/component",
            "/reportingComponent",
            "/reportingController",
        ]),
        first_of(&["/source/host", "/deprecatedSource/host"]),
    ];
    let source: Vec<&str> = source.into_iter().filter(|part| !part.is_empty()).collect();
    let count =
        ["/series/count", "/count", "/deprecatedCount"].iter().find_map(|pointer| integer(object, pointer));
    let ago = |time: &str| if time.is_empty() { "<unknown>".to_owned() } else { age::since(time, now) };
    json!([
        ago(last),
        text(object, "/type"),
        text(object, "/reason"),
        target,
        text(regarding, "/fieldPath"),
        source.join(", "),
        first_of(&["/message", "/note"]).trim(),
        ago(first),
        count.unwrap_or(1),
        object::name(object),
    ])
}

fn binding(object: &Value, now: Timestamp) -> Value {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| {
        let list = object["subjects"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|subject| text(subject, "/kind") == kind);
        let names = list.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
            _ => text(subject, "/name").to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    json!([
        object::name(object),
        role,
        age::of_object(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount")
    ])
}

fn quota(object: &Value, which: &str) -> String {
    let hard = object["status"]["hard"].as_object();
    let parts: Vec<String> = hard
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("limits.") == (which == "limits"))
        .map(|(name, amount)| {
            let used = object["status"]["used"][name].as_str().unwrap_or_default();
            format!("{name}: {used}/{}", amount.as_str().unwrap_or_default())
        })
        .collect();
    parts.join(", ")
}

fn priority_level(object: &Value, now: Timestamp) -> Value {
    let spec = &object["spec"];
    let shares = ["/limited/nominalConcurrencyShares", "/exempt/nominalConcurrencyShares"]
        .iter()
        .find_map(|p| integer(spec, p));
    let queuing = |key: &str| {
        integer(spec, &format!("/limited/limitResponse/queuing/{key}"))
            .map_or("<none>".to_owned(), |n| n.to_string())
    };
    json!([
        object::name(object),
        text(spec, "/type"),
        shares.map_or("<none>".to_owned(), |n| n.to_string()),
        queuing("queues"),
        queuing("handSize"),
        queuing("queueLengthLimit"),
        age::of_object(object, now),
    ])
}
