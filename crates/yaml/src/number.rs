//! Numbers as Go's strconv reads and prints them.

use crate::go_value::go_infinite;

/// `strconv.ParseInt(text, 0, 64)` after underscores were taken out: sign, then `0x`, `0o`, `0b`, `0` or decimal.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    signed(negative, parse_uint(digits)?)
}

/// `strconv.ParseUint(text, 0, 64)`.
pub(crate) fn parse_uint(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'0') {
        return digits(text, 10);
    }
    match bytes.get(1).map(u8::to_ascii_lowercase) {
        Some(b'x') if bytes.len() > 2 => digits(&text[2..], 16),
        Some(b'o') if bytes.len() > 2 => digits(&text[2..], 8),
        Some(b'b') if bytes.len() > 2 => digits(&text[2..], 2),
        None => Some(0),
        Some(_) => digits(&text[1..], 8),
    }
}

/// `strconv.ParseInt(text, radix, 64)`: a sign is allowed, a prefix is not.
pub(crate) fn parse_int_radix(text: &str, radix: u32) -> Option<i64> {
    let (negative, rest) = split_sign(text);
    signed(negative, digits(rest, radix)?)
}

pub(crate) fn digits(text: &str, radix: u32) -> Option<u64> {
    // `from_str_radix` would accept a sign of its own.
    if text.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) | None => (false, text),
    }
}

fn signed(negative: bool, magnitude: u64) -> Option<i64> {
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// A float in go-yaml's spelling: `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
///
/// Too large a number is no float to Go: `strconv.ParseFloat` reports a range error.
pub(crate) fn parse_yaml_float(text: &str) -> Option<f64> {
    is_yaml_float(text).then(|| parse_float(text)).flatten()
}

/// `strconv.ParseFloat` for decimal text, without the names of infinity and not-a-number.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

fn is_yaml_float(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let digits_from = |mut at: usize| {
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at, at - start)
    };
    let (end, whole) = digits_from(at);
    at = end;
    if bytes.get(at) == Some(&b'.') {
        let (end, fraction) = digits_from(at + 1);
        if whole == 0 && fraction == 0 {
            return false;
        }
        at = end;
    } else if whole == 0 {
        return false;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let (end, exponent) = digits_from(at);
        if exponent == 0 {
            return false;
        }
        at = end;
    }
    at == bytes.len()
}

/// `strconv.FormatFloat(value, 'g', -1, 64)` with go-yaml's names for infinity and not-a-number.
pub fn format_float_g(value: f64) -> String {
    shortest_g(value, &format!("{value:e}"))
}

/// The same with 32 bits: sigs.k8s.io/yaml writes float keys so.
pub fn format_float_g32(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "Go rounds to 32 bits here, too")]
    let narrow = value as f32;
    shortest_g(f64::from(narrow), &format!("{narrow:e}"))
}

fn shortest_g(value: f64, scientific: &str) -> String {
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    general(scientific, 6)
}

/// How encoding/json prints a float; `None` for the values JSON does not have.
pub fn json_float(value: f64) -> Option<String> {
    if !value.is_finite() {
        return None;
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = split_exponent(&scientific);
    let magnitude = value.abs();
    Some(if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        // Two digits for a positive exponent, one is enough for a negative one: e+06, e-7.
        with_exponent(mantissa, exponent, if exponent < 0 { 1 } else { 2 })
    } else {
        plain_decimal(mantissa, exponent)
    })
}

/// Rust's `1.25e-7` as its mantissa and exponent.
fn split_exponent(scientific: &str) -> (&str, i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    (mantissa, exponent.parse().unwrap_or(0))
}

fn with_exponent(mantissa: &str, exponent: i32, digits: usize) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:0digits$}", exponent.unsigned_abs())
}

/// What fmt's `%v` makes of a number.
pub fn format_float_v(value: f64) -> String {
    if value.is_finite() { general(&format!("{value:e}"), 21) } else { go_infinite(value).to_owned() }
}

/// Go's `%g`: an exponent below -4 and from `limit` on.
fn general(scientific: &str, limit: i32) -> String {
    let (mantissa, exponent) = split_exponent(scientific);
    if (-4..limit).contains(&exponent) {
        plain_decimal(mantissa, exponent)
    } else {
        with_exponent(mantissa, exponent, 2)
    }
}

fn plain_decimal(mantissa: &str, exponent: i32) -> String {
    let (sign, digits) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = digits.chars().filter(|c| *c != '.').collect();
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    }
    let whole = exponent.unsigned_abs() as usize + 1;
    if digits.len() <= whole {
        return format!("{sign}{digits}{}", "0".repeat(whole - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_the_prefixes_of_go() {
        assert_eq!(parse_int("0x1F"), Some(31));
        assert_eq!(parse_int("017"), Some(15));
        assert_eq!(parse_int("-0b11"), Some(-3));
        assert_eq!(parse_int("0"), Some(0));
        assert_eq!(parse_int("08"), None);
        assert_eq!(parse_int("--1"), None);
        assert_eq!(parse_int("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_int("9223372036854775808"), None);
        assert_eq!(parse_uint("18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_int_radix("-11", 2), Some(-3));
    }

    #[test]
    fn floats_print_as_go_prints_them() {
        let g = |value: f64, expected: &str| assert_eq!(format_float_g(value), expected);
        g(1e21, "1e+21");
        g(1_000_000.5, "1.0000005e+06");
        g(123_456.7, "123456.7");
        g(0.0001, "0.0001");
        g(0.000_01, "1e-05");
        g(-0.5, "-0.5");
        g(f64::NEG_INFINITY, "-.inf");
        let v = |value: f64, expected: &str| assert_eq!(format_float_v(value), expected);
        v(1.0, "1");
        v(1e20, "100000000000000000000");
        v(1e21, "1e+21");
        v(1e-5, "1e-05");
        v(f64::NAN, "NaN");
        assert_eq!(json_float(1e21).as_deref(), Some("1e+21"));
        assert_eq!(json_float(1e-7).as_deref(), Some("1e-7"));
        assert_eq!(json_float(1e20).as_deref(), Some("100000000000000000000"));
        assert_eq!(json_float(-0.0).as_deref(), Some("-0"));
        assert_eq!(format_float_g32(0.1), "0.1");
    }
}
