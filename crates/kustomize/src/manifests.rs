//! What a build returns: objects in order, as JSON or YAML.

use serde_json::Value as Json;

use crate::error::{Class, Error};
use crate::tree::{NodeId, Tree};

/// The objects of a build, in kustomize's order.
#[derive(Debug)]
pub struct Manifests {
    tree: Tree,
    roots: Vec<NodeId>,
}

/// One object of a build.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    tree: &'a Tree,
    root: NodeId,
}

impl Manifests {
    pub(crate) fn new(tree: Tree, roots: Vec<NodeId>) -> Self {
        Self { tree, roots }
    }

    pub fn len(&self) -> usize {
        self.roots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Object<'_>> {
        self.roots.iter().map(|root| Object { tree: &self.tree, root: *root })
    }

    /// All objects as `kustomize build` prints them.
    pub fn to_yaml(&self) -> Result<String, Error> {
        let mut out = String::new();
        for (at, object) in self.iter().enumerate() {
            if at > 0 {
                out.push_str("---\n");
            }
            object.write_yaml(&mut out)?;
        }
        Ok(out)
    }

    /// All objects as JSON values.
    pub fn to_json(&self) -> Result<Vec<Json>, Error> {
        self.iter().map(|object| object.to_json()).collect()
    }
}

impl Object<'_> {
    pub fn api_version(&self) -> &str {
        self.text(&["apiVersion"])
    }

    pub fn kind(&self) -> &str {
        self.text(&["kind"])
    }

    pub fn name(&self) -> &str {
        self.text(&["metadata", "name"])
    }

    /// The namespace; empty when none is set.
    pub fn namespace(&self) -> &str {
        self.text(&["metadata", "namespace"])
    }

    fn text(&self, path: &[&str]) -> &str {
        let mut at = self.root;
        for name in path {
            match self.tree.get(at, name) {
                Some(next) => at = next,
                None => return "",
            }
        }
        self.tree.text(at)
    }

    pub fn to_json(&self) -> Result<Json, Error> {
        self.tree.to_json(self.root).map_err(|error| self.unwritable(&error.to_string()))
    }

    pub fn to_yaml(&self) -> Result<String, Error> {
        let mut out = String::new();
        self.write_yaml(&mut out)?;
        Ok(out)
    }

    fn write_yaml(&self, out: &mut String) -> Result<(), Error> {
        yaml::kustomize_yaml_into(&self.tree.to_yaml(self.root), out)
            .map_err(|error| self.unwritable(&error.to_string()))
    }

    /// kustomize prints the whole object here, secrets and all; this names it, and the field in the way.
    fn unwritable(&self, cause: &str) -> Error {
        let mut error = Error::new(Class::Output, cause);
        if let Some(field) = self.tree.field_without_json(self.root) {
            error = error.context(field);
        }
        error.context(format!("{} {}/{}", self.kind(), self.namespace(), self.name()))
    }
}
