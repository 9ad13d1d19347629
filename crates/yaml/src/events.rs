//! Tokens to events: the grammar of YAML as a machine of states, so that no depth of nesting is a recursion.

use std::borrow::Cow;

use crate::node::{Flow, LONG_TAG_PREFIX, ScalarStyle};
use crate::scan::{Kind, Mark, Scanner, TokenValue, Unfolded};
use crate::{Error, ErrorKind, Schema};

pub(crate) struct Event<'a> {
    pub value: EventValue<'a>,
    /// Where the node starts, its anchor and tag included.
    pub start: Mark,
    /// Where its content starts.
    pub content: Mark,
    pub end: Mark,
    pub comments: Option<Box<Unfolded>>,
}

pub(crate) enum EventValue<'a> {
    StreamEnd,
    DocumentStart { explicit: bool },
    DocumentEnd,
    Alias(&'a str),
    Scalar { text: Cow<'a, str>, style: ScalarStyle, properties: Option<Box<Properties<'a>>> },
    SequenceStart { flow: Flow, properties: Option<Box<Properties<'a>>> },
    SequenceEnd,
    MappingStart { flow: Flow, properties: Option<Box<Properties<'a>>> },
    MappingEnd,
}

#[derive(Default)]
pub(crate) struct Properties<'a> {
    pub anchor: Option<&'a str>,
    /// The tag with its handle replaced.
    pub tag: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    StreamStart,
    ImplicitDocumentStart,
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceFirst,
    BlockSequence,
    IndentlessSequence,
    BlockMappingFirst,
    BlockMappingKey,
    BlockMappingValue,
    FlowSequenceFirst,
    FlowSequence,
    FlowPairKey,
    FlowPairValue,
    FlowPairEnd,
    FlowMappingFirst,
    FlowMappingKey,
    FlowMappingValue,
    FlowMappingEmptyValue,
    End,
}

/// The next token, as far as the grammar looks at it.
#[derive(Clone, Copy)]
struct Seen {
    kind: Kind,
    start: Mark,
    end: Mark,
}

pub(crate) struct Parser<'a> {
    scanner: Scanner<'a>,
    schema: Schema,
    keep_comments: bool,
    state: State,
    states: Vec<State>,
    /// Where the open collections began, for error messages.
    marks: Vec<Mark>,
    tag_directives: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    comments: Unfolded,
    /// The head comment of a dash whose entry is a collection.
    stem: String,
    pending_error: Option<Error>,
}

impl<'a> Parser<'a> {
    pub fn new(scanner: Scanner<'a>, schema: Schema, keep_comments: bool) -> Self {
        Self {
            scanner,
            schema,
            keep_comments,
            state: State::StreamStart,
            states: Vec::new(),
            marks: Vec::new(),
            tag_directives: Vec::new(),
            comments: Unfolded::default(),
            stem: String::new(),
            pending_error: None,
        }
    }

    /// The next event; after the end of the stream it is `StreamEnd` for ever.
    pub fn next(&mut self) -> Result<Event<'a>, Error> {
        let event = self.step()?;
        match self.pending_error.take() {
            Some(error) => Err(error),
            None => Ok(event),
        }
    }

    fn step(&mut self) -> Result<Event<'a>, Error> {
        match self.state {
            State::StreamStart => {
                self.peek()?;
                self.scanner.take();
                self.state = State::ImplicitDocumentStart;
                self.document_start(true)
            }
            State::ImplicitDocumentStart => self.document_start(true),
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(true, false),
            State::BlockSequenceFirst => self.block_sequence(true),
            State::BlockSequence => self.block_sequence(false),
            State::IndentlessSequence => self.indentless_sequence(),
            State::BlockMappingFirst => self.block_mapping_key(true),
            State::BlockMappingKey => self.block_mapping_key(false),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceFirst => self.flow_sequence(true),
            State::FlowSequence => self.flow_sequence(false),
            State::FlowPairKey => self.flow_pair_key(),
            State::FlowPairValue => self.flow_pair_value(),
            State::FlowPairEnd => {
                let token = self.peek()?;
                self.state = State::FlowSequence;
                Ok(event(EventValue::MappingEnd, token.start, token.start))
            }
            State::FlowMappingFirst => self.flow_mapping_key(true),
            State::FlowMappingKey => self.flow_mapping_key(false),
            State::FlowMappingValue => self.flow_mapping_value(false),
            State::FlowMappingEmptyValue => self.flow_mapping_value(true),
            State::End => Ok(event(EventValue::StreamEnd, Mark::default(), Mark::default())),
        }
    }

    fn peek(&mut self) -> Result<Seen, Error> {
        let token = self.scanner.peek()?;
        let seen = Seen { kind: token.value.kind(), start: token.start, end: token.end };
        if self.keep_comments {
            self.scanner.unfold_comments(&mut self.comments);
        }
        Ok(seen)
    }

    /// Takes the token that was seen and looks at the next one.
    fn advance(&mut self) -> Result<Seen, Error> {
        self.scanner.take();
        self.peek()
    }

    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    /// An error of the grammar. Unlike the scanner's, go-yaml prints its line counted from 0.
    fn fail(&self, message: &str, context: Option<Mark>, problem: Mark) -> Error {
        let context_line = context.map_or(0, |mark| mark.line);
        let line = match self.schema {
            Schema::V2 if problem.line > 0 => problem.line,
            Schema::V2 => context_line,
            Schema::V3 if context_line > 0 => context_line,
            Schema::V3 => problem.line,
        };
        Error::new(ErrorKind::Syntax, message).at(line, problem.column + 1)
    }

    fn with_comments(&mut self, mut event: Event<'a>) -> Event<'a> {
        if !self.keep_comments {
            return event;
        }
        self.stem.clear();
        let comments = &mut self.comments;
        if !(comments.head.is_empty() && comments.line.is_empty() && comments.foot.is_empty()) {
            event.comments = Some(Box::new(std::mem::take(comments)));
        }
        event
    }

    fn document_start(&mut self, implicit: bool) -> Result<Event<'a>, Error> {
        let mut token = self.peek()?;
        if !implicit {
            while token.kind == Kind::DocumentEnd {
                token = self.advance()?;
            }
        }
        match token.kind {
            Kind::StreamEnd => {
                self.scanner.take();
                self.state = State::End;
                Ok(event(EventValue::StreamEnd, token.start, token.end))
            }
            Kind::VersionDirective | Kind::TagDirective | Kind::DocumentStart => {
                self.explicit_document(token.start)
            }
            _ if implicit => {
                self.directives()?;
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                let mut start = event(EventValue::DocumentStart { explicit: false }, token.start, token.end);
                start.comments = self.document_head();
                Ok(start)
            }
            _ => self.explicit_document(token.start),
        }
    }

    fn explicit_document(&mut self, start: Mark) -> Result<Event<'a>, Error> {
        self.directives()?;
        let token = self.peek()?;
        if token.kind != Kind::DocumentStart {
            return Err(self.fail("did not find expected <document start>", None, token.start));
        }
        self.states.push(State::DocumentEnd);
        self.state = State::DocumentContent;
        self.scanner.take();
        Ok(event(EventValue::DocumentStart { explicit: true }, start, token.end))
    }

    /// The part of the first comment that an empty line sets off belongs to the document.
    fn document_head(&mut self) -> Option<Box<Unfolded>> {
        let head = &self.comments.head;
        let (document, rest) = match head.strip_suffix('\n') {
            Some(all) => (all, ""),
            None => head.rsplit_once("\n\n")?,
        };
        let (document, rest) = (document.to_owned(), rest.to_owned());
        self.comments.head = rest;
        Some(Box::new(Unfolded { head: document, ..Unfolded::default() }))
    }

    fn directives(&mut self) -> Result<(), Error> {
        let mut version = false;
        let mut token = self.peek()?;
        while matches!(token.kind, Kind::VersionDirective | Kind::TagDirective) {
            match self.scanner.take() {
                TokenValue::VersionDirective(..) if version => {
                    return Err(self.fail("found duplicate %YAML directive", None, token.start));
                }
                TokenValue::VersionDirective(1, 1) => version = true,
                TokenValue::VersionDirective(..) => {
                    return Err(self.fail("found incompatible YAML document", None, token.start));
                }
                TokenValue::TagDirective(directive) => {
                    let (handle, prefix) = *directive;
                    if self.tag_directives.iter().any(|(known, _)| *known == handle) {
                        return Err(self.fail("found duplicate %TAG directive", None, token.start));
                    }
                    self.tag_directives.push((handle, prefix));
                }
                _ => {}
            }
            token = self.peek()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", LONG_TAG_PREFIX)] {
            if !self.tag_directives.iter().any(|(known, _)| known == handle) {
                self.tag_directives.push((Cow::Borrowed(handle), Cow::Borrowed(prefix)));
            }
        }
        Ok(())
    }

    fn document_content(&mut self) -> Result<Event<'a>, Error> {
        let token = self.peek()?;
        match token.kind {
            Kind::VersionDirective
            | Kind::TagDirective
            | Kind::DocumentStart
            | Kind::DocumentEnd
            | Kind::StreamEnd => {
                self.pop_state();
                Ok(empty_scalar(token.start))
            }
            _ => self.node(true, false),
        }
    }

    fn document_end(&mut self) -> Result<Event<'a>, Error> {
        let token = self.peek()?;
        let mut end = token.start;
        if token.kind == Kind::DocumentEnd {
            end = token.end;
            self.scanner.take();
        }
        self.tag_directives.clear();
        self.state = State::DocumentStart;
        let mut event = self.with_comments(event(EventValue::DocumentEnd, token.start, end));
        if let Some(comments) = &mut event.comments
            && comments.foot.is_empty()
        {
            comments.foot = std::mem::take(&mut comments.head);
        }
        Ok(event)
    }

    fn node(&mut self, block: bool, indentless: bool) -> Result<Event<'a>, Error> {
        let mut token = self.peek()?;
        if token.kind == Kind::Alias {
            self.pop_state();
            let event = self.with_comments(event(EventValue::StreamEnd, token.start, token.end));
            let TokenValue::Alias(name) = self.scanner.take() else { return Ok(event) };
            return Ok(Event { value: EventValue::Alias(name), ..event });
        }
        let start = token.start;
        let mut end = token.start;
        let mut properties = Properties::default();
        let mut tag = None;
        for _ in 0..2 {
            match token.kind {
                Kind::Anchor if properties.anchor.is_none() => {
                    end = token.end;
                    if let TokenValue::Anchor(name) = self.scanner.take() {
                        properties.anchor = Some(name);
                    }
                }
                Kind::Tag if tag.is_none() => {
                    end = token.end;
                    if let TokenValue::Tag(written) = self.scanner.take() {
                        tag = Some((written, token.start));
                    }
                }
                _ => break,
            }
            token = self.peek()?;
        }
        if let Some((written, mark)) = tag {
            let (handle, suffix) = *written;
            properties.tag = Some(self.resolve_tag(&handle, suffix, start, mark)?);
        }
        let given = properties.anchor.is_some() || properties.tag.is_some();
        let properties = given.then(|| Box::new(properties));
        self.node_content(token, Header { start, end, properties }, block, indentless)
    }

    fn resolve_tag(
        &self,
        handle: &str,
        suffix: Cow<'a, str>,
        start: Mark,
        mark: Mark,
    ) -> Result<String, Error> {
        if handle.is_empty() {
            return Ok(suffix.into_owned());
        }
        let prefix = self.tag_directives.iter().find(|(known, _)| known == handle);
        match prefix {
            Some((_, prefix)) => Ok(format!("{prefix}{suffix}")),
            None => Err(self.fail("found undefined tag handle", Some(start), mark)),
        }
    }

    fn node_content(
        &mut self,
        token: Seen,
        header: Header<'a>,
        block: bool,
        indentless: bool,
    ) -> Result<Event<'a>, Error> {
        let Header { start, end, properties } = header;
        let opened = |value, end| Event { value, start, content: token.start, end, comments: None };
        let (sequence, flow, state) = match token.kind {
            Kind::BlockEntry if indentless => (true, Flow::Block, State::IndentlessSequence),
            Kind::Scalar => {
                self.pop_state();
                let event = self.with_comments(opened(EventValue::StreamEnd, token.end));
                let TokenValue::Scalar(text, style) = self.scanner.take() else { return Ok(event) };
                return Ok(Event { value: EventValue::Scalar { text, style, properties }, ..event });
            }
            Kind::FlowSequenceStart => (true, Flow::Flow, State::FlowSequenceFirst),
            Kind::FlowMappingStart => (false, Flow::Flow, State::FlowMappingFirst),
            Kind::BlockSequenceStart if block => (true, Flow::Block, State::BlockSequenceFirst),
            Kind::BlockMappingStart if block => (false, Flow::Block, State::BlockMappingFirst),
            _ if properties.is_some() => {
                self.pop_state();
                let text = Cow::Borrowed("");
                let value = EventValue::Scalar { text, style: ScalarStyle::Plain, properties };
                return Ok(Event { value, start, content: end, end, comments: None });
            }
            _ => return Err(self.fail("did not find expected node content", Some(start), token.start)),
        };
        let value = if sequence {
            EventValue::SequenceStart { flow, properties }
        } else {
            EventValue::MappingStart { flow, properties }
        };
        let mut event = opened(value, token.end);
        if flow == Flow::Flow {
            event = self.with_comments(event);
        } else if !self.stem.is_empty() && state != State::IndentlessSequence {
            let head = std::mem::take(&mut self.stem);
            event.comments = Some(Box::new(Unfolded { head, ..Unfolded::default() }));
        }
        self.state = state;
        Ok(event)
    }

    /// Remembers where a collection began and passes its first token.
    fn open(&mut self) -> Result<(), Error> {
        let token = self.peek()?;
        self.marks.push(token.start);
        self.scanner.take();
        Ok(())
    }

    fn block_sequence(&mut self, first: bool) -> Result<Event<'a>, Error> {
        if first {
            self.open()?;
        }
        let token = self.peek()?;
        match token.kind {
            Kind::BlockEntry => {
                let next = self.pass_dash()?;
                if matches!(next.kind, Kind::BlockEntry | Kind::BlockEnd) {
                    self.state = State::BlockSequence;
                    return Ok(empty_scalar(token.end));
                }
                self.states.push(State::BlockSequence);
                self.node(true, false)
            }
            Kind::BlockEnd => {
                self.pop_state();
                self.marks.pop();
                self.scanner.take();
                Ok(event(EventValue::SequenceEnd, token.start, token.end))
            }
            _ => {
                let context = self.marks.pop();
                Err(self.fail("did not find expected '-' indicator", context, token.start))
            }
        }
    }

    fn indentless_sequence(&mut self) -> Result<Event<'a>, Error> {
        let token = self.peek()?;
        if token.kind != Kind::BlockEntry {
            self.pop_state();
            return Ok(event(EventValue::SequenceEnd, token.start, token.start));
        }
        let next = self.pass_dash()?;
        if matches!(next.kind, Kind::BlockEntry | Kind::Key | Kind::Value | Kind::BlockEnd) {
            self.state = State::IndentlessSequence;
            return Ok(empty_scalar(token.end));
        }
        self.states.push(State::IndentlessSequence);
        self.node(true, false)
    }

    /// Passes a dash. If its entry is a block collection, the comment above the dash is the collection's, not
    /// that of its first key or entry.
    fn pass_dash(&mut self) -> Result<Seen, Error> {
        let above = self.comments.head.len();
        let next = match self.advance() {
            // go-yaml goes on here and reports the error with the next event, unless it meets another one.
            Err(error) if above > 0 => {
                self.pending_error = Some(error);
                self.peek()?
            }
            next => next?,
        };
        if above > 0 && matches!(next.kind, Kind::BlockSequenceStart | Kind::BlockMappingStart) {
            let rest = self.comments.head.get(above + 1..).unwrap_or_default().to_owned();
            self.comments.head.truncate(above);
            self.stem = std::mem::replace(&mut self.comments.head, rest);
        }
        Ok(next)
    }

    fn block_mapping_key(&mut self, first: bool) -> Result<Event<'a>, Error> {
        if first {
            self.open()?;
        }
        let token = self.peek()?;
        match token.kind {
            Kind::Key => {
                let next = self.advance()?;
                if matches!(next.kind, Kind::Key | Kind::Value | Kind::BlockEnd) {
                    self.state = State::BlockMappingValue;
                    return Ok(empty_scalar(token.end));
                }
                self.states.push(State::BlockMappingValue);
                self.node(true, true)
            }
            Kind::BlockEnd => {
                self.pop_state();
                self.marks.pop();
                let event = self.with_comments(event(EventValue::MappingEnd, token.start, token.end));
                self.scanner.take();
                Ok(event)
            }
            _ => {
                let context = self.marks.pop();
                Err(self.fail("did not find expected key", context, token.start))
            }
        }
    }

    fn block_mapping_value(&mut self) -> Result<Event<'a>, Error> {
        let token = self.peek()?;
        if token.kind != Kind::Value {
            self.state = State::BlockMappingKey;
            return Ok(empty_scalar(token.start));
        }
        let next = self.advance()?;
        if matches!(next.kind, Kind::Key | Kind::Value | Kind::BlockEnd) {
            self.state = State::BlockMappingKey;
            return Ok(empty_scalar(token.end));
        }
        self.states.push(State::BlockMappingKey);
        self.node(true, true)
    }

    fn flow_sequence(&mut self, first: bool) -> Result<Event<'a>, Error> {
        if first {
            self.open()?;
        }
        let mut token = self.peek()?;
        if token.kind != Kind::FlowSequenceEnd {
            if !first {
                token = self.pass_comma(token, "did not find expected ',' or ']'")?;
            }
            if token.kind == Kind::Key {
                self.state = State::FlowPairKey;
                self.scanner.take();
                let value = EventValue::MappingStart { flow: Flow::Flow, properties: None };
                return Ok(event(value, token.start, token.end));
            }
            if token.kind != Kind::FlowSequenceEnd {
                self.states.push(State::FlowSequence);
                return self.node(false, false);
            }
        }
        self.close_flow(EventValue::SequenceEnd, token)
    }

    fn pass_comma(&mut self, token: Seen, problem: &str) -> Result<Seen, Error> {
        if token.kind == Kind::FlowEntry {
            return self.advance();
        }
        let context = self.marks.pop();
        Err(self.fail(problem, context, token.start))
    }

    fn close_flow(&mut self, value: EventValue<'a>, token: Seen) -> Result<Event<'a>, Error> {
        self.pop_state();
        self.marks.pop();
        let event = self.with_comments(event(value, token.start, token.end));
        self.scanner.take();
        Ok(event)
    }

    fn flow_pair_key(&mut self) -> Result<Event<'a>, Error> {
        let token = self.peek()?;
        if !matches!(token.kind, Kind::Value | Kind::FlowEntry | Kind::FlowSequenceEnd) {
            self.states.push(State::FlowPairValue);
            return self.node(false, false);
        }
        // go-yaml takes the token here, whatever it is: `[? , a]` is an error for that reason.
        self.scanner.take();
        self.state = State::FlowPairValue;
        Ok(empty_scalar(token.end))
    }

    fn flow_pair_value(&mut self) -> Result<Event<'a>, Error> {
        let token = self.peek()?;
        if token.kind == Kind::Value {
            let next = self.advance()?;
            if !matches!(next.kind, Kind::FlowEntry | Kind::FlowSequenceEnd) {
                self.states.push(State::FlowPairEnd);
                return self.node(false, false);
            }
        }
        self.state = State::FlowPairEnd;
        Ok(empty_scalar(token.start))
    }

    fn flow_mapping_key(&mut self, first: bool) -> Result<Event<'a>, Error> {
        if first {
            self.open()?;
        }
        let mut token = self.peek()?;
        if token.kind != Kind::FlowMappingEnd {
            if !first {
                token = self.pass_comma(token, "did not find expected ',' or '}'")?;
            }
            if token.kind == Kind::Key {
                let next = self.advance()?;
                if matches!(next.kind, Kind::Value | Kind::FlowEntry | Kind::FlowMappingEnd) {
                    self.state = State::FlowMappingValue;
                    return Ok(empty_scalar(next.start));
                }
                self.states.push(State::FlowMappingValue);
                return self.node(false, false);
            }
            if token.kind != Kind::FlowMappingEnd {
                self.states.push(State::FlowMappingEmptyValue);
                return self.node(false, false);
            }
        }
        self.close_flow(EventValue::MappingEnd, token)
    }

    fn flow_mapping_value(&mut self, empty: bool) -> Result<Event<'a>, Error> {
        let mut token = self.peek()?;
        if !empty && token.kind == Kind::Value {
            token = self.advance()?;
            if !matches!(token.kind, Kind::FlowEntry | Kind::FlowMappingEnd) {
                self.states.push(State::FlowMappingKey);
                return self.node(false, false);
            }
        }
        self.state = State::FlowMappingKey;
        Ok(empty_scalar(token.start))
    }
}

/// What comes before the content of a node.
struct Header<'a> {
    start: Mark,
    end: Mark,
    properties: Option<Box<Properties<'a>>>,
}

fn event(value: EventValue<'_>, start: Mark, end: Mark) -> Event<'_> {
    Event { value, start, content: start, end, comments: None }
}

fn empty_scalar<'a>(mark: Mark) -> Event<'a> {
    let text = Cow::Borrowed("");
    event(EventValue::Scalar { text, style: ScalarStyle::Plain, properties: None }, mark, mark)
}
