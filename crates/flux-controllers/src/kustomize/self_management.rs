//! Whether a set of manifests is this system itself: then all of it passes dry-run, or nothing of it is written. A broken
//! `gotk-components.yaml` must not leave half of a Flux that could not take the fix. Pure.

use flux_api::Object;
use flux_api::kinds;
use flux_api::kustomize::Kustomization;
use flux_apply::ObjectId;
use serde_json::Value;

use super::observe::SourceKey;
use super::run::KIND;

const PART_OF: &str = "app.kubernetes.io/part-of";

/// Whether `objects` hold CRDs of the toolkit, a controller, or what `own` itself is made of: it and its source.
pub(super) fn is_itself(objects: &[Value], own: &Kustomization) -> bool {
    objects.iter().any(|object| {
        let Some(id) = ObjectId::of(object) else { return false };
        is_toolkit(object, &id) || is_sync(&id, own)
    })
}

fn is_toolkit(object: &Value, id: &ObjectId) -> bool {
    let label = object.get("metadata").and_then(|metadata| metadata.get("labels")?.get(PART_OF)?.as_str());
    match (id.group.as_str(), id.kind.as_str()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => id.name.ends_with(".toolkit.fluxcd.io"),
        ("apps", "Deployment") => label == Some("flux"),
        _ => false,
    }
}

fn is_sync(id: &ObjectId, own: &Kustomization) -> bool {
    let place = Object::namespace(own);
    let is_own = id.group == kinds::KUSTOMIZE_GROUP
        && id.kind == KIND.kind
        && id.name == own.name()
        && id.namespace == place;
    let source = SourceKey::primary(own).is_some_and(|source| {
        let kind = source.kind_row();
        id.group == kind.group
            && id.kind == kind.kind
            && id.name == source.key.name
            && id.namespace == source.key.namespace
    });
    is_own || source
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn crds_controllers_and_the_sync_objects_are_the_system_and_apps_are_not() {
        let own: Kustomization = serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "flux-system", "namespace": "flux-system"},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        }))
        .unwrap();
        let object = |api_version: &str, kind: &str, name: &str, label: &str| {
            json!({"apiVersion": api_version, "kind": kind,
                "metadata": {"name": name, "namespace": "flux-system", "labels": {PART_OF: label}}})
        };
        let crd = object(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "buckets.source.toolkit.fluxcd.io",
            "",
        );
        for (object, expected) in [
            (crd, true),
            (object("apps/v1", "Deployment", "source-controller", "flux"), true),
            (object("apps/v1", "Deployment", "web", "shop"), false),
            (object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "flux-system", ""), true),
            (object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "apps", ""), false),
            (object("source.toolkit.fluxcd.io/v1", "GitRepository", "fleet", ""), true),
            (object("source.toolkit.fluxcd.io/v1", "GitRepository", "other", ""), false),
        ] {
            assert_eq!(is_itself(std::slice::from_ref(&object), &own), expected, "{object}");
        }
    }
}
