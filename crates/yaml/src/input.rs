//! Bytes to text, with go-yaml's idea of what a text may contain.

use std::borrow::Cow;

use crate::{Error, ErrorKind};

/// The text of a stream without its byte order mark: UTF-8, or UTF-16 if the mark says so.
pub(crate) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(decode_utf16(rest, u16::from_le_bytes)?),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(decode_utf16(rest, u16::from_be_bytes)?),
        [0xef, 0xbb, 0xbf, rest @ ..] => Cow::Borrowed(decode_utf8(rest)?),
        _ => Cow::Borrowed(decode_utf8(bytes)?),
    };
    if has_control(&text) { Err(encoding("control characters are not allowed")) } else { Ok(text) }
}

/// How many bytes of `bytes` come before the text that [`decode`] returns.
pub(crate) fn bom_len(bytes: &[u8]) -> usize {
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) { 3 } else { 0 }
}

fn decode_utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|error| {
        let rest = &bytes[error.valid_up_to()..];
        // A control character before the broken one is found first.
        match std::str::from_utf8(&bytes[..error.valid_up_to()]) {
            Ok(valid) if has_control(valid) => encoding("control characters are not allowed"),
            Ok(_) | Err(_) => encoding(utf8_problem(rest)),
        }
    })
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

fn decode_utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> Result<String, Error> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(encoding("incomplete UTF-16 character"));
    }
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
        .collect::<Result<_, _>>()
        .map_err(|_| encoding("unexpected low surrogate area"))
}

fn has_control(text: &str) -> bool {
    let bytes = text.as_bytes();
    let suspicious = |byte: u8| (byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || byte == 0x7f;
    if bytes.is_ascii() {
        return bytes.iter().any(|byte| suspicious(*byte));
    }
    text.chars().any(|c| {
        (c.is_ascii() && suspicious(c as u8))
            || matches!(c, '\u{80}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
    })
}

fn encoding(message: &str) -> Error {
    Error::new(ErrorKind::Encoding, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(bytes: &[u8]) -> String {
        decode(bytes).unwrap_err().to_string()
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
        assert_eq!(decode(b"\xff\xfea\0:\0").unwrap(), "a:");
        assert_eq!(decode(b"\xfe\xff\0a\0:").unwrap(), "a:");
        assert_eq!(decode(b"\xef\xbb\xbfa:").unwrap(), "a:");
    }
}
