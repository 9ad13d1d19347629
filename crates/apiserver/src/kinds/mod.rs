//! Which kinds are served: the builtin ones of Kubernetes 1.36 and those CustomResourceDefinitions add.
//!
//! A [`Registry`] is an immutable snapshot; a change of CRDs makes a new one. It knows names, scope, verbs and
//! versions; how objects of a kind behave is in `strategy`.

mod builtin;
pub mod custom;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use builtin::builtin;
pub use custom::CustomKind;

/// What a client may do with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Verb> {
        ALL_VERBS.into_iter().find(|verb| verb.name() == name)
    }
}

/// In the order discovery lists them.
pub const ALL_VERBS: [Verb; 8] = [
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// One resource in one version, as a client addresses it.
#[derive(Debug)]
pub struct Resource {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub plural: Arc<str>,
    pub singular: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    pub scope: Scope,
    pub verbs: Vec<Verb>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub storage_version_hash: String,
    pub subresources: Vec<Subresource>,
    /// Where its objects are kept: the same for all versions of a kind.
    pub storage: Arc<str>,
    /// Set for kinds that come from a CustomResourceDefinition.
    pub custom: Option<Arc<CustomKind>>,
}

#[derive(Debug, Clone)]
pub struct Subresource {
    pub name: String,
    /// `group/version` of the kind it answers with, empty when it is the parent's.
    pub api_version: String,
    pub kind: String,
    pub verbs: Vec<Verb>,
}

impl Resource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

/// The storage name of a resource: `deployments.apps`, `pods`.
pub fn storage_name(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

#[derive(Debug, Clone)]
pub struct Version {
    pub name: Arc<str>,
    pub resources: BTreeMap<Arc<str>, Arc<Resource>>,
}

/// An API group with its versions, the preferred one first.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: Arc<str>,
    pub versions: Vec<Version>,
}

/// All kinds served at one moment.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// In the order discovery shows them; the core group ("") first.
    pub groups: Vec<Group>,
    by_storage: HashMap<Arc<str>, Arc<Resource>>,
}

impl Registry {
    /// The builtin kinds and those of `custom`, in discovery's order.
    pub fn new(custom: &[Arc<Resource>]) -> Registry {
        let mut registry = Registry { groups: builtin().to_vec(), by_storage: HashMap::new() };
        let mut added: BTreeMap<Arc<str>, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in custom {
            added.entry(resource.group.clone()).or_default().push(resource.clone());
        }
        for (group, resources) in added {
            registry.add_group(group, resources);
        }
        registry.index();
        registry
    }

    fn add_group(&mut self, name: Arc<str>, resources: Vec<Arc<Resource>>) {
        let at = match self.groups.iter().position(|group| group.name == name) {
            Some(at) => at,
            None => {
                self.groups.push(Group { name, versions: Vec::new() });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        for resource in resources {
            match group.versions.iter_mut().find(|version| version.name == resource.version) {
                Some(version) => drop(version.resources.insert(resource.plural.clone(), resource)),
                None => group.versions.push(Version {
                    name: resource.version.clone(),
                    resources: BTreeMap::from([(resource.plural.clone(), resource)]),
                }),
            }
        }
        group.versions.sort_by(|a, b| custom::version_order(&b.name, &a.name));
    }

    fn index(&mut self) {
        for group in &self.groups {
            for version in group.versions.iter().rev() {
                for resource in version.resources.values() {
                    // Builtin kinds are kept in their preferred version, custom ones in the version their CRD names;
                    // events in the core group, where they were first.
                    let replace = self.by_storage.get(&resource.storage).is_none_or(|known| {
                        known.group == resource.group
                            && known
                                .custom
                                .as_ref()
                                .is_none_or(|custom| *custom.storage_version != *known.version)
                    });
                    if replace {
                        self.by_storage.insert(resource.storage.clone(), resource.clone());
                    }
                }
            }
        }
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| &*group.name == name)
    }

    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|known| &*known.name == version)
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.get(plural)
    }

    /// The version objects of this storage are kept in.
    pub fn stored(&self, storage: &str) -> Option<&Arc<Resource>> {
        self.by_storage.get(storage)
    }

    pub fn all_stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_storage.values()
    }

    pub fn all_versions(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| version.resources.values())
    }

    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = split_api_version(api_version);
        self.version(group, version)?.resources.values().find(|resource| &*resource.kind == kind)
    }
}

/// `apps/v1` → (`apps`, `v1`); `v1` → (``, `v1`).
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
