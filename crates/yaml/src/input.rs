//! Bytes to text, with go-yaml's idea of what a text may contain.

use std::borrow::Cow;

use crate::{Error, ErrorKind};

/// The text of a stream without its byte order mark: UTF-8, or UTF-16 if the mark says so. When it holds what no
/// text may hold, the text ends before it, and the error comes along for whoever gets there.
pub(crate) fn decode(bytes: &[u8]) -> (Cow<'_, str>, Option<Error>) {
    match bytes {
        [0xff, 0xfe, rest @ ..] => decode_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => decode_utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => decode_utf8(rest),
        _ => decode_utf8(bytes),
    }
}

/// How many bytes of `bytes` come before the text that [`decode`] returns.
pub(crate) fn bom_len(bytes: &[u8]) -> u8 {
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) { 3 } else { 0 }
}

fn decode_utf8(bytes: &[u8]) -> (Cow<'_, str>, Option<Error>) {
    let (text, mut error) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            (std::str::from_utf8(valid).unwrap_or_default(), Some(encoding(utf8_problem(rest))))
        }
    };
    let mut end = text.len();
    if let Some(control) = control_character(text) {
        end = control;
        error = Some(encoding("control characters are not allowed"));
    }
    if error.is_some() {
        end = end_of_chunk_before(text, end);
    }
    (Cow::Borrowed(&text[..end]), error)
}

/// go-yaml reads 512 bytes at a time and finds a broken character when it needs the first of them.
fn end_of_chunk_before(text: &str, at: usize) -> usize {
    let mut end = at / 512 * 512;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// libyaml's name for what is wrong with the sequence at the start of `bytes`.
fn utf8_problem(bytes: &[u8]) -> &'static str {
    let width = match bytes[0] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    if bytes.len() < width {
        return "incomplete UTF-8 octet sequence";
    }
    if bytes[1..width].iter().any(|byte| byte & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    let lead = u32::from(bytes[0]) & (0x7f >> width);
    let value = bytes[1..width].iter().fold(lead, |value, byte| value << 6 | u32::from(byte & 0x3f));
    let shortest = [0, 0, 0x80, 0x800, 0x10000][width];
    if value < shortest { "invalid length of a UTF-8 sequence" } else { "invalid Unicode character" }
}

fn decode_utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> (Cow<'_, str>, Option<Error>) {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    for c in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        let Ok(c) = c else { return (Cow::Owned(text), Some(encoding("unexpected low surrogate area"))) };
        if is_control(c) {
            return (Cow::Owned(text), Some(encoding("control characters are not allowed")));
        }
        text.push(c);
    }
    let error = (!rest.is_empty()).then(|| encoding("incomplete UTF-16 character"));
    (Cow::Owned(text), error)
}

/// Where the first character stands that no YAML text may hold.
fn control_character(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(found) = bytes[from..].iter().position(|byte| SUSPICIOUS[usize::from(*byte)]) {
        let at = from + found;
        if text[at..].chars().next().is_some_and(is_control) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// First bytes of characters that may be control characters: the others need no look.
const SUSPICIOUS: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = !matches!(byte as u8, b'\t' | b'\n' | b'\r');
        byte += 1;
    }
    table[0x7f] = true;
    table[0xc2] = true;
    table[0xef] = true;
    table
};

fn is_control(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}'
        | '\u{fffe}' | '\u{ffff}')
}

fn encoding(message: &str) -> Error {
    Error::new(ErrorKind::Encoding, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(bytes: &[u8]) -> String {
        decode(bytes).1.unwrap().to_string()
    }

    #[test]
    fn broken_text_is_named_as_go_yaml_names_it() {
        assert_eq!(problem(b"a: \xff"), "yaml: invalid leading UTF-8 octet");
        assert_eq!(problem(b"a: \xc3"), "yaml: incomplete UTF-8 octet sequence");
        assert_eq!(problem(b"a: \xc3a"), "yaml: invalid trailing UTF-8 octet");
        assert_eq!(problem(b"a: \xc0\x80"), "yaml: invalid length of a UTF-8 sequence");
        assert_eq!(problem(b"a: \xed\xa0\x80"), "yaml: invalid Unicode character");
        assert_eq!(problem(b"a: \0"), "yaml: control characters are not allowed");
    }

    #[test]
    fn utf_16_is_read_by_its_mark() {
        assert_eq!(decode(b"\xff\xfea\0:\0").0, "a:");
        assert_eq!(decode(b"\xfe\xff\0a\0:").0, "a:");
        assert_eq!(decode(b"\xef\xbb\xbfa:").0, "a:");
    }
}
