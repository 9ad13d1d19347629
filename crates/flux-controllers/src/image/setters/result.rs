//! What an update changed: file → object → changes, the shape that message templates see.

use std::collections::{BTreeMap, BTreeSet};

/// Which object a change is in. In a file that holds none, such as Helm values, all of it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    // In the order of upstream's struct, by which templates range over them.
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub old_value: String,
    pub new_value: String,
    /// The marker: `namespace:policy`, perhaps with a part.
    pub setter: String,
}

/// All changes of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// By path below the update's folder.
    pub files: BTreeMap<String, BTreeMap<ObjectId, Vec<Change>>>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn add(&mut self, file: &str, object: ObjectId, change: Change) {
        let objects = self.files.entry(file.to_owned()).or_default();
        objects.entry(object).or_default().push(change);
    }

    /// Changes by object, whatever file it is in.
    pub fn objects(&self) -> BTreeMap<ObjectId, Vec<Change>> {
        let mut objects: BTreeMap<ObjectId, Vec<Change>> = BTreeMap::new();
        for (object, changes) in self.files.values().flatten() {
            objects.entry(object.clone()).or_default().extend(changes.iter().cloned());
        }
        objects
    }

    /// Every change once. Upstream's order is that of a Go map, that is, none; this one is by file and place.
    pub fn distinct(&self) -> Vec<Change> {
        let mut seen = BTreeSet::new();
        let all = self.files.values().flat_map(|objects| objects.values()).flatten();
        all.filter(|change| seen.insert((*change).clone())).cloned().collect()
    }
}
