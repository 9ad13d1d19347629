//! Fields of maps: finding, setting and clearing them as kyaml's filters do.

use super::{Body, Kind, NodeData, NodeId, ScalarStyle, Tag, Text, Tree};

/// A node was of another kind than an operation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrongKind {
    pub expected: Kind,
    pub found: Kind,
    pub contents: String,
}

impl std::fmt::Display for WrongKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "wrong node kind: expected {} but got {}: node contents:\n{}",
            self.expected.name(),
            self.found.name(),
            self.contents
        )
    }
}

impl Tree {
    /// kyaml's `ErrorIfInvalid`: null passes for any kind.
    pub(crate) fn demand(&self, id: NodeId, expected: Kind) -> Result<(), WrongKind> {
        let found = self.kind(id);
        if self.is_null(id) || found == expected {
            return Ok(());
        }
        Err(WrongKind { expected, found, contents: self.kyaml_text(id) })
    }

    /// The value of a field of a map; nothing for any other node.
    pub(crate) fn get(&self, map: NodeId, name: &str) -> Option<NodeId> {
        self.entry(map, name).map(|(_, value)| value)
    }

    /// Key and value of a field.
    pub(crate) fn entry(&self, map: NodeId, name: &str) -> Option<(NodeId, NodeId)> {
        self.position(map, name).map(|at| (self.content(map)[at], self.content(map)[at + 1]))
    }

    fn position(&self, map: NodeId, name: &str) -> Option<usize> {
        let Body::Map { content, .. } = &self[map].body else { return None };
        content.iter().step_by(2).position(|key| self.text(*key) == name).map(|pair| pair * 2)
    }

    /// Keys and values of a map in order; nothing for any other node.
    pub(crate) fn entries(&self, map: NodeId) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let content: &[NodeId] = match &self[map].body {
            Body::Map { content, .. } => content,
            Body::Scalar { .. } | Body::Seq { .. } => &[],
        };
        content.chunks_exact(2).map(|pair| (pair[0], pair[1]))
    }

    /// kyaml's `FieldMatcher`: null has no fields, and a list or scalar is an error.
    pub(crate) fn field(&self, map: NodeId, name: &str) -> Result<Option<NodeId>, WrongKind> {
        if self.is_null(map) {
            return Ok(None);
        }
        self.demand(map, Kind::Map)?;
        Ok(self.get(map, name))
    }

    /// Removes the first field of that name.
    pub(crate) fn clear(&mut self, map: NodeId, name: &str) -> Result<(), WrongKind> {
        self.demand(map, Kind::Map)?;
        if let Some(at) = self.position(map, name)
            && let Some(content) = self.content_mut(map)
        {
            content.drain(at..at + 2);
        }
        Ok(())
    }

    /// Adds a field without looking whether it is there already.
    pub(crate) fn push_field(&mut self, map: NodeId, key: NodeId, value: NodeId) {
        if let Some(content) = self.content_mut(map) {
            content.push(key);
            content.push(value);
        }
    }

    /// kyaml's `FieldSetter` with a name: an existing field takes the new value but keeps its style, a missing
    /// one is appended, and a null value clears it. The appended node is `value` itself, not a copy.
    pub(crate) fn set_field(&mut self, map: NodeId, name: &str, value: NodeId) -> Result<NodeId, WrongKind> {
        self.set_field_styled(map, name, value, ScalarStyle::Plain, false)
    }

    /// As [`Self::set_field`]; `key_style` is for a new key, and with `keep_null` a null value is set as well.
    pub(crate) fn set_field_styled(
        &mut self,
        map: NodeId,
        name: &str,
        value: NodeId,
        key_style: ScalarStyle,
        keep_null: bool,
    ) -> Result<NodeId, WrongKind> {
        if name.is_empty() {
            // To kyaml an empty name means the node itself.
            self.set_scalar(map, value)?;
            return Ok(map);
        }
        self.quote_if_yaml_1_1_would_misread(value);
        if self.is_null(value) && !keep_null {
            self.clear(map, name)?;
            return Ok(value);
        }
        if let Some(field) = self.field(map, name)? {
            self.take_style(value, field);
            self.assign(field, value);
            return Ok(field);
        }
        let key = self.scalar(name, Tag::Implicit, key_style);
        self.push_field(map, key, value);
        Ok(value)
    }

    /// kyaml's `FieldSetter` without a name: `target` takes the value but keeps its style.
    pub(crate) fn set_scalar(&mut self, target: NodeId, value: NodeId) -> Result<(), WrongKind> {
        self.quote_if_yaml_1_1_would_misread(value);
        self.demand(target, Kind::Scalar)?;
        if self.is_null(value) {
            return Ok(());
        }
        self.take_style(value, target);
        self.assign(target, value);
        Ok(())
    }

    /// `value` gets the style of `model`: quotes of a scalar, brackets of a collection. As in Go the value
    /// itself changes, which shows where it stands in several places.
    fn take_style(&mut self, value: NodeId, model: NodeId) {
        let (scalar, in_flow) = match &self[model].body {
            Body::Scalar { style, .. } => (*style, false),
            Body::Map { flow, .. } | Body::Seq { flow, .. } => (ScalarStyle::Plain, *flow),
        };
        let shown = self[model].tag_shown;
        match &mut self[value].body {
            Body::Scalar { style, .. } => *style = scalar,
            Body::Map { flow, .. } | Body::Seq { flow, .. } => *flow = in_flow,
        }
        self[value].tag_shown = shown;
    }

    /// A string such as `yes` is quoted for the sake of older parsers.
    fn quote_if_yaml_1_1_would_misread(&mut self, value: NodeId) {
        if !self.is_string(value) {
            return;
        }
        if let Body::Scalar { text, style: style @ ScalarStyle::Plain } = &mut self[value].body
            && yaml_1_1_reads_no_string(text)
        {
            *style = ScalarStyle::DoubleQuoted;
        }
    }

    /// The field, made with the given kind when it is missing (kyaml's `LookupCreate` of one name).
    pub(crate) fn field_or_create(
        &mut self,
        map: NodeId,
        name: &str,
        kind: Kind,
    ) -> Result<Option<NodeId>, WrongKind> {
        if self.is_null(map) {
            return Ok(None);
        }
        if let Some(field) = self.field(map, name)? {
            return Ok(Some(field));
        }
        let made = self.empty(kind);
        self.set_field(map, name, made).map(Some)
    }

    /// Turns a null into an empty node of another kind, in place.
    pub(crate) fn become_empty(&mut self, id: NodeId, kind: Kind, tag: Tag) {
        let old = std::mem::replace(&mut self[id].body, Body::empty(kind));
        // Go changes only the kind: a scalar keeps the text it had.
        if let (Body::Scalar { .. }, Kind::Scalar) = (&old, kind) {
            self[id].body = old;
        }
        self[id].tag = tag;
    }

    /// A map of strings, its keys sorted, each value a string node.
    pub(crate) fn string_map<'a>(&mut self, entries: impl IntoIterator<Item = (&'a str, Text)>) -> NodeId {
        let mut content = Vec::new();
        for (key, value) in entries {
            content.push(self.plain(key));
            let value = self.string(value);
            self.quote_if_yaml_1_1_would_misread(value);
            content.push(value);
        }
        self.add(NodeData { body: Body::Map { content, flow: false }, tag: Tag::Implicit, tag_shown: false })
    }
}

/// Whether go-yaml v2 would take this text for something other than a string.
pub(crate) fn yaml_1_1_reads_no_string(text: &str) -> bool {
    !text.is_empty() && !text.contains('\n') && crate::yaml_text::is_yaml_1_1_non_string(text)
}
