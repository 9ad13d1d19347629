//! Which objects somebody applied: ids of inventory entries, `<namespace>_<name>_<group>_<kind>`.
//!
//! RBAC names may contain colons, which the id writes as two underscores; no other name can contain an underscore.

use std::fmt;
use std::str::FromStr;

use crate::meta::{Inventory, InventoryEntry};

/// An object, without its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
}

/// A text that is not an inventory id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid inventory id {0:?}: expected <namespace>_<name>_<group>_<kind>")]
pub struct InvalidId(pub String);

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

impl ObjectId {
    /// From the parts of an object.
    pub fn new(namespace: &str, name: &str, group: &str, kind: &str) -> Self {
        ObjectId { namespace: namespace.into(), name: name.into(), group: group.into(), kind: kind.into() }
    }

    /// `Kind/namespace/name`, as messages name an object; `Kind/name` for the whole cluster.
    pub fn human(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{}/{}", self.kind, self.name),
            namespace => format!("{}/{namespace}/{}", self.kind, self.name),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.group.as_str() {
            RBAC_GROUP => self.name.replace(':', "__"),
            _ => self.name.clone(),
        };
        write!(f, "{}_{name}_{}_{}", self.namespace, self.group, self.kind)
    }
}

impl FromStr for ObjectId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        // A name may hold underscores (those of colons), so the parts are taken from both ends.
        let invalid = || InvalidId(text.to_owned());
        let (rest, kind) = text.rsplit_once('_').ok_or_else(invalid)?;
        let (rest, group) = rest.rsplit_once('_').ok_or_else(invalid)?;
        let (namespace, name) = rest.split_once('_').ok_or_else(invalid)?;
        if name.is_empty() || kind.is_empty() {
            return Err(invalid());
        }
        Ok(ObjectId::new(namespace, &name.replace("__", ":"), group, kind))
    }
}

impl Inventory {
    /// The objects with their versions; an entry that cannot be read comes as the error.
    pub fn objects(&self) -> impl Iterator<Item = Result<(ObjectId, &str), InvalidId>> {
        self.entries.iter().map(|entry| Ok((entry.id.parse()?, entry.version.as_str())))
    }

    /// From objects with their versions, in the given order.
    pub fn from_objects<'a>(objects: impl IntoIterator<Item = (&'a ObjectId, &'a str)>) -> Self {
        let entry =
            |(id, version): (&ObjectId, &str)| InventoryEntry { id: id.to_string(), version: version.into() };
        Inventory { entries: objects.into_iter().map(entry).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_as_they_were_written() {
        for (id, text) in [
            (ObjectId::new("apps", "web", "apps", "Deployment"), "apps_web_apps_Deployment"),
            (ObjectId::new("", "prod", "", "Namespace"), "_prod__Namespace"),
            (ObjectId::new("a", "cm", "", "ConfigMap"), "a_cm__ConfigMap"),
            (
                ObjectId::new("", "system:controller:x", RBAC_GROUP, "ClusterRole"),
                "_system__controller__x_rbac.authorization.k8s.io_ClusterRole",
            ),
        ] {
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse(), Ok(id));
        }
    }

    #[test]
    fn a_broken_id_is_an_error() {
        for text in ["", "_", "__", "___", "a_b_c", "a__g_K", "a_b_g_"] {
            assert!(text.parse::<ObjectId>().is_err(), "{text}");
        }
    }
}
