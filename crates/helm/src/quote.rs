//! Go's `%q`, for error texts.

use std::fmt::Write as _;

pub(crate) fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        push_escaped(&mut out, c);
    }
    out.push('"');
    out
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        c if is_print(c) => out.push(c),
        c if (c as u32) < 0x20 || c == '\x7f' => {
            write!(out, "\\x{:02x}", c as u32).expect("a String takes all")
        }
        c if (c as u32) <= 0xffff => write!(out, "\\u{:04x}", c as u32).expect("a String takes all"),
        c => write!(out, "\\U{:08x}", c as u32).expect("a String takes all"),
    }
}

/// Go's `unicode.IsPrint`. `escape_debug` knows the same classes, except that it escapes a combining mark at the start of a
/// string, so the character is put after a letter.
pub(crate) fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let text: String = ['a', c].iter().collect();
    text.escape_debug().count() == 2
}
