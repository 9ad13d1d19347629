//! Standard base64 with Go's complaints, which name the byte.

use ::base64::Engine;

/// Where the input stops making sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct CorruptInput(usize);

pub fn encode(bytes: &[u8]) -> String {
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn digit(byte: u8) -> Option<u32> {
    Some(match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

fn is_newline(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// `base64.StdEncoding.DecodeString`: newlines are skipped, padding is required, spare bits are ignored.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut at = 0;
    while at < text.len() {
        let mut group = 0u32;
        let mut digits = 0;
        let mut finished = false;
        while digits < 4 {
            let Some(&byte) = text.get(at) else {
                if digits == 0 {
                    return Ok(out);
                }
                return Err(CorruptInput(at - digits));
            };
            at += 1;
            if let Some(value) = digit(byte) {
                group = group << 6 | value;
                digits += 1;
            } else if is_newline(&byte) {
                continue;
            } else if byte != b'=' || digits < 2 {
                return Err(CorruptInput(at - 1));
            } else {
                at = padding(text, at, digits)?;
                finished = true;
                break;
            }
        }
        let bytes = (group << (6 * (4 - digits))).to_be_bytes();
        out.extend_from_slice(&bytes[1..digits]);
        if finished {
            break;
        }
    }
    Ok(out)
}

/// What may follow the first `=`: another one if only two digits came before, and then nothing.
fn padding(text: &[u8], mut at: usize, digits: usize) -> Result<usize, CorruptInput> {
    let skip = |at: usize| at + text[at..].iter().take_while(|byte| is_newline(byte)).count();
    if digits == 2 {
        at = skip(at);
        match text.get(at) {
            None => return Err(CorruptInput(text.len())),
            Some(b'=') => at += 1,
            Some(_) => return Err(CorruptInput(at - 1)),
        }
    }
    at = skip(at);
    if at < text.len() { Err(CorruptInput(at)) } else { Ok(at) }
}
