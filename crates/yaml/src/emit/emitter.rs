//! The layout of a document: a step for each node, the rules of go-yaml v2 or v3.
//!
//! The steps mirror the states of the emitter both libraries share, so that blanks, breaks and comments end up
//! in the same places. Collections say beforehand whether they are empty, so nothing is ever buffered.

use super::analysis::analyze;
use super::scalar::{self, Place};
use super::writer::Writer;
use super::{Dialect, EmitError, Layout};
use crate::node::{LONG_TAG_PREFIX, ScalarStyle};
use crate::number::format_float_g;
use crate::resolve::{Resolved, is_old_bool, resolve_v2, resolve_v3};

/// How a collection starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionStyle {
    /// `[a, b]` or `{a: b}`; whatever stands inside a flow collection is one, too.
    pub flow: bool,
    /// An empty collection is always written `[]` or `{}`.
    pub empty: bool,
}

impl CollectionStyle {
    /// A block collection of `len` items.
    pub fn block(len: usize) -> Self {
        Self { flow: false, empty: len == 0 }
    }
}

/// What comes with a node besides its value. Empty means absent.
#[derive(Clone, Copy, Default)]
pub(super) struct Properties<'a> {
    pub anchor: &'a str,
    /// In its long form.
    pub tag: &'a str,
    pub head: &'a str,
    pub line: &'a str,
    pub foot: &'a str,
    /// The foot comment of the entry before.
    pub tail: &'a str,
}

#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Alias(&'a str),
    Scalar(&'a str, ScalarStyle),
    Sequence(CollectionStyle),
    Mapping(CollectionStyle),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Content,
    End,
    FlowFirstItem,
    FlowTrailItem,
    FlowItem,
    FlowFirstKey,
    FlowTrailKey,
    FlowKey,
    FlowSimpleValue,
    FlowValue,
    BlockFirstItem,
    BlockItem,
    BlockFirstKey,
    BlockKey,
    BlockSimpleValue,
    BlockValue,
}

/// Writes one document, node by node: within a mapping key and value take turns.
///
/// ```
/// use yaml::{CollectionStyle, Dialect, Emitter};
/// let mut emitter = Emitter::new(Dialect::V2);
/// emitter.begin_mapping(CollectionStyle::block(1));
/// emitter.string("enabled");
/// emitter.string("yes");
/// emitter.end_mapping();
/// assert_eq!(emitter.finish(), "enabled: \"yes\"\n");
/// ```
pub struct Emitter {
    writer: Writer,
    state: State,
    states: Vec<State>,
    indents: Vec<isize>,
    flow_level: usize,
    in_mapping: bool,
    pending: Pending,
}

/// Comments that were handed in and not written yet.
#[derive(Default)]
struct Pending {
    head: String,
    line: String,
    foot: String,
    tail: String,
    key_line: String,
}

impl Pending {
    fn take_up(&mut self, properties: &Properties<'_>) {
        let set = |slot: &mut String, text: &str| {
            if !text.is_empty() {
                text.clone_into(slot);
            }
        };
        set(&mut self.head, properties.head);
        set(&mut self.line, properties.line);
        set(&mut self.foot, properties.foot);
        set(&mut self.tail, properties.tail);
    }

    fn trails(&self) -> bool {
        !(self.line.is_empty() && self.foot.is_empty() && self.tail.is_empty())
    }
}

impl Emitter {
    pub fn new(dialect: Dialect) -> Self {
        Self::append_to(dialect, String::new())
    }

    /// Writes behind what `out` holds already; `out` must be empty or end with a line break.
    pub fn append_to(dialect: Dialect, out: String) -> Self {
        Self {
            writer: Writer::new(dialect, out),
            state: State::Content,
            states: Vec::new(),
            indents: Vec::new(),
            flow_level: 0,
            in_mapping: false,
            pending: Pending::default(),
        }
    }

    /// Sets how far things are indented, before anything is written.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.writer.layout = Layout { indent: layout.indent.clamp(2, 9), ..layout };
        self
    }

    pub fn begin_mapping(&mut self, style: CollectionStyle) {
        self.plain_step(Step::Mapping(style));
    }

    pub fn end_mapping(&mut self) {
        self.end_collection(&Properties::default());
    }

    pub fn begin_sequence(&mut self, style: CollectionStyle) {
        self.plain_step(Step::Sequence(style));
    }

    pub fn end_sequence(&mut self) {
        self.end_collection(&Properties::default());
    }

    /// A string, quoted where the dialect would read its plain text as something else.
    pub fn string(&mut self, text: &str) {
        let style = string_style(text, self.writer.dialect);
        self.plain_step(Step::Scalar(text, style));
    }

    /// A scalar in the style wanted, or the nearest one its text allows.
    pub fn scalar(&mut self, text: &str, style: ScalarStyle) {
        self.plain_step(Step::Scalar(text, style));
    }

    pub fn null(&mut self) {
        self.scalar("null", ScalarStyle::Plain);
    }

    pub fn bool(&mut self, value: bool) {
        self.scalar(if value { "true" } else { "false" }, ScalarStyle::Plain);
    }

    pub fn int(&mut self, value: i64) {
        self.scalar(&value.to_string(), ScalarStyle::Plain);
    }

    pub fn uint(&mut self, value: u64) {
        self.scalar(&value.to_string(), ScalarStyle::Plain);
    }

    pub fn float(&mut self, value: f64) {
        self.scalar(&format_float_g(value), ScalarStyle::Plain);
    }

    /// The document, ended by a line break.
    pub fn finish(self) -> String {
        self.finish_with_foot("")
    }

    pub(super) fn finish_with_foot(mut self, foot: &str) -> String {
        if !foot.is_empty() {
            foot.clone_into(&mut self.pending.foot);
        }
        self.writer.foot_indent = 0;
        self.foot_comment();
        self.writer.foot_indent = -1;
        self.writer.write_indent();
        self.writer.out
    }

    /// The comment above a whole document, set off by an empty line.
    pub(super) fn document_head(&mut self, head: &str) {
        if !head.is_empty() {
            head.clone_into(&mut self.pending.head);
            self.head_comment();
            self.writer.put_break();
        }
    }

    fn plain_step(&mut self, step: Step<'_>) {
        let written = self.step(step, &Properties::default());
        debug_assert!(written.is_ok(), "only anchors and aliases can be refused");
    }

    /// One node, or the start of one.
    pub(super) fn step(&mut self, step: Step<'_>, properties: &Properties<'_>) -> Result<(), EmitError> {
        check_anchor(properties.anchor, "anchor value must contain alphanumerical characters only")?;
        if let Step::Alias(name) = step {
            check_anchor(name, "alias value must contain alphanumerical characters only")?;
        }
        self.pending.take_up(properties);
        match self.state {
            State::Content | State::End => {
                self.head_comment();
                self.node(State::End, step, properties, false, false);
                self.line_comment();
                self.foot_comment();
            }
            State::FlowFirstItem | State::FlowTrailItem | State::FlowItem => self.flow_item(step, properties),
            State::FlowFirstKey | State::FlowTrailKey | State::FlowKey => self.flow_key(step, properties),
            State::FlowSimpleValue | State::FlowValue => self.flow_value(step, properties),
            State::BlockFirstItem | State::BlockItem => self.block_item(step, properties),
            State::BlockFirstKey | State::BlockKey => self.block_key(step, properties),
            State::BlockSimpleValue | State::BlockValue => self.block_value(step, properties),
        }
        Ok(())
    }

    pub(super) fn end_collection(&mut self, properties: &Properties<'_>) {
        self.pending.take_up(properties);
        match self.state {
            State::FlowFirstItem | State::FlowTrailItem | State::FlowItem => {
                if self.state == State::FlowFirstItem {
                    self.open_flow("[");
                }
                self.flow_level -= 1;
                self.decrease_indent();
                if self.writer.column == 0 {
                    self.writer.write_indent();
                }
                self.close_flow("]");
            }
            State::FlowFirstKey | State::FlowTrailKey | State::FlowKey => {
                if self.state == State::FlowFirstKey {
                    self.open_flow("{");
                }
                let commented = !(self.pending.head.is_empty()
                    && self.pending.foot.is_empty()
                    && self.pending.tail.is_empty());
                if commented && self.state == State::FlowKey {
                    self.writer.indicator(",", false, false, false);
                }
                self.head_comment();
                self.flow_level -= 1;
                self.decrease_indent();
                self.close_flow("}");
            }
            State::BlockFirstItem | State::BlockItem => self.decrease_indent(),
            State::BlockFirstKey | State::BlockKey => {
                self.head_comment();
                self.decrease_indent();
            }
            State::Content
            | State::End
            | State::FlowSimpleValue
            | State::FlowValue
            | State::BlockSimpleValue
            | State::BlockValue => {
                debug_assert!(false, "no collection is open, or a key has no value");
                return;
            }
        }
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn open_flow(&mut self, bracket: &str) {
        self.writer.indicator(bracket, true, true, false);
        self.increase_indent(true, false);
        self.flow_level += 1;
    }

    fn close_flow(&mut self, bracket: &str) {
        self.writer.indicator(bracket, false, false, false);
        self.line_comment();
        self.foot_comment();
    }

    fn flow_item(&mut self, step: Step<'_>, properties: &Properties<'_>) {
        match self.state {
            State::FlowFirstItem => self.open_flow("["),
            State::FlowItem => self.writer.indicator(",", false, false, false),
            _ => {}
        }
        self.before_flow_entry();
        let next = if self.pending.trails() { State::FlowTrailItem } else { State::FlowItem };
        self.node(next, step, properties, false, false);
        self.after_flow_entry();
    }

    fn flow_key(&mut self, step: Step<'_>, properties: &Properties<'_>) {
        match self.state {
            State::FlowFirstKey => self.open_flow("{"),
            State::FlowKey => self.writer.indicator(",", false, false, false),
            _ => {}
        }
        self.before_flow_entry();
        if self.is_simple_key(step, properties) {
            self.node(State::FlowSimpleValue, step, properties, true, true);
        } else {
            self.writer.indicator("?", true, false, false);
            self.node(State::FlowValue, step, properties, true, false);
        }
    }

    fn before_flow_entry(&mut self) {
        self.head_comment();
        if self.writer.column == 0 {
            self.writer.write_indent();
        }
        if self.writer.is_wide() {
            self.writer.write_indent();
        }
    }

    fn flow_value(&mut self, step: Step<'_>, properties: &Properties<'_>) {
        if self.state == State::FlowSimpleValue {
            self.writer.indicator(":", false, false, false);
        } else {
            if self.writer.is_wide() {
                self.writer.write_indent();
            }
            self.writer.indicator(":", true, false, false);
        }
        let next = if self.pending.trails() { State::FlowTrailKey } else { State::FlowKey };
        self.node(next, step, properties, true, false);
        self.after_flow_entry();
    }

    fn after_flow_entry(&mut self) {
        if self.pending.trails() {
            self.writer.indicator(",", false, false, false);
        }
        self.line_comment();
        self.foot_comment();
    }

    fn block_item(&mut self, step: Step<'_>, properties: &Properties<'_>) {
        if self.state == State::BlockFirstItem {
            match self.writer.dialect {
                Dialect::V2 => {
                    let indentless = self.in_mapping && !self.writer.indention;
                    self.increase_indent(false, indentless);
                }
                Dialect::V3 => {
                    let compact = self.writer.layout.compact_sequences
                        && self.in_mapping
                        && (self.writer.column == 0 || !self.writer.indention);
                    self.increase_indent(false, compact);
                }
            }
        }
        self.head_comment();
        self.writer.write_indent();
        self.writer.indicator("-", true, false, true);
        self.node(State::BlockItem, step, properties, false, false);
        self.line_comment();
        self.foot_comment();
    }

    fn block_key(&mut self, step: Step<'_>, properties: &Properties<'_>) {
        if self.state == State::BlockFirstKey {
            self.increase_indent(false, false);
        }
        self.head_comment();
        self.writer.write_indent();
        if !self.pending.line.is_empty() {
            // A line comment of the key is written behind its value, or behind the colon.
            self.pending.key_line = std::mem::take(&mut self.pending.line);
        }
        if self.is_simple_key(step, properties) {
            self.node(State::BlockSimpleValue, step, properties, true, true);
        } else {
            self.writer.indicator("?", true, false, true);
            self.node(State::BlockValue, step, properties, true, false);
        }
    }

    fn block_value(&mut self, step: Step<'_>, properties: &Properties<'_>) {
        if self.state == State::BlockSimpleValue {
            self.writer.indicator(":", false, false, false);
        } else {
            self.writer.write_indent();
            self.writer.indicator(":", true, false, true);
        }
        if !self.pending.key_line.is_empty() {
            self.key_line_comment(step);
        }
        self.node(State::BlockKey, step, properties, true, false);
        self.line_comment();
        self.foot_comment();
    }

    fn key_line_comment(&mut self, step: Step<'_>) {
        match step {
            Step::Scalar(..) => {
                if self.pending.line.is_empty() {
                    self.pending.line = std::mem::take(&mut self.pending.key_line);
                }
            }
            Step::Sequence(style) | Step::Mapping(style) => {
                if !style.flow {
                    std::mem::swap(&mut self.pending.line, &mut self.pending.key_line);
                    self.line_comment();
                    std::mem::swap(&mut self.pending.line, &mut self.pending.key_line);
                }
            }
            Step::Alias(_) => {}
        }
    }

    fn node(
        &mut self,
        next: State,
        step: Step<'_>,
        properties: &Properties<'_>,
        in_mapping: bool,
        simple_key: bool,
    ) {
        self.in_mapping = in_mapping;
        self.states.push(next);
        match step {
            Step::Alias(name) => {
                self.writer.indicator("*", true, false, false);
                self.name(name);
                self.state = self.states.pop().unwrap_or(State::End);
            }
            Step::Scalar(text, style) => {
                self.properties(properties);
                self.increase_indent(true, false);
                self.write_scalar(text, style, simple_key);
                self.decrease_indent();
                self.state = self.states.pop().unwrap_or(State::End);
            }
            Step::Sequence(style) => {
                self.properties(properties);
                let flow = self.flow_level > 0 || style.flow || style.empty;
                self.state = if flow { State::FlowFirstItem } else { State::BlockFirstItem };
            }
            Step::Mapping(style) => {
                self.properties(properties);
                let flow = self.flow_level > 0 || style.flow || style.empty;
                self.state = if flow { State::FlowFirstKey } else { State::BlockFirstKey };
            }
        }
    }

    fn write_scalar(&mut self, text: &str, wanted: ScalarStyle, simple_key: bool) {
        let analysis = analyze(text, self.writer.dialect);
        let place = Place { in_flow: self.flow_level > 0, simple_key };
        let writer = &mut self.writer;
        match scalar::choose_style(wanted, text, analysis, place) {
            ScalarStyle::Plain => scalar::write_plain(writer, text, !simple_key),
            ScalarStyle::SingleQuoted => scalar::write_single_quoted(writer, text, !simple_key),
            ScalarStyle::DoubleQuoted => scalar::write_double_quoted(writer, text, !simple_key),
            ScalarStyle::Literal => {
                let comment = std::mem::take(&mut self.pending.line);
                scalar::write_literal(writer, text, &comment);
            }
            ScalarStyle::Folded => {
                let comment = std::mem::take(&mut self.pending.line);
                scalar::write_folded(writer, text, &comment);
            }
        }
    }

    fn is_simple_key(&self, step: Step<'_>, properties: &Properties<'_>) -> bool {
        let (handle, suffix) = split_tag(properties.tag);
        let length = properties.anchor.len() + handle.len() + suffix.len();
        match step {
            Step::Alias(name) => name.len() <= 128,
            Step::Scalar(text, _) => length + text.len() <= 128 && !text.contains(super::analysis::is_break),
            Step::Sequence(style) | Step::Mapping(style) => style.empty && length <= 128,
        }
    }

    fn properties(&mut self, properties: &Properties<'_>) {
        if !properties.anchor.is_empty() {
            self.writer.indicator("&", true, false, false);
            self.name(properties.anchor);
        }
        if properties.tag.is_empty() {
            return;
        }
        let (handle, suffix) = split_tag(properties.tag);
        if handle.is_empty() {
            self.writer.indicator("!<", true, false, false);
            self.tag_content(suffix);
            self.writer.indicator(">", false, false, false);
        } else {
            if !self.writer.whitespace {
                self.writer.put(' ');
            }
            self.writer.put_str(handle);
            self.tag_content(suffix);
        }
        self.writer.whitespace = false;
        self.writer.indention = false;
    }

    fn name(&mut self, name: &str) {
        self.writer.put_str(name);
        self.writer.whitespace = false;
        self.writer.indention = false;
    }

    fn tag_content(&mut self, content: &str) {
        for byte in content.bytes() {
            if byte.is_ascii_alphanumeric() || b"_-;/?:@&=+$,.~*'()[]".contains(&byte) {
                self.writer.put(char::from(byte));
            } else {
                self.writer.put_str(&format!("%{byte:02X}"));
            }
        }
    }

    fn increase_indent(&mut self, flow: bool, flush: bool) {
        let writer = &mut self.writer;
        self.indents.push(writer.indent);
        let step = isize::from(writer.layout.indent);
        if writer.indent < 0 {
            writer.indent = if flow { step } else { 0 };
            return;
        }
        match writer.dialect {
            Dialect::V2 if flush => {}
            Dialect::V2 => writer.indent += 2,
            // Inside a sequence the indentation only skips the dash.
            Dialect::V3 if self.states.last() == Some(&State::BlockItem) => writer.indent += 2,
            Dialect::V3 => writer.indent = (writer.indent + step) / step * step - if flush { 2 } else { 0 },
        }
    }

    fn decrease_indent(&mut self) {
        self.writer.indent = self.indents.pop().unwrap_or(-1);
    }

    fn head_comment(&mut self) {
        if !self.pending.tail.is_empty() {
            self.writer.write_indent();
            self.writer.comment(&std::mem::take(&mut self.pending.tail));
            self.writer.foot_indent = self.writer.indent.max(0);
        }
        if !self.pending.head.is_empty() {
            self.writer.write_indent();
            self.writer.comment(&std::mem::take(&mut self.pending.head));
        }
    }

    fn line_comment(&mut self) {
        if !self.pending.line.is_empty() {
            if !self.writer.whitespace {
                self.writer.put(' ');
            }
            self.writer.comment(&std::mem::take(&mut self.pending.line));
        }
    }

    fn foot_comment(&mut self) {
        if !self.pending.foot.is_empty() {
            self.writer.write_indent();
            self.writer.comment(&std::mem::take(&mut self.pending.foot));
            self.writer.foot_indent = self.writer.indent.max(0);
        }
    }
}

/// The style a string gets when nobody asked for one.
pub(super) fn string_style(text: &str, dialect: Dialect) -> ScalarStyle {
    if text.contains('\n') {
        return ScalarStyle::Literal;
    }
    let is_string = match dialect {
        Dialect::V2 => matches!(resolve_v2(text), Resolved::String),
        Dialect::V3 => matches!(resolve_v3(text), Resolved::String) && !is_old_bool(text),
    };
    if is_string && !is_base60(text) { ScalarStyle::Plain } else { ScalarStyle::DoubleQuoted }
}

/// Whether YAML 1.1 would read a base 60 number (`1:30:00`). Nobody does any more, but Go still quotes them.
fn is_base60(text: &str) -> bool {
    if !matches!(text.as_bytes().first(), Some(b'+' | b'-' | b'0'..=b'9')) || !text.contains(':') {
        return false;
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, fraction) = digits.split_once('.').map_or((digits, ""), |(whole, rest)| (whole, rest));
    let mut parts = digits.split(':');
    let head = parts.next().unwrap_or_default();
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let is_sixtieth = |part: &str| match part.as_bytes() {
        [a] => a.is_ascii_digit(),
        [a, b] => (b'0'..=b'5').contains(a) && b.is_ascii_digit(),
        _ => false,
    };
    head.starts_with(|c: char| c.is_ascii_digit())
        && is_number(head)
        && parts.all(is_sixtieth)
        && is_number(fraction)
}

/// A tag as `!!` or `!` and the rest; without a handle it is written `!<…>`.
fn split_tag(tag: &str) -> (&str, &str) {
    if let Some(suffix) = tag.strip_prefix('!') {
        return ("!", suffix);
    }
    match tag.strip_prefix(LONG_TAG_PREFIX) {
        Some(suffix) => ("!!", suffix),
        None => ("", tag),
    }
}

fn check_anchor(name: &str, problem: &'static str) -> Result<(), EmitError> {
    let valid = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if valid { Ok(()) } else { Err(EmitError::Refused(problem)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_60_numbers_are_quoted() {
        for text in ["1:30", "190:20:30.15", "-1:2", "1_0:5"] {
            assert!(is_base60(text), "{text}");
        }
        for text in ["1:60", "a:1", "1:", "12", "1:2:3x", "1:30:5."] {
            assert_eq!(is_base60(text), text == "1:30:5.", "{text}");
        }
    }

    #[test]
    fn sequences_stand_at_their_key() {
        for dialect in [Dialect::V2, Dialect::V3] {
            let mut emitter = Emitter::new(dialect);
            emitter.begin_mapping(CollectionStyle::block(1));
            emitter.string("a");
            emitter.begin_sequence(CollectionStyle::block(2));
            emitter.begin_mapping(CollectionStyle::block(1));
            emitter.string("b");
            emitter.begin_sequence(CollectionStyle::block(1));
            emitter.null();
            emitter.end_sequence();
            emitter.end_mapping();
            emitter.begin_sequence(CollectionStyle::block(0));
            emitter.end_sequence();
            emitter.end_sequence();
            emitter.end_mapping();
            assert_eq!(emitter.finish(), "a:\n- b:\n  - null\n- []\n");
        }
    }
}
