//! `.status.inventory`: the objects of a release, and those of the chart's crds folder. Pure.

use flux_api::meta::{Inventory, InventoryEntry};
use flux_apply::ObjectId;
use helm::plan::{Kinds, objects_of};
use serde_json::Value;

use super::execute::id_of;

/// Hooks are not part of it: they come and go.
pub fn of(manifest: &str, namespace: &str, crds: &[Value], kinds: &dyn Kinds) -> Result<Inventory, String> {
    let objects = objects_of(manifest, namespace, kinds).map_err(|error| error.to_string())?;
    let released = objects.iter().filter(|object| !is_hook(&object.json)).map(id_of);
    let ids = released.filter(|id| !id.name.is_empty()).chain(crds.iter().filter_map(ObjectId::of));
    let entries = ids.map(|id| InventoryEntry { id: id.inventory_id(), version: id.version }).collect();
    Ok(Inventory { entries })
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
        let inventory = of(manifest, "ns", &[crd], &Builtin).unwrap();
        let ids: Vec<&str> = inventory.entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(
            ids,
            ["ns_a__Service", "_b__Namespace", "_x.y_apiextensions.k8s.io_CustomResourceDefinition"]
        );
        assert!(inventory.entries.iter().all(|entry| entry.version == "v1"));
    }
}
