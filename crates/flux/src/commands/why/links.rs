//! What an object comes from and what it brought about, as its own fields say. Pure.

use flux_api::kinds;
use flux_apply::ObjectId;
use serde_json::Value;

use crate::kinds::{condition, name, namespace, text};

/// Why one object needs another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    OwnedBy,
    AppliedBy,
    Source,
    DependsOn,
}

impl How {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            How::OwnedBy => "is owned by",
            How::AppliedBy => "is applied by",
            How::Source => "is fetched from",
            How::DependsOn => "depends on",
        }
    }
}

/// Who an object is, from its own fields.
pub(super) fn id(object: &Value) -> ObjectId {
    let (group, version) = group_version(text(object, "/apiVersion"));
    ObjectId {
        group,
        version,
        kind: text(object, "/kind").to_owned(),
        namespace: namespace(object).to_owned(),
        name: name(object).to_owned(),
    }
}

/// What an object cannot be without, nearest first.
pub(super) fn needs(object: &Value) -> Vec<(How, ObjectId)> {
    let own = id(object);
    let mut found = Vec::new();
    for owner in list(object, "/metadata/ownerReferences").filter(|owner| owner["controller"] == true) {
        let (group, version) = group_version(text(owner, "/apiVersion"));
        let (kind, name) = (text(owner, "/kind").to_owned(), text(owner, "/name").to_owned());
        found.push((How::OwnedBy, ObjectId { group, version, kind, namespace: own.namespace.clone(), name }));
    }
    // What a release installs carries the labels of both; the release is nearer.
    let label = |group: &str, key: &str| text(object, &format!("/metadata/labels/{group}~1{key}")).to_owned();
    for kind in [&kinds::HELM_RELEASE, &kinds::KUSTOMIZATION] {
        let name = label(kind.group, "name");
        if !name.is_empty() {
            found.push((How::AppliedBy, ObjectId::of_kind(kind, &label(kind.group, "namespace"), &name)));
            break;
        }
    }
    found.extend(sources(object, &own).into_iter().map(|source| (How::Source, source)));
    for dependency in list(object, "/spec/dependsOn") {
        let kind = or(text(dependency, "/kind"), &own.kind);
        if let Some(kind) = kinds::by_kind(kind) {
            let place = or(text(dependency, "/namespace"), &own.namespace);
            found.push((How::DependsOn, ObjectId::of_kind(kind, place, text(dependency, "/name"))));
        }
    }
    found.retain(|(_, id)| *id != own && !id.name.is_empty());
    found
}

fn sources(object: &Value, own: &ObjectId) -> Vec<ObjectId> {
    let mut found = Vec::new();
    // The HelmChart that a release made knows its repository itself.
    if let Some((place, name)) = text(object, "/status/helmChart").split_once('/') {
        found.push(ObjectId::of_kind(&kinds::HELM_CHART, place, name));
    }
    for place in ["/spec/sourceRef", "/spec/chartRef", "/spec/chart/spec/sourceRef"] {
        let Some(reference) = object.pointer(place) else { continue };
        if let Some(kind) = kinds::by_kind(text(reference, "/kind")) {
            let namespace = or(text(reference, "/namespace"), &own.namespace);
            found.push(ObjectId::of_kind(kind, namespace, text(reference, "/name")));
        }
    }
    found
}

/// What an object applied.
pub(super) fn applied(object: &Value) -> Vec<ObjectId> {
    list(object, "/status/inventory/entries")
        .filter_map(|entry| ObjectId::from_inventory(text(entry, "/id"), text(entry, "/v")))
        .collect()
}

/// How an object is: well, or what is wrong in a word and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Well(String),
    Suspended,
    Broken { reason: String, message: String },
}

/// Judges an object at `now`, in seconds since the epoch.
pub(super) fn state(object: &Value, now: i64) -> State {
    let broken = |reason: &str, message: &str| State::Broken {
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let known = kinds::by_kind(text(object, "/kind"));
    if let Some(kind) = known.filter(|kind| text(object, "/apiVersion").starts_with(kind.group)) {
        if object.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
            return State::Suspended;
        }
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
        return match condition(object, "Ready") {
            None if !kind.has_status || text(object, "/spec/type") == "oci" => State::Well(String::new()),
            None => broken("NotObserved", "no controller has looked at it yet; is it installed and running?"),
            Some(ready) => {
                let (reason, message) = (text(ready, "/reason"), text(ready, "/message"));
                let seen = ready.get("observedGeneration").and_then(Value::as_i64);
                match text(ready, "/status") {
                    _ if seen.is_some() && seen != generation => {
                        broken("NotObserved", "its controller has not looked at the latest change yet")
                    }
                    "True" => State::Well(message.to_owned()),
                    _ => broken(reason, message),
                }
            }
        };
    }
    let health = flux_apply::health::judge(object, now);
    match health.status {
        flux_apply::health::Status::Current => State::Well(health.message),
        status => broken(status.as_str(), &health.message),
    }
}

fn group_version(api_version: &str) -> (String, String) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_owned(), version.to_owned())
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn needed(object: &Value) -> Vec<String> {
        needs(object).iter().map(|(how, id)| format!("{} {id}", how.as_str())).collect()
    }

    #[test]
    fn a_pod_a_release_and_a_kustomization_know_what_they_need() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web-1", "namespace": "apps", "ownerReferences":
                [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": true }] },
        });
        assert_eq!(needed(&pod), ["is owned by ReplicaSet/apps/web"]);
        let release = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": { "name": "web", "namespace": "apps", "labels": {
                "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system" } },
            "spec": { "dependsOn": [{ "name": "db" }], "chart": { "spec": { "sourceRef": { "kind": "HelmRepository", "name": "charts" } } } },
            "status": { "helmChart": "apps/apps-web" },
        });
        assert_eq!(
            needed(&release),
            [
                "is applied by Kustomization/flux-system/apps",
                "is fetched from HelmChart/apps/apps-web",
                "is fetched from HelmRepository/apps/charts",
                "depends on HelmRelease/apps/db",
            ]
        );
        let own = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": "flux-system", "namespace": "flux-system", "labels": {
                "kustomize.toolkit.fluxcd.io/name": "flux-system", "kustomize.toolkit.fluxcd.io/namespace": "flux-system" } },
            "spec": { "sourceRef": { "kind": "GitRepository", "name": "flux-system" } },
        });
        assert_eq!(needed(&own), ["is fetched from GitRepository/flux-system/flux-system"]);
    }

    #[test]
    fn an_object_that_nobody_has_looked_at_is_not_well() {
        let object = |generation: i64, status: &str| {
            json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": "a", "generation": generation },
                "status": { "conditions": [{ "type": "Ready", "status": status, "reason": "R", "message": "m", "observedGeneration": 1 }] },
            })
        };
        assert_eq!(state(&object(1, "True"), 0), State::Well("m".to_owned()));
        assert!(
            matches!(state(&object(2, "True"), 0), State::Broken { reason, .. } if reason == "NotObserved")
        );
        let untouched = json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization" });
        assert!(matches!(state(&untouched, 0), State::Broken { reason, .. } if reason == "NotObserved"));
        assert!(matches!(state(&object(1, "False"), 0), State::Broken { reason, .. } if reason == "R"));
    }
}
