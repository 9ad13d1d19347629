//! Escaping for HTML, JavaScript and query strings, as Go's builtin functions do it.

use crate::unicode::{decode_rune, is_print};

pub fn html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            other => out.push(other),
        }
    }
    out
}

pub fn js(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte >= 0x80 {
            let (rune, length) = decode_rune(&text[at..]);
            if is_print(rune) {
                out.extend_from_slice(&text[at..at + length]);
            } else {
                out.extend_from_slice(format!("\\u{:04X}", rune as u32).as_bytes());
            }
            at += length;
            continue;
        }
        at += 1;
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\'' => out.extend_from_slice(b"\\'"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'<' => out.extend_from_slice(b"\\u003C"),
            b'>' => out.extend_from_slice(b"\\u003E"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            b'=' => out.extend_from_slice(b"\\u003D"),
            control if control < b' ' => out.extend_from_slice(format!("\\u{control:04X}").as_bytes()),
            other => out.push(other),
        }
    }
    out
}

/// `url.QueryEscape`
pub fn query_escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b' ' => out.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => out.push(byte),
            _ if byte.is_ascii_alphanumeric() => out.push(byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}
