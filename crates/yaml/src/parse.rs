//! Text to documents: the events of the parser become a tree, with limits.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScanError, Span, StructureStyle};

use crate::comments::CommentLines;
use crate::input::{bom_len, decode};
use crate::node::{Comments, Flow, Mapping, Node, Position, Scalar, ScalarStyle, Sequence, Tag, Text, Value};
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
    let limit = options.limits.bytes.min(u32::MAX as usize);
    if bytes.len() > limit {
        return Err(Error::new(ErrorKind::Limit, format!("input exceeds {limit} bytes")));
    }
    let text = decode(bytes)?;
    let depth = options.limits.depth;
    let events = Parser::new_from_str_with_options(
        &text,
        granit_parser::options! {
            emit_anchor_events: true,
            emit_unresolved_aliases: true,
            emit_comments: options.comments,
            max_buffered_comment_events: usize::MAX,
            flow_nesting_limit: depth,
            block_nesting_limit: depth,
        },
    );
    let mut builder = Builder::new(&text, bom_len(bytes), *options);
    for event in events {
        let (event, span) = event.map_err(|error| syntax_error(&error, options.schema))?;
        if let Some(document) = builder.event(event, span)?
            && !each(document)
        {
            break;
        }
    }
    Ok(())
}

/// Granit's error in go-yaml's words.
fn syntax_error(error: &ScanError, _schema: Schema) -> Error {
    let marker = error.marker();
    let line = u32::try_from(marker.line()).unwrap_or(u32::MAX);
    let column = u32::try_from(marker.col() + 1).unwrap_or(u32::MAX);
    crate::error::from_scan(error).at(line, column)
}

struct Builder<'a> {
    text: &'a str,
    options: Options,
    /// Bytes of the source before `text`.
    offset: usize,
    open: Vec<Frame>,
    root: Option<Node>,
    explicit_start: bool,
    /// What each anchor holds, when aliases are expanded: `None` while its node is still open.
    anchors: HashMap<Text, Option<(Node, usize)>>,
    nodes: usize,
    comments: CommentLines,
}

/// A collection whose end has not come yet.
struct Frame {
    node: Node,
    key: Option<Node>,
    /// The node count when it was opened.
    nodes_before: usize,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, offset: usize, options: Options) -> Self {
        Self {
            text,
            options,
            offset,
            open: Vec::new(),
            root: None,
            explicit_start: false,
            anchors: HashMap::new(),
            nodes: 0,
            comments: CommentLines::default(),
        }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<Option<Document>, Error> {
        match event {
            Event::DocumentStart(explicit, _) => self.explicit_start = explicit,
            Event::DocumentEnd => return Ok(self.end_document()),
            Event::Scalar(text, style, _, tag) => {
                let node = self.scalar(&text, scalar_style(style), tag.as_deref(), span);
                self.add(node)?;
            }
            Event::SequenceStart(style, _, tag) => {
                self.start(
                    Value::Sequence(Sequence { items: Vec::new(), flow: flow(style) }),
                    tag.as_deref(),
                    span,
                )?;
            }
            Event::MappingStart(style, _, tag) => {
                self.start(
                    Value::Mapping(Mapping { entries: Vec::new(), flow: flow(style) }),
                    tag.as_deref(),
                    span,
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span)?,
            Event::Anchor(_, name) => self.anchor(&name),
            Event::Alias(_) => self.alias(span)?,
            Event::UnresolvedAlias(name) => {
                return Err(Error::new(ErrorKind::Alias, format!("unknown anchor '{name}' referenced")));
            }
            Event::Comment(text, _) => self.comments.add(&text, span),
            Event::StreamStart | Event::StreamEnd => {}
            _ => {}
        }
        Ok(None)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&granit_parser::Tag>,
        span: Span,
    ) -> Node {
        let position = self.position(span);
        // The parser stands in a tilde for a value that is not there.
        let absent = style == ScalarStyle::Plain && position.start == position.end;
        let text = if absent { Text::default() } else { Text::new(text) };
        let mut node: Node = Value::Scalar(Scalar { text, style }).into();
        node.set_position(position);
        match tag {
            Some(tag) => set_tag(&mut node, tag),
            None if style == ScalarStyle::Plain && node.text() == Some("<<") => node.tag = Tag::Merge,
            None => {}
        }
        node
    }

    fn start(&mut self, value: Value, tag: Option<&granit_parser::Tag>, span: Span) -> Result<(), Error> {
        if self.open.len() >= self.options.limits.depth {
            let message = format!("exceeded max depth of {}", self.options.limits.depth);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        let mut node: Node = value.into();
        node.set_position(self.position(span));
        if let Some(tag) = tag {
            set_tag(&mut node, tag);
        }
        self.open.push(Frame { node, key: None, nodes_before: self.nodes });
        Ok(())
    }

    fn end(&mut self, span: Span) -> Result<(), Error> {
        let Some(mut frame) = self.open.pop() else { return Ok(()) };
        let position = frame.node.position();
        frame.node.set_position(Position { end: self.position(span).end.max(position.start), ..position });
        if self.options.duplicate_keys == DuplicateKeys::Refuse {
            crate::decode::refuse_duplicates(&frame.node)?;
        }
        if self.options.aliases == Aliases::Expand {
            self.remember(&frame.node, self.nodes - frame.nodes_before + 1);
        }
        self.add(frame.node)
    }

    /// Puts a finished node where it belongs.
    fn add(&mut self, node: Node) -> Result<(), Error> {
        self.nodes += 1;
        if self.nodes > self.options.limits.nodes {
            return Err(Error::new(ErrorKind::Limit, "document has too many nodes"));
        }
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut frame.node.value {
            Value::Sequence(sequence) => sequence.items.push(node),
            Value::Mapping(mapping) => match frame.key.take() {
                None => frame.key = Some(node),
                Some(key) => mapping.entries.push((key, node)),
            },
            Value::Scalar(_) | Value::Alias(_) => {}
        }
        Ok(())
    }

    /// The name of the node that was just added, or of the collection just opened.
    fn anchor(&mut self, name: &str) {
        let name = Text::new(name);
        let expand = self.options.aliases == Aliases::Expand;
        let node = match self.open.last_mut() {
            // A collection was opened if it is still empty and no key of it has been read.
            Some(frame) if frame.is_new() => {
                if expand {
                    self.anchors.insert(name.clone(), None);
                }
                Some(&mut frame.node)
            }
            Some(frame) => frame.last_added(),
            None => self.root.as_mut(),
        };
        let Some(node) = node else { return };
        node.set_anchor(Some(&name));
        if expand && matches!(node.value, Value::Scalar(_)) {
            let mut copy = node.clone();
            copy.set_anchor(None);
            self.anchors.insert(name, Some((copy, 1)));
        }
    }

    fn remember(&mut self, node: &Node, count: usize) {
        if let Some(name) = node.anchor() {
            let mut copy = node.clone();
            copy.set_anchor(None);
            self.anchors.insert(name.into(), Some((copy, count)));
        }
    }

    fn alias(&mut self, span: Span) -> Result<(), Error> {
        let name = span.slice(self.text).map(|text| text.trim_start_matches('*')).unwrap_or_default();
        if self.options.aliases == Aliases::Keep {
            let mut node: Node = Value::Alias(Text::new(name)).into();
            node.set_position(self.position(span));
            return self.add(node);
        }
        let refuse = |what: String| Err(Error::new(ErrorKind::Alias, what));
        match self.anchors.get(name) {
            None => refuse(format!("unknown anchor '{name}' referenced")),
            Some(None) => refuse(format!("anchor '{name}' value contains itself")),
            Some(Some((target, count))) => {
                self.nodes = self.nodes.saturating_add(count - 1);
                if self.nodes > self.options.limits.nodes {
                    return Err(Error::new(ErrorKind::Limit, "document contains excessive aliasing"));
                }
                let copy = target.clone();
                self.add(copy)
            }
        }
    }

    fn end_document(&mut self) -> Option<Document> {
        self.anchors.clear();
        let mut document = Document {
            root: self.root.take()?,
            comments: Comments::default(),
            explicit_start: self.explicit_start,
        };
        if self.options.comments {
            self.comments.attach(&mut document);
        }
        Some(document)
    }

    fn position(&self, span: Span) -> Position {
        let range = span.byte_range().unwrap_or_default();
        let clamp = |value: usize| u32::try_from(value + self.offset).unwrap_or(u32::MAX);
        Position {
            line: u32::try_from(span.start.line()).unwrap_or(u32::MAX),
            column: u16::try_from(span.start.col() + 1).unwrap_or(u16::MAX),
            start: clamp(range.start),
            end: clamp(range.end),
        }
    }
}

impl Frame {
    fn is_new(&self) -> bool {
        self.key.is_none()
            && match &self.node.value {
                Value::Sequence(sequence) => sequence.items.is_empty(),
                Value::Mapping(mapping) => mapping.entries.is_empty(),
                Value::Scalar(_) | Value::Alias(_) => true,
            }
    }

    fn last_added(&mut self) -> Option<&mut Node> {
        if self.key.is_some() {
            return self.key.as_mut();
        }
        match &mut self.node.value {
            Value::Sequence(sequence) => sequence.items.last_mut(),
            Value::Mapping(mapping) => mapping.entries.last_mut().map(|(_, value)| value),
            Value::Scalar(_) | Value::Alias(_) => None,
        }
    }
}

fn set_tag(node: &mut Node, tag: &granit_parser::Tag) {
    let (handle, suffix) = tag.parts();
    node.set_tag(&format!("{handle}{suffix}"), true);
    if node.tag == Tag::NonSpecific {
        node.tag_shown = false;
    }
}

fn flow(style: StructureStyle) -> Flow {
    match style {
        StructureStyle::Block => Flow::Block,
        StructureStyle::Flow => Flow::Flow,
    }
}

fn scalar_style(style: granit_parser::ScalarStyle) -> ScalarStyle {
    match style {
        granit_parser::ScalarStyle::Plain => ScalarStyle::Plain,
        granit_parser::ScalarStyle::SingleQuoted => ScalarStyle::SingleQuoted,
        granit_parser::ScalarStyle::DoubleQuoted => ScalarStyle::DoubleQuoted,
        granit_parser::ScalarStyle::Literal => ScalarStyle::Literal,
        granit_parser::ScalarStyle::Folded => ScalarStyle::Folded,
    }
}
