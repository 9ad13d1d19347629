//! Reads OpenAPI (v2 and v3) and discovery documents into tables.
//!
//! It keeps what merging, pruning and explaining need. It keeps no validation (patterns, ranges, CEL
//! rules): CRDs are validated from their own schema in the API server, builtin kinds by code.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::tables::go;
use crate::tables::{
    Edge, KindRow, Node, NodeId, Prose, ResourceRow, SubresourceRow, Tables, Text, Texts, Type, flag,
};

/// Schemas nested deeper than this are refused; the deepest builtin one has 12 levels.
const MAX_DEPTH: usize = 200;

/// Why a document is not usable as a source of schemas.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DocumentError {
    #[error("the document holds neither `definitions` nor `components.schemas`")]
    NoDefinitions,
    #[error("definition {0:?} is not an object")]
    NotASchema(String),
    #[error("definition {0:?} is nested deeper than {MAX_DEPTH} levels")]
    TooDeep(String),
    #[error("the document is not a discovery list: {0}")]
    NotDiscovery(&'static str),
}

struct TooDeep;

pub(crate) struct Builder {
    texts: Texts,
    text_ids: HashMap<String, Text>,
    prose: Option<(Texts, HashMap<String, Text>)>,
    nodes: Vec<Node>,
    inline: HashMap<Node, NodeId>,
    definitions: HashMap<String, NodeId>,
    kinds: Vec<KindRow>,
    kind_ids: HashMap<(Text, Text, Text), usize>,
    root: Edge,
}

impl Builder {
    /// Keeping prose is for the generator: at run time nobody explains a foreign document.
    pub(crate) fn new(keep_prose: bool) -> Self {
        Builder {
            texts: Texts::default(),
            text_ids: HashMap::new(),
            prose: keep_prose.then(Default::default),
            nodes: vec![Node::default()],
            inline: HashMap::new(),
            definitions: HashMap::new(),
            kinds: Vec::new(),
            kind_ids: HashMap::new(),
            root: Edge::default(),
        }
    }

    /// Starts from finished tables, so that a document can refer to and replace what they define.
    pub(crate) fn on_top_of(base: &Tables) -> Self {
        let mut builder = Builder::new(false);
        builder.texts = base.texts.clone();
        builder.text_ids =
            (1..base.texts.ends.len() as Text).map(|id| (base.texts.get(id).to_owned(), id)).collect();
        builder.nodes = base.nodes.clone();
        builder.definitions =
            base.definitions.iter().map(|(name, node)| (base.text(*name).to_owned(), *node)).collect();
        builder.kinds = base.kinds.clone();
        builder.kind_ids = base
            .kinds
            .iter()
            .enumerate()
            .map(|(index, row)| ((row.group, row.version, row.kind), index))
            .collect();
        builder
    }

    pub(crate) fn finish(self) -> Tables {
        let mut tables = Tables {
            texts: self.texts,
            prose: self.prose.map_or(Prose::Dropped, |(texts, _)| Prose::Here(texts)),
            nodes: self.nodes,
            kinds: self.kinds,
            by_gvk: Vec::new(),
            definitions: Vec::new(),
            root: self.root,
        };
        tables.index();
        tables
    }

    pub(crate) fn add_document(&mut self, document: &Value) -> Result<(), DocumentError> {
        let definitions = document
            .get("definitions")
            .or_else(|| document.pointer("/components/schemas"))
            .and_then(Value::as_object);
        let paths = document.get("paths").and_then(Value::as_object);
        if definitions.is_none() && paths.is_none() {
            return Err(DocumentError::NoDefinitions);
        }
        if let Some(definitions) = definitions {
            self.add_definitions(definitions)?;
        }
        if let Some(paths) = paths {
            self.add_paths(paths);
        }
        Ok(())
    }

    /// Takes one schema as the root, as a CRD version holds it.
    pub(crate) fn set_root(&mut self, schema: &Value) -> Result<(), DocumentError> {
        self.root = self.edge(schema, 0).map_err(|TooDeep| DocumentError::TooDeep("schema".into()))?;
        Ok(())
    }

    fn add_definitions(&mut self, definitions: &Map<String, Value>) -> Result<(), DocumentError> {
        // Names first: definitions refer to each other in any order, and in circles.
        for name in definitions.keys() {
            if !self.definitions.contains_key(name) {
                self.definitions.insert(name.clone(), self.nodes.len() as NodeId);
                self.nodes.push(Node::default());
            }
        }
        for (name, schema) in definitions {
            let schema = schema.as_object().ok_or_else(|| DocumentError::NotASchema(name.clone()))?;
            let id = self.definitions[name];
            let mut node = self.node(schema, 0).map_err(|TooDeep| DocumentError::TooDeep(name.clone()))?;
            node.name = self.text(name);
            node.description = self.prose_of(schema);
            node.default = self.json_of(schema.get("default"));
            node.patch_strategy = self.text_of(schema.get("x-kubernetes-patch-strategy"));
            node.merge_key = self.text_of(schema.get("x-kubernetes-patch-merge-key"));
            self.nodes[id as usize] = node;
            let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
            for gvk in kinds.into_iter().flatten() {
                if let Some(row) = self.kind_row(gvk) {
                    row.schema = Some(id);
                }
            }
        }
        Ok(())
    }

    /// A kind is namespaced when any of its GET paths names a namespace: kustomize's rule.
    fn add_paths(&mut self, paths: &Map<String, Value>) {
        for (path, item) in paths {
            let Some(gvk) = item.pointer("/get/x-kubernetes-group-version-kind") else { continue };
            let namespaced = path.contains("namespaces/{namespace}");
            if let Some(row) = self.kind_row(gvk) {
                row.scope = if namespaced { 2 } else { row.scope.max(1) };
            }
        }
    }

    /// Takes an `APIGroupDiscoveryList` (apidiscovery.k8s.io/v2): names, verbs and subresources.
    pub(crate) fn add_discovery(&mut self, list: &Value) -> Result<(), DocumentError> {
        let groups = list["items"].as_array().ok_or(DocumentError::NotDiscovery("no items"))?;
        for group in groups {
            let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
            for version in group["versions"].as_array().into_iter().flatten() {
                let number = version["version"].as_str().ok_or(DocumentError::NotDiscovery("no version"))?;
                for resource in version["resources"].as_array().into_iter().flatten() {
                    self.add_resource(name, number, resource)?;
                }
            }
        }
        Ok(())
    }

    fn add_resource(&mut self, group: &str, version: &str, resource: &Value) -> Result<(), DocumentError> {
        let kind = resource.pointer("/responseKind/kind").and_then(Value::as_str);
        let kind = kind.ok_or(DocumentError::NotDiscovery("a resource without kind"))?;
        let mut subresources = Vec::new();
        for subresource in resource["subresources"].as_array().into_iter().flatten() {
            let answer = &subresource["responseKind"];
            // Discovery leaves group and version empty where they are the parent's; a core kind
            // served elsewhere has a version, so an empty version tells the two apart.
            let own = answer["version"].as_str().unwrap_or("").is_empty();
            let part = |builder: &mut Self, key: &str, parent: &str| {
                builder.text(if own { parent } else { answer[key].as_str().unwrap_or("") })
            };
            subresources.push(SubresourceRow {
                name: self.text_of(subresource.get("subresource")),
                group: part(self, "group", group),
                version: part(self, "version", version),
                kind: self.text_of(answer.get("kind")),
                verbs: self.texts_of(subresource.get("verbs")),
            });
        }
        let row = ResourceRow {
            plural: self.text_of(resource.get("resource")),
            singular: self.text_of(resource.get("singularResource")),
            short_names: self.texts_of(resource.get("shortNames")),
            categories: self.texts_of(resource.get("categories")),
            verbs: self.texts_of(resource.get("verbs")),
            subresources,
        };
        let namespaced = resource["scope"] == "Namespaced";
        let kind = self.kind_row_at(group, version, kind);
        kind.scope = if namespaced { 2 } else { 1 };
        kind.resource = Some(Box::new(row));
        Ok(())
    }

    /// Takes what the Go structures say of their fields: `{definition: {field: {flags, type}}}`, where flags are
    /// `p`ointer, `o`mitempty, omit`z`ero, `s`truct, s`l`ice and `m`ap.
    pub(crate) fn add_go_fields(&mut self, structures: &Value) {
        for (name, fields) in structures.as_object().into_iter().flatten() {
            let Some(id) = self.definitions.get(name).copied() else { continue };
            for (field, facts) in fields.as_object().into_iter().flatten() {
                let name = self.text(field);
                let go_type = self.text_of(facts.get("type"));
                let flags = facts["flags"].as_str().unwrap_or("");
                let bits = flags.chars().fold(go::KNOWN, |bits, flag| {
                    bits | match flag {
                        'p' => go::POINTER,
                        'o' => go::OMIT_EMPTY,
                        'z' => go::OMIT_ZERO,
                        's' => go::STRUCT,
                        'l' => go::SLICE,
                        'm' => go::MAP,
                        _ => 0,
                    }
                });
                let edges = &mut self.nodes[id as usize].fields;
                if let Some(edge) = edges.iter_mut().find(|edge| edge.name == name) {
                    (edge.go, edge.go_type) = (bits, go_type);
                }
            }
        }
    }

    fn kind_row(&mut self, gvk: &Value) -> Option<&mut KindRow> {
        let group = gvk["group"].as_str().unwrap_or("");
        Some(self.kind_row_at(group, gvk["version"].as_str()?, gvk["kind"].as_str()?))
    }

    fn kind_row_at(&mut self, group: &str, version: &str, kind: &str) -> &mut KindRow {
        let key = (self.text(group), self.text(version), self.text(kind));
        let next = self.kinds.len();
        let index = *self.kind_ids.entry(key).or_insert(next);
        if index == next {
            self.kinds.push(KindRow { group: key.0, version: key.1, kind: key.2, ..KindRow::default() });
        }
        &mut self.kinds[index]
    }

    fn edge(&mut self, schema: &Value, depth: usize) -> Result<Edge, TooDeep> {
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        let Some(schema) = schema.as_object() else { return Ok(Edge::default()) };
        let mut edge = Edge {
            name: 0,
            node: 0,
            description: self.prose_of(schema),
            default: self.json_of(schema.get("default")),
            patch_strategy: self.text_of(schema.get("x-kubernetes-patch-strategy")),
            merge_key: self.text_of(schema.get("x-kubernetes-patch-merge-key")),
            map_type: map_type(schema),
            go: 0,
            go_type: 0,
        };
        if let Some(name) = reference(schema) {
            edge.node = self.definitions.get(name).copied().unwrap_or(0);
            return Ok(edge);
        }
        edge.map_type = 0;
        let node = self.node(schema, depth)?;
        let next = self.nodes.len() as NodeId;
        edge.node = *self.inline.entry(node.clone()).or_insert(next);
        if edge.node == next {
            self.nodes.push(node);
        }
        Ok(edge)
    }

    fn node(&mut self, schema: &Map<String, Value>, depth: usize) -> Result<Node, TooDeep> {
        let mut fields = Vec::new();
        // serde_json's map is sorted by bytes, which is the order the binary search needs.
        for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let mut edge = self.edge(field, depth + 1)?;
            edge.name = self.text(name);
            fields.push(edge);
        }
        let mut flags = 0;
        let mut values = None;
        match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => flags |= flag::OPEN,
            Some(Value::Bool(false)) => flags |= flag::CLOSED,
            Some(value) => values = Some(Box::new(self.edge(value, depth + 1)?)),
            None => {}
        }
        let items = match schema.get("items") {
            Some(items @ Value::Object(_)) => Some(Box::new(self.edge(items, depth + 1)?)),
            _ => None,
        };
        let is = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        if is("x-kubernetes-int-or-string")
            || schema.get("format").is_some_and(|format| format == "int-or-string")
        {
            flags |= flag::INT_OR_STRING;
        } else if schema.contains_key("oneOf") && !schema.contains_key("type") {
            flags |= flag::STRING_OR_NUMBER;
        }
        for (key, bit) in [
            ("x-kubernetes-preserve-unknown-fields", flag::PRESERVE_UNKNOWN),
            ("x-kubernetes-embedded-resource", flag::EMBEDDED),
            ("nullable", flag::NULLABLE),
        ] {
            if is(key) {
                flags |= bit;
            }
        }
        Ok(Node {
            name: 0,
            description: 0,
            type_: type_of(schema),
            format: self.text_of(schema.get("format")),
            flags,
            list_type: match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("atomic") => 1,
                Some("set") => 2,
                Some("map") => 3,
                _ => 0,
            },
            map_type: map_type(schema),
            list_map_keys: self.texts_of(schema.get("x-kubernetes-list-map-keys")),
            required: self.texts_of(schema.get("required")),
            allowed: self.jsons_of(schema.get("enum")),
            default: 0,
            patch_strategy: 0,
            merge_key: 0,
            fields,
            items,
            values,
        })
    }

    fn text(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return 0;
        }
        if let Some(id) = self.text_ids.get(text) {
            return *id;
        }
        let id = self.texts.push(text);
        self.text_ids.insert(text.to_owned(), id);
        id
    }

    fn text_of(&mut self, value: Option<&Value>) -> Text {
        value.and_then(Value::as_str).map_or(0, |text| self.text(text))
    }

    fn texts_of(&mut self, value: Option<&Value>) -> Vec<Text> {
        let values = value.and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(|text| self.text(text)).collect()
    }

    fn json_of(&mut self, value: Option<&Value>) -> Text {
        value.map_or(0, |value| self.text(&value.to_string()))
    }

    fn jsons_of(&mut self, value: Option<&Value>) -> Vec<Text> {
        let values = value.and_then(Value::as_array).into_iter().flatten();
        values.map(|value| self.text(&value.to_string())).collect()
    }

    fn prose_of(&mut self, schema: &Map<String, Value>) -> Text {
        let text = schema.get("description").and_then(Value::as_str).unwrap_or("");
        let Some((texts, ids)) = self.prose.as_mut().filter(|_| !text.is_empty()) else { return 0 };
        if let Some(id) = ids.get(text) {
            return *id;
        }
        let id = texts.push(text);
        ids.insert(text.to_owned(), id);
        id
    }
}

fn type_of(schema: &Map<String, Value>) -> Type {
    let name = match schema.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        other => other.and_then(Value::as_str),
    };
    match name {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        // Fields without a type are an object all the same: old documents leave it out.
        _ if schema.contains_key("properties") => Type::Object,
        _ => Type::Any,
    }
}

fn map_type(schema: &Map<String, Value>) -> u8 {
    match schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
        Some("atomic") => 1,
        Some("granular") => 2,
        _ => 0,
    }
}

/// The name a `$ref` points at; OpenAPI v3 wraps it in `allOf` to put a default beside it.
fn reference(schema: &Map<String, Value>) -> Option<&str> {
    let wrapped = || match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref"),
        _ => None,
    };
    let target = schema.get("$ref").or_else(wrapped)?.as_str()?;
    target.rsplit('/').next()
}
