//! The five ways to write a scalar, and which one go-yaml chooses.

use super::Dialect;
use super::analysis::{Analysis, is_blank, is_break, is_printable};
use super::writer::Writer;
use crate::node::ScalarStyle;

/// Where a scalar stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub in_flow: bool,
    pub simple_key: bool,
}

/// The style that is really used when `wanted` is asked for.
pub(super) fn choose_style(wanted: ScalarStyle, text: &str, analysis: Analysis, place: Place) -> ScalarStyle {
    let mut style = wanted;
    if place.simple_key && analysis.multiline {
        style = ScalarStyle::DoubleQuoted;
    }
    if style == ScalarStyle::Plain {
        let allowed = if place.in_flow { analysis.flow_plain_allowed } else { analysis.block_plain_allowed };
        if !allowed || (text.is_empty() && (place.in_flow || place.simple_key)) {
            style = ScalarStyle::SingleQuoted;
        }
    }
    if style == ScalarStyle::SingleQuoted && !analysis.single_quoted_allowed {
        style = ScalarStyle::DoubleQuoted;
    }
    if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded)
        && (!analysis.block_allowed || place.in_flow || place.simple_key)
    {
        style = ScalarStyle::DoubleQuoted;
    }
    style
}

pub(super) fn write_plain(writer: &mut Writer, text: &str, allow_breaks: bool) {
    if !writer.whitespace && (!text.is_empty() || writer.dialect == Dialect::V2) {
        writer.put(' ');
    }
    if !allow_breaks || text.len() <= writer.room() || writer.dialect == Dialect::V3 {
        write_unfolded(writer, text);
    } else {
        write_folding_spaces(writer, text, |_, _, _| true);
    }
    if !text.is_empty() || writer.dialect == Dialect::V2 {
        writer.whitespace = false;
    }
    writer.indention = false;
}

/// Line breaks cannot occur in a plain scalar that passed the analysis, so the text goes out as it is.
fn write_unfolded(writer: &mut Writer, text: &str) {
    writer.put_str(text);
}

/// Copies the text; a single space beyond the width becomes a line break.
fn write_folding_spaces(
    writer: &mut Writer,
    text: &str,
    may_fold: impl Fn(usize, usize, Option<char>) -> bool,
) {
    let mut after_space = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == ' ' {
            let next = chars.peek().map(|(_, next)| *next);
            if !after_space && writer.is_wide() && next != Some(' ') && may_fold(at, text.len(), next) {
                writer.write_indent();
            } else {
                writer.put(' ');
            }
            after_space = true;
        } else {
            writer.put(c);
            writer.indention = false;
            after_space = false;
        }
    }
}

pub(super) fn write_single_quoted(writer: &mut Writer, text: &str, allow_breaks: bool) {
    writer.indicator("'", true, false, false);
    let (mut spaces, mut breaks) = (false, false);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        if c == ' ' {
            let inside = at > 0 && at + 1 < text.len();
            if allow_breaks && !spaces && writer.is_wide() && inside && next != Some(' ') {
                writer.write_indent();
            } else {
                writer.put(' ');
            }
            spaces = true;
        } else if is_break(c) {
            if !breaks && c == '\n' {
                writer.put_break();
            }
            writer.copy_break(c);
            writer.indention = true;
            breaks = true;
        } else {
            if breaks {
                writer.write_indent();
            }
            if c == '\'' {
                writer.put('\'');
            }
            writer.put(c);
            writer.indention = false;
            (spaces, breaks) = (false, false);
        }
    }
    writer.indicator("'", false, false, false);
    writer.whitespace = false;
    writer.indention = false;
}

pub(super) fn write_double_quoted(writer: &mut Writer, text: &str, allow_breaks: bool) {
    writer.indicator("\"", true, false, false);
    // libyaml looks for a byte order mark at the start instead of at the character, and then escapes all.
    let all_escaped = text.starts_with('\u{feff}');
    let mut spaces = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if all_escaped || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
            escape(writer, c);
            spaces = false;
        } else if c == ' ' {
            let inside = at > 0 && at + 1 < text.len();
            if allow_breaks && !spaces && writer.is_wide() && inside {
                writer.write_indent();
                if chars.peek().map(|(_, next)| *next) == Some(' ') {
                    writer.put('\\');
                }
            } else {
                writer.put(' ');
            }
            spaces = true;
        } else {
            writer.put(c);
            spaces = false;
        }
    }
    writer.indicator("\"", false, false, false);
    writer.whitespace = false;
    writer.indention = false;
}

fn escape(writer: &mut Writer, c: char) {
    writer.put('\\');
    let letter = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let code = u32::from(c);
            writer.put_str(&match code {
                0..=0xff => format!("x{code:02X}"),
                0x100..=0xffff => format!("u{code:04X}"),
                _ => format!("U{code:08X}"),
            });
            return;
        }
    };
    writer.put(letter);
}

/// The indentation and chomping marks behind `|` or `>`.
fn block_hints(writer: &mut Writer, text: &str) {
    if text.starts_with(|c| c == ' ' || is_break(c)) {
        let hint = char::from(b'0' + writer.layout.indent % 10).to_string();
        writer.indicator(&hint, false, false, false);
    }
    let mut ends = text.chars().rev();
    match (ends.next().is_some_and(is_break), ends.next()) {
        (false, _) => writer.indicator("-", false, false, false),
        (true, None) => writer.indicator("+", false, false, false),
        (true, Some(c)) if is_break(c) => writer.indicator("+", false, false, false),
        (true, Some(_)) => {}
    }
}

/// `header_comment` is written behind the mark, where a line comment of a block scalar stands.
pub(super) fn write_literal(writer: &mut Writer, text: &str, header_comment: &str) {
    writer.indicator("|", true, false, false);
    block_hints(writer, text);
    end_header(writer, header_comment);
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.find(is_break).unwrap_or(rest.len());
        if line > 0 {
            writer.write_indent();
            writer.put_str(&rest[..line]);
            writer.indention = false;
        }
        rest = &rest[line..];
        if let Some(c) = rest.chars().next() {
            writer.copy_break(c);
            writer.indention = true;
            rest = &rest[c.len_utf8()..];
        }
    }
}

pub(super) fn write_folded(writer: &mut Writer, text: &str, header_comment: &str) {
    writer.indicator(">", true, false, false);
    block_hints(writer, text);
    end_header(writer, header_comment);
    // libyaml looks at the breaks the text starts with, not at those it stands at.
    let after_leading_breaks = text.chars().find(|c| !is_break(*c));
    let blank_after_leading = after_leading_breaks.is_none_or(|c| is_blank(c) || c == '\0');
    let (mut breaks, mut leading_spaces) = (true, true);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if is_break(c) {
            if !breaks && !leading_spaces && c == '\n' && !blank_after_leading {
                writer.put_break();
            }
            writer.copy_break(c);
            writer.indention = true;
            breaks = true;
        } else {
            if breaks {
                writer.write_indent();
                leading_spaces = is_blank(c);
            }
            if !breaks && c == ' ' && chars.peek() != Some(&' ') && writer.is_wide() {
                writer.write_indent();
            } else {
                writer.put(c);
            }
            writer.indention = false;
            breaks = false;
        }
    }
}

fn end_header(writer: &mut Writer, comment: &str) {
    if comment.is_empty() {
        writer.put_break();
    } else {
        if !writer.whitespace {
            writer.put(' ');
        }
        writer.comment(comment);
    }
    writer.indention = true;
    writer.whitespace = true;
}

/// A scalar of one line with the quotes wanted, if the text allows them.
pub(crate) fn quoted_scalar(text: &str, wanted: ScalarStyle, is_string: bool, in_flow: bool) -> String {
    let wanted = match wanted {
        ScalarStyle::Plain if is_string => super::emitter::string_style(text, Dialect::V3),
        style => style,
    };
    let place = Place { in_flow, simple_key: true };
    let analysis = super::analysis::analyze(text, Dialect::V3);
    let mut writer = Writer::new(Dialect::V3, String::new());
    match choose_style(wanted, text, analysis, place) {
        ScalarStyle::Plain => write_plain(&mut writer, text, false),
        ScalarStyle::SingleQuoted => write_single_quoted(&mut writer, text, false),
        ScalarStyle::DoubleQuoted | ScalarStyle::Literal | ScalarStyle::Folded => {
            write_double_quoted(&mut writer, text, false);
        }
    }
    writer.out
}
