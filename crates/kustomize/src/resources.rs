//! The resources of a build in order, found by id without searching.

use std::collections::{HashMap, HashSet};

use crate::error::{Class, Error};
use crate::id::{IdKey, ResId};
use crate::resource::{Behavior, Resource};
use crate::schemas::KnownSchemas;
use crate::tree::{Text, Tree};

/// An ordered set of resources. Ids are looked up in indexes that are made when first needed and thrown away
/// when a transformer may have changed ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    list: Vec<Resource>,
    present: Option<HashSet<IdKey>>,
    by_any_id: Option<HashMap<IdKey, Vec<usize>>>,
}

/// What every operation on resources needs beside them.
pub(crate) struct Workspace {
    pub tree: Tree,
    pub schemas: KnownSchemas,
    pub warnings: Vec<String>,
    /// Folders built so far, to stop trees that unfold without end.
    pub folders: usize,
}

impl Resources {
    pub(crate) fn from_list(space: &Workspace, list: Vec<Resource>) -> Result<Self, Error> {
        let mut resources = Self::default();
        for resource in list {
            resources.append(space, resource)?;
        }
        Ok(resources)
    }

    pub(crate) fn list(&self) -> &[Resource] {
        &self.list
    }

    /// For changes that keep ids and order as they are.
    pub(crate) fn list_mut(&mut self) -> &mut [Resource] {
        &mut self.list
    }

    /// For changes of any sort: ids are looked at anew afterwards.
    pub(crate) fn list_to_change(&mut self) -> &mut Vec<Resource> {
        self.forget_ids();
        &mut self.list
    }

    pub(crate) fn into_list(self) -> Vec<Resource> {
        self.list
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn forget_ids(&mut self) {
        self.present = None;
        self.by_any_id = None;
    }

    /// Adds a resource; one with the same id may not be there.
    pub(crate) fn append(&mut self, space: &Workspace, resource: Resource) -> Result<(), Error> {
        let id = resource.id(&space.tree, &space.schemas);
        let list = &self.list;
        let present = self.present.get_or_insert_with(|| {
            list.iter().map(|resource| resource.id(&space.tree, &space.schemas).key()).collect()
        });
        if !present.insert(id.key()) {
            let text = format!("may not add resource with an already registered id: {id}");
            return Err(Error::new(Class::DuplicateId, text));
        }
        if let Some(index) = &mut self.by_any_id {
            for key in any_keys(space, &resource) {
                index.entry(key).or_default().push(self.list.len());
            }
        }
        self.list.push(resource);
        Ok(())
    }

    pub(crate) fn append_all(&mut self, space: &Workspace, other: Self) -> Result<(), Error> {
        other.list.into_iter().try_for_each(|resource| self.append(space, resource))
    }

    /// Checks that no two resources have one id.
    pub(crate) fn check_ids(&mut self, space: &Workspace) -> Result<(), Error> {
        let list = std::mem::take(&mut self.list);
        *self = Self::from_list(space, list)?;
        Ok(())
    }

    pub(crate) fn drop_empty(&mut self, tree: &Tree) {
        let before = self.list.len();
        self.list.retain(|resource| !resource.is_empty(tree));
        if self.list.len() != before {
            self.forget_ids();
        }
    }

    /// The resources that have or had this id.
    pub(crate) fn with_any_id(&mut self, space: &Workspace, id: &ResId) -> &[usize] {
        let list = &self.list;
        let index = self.by_any_id.get_or_insert_with(|| {
            let mut index: HashMap<IdKey, Vec<usize>> = HashMap::with_capacity(list.len());
            for (at, resource) in list.iter().enumerate() {
                if resource.is_empty(&space.tree) {
                    continue;
                }
                for key in any_keys(space, resource) {
                    index.entry(key).or_default().push(at);
                }
            }
            index
        });
        index.get(&id.key()).map_or(&[], Vec::as_slice)
    }

    /// The one resource that has or had this id.
    pub(crate) fn target_of_patch(&mut self, space: &Workspace, id: &ResId) -> Result<usize, Error> {
        let matches = match self.with_any_id(space, id) {
            [one] => return Ok(*one),
            [] => "no",
            _ => "multiple",
        };
        let text = format!("{matches} matches for Id {id}; failed to find unique target for patch {id}");
        Err(Error::new(Class::PatchTarget, text))
    }

    /// Takes in what a generator made: new objects are added, others replace or join what is there.
    pub(crate) fn absorb(&mut self, space: &mut Workspace, generated: Vec<Resource>) -> Result<(), Error> {
        generated.into_iter().try_for_each(|resource| self.absorb_one(space, resource))
    }

    fn absorb_one(&mut self, space: &mut Workspace, mut resource: Resource) -> Result<(), Error> {
        let id = resource.id(&space.tree, &space.schemas);
        let behavior = resource.memory.behavior.unwrap_or(Behavior::Unspecified);
        let generator = |text: String| Error::new(Class::Generator, text);
        let matches = self.with_any_id(space, &id).to_vec();
        match (&matches[..], behavior) {
            ([], Behavior::Merge | Behavior::Replace) => {
                Err(generator(format!("id {} does not exist; cannot merge or replace", id.go_syntax())))
            }
            ([], Behavior::Unspecified | Behavior::Create) => self.append(space, resource),
            ([_], Behavior::Unspecified | Behavior::Create) => Err(generator(format!(
                "id {} exists; can not use behavior: '{}', behavior must be merge or replace",
                id.go_syntax(),
                behavior.name()
            ))),
            ([at], Behavior::Merge | Behavior::Replace) => {
                let old = self.list[*at].clone();
                resource.copy_metadata(&mut space.tree, &old)?;
                if behavior == Behavior::Merge {
                    resource.merge_data(&mut space.tree, &old)?;
                    resource.origin = old.origin.or(resource.origin);
                }
                self.list_to_change()[*at] = resource;
                Ok(())
            }
            _ => Err(generator(format!(
                "found multiple objects {} that could accept merge of {id}",
                self.shown(space, &matches)
            ))),
        }
    }

    /// Resources as Go prints a list of them.
    pub(crate) fn shown(&self, space: &Workspace, at: &[usize]) -> String {
        let texts: Vec<String> = at.iter().map(|at| self.list[*at].shown(&space.tree)).collect();
        crate::go_text::list(&texts)
    }
}

fn any_keys(space: &Workspace, resource: &Resource) -> HashSet<IdKey> {
    let mut keys: HashSet<IdKey> = resource.previous_ids(&space.tree).map(|id| id.key()).collect();
    keys.insert(resource.id(&space.tree, &space.schemas).key());
    keys
}

impl Resource {
    /// Labels, annotations, name and namespace of another resource, own labels and annotations on top; the
    /// memory of the other one.
    pub(crate) fn copy_metadata(&mut self, tree: &mut Tree, other: &Self) -> Result<(), Error> {
        self.set_string_map(tree, "labels", merged(other.labels(tree), self.labels(tree)))?;
        self.set_string_map(tree, "annotations", merged(other.annotations(tree), self.annotations(tree)))?;
        let needs_hash = self.memory.needs_hash && other.memory.needs_hash;
        self.memory.clone_from(&other.memory);
        self.memory.needs_hash = needs_hash;
        self.set_name(tree, &other.name(tree))?;
        self.set_namespace(tree, &other.namespace(tree))?;
        self.var_names.clone_from(&other.var_names);
        if self.memory != crate::resource::Memory::default() {
            self.make_room_for_memory(tree);
        }
        Ok(())
    }

    fn merge_data(&mut self, tree: &mut Tree, old: &Self) -> Result<(), Error> {
        for (field, is_binary) in [("data", false), ("binaryData", true)] {
            let all = merged(old.data(tree, field), self.data(tree, field));
            let Some(root) = self.root else { return Ok(()) };
            tree.clear(root, field).map_err(|error| Error::new(Class::Generator, error.to_string()))?;
            crate::generate::load_data(tree, root, &all, is_binary)?;
        }
        Ok(())
    }

    /// Keys and texts of a top-level map; null is an empty text.
    fn data(&self, tree: &Tree, field: &str) -> Vec<(Text, Text)> {
        let Some(map) = self.root.and_then(|root| tree.get(root, field)) else { return Vec::new() };
        let text = |node| if tree.is_null(node) { Text::default() } else { tree.owned_text(node) };
        tree.entries(map).map(|(key, value)| (text(key), text(value))).collect()
    }

    /// The object as JSON, its memory among the annotations, as kustomize prints it in errors.
    pub(crate) fn shown(&self, tree: &Tree) -> String {
        let Some(root) = self.root else { return "null".to_owned() };
        match tree.to_json(root) {
            Ok(mut json) => {
                hide_secrets(&mut json);
                let memory = self.memory.annotations();
                if !memory.is_empty()
                    && let Some(metadata) =
                        json.get_mut("metadata").and_then(serde_json::Value::as_object_mut)
                {
                    let annotations = metadata.entry("annotations").or_insert_with(|| serde_json::json!({}));
                    if let Some(annotations) = annotations.as_object_mut() {
                        annotations.extend(memory.into_iter().map(|(key, value)| (key, value.into())));
                    }
                }
                yaml::json_text(&json)
            }
            Err(error) => format!("<{error}>"),
        }
    }
}

/// What a Secret holds is never shown; its keys are.
fn hide_secrets(object: &mut serde_json::Value) {
    if object.get("kind").and_then(serde_json::Value::as_str) != Some("Secret") {
        return;
    }
    for field in ["data", "stringData"] {
        let Some(entries) = object.get_mut(field).and_then(serde_json::Value::as_object_mut) else {
            continue;
        };
        entries.values_mut().for_each(|value| *value = "***".into());
    }
}

fn merged(first: Vec<(Text, Text)>, then: Vec<(Text, Text)>) -> Vec<(Text, Text)> {
    let mut all: Vec<(Text, Text)> = Vec::with_capacity(first.len() + then.len());
    let mut places: HashMap<Text, usize> = HashMap::new();
    for (key, value) in first.into_iter().chain(then) {
        match places.get(&key) {
            Some(at) => all[*at].1 = value,
            None => {
                places.insert(key.clone(), all.len());
                all.push((key, value));
            }
        }
    }
    all
}
