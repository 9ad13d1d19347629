//! Text to tokens, with the queue and the look-ahead of go-yaml.
//!
//! Why a scanner of our own: what go-yaml accepts, where its errors point to and which node a comment belongs
//! to all follow from the order in which its scanner reads tokens. A parser for YAML 1.2 answers each of these
//! a little differently, and one different answer changes a checksum. So this one keeps go-yaml's rules: simple
//! keys of at most 1,024 characters on one line, tabs, indentation, and how far it reads ahead (two tokens in
//! v3, none in v2).

mod comments;
mod cursor;
mod scalars;
mod tags;

use std::borrow::Cow;

use crate::node::ScalarStyle;
use crate::{Error, ErrorKind, Schema};
use comments::Comment;
pub(crate) use comments::Unfolded;

/// A place in the text. Lines and columns count from 0, the index counts bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub index: i32,
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    pub value: TokenValue<'a>,
    pub start: Mark,
    pub end: Mark,
}

#[derive(Clone, Debug)]
pub(crate) enum TokenValue<'a> {
    StreamStart,
    StreamEnd,
    VersionDirective(u8, u8),
    /// Handle and prefix. Boxed, as they are rare and tokens are moved often.
    TagDirective(Box<(Cow<'a, str>, Cow<'a, str>)>),
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'a str),
    Anchor(&'a str),
    /// Handle and suffix.
    Tag(Box<(Cow<'a, str>, Cow<'a, str>)>),
    Scalar(Cow<'a, str>, ScalarStyle),
}

/// The kind of a token, without what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    StreamStart,
    StreamEnd,
    VersionDirective,
    TagDirective,
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias,
    Anchor,
    Tag,
    Scalar,
}

impl TokenValue<'_> {
    pub fn kind(&self) -> Kind {
        match self {
            Self::StreamStart => Kind::StreamStart,
            Self::StreamEnd => Kind::StreamEnd,
            Self::VersionDirective(..) => Kind::VersionDirective,
            Self::TagDirective(_) => Kind::TagDirective,
            Self::DocumentStart => Kind::DocumentStart,
            Self::DocumentEnd => Kind::DocumentEnd,
            Self::BlockSequenceStart => Kind::BlockSequenceStart,
            Self::BlockMappingStart => Kind::BlockMappingStart,
            Self::BlockEnd => Kind::BlockEnd,
            Self::FlowSequenceStart => Kind::FlowSequenceStart,
            Self::FlowSequenceEnd => Kind::FlowSequenceEnd,
            Self::FlowMappingStart => Kind::FlowMappingStart,
            Self::FlowMappingEnd => Kind::FlowMappingEnd,
            Self::BlockEntry => Kind::BlockEntry,
            Self::FlowEntry => Kind::FlowEntry,
            Self::Key => Kind::Key,
            Self::Value => Kind::Value,
            Self::Alias(_) => Kind::Alias,
            Self::Anchor(_) => Kind::Anchor,
            Self::Tag(_) => Kind::Tag,
            Self::Scalar(..) => Kind::Scalar,
        }
    }
}

/// A token that may turn out to be a key once a `:` follows it.
#[derive(Clone, Copy, Debug, Default)]
struct SimpleKey {
    possible: bool,
    /// Whether only a key can stand here, as at the indentation of a block mapping.
    required: bool,
    token_number: usize,
    mark: Mark,
}

/// The text and how far it has been read.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    broken: Option<Error>,
    pos: usize,
    line: u32,
    column: u32,
    /// Line breaks since the last character that was neither blank nor break.
    newlines: u32,
    schema: Schema,
    max_depth: usize,
    keep_comments: bool,

    /// Tokens read; those before `head` were handed out. The last two always stay, as comments look at them.
    tokens: Vec<Token<'a>>,
    head: usize,
    /// How many tokens were handed out.
    parsed: usize,

    flow_level: usize,
    indent: i32,
    indents: Vec<i32>,
    simple_key_allowed: bool,
    /// One for each flow level.
    simple_keys: Vec<SimpleKey>,
    /// Token numbers of possible keys with their level.
    keys_by_token: Vec<(usize, usize)>,

    comments: Vec<Comment>,
    comments_head: usize,
}

impl<'a> Scanner<'a> {
    /// `broken` says why the text ends where it does, if it is not the end of the input.
    pub fn new(
        text: &'a str,
        broken: Option<Error>,
        schema: Schema,
        keep_comments: bool,
        max_depth: usize,
    ) -> Self {
        let start = Token { value: TokenValue::StreamStart, start: Mark::default(), end: Mark::default() };
        Self {
            text,
            bytes: text.as_bytes(),
            broken,
            pos: 0,
            line: 0,
            column: 0,
            newlines: 0,
            schema,
            max_depth,
            keep_comments,
            tokens: vec![start],
            head: 0,
            parsed: 0,
            flow_level: 0,
            indent: -1,
            indents: Vec::new(),
            simple_key_allowed: true,
            simple_keys: vec![SimpleKey::default()],
            keys_by_token: Vec::new(),
            comments: Vec::new(),
            comments_head: 0,
        }
    }

    /// The next token; it stays the next one until it is taken.
    pub fn peek(&mut self) -> Result<&Token<'a>, Error> {
        self.fetch_more()?;
        Ok(&self.tokens[self.head])
    }

    /// Takes the token that was peeked at.
    pub fn take(&mut self) -> TokenValue<'a> {
        let place = &mut self.tokens[self.head];
        // What is left behind keeps its kind where comments ask for it; texts are moved out.
        let left = husk(&place.value);
        let value = std::mem::replace(&mut place.value, left);
        self.head += 1;
        self.parsed += 1;
        value
    }

    fn fetch_more(&mut self) -> Result<(), Error> {
        let reserve = if self.schema == Schema::V3 { 2 } else { 0 };
        loop {
            if self.head + reserve < self.tokens.len() && !self.head_may_be_key()? {
                return Ok(());
            }
            let fetched = self.fetch_next();
            if let Some(error) = self.broken.as_ref().filter(|_| self.pos + 3 >= self.bytes.len()) {
                return Err(error.clone());
            }
            fetched?;
        }
    }

    fn head_may_be_key(&mut self) -> Result<bool, Error> {
        let found = self.keys_by_token.iter().rev().find(|(number, _)| *number == self.parsed);
        match found.copied() {
            None => Ok(false),
            Some((_, level)) => self.key_is_valid(level),
        }
    }

    fn fetch_next(&mut self) -> Result<(), Error> {
        let scan_mark = self.mark();
        self.skip_to_token(scan_mark);
        let column = i32::try_from(self.column).unwrap_or(i32::MAX);
        self.unroll_indent(column, scan_mark);
        let byte = self.at(0);
        if self.pos >= self.bytes.len() {
            return self.fetch_stream_end();
        }
        if self.column == 0 {
            if byte == b'%' {
                return self.fetch_directive();
            }
            if self.at_document_indicator() {
                let value = if byte == b'-' { TokenValue::DocumentStart } else { TokenValue::DocumentEnd };
                return self.fetch_document_indicator(value);
            }
        }
        let mut comment_mark = self.mark();
        if (self.flow_level == 0 && byte == b':') || (self.flow_level > 0 && byte == b',') {
            // Comments behind it belong to the token before.
            comment_mark = self.tokens.last().map_or(comment_mark, |token| token.start);
        }
        self.fetch_content(byte)?;
        // A dash has no line comment: it becomes the head comment of what follows.
        if self.schema == Schema::V3
            && self.tokens.last().is_none_or(|token| token.value.kind() != Kind::BlockEntry)
        {
            self.scan_line_comment(comment_mark);
        }
        Ok(())
    }

    fn fetch_content(&mut self, byte: u8) -> Result<(), Error> {
        let in_flow = self.flow_level > 0;
        match byte {
            b'[' => self.fetch_flow_start(TokenValue::FlowSequenceStart),
            b'{' => self.fetch_flow_start(TokenValue::FlowMappingStart),
            b']' => self.fetch_flow_end(TokenValue::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(TokenValue::FlowMappingEnd),
            b',' => self.fetch_flow_entry(),
            b'-' if self.is_blank_or_end(1) => self.fetch_block_entry(),
            b'?' if in_flow || self.is_blank_or_end(1) => self.fetch_key(),
            b':' if in_flow || self.is_blank_or_end(1) => self.fetch_value(),
            b'*' | b'&' => self.fetch_anchor(),
            b'!' => self.fetch_tag(),
            b'|' if !in_flow => self.fetch_block_scalar(ScalarStyle::Literal),
            b'>' if !in_flow => self.fetch_block_scalar(ScalarStyle::Folded),
            b'\'' => self.fetch_quoted(ScalarStyle::SingleQuoted),
            b'"' => self.fetch_quoted(ScalarStyle::DoubleQuoted),
            _ if self.starts_plain(byte) => self.fetch_plain(),
            _ => Err(self.fail("found character that cannot start any token", self.mark())),
        }
    }

    fn starts_plain(&self, byte: u8) -> bool {
        match byte {
            b'-' => !matches!(self.at(1), b' ' | b'\t'),
            b'?' | b':' => self.flow_level == 0 && !self.is_blank_or_end(1),
            b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"'
            | b'%' | b'@' | b'`' => false,
            _ => !self.is_blank_or_end(0),
        }
    }

    /// An error of the scanner: `context` is where the thing began, the problem is here.
    fn fail(&self, message: &str, context: Mark) -> Error {
        self.failure(ErrorKind::Syntax, message, context)
    }

    fn failure(&self, kind: ErrorKind, message: &str, context: Mark) -> Error {
        let problem = self.mark();
        let line = match self.schema {
            Schema::V2 if problem.line > 0 => problem.line + 1,
            Schema::V2 => context.line,
            Schema::V3 if context.line > 0 => context.line + 1,
            Schema::V3 if problem.line > 0 => problem.line + 1,
            Schema::V3 => 0,
        };
        Error::new(kind, message).at(line, problem.column + 1)
    }

    fn push(&mut self, value: TokenValue<'a>, start: Mark, end: Mark) {
        self.insert(None, value, start, end);
    }

    /// Adds a token at the end of the queue, or before the token of that number.
    fn insert(&mut self, number: Option<usize>, value: TokenValue<'a>, start: Mark, end: Mark) {
        if self.head >= 256 {
            self.tokens.drain(..self.head - 2);
            self.head = 2;
        }
        let token = Token { value, start, end };
        match number.and_then(|number| number.checked_sub(self.parsed)) {
            Some(ahead) if self.head + ahead < self.tokens.len() => {
                self.tokens.insert(self.head + ahead, token)
            }
            Some(_) | None => self.tokens.push(token),
        }
    }

    fn next_token_number(&self) -> usize {
        self.parsed + (self.tokens.len() - self.head)
    }

    fn save_simple_key(&mut self) -> Result<(), Error> {
        if !self.simple_key_allowed {
            return Ok(());
        }
        let required = self.flow_level == 0 && i64::from(self.indent) == i64::from(self.column);
        let key =
            SimpleKey { possible: true, required, token_number: self.next_token_number(), mark: self.mark() };
        self.remove_simple_key()?;
        let level = self.simple_keys.len() - 1;
        self.simple_keys[level] = key;
        if self.keys_by_token.len() > 4 {
            let parsed = self.parsed;
            self.keys_by_token.retain(|(number, _)| *number >= parsed);
        }
        self.keys_by_token.push((key.token_number, level));
        Ok(())
    }

    fn remove_simple_key(&mut self) -> Result<(), Error> {
        let level = self.simple_keys.len() - 1;
        let key = self.simple_keys[level];
        if !key.possible {
            return Ok(());
        }
        if key.required {
            return Err(self.fail("could not find expected ':'", key.mark));
        }
        self.simple_keys[level].possible = false;
        self.forget_key(key.token_number);
        Ok(())
    }

    fn forget_key(&mut self, token_number: usize) {
        self.keys_by_token.retain(|(number, _)| *number != token_number);
    }

    /// A key must be on one line and of at most 1,024 characters.
    fn key_is_valid(&mut self, level: usize) -> Result<bool, Error> {
        let Some(key) = self.simple_keys.get(level).copied().filter(|key| key.possible) else {
            return Ok(false);
        };
        if key.mark.line < self.line || self.is_too_far(key.mark) {
            if key.required {
                return Err(self.fail("could not find expected ':'", key.mark));
            }
            self.simple_keys[level].possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn is_too_far(&self, mark: Mark) -> bool {
        const MAX: usize = 1024;
        let start = mark.index.unsigned_abs() as usize;
        self.pos - start > MAX && self.text[start..self.pos].chars().count() > MAX
    }

    fn roll_indent(
        &mut self,
        column: u32,
        number: Option<usize>,
        value: TokenValue<'a>,
        mark: Mark,
    ) -> Result<(), Error> {
        let column = i32::try_from(column).unwrap_or(i32::MAX);
        if self.flow_level > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > self.max_depth {
            return Err(self.too_deep(self.simple_keys.last().map_or(mark, |key| key.mark)));
        }
        self.insert(number, value, mark, mark);
        Ok(())
    }

    fn too_deep(&self, context: Mark) -> Error {
        let message = format!("exceeded max depth of {}", self.max_depth);
        self.failure(ErrorKind::Limit, &message, context)
    }

    fn unroll_indent(&mut self, column: i32, scan_mark: Mark) {
        if self.flow_level > 0 {
            return;
        }
        let mut block_mark = match self.schema {
            Schema::V2 => self.mark(),
            Schema::V3 => Mark { index: scan_mark.index - 1, ..scan_mark },
        };
        while self.indent > column {
            block_mark = self.end_of_block(block_mark);
            self.push(TokenValue::BlockEnd, block_mark, block_mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn fetch_stream_end(&mut self) -> Result<(), Error> {
        if self.column != 0 {
            self.column = 0;
            self.line += 1;
        }
        let mark = self.mark();
        self.unroll_indent(-1, mark);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push(TokenValue::StreamEnd, mark, mark);
        Ok(())
    }

    fn fetch_document_indicator(&mut self, value: TokenValue<'a>) -> Result<(), Error> {
        let start = self.mark();
        self.unroll_indent(-1, start);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.skip_ascii(3);
        self.push(value, start, self.mark());
        Ok(())
    }

    fn fetch_flow_start(&mut self, value: TokenValue<'a>) -> Result<(), Error> {
        self.save_simple_key()?;
        let start = self.mark();
        let number = self.next_token_number();
        self.simple_keys.push(SimpleKey {
            possible: false,
            required: false,
            token_number: number,
            mark: start,
        });
        self.flow_level += 1;
        if self.flow_level > self.max_depth {
            return Err(self.too_deep(start));
        }
        self.simple_key_allowed = true;
        self.skip_ascii(1);
        self.push(value, start, self.mark());
        Ok(())
    }

    fn fetch_flow_end(&mut self, value: TokenValue<'a>) -> Result<(), Error> {
        self.remove_simple_key()?;
        if self.flow_level > 0
            && let Some(key) = self.simple_keys.pop()
        {
            self.flow_level -= 1;
            // For `[]` this is the number of the bracket itself, which is no key any more then.
            self.forget_key(key.token_number);
        }
        self.simple_key_allowed = false;
        self.indicator(value);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), Error> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.indicator(TokenValue::FlowEntry);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Error> {
        let mark = self.mark();
        if self.flow_level == 0 {
            if !self.simple_key_allowed {
                return Err(self.fail("block sequence entries are not allowed in this context", mark));
            }
            self.roll_indent(self.column, None, TokenValue::BlockSequenceStart, mark)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.indicator(TokenValue::BlockEntry);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Error> {
        let mark = self.mark();
        if self.flow_level == 0 {
            if !self.simple_key_allowed {
                return Err(self.fail("mapping keys are not allowed in this context", mark));
            }
            self.roll_indent(self.column, None, TokenValue::BlockMappingStart, mark)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = self.flow_level == 0;
        self.indicator(TokenValue::Key);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Error> {
        let level = self.simple_keys.len() - 1;
        if self.key_is_valid(level)? {
            let key = self.simple_keys[level];
            self.insert(Some(key.token_number), TokenValue::Key, key.mark, key.mark);
            self.roll_indent(
                key.mark.column,
                Some(key.token_number),
                TokenValue::BlockMappingStart,
                key.mark,
            )?;
            self.simple_keys[level].possible = false;
            self.forget_key(key.token_number);
            self.simple_key_allowed = false;
        } else {
            let mark = self.mark();
            if self.flow_level == 0 {
                if !self.simple_key_allowed {
                    return Err(self.fail("mapping values are not allowed in this context", mark));
                }
                self.roll_indent(self.column, None, TokenValue::BlockMappingStart, mark)?;
            }
            self.simple_key_allowed = self.flow_level == 0;
        }
        self.indicator(TokenValue::Value);
        Ok(())
    }

    /// A token of one character.
    fn indicator(&mut self, value: TokenValue<'a>) {
        let start = self.mark();
        self.skip_ascii(1);
        self.push(value, start, self.mark());
    }

    /// White space, line breaks and comments before the next token.
    fn skip_to_token(&mut self, scan_mark: Mark) {
        loop {
            while self.at(0) == b' '
                || (self.at(0) == b'\t' && (self.flow_level > 0 || !self.simple_key_allowed))
            {
                self.skip_blank();
            }
            if self.keep_comments {
                self.settle_entry_comment();
            }
            if self.at(0) == b'#' {
                if self.keep_comments {
                    self.scan_comments(scan_mark);
                } else {
                    self.skip_comments();
                }
            }
            if !self.is_break(0) {
                return;
            }
            self.skip_line();
            if self.flow_level == 0 {
                self.simple_key_allowed = true;
            }
        }
    }
}

/// The same kind of token without its text.
fn husk<'a>(value: &TokenValue<'_>) -> TokenValue<'a> {
    match value {
        TokenValue::BlockEntry => TokenValue::BlockEntry,
        TokenValue::BlockSequenceStart => TokenValue::BlockSequenceStart,
        TokenValue::FlowEntry => TokenValue::FlowEntry,
        TokenValue::Value => TokenValue::Value,
        _ => TokenValue::StreamStart,
    }
}
