//! Names of resources inside other resources, brought up to date after the names changed.
//!
//! Each field that may hold a name is looked at once, and the resources that ever had that name are found in
//! an index: the work grows with the number of fields, not with the square of the number of resources.

use std::collections::{HashMap, HashSet};

use crate::error::{Class, Error};
use crate::field_specs::{FieldSpecs, VisitError, Visitor};
use crate::id::{Gvk, NOT_A_NAMESPACE, ResId};
use crate::kustomization::FieldSpec;
use crate::resource::Resource;
use crate::resources::{Resources, Workspace};
use crate::tree::{Kind, NodeId, Text, Tree};

/// Updates every reference that the field specs know of.
pub(crate) fn update(space: &mut Workspace, resources: &Resources, specs: &FieldSpecs) -> Result<(), Error> {
    let referrers = Referrers::new(specs);
    let index = Index::new(space, resources.list());
    for at in 0..resources.len() {
        let selected = referrers.of(&index.original_ids[at].gvk);
        if selected.is_empty() {
            continue;
        }
        let referrer = Referrer::new(&space.tree, resources.list(), &index, at)?;
        for reference in selected {
            referrer.update(&mut space.tree, reference)?;
        }
    }
    Ok(())
}

/// One field that may hold the name of one kind.
struct Reference<'a> {
    target: Gvk,
    spec: &'a FieldSpec,
    gvk: Gvk,
    visitor: Visitor<'a>,
}

/// The fields to look at, by the kind they stand in.
struct Referrers<'a> {
    references: Vec<Reference<'a>>,
    by_kind: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Referrers<'a> {
    fn new(specs: &'a FieldSpecs) -> Self {
        let mut references = Vec::new();
        let mut by_kind: HashMap<&str, Vec<usize>> = HashMap::new();
        for back_reference in &specs.name_reference {
            for spec in &back_reference.referrers {
                by_kind.entry(&spec.kind).or_default().push(references.len());
                let visitor = Visitor::new(spec, None);
                references.push(Reference { target: back_reference.gvk(), spec, gvk: spec.gvk(), visitor });
            }
        }
        Self { references, by_kind }
    }

    /// In the order of the table.
    fn of(&self, gvk: &Gvk) -> Vec<&Reference<'a>> {
        let places = |kind: &str| self.by_kind.get(kind).map_or(&[][..], Vec::as_slice);
        let mut all: Vec<usize> = places(&gvk.kind).to_vec();
        if !gvk.kind.is_empty() {
            all.extend(places(""));
        }
        all.sort_unstable();
        all.iter()
            .map(|at| &self.references[*at])
            .filter(|reference| gvk.selected_by(&reference.gvk))
            .collect()
    }
}

/// What is looked up again and again about all resources.
struct Index {
    ids: Vec<ResId>,
    namespaces: Vec<Text>,
    original_ids: Vec<ResId>,
    /// Who ever had a name.
    by_previous_name: HashMap<Text, Vec<usize>>,
    by_original_namespace: HashMap<Text, Vec<usize>>,
}

impl Index {
    fn new(space: &Workspace, list: &[Resource]) -> Self {
        let (tree, schemas) = (&space.tree, &space.schemas);
        let ids: Vec<ResId> = list.iter().map(|resource| resource.id(tree, schemas)).collect();
        let original_ids: Vec<ResId> = list
            .iter()
            .zip(&ids)
            .map(|(resource, id)| resource.previous_ids(tree).next().unwrap_or_else(|| id.clone()))
            .collect();
        let mut by_previous_name: HashMap<Text, Vec<usize>> = HashMap::new();
        let mut by_original_namespace: HashMap<Text, Vec<usize>> = HashMap::new();
        for (at, resource) in list.iter().enumerate() {
            by_original_namespace.entry(original_ids[at].effective_namespace()).or_default().push(at);
            for name in resource.memory.previous_names() {
                let places = by_previous_name.entry(name.clone()).or_default();
                if places.last() != Some(&at) {
                    places.push(at);
                }
            }
        }
        let namespaces = ids.iter().map(ResId::effective_namespace).collect();
        Self { ids, namespaces, original_ids, by_previous_name, by_original_namespace }
    }
}

/// A resource whose references are updated, and what it may refer to.
struct Referrer<'a> {
    list: &'a [Resource],
    index: &'a Index,
    at: usize,
    /// Namespaces of the service accounts that a role binding names.
    subject_namespaces: HashSet<Text>,
}

/// How alike several candidates must be for the first of them to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alike {
    Names,
    NamesAndNamespaces,
}

impl<'a> Referrer<'a> {
    fn new(tree: &Tree, list: &'a [Resource], index: &'a Index, at: usize) -> Result<Self, Error> {
        let subject_namespaces = if index.ids[at].gvk.cluster_scoped {
            HashSet::new()
        } else {
            subject_namespaces(tree, &list[at], &index.ids[at])?
        };
        Ok(Self { list, index, at, subject_namespaces })
    }

    fn update(&self, tree: &mut Tree, reference: &Reference<'_>) -> Result<(), Error> {
        let Some(root) = self.list[self.at].root else { return Ok(()) };
        reference
            .visitor
            .visit_unchecked(tree, root, &mut |tree, node| self.set(tree, node, reference))
            .map_err(|error| {
                let place = format!(
                    "updating name reference in '{}' field of '{}'",
                    reference.spec.path, self.index.ids[self.at]
                );
                Error::new(Class::Reference, error.text).context(place)
            })
    }

    fn set(&self, tree: &mut Tree, node: NodeId, reference: &Reference<'_>) -> Result<(), VisitError> {
        if tree.is_null(node) {
            return Ok(());
        }
        match tree.kind(node) {
            Kind::Scalar => self.set_scalar(tree, node, reference),
            Kind::Map => self.set_map(tree, node, reference),
            Kind::Seq => {
                for item in tree.content(node).to_vec() {
                    if tree.is_null(item) {
                        continue;
                    }
                    match tree.kind(item) {
                        Kind::Scalar => self.set_scalar(tree, item, reference)?,
                        Kind::Map => self.set_map(tree, item, reference)?,
                        Kind::Seq => {
                            return Err(
                                "a list inside a list is expected to be either a string or a map of string"
                                    .to_owned()
                                    .into(),
                            );
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// A field that is a name.
    fn set_scalar(&self, tree: &mut Tree, node: NodeId, reference: &Reference<'_>) -> Result<(), VisitError> {
        let found = self.select(tree, tree.text(node), reference, None, Alike::Names)?;
        let Some(name) = found.map(|at| self.index.ids[at].name.clone()) else { return Ok(()) };
        if name != tree.text(node) {
            let value = tree.plain(name);
            tree.set_scalar(node, value)?;
        }
        Ok(())
    }

    /// A field with `name` and `namespace` below it, both of which may change.
    fn set_map(&self, tree: &mut Tree, node: NodeId, reference: &Reference<'_>) -> Result<(), VisitError> {
        let Some(name) = tree.field(node, "name")? else {
            return Err("path config error; no 'name' field in node".to_owned().into());
        };
        let namespace = tree.field(node, "namespace")?.map(|node| tree.owned_text(node));
        let old = tree.owned_text(name);
        let found = self.select(tree, &old, reference, namespace.as_deref(), Alike::NamesAndNamespaces)?;
        let Some(id) = found.map(|at| &self.index.ids[at]) else { return Ok(()) };
        if id.name == old && id.namespace.is_empty() {
            return Ok(());
        }
        let name = tree.plain(id.name.clone());
        tree.set_field(node, "name", name)?;
        if !id.namespace.is_empty() {
            let namespace = tree.plain(id.namespace.clone());
            tree.set_field(node, "namespace", namespace)?;
        }
        Ok(())
    }

    /// The resource that a name refers to, if any.
    fn select(
        &self,
        tree: &Tree,
        name: &str,
        reference: &Reference<'_>,
        namespace: Option<&str>,
        alike: Alike,
    ) -> Result<Option<usize>, VisitError> {
        let Some(known) = self.index.by_previous_name.get(name) else { return Ok(None) };
        let role = self.role(tree, reference);
        let in_namespace = namespace.map(|namespace| self.namespace_filter(namespace));
        let mut candidates: Vec<usize> = known
            .iter()
            .copied()
            .filter(|at| self.may_refer_to(*at))
            .filter(|at| in_namespace.as_ref().is_none_or(|filter| filter.accepts(self.index, *at)))
            .filter(|at| self.list[*at].previous_ids(tree).any(|id| id.gvk.selected_by(&reference.target)))
            .filter(|at| {
                role.as_ref()
                    .is_none_or(|role| self.list[*at].previous_ids(tree).any(|id| id.gvk.selected_by(role)))
            })
            .filter(|at| self.is_near(tree, *at))
            .collect();
        let own = &self.list[self.at];
        if candidates.len() != 1 {
            candidates.retain(|at| self.list[*at].same_affixes(own, true));
        }
        if candidates.len() > 1 {
            candidates.retain(|at| self.list[*at].same_affixes(own, false));
        }
        match &candidates[..] {
            [] => Ok(None),
            [first, rest @ ..] => {
                if rest.iter().all(|at| self.is_alike(*first, *at, alike)) {
                    return Ok(Some(*first));
                }
                Err(self.ambiguous(tree, &candidates).into())
            }
        }
    }

    fn is_alike(&self, a: usize, b: usize, alike: Alike) -> bool {
        let (a, b) = (&self.index.ids[a], &self.index.ids[b]);
        a.name == b.name && (alike == Alike::Names || a.namespace == b.namespace)
    }

    /// Namespaced resources refer to their own namespace and to what has none; role bindings also to the
    /// namespaces of their service accounts.
    fn may_refer_to(&self, at: usize) -> bool {
        let ids = &self.index.ids;
        ids[self.at].gvk.cluster_scoped
            || ids[at].gvk.cluster_scoped
            || self.index.namespaces[self.at] == self.index.namespaces[at]
            || self.subject_namespaces.contains(&ids[at].namespace)
    }

    fn is_near(&self, tree: &Tree, at: usize) -> bool {
        let ids = &self.index.ids;
        ids[self.at].gvk.cluster_scoped
            || ids[at].gvk.cluster_scoped
            || self.list[at].kind(tree) == "ServiceAccount"
            || self.index.namespaces[self.at] == self.index.namespaces[at]
    }

    /// A namespace in the reference means the original one if any candidate came from it, else the present one.
    fn namespace_filter(&self, namespace: &str) -> NamespaceFilter {
        let original = self.index.by_original_namespace.get(namespace).is_some_and(|places| {
            namespace != NOT_A_NAMESPACE && places.iter().any(|at| self.may_refer_to(*at))
        });
        NamespaceFilter { namespace: namespace.into(), original }
    }

    /// The kind that a role binding says it refers to.
    fn role(&self, tree: &Tree, reference: &Reference<'_>) -> Option<Gvk> {
        if !reference.spec.path.ends_with("roleRef/name") {
            return None;
        }
        let role = tree.get(self.list[self.at].root?, "roleRef")?;
        let field = |name| tree.field(role, name).ok().flatten().map(|node| tree.text(node));
        Some(Gvk::plain(field("apiGroup")?, "", field("kind")?))
    }

    fn ambiguous(&self, tree: &Tree, candidates: &[usize]) -> String {
        let ids: Vec<String> = candidates.iter().map(|at| self.index.ids[*at].to_string()).collect();
        let mut text = format!(
            "found multiple possible referrals: {}\n\n**** Too many possible referral targets to referrer:\n{}\n",
            ids.join(", "),
            self.list[self.at].yaml(tree)
        );
        // Thousands of candidates would make a text nobody reads.
        for (number, at) in candidates.iter().take(20).enumerate() {
            text.push_str(&format!("--- possible referral {number}:\n{}\n", self.list[*at].yaml(tree)));
        }
        text
    }
}

struct NamespaceFilter {
    namespace: Text,
    original: bool,
}

impl NamespaceFilter {
    fn accepts(&self, index: &Index, at: usize) -> bool {
        if self.namespace == NOT_A_NAMESPACE {
            return false;
        }
        if self.original {
            return index.original_ids[at].effective_namespace() == self.namespace;
        }
        index.namespaces[at] == self.namespace
    }
}

fn subject_namespaces(tree: &Tree, resource: &Resource, id: &ResId) -> Result<HashSet<Text>, Error> {
    let mut namespaces = HashSet::new();
    let Some(root) = resource.root.filter(|_| id.gvk.kind == "RoleBinding") else { return Ok(namespaces) };
    let Some(subjects) = tree.get(root, "subjects").filter(|node| tree.kind(*node) == Kind::Seq) else {
        return Ok(namespaces);
    };
    for subject in tree.content(subjects) {
        let (Some(namespace), Some(kind)) = (tree.get(*subject, "namespace"), tree.get(*subject, "kind"))
        else {
            continue;
        };
        if tree.text(kind) != "ServiceAccount" {
            continue;
        }
        if !tree.is_read_as_string(namespace) {
            let text = format!(
                "Invalid Input: namespace is blank for resource {}\n",
                crate::go_text::quote(&id.to_string())
            );
            return Err(Error::new(Class::Reference, text));
        }
        namespaces.insert(tree.owned_text(namespace));
    }
    Ok(namespaces)
}

impl Resource {
    /// The object as YAML, its memory among the annotations.
    fn yaml(&self, tree: &Tree) -> String {
        serde_json::from_str(&self.shown(tree))
            .map(|json| crate::yaml_text::from_json(&json))
            .unwrap_or_default()
    }
}
