//! Whether a set of manifests is this system itself: then all of it passes dry-run, or nothing of it is written, and what
//! does not come up is rolled back (`guard`). A broken `gotk-components.yaml` must not leave a Flux that could not take the
//! fix. The decisions here are pure.

pub(super) mod guard;
mod last_good;

use flux_api::Object;
use flux_api::kustomize::Kustomization;
use flux_apply::{Inventory, ObjectId};
use serde_json::Value;

use super::observe::SourceKey;
use super::run::KIND;

const PART_OF: &str = "app.kubernetes.io/part-of";
const COMPONENT: &str = "app.kubernetes.io/component";
/// Without these nothing of Git reaches the cluster. `flux` is all of them in one.
const NEEDED: [&str; 3] = ["source-controller", "kustomize-controller", "flux"];

/// Whether `objects` hold CRDs of the toolkit, a controller, or what `own` itself is made of: it and its source.
pub(super) fn is_itself(objects: &[Value], own: &Kustomization) -> bool {
    objects.iter().any(|object| {
        let Some(id) = ObjectId::of(object) else { return false };
        is_toolkit(object, &id) || is_sync(&id, own)
    })
}

/// The same of what was applied before, as far as ids tell.
pub(super) fn is_in(inventory: &Inventory, own: &Kustomization) -> bool {
    inventory.objects().iter().any(|id| is_toolkit_crd(id) || is_sync(id, own))
}

/// The Deployments of this system among `objects`.
fn controllers(objects: &[Value]) -> Vec<ObjectId> {
    let found = objects.iter().filter_map(|object| Some((object, ObjectId::of(object)?)));
    found.filter(|(object, id)| is_controller(object, id)).map(|(_, id)| id).collect()
}

/// Whether nothing could be applied any more without `id`, which looks like `live`: the Kustomization itself, its source,
/// and whatever belongs to the controllers of the two.
pub(super) fn is_needed(id: &ObjectId, live: &Value, own: &Kustomization) -> bool {
    let component = label(live, COMPONENT);
    let of_both = label(live, PART_OF) == Some("flux")
        && component.is_none_or(|component| NEEDED.contains(&component))
        && id.kind != "NetworkPolicy";
    is_sync(id, own) || of_both
}

/// Why nothing could be applied any more after `objects`, not even their fix: they suspend what applies them, or run no controller
/// that could.
pub(super) fn locks_out(objects: &[Value], own: &Kustomization) -> Option<String> {
    let identified = || objects.iter().filter_map(|object| Some((object, ObjectId::of(object)?)));
    let is_suspended = |object: &Value| object.pointer("/spec/suspend") == Some(&Value::Bool(true));
    if let Some((_, id)) = identified().find(|(object, id)| is_sync(id, own) && is_suspended(object)) {
        return Some(format!(
            "{id} has spec.suspend: true, so no later commit could undo it: take it out of the source and use `flux suspend` instead"
        ));
    }
    let is_stopped = |object: &Value| object.pointer("/spec/replicas").and_then(Value::as_i64) == Some(0);
    NEEDED.iter().find_map(|component| {
        let of_it = |(object, id): &(&Value, ObjectId)| {
            is_controller(object, id) && label(object, COMPONENT) == Some(component)
        };
        // Shards may be stopped as long as one of them runs.
        let mut all = identified().filter(of_it);
        let (_, first) = all.next().filter(|(object, _)| is_stopped(object))?;
        all.all(|(object, _)| is_stopped(object)).then(|| {
            format!("{first} has spec.replicas: 0, so no later commit could be applied: set it to 1 or leave it out")
        })
    })
}

fn is_toolkit(object: &Value, id: &ObjectId) -> bool {
    is_toolkit_crd(id) || is_controller(object, id)
}

fn is_toolkit_crd(id: &ObjectId) -> bool {
    id.group == "apiextensions.k8s.io"
        && id.kind == "CustomResourceDefinition"
        && id.name.ends_with(".toolkit.fluxcd.io")
}

fn is_controller(object: &Value, id: &ObjectId) -> bool {
    id.group == "apps" && id.kind == "Deployment" && label(object, PART_OF) == Some("flux")
}

fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(name)?.as_str()
}

fn is_sync(id: &ObjectId, own: &Kustomization) -> bool {
    let itself = ObjectId::of_kind(KIND, Object::namespace(own), own.name());
    id.is_same(&itself) || source_id(own).is_some_and(|source| id.is_same(&source))
}

/// Where the set comes from.
fn source_id(own: &Kustomization) -> Option<ObjectId> {
    let source = SourceKey::primary(own)?;
    Some(ObjectId::of_kind(source.kind_row(), &source.key.namespace, &source.key.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn flux_system() -> Kustomization {
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "flux-system", "namespace": "flux-system"},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_set_that_suspends_itself_or_stops_its_controllers_locks_everybody_out() {
        let own = flux_system();
        let source = |name: &str, suspend: bool| {
            json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": {"name": name, "namespace": "flux-system"}, "spec": {"suspend": suspend}})
        };
        let deployment = |name: &str, component: &str, replicas: i64| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas},
                "metadata": {"name": name, "namespace": "flux-system", "labels": {PART_OF: "flux", COMPONENT: component}}})
        };
        let why = |objects: &[Value]| locks_out(objects, &own).unwrap_or_default();
        assert!(
            why(&[source("fleet", true)])
                .starts_with("GitRepository/flux-system/fleet has spec.suspend: true")
        );
        assert_eq!(why(&[source("fleet", false), source("other", true)]), "");
        let stopped = deployment("kustomize-controller", "kustomize-controller", 0);
        assert!(why(std::slice::from_ref(&stopped)).contains("kustomize-controller has spec.replicas: 0"));
        let shard = deployment("kustomize-controller-shard1", "kustomize-controller", 1);
        assert_eq!(why(&[stopped, shard]), "");
        assert_eq!(why(&[deployment("image-reflector-controller", "image-reflector-controller", 0)]), "");
    }

    #[test]
    fn crds_controllers_and_the_sync_objects_are_the_system_and_apps_are_not() {
        let own = flux_system();
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
        let part = |kind: &str, component: Option<&str>| {
            let mut object = object("v1", kind, "x", "flux");
            if let Some(component) = component {
                object["metadata"]["labels"][COMPONENT] = component.into();
            }
            object
        };
        for (object, expected) in [
            (part("ServiceAccount", Some("source-controller")), true),
            (part("ServiceAccount", Some("image-reflector-controller")), false),
            (part("ClusterRoleBinding", None), true),
            (part("NetworkPolicy", None), false),
            (object("v1", "ServiceAccount", "x", "shop"), false),
            (object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "flux-system", ""), true),
        ] {
            let id = ObjectId::of(&object).unwrap();
            assert_eq!(is_needed(&id, &object, &own), expected, "{object}");
        }
    }
}
