//! `.status.inventory`: the objects of a release, and those of the chart's crds folder. Pure.

use flux_api::meta::{Inventory, InventoryEntry};
use flux_apply::ObjectId;
use helm::plan::{Kinds, Object, objects_of};
use serde_json::Value;

use super::execute::id_of;

/// An inventory, and what could not be found out about its objects.
#[derive(Debug, PartialEq)]
pub struct Listed {
    pub inventory: Inventory,
    pub warnings: Vec<String>,
}

/// Hooks are not part of it: they come and go. `crds` are the objects of the crds folder, or why they cannot be read.
pub fn of(
    manifest: &str,
    namespace: &str,
    crds: Result<&[Value], &str>,
    kinds: &dyn Kinds,
) -> Result<Listed, String> {
    let objects = objects_of(manifest, namespace, kinds)
        .map_err(|error| format!("failed to parse manifest: {error}"))?;
    let released: Vec<&Object> =
        objects.iter().filter(|object| !is_hook(&object.json) && !object.key.name.is_empty()).collect();
    let unplaced = |object: &Object| {
        kinds.is_namespaced(&object.api_version, &object.key.kind).is_none()
            && object.json.pointer("/metadata/namespace").is_none()
    };
    let warnings = released.iter().filter(|object| unplaced(object)).map(|object| {
        let (kind, version) = (&object.key.kind, &object.api_version);
        format!(
            "failed to determine if {kind} is namespace scoped, skipping namespace: no matches for kind \"{kind}\" in version \"{version}\""
        )
    });
    let warnings = warnings.collect();
    let placed = released.iter().map(|object| match unplaced(object) {
        true => ObjectId { namespace: String::new(), ..id_of(object) },
        false => id_of(object),
    });
    let ids = placed.chain(crds?.iter().filter_map(ObjectId::of));
    let entries = ids.map(|id| InventoryEntry { id: id.inventory_id(), version: id.version }).collect();
    Ok(Listed { inventory: Inventory { entries }, warnings })
}

fn is_hook(object: &Value) -> bool {
    object.pointer("/metadata/annotations").and_then(|annotations| annotations.get("helm.sh/hook")).is_some()
}

#[cfg(test)]
mod tests {
    use helm::plan::Builtin;
    use serde_json::json;

    use super::*;

    #[test]
    fn released_objects_and_crds_are_listed_and_hooks_are_not() {
        let manifest = "---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: c, annotations: {helm.sh/hook: pre-install}}\n";
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x.y"}});
        let Listed { inventory, warnings } = of(manifest, "ns", Ok(&[crd]), &Builtin).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        let ids: Vec<&str> = inventory.entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(
            ids,
            ["ns_a__Service", "_b__Namespace", "_x.y_apiextensions.k8s.io_CustomResourceDefinition"]
        );
        assert!(inventory.entries.iter().all(|entry| entry.version == "v1"));
    }

    #[test]
    fn what_cannot_be_placed_or_read_is_told() {
        let manifest = "---\napiVersion: x/v1\nkind: Widget\nmetadata: {name: a}\n---\napiVersion: x/v1\nkind: Widget\nmetadata: {name: b, namespace: own}\n";
        let listed = of(manifest, "ns", Ok(&[]), &Builtin).unwrap();
        let ids: Vec<&str> = listed.inventory.entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, ["_a_x_Widget", "own_b_x_Widget"]);
        assert_eq!(
            listed.warnings,
            [
                "failed to determine if Widget is namespace scoped, skipping namespace: no matches for kind \"Widget\" in version \"x/v1\""
            ]
        );
        assert_eq!(of(manifest, "ns", Err("crds/a.yaml: bad"), &Builtin).unwrap_err(), "crds/a.yaml: bad");
        assert!(
            of("kind: [", "ns", Ok(&[]), &Builtin).unwrap_err().starts_with("failed to parse manifest: ")
        );
    }
}
