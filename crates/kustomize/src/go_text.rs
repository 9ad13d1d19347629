//! Text the way Go prints it: quoted strings, `%v` of lists and maps, regular expressions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use regex::Regex;

/// Go's `strconv.Quote`.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' '..='\u{7e}' => out.push(c),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x1_0000 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push('"');
    out
}

fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{a0}' | '\u{ad}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
        && !(c.is_whitespace())
}

/// `[a b c]`
pub(crate) fn list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    format!("[{}]", items.join(" "))
}

/// `map[a:1 b:2]`
pub(crate) fn map(entries: &BTreeMap<String, String>) -> String {
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!("map[{}]", entries.join(" "))
}

/// A regular expression, or Go's complaint about it.
pub(crate) fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| {
        let cause = match &error {
            regex::Error::Syntax(text) => {
                text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
            other => other.to_string(),
        };
        format!("error parsing regexp: {cause}: `{pattern}`")
    })
}

/// A regular expression that must match the whole text.
pub(crate) fn whole_regex(pattern: &str) -> Result<Regex, String> {
    regex(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        assert_eq!(quote("a\"b\\\n\u{1}é\u{feff}"), "\"a\\\"b\\\\\\n\\x01é\\ufeff\"");
    }
}
