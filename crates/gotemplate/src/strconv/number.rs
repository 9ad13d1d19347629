//! Integers as Go reads them.

/// Why a text is no number, in Go's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    #[error("invalid syntax")]
    Syntax,
    #[error("value out of range")]
    Range,
}

/// `strconv.ParseUint`; base 0 takes it from a prefix and allows `_` between digits.
pub fn parse_uint(text: &[u8], base: u32) -> Result<u64, NumberError> {
    if text.is_empty() {
        return Err(NumberError::Syntax);
    }
    let (digits, radix) = match base {
        0 => prefix(text)?,
        base => (text, base),
    };
    let mut value: u64 = 0;
    let mut overflow = false;
    for &byte in digits {
        if byte == b'_' && base == 0 {
            continue;
        }
        let digit = (byte as char).to_digit(radix).ok_or(NumberError::Syntax)?;
        match value.checked_mul(u64::from(radix)).and_then(|v| v.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None => overflow = true,
        }
    }
    if base == 0 && digits.contains(&b'_') && !underscores_ok(text) {
        return Err(NumberError::Syntax);
    }
    if overflow { Err(NumberError::Range) } else { Ok(value) }
}

/// `strconv.ParseInt` with 64 bits. Out of range values are an error, as they are in Go.
pub fn parse_int(text: &[u8], base: u32) -> Result<i64, NumberError> {
    let (negative, digits) = match text.first() {
        Some(b'+') => (false, &text[1..]),
        Some(b'-') => (true, &text[1..]),
        Some(_) => (false, text),
        None => return Err(NumberError::Syntax),
    };
    let value = parse_uint(digits, base)?;
    match (negative, i64::try_from(value)) {
        (false, Ok(value)) => Ok(value),
        (true, Ok(value)) => Ok(-value),
        (true, Err(_)) if value == 1 << 63 => Ok(i64::MIN),
        (_, Err(_)) => Err(NumberError::Range),
    }
}

/// The digits after a prefix, and their radix.
fn prefix(text: &[u8]) -> Result<(&[u8], u32), NumberError> {
    if text[0] != b'0' {
        return Ok((text, 10));
    }
    let (skip, radix) = match text.get(1).map(u8::to_ascii_lowercase) {
        Some(b'b') if text.len() >= 3 => (2, 2),
        Some(b'o') if text.len() >= 3 => (2, 8),
        Some(b'x') if text.len() >= 3 => (2, 16),
        _ => (1, 8),
    };
    Ok((&text[skip..], radix))
}

/// Whether underscores stand only between digits, or between a prefix and digits.
pub(super) fn underscores_ok(text: &[u8]) -> bool {
    let mut text = text;
    if let Some(b'+' | b'-') = text.first() {
        text = &text[1..];
    }
    // What was seen last: '^' the start, '0' a digit or prefix, '_' an underscore, '!' anything else.
    let mut last = b'^';
    let mut hex = false;
    if text.len() >= 2 && text[0] == b'0' && matches!(text[1].to_ascii_lowercase(), b'b' | b'o' | b'x') {
        hex = text[1].eq_ignore_ascii_case(&b'x');
        last = b'0';
        text = &text[2..];
    }
    for &byte in text {
        if byte.is_ascii_digit() || hex && byte.is_ascii_hexdigit() {
            last = b'0';
        } else if byte == b'_' {
            if last != b'0' {
                return false;
            }
            last = b'_';
        } else {
            if last == b'_' {
                return false;
            }
            last = b'!';
        }
    }
    last != b'_'
}
