//! The tables behind a [`Schemas`](crate::Schemas): plain rows that point at each other by number.
//!
//! Rows, not boxes: the builtin tables hold a thousand types that refer to each other (even in
//! circles), and are read by many and changed by nobody. Two kinds of row matter. A [`Node`] is
//! what a type looks like; an [`Edge`] is one use of a type (a field, a list's items, a map's values)
//! with what only that use knows. OpenAPI splits them the same way (`allOf: [$ref]` beside a default).

use std::sync::OnceLock;

/// Number of a text in [`Tables::texts`]; 0 is "no text".
pub(crate) type Text = u32;
/// Number of a node plus one would cost an `Option`; 0 is the node "anything goes".
pub(crate) type NodeId = u32;

/// The JSON type a schema asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Type {
    /// No type is named: any JSON value fits.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

pub(crate) const TYPES: [Type; 7] =
    [Type::Any, Type::Object, Type::Array, Type::String, Type::Integer, Type::Number, Type::Boolean];

pub(crate) mod flag {
    pub(crate) const INT_OR_STRING: u32 = 1;
    pub(crate) const PRESERVE_UNKNOWN: u32 = 1 << 1;
    pub(crate) const EMBEDDED: u32 = 1 << 2;
    pub(crate) const NULLABLE: u32 = 1 << 3;
    /// `additionalProperties: true`, or an object that names no fields.
    pub(crate) const OPEN: u32 = 1 << 4;
    /// `additionalProperties: false`.
    pub(crate) const CLOSED: u32 = 1 << 5;
    /// `oneOf: [string, number]` without a type: `resource.Quantity`.
    pub(crate) const STRING_OR_NUMBER: u32 = 1 << 6;
}

/// How the Go structure of a builtin kind holds a field: it decides what survives decoding and encoding.
pub(crate) mod go {
    pub(crate) const KNOWN: u8 = 1;
    pub(crate) const POINTER: u8 = 1 << 1;
    pub(crate) const OMIT_EMPTY: u8 = 1 << 2;
    pub(crate) const OMIT_ZERO: u8 = 1 << 3;
    pub(crate) const STRUCT: u8 = 1 << 4;
    pub(crate) const SLICE: u8 = 1 << 5;
    pub(crate) const MAP: u8 = 1 << 6;
}

/// What a type looks like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Name of the definition; 0 for a type written in place.
    pub(crate) name: Text,
    pub(crate) description: Text,
    pub(crate) type_: Type,
    pub(crate) format: Text,
    pub(crate) flags: u32,
    /// 0 none, 1 atomic, 2 set, 3 map.
    pub(crate) list_type: u8,
    /// 0 none, 1 atomic, 2 granular.
    pub(crate) map_type: u8,
    pub(crate) list_map_keys: Vec<Text>,
    pub(crate) required: Vec<Text>,
    /// JSON texts.
    pub(crate) allowed: Vec<Text>,
    pub(crate) default: Text,
    pub(crate) patch_strategy: Text,
    pub(crate) merge_key: Text,
    /// Sorted by the name's bytes.
    pub(crate) fields: Vec<Edge>,
    pub(crate) items: Option<Box<Edge>>,
    pub(crate) values: Option<Box<Edge>>,
}

/// One use of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Edge {
    /// The field's name; 0 for items and values.
    pub(crate) name: Text,
    pub(crate) node: NodeId,
    pub(crate) description: Text,
    pub(crate) default: Text,
    pub(crate) patch_strategy: Text,
    pub(crate) merge_key: Text,
    pub(crate) map_type: u8,
    /// Bits of [`go`]; 0 when the Go type is not known.
    pub(crate) go: u8,
    pub(crate) go_type: Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindRow {
    pub(crate) group: Text,
    pub(crate) version: Text,
    pub(crate) kind: Text,
    /// 0 unknown, 1 cluster, 2 namespaced.
    pub(crate) scope: u8,
    pub(crate) schema: Option<NodeId>,
    pub(crate) resource: Option<Box<ResourceRow>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceRow {
    pub(crate) plural: Text,
    pub(crate) singular: Text,
    pub(crate) short_names: Vec<Text>,
    pub(crate) categories: Vec<Text>,
    pub(crate) verbs: Vec<Text>,
    pub(crate) subresources: Vec<SubresourceRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubresourceRow {
    pub(crate) name: Text,
    pub(crate) group: Text,
    pub(crate) version: Text,
    pub(crate) kind: Text,
    pub(crate) verbs: Vec<Text>,
}

/// Long prose, kept apart because only `explain` and the OpenAPI document read it.
#[derive(Debug)]
pub(crate) enum Prose {
    Dropped,
    Here(Texts),
    Packed(&'static [u8], OnceLock<Texts>),
}

#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) texts: Texts,
    pub(crate) prose: Prose,
    pub(crate) nodes: Vec<Node>,
    /// In the order discovery lists them, then those discovery does not know.
    pub(crate) kinds: Vec<KindRow>,
    /// Numbers into `kinds`, sorted by (group, version, kind).
    pub(crate) by_gvk: Vec<u32>,
    /// Sorted by name.
    pub(crate) definitions: Vec<(Text, NodeId)>,
    /// For a table made of one schema: the edge to it.
    pub(crate) root: Edge,
}

/// Many texts in one buffer, each once.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    pub(crate) buffer: String,
    /// Where each text ends; text 0 is empty.
    pub(crate) ends: Vec<u32>,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { buffer: String::new(), ends: vec![0] }
    }
}

impl Texts {
    pub(crate) fn get(&self, text: Text) -> &str {
        let index = text as usize;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(index).copied().unwrap_or(start);
        self.buffer.get(start as usize..end as usize).unwrap_or("")
    }

    pub(crate) fn push(&mut self, text: &str) -> Text {
        self.buffer.push_str(text);
        self.ends.push(self.buffer.len() as u32);
        (self.ends.len() - 1) as Text
    }
}

impl Tables {
    pub(crate) fn text(&self, text: Text) -> &str {
        self.texts.get(text)
    }

    pub(crate) fn some(&self, text: Text) -> Option<&str> {
        (text != 0).then(|| self.texts.get(text))
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id as usize).unwrap_or(&self.nodes[0])
    }

    pub(crate) fn prose(&self, text: Text) -> Option<&str> {
        if text == 0 {
            return None;
        }
        match &self.prose {
            Prose::Dropped => None,
            Prose::Here(texts) => Some(texts.get(text)),
            Prose::Packed(bytes, cell) => {
                Some(cell.get_or_init(|| crate::blob::unpack_prose(bytes).unwrap_or_default()).get(text))
            }
        }
    }

    pub(crate) fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<u32> {
        let key = |row: u32| {
            let row = &self.kinds[row as usize];
            (self.text(row.group), self.text(row.version), self.text(row.kind))
        };
        let found = self.by_gvk.binary_search_by(|row| key(*row).cmp(&(group, version, kind))).ok()?;
        Some(self.by_gvk[found])
    }

    /// Fills the indexes that follow from the rows.
    pub(crate) fn index(&mut self) {
        let named = self.nodes.iter().enumerate().filter(|(_, node)| node.name != 0);
        self.definitions = named.map(|(id, node)| (node.name, id as NodeId)).collect();
        self.definitions.sort_by_key(|(name, _)| self.texts.get(*name));
        let mut order: Vec<u32> = (0..self.kinds.len() as u32).collect();
        let texts = &self.texts;
        let kinds = &self.kinds;
        order.sort_by_key(|row| {
            let row = &kinds[*row as usize];
            (texts.get(row.group), texts.get(row.version), texts.get(row.kind))
        });
        self.by_gvk = order;
    }
}
