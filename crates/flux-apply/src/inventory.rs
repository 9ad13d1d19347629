//! What a Kustomization has applied, by id. Pure.

use std::collections::BTreeMap;

use crate::object::ObjectId;

/// Ids with their API versions, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<String, String>);

impl Inventory {
    pub fn from_entries(entries: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(entries.into_iter().collect())
    }

    pub fn of<'a>(objects: impl IntoIterator<Item = &'a ObjectId>) -> Self {
        Self(objects.into_iter().map(|id| (id.inventory_id(), id.version.clone())).collect())
    }

    /// `(id, version)` in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(id, version)| (id.as_str(), version.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains_key(&id.inventory_id())
    }

    /// Everything in either; the version of `other` wins.
    pub fn union(&self, other: &Inventory) -> Inventory {
        let mut both = self.0.clone();
        both.extend(other.0.clone());
        Self(both)
    }

    /// What is here and not in `other`. Another API version of the same object is the same object.
    pub fn minus(&self, other: &Inventory) -> Vec<ObjectId> {
        self.0
            .iter()
            .filter(|(id, _)| !other.0.contains_key(*id))
            .filter_map(|(id, version)| ObjectId::from_inventory(id, version))
            .collect()
    }

    pub fn objects(&self) -> Vec<ObjectId> {
        self.minus(&Inventory::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(entries: &[(&str, &str)]) -> Inventory {
        Inventory::from_entries(entries.iter().map(|(id, version)| ((*id).to_owned(), (*version).to_owned())))
    }

    #[test]
    fn another_version_is_not_another_object() {
        let old = inventory(&[("a_x_apps_Deployment", "v1beta1"), ("a_y__ConfigMap", "v1")]);
        let new = inventory(&[("a_x_apps_Deployment", "v1")]);
        let gone: Vec<String> = old.minus(&new).iter().map(ToString::to_string).collect();
        assert_eq!(gone, ["ConfigMap/a/y"]);
    }
}
