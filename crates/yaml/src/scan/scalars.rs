//! Scalars in their five styles.

use std::borrow::Cow;

use super::{Mark, Scanner, TokenValue};
use crate::Error;
use crate::node::ScalarStyle;

/// Bytes that end a run of ordinary characters in a plain scalar: the others are copied without a look.
const PLAIN_STOPS: [bool; 256] = {
    let mut table = [false; 256];
    let stops = b" \t\r\n:,?[]{}\xc2\xe2";
    let mut at = 0;
    while at < stops.len() {
        table[stops[at] as usize] = true;
        at += 1;
    }
    table
};

/// White space between the lines of a flow scalar, and how it folds.
#[derive(Default)]
struct Fold {
    whitespace: String,
    leading_break: String,
    trailing_breaks: String,
    /// Whether a line break was passed.
    broken: bool,
}

impl Fold {
    fn append_to(&mut self, out: &mut String) {
        if self.broken {
            if self.leading_break.starts_with('\n') {
                if self.trailing_breaks.is_empty() {
                    out.push(' ');
                } else {
                    out.push_str(&self.trailing_breaks);
                }
            } else {
                out.push_str(&self.leading_break);
                out.push_str(&self.trailing_breaks);
            }
            self.leading_break.clear();
            self.trailing_breaks.clear();
        } else {
            out.push_str(&self.whitespace);
            self.whitespace.clear();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl<'a> Scanner<'a> {
    pub(super) fn fetch_plain(&mut self) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        let indent = i64::from(self.indent) + 1;
        let mut end = start;
        // The text stays a slice of the source until a line is folded.
        let mut folded: Option<String> = None;
        let mut fold = Fold::default();
        loop {
            if (self.column == 0 && self.at_document_indicator()) || self.at(0) == b'#' {
                break;
            }
            let length = self.plain_run();
            if length > 0 {
                let run = &self.text[self.pos..self.pos + length];
                if fold.broken || folded.is_some() {
                    let out = folded.get_or_insert_with(|| self.slice(start, end).to_owned());
                    fold.append_to(out);
                    fold.broken = false;
                    out.push_str(run);
                } else {
                    fold.whitespace.clear();
                }
                self.skip_text(length);
                end = self.mark();
            }
            if !self.is_blank(0) && !self.is_break(0) {
                break;
            }
            self.fold_blanks(&mut fold, folded.is_some(), Some((indent, start)))?;
            if self.flow_level == 0 && i64::from(self.column) < indent {
                break;
            }
        }
        if fold.broken {
            self.simple_key_allowed = true;
        }
        let text = folded.map_or_else(|| Cow::Borrowed(self.slice(start, end)), Cow::Owned);
        self.push(TokenValue::Scalar(text, ScalarStyle::Plain), start, end);
        Ok(())
    }

    fn slice(&self, start: Mark, end: Mark) -> &'a str {
        &self.text[start.index.unsigned_abs() as usize..end.index.unsigned_abs() as usize]
    }

    /// The bytes of a plain scalar up to the next blank, break or indicator.
    fn plain_run(&self) -> usize {
        let in_flow = self.flow_level > 0;
        let mut length = 0;
        loop {
            let rest = &self.bytes[(self.pos + length).min(self.bytes.len())..];
            let Some(run) = rest.iter().position(|byte| PLAIN_STOPS[usize::from(*byte)]) else {
                return length + rest.len();
            };
            length += run;
            let ends = match rest[run] {
                b' ' | b'\t' | b'\r' | b'\n' => true,
                b':' => self.is_blank_or_end(length + 1),
                b',' | b'?' | b'[' | b']' | b'{' | b'}' => in_flow,
                _ => self.is_break(length),
            };
            if ends {
                return length;
            }
            length += 1;
        }
    }

    /// Passes blanks and line breaks inside a flow scalar. `plain` carries the indentation of a plain one.
    fn fold_blanks(&mut self, fold: &mut Fold, keep: bool, plain: Option<(i64, Mark)>) -> Result<(), Error> {
        loop {
            if self.is_blank(0) {
                if let Some((indent, start)) = plain
                    && fold.broken
                    && i64::from(self.column) < indent
                    && self.at(0) == b'\t'
                {
                    return Err(self.fail("found a tab character that violates indentation", start));
                }
                if !fold.broken && (keep || plain.is_none()) {
                    fold.whitespace.push(char::from(self.at(0)));
                }
                self.skip_blank();
            } else if self.is_break(0) {
                if fold.broken {
                    self.read_line(&mut fold.trailing_breaks);
                } else {
                    fold.whitespace.clear();
                    self.read_line(&mut fold.leading_break);
                    fold.broken = true;
                }
            } else {
                return Ok(());
            }
        }
    }

    pub(super) fn fetch_quoted(&mut self, style: ScalarStyle) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        let quote = self.at(0);
        self.skip_ascii(1);
        let text = match self.simple_quoted(quote) {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(self.folded_quoted(quote, start)?),
        };
        self.skip_ascii(1);
        self.push(TokenValue::Scalar(text, style), start, self.mark());
        Ok(())
    }

    /// The usual case: one line without escapes.
    fn simple_quoted(&mut self, quote: u8) -> Option<&'a str> {
        let rest = &self.bytes[self.pos.min(self.bytes.len())..];
        let length = rest.iter().position(|byte| {
            *byte == quote || matches!(byte, b'\n' | b'\r' | 0xc2 | 0xe2) || (*byte == b'\\' && quote == b'"')
        })?;
        if rest[length] != quote || (quote == b'\'' && rest.get(length + 1) == Some(&b'\'')) {
            return None;
        }
        let text = &self.text[self.pos..self.pos + length];
        self.skip_text(length);
        Some(text)
    }

    fn folded_quoted(&mut self, quote: u8, start: Mark) -> Result<String, Error> {
        let mut out = String::new();
        let mut fold = Fold::default();
        loop {
            if self.column == 0 && self.at_document_indicator() {
                return Err(self.fail("found unexpected document indicator", start));
            }
            if self.pos >= self.bytes.len() {
                return Err(self.fail("found unexpected end of stream", start));
            }
            fold.broken = false;
            while !self.is_blank_or_end(0) {
                let byte = self.at(0);
                if byte == quote {
                    if quote == b'\'' && self.at(1) == b'\'' {
                        out.push('\'');
                        self.skip_ascii(2);
                        continue;
                    }
                    break;
                }
                if byte == b'\\' && quote == b'"' {
                    if self.is_break(1) {
                        self.skip_ascii(1);
                        self.skip_line();
                        // Nothing of the line break is kept, only the blanks behind it go.
                        fold.broken = true;
                        break;
                    }
                    self.escape(&mut out, start)?;
                    continue;
                }
                let width = self.text[self.pos..].chars().next().map_or(1, char::len_utf8);
                out.push_str(&self.text[self.pos..self.pos + width]);
                self.skip_text(width);
            }
            if self.at(0) == quote {
                return Ok(out);
            }
            self.fold_blanks(&mut fold, true, None)?;
            fold.append_to(&mut out);
        }
    }

    fn escape(&mut self, out: &mut String, start: Mark) -> Result<(), Error> {
        let code_length = match self.at(1) {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            byte => {
                out.push(match byte {
                    b'0' => '\0',
                    b'a' => '\u{7}',
                    b'b' => '\u{8}',
                    b't' | b'\t' => '\t',
                    b'n' => '\n',
                    b'v' => '\u{b}',
                    b'f' => '\u{c}',
                    b'r' => '\r',
                    b'e' => '\u{1b}',
                    b' ' => ' ',
                    b'"' => '"',
                    b'\'' => '\'',
                    b'\\' => '\\',
                    b'N' => '\u{85}',
                    b'_' => '\u{a0}',
                    b'L' => '\u{2028}',
                    b'P' => '\u{2029}',
                    _ => return Err(self.fail("found unknown escape character", start)),
                });
                self.skip_ascii(2);
                return Ok(());
            }
        };
        self.skip_ascii(2);
        let mut value = 0u32;
        for offset in 0..code_length {
            let Some(digit) = char::from(self.at(offset)).to_digit(16) else {
                return Err(self.fail("did not find expected hexdecimal number", start));
            };
            value = value << 4 | digit;
        }
        let Some(c) = char::from_u32(value) else {
            return Err(self.fail("found invalid Unicode character escape code", start));
        };
        out.push(c);
        self.skip_ascii(u32::try_from(code_length).unwrap_or(0));
        Ok(())
    }

    pub(super) fn fetch_block_scalar(&mut self, style: ScalarStyle) -> Result<(), Error> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let start = self.mark();
        self.skip_ascii(1);
        let (chomping, increment) = self.block_header(start)?;
        let mut indent = match increment {
            0 => 0,
            increment => self.indent.max(0) + increment,
        };
        let mut out = String::new();
        let (mut leading_break, mut trailing_breaks) = (String::new(), String::new());
        let mut end = self.block_breaks(&mut indent, &mut trailing_breaks, start)?;
        let mut leading_blank = false;
        while i64::from(self.column) == i64::from(indent) && self.pos < self.bytes.len() {
            let blank = self.is_blank(0);
            if style == ScalarStyle::Folded && leading_break.starts_with('\n') && !leading_blank && !blank {
                if trailing_breaks.is_empty() {
                    out.push(' ');
                }
            } else {
                out.push_str(&leading_break);
            }
            leading_break.clear();
            out.push_str(&trailing_breaks);
            trailing_breaks.clear();
            leading_blank = blank;
            let length = self.bytes_to_line_end();
            out.push_str(&self.text[self.pos..self.pos + length]);
            self.skip_text(length);
            self.read_line(&mut leading_break);
            end = self.block_breaks(&mut indent, &mut trailing_breaks, start)?;
        }
        if chomping != Chomping::Strip {
            out.push_str(&leading_break);
        }
        if chomping == Chomping::Keep {
            out.push_str(&trailing_breaks);
        }
        self.push(TokenValue::Scalar(Cow::Owned(out), style), start, end);
        Ok(())
    }

    /// What stands behind `|` or `>` up to the end of the line.
    fn block_header(&mut self, start: Mark) -> Result<(Chomping, i32), Error> {
        let mut chomping = self.chomping();
        let mut increment = 0;
        if self.at(0).is_ascii_digit() {
            if self.at(0) == b'0' {
                return Err(self.fail("found an indentation indicator equal to 0", start));
            }
            increment = i32::from(self.at(0) - b'0');
            self.skip_ascii(1);
            if chomping.is_none() {
                chomping = self.chomping();
            }
        }
        while self.is_blank(0) {
            self.skip_blank();
        }
        if self.at(0) == b'#' {
            if self.keep_comments {
                self.scan_line_comment(start);
            }
            self.skip_to_line_end();
        }
        if !self.is_break_or_end(0) {
            return Err(self.fail("did not find expected comment or line break", start));
        }
        self.skip_line();
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    fn chomping(&mut self) -> Option<Chomping> {
        let chomping = match self.at(0) {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return None,
        };
        self.skip_ascii(1);
        Some(chomping)
    }

    /// Passes indentation and empty lines; finds the indentation if the header did not give it. Returns the end
    /// of what was content so far.
    fn block_breaks(&mut self, indent: &mut i32, breaks: &mut String, start: Mark) -> Result<Mark, Error> {
        let mut end = self.mark();
        let mut max_indent = 0;
        loop {
            let column = |scanner: &Self| i32::try_from(scanner.column).unwrap_or(i32::MAX);
            while (*indent == 0 || column(self) < *indent) && self.at(0) == b' ' {
                self.skip_blank();
            }
            max_indent = max_indent.max(column(self));
            if (*indent == 0 || column(self) < *indent) && self.at(0) == b'\t' {
                let message = "found a tab character where an indentation space is expected";
                return Err(self.fail(message, start));
            }
            if !self.is_break(0) {
                break;
            }
            self.read_line(breaks);
            end = self.mark();
        }
        if *indent == 0 {
            *indent = max_indent.max(self.indent + 1).max(1);
        }
        Ok(end)
    }
}
