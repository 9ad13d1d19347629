//! Go's view of characters: runes in byte strings that may not be UTF-8, their classes, and their case.

mod tables;

use std::cmp::Ordering;

/// What Go decodes where the bytes are not UTF-8.
pub const REPLACEMENT: char = '\u{fffd}';

/// The first rune of the bytes and its length. Bytes that are not UTF-8 give U+FFFD and length 1; no bytes give 0.
pub fn decode_rune(bytes: &[u8]) -> (char, usize) {
    let Some(&first) = bytes.first() else { return (REPLACEMENT, 0) };
    if first < 0x80 {
        return (first as char, 1);
    }
    let length = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return (REPLACEMENT, 1),
    };
    match bytes.get(..length).and_then(|rune| std::str::from_utf8(rune).ok()) {
        Some(text) => (text.chars().next().unwrap_or(REPLACEMENT), length),
        None => (REPLACEMENT, 1),
    }
}

/// The runes of a byte string: start, rune, and length in bytes.
pub fn runes(bytes: &[u8]) -> impl Iterator<Item = (usize, char, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (rune, length) = decode_rune(&bytes[at..]);
        if length == 0 {
            return None;
        }
        let start = at;
        at += length;
        Some((start, rune, length))
    })
}

/// Go's `utf8.RuneCount`.
pub fn rune_count(bytes: &[u8]) -> usize {
    if bytes.is_ascii() { bytes.len() } else { runes(bytes).count() }
}

/// Appends a rune; what is no Unicode scalar value becomes U+FFFD.
pub fn push_rune(out: &mut Vec<u8>, rune: u32) {
    let rune = char::from_u32(rune).unwrap_or(REPLACEMENT);
    out.extend_from_slice(rune.encode_utf8(&mut [0; 4]).as_bytes());
}

/// `strconv.IsPrint`
pub fn is_print(rune: char) -> bool {
    if rune.is_ascii() { (' '..='~').contains(&rune) } else { within(tables::PRINT, rune) }
}

/// `unicode.IsLetter`
pub fn is_letter(rune: char) -> bool {
    if rune.is_ascii() { rune.is_ascii_alphabetic() } else { within(tables::LETTER, rune) }
}

/// `unicode.IsDigit`
pub fn is_digit(rune: char) -> bool {
    if rune.is_ascii() { rune.is_ascii_digit() } else { within(tables::DIGIT, rune) }
}

/// `unicode.IsUpper`
pub fn is_upper(rune: char) -> bool {
    if rune.is_ascii() { rune.is_ascii_uppercase() } else { within(tables::UPPER, rune) }
}

/// `unicode.IsLower`
pub fn is_lower(rune: char) -> bool {
    if rune.is_ascii() { rune.is_ascii_lowercase() } else { within(tables::LOWER, rune) }
}

/// `unicode.IsTitle`
pub fn is_title(rune: char) -> bool {
    within(tables::TITLE, rune)
}

/// `unicode.IsPunct`
pub fn is_punct(rune: char) -> bool {
    within(tables::PUNCT, rune)
}

/// `unicode.IsNumber`
pub fn is_number(rune: char) -> bool {
    if rune.is_ascii() { rune.is_ascii_digit() } else { within(tables::NUMBER, rune) }
}

/// `unicode.IsSpace`
pub fn is_space(rune: char) -> bool {
    matches!(rune, '\t'..='\r' | ' ' | '\u{85}' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}')
        || matches!(rune, '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// Go changes case rune by rune: one stays one, so `ß` has no upper case.
pub fn to_upper(rune: char) -> char {
    if rune.is_ascii() { rune.to_ascii_uppercase() } else { change_case(rune, 0) }
}

pub fn to_lower(rune: char) -> char {
    if rune.is_ascii() { rune.to_ascii_lowercase() } else { change_case(rune, 1) }
}

pub fn to_title(rune: char) -> char {
    if rune.is_ascii() { rune.to_ascii_uppercase() } else { change_case(rune, 2) }
}

/// Applies a function to each rune, as `strings.Map` does.
pub fn map_runes(bytes: &[u8], mut change: impl FnMut(char) -> char) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for (_, rune, _) in runes(bytes) {
        push_rune(&mut out, change(rune) as u32);
    }
    out
}

fn within(table: &[(u32, u32)], rune: char) -> bool {
    let rune = rune as u32;
    table
        .binary_search_by(|&(low, high)| {
            if high < rune {
                Ordering::Less
            } else if low > rune {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        })
        .is_ok()
}

fn change_case(rune: char, case: usize) -> char {
    const ALTERNATING: i32 = 0x11_0000;
    let code = rune as u32;
    let found = tables::CASES.binary_search_by(|&(low, high, _)| {
        if high < code {
            Ordering::Less
        } else if low > code {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    });
    let Ok(at) = found else { return rune };
    let (low, _, deltas) = tables::CASES[at];
    let changed = match deltas[case] {
        delta if delta > char::MAX as i32 => {
            debug_assert_eq!(delta, ALTERNATING);
            // Runs in which even offsets are upper case and odd ones lower case; title case is upper case.
            low + (((code - low) & !1) | u32::from(case == 1))
        }
        delta => code.wrapping_add_signed(delta),
    };
    char::from_u32(changed).unwrap_or(rune)
}
