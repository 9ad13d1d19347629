//! The little DER and PEM that keys and certificates need.

use super::base64;

pub const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
pub const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OID: u8 = 0x06;

/// One element: tag, length, content.
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=127 => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let skip = bytes.iter().take_while(|&&byte| byte == 0).count();
            out.push(0x80 | (bytes.len() - skip) as u8);
            out.extend_from_slice(&bytes[skip..]);
        }
    }
    out.extend_from_slice(content);
    out
}

pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

pub fn set(content: &[u8]) -> Vec<u8> {
    element(SET, content)
}

/// A whole number that is not negative, from its big-endian bytes.
pub fn integer(bytes: &[u8]) -> Vec<u8> {
    let skip = bytes.iter().take_while(|&&byte| byte == 0).count();
    let digits = &bytes[skip..];
    let mut content = Vec::with_capacity(digits.len() + 1);
    if digits.first().is_none_or(|&first| first >= 0x80) {
        content.push(0);
    }
    content.extend_from_slice(digits);
    element(INTEGER, &content)
}

pub fn bit_string(bytes: &[u8], unused: u8) -> Vec<u8> {
    element(BIT_STRING, &[&[unused], bytes].concat())
}

/// An object identifier from its encoded content.
pub fn oid(content: &[u8]) -> Vec<u8> {
    element(OID, content)
}

/// The first element of some DER: its tag, its content, the whole of it, and what follows.
pub struct Element<'d> {
    pub tag: u8,
    pub content: &'d [u8],
    pub whole: &'d [u8],
    pub rest: &'d [u8],
}

pub fn read(text: &[u8]) -> Option<Element<'_>> {
    let (&tag, after) = text.split_first()?;
    let (&first, after) = after.split_first()?;
    let (length, after) = match first {
        0..=127 => (usize::from(first), after),
        0x81..=0x84 => {
            let (digits, after) = after.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), after)
        }
        _ => return None,
    };
    let (content, rest) = after.split_at_checked(length)?;
    Some(Element { tag, content, whole: &text[..text.len() - rest.len()], rest })
}

/// The elements within a constructed one; nothing if any is malformed.
pub fn read_all(mut content: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut elements = Vec::new();
    while !content.is_empty() {
        let element = read(content)?;
        content = element.rest;
        elements.push(element);
    }
    Some(elements)
}

pub fn pem(label: &str, bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The first PEM block: its label and bytes.
pub fn read_pem(text: &str) -> Option<(String, Vec<u8>)> {
    let after = &text[text.find("-----BEGIN ")? + "-----BEGIN ".len()..];
    let (label, body) = after.split_once("-----")?;
    let (body, _) = body.split_once(&format!("-----END {label}-----"))?;
    // Headers, if any, end with an empty line.
    let body = match body.split_once("\n\n") {
        Some((headers, body)) if headers.contains(':') => body,
        _ => body,
    };
    let digits: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    Some((label.to_owned(), base64::decode(&digits).ok()?))
}
