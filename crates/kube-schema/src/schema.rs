//! A schema as its readers see it: a small copyable handle into the tables.

use serde_json::Value;

use crate::tables::{Edge, Node, Tables, Text, Type, flag, go};

/// The schema of one value: an object, a field, a list's items, a map's values.
///
/// `Copy` and two pointers wide: pass it by value while walking a document.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    tables: &'a Tables,
    node: &'a Node,
    /// How this place uses the type; none for a definition itself.
    edge: Option<&'a Edge>,
}

/// How server-side apply treats a list (`x-kubernetes-list-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    Map,
}

/// How server-side apply treats an object (`x-kubernetes-map-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    Atomic,
    Granular,
}

/// How a builtin kind's Go structure holds a field. Kubernetes decodes into these structures and encodes
/// them again, so they decide what an object looks like after a round trip: an empty string in an `omitempty`
/// field vanishes, a structure that is no pointer is always written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoField<'a> {
    pub pointer: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    pub holds: GoValue,
    /// As Go's decoder names it in errors: `int32`, `v1.PodSpec`, `[]v1.Container`.
    pub type_name: &'a str,
}

/// What kind of Go value a field holds, behind its pointer if it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoValue {
    Struct,
    Slice,
    Map,
    Scalar,
}

impl<'a> Schema<'a> {
    pub(crate) fn of_node(tables: &'a Tables, node: u32) -> Self {
        Schema { tables, node: tables.node(node), edge: None }
    }

    pub(crate) fn of_edge(tables: &'a Tables, edge: &'a Edge) -> Self {
        Schema { tables, node: tables.node(edge.node), edge: Some(edge) }
    }

    /// The JSON type.
    pub fn type_(self) -> Type {
        self.node.type_
    }

    /// `int32`, `int64`, `date-time`, `byte`, `int-or-string`, …
    pub fn format(self) -> Option<&'a str> {
        self.tables.some(self.node.format)
    }

    /// The named field's schema. Map entries are not fields: see [`Schema::map_values`].
    pub fn field(self, name: &str) -> Option<Schema<'a>> {
        let fields = &self.node.fields;
        let found = fields.binary_search_by(|edge| self.tables.text(edge.name).cmp(name)).ok()?;
        Some(Schema::of_edge(self.tables, &fields[found]))
    }

    /// All fields, sorted by name.
    pub fn fields(self) -> impl ExactSizeIterator<Item = (&'a str, Schema<'a>)> {
        let tables = self.tables;
        self.node.fields.iter().map(move |edge| (tables.text(edge.name), Schema::of_edge(tables, edge)))
    }

    /// The schema of a map's values (`additionalProperties`).
    pub fn map_values(self) -> Option<Schema<'a>> {
        self.node.values.as_deref().map(|edge| Schema::of_edge(self.tables, edge))
    }

    /// What stands under `name`: the field, else the map's values.
    pub fn child(self, name: &str) -> Option<Schema<'a>> {
        self.field(name).or_else(|| self.map_values())
    }

    /// The schema of a list's items.
    pub fn items(self) -> Option<Schema<'a>> {
        self.node.items.as_deref().map(|edge| Schema::of_edge(self.tables, edge))
    }

    /// Names of the required fields.
    pub fn required(self) -> impl Iterator<Item = &'a str> {
        self.texts(&self.node.required)
    }

    /// The allowed values, if the type is an enumeration.
    pub fn enum_values(self) -> impl Iterator<Item = Value> + 'a {
        self.texts(&self.node.allowed).filter_map(|text| serde_json::from_str(text).ok())
    }

    /// `x-kubernetes-patch-strategy` as written: "merge", "retainKeys", "merge,retainKeys", "replace".
    pub fn patch_strategy(self) -> Option<&'a str> {
        self.use_or_type(|edge| edge.patch_strategy, self.node.patch_strategy)
    }

    /// Whether the patch strategy names this one.
    pub fn has_patch_strategy(self, strategy: &str) -> bool {
        self.patch_strategy().is_some_and(|all| all.split(',').any(|one| one == strategy))
    }

    /// The single key of strategic merge (`x-kubernetes-patch-merge-key`).
    pub fn merge_key(self) -> Option<&'a str> {
        self.use_or_type(|edge| edge.merge_key, self.node.merge_key)
    }

    /// The keys kustomize merges a list by: the list-map keys if there are any, else the merge key;
    /// none at all without a patch strategy.
    pub fn merge_keys(self) -> Vec<&'a str> {
        if self.patch_strategy().is_none() {
            return Vec::new();
        }
        if self.node.list_map_keys.is_empty() {
            return self.merge_key().into_iter().collect();
        }
        self.list_map_keys().collect()
    }

    /// How server-side apply treats the list.
    pub fn list_type(self) -> Option<ListType> {
        match self.node.list_type {
            1 => Some(ListType::Atomic),
            2 => Some(ListType::Set),
            3 => Some(ListType::Map),
            _ => None,
        }
    }

    /// The keys of a list of type map, in the order written.
    pub fn list_map_keys(self) -> impl Iterator<Item = &'a str> {
        self.texts(&self.node.list_map_keys)
    }

    /// How server-side apply treats the object; a use may overrule its type (`claimRef` does).
    pub fn map_type(self) -> Option<MapType> {
        let own = self.edge.map_or(0, |edge| edge.map_type);
        match if own == 0 { self.node.map_type } else { own } {
            1 => Some(MapType::Atomic),
            2 => Some(MapType::Granular),
            _ => None,
        }
    }

    /// The default that the OpenAPI document states. Builtin kinds have more defaults in code.
    pub fn default(self) -> Option<Value> {
        let text = self.use_or_type(|edge| edge.default, self.node.default)?;
        serde_json::from_str(text).ok()
    }

    /// Prose for `kubectl explain`: the use's, else the type's.
    pub fn description(self) -> Option<&'a str> {
        self.use_description().or_else(|| self.type_description())
    }

    /// What the field says of itself.
    pub fn use_description(self) -> Option<&'a str> {
        self.tables.prose(self.edge?.description)
    }

    /// What the type says of itself.
    pub fn type_description(self) -> Option<&'a str> {
        self.tables.prose(self.node.description)
    }

    /// The definition's name, `io.k8s.api.apps.v1.DeploymentSpec`; none for a type written in place.
    pub fn definition_name(self) -> Option<&'a str> {
        self.tables.some(self.node.name)
    }

    /// An integer or a string (`intstr.IntOrString`, `x-kubernetes-int-or-string`).
    pub fn is_int_or_string(self) -> bool {
        self.has(flag::INT_OR_STRING)
    }

    /// A string or a number without being told which: `resource.Quantity`.
    pub fn is_quantity(self) -> bool {
        self.has(flag::STRING_OR_NUMBER)
            || self.node.name != 0
                && self.definition_name() == Some("io.k8s.apimachinery.pkg.api.resource.Quantity")
    }

    /// `x-kubernetes-preserve-unknown-fields`.
    pub fn preserves_unknown_fields(self) -> bool {
        self.has(flag::PRESERVE_UNKNOWN)
    }

    /// `x-kubernetes-embedded-resource`.
    pub fn is_embedded_resource(self) -> bool {
        self.has(flag::EMBEDDED)
    }

    /// Whether `null` is a value here.
    pub fn is_nullable(self) -> bool {
        self.has(flag::NULLABLE)
    }

    /// `additionalProperties`, when it is only true or false.
    pub fn additional_properties(self) -> Option<bool> {
        if self.has(flag::OPEN) {
            return Some(true);
        }
        self.has(flag::CLOSED).then_some(false)
    }

    /// How the Go structure holds this field; only the Kubernetes tables know, and only of fields.
    pub fn go_field(self) -> Option<GoField<'a>> {
        let edge = self.edge.filter(|edge| edge.go & go::KNOWN != 0)?;
        let has = |bit: u8| edge.go & bit != 0;
        let holds = match () {
            () if has(go::STRUCT) => GoValue::Struct,
            () if has(go::SLICE) => GoValue::Slice,
            () if has(go::MAP) => GoValue::Map,
            () => GoValue::Scalar,
        };
        Some(GoField {
            pointer: has(go::POINTER),
            omit_empty: has(go::OMIT_EMPTY),
            omit_zero: has(go::OMIT_ZERO),
            holds,
            type_name: self.tables.text(edge.go_type),
        })
    }

    /// An object or value that names no inner structure: everything inside is kept as it is.
    pub fn is_opaque(self) -> bool {
        match self.node.type_ {
            Type::Any => true,
            Type::Object => self.node.fields.is_empty() && self.node.values.is_none(),
            Type::Array => self.node.items.is_none(),
            Type::String | Type::Integer | Type::Number | Type::Boolean => false,
        }
    }

    pub(crate) fn use_of_definition(self) -> Option<&'a str> {
        self.edge?;
        self.definition_name()
    }

    pub(crate) fn own_map_type(self) -> Option<MapType> {
        match self.edge?.map_type {
            1 => Some(MapType::Atomic),
            2 => Some(MapType::Granular),
            _ => None,
        }
    }

    fn has(self, bit: u32) -> bool {
        self.node.flags & bit != 0
    }

    fn texts(self, texts: &'a [Text]) -> impl Iterator<Item = &'a str> {
        let tables = self.tables;
        texts.iter().map(move |text| tables.text(*text))
    }

    fn use_or_type(self, of_use: impl Fn(&Edge) -> Text, of_type: Text) -> Option<&'a str> {
        let own = self.edge.map_or(0, of_use);
        self.tables.some(if own == 0 { of_type } else { own })
    }
}

impl std::fmt::Debug for Schema<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Schema({:?} {})", self.node.type_, self.definition_name().unwrap_or("in place"))
    }
}

impl PartialEq for Schema<'_> {
    /// The same place in the same tables.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.node, other.node)
            && self.edge.map(std::ptr::from_ref) == other.edge.map(std::ptr::from_ref)
    }
}
