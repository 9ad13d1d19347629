//! Visits the fields of an object that a field spec names, making them where it says so.

use std::fmt;

use crate::error::{Class, Error};
use crate::id::split_api_version;
use crate::kustomization::FieldSpec;
use crate::tree::{Kind, NodeId, Tag, Tree, split_path};

/// A field spec with its path split, ready for many objects.
#[derive(Clone, Debug)]
pub(crate) struct Visitor<'a> {
    spec: &'a FieldSpec,
    path: Vec<String>,
    create: Option<Create>,
}

/// What a field becomes that is missing or null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Create {
    pub kind: Kind,
    pub tag: Tag,
}

/// Why a field could not be visited or set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisitError {
    pub text: String,
    /// The kind of the node that was in the way, if that was the trouble.
    pub wrong_kind: Option<Kind>,
}

impl fmt::Display for VisitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for VisitError {
    fn from(text: String) -> Self {
        Self { text, wrong_kind: None }
    }
}

impl From<crate::tree::WrongKind> for VisitError {
    fn from(error: crate::tree::WrongKind) -> Self {
        Self { text: error.to_string(), wrong_kind: Some(error.found) }
    }
}

impl VisitError {
    pub(crate) fn into_error(self) -> Error {
        Error::new(Class::Transform, self.text)
    }

    fn context(self, context: &str) -> Self {
        Self { text: format!("{context}: {}", self.text), ..self }
    }
}

type Set<'s> = &'s mut dyn FnMut(&mut Tree, NodeId) -> Result<(), VisitError>;

impl<'a> Visitor<'a> {
    pub(crate) fn new(spec: &'a FieldSpec, create: Option<Create>) -> Self {
        Self { spec, path: split_path(&spec.path, '/'), create }
    }

    /// All field specs of a list.
    pub(crate) fn all(specs: &'a [FieldSpec], create: Option<Create>) -> Vec<Self> {
        specs.iter().map(|spec| Self::new(spec, create)).collect()
    }

    /// Whether the spec is about objects of this kind.
    pub(crate) fn applies(&self, tree: &Tree, object: NodeId) -> bool {
        let field = |name| tree.get(object, name).map_or("", |node| tree.text(node));
        let (group, version) = split_api_version(field("apiVersion"));
        let accepts = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        accepts(&self.spec.kind, field("kind"))
            && accepts(&self.spec.group, group)
            && accepts(&self.spec.version, version)
    }

    /// Calls `set` on each node at the path, if the spec is about this object.
    pub(crate) fn visit(&self, tree: &mut Tree, object: NodeId, set: Set<'_>) -> Result<(), VisitError> {
        if !self.applies(tree, object) {
            return Ok(());
        }
        self.visit_unchecked(tree, object, set)
    }

    /// As [`Self::visit`], for callers that know the spec applies.
    pub(crate) fn visit_unchecked(
        &self,
        tree: &mut Tree,
        object: NodeId,
        set: Set<'_>,
    ) -> Result<(), VisitError> {
        self.walk(tree, object, &self.path, set).map_err(|error| {
            let id = crate::resource::plain_id(tree, object);
            let error = if id.gvk.kind == "Secret" {
                VisitError { text: crate::error::without_contents(&error.text), ..error }
            } else {
                error
            };
            error.context(&format!("considering field '{}' of object {id}", self.spec.path))
        })
    }

    fn walk(&self, tree: &mut Tree, at: NodeId, path: &[String], set: Set<'_>) -> Result<(), VisitError> {
        let Some((part, rest)) = path.split_first() else { return set(tree, at) };
        if tree.is_null(at) {
            return Ok(());
        }
        match tree.kind(at) {
            Kind::Scalar => Err("expected sequence or mapping node".to_owned().into()),
            Kind::Map => self.walk_map(tree, at, part, rest, set),
            Kind::Seq => {
                for item in tree.content(at).to_vec() {
                    self.walk(tree, item, path, set).map_err(|error| {
                        error.context(&format!("visit traversal on path: {}", crate::go_text::list(path)))
                    })?;
                }
                Ok(())
            }
        }
    }

    fn walk_map(
        &self,
        tree: &mut Tree,
        map: NodeId,
        part: &str,
        rest: &[String],
        set: Set<'_>,
    ) -> Result<(), VisitError> {
        let name = part.strip_suffix("[]").unwrap_or(part);
        if name.is_empty() {
            return Err("cannot set or create an empty field name".to_owned().into());
        }
        let is_list = name != part;
        let create = match self.create {
            Some(create) if self.spec.create && !is_list => {
                Some(if rest.is_empty() { create } else { Create { kind: Kind::Map, tag: Tag::Map } })
            }
            _ => None,
        };
        let found = match create {
            Some(create) => tree.lookup_create(map, &[name], create.kind),
            None => tree.lookup(map, &[name]),
        };
        let Some(field) =
            found.map_err(|error| VisitError::from(error).context(&format!("fieldName: {name}")))?
        else {
            return Ok(());
        };
        if tree.is_null(field) {
            if let Some(create) = create {
                tree.become_empty(field, create.kind, create.tag);
            } else if is_list {
                tree.become_empty(field, Kind::Seq, Tag::Implicit);
            }
        }
        self.walk(tree, field, rest, set)
    }
}
