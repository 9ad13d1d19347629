//! From text to tokens: actions, what is between them, and the white space that trim markers remove.

use crate::strconv;
use crate::unicode::{is_digit, is_letter, is_print};

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The scan failed; the token's text says why.
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
#[derive(Clone, Debug)]
pub struct Token<'t> {
    pub kind: Kind,
    pub at: usize,
    pub text: std::borrow::Cow<'t, str>,
    pub line: usize,
}

impl Token<'_> {
    /// How Go names a token in an error.
    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Eof => "EOF".to_owned(),
            Kind::Error => self.text.clone().into_owned(),
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
    line: usize,
    start_line: usize,
    parens: usize,
    inside: bool,
    /// Functions may be called `break` and `continue`; then those are no keywords.
    keywords: Keywords,
    failed: bool,
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
            failed: false,
        }
    }

    pub fn next_token(&mut self) -> Token<'t> {
        if self.failed {
            return Token { kind: Kind::Eof, at: self.at, text: "EOF".into(), line: self.start_line };
        }
        if self.inside { self.inside_action() } else { self.text() }
    }

    fn rest(&self) -> &'t str {
        &self.input[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        if next == '\n' {
            self.line += 1;
        }
        Some(next)
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
            at: self.start,
            text: self.input[self.start..self.at].into(),
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
        let token = Token { kind: Kind::Error, at: self.start, text: text.into(), line: self.start_line };
        self.failed = true;
        self.at = 0;
        self.start = 0;
        token
    }

    fn text(&mut self) -> Token<'t> {
        loop {
            let Some(found) = memchr_left(self.rest()) else {
                self.at = self.input.len();
                if self.at > self.start {
                    self.line += newlines(&self.input[self.start..self.at]);
                    return self.token(Kind::Text);
                }
                let mut token = self.token(Kind::Eof);
                token.text = "EOF".into();
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
        let rest = self.rest();
        if has_right_marker(rest) && rest[MARKER..].starts_with(RIGHT) {
            return Some(true);
        }
        rest.starts_with(RIGHT).then_some(false)
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
            '"' => self.quoted('"', Kind::String, "unterminated quoted string"),
            '`' => self.raw_quoted(),
            '$' => self.field_or_variable(Kind::Variable),
            '\'' => self.quoted('\'', Kind::CharConstant, "unterminated character constant"),
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
        while self.peek().is_some_and(is_space) {
            self.next();
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
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
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
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        if !self.at_terminator() {
            let bad = unicode(self.peek());
            return self.error(format!("bad character {bad}"));
        }
        self.token(kind)
    }

    /// Whether an identifier may end here.
    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(next) => is_space(next) || self.rest().starts_with(RIGHT),
        }
    }

    fn quoted(&mut self, mark: char, kind: Kind, unterminated: &str) -> Token<'t> {
        loop {
            match self.next() {
                Some('\\') if !matches!(self.peek(), None | Some('\n')) => {
                    self.next();
                }
                Some('\\' | '\n') | None => return self.error(unterminated.to_owned()),
                Some(c) if c == mark => return self.token(kind),
                Some(_) => {}
            }
        }
    }

    fn raw_quoted(&mut self) -> Token<'t> {
        loop {
            match self.next() {
                None => return self.error("unterminated raw quoted string".to_owned()),
                Some('`') => return self.token(Kind::RawString),
                Some(_) => {}
            }
        }
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

fn memchr_left(text: &str) -> Option<usize> {
    text.find(LEFT)
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|&b| b == b'\n').count()
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
