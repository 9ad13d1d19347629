//! All nodes of a build in one arena, addressed by number.
//!
//! kustomize works on pointers to nodes, and sometimes puts one node in two places: a label it adds to
//! `metadata.labels` *is* the label it adds to the selector, and a later change of one changes the other. Users
//! have come to see that, so it has to come out the same here. Numbers instead of pointers make such sharing
//! plain to see, and cheap.
//!
//! Deliberately absent: positions, and the comments of objects, which no output of a build depends on.

mod convert;
mod elements;
mod fields;
mod lookup;
mod path_match;

pub(crate) use convert::parse;
pub(crate) use elements::ElementSet;
pub(crate) use fields::WrongKind;
pub(crate) use lookup::{go_int, smart_split, split_path};
pub(crate) use path_match::PathMatch;

pub(crate) use yaml::{ScalarStyle, Tag, Text};

use std::collections::HashMap;

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

#[derive(Clone, Debug)]
pub(crate) struct NodeData {
    pub body: Body,
    pub tag: Tag,
    /// The tag is written out even where it could be guessed.
    pub tag_shown: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Scalar {
        text: Text,
        style: ScalarStyle,
    },
    /// Keys and values in turn.
    Map {
        content: Vec<NodeId>,
        flow: bool,
    },
    Seq {
        content: Vec<NodeId>,
        flow: bool,
    },
}

/// What kyaml calls the kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Scalar,
    Map,
    Seq,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scalar => "ScalarNode",
            Self::Map => "MappingNode",
            Self::Seq => "SequenceNode",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<NodeData>,
    /// Places that nothing refers to any more.
    free: Vec<NodeId>,
    /// Comments of the few nodes that were read from a text inside a text, which is written again.
    comments: HashMap<NodeId, yaml::Comments>,
}

impl std::ops::Index<NodeId> for Tree {
    type Output = NodeData;

    fn index(&self, id: NodeId) -> &NodeData {
        &self.nodes[id.0 as usize]
    }
}

impl std::ops::IndexMut<NodeId> for Tree {
    fn index_mut(&mut self, id: NodeId) -> &mut NodeData {
        &mut self.nodes[id.0 as usize]
    }
}

impl Tree {
    pub(crate) fn add(&mut self, data: NodeData) -> NodeId {
        if let Some(id) = self.free.pop() {
            self[id] = data;
            return id;
        }
        let id =
            u32::try_from(self.nodes.len()).expect("the limits on input keep an arena far below 2^32 nodes");
        self.nodes.push(data);
        NodeId(id)
    }

    /// Gives back the places of a node and all below it. The caller knows that no other node refers to them; two
    /// places inside may be one node, though.
    pub(crate) fn release(&mut self, root: NodeId) {
        let mut open = vec![root];
        let mut all = Vec::new();
        while let Some(id) = open.pop() {
            if let Some(content) = self.content_mut(id) {
                open.append(content);
            }
            all.push(id);
        }
        all.sort_unstable();
        all.dedup();
        for id in &all {
            self[*id].body = Body::empty(Kind::Seq);
            if !self.comments.is_empty() {
                self.comments.remove(id);
            }
        }
        self.free.append(&mut all);
    }

    /// A scalar without a tag: what it means depends on its text.
    pub(crate) fn plain(&mut self, text: impl Into<Text>) -> NodeId {
        self.scalar(text, Tag::Implicit, ScalarStyle::Plain)
    }

    pub(crate) fn scalar(&mut self, text: impl Into<Text>, tag: Tag, style: ScalarStyle) -> NodeId {
        self.add(NodeData { body: Body::Scalar { text: text.into(), style }, tag, tag_shown: false })
    }

    /// A string, written as a block when it has several lines (go-yaml's `SetString`).
    pub(crate) fn string(&mut self, text: impl Into<Text>) -> NodeId {
        let text = text.into();
        let style = if text.contains('\n') { ScalarStyle::Literal } else { ScalarStyle::Plain };
        self.scalar(text, Tag::Str, style)
    }

    pub(crate) fn empty(&mut self, kind: Kind) -> NodeId {
        let body = Body::empty(kind);
        self.add(NodeData { body, tag: Tag::Implicit, tag_shown: false })
    }

    pub(crate) fn map(&mut self, content: Vec<NodeId>) -> NodeId {
        self.add(NodeData { body: Body::Map { content, flow: false }, tag: Tag::Map, tag_shown: false })
    }

    pub(crate) fn seq(&mut self, content: Vec<NodeId>) -> NodeId {
        self.add(NodeData { body: Body::Seq { content, flow: false }, tag: Tag::Seq, tag_shown: false })
    }

    pub(crate) fn kind(&self, id: NodeId) -> Kind {
        match self[id].body {
            Body::Scalar { .. } => Kind::Scalar,
            Body::Map { .. } => Kind::Map,
            Body::Seq { .. } => Kind::Seq,
        }
    }

    /// The text of a scalar; empty for anything else, as the `Value` of a Go node is.
    pub(crate) fn text(&self, id: NodeId) -> &str {
        match &self[id].body {
            Body::Scalar { text, .. } => text,
            Body::Map { .. } | Body::Seq { .. } => "",
        }
    }

    pub(crate) fn owned_text(&self, id: NodeId) -> Text {
        match &self[id].body {
            Body::Scalar { text, .. } => text.clone(),
            Body::Map { .. } | Body::Seq { .. } => Text::default(),
        }
    }

    /// The children: items of a list, keys and values in turn of a map, nothing of a scalar.
    pub(crate) fn content(&self, id: NodeId) -> &[NodeId] {
        match &self[id].body {
            Body::Scalar { .. } => &[],
            Body::Map { content, .. } | Body::Seq { content, .. } => content,
        }
    }

    pub(crate) fn content_mut(&mut self, id: NodeId) -> Option<&mut Vec<NodeId>> {
        match &mut self[id].body {
            Body::Scalar { .. } => None,
            Body::Map { content, .. } | Body::Seq { content, .. } => Some(content),
        }
    }

    pub(crate) fn set_text(&mut self, id: NodeId, new: impl Into<Text>) {
        if let Body::Scalar { text, .. } = &mut self[id].body {
            *text = new.into();
        }
    }

    /// Makes `target` look like `source` without becoming it: children are shared, as when Go copies a struct.
    pub(crate) fn assign(&mut self, target: NodeId, source: NodeId) {
        if target == source {
            return;
        }
        self[target] = self[source].clone();
        self.comments.remove(&target);
        if let Some(comments) = self.comments.get(&source) {
            self.comments.insert(target, comments.clone());
        }
    }

    pub(crate) fn is_null(&self, id: NodeId) -> bool {
        self[id].tag == Tag::Null
    }

    /// A plain or explicit string, or a scalar without a tag.
    pub(crate) fn is_string(&self, id: NodeId) -> bool {
        self.kind(id) == Kind::Scalar && matches!(self[id].tag, Tag::Str | Tag::Implicit)
    }

    pub(crate) fn is_null_or_empty(&self, id: NodeId) -> bool {
        self.is_null(id)
            || match &self[id].body {
                Body::Scalar { .. } => false,
                Body::Map { content, .. } | Body::Seq { content, .. } => content.is_empty(),
            }
    }

    pub(crate) fn is_empty_map(&self, id: NodeId) -> bool {
        matches!(&self[id].body, Body::Map { content, .. } if content.is_empty())
    }

    pub(crate) fn deep_copy(&mut self, id: NodeId) -> NodeId {
        let mut data = self[id].clone();
        if let Body::Map { content, .. } | Body::Seq { content, .. } = &mut data.body {
            for child in content {
                *child = self.deep_copy(*child);
            }
        }
        let copy = self.add(data);
        if let Some(comments) = self.comments.get(&id) {
            self.comments.insert(copy, comments.clone());
        }
        copy
    }
}

impl Body {
    pub(crate) fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Scalar => Self::Scalar { text: Text::default(), style: ScalarStyle::Plain },
            Kind::Map => Self::Map { content: Vec::new(), flow: false },
            Kind::Seq => Self::Seq { content: Vec::new(), flow: false },
        }
    }
}

impl Tree {
    /// Whether a reader of YAML takes the node for a string.
    pub(crate) fn is_read_as_string(&self, id: NodeId) -> bool {
        match (&self[id].body, self[id].tag) {
            (Body::Scalar { .. }, Tag::Str) => true,
            (Body::Scalar { text, style: ScalarStyle::Plain }, Tag::Implicit) => {
                yaml::resolve::resolve_v3(text).tag() == Tag::Str
            }
            (Body::Scalar { .. }, Tag::Implicit) => true,
            (Body::Scalar { .. } | Body::Map { .. } | Body::Seq { .. }, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stays_small() {
        assert!(size_of::<NodeData>() <= 40, "{}", size_of::<NodeData>());
    }

    #[test]
    fn released_places_are_used_again_once_each() {
        let mut tree = Tree::default();
        let shared = tree.plain("x");
        let list = tree.seq(vec![shared, shared]);
        tree.release(list);
        let made = [tree.plain("a"), tree.plain("b"), tree.plain("c")];
        assert_eq!(made.map(|id| tree.text(id).to_owned()), ["a", "b", "c"]);
        assert_eq!(tree.nodes.len(), 3);
    }
}
