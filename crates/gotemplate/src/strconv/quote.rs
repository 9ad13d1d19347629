//! Quoted strings and runes, to and fro.

use crate::unicode::{decode_rune, is_print, push_rune, runes};

/// `strconv.Quote`, which is what `%q` shows.
pub fn quote(text: &[u8]) -> String {
    quote_with(text, '"', false)
}

/// `strconv.QuoteToASCII`, which is what `%+q` shows.
pub fn quote_to_ascii(text: &[u8]) -> String {
    quote_with(text, '"', true)
}

/// `strconv.QuoteRune`
pub fn quote_rune(rune: u32) -> String {
    quote_one(rune, false)
}

/// `strconv.QuoteRuneToASCII`
pub fn quote_rune_to_ascii(rune: u32) -> String {
    quote_one(rune, true)
}

/// `strconv.CanBackquote`
pub fn can_backquote(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    text.chars().all(|c| c != '\u{feff}' && c != '`' && c != '\u{7f}' && (c >= ' ' || c == '\t'))
}

fn quote_one(rune: u32, ascii: bool) -> String {
    let rune = char::from_u32(rune).unwrap_or(crate::unicode::REPLACEMENT);
    let mut out = String::from('\'');
    push_escaped(&mut out, rune, '\'', ascii);
    out.push('\'');
    out
}

fn quote_with(text: &[u8], quote: char, ascii: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for (at, rune, length) in runes(text) {
        if length == 1 && text[at] >= 0x80 {
            out.push_str(&format!("\\x{:02x}", text[at]));
        } else {
            push_escaped(&mut out, rune, quote, ascii);
        }
    }
    out.push(quote);
    out
}

fn push_escaped(out: &mut String, rune: char, quote: char, ascii: bool) {
    if rune == quote || rune == '\\' {
        out.push('\\');
        out.push(rune);
        return;
    }
    if (!ascii || rune.is_ascii()) && is_print(rune) {
        out.push(rune);
        return;
    }
    match rune {
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        control if control < ' ' || control == '\u{7f}' => {
            out.push_str(&format!("\\x{:02x}", control as u32))
        }
        small if (small as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", small as u32)),
        large => out.push_str(&format!("\\U{:08x}", large as u32)),
    }
}

/// `strconv.Unquote` of a `"…"` or a raw string; nothing if the syntax is wrong.
pub fn unquote(quoted: &[u8]) -> Option<Vec<u8>> {
    let (&mark, rest) = quoted.split_first()?;
    let (&last, inner) = rest.split_last()?;
    if mark != last {
        return None;
    }
    match mark {
        // Carriage returns within raw strings are dropped, as Go's own scanner does.
        b'`' => (!inner.contains(&b'`')).then(|| inner.iter().copied().filter(|&b| b != b'\r').collect()),
        b'"' => {
            let mut out = Vec::with_capacity(inner.len());
            let mut rest = inner;
            while !rest.is_empty() {
                if rest[0] == b'\n' {
                    return None;
                }
                let (rune, multibyte, tail) = unquote_char(rest, b'"')?;
                match u8::try_from(rune) {
                    Ok(byte) if byte < 0x80 || !multibyte => out.push(byte),
                    _ => push_rune(&mut out, rune),
                }
                rest = tail;
            }
            Some(out)
        }
        _ => None,
    }
}

/// `strconv.UnquoteChar`: the first character, whether it stands for a multi-byte rune, and what follows.
pub fn unquote_char(text: &[u8], quote: u8) -> Option<(u32, bool, &[u8])> {
    let &first = text.first()?;
    if first == quote && (quote == b'\'' || quote == b'"') {
        return None;
    }
    if first >= 0x80 {
        let (rune, length) = decode_rune(text);
        return Some((rune as u32, true, &text[length..]));
    }
    if first != b'\\' {
        return Some((u32::from(first), false, &text[1..]));
    }
    let &escape = text.get(1)?;
    let rest = &text[2..];
    let simple = |byte: u8| Some((u32::from(byte), false, rest));
    match escape {
        b'a' => simple(7),
        b'b' => simple(8),
        b'f' => simple(12),
        b'n' => simple(b'\n'),
        b'r' => simple(b'\r'),
        b't' => simple(b'\t'),
        b'v' => simple(11),
        b'\\' => simple(b'\\'),
        b'x' => {
            let (value, rest) = digits(rest, 2, 16)?;
            Some((value, false, rest))
        }
        b'u' | b'U' => {
            let (value, rest) = digits(rest, if escape == b'u' { 4 } else { 8 }, 16)?;
            char::from_u32(value)?;
            Some((value, true, rest))
        }
        b'0'..=b'7' => {
            let (value, rest) = digits(&text[1..], 3, 8)?;
            (value <= 255).then_some((value, false, rest))
        }
        b'\'' | b'"' if escape == quote => simple(escape),
        _ => None,
    }
}

fn digits(text: &[u8], count: usize, radix: u32) -> Option<(u32, &[u8])> {
    let mut value: u32 = 0;
    for &byte in text.get(..count)? {
        value = value.checked_mul(radix)?.checked_add((byte as char).to_digit(radix)?)?;
    }
    Some((value, &text[count..]))
}
