//! Everything that is no resource: discovery (plain and aggregated), version, health.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::kinds::{Group, Registry, Resource, Subresource, Verb, Version, split_api_version};
use crate::media::{Accept, Form};
use crate::respond::Answer;
use crate::server::Inner;
use crate::service::{Incoming, not_found_text};
use crate::status::Status;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub fn answer(server: &Arc<Inner>, incoming: &Incoming) -> Result<Answer, Status> {
    let path = incoming.info.path.trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let registry = server.registry();
    if let ["healthz" | "livez" | "readyz", ..] = parts[..] {
        return Ok(health(&parts, incoming));
    }
    if incoming.method != Method::GET && incoming.method != Method::HEAD {
        return Ok(Answer::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed\n"));
    }
    let accept = || Accept::read(&incoming.headers);
    let value = |value: Value| Ok(Answer::value(StatusCode::OK, &value, accept()?));
    match parts[..] {
        [] | [""] => value(json!({ "paths": paths(&registry) })),
        ["version"] => value(version()),
        ["metrics"] => Ok(Answer::text(StatusCode::OK, crate::metrics::text(server))
            .of_type("text/plain; version=0.0.4; charset=utf-8")),
        ["api"] if accept()?.form == Form::DiscoveryV2 => Ok(aggregated(registry.groups.iter().take(1))),
        ["apis"] if accept()?.form == Form::DiscoveryV2 => Ok(aggregated(registry.groups.iter().skip(1))),
        ["api"] => value(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443" }],
        })),
        ["apis"] => {
            let groups: Vec<Value> = registry.groups.iter().skip(1).map(group).collect();
            value(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["apis", name] => match registry.group(name) {
            Some(found) if !name.is_empty() => {
                let mut shown = group(found);
                shown["kind"] = "APIGroup".into();
                shown["apiVersion"] = "v1".into();
                value(shown)
            }
            _ => Ok(not_found_text()),
        },
        ["api", name] => versioned(&registry, "", name, accept()?),
        ["apis", group, name] => versioned(&registry, group, name, accept()?),
        ["openapi", ..] => crate::openapi::answer(server, incoming, &parts),
        [".well-known", "openid-configuration"] => value(json!({
            "issuer": crate::auth::tokens::ISSUER, "jwks_uri": "https://kubernetes.default.svc/openid/v1/jwks",
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })),
        _ => Ok(not_found_text()),
    }
}

fn versioned(registry: &Registry, group: &str, name: &str, accept: Accept) -> Result<Answer, Status> {
    match registry.version(group, name) {
        Some(version) => Ok(Answer::value(StatusCode::OK, &resource_list(group, version), accept)),
        None => Ok(not_found_text()),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.3",
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What the real server reports on. Here one process does all of it before it listens.
const CHECKS: [&str; 33] = [
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];
/// Where in the list the checks stand that only readiness, or only health, has.
const AFTER_LOG: usize = 2;
const AFTER_ETCD: usize = 3;

fn checks(of: &str) -> Vec<&'static str> {
    let mut checks = CHECKS.to_vec();
    if of == "readyz" {
        checks.splice(AFTER_ETCD..AFTER_ETCD, ["etcd-readiness", "informer-sync"]);
        checks.push("shutdown");
    } else {
        checks.insert(AFTER_LOG, "loopback-serving-certificate");
    }
    checks
}

fn health(parts: &[&str], incoming: &Incoming) -> Answer {
    let checks = checks(parts[0]);
    let checked = parts[1..].join("/");
    if !checked.is_empty() {
        return match checks.contains(&&*checked) {
            true => Answer::text(StatusCode::OK, "ok"),
            false => not_found_text(),
        };
    }
    if !incoming.info.query.is_true("verbose") {
        return Answer::text(StatusCode::OK, "ok");
    }
    let mut text: String = checks.iter().map(|check| format!("[+]{check} ok\n")).collect();
    text.push_str(&format!("{} check passed\n", parts[0]));
    Answer::text(StatusCode::OK, text)
}

fn paths(registry: &Registry) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/readyz",
        "/version",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    paths.extend(
        CHECKS.iter().flat_map(|check| ["healthz", "livez", "readyz"].map(|root| format!("/{root}/{check}"))),
    );
    for group in registry.groups.iter().skip(1) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name)));
    }
    paths.sort();
    paths
}

fn group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{}/{}", group.name, version.name), "version": &*version.name }))
        .collect();
    json!({ "name": &*group.name, "preferredVersion": versions.first(), "versions": versions })
}

fn verbs(verbs: &[Verb]) -> Value {
    verbs.iter().map(|verb| Value::from(verb.name())).collect()
}

fn resource_list(group: &str, version: &Version) -> Value {
    let mut resources = Vec::new();
    for resource in version.resources.values() {
        resources.push(api_resource(resource));
        resources.extend(resource.subresources.iter().map(|sub| api_subresource(resource, sub)));
    }
    let name = if group.is_empty() { version.name.to_string() } else { format!("{group}/{}", version.name) };
    let mut list = json!({ "kind": "APIResourceList", "groupVersion": name, "resources": resources });
    // The core group, the oldest, leaves it out.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

fn api_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": &*resource.plural, "singularName": &*resource.singular, "namespaced": resource.namespaced(),
        "kind": &*resource.kind, "verbs": verbs(&resource.verbs),
    });
    let optional = [("shortNames", &resource.short_names), ("categories", &resource.categories)];
    for (key, list) in optional.into_iter().filter(|(_, list)| !list.is_empty()) {
        entry[key] = json!(list);
    }
    if !resource.storage_version_hash.is_empty() {
        entry["storageVersionHash"] = resource.storage_version_hash.as_str().into();
    }
    entry
}

fn api_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, sub.name), "singularName": "", "namespaced": resource.namespaced(),
        "kind": sub.kind, "verbs": verbs(&sub.verbs),
    });
    if !sub.api_version.is_empty() {
        let (group, version) = split_api_version(&sub.api_version);
        entry["group"] = group.into();
        entry["version"] = version.into();
    }
    entry
}

fn aggregated<'a>(groups: impl Iterator<Item = &'a Group>) -> Answer {
    let items: Vec<Value> = groups.map(aggregated_group).collect();
    let list = json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items });
    let text = list.to_string();
    let etag = {
        use sha2::Digest as _;
        let digest = sha2::Sha512::digest(text.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
        format!("\"{hex}\"")
    };
    Answer::json(StatusCode::OK, text).of_type(AGGREGATED).with_etag(etag)
}

fn aggregated_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> =
                version.resources.values().map(|resource| aggregated_resource(resource)).collect();
            json!({ "version": &*version.name, "resources": resources, "freshness": "Current" })
        })
        .collect();
    let mut metadata = Map::new();
    if !group.name.is_empty() {
        metadata.insert("name".into(), (&*group.name).into());
    }
    json!({ "metadata": metadata, "versions": versions })
}

fn kind_reference(resource: &Resource, api_version: &str, kind: &str) -> Value {
    // Builtin kinds leave group and version empty when they are the resource's own.
    match (api_version, resource.custom.is_some()) {
        ("", false) => json!({ "group": "", "version": "", "kind": kind }),
        ("", true) => json!({ "group": &*resource.group, "version": &*resource.version, "kind": kind }),
        (other, _) => {
            let (group, version) = split_api_version(other);
            json!({ "group": group, "version": version, "kind": kind })
        }
    }
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": &*resource.plural, "responseKind": kind_reference(resource, "", &resource.kind),
        "scope": if resource.namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular, "verbs": verbs(&resource.verbs),
    });
    for (key, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !list.is_empty() {
            entry[key] = json!(list);
        }
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name, "responseKind": kind_reference(resource, &sub.api_version, &sub.kind),
                "verbs": verbs(&sub.verbs),
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}
