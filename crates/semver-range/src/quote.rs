//! Quotes a string the way Go's `%q` does, for error texts.

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
            write!(out, "\\x{:02x}", c as u32).expect("writing to a String cannot fail")
        }
        c if (c as u32) <= 0xffff => {
            write!(out, "\\u{:04x}", c as u32).expect("writing to a String cannot fail")
        }
        c => write!(out, "\\U{:08x}", c as u32).expect("writing to a String cannot fail"),
    }
}

/// Go prints letters, marks, numbers, punctuation, symbols and the ASCII space. `escape_debug` knows the same classes, except that
/// it escapes a combining mark at the start of a string, so the mark is put after a letter.
fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    let mut after_letter = [0_u8; 5];
    after_letter[0] = b'a';
    let len = c.encode_utf8(&mut after_letter[1..]).len();
    let text = std::str::from_utf8(&after_letter[..=len]).expect("one ASCII letter and one encoded char");
    text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::go_quote;

    #[test]
    fn quotes_like_go() {
        assert_eq!(
            go_quote("a\"b\\c\n\u{1}é\u{301}\u{200b}\u{10ffff}"),
            "\"a\\\"b\\\\c\\n\\x01é\u{301}\\u200b\\U0010ffff\""
        );
    }
}
