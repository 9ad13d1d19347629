//! Text to documents: the events of the parser become a tree, with limits.

use std::collections::HashMap;

use crate::events::{Event, EventValue, Parser, Properties};
use crate::input::{bom_len, decode};
use crate::node::{Comments, Flow, Mapping, Node, Position, Scalar, ScalarStyle, Sequence, Tag, Text, Value};
use crate::scan::{Mark, Scanner, Unfolded};
use crate::{Error, ErrorKind, Limits, Schema};

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whose rules apply where the two libraries differ.
    pub schema: Schema,
    pub duplicate_keys: DuplicateKeys,
    pub aliases: Aliases,
    /// Whether comments are attached to nodes. Without them parsing is faster.
    pub comments: bool,
    pub limits: Limits,
}

impl Options {
    /// Duplicates and aliases are kept, comments are not.
    pub fn new(schema: Schema) -> Self {
        Self {
            schema,
            duplicate_keys: DuplicateKeys::Keep,
            aliases: Aliases::Keep,
            comments: false,
            limits: Limits::default(),
        }
    }

    pub fn with_comments(self) -> Self {
        Self { comments: true, ..self }
    }

    pub fn with_expanded_aliases(self) -> Self {
        Self { aliases: Aliases::Expand, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// Both entries stay in the tree; a decoder decides.
    Keep,
    /// An error in go-yaml v3's words.
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aliases {
    /// `*name` stays an alias.
    Keep,
    /// Each alias becomes a copy of what its anchor holds.
    Expand,
}

/// One document of a stream.
#[derive(Clone, Debug)]
pub struct Document {
    pub root: Node,
    /// Comments above and below the whole document, set off by an empty line.
    pub comments: Comments,
    /// Whether it began with `---`.
    pub explicit_start: bool,
}

/// All documents of a stream. An empty one holds a null, as in Go; a stream without any text has no document.
pub fn parse_stream(bytes: &[u8], options: &Options) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    read(bytes, options, |document| {
        documents.push(document);
        true
    })?;
    Ok(documents)
}

/// The first document only; what comes after it is not even looked at, as in Go's `Unmarshal`.
pub fn parse_one(bytes: &[u8], options: &Options) -> Result<Option<Document>, Error> {
    let mut first = None;
    read(bytes, options, |document| {
        first = Some(document);
        false
    })?;
    Ok(first)
}

fn read(bytes: &[u8], options: &Options, mut each: impl FnMut(Document) -> bool) -> Result<(), Error> {
    let limit = options.limits.bytes.min(i32::MAX as usize);
    if bytes.len() > limit {
        return Err(Error::new(ErrorKind::Limit, format!("input exceeds {limit} bytes")));
    }
    let (text, broken) = decode(bytes);
    let scanner = Scanner::new(&text, broken, options.schema, options.comments, options.limits.depth);
    let mut events = Parser::new(scanner, options.schema, options.comments);
    let mut builder = Builder::new(bom_len(bytes), *options);
    loop {
        let event = events.next()?;
        if matches!(event.value, EventValue::StreamEnd) {
            return Ok(());
        }
        if let Some(document) = builder.event(event)?
            && !each(document)
        {
            return Ok(());
        }
    }
}

struct Builder {
    options: Options,
    /// Bytes of the source before the text.
    offset: u8,
    open: Vec<Frame>,
    root: Option<Node>,
    explicit_start: bool,
    head: Text,
    /// What each anchor holds: `None` while its node is still open, or when aliases are not expanded.
    anchors: HashMap<Text, Option<Held>>,
    nodes: usize,
    expanded_nodes: usize,
}

/// What an anchor stands for.
struct Held {
    node: Node,
    /// How many nodes it is.
    count: usize,
    /// How deep it is: 0 for a scalar.
    depth: usize,
}

/// A collection whose end has not come yet.
struct Frame {
    node: Node,
    key: Option<Node>,
    /// The depth of its deepest child.
    depth: usize,
    /// The node count when it was opened.
    nodes_before: usize,
}

impl Builder {
    fn new(offset: u8, options: Options) -> Self {
        Self {
            options,
            offset,
            open: Vec::new(),
            root: None,
            explicit_start: false,
            head: Text::default(),
            anchors: HashMap::new(),
            nodes: 0,
            expanded_nodes: 0,
        }
    }

    fn event(&mut self, event: Event<'_>) -> Result<Option<Document>, Error> {
        let position = self.position(&event);
        match event.value {
            EventValue::StreamEnd => {}
            EventValue::DocumentStart { explicit } => {
                self.explicit_start = explicit;
                self.head = event.comments.map(|comments| comments.head.into()).unwrap_or_default();
            }
            EventValue::DocumentEnd => {
                let foot = event.comments.map(|comments| comments.foot.into()).unwrap_or_default();
                return Ok(self.end_document(foot));
            }
            EventValue::Alias(name) => {
                let (mut node, depth) = self.alias(name)?;
                if matches!(node.value, Value::Alias(_)) {
                    node.set_position(position);
                }
                set_comments(&mut node, event.comments);
                self.add(node, depth)?;
            }
            EventValue::Scalar { text, style, properties } => {
                let value = Value::Scalar(Scalar { text: Text::new(text), style });
                let mut node = self.node(value, properties, position, event.comments);
                if node.text() == Some("<<")
                    && style == ScalarStyle::Plain
                    && matches!(node.tag, Tag::Implicit | Tag::NonSpecific)
                {
                    node.tag = Tag::Merge;
                }
                self.remember(&node, 1, 0);
                self.add(node, 0)?;
            }
            EventValue::SequenceStart { flow, properties } => {
                let value = Value::Sequence(Sequence { items: Vec::new(), flow });
                let node = self.node(value, properties, position, event.comments);
                self.start(node)?;
            }
            EventValue::MappingStart { flow, properties } => {
                let value = Value::Mapping(Mapping { entries: Vec::new(), flow });
                let node = self.node(value, properties, position, event.comments);
                self.start(node)?;
            }
            EventValue::SequenceEnd | EventValue::MappingEnd => self.end(position.end, event.comments)?,
        }
        Ok(None)
    }

    fn node(
        &mut self,
        value: Value,
        properties: Option<Box<Properties<'_>>>,
        position: Position,
        comments: Option<Box<Unfolded>>,
    ) -> Node {
        let mut node: Node = value.into();
        node.set_position(position);
        if let Some(properties) = properties {
            if let Some(tag) = properties.tag {
                node.set_tag(&tag, true);
                node.tag_shown = node.tag != Tag::NonSpecific;
            }
            if properties.anchor.is_some() {
                node.set_anchor(properties.anchor);
            }
        }
        set_comments(&mut node, comments);
        node
    }

    fn start(&mut self, node: Node) -> Result<(), Error> {
        self.check_depth(1)?;
        if let Some(anchor) = node.anchor() {
            self.anchors.insert(anchor.into(), None);
        }
        self.open.push(Frame { node, key: None, depth: 0, nodes_before: self.nodes });
        Ok(())
    }

    /// The scanner counts brackets and indentation; dashes at the column of their key are levels, too.
    fn check_depth(&self, depth: usize) -> Result<(), Error> {
        let limit = self.options.limits.depth;
        if self.open.len() + depth > limit {
            return Err(Error::new(ErrorKind::Limit, format!("exceeded max depth of {limit}")));
        }
        Ok(())
    }

    fn end(&mut self, end: u32, comments: Option<Box<Unfolded>>) -> Result<(), Error> {
        let Some(mut frame) = self.open.pop() else { return Ok(()) };
        let position = frame.node.position();
        frame.node.set_position(Position { end: end.max(position.start), ..position });
        if self.options.comments {
            frame.end_comments(comments.map_or_else(Unfolded::default, |comments| *comments));
        }
        if self.options.duplicate_keys == DuplicateKeys::Refuse {
            crate::decode::refuse_duplicates(&frame.node)?;
        }
        let depth = frame.depth + 1;
        self.remember(&frame.node, self.nodes - frame.nodes_before + 1, depth);
        self.add(frame.node, depth)
    }

    /// Puts a finished node where it belongs.
    fn add(&mut self, node: Node, depth: usize) -> Result<(), Error> {
        self.nodes += 1;
        if self.nodes > self.options.limits.nodes {
            return Err(Error::new(ErrorKind::Limit, "document has too many nodes"));
        }
        match self.open.last_mut() {
            Some(frame) => frame.add(node, depth),
            None => self.root = Some(node),
        }
        Ok(())
    }

    /// Keeps what an anchor holds for the aliases to come.
    fn remember(&mut self, node: &Node, count: usize, depth: usize) {
        let Some(name) = node.anchor() else { return };
        let held = (self.options.aliases == Aliases::Expand).then(|| {
            let mut copy = node.clone();
            copy.set_anchor(None);
            Held { node: copy, count, depth }
        });
        self.anchors.insert(name.into(), held);
    }

    /// The node an alias stands for, and how deep it is.
    fn alias(&mut self, name: &str) -> Result<(Node, usize), Error> {
        let refuse = |what: String| Err(Error::new(ErrorKind::Alias, what));
        match self.anchors.get(name) {
            None => refuse(format!("unknown anchor '{name}' referenced")),
            Some(_) if self.options.aliases == Aliases::Keep => Ok((Value::Alias(Text::new(name)).into(), 0)),
            Some(None) => refuse(format!("anchor '{name}' value contains itself")),
            Some(Some(held)) => {
                self.check_depth(held.depth)?;
                self.nodes = self.nodes.saturating_add(held.count - 1);
                self.expanded_nodes = self.expanded_nodes.saturating_add(held.count);
                if self.expanded_nodes > self.options.limits.expanded_nodes {
                    return Err(Error::new(ErrorKind::Limit, "document contains excessive aliasing"));
                }
                Ok((held.node.clone(), held.depth))
            }
        }
    }

    fn end_document(&mut self, foot: Text) -> Option<Document> {
        if self.options.schema == Schema::V2 {
            // v3 keeps them for the documents that follow.
            self.anchors.clear();
        }
        let comments = Comments { head: std::mem::take(&mut self.head), line: Text::default(), foot };
        Some(Document { root: self.root.take()?, comments, explicit_start: self.explicit_start })
    }

    fn position(&self, event: &Event<'_>) -> Position {
        let offset = |mark: Mark| mark.index.max(0).unsigned_abs() + u32::from(self.offset);
        Position {
            line: event.start.line + 1,
            column: u16::try_from(event.start.column + 1).unwrap_or(u16::MAX),
            start: offset(event.content),
            end: offset(event.end),
        }
    }
}

impl Frame {
    fn add(&mut self, node: Node, depth: usize) {
        self.depth = self.depth.max(depth);
        match &mut self.node.value {
            Value::Sequence(sequence) => sequence.items.push(node),
            Value::Mapping(mapping) => match self.key.take() {
                None => self.key = Some(settle_key(mapping, node)),
                Some(key) => mapping.entries.push(settle_value(key, node)),
            },
            Value::Scalar(_) | Value::Alias(_) => {}
        }
    }

    /// The line and foot comments at the end of a collection replace those at its start. Those below a block
    /// mapping are its last key's.
    fn end_comments(&mut self, comments: Unfolded) {
        if self.node.comments().is_some() || !comments.line.is_empty() {
            let own = self.node.comments_mut();
            own.line = comments.line.into();
            own.foot = Text::default();
        }
        if comments.foot.is_empty() {
            return;
        }
        let foot = comments.foot.into();
        match &mut self.node.value {
            Value::Mapping(Mapping { entries, flow: Flow::Block }) if !entries.is_empty() => {
                if let Some((key, _)) = entries.last_mut() {
                    key.comments_mut().foot = foot;
                }
            }
            Value::Mapping(_) | Value::Sequence(_) | Value::Scalar(_) | Value::Alias(_) => {
                self.node.comments_mut().foot = foot;
            }
        }
    }
}

/// A foot comment that arrives with a key of a block mapping is that of the entry before.
fn settle_key(mapping: &mut Mapping, mut key: Node) -> Node {
    if mapping.flow == Flow::Block
        && let Some((before, _)) = mapping.entries.last_mut()
        && key.comments().is_some_and(|comments| !comments.foot.is_empty())
    {
        before.comments_mut().foot = std::mem::take(&mut key.comments_mut().foot);
    }
    key
}

/// The foot comment of an entry is kept with its key.
fn settle_value(mut key: Node, mut value: Node) -> (Node, Node) {
    let has_foot = |node: &Node| node.comments().is_some_and(|comments| !comments.foot.is_empty());
    if has_foot(&value) && !has_foot(&key) {
        key.comments_mut().foot = std::mem::take(&mut value.comments_mut().foot);
    }
    (key, value)
}

fn set_comments(node: &mut Node, comments: Option<Box<Unfolded>>) {
    if let Some(comments) = comments {
        let Unfolded { head, line, foot } = *comments;
        *node.comments_mut() = Comments { head: head.into(), line: line.into(), foot: foot.into() };
    }
}
