//! The tree of a document: what kyaml needs to know of a text, in 64 bytes per node.
//!
//! Rare things (anchors, foreign tags, comments) live in a box that most nodes do not have. Short texts are
//! stored inline, long ones are shared between clones. Plain scalars are not resolved here: ask
//! [`crate::resolve`] or [`Node::short_tag`].

use std::ops::Range;

/// A string that is cheap to clone: up to 23 bytes inline, beyond that shared.
pub type Text = smol_str::SmolStr;

#[derive(Clone, Debug)]
pub struct Node {
    pub value: Value,
    pub(crate) extra: Option<Box<Extra>>,
    // The parts of a `Position`, side by side with the tag because there they need no padding.
    line: u32,
    start: u32,
    end: u32,
    column: u16,
    pub tag: Tag,
    /// Whether the tag was written in the source, or is to be written (go-yaml's `TaggedStyle`).
    pub tag_shown: bool,
}

#[derive(Clone, Debug)]
pub enum Value {
    Scalar(Scalar),
    Mapping(Mapping),
    Sequence(Sequence),
    /// `*name`, kept because the parse did not expand aliases.
    Alias(Text),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text after unescaping and folding, before any resolving.
    pub text: Text,
    pub style: ScalarStyle,
}

#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// In the order of the source; duplicates are kept unless the parse refused them.
    pub entries: Vec<(Node, Node)>,
    pub flow: Flow,
}

#[derive(Clone, Debug, Default)]
pub struct Sequence {
    pub items: Vec<Node>,
    pub flow: Flow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScalarStyle {
    #[default]
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
    Folded,
}

/// Whether a collection is written `[a, b]` or on lines of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flow {
    #[default]
    Block,
    Flow,
}

/// The tag of a node, as far as Go's libraries look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tag {
    /// None given: a plain scalar means what it resolves to, a quoted one is a string.
    #[default]
    Implicit,
    /// `!`: go-yaml v2 takes the scalar as a string, v3 ignores the mark.
    NonSpecific,
    Null,
    Bool,
    Str,
    Int,
    Float,
    Timestamp,
    Binary,
    Merge,
    Map,
    Seq,
    /// Any other; its text is [`Node::tag_text`].
    Other,
}

/// Where a node stands in its source. Nodes that were made, not parsed, are at line 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// From 1, in characters; stays at 65,535 beyond that.
    pub column: u16,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Position {
    /// The bytes of the node in the source: for a scalar its quotes included, for a collection up to its end.
    pub fn span(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The comments of a node, with their `#`; several lines are joined by `\n`. Empty means none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comments {
    /// Lines above.
    pub head: Text,
    /// At the end of the same line.
    pub line: Text,
    /// Lines below, before an empty line.
    pub foot: Text,
}

impl Comments {
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.line.is_empty() && self.foot.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub anchor: Text,
    pub tag: Text,
    pub comments: Comments,
}

impl Tag {
    /// The short form (`!!str`) of the tags that have one.
    pub fn short(self) -> Option<&'static str> {
        Some(match self {
            Self::Implicit | Self::Other => return None,
            Self::NonSpecific => "!",
            Self::Null => "!!null",
            Self::Bool => "!!bool",
            Self::Str => "!!str",
            Self::Int => "!!int",
            Self::Float => "!!float",
            Self::Timestamp => "!!timestamp",
            Self::Binary => "!!binary",
            Self::Merge => "!!merge",
            Self::Map => "!!map",
            Self::Seq => "!!seq",
        })
    }

    /// The tag of a short (`!!str`) or long (`tag:yaml.org,2002:str`) form.
    pub fn from_text(text: &str) -> Self {
        let Some(name) = text.strip_prefix("!!").or_else(|| text.strip_prefix(LONG_TAG_PREFIX)) else {
            return match text {
                "" => Self::Implicit,
                "!" => Self::NonSpecific,
                _ => Self::Other,
            };
        };
        match name {
            "null" => Self::Null,
            "bool" => Self::Bool,
            "str" => Self::Str,
            "int" => Self::Int,
            "float" => Self::Float,
            "timestamp" => Self::Timestamp,
            "binary" => Self::Binary,
            "merge" => Self::Merge,
            "map" => Self::Map,
            "seq" => Self::Seq,
            _ => Self::Other,
        }
    }
}

pub(crate) const LONG_TAG_PREFIX: &str = "tag:yaml.org,2002:";

impl Default for Node {
    /// A plain `null`.
    fn default() -> Self {
        Self::null()
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self {
            value,
            extra: None,
            line: 0,
            start: 0,
            end: 0,
            column: 0,
            tag: Tag::Implicit,
            tag_shown: false,
        }
    }
}

impl Node {
    /// A plain scalar that means whatever its text resolves to.
    pub fn plain(text: impl Into<Text>) -> Self {
        Value::Scalar(Scalar { text: text.into(), style: ScalarStyle::Plain }).into()
    }

    /// A string, quoted only where a plain one would mean something else.
    pub fn string(text: impl Into<Text>) -> Self {
        Self { tag: Tag::Str, ..Self::plain(text) }
    }

    pub fn quoted(text: impl Into<Text>, style: ScalarStyle) -> Self {
        Value::Scalar(Scalar { text: text.into(), style }).into()
    }

    pub fn null() -> Self {
        Self { tag: Tag::Null, ..Self::plain("null") }
    }

    pub fn bool(value: bool) -> Self {
        Self { tag: Tag::Bool, ..Self::plain(if value { "true" } else { "false" }) }
    }

    pub fn int(value: i64) -> Self {
        Self { tag: Tag::Int, ..Self::plain(value.to_string()) }
    }

    pub fn mapping(entries: Vec<(Node, Node)>) -> Self {
        Value::Mapping(Mapping { entries, flow: Flow::Block }).into()
    }

    pub fn sequence(items: Vec<Node>) -> Self {
        Value::Sequence(Sequence { items, flow: Flow::Block }).into()
    }

    /// The node of a JSON value, its keys in the order of the value.
    pub fn from_json(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::null(),
            serde_json::Value::Bool(value) => Self::bool(*value),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(int) => Self::int(int),
                None => Self::plain(crate::json::number_text(number)),
            },
            serde_json::Value::String(text) => Self::string(text.as_str()),
            serde_json::Value::Array(items) => Self::sequence(items.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(entries) => Self::mapping(
                entries
                    .iter()
                    .map(|(key, value)| (Self::string(key.as_str()), Self::from_json(value)))
                    .collect(),
            ),
        }
    }

    pub fn position(&self) -> Position {
        Position { line: self.line, column: self.column, start: self.start, end: self.end }
    }

    pub(crate) fn set_position(&mut self, position: Position) {
        Position { line: self.line, column: self.column, start: self.start, end: self.end } = position;
    }

    pub fn as_scalar(&self) -> Option<&Scalar> {
        if let Value::Scalar(scalar) = &self.value { Some(scalar) } else { None }
    }

    pub fn as_scalar_mut(&mut self) -> Option<&mut Scalar> {
        if let Value::Scalar(scalar) = &mut self.value { Some(scalar) } else { None }
    }

    /// The text of a scalar, whatever it resolves to.
    pub fn text(&self) -> Option<&str> {
        self.as_scalar().map(|scalar| scalar.text.as_str())
    }

    /// The text of a scalar that go-yaml v3 takes for a string.
    pub fn as_str(&self) -> Option<&str> {
        self.text().filter(|_| self.short_tag() == "!!str")
    }

    pub fn as_mapping(&self) -> Option<&Mapping> {
        if let Value::Mapping(mapping) = &self.value { Some(mapping) } else { None }
    }

    pub fn as_mapping_mut(&mut self) -> Option<&mut Mapping> {
        if let Value::Mapping(mapping) = &mut self.value { Some(mapping) } else { None }
    }

    pub fn as_sequence(&self) -> Option<&Sequence> {
        if let Value::Sequence(sequence) = &self.value { Some(sequence) } else { None }
    }

    pub fn as_sequence_mut(&mut self) -> Option<&mut Sequence> {
        if let Value::Sequence(sequence) = &mut self.value { Some(sequence) } else { None }
    }

    /// The entries of a mapping; empty for anything else.
    pub fn entries(&self) -> &[(Node, Node)] {
        self.as_mapping().map_or(&[], |mapping| &mapping.entries)
    }

    /// The items of a sequence; empty for anything else.
    pub fn items(&self) -> &[Node] {
        self.as_sequence().map_or(&[], |sequence| &sequence.items)
    }

    /// The value under `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_mapping()?.get(key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.as_mapping_mut()?.get_mut(key)
    }

    /// The node reached by following `keys` through mappings.
    pub fn get_path(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Whether go-yaml v3 takes this for null: an empty, `~` or `null` plain scalar.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar(_)) && self.short_tag() == "!!null"
    }

    /// Whether the two have the same meaning to go-yaml v3: styles, comments and positions do not count.
    pub fn same_value(&self, other: &Node) -> bool {
        match (&self.value, &other.value) {
            (Value::Scalar(a), Value::Scalar(b)) => a.text == b.text && self.short_tag() == other.short_tag(),
            (Value::Alias(a), Value::Alias(b)) => a == b,
            (Value::Sequence(a), Value::Sequence(b)) => {
                a.items.len() == b.items.len() && a.items.iter().zip(&b.items).all(|(a, b)| a.same_value(b))
            }
            (Value::Mapping(a), Value::Mapping(b)) => {
                a.entries.len() == b.entries.len()
                    && a.entries.iter().all(|(key, value)| {
                        b.entries
                            .iter()
                            .any(|(other, found)| key.same_value(other) && value.same_value(found))
                    })
            }
            (Value::Scalar(_) | Value::Alias(_) | Value::Sequence(_) | Value::Mapping(_), _) => false,
        }
    }

    /// The tag go-yaml v3 gives the node (`Node.ShortTag`): the explicit one, or what the text resolves to.
    pub fn short_tag(&self) -> &str {
        if let Some(tag) = self.tag.short().filter(|_| self.tag != Tag::NonSpecific) {
            return tag;
        }
        if self.tag == Tag::Other {
            return self.tag_text();
        }
        match &self.value {
            Value::Mapping(_) => "!!map",
            Value::Sequence(_) => "!!seq",
            Value::Alias(_) => "",
            Value::Scalar(scalar) if scalar.style == ScalarStyle::Plain => {
                crate::resolve::implicit_tag(&scalar.text, crate::Schema::V3).short().unwrap_or("!!str")
            }
            Value::Scalar(_) => "!!str",
        }
    }

    /// The text of the tag: `!!int`, `!ref`, `tag:example.com,2000:x`; empty when there is none.
    pub fn tag_text(&self) -> &str {
        match self.tag.short() {
            Some(short) => short,
            None => self.extra.as_ref().map_or("", |extra| extra.tag.as_str()),
        }
    }

    /// Sets the tag from its short or long form and whether it is written out.
    pub fn set_tag(&mut self, text: &str, shown: bool) {
        self.tag = Tag::from_text(text);
        self.tag_shown = shown && self.tag != Tag::Implicit;
        if self.tag == Tag::Other {
            // go-yaml shortens the tags of YAML's own namespace.
            self.extra_mut().tag = match text.strip_prefix(LONG_TAG_PREFIX) {
                Some(name) => format!("!!{name}").into(),
                None => text.into(),
            };
        } else if let Some(extra) = &mut self.extra {
            extra.tag = Text::default();
        }
    }

    pub fn anchor(&self) -> Option<&str> {
        self.extra.as_ref().map(|extra| extra.anchor.as_str()).filter(|anchor| !anchor.is_empty())
    }

    pub fn set_anchor(&mut self, anchor: Option<&str>) {
        if anchor.is_some() || self.extra.is_some() {
            self.extra_mut().anchor = anchor.unwrap_or_default().into();
        }
    }

    pub fn comments(&self) -> Option<&Comments> {
        self.extra.as_ref().map(|extra| &extra.comments).filter(|comments| !comments.is_empty())
    }

    /// The comments to change; makes room for them if there are none yet.
    pub fn comments_mut(&mut self) -> &mut Comments {
        &mut self.extra_mut().comments
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }
}

impl Mapping {
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.index_of(key).map(|index| &self.entries[index].1)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.index_of(key).map(|index| &mut self.entries[index].1)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.index_of(key).is_some()
    }

    /// The place of the first entry whose key is a scalar with this text.
    pub fn index_of(&self, key: &str) -> Option<usize> {
        self.entries.iter().position(|(node, _)| node.text() == Some(key))
    }

    /// Replaces the value under `key` in its place, or appends a new entry.
    pub fn insert(&mut self, key: &str, value: Node) -> Option<Node> {
        match self.get_mut(key) {
            Some(place) => Some(std::mem::replace(place, value)),
            None => {
                self.entries.push((Node::string(key), value));
                None
            }
        }
    }

    /// The value under `key`, made by `make` at the end of the mapping if it is missing.
    pub fn get_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> Node) -> &mut Node {
        let index = self.index_of(key).unwrap_or_else(|| {
            self.entries.push((Node::string(key), make()));
            self.entries.len() - 1
        });
        &mut self.entries[index].1
    }

    /// Removes the first entry under `key`; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        self.index_of(key).map(|index| self.entries.remove(index).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Node, &Node)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stays_small() {
        assert!(size_of::<Node>() <= 64, "{}", size_of::<Node>());
    }

    #[test]
    fn insert_replaces_in_place_and_appends_otherwise() {
        let mut mapping = Mapping::default();
        mapping.insert("a", Node::int(1));
        mapping.insert("b", Node::int(2));
        mapping.insert("a", Node::int(3));
        let texts: Vec<_> = mapping.iter().map(|(key, value)| (key.text(), value.text())).collect();
        assert_eq!(texts, [(Some("a"), Some("3")), (Some("b"), Some("2"))]);
        assert_eq!(mapping.remove("a").and_then(|node| node.text().map(str::to_owned)), Some("3".to_owned()));
    }

    #[test]
    fn quoted_numbers_are_strings() {
        assert_eq!(Node::quoted("1", ScalarStyle::DoubleQuoted).short_tag(), "!!str");
        assert_eq!(Node::plain("1").short_tag(), "!!int");
        assert_eq!(Node::string("1").short_tag(), "!!str");
    }
}
