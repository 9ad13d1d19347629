//! What an object is called: in messages, in inventories, in the API.

use std::fmt;

use flux_api::inventory;
use flux_api::kinds::Kind;
use serde_json::Value;

/// Group, version, kind, namespace and name of an object: an inventory id with the version to reach it by. Cluster-scoped objects have no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    /// The id of an object of Flux.
    pub fn of_kind(kind: &Kind, namespace: &str, name: &str) -> Self {
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Reads the id of a manifest; `None` without apiVersion, kind and name.
    pub fn of(manifest: &Value) -> Option<Self> {
        let text =
            |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let api_version = text("/apiVersion")?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("/kind")?.to_owned(),
            namespace: text("/metadata/namespace").unwrap_or_default().to_owned(),
            name: text("/metadata/name")?.to_owned(),
        })
    }

    /// The same object, whatever version of its API either speaks of.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.group, &self.kind, &self.namespace, &self.name)
            == (&other.group, &other.kind, &other.namespace, &other.name)
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The inventory's name for it: `<namespace>_<name>_<group>_<kind>`.
    pub fn inventory_id(&self) -> String {
        inventory::ObjectId::new(&self.namespace, &self.name, &self.group, &self.kind).to_string()
    }

    /// Reads an inventory entry back.
    pub fn from_inventory(id: &str, version: &str) -> Option<Self> {
        let inventory::ObjectId { namespace, name, group, kind } = id.parse().ok()?;
        Some(Self { group, version: version.to_owned(), kind, namespace, name })
    }
}

/// `Kind/namespace/name`, as Flux writes it.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{}/{}", self.kind, self.name);
        }
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// A label or annotation of `object`, whichever is set; annotations win.
pub(crate) fn mark<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    ["annotations", "labels"].iter().find_map(|place| object.get("metadata")?.get(place)?.get(key)?.as_str())
}

/// Whether `object` carries `key` with `value`, in any case.
pub(crate) fn is_marked(object: &Value, key: &str, value: &str) -> bool {
    mark(object, key).is_some_and(|found| found.eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inventory_ids_come_back() {
        for (api_version, kind, namespace, name, id) in [
            ("v1", "Namespace", "", "podinfo", "_podinfo__Namespace"),
            ("apps/v1", "Deployment", "apps", "web", "apps_web_apps_Deployment"),
            (
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                "",
                "system:view",
                "_system__view_rbac.authorization.k8s.io_ClusterRole",
            ),
        ] {
            let manifest = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
            let object = ObjectId::of(&manifest).unwrap();
            assert_eq!(object.inventory_id(), id);
            assert_eq!(ObjectId::from_inventory(id, &object.version), Some(object));
        }
        assert_eq!(ObjectId::from_inventory("nonsense", "v1"), None);
    }

    #[test]
    fn a_manifest_without_a_name_has_no_id() {
        assert_eq!(ObjectId::of(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}})), None);
    }
}
