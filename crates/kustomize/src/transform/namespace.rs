//! The namespace of everything that can have one.

use std::collections::HashMap;

use crate::error::{Class, Error};
use crate::field_specs::{Create, VisitError, Visitor};
use crate::id::IdKey;
use crate::kustomization::FieldSpec;
use crate::resources::{Resources, Workspace};
use crate::schemas::KnownSchemas;
use crate::tree::{Kind, NodeId, ScalarStyle, Tag, Tree};

/// What to set, and where besides `metadata.namespace`.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceChange<'a> {
    pub namespace: &'a str,
    pub specs: &'a [FieldSpec],
    /// Namespaces that are set already stay.
    pub unset_only: bool,
    pub subjects: Subjects,
}

/// Which subjects of role bindings move along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Subjects {
    /// Only those named `default`.
    #[default]
    DefaultOnly,
    None,
    AllServiceAccounts,
}

impl Subjects {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "" | "defaultOnly" => Ok(Self::DefaultOnly),
            "none" => Ok(Self::None),
            "allServiceAccounts" => Ok(Self::AllServiceAccounts),
            other => Err(Error::new(
                Class::Config,
                format!(
                    "invalid value {} for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \"allServiceAccounts\"",
                    crate::go_text::quote(other)
                ),
            )),
        }
    }
}

/// Moves every resource, and refuses to move two onto one id.
pub(crate) fn set(
    space: &mut Workspace,
    resources: &mut Resources,
    change: &NamespaceChange<'_>,
) -> Result<(), Error> {
    let mut ids: HashMap<IdKey, Vec<usize>> = HashMap::new();
    for (at, resource) in resources.list().iter().enumerate() {
        ids.entry(resource.id(&space.tree, &space.schemas).key()).or_default().push(at);
    }
    let filter = Filter::new(change);
    for at in 0..resources.len() {
        let resource = &mut resources.list_mut()[at];
        if resource.is_empty(&space.tree)
            || resource.annotation(&space.tree, "internal.config.kubernetes.io/helm-generated")
                == Some("true")
        {
            continue;
        }
        let Some(root) = resource.root else { continue };
        let before = resource.id(&space.tree, &space.schemas).key();
        resource.store_previous_id(&mut space.tree, &space.schemas)?;
        filter.apply(&mut space.tree, &space.schemas, root)?;
        let after = resource.id(&space.tree, &space.schemas).key();
        if before != after {
            if let Some(places) = ids.get_mut(&before) {
                places.retain(|place| *place != at);
            }
            ids.entry(after.clone()).or_default().push(at);
        }
        if let Some(places) = ids.get(&after).filter(|places| places.len() > 1) {
            let mut places = places.clone();
            places.sort_unstable();
            let text =
                format!("namespace transformation produces ID conflict: {}", resources.shown(space, &places));
            return Err(Error::new(Class::DuplicateId, text));
        }
    }
    resources.forget_ids();
    Ok(())
}

/// Sets the namespace of one object.
pub(crate) fn set_one(
    tree: &mut Tree,
    schemas: &KnownSchemas,
    root: NodeId,
    change: &NamespaceChange<'_>,
) -> Result<(), Error> {
    Filter::new(change).apply(tree, schemas, root)
}

struct Filter<'a> {
    change: &'a NamespaceChange<'a>,
    visitors: Vec<(&'a FieldSpec, Visitor<'a>)>,
    own: FieldSpec,
}

impl<'a> Filter<'a> {
    fn new(change: &'a NamespaceChange<'a>) -> Self {
        let create = Some(Create { kind: Kind::Scalar, tag: Tag::Str });
        // `metadata.namespace` has rules of its own, whatever a field spec says.
        let specs = change.specs.iter().filter(|spec| spec.path != "metadata/namespace");
        let own = FieldSpec { path: "metadata/namespace".to_owned(), create: true, ..FieldSpec::default() };
        Self { change, visitors: specs.map(|spec| (spec, Visitor::new(spec, create))).collect(), own }
    }

    fn apply(&self, tree: &mut Tree, schemas: &KnownSchemas, root: NodeId) -> Result<(), Error> {
        let id = crate::resource::plain_id(tree, root);
        if !schemas.is_cluster_scoped(&id.gvk) {
            let visitor = Visitor::new(&self.own, Some(Create { kind: Kind::Scalar, tag: Tag::Implicit }));
            visitor
                .visit(tree, root, &mut |tree, node| self.set_node(tree, node))
                .map_err(|error| error.into_error())?;
        }
        let is_binding = matches!(id.gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding");
        if is_binding {
            self.subjects(tree, root)?;
        }
        let is_core = id.gvk.group.is_empty() && id.gvk.version == "v1";
        for (spec, visitor) in &self.visitors {
            if (spec.path == "metadata/name" && !is_core)
                || (is_binding
                    && spec.path == "subjects/namespace"
                    && matches!(spec.kind.as_str(), "RoleBinding" | "ClusterRoleBinding"))
            {
                continue;
            }
            visitor.visit(tree, root, &mut |tree, node| self.set_node(tree, node)).map_err(|error| {
                let place = match error.wrong_kind {
                    Some(Kind::Map | Kind::Seq) => "namespace field specs must target scalar nodes",
                    Some(Kind::Scalar) | None => "namespace transformation failed",
                };
                error.into_error().context(place)
            })?;
        }
        Ok(())
    }

    fn set_node(&self, tree: &mut Tree, node: NodeId) -> Result<(), VisitError> {
        let filled = tree.kind(node) == Kind::Scalar && !tree.is_null(node) && !tree.text(node).is_empty();
        if self.change.unset_only && filled {
            return Ok(());
        }
        let value = tree.scalar(self.change.namespace, Tag::Str, ScalarStyle::Plain);
        Ok(tree.set_scalar(node, value)?)
    }

    fn subjects(&self, tree: &mut Tree, root: NodeId) -> Result<(), Error> {
        let (field, wanted) = match self.change.subjects {
            Subjects::None => return Ok(()),
            Subjects::DefaultOnly => ("name", "default"),
            Subjects::AllServiceAccounts => ("kind", "ServiceAccount"),
        };
        let failed = |text: String| {
            Error::new(Class::Transform, text).context("setting namespace on (cluster)role binding subjects")
        };
        let Some(subjects) = tree.get(root, "subjects").filter(|node| !tree.is_null(*node)) else {
            return Ok(());
        };
        for subject in tree.elements(subjects).map_err(|error| failed(error.to_string()))?.to_vec() {
            let value = tree.field(subject, field).map_err(|error| failed(error.to_string()))?;
            let Some(value) = value.filter(|value| !tree.is_null(*value)) else { continue };
            tree.demand(value, Kind::Scalar).map_err(|error| failed(error.to_string()))?;
            if tree.text(value) != wanted {
                continue;
            }
            let namespace = tree.lookup_create(subject, &["namespace"], Kind::Scalar).map_err(failed)?;
            if let Some(namespace) = namespace {
                self.set_node(tree, namespace).map_err(|error| failed(error.text))?;
            }
        }
        Ok(())
    }
}
