//! `!!binary`: base64 in, text out.

use crate::{Error, ErrorKind};

/// `!!binary`, decoded; JSON has no bytes, so what is not UTF-8 becomes replacement characters, one per byte.
pub(crate) fn binary_text(text: &str) -> Result<String, Error> {
    let bytes = decode_base64(text)
        .ok_or_else(|| Error::new(ErrorKind::Value, "!!binary value contains invalid base64 data"))?;
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(std::iter::repeat_n('\u{fffd}', chunk.invalid().len()));
    }
    Ok(out)
}

/// Standard base64 with padding; line breaks are skipped, as Go's decoder does.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    if !symbols.len().is_multiple_of(4) {
        return None;
    }
    let padding = symbols.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(symbols.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for symbol in &symbols[..symbols.len() - padding] {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    Some(out)
}
