//! One resource of a build: its object, and what the build remembers about it.
//!
//! kustomize keeps its memory (earlier names, prefixes, whether a hash is due) in annotations of the object
//! itself, which others can see and even write. Here it is kept beside the object; [`Memory::absorb`] and
//! [`Memory::annotations`] turn one form into the other where that shows.

use crate::error::{Class, Error};
use crate::id::{Gvk, ResId, split_api_version};
use crate::origin::Origin;
use crate::schemas::KnownSchemas;
use crate::tree::{Kind, NodeId, Text, Tree};

#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// The object; nothing once a patch deleted it.
    pub root: Option<NodeId>,
    pub memory: Memory,
    /// Variables whose value comes from this resource.
    pub var_names: Vec<String>,
    /// Boxed, since hardly any build asks for it.
    pub origin: Option<Box<Origin>>,
    pub transformations: Vec<Origin>,
}

/// What a build remembers about a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Names, namespaces and kinds it had, the first one first. kustomize joins each of them by commas, so that
    /// one with a comma in it counts as two; the three always have the same length.
    names: Vec<Text>,
    namespaces: Vec<Text>,
    kinds: Vec<Text>,
    pub prefixes: Vec<Text>,
    pub suffixes: Vec<Text>,
    pub behavior: Option<Behavior>,
    pub needs_hash: bool,
    pub allow_name_change: bool,
    pub allow_kind_change: bool,
}

/// What a generated object does with one that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behavior {
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl Behavior {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "create" => Self::Create,
            "replace" => Self::Replace,
            "merge" => Self::Merge,
            _ => Self::Unspecified,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Merge => "merge",
        }
    }
}

const PREFIX: &str = "internal.config.kubernetes.io/";

/// Annotations that never leave a build, besides those of the memory.
const BUILD_ANNOTATIONS: [&str; 9] = [
    "internal.config.kubernetes.io/path",
    "internal.config.kubernetes.io/index",
    "internal.config.kubernetes.io/seqindent",
    "internal.config.kubernetes.io/id",
    "internal.config.kubernetes.io/annotations-migration-resource-id",
    "internal.config.kubernetes.io/helm-generated",
    "config.kubernetes.io/path",
    "config.kubernetes.io/index",
    "config.k8s.io/id",
];

/// Annotations that hold the memory.
const MEMORY_ANNOTATIONS: [&str; 10] = [
    "previousKinds",
    "previousNames",
    "prefixes",
    "suffixes",
    "previousNamespaces",
    "allowNameChange",
    "allowKindChange",
    "refBy",
    "generatorBehavior",
    "needsHashSuffix",
];

/// Whether an annotation is kustomize's own.
pub(crate) fn is_build_annotation(key: &str) -> bool {
    BUILD_ANNOTATIONS.contains(&key)
        || key.strip_prefix(PREFIX).is_some_and(|name| MEMORY_ANNOTATIONS.contains(&name))
}

/// Whether a JSON patch leaves an annotation alone.
pub(crate) fn is_internal_annotation(key: &str) -> bool {
    key.starts_with(PREFIX)
        || matches!(key, "config.kubernetes.io/path" | "config.kubernetes.io/index" | "config.k8s.io/id")
}

impl Memory {
    /// Reads the annotations of the memory from an object and removes them from it.
    pub(crate) fn absorb(&mut self, tree: &mut Tree, root: NodeId) -> Result<(), Error> {
        let annotations = metadata(tree, root).and_then(|metadata| tree.get(metadata, "annotations"));
        let Some(annotations) = annotations.filter(|node| tree.kind(*node) == Kind::Map) else {
            return Ok(());
        };
        let own: Vec<(String, String)> = tree
            .entries(annotations)
            .filter_map(|(key, value)| {
                let name = tree.text(key).strip_prefix(PREFIX)?;
                MEMORY_ANNOTATIONS.contains(&name).then(|| (name.to_owned(), tree.text(value).to_owned()))
            })
            .collect();
        if own.is_empty() {
            return Ok(());
        }
        for (name, _) in &own {
            tree.clear(annotations, &format!("{PREFIX}{name}"))
                .map_err(|error| Error::new(Class::Yaml, error.to_string()))?;
        }
        let get = |name: &str| own.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let csv =
            |name: &str| get(name).map_or_else(Vec::new, |text| text.split(',').map(Text::from).collect());
        if get("previousNames").is_some() {
            self.names = csv("previousNames");
            self.namespaces = csv("previousNamespaces");
            self.kinds = csv("previousKinds");
        }
        self.prefixes = csv("prefixes");
        self.suffixes = csv("suffixes");
        self.behavior = get("generatorBehavior").map(Behavior::parse);
        self.needs_hash = get("needsHashSuffix") == Some("enabled");
        self.allow_name_change = get("allowNameChange") == Some("enabled");
        self.allow_kind_change = get("allowKindChange") == Some("enabled");
        self.check_history()
    }

    /// The names it had.
    pub(crate) fn previous_names(&self) -> &[Text] {
        &self.names
    }

    fn push_previous(&mut self, name: &str, namespace: &str, kind: &str) -> Result<(), Error> {
        let pieces =
            |text: &str| text.split(',').filter(|_| !text.is_empty()).map(Text::from).collect::<Vec<_>>();
        self.names.extend(pieces(name));
        self.namespaces.extend(pieces(namespace));
        self.kinds.extend(pieces(kind));
        self.check_history()
    }

    fn check_history(&self) -> Result<(), Error> {
        if self.names.len() == self.namespaces.len() && self.names.len() == self.kinds.len() {
            return Ok(());
        }
        let text =
            "number of previous names, number of previous namespaces, number of previous kinds not equal";
        Err(Error::new(Class::Yaml, text))
    }

    /// The memory as kustomize writes it, sorted by key.
    pub(crate) fn annotations(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut add = |name: &str, value: String| all.push((format!("{PREFIX}{name}"), value));
        let csv = |texts: Vec<&str>| texts.join(",");
        if self.allow_kind_change {
            add("allowKindChange", "enabled".to_owned());
        }
        if self.allow_name_change {
            add("allowNameChange", "enabled".to_owned());
        }
        if let Some(behavior) = self.behavior {
            add("generatorBehavior", behavior.name().to_owned());
        }
        if self.needs_hash {
            add("needsHashSuffix", "enabled".to_owned());
        }
        if !self.prefixes.is_empty() {
            add("prefixes", csv(self.prefixes.iter().map(Text::as_str).collect()));
        }
        if !self.names.is_empty() {
            add("previousKinds", csv(self.kinds.iter().map(Text::as_str).collect()));
            add("previousNames", csv(self.names.iter().map(Text::as_str).collect()));
            add("previousNamespaces", csv(self.namespaces.iter().map(Text::as_str).collect()));
        }
        if !self.suffixes.is_empty() {
            add("suffixes", csv(self.suffixes.iter().map(Text::as_str).collect()));
        }
        all
    }
}

impl Resource {
    /// A resource around an object that was just read or made.
    pub(crate) fn new(tree: &mut Tree, root: NodeId) -> Result<Self, Error> {
        let mut memory = Memory::default();
        memory.absorb(tree, root)?;
        Ok(Self {
            root: Some(root),
            memory,
            var_names: Vec::new(),
            origin: None,
            transformations: Vec::new(),
        })
    }

    pub(crate) fn is_empty(&self, tree: &Tree) -> bool {
        self.root.is_none_or(|root| tree.is_null_or_empty(root))
    }

    pub(crate) fn kind(&self, tree: &Tree) -> Text {
        self.top_field(tree, "kind")
    }

    pub(crate) fn api_version(&self, tree: &Tree) -> Text {
        self.top_field(tree, "apiVersion")
    }

    fn top_field(&self, tree: &Tree, name: &str) -> Text {
        self.root.and_then(|root| tree.get(root, name)).map(|node| tree.owned_text(node)).unwrap_or_default()
    }

    pub(crate) fn name(&self, tree: &Tree) -> Text {
        self.root.map(|root| meta_text(tree, root, "name")).unwrap_or_default()
    }

    pub(crate) fn namespace(&self, tree: &Tree) -> Text {
        self.root.map(|root| meta_text(tree, root, "namespace")).unwrap_or_default()
    }

    pub(crate) fn gvk(&self, tree: &Tree, schemas: &KnownSchemas) -> Gvk {
        let mut gvk = Gvk::from_api_version(&self.api_version(tree), &self.kind(tree));
        gvk.cluster_scoped = schemas.is_cluster_scoped(&gvk);
        gvk
    }

    /// The id by its present name.
    pub(crate) fn id(&self, tree: &Tree, schemas: &KnownSchemas) -> ResId {
        ResId { gvk: self.gvk(tree, schemas), name: self.name(tree), namespace: self.namespace(tree) }
    }

    /// The ids by its earlier names, the first one first.
    pub(crate) fn previous_ids(&self, tree: &Tree) -> impl Iterator<Item = ResId> + '_ {
        let api_version = self.api_version(tree);
        let memory = &self.memory;
        (0..memory.names.len()).map(move |at| ResId {
            gvk: Gvk::from_api_version(&api_version, &memory.kinds[at]),
            name: memory.names[at].clone(),
            namespace: memory.namespaces[at].clone(),
        })
    }

    /// The id it had first.
    pub(crate) fn original_id(&self, tree: &Tree, schemas: &KnownSchemas) -> ResId {
        let first = self.previous_ids(tree).next();
        first.unwrap_or_else(|| self.id(tree, schemas))
    }

    /// Remembers the present id, before it changes.
    pub(crate) fn store_previous_id(&mut self, tree: &mut Tree, schemas: &KnownSchemas) -> Result<(), Error> {
        self.make_room_for_memory(tree);
        let id = self.id(tree, schemas);
        self.memory.push_previous(&id.name, &id.effective_namespace(), &id.gvk.kind)
    }

    /// kustomize's memory is in annotations, so that there is a map of them from then on. Some transformers
    /// change such a map where they would not make one.
    pub(crate) fn make_room_for_memory(&self, tree: &mut Tree) {
        let Some(metadata) = self.root.and_then(|root| tree.get(root, "metadata")) else { return };
        match tree.get(metadata, "annotations") {
            Some(node) if tree.kind(node) == Kind::Map || !tree.content(node).is_empty() => {}
            found => {
                let map = tree.empty(Kind::Map);
                if found.is_some() {
                    // Nothing but an empty map, list or scalar is cleared here.
                    let _ = tree.clear(metadata, "annotations");
                }
                let key = tree.plain("annotations");
                tree.push_field(metadata, key, map);
            }
        }
    }

    pub(crate) fn labels(&self, tree: &Tree) -> Vec<(Text, Text)> {
        self.string_map(tree, "labels")
    }

    pub(crate) fn annotations(&self, tree: &Tree) -> Vec<(Text, Text)> {
        self.string_map(tree, "annotations")
    }

    /// Labels or annotations as kyaml hands them out: texts whatever they mean, the last of equal keys.
    fn string_map(&self, tree: &Tree, field: &str) -> Vec<(Text, Text)> {
        let Some(map) =
            self.root.and_then(|root| metadata(tree, root)).and_then(|node| tree.get(node, field))
        else {
            return Vec::new();
        };
        let mut all: Vec<(Text, Text)> = Vec::new();
        for (key, value) in tree.entries(map) {
            let (key, value) = (tree.owned_text(key), tree.owned_text(value));
            match all.iter_mut().find(|(known, _)| *known == key) {
                Some((_, place)) => *place = value,
                None => all.push((key, value)),
            }
        }
        all
    }

    pub(crate) fn annotation<'t>(&self, tree: &'t Tree, key: &str) -> Option<&'t str> {
        meta_entry(tree, self.root?, "annotations", key)
    }

    pub(crate) fn label<'t>(&self, tree: &'t Tree, key: &str) -> Option<&'t str> {
        meta_entry(tree, self.root?, "labels", key)
    }

    /// Writes labels or annotations anew: sorted, every value a string; none at all removes the field.
    pub(crate) fn set_string_map(
        &self,
        tree: &mut Tree,
        field: &str,
        mut entries: Vec<(Text, Text)>,
    ) -> Result<(), Error> {
        let Some(root) = self.root else { return Ok(()) };
        let failed = |text: String| Error::new(Class::Transform, text);
        let Some(metadata) = tree.lookup_create(root, &["metadata"], Kind::Map).map_err(failed)? else {
            return Ok(());
        };
        tree.clear(metadata, field).map_err(|error| failed(error.to_string()))?;
        if entries.is_empty() {
            return Ok(());
        }
        entries.sort();
        let map = tree.string_map(entries.iter().map(|(key, value)| (key.as_str(), value.clone())));
        tree.set_field(metadata, field, map).map_err(|error| failed(error.to_string()))?;
        Ok(())
    }

    pub(crate) fn set_kind(&self, tree: &mut Tree, kind: &str) -> Result<(), Error> {
        self.set_text(tree, &[], "kind", kind)
    }

    pub(crate) fn set_api_version(&self, tree: &mut Tree, api_version: &str) -> Result<(), Error> {
        self.set_text(tree, &[], "apiVersion", api_version)
    }

    pub(crate) fn set_name(&self, tree: &mut Tree, name: &str) -> Result<(), Error> {
        self.set_text(tree, &["metadata"], "name", name)
    }

    /// An empty namespace removes the field.
    pub(crate) fn set_namespace(&self, tree: &mut Tree, namespace: &str) -> Result<(), Error> {
        if !namespace.is_empty() {
            return self.set_text(tree, &["metadata"], "namespace", namespace);
        }
        let Some(metadata) = self.root.and_then(|root| tree.get(root, "metadata")) else { return Ok(()) };
        tree.clear(metadata, "namespace").map_err(|error| Error::new(Class::Transform, error.to_string()))
    }

    fn set_text(&self, tree: &mut Tree, path: &[&str], field: &str, text: &str) -> Result<(), Error> {
        let Some(root) = self.root else { return Ok(()) };
        let failed = |text: String| Error::new(Class::Transform, text);
        let Some(map) = tree.lookup_create(root, path, Kind::Map).map_err(failed)? else { return Ok(()) };
        let value = tree.plain(text);
        tree.set_field(map, field, value).map_err(|error| failed(error.to_string()))?;
        Ok(())
    }

    /// Whether prefixes and suffixes could come from the same layers as those of another resource.
    pub(crate) fn same_affixes(&self, other: &Self, allow_empty: bool) -> bool {
        let same = |own: &[Text], others: &[Text]| {
            (allow_empty && (own.is_empty() || others.is_empty())) || same_ending(own, others)
        };
        same(&self.memory.prefixes, &other.memory.prefixes)
            && same(&self.memory.suffixes, &other.memory.suffixes)
    }
}

/// Whether the shorter list is the end of the longer one; an empty one is the end only of another.
fn same_ending(a: &[Text], b: &[Text]) -> bool {
    if a.is_empty() || b.is_empty() {
        return a.is_empty() && b.is_empty();
    }
    a.ends_with(b) || b.ends_with(a)
}

/// The id of an object as it stands, without knowledge of its scope.
pub(crate) fn plain_id(tree: &Tree, object: NodeId) -> ResId {
    let field = |name| tree.get(object, name).map_or("", |node| tree.text(node));
    let (group, version) = split_api_version(field("apiVersion"));
    ResId {
        gvk: Gvk::plain(group, version, field("kind")),
        name: meta_text(tree, object, "name"),
        namespace: meta_text(tree, object, "namespace"),
    }
}

/// The metadata of an object, unless it is empty.
pub(crate) fn metadata(tree: &Tree, root: NodeId) -> Option<NodeId> {
    tree.get(root, "metadata").filter(|node| !tree.is_null_or_empty(*node))
}

fn meta_text(tree: &Tree, root: NodeId, field: &str) -> Text {
    let node = metadata(tree, root).and_then(|metadata| tree.get(metadata, field));
    node.filter(|node| !tree.is_null_or_empty(*node)).map(|node| tree.owned_text(node)).unwrap_or_default()
}

fn meta_entry<'t>(tree: &'t Tree, root: NodeId, field: &str, key: &str) -> Option<&'t str> {
    let map = tree.get(metadata(tree, root)?, field)?;
    tree.get(map, key).map(|node| tree.text(node))
}
