//! From text to tokens: actions, what is between them, and the white space that trim markers remove.

use crate::strconv;
use crate::unicode::{is_digit, is_letter, is_print};

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The scan failed; [`Lexer::failure`] says why.
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl Kind {
    fn is_keyword(self) -> bool {
        use Kind::*;
        matches!(
            self,
            Block | Break | Continue | Dot | Define | Else | End | If | Nil | Range | Template | With
        )
    }
}

/// A token, where it starts and on which line.
#[derive(Clone, Copy, Debug)]
pub struct Token<'t> {
    pub kind: Kind,
    pub at: u32,
    pub line: u32,
    pub text: &'t str,
}

impl Token<'_> {
    /// How Go names a token in an error.
    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Eof => "EOF".to_owned(),
            kind if kind.is_keyword() => format!("<{}>", self.text),
            _ if self.text.len() > 10 => {
                let start: String = self.text.chars().take(10).collect();
                format!("{}...", strconv::quote(start.as_bytes()))
            }
            _ => strconv::quote(self.text.as_bytes()),
        }
    }
}

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
/// A trim marker and the space beside it.
const MARKER: usize = 2;

/// Reads one token after the other.
pub struct Lexer<'t> {
    input: &'t str,
    at: usize,
    start: usize,
    /// Newlines before `at`, plus one.
    line: u32,
    start_line: u32,
    parens: usize,
    inside: bool,
    /// Functions may be called `break` and `continue`; then those are no keywords.
    keywords: Keywords,
    failure: Option<String>,
}

/// Which of the younger keywords are keywords here.
#[derive(Clone, Copy)]
pub struct Keywords {
    pub with_break: bool,
    pub with_continue: bool,
}

impl<'t> Lexer<'t> {
    pub fn new(input: &'t str, keywords: Keywords) -> Self {
        Self {
            input,
            at: 0,
            start: 0,
            line: 1,
            start_line: 1,
            parens: 0,
            inside: false,
            keywords,
            failure: None,
        }
    }

    pub fn next_token(&mut self) -> Token<'t> {
        if self.failure.is_some() {
            return Token { kind: Kind::Eof, at: self.at as u32, text: "EOF", line: self.start_line };
        }
        if self.inside { self.inside_action() } else { self.text() }
    }

    /// What an [`Kind::Error`] token is about.
    pub fn failure(&self) -> &str {
        self.failure.as_deref().unwrap_or_default()
    }

    fn rest(&self) -> &'t str {
        &self.input[self.at..]
    }

    fn bytes(&self) -> &'t [u8] {
        &self.input.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<char> {
        match *self.bytes().first()? {
            byte if byte.is_ascii() => Some(byte as char),
            _ => self.rest().chars().next(),
        }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        self.line += u32::from(next == '\n');
        Some(next)
    }

    /// Letters, digits and underscores, none of which is a line break.
    fn skip_alphanumeric(&mut self) {
        loop {
            match self.bytes().first() {
                Some(byte) if byte.is_ascii_alphanumeric() || *byte == b'_' => self.at += 1,
                Some(byte) if !byte.is_ascii() && self.peek().is_some_and(is_alphanumeric) => {
                    self.next();
                }
                _ => return,
            }
        }
    }

    fn accept(&mut self, valid: &str) -> bool {
        match self.peek() {
            Some(next) if valid.contains(next) => {
                self.next();
                true
            }
            _ => false,
        }
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    fn token(&mut self, kind: Kind) -> Token<'t> {
        let token = Token {
            kind,
            at: self.start as u32,
            text: &self.input[self.start..self.at],
            line: self.start_line,
        };
        self.start = self.at;
        self.start_line = self.line;
        token
    }

    /// Skips over text that was not read with `next`.
    fn ignore(&mut self) {
        self.line += newlines(&self.input[self.start..self.at]);
        self.start = self.at;
        self.start_line = self.line;
    }

    fn error(&mut self, text: String) -> Token<'t> {
        let token = Token { kind: Kind::Error, at: self.start as u32, text: "", line: self.start_line };
        self.failure = Some(text);
        self.at = 0;
        self.start = 0;
        token
    }

    fn text(&mut self) -> Token<'t> {
        loop {
            let Some(found) = left_delimiter(self.rest()) else {
                self.at = self.input.len();
                if self.at > self.start {
                    self.line += newlines(&self.input[self.start..self.at]);
                    return self.token(Kind::Text);
                }
                let mut token = self.token(Kind::Eof);
                token.text = "EOF";
                return token;
            };
            if found > 0 {
                self.at += found;
                let before = &self.input[self.start..self.at];
                let trim = match has_left_marker(&self.input[self.at + LEFT.len()..]) {
                    true => before.len() - before.trim_end_matches(is_space).len(),
                    false => 0,
                };
                self.at -= trim;
                self.line += newlines(&self.input[self.start..self.at]);
                let token = self.token(Kind::Text);
                self.at += trim;
                self.ignore();
                if !token.text.is_empty() {
                    return token;
                }
            }
            match self.left_delim() {
                Some(token) => return token,
                // A comment: what follows is text again.
                None => continue,
            }
        }
    }

    fn left_delim(&mut self) -> Option<Token<'t>> {
        self.at += LEFT.len();
        let marker = if has_left_marker(self.rest()) { MARKER } else { 0 };
        if self.rest()[marker..].starts_with("/*") {
            self.at += marker;
            self.ignore();
            return self.comment();
        }
        let token = self.token(Kind::LeftDelim);
        self.inside = true;
        self.at += marker;
        self.ignore();
        self.parens = 0;
        Some(token)
    }

    /// Skips a comment; an error token if it is malformed.
    fn comment(&mut self) -> Option<Token<'t>> {
        self.at += 2;
        let Some(end) = self.rest().find("*/") else {
            return Some(self.error("unclosed comment".to_owned()));
        };
        self.at += end + 2;
        let Some(trim) = self.at_right_delim() else {
            return Some(self.error("comment ends before closing delimiter".to_owned()));
        };
        self.line += newlines(&self.input[self.start..self.at]);
        self.token(Kind::Text);
        if trim {
            self.at += MARKER;
        }
        self.at += RIGHT.len();
        if trim {
            self.skip_space();
        }
        self.ignore();
        None
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(is_space).len();
    }

    /// Whether a right delimiter is here, and if so, whether it trims.
    fn at_right_delim(&self) -> Option<bool> {
        match self.bytes() {
            [b'}', b'}', ..] => Some(false),
            [space, b'-', b'}', b'}', ..] if is_space(*space as char) => Some(true),
            _ => None,
        }
    }

    fn right_delim(&mut self) -> Token<'t> {
        let trim = self.at_right_delim() == Some(true);
        if trim {
            self.at += MARKER;
            self.ignore();
        }
        self.at += RIGHT.len();
        let token = self.token(Kind::RightDelim);
        if trim {
            self.skip_space();
            self.ignore();
        }
        self.inside = false;
        token
    }

    fn inside_action(&mut self) -> Token<'t> {
        if self.at_right_delim().is_some() {
            if self.parens == 0 {
                return self.right_delim();
            }
            return self.error("unclosed left paren".to_owned());
        }
        let Some(first) = self.peek() else { return self.error("unclosed action".to_owned()) };
        if is_space(first) {
            return self.space();
        }
        self.next();
        match first {
            '=' => self.token(Kind::Assign),
            ':' => match self.next() {
                Some('=') => self.token(Kind::Declare),
                _ => self.error("expected :=".to_owned()),
            },
            '|' => self.token(Kind::Pipe),
            '"' => self.quoted(b'"', Kind::String, "unterminated quoted string"),
            '`' => self.raw_quoted(),
            '$' => self.field_or_variable(Kind::Variable),
            '\'' => self.quoted(b'\'', Kind::CharConstant, "unterminated character constant"),
            '.' if self.rest().bytes().next().is_some_and(|b| !b.is_ascii_digit()) => {
                self.field_or_variable(Kind::Field)
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.at -= 1;
                self.number()
            }
            _ if is_alphanumeric(first) => self.identifier(),
            '(' => {
                self.parens += 1;
                self.token(Kind::LeftParen)
            }
            ')' => {
                if self.parens == 0 {
                    return self.error("unexpected right paren".to_owned());
                }
                self.parens -= 1;
                self.token(Kind::RightParen)
            }
            _ if first.is_ascii() && is_print(first) => self.token(Kind::Char),
            _ => self.error(format!("unrecognized character in action: {}", unicode(Some(first)))),
        }
    }

    fn space(&mut self) -> Token<'t> {
        let mut count = 0;
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.bytes().first() {
            self.at += 1;
            self.line += u32::from(*byte == b'\n');
            count += 1;
        }
        // A trimming right delimiter starts with the last of these spaces.
        let last = &self.input[self.at - 1..];
        if has_right_marker(last) && last[MARKER..].starts_with(RIGHT) {
            self.at -= 1;
            if last.starts_with('\n') {
                self.line -= 1;
            }
            if count == 1 {
                return self.right_delim();
            }
        }
        self.token(Kind::Space)
    }

    fn identifier(&mut self) -> Token<'t> {
        self.skip_alphanumeric();
        if !self.at_terminator() {
            let bad = unicode(self.peek());
            return self.error(format!("bad character {bad}"));
        }
        let kind = match &self.input[self.start..self.at] {
            "block" => Kind::Block,
            "break" if self.keywords.with_break => Kind::Break,
            "continue" if self.keywords.with_continue => Kind::Continue,
            "define" => Kind::Define,
            "else" => Kind::Else,
            "end" => Kind::End,
            "if" => Kind::If,
            "range" => Kind::Range,
            "nil" => Kind::Nil,
            "template" => Kind::Template,
            "with" => Kind::With,
            "true" | "false" => Kind::Bool,
            _ => Kind::Identifier,
        };
        self.token(kind)
    }

    /// `.` or `$` has been read.
    fn field_or_variable(&mut self, kind: Kind) -> Token<'t> {
        if self.at_terminator() {
            return self.token(if kind == Kind::Variable { Kind::Variable } else { Kind::Dot });
        }
        self.skip_alphanumeric();
        if !self.at_terminator() {
            let bad = unicode(self.peek());
            return self.error(format!("bad character {bad}"));
        }
        self.token(kind)
    }

    /// Whether an identifier may end here.
    fn at_terminator(&self) -> bool {
        match self.bytes() {
            [] | [b'.' | b',' | b'|' | b':' | b')' | b'(' | b' ' | b'\t' | b'\r' | b'\n', ..] => true,
            bytes => bytes.starts_with(RIGHT.as_bytes()),
        }
    }

    fn quoted(&mut self, mark: u8, kind: Kind, unterminated: &str) -> Token<'t> {
        loop {
            // All that matters here is ASCII, so the bytes of other characters can be passed over one by one.
            match self.bytes() {
                [b'\\', next, ..] if *next != b'\n' => self.at += 2,
                [b'\\' | b'\n', ..] | [] => return self.error(unterminated.to_owned()),
                [byte, ..] => {
                    self.at += 1;
                    if *byte == mark {
                        return self.token(kind);
                    }
                }
            }
        }
    }

    fn raw_quoted(&mut self) -> Token<'t> {
        let Some(end) = self.rest().find('`') else {
            return self.error("unterminated raw quoted string".to_owned());
        };
        self.line += newlines(&self.rest()[..end]);
        self.at += end + 1;
        self.token(Kind::RawString)
    }

    fn number(&mut self) -> Token<'t> {
        if !self.scan_number() {
            return self.bad_number();
        }
        if let Some('+' | '-') = self.peek() {
            // Complex: 1+2i, without spaces, and it has to end in i.
            if !self.scan_number() || !self.input[..self.at].ends_with('i') {
                return self.bad_number();
            }
            return self.token(Kind::Complex);
        }
        self.token(Kind::Number)
    }

    fn bad_number(&mut self) -> Token<'t> {
        let text = strconv::quote(&self.input.as_bytes()[self.start..self.at]);
        self.error(format!("bad number syntax: {text}"))
    }

    fn scan_number(&mut self) -> bool {
        const DECIMAL: &str = "0123456789_";
        const HEX: &str = "0123456789abcdefABCDEF_";
        self.accept("+-");
        let mut digits = DECIMAL;
        if self.accept("0") {
            if self.accept("xX") {
                digits = HEX;
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        let exponent = (digits == DECIMAL && self.accept("eE")) || (digits == HEX && self.accept("pP"));
        if exponent {
            self.accept("+-");
            self.accept_run(DECIMAL);
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }
}

/// Braces are rare enough that looking for one of them is faster than looking for both.
fn left_delimiter(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find('{')?;
        if text.as_bytes().get(at + 1) == Some(&b'{') {
            return Some(at);
        }
        from = at + 1;
    }
}

fn newlines(text: &str) -> u32 {
    // Texts are shorter than 2^30.
    text.bytes().filter(|&b| b == b'\n').count() as u32
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || is_letter(c) || is_digit(c)
}

fn has_left_marker(text: &str) -> bool {
    matches!(text.as_bytes(), [b'-', space, ..] if is_space(*space as char))
}

fn has_right_marker(text: &str) -> bool {
    matches!(text.as_bytes(), [space, b'-', ..] if is_space(*space as char))
}

/// Go's `%#U`: the code point, and the character if it can be shown.
fn unicode(c: Option<char>) -> String {
    match c {
        // Go's end of input is -1, which `%#U` takes as unsigned.
        None => "U+FFFFFFFFFFFFFFFF".to_owned(),
        Some(c) if is_print(c) => format!("U+{:04X} '{c}'", c as u32),
        Some(c) => format!("U+{:04X}", c as u32),
    }
}
