//! Floating-point numbers as Go reads and writes them.

use super::number::{NumberError, underscores_ok};

/// `strconv.FormatFloat` of a float64; a negative precision means the fewest digits that read back the same.
pub fn format_float(value: f64, verb: u8, precision: i32) -> String {
    let mut out = Vec::new();
    append_float(&mut out, value, verb, precision);
    String::from_utf8(out).expect("numbers are ASCII")
}

/// `strconv.AppendFloat`
pub fn append_float(out: &mut Vec<u8>, value: f64, verb: u8, precision: i32) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
        return;
    }
    match verb {
        b'b' => binary(out, value),
        b'x' | b'X' => hexadecimal(out, value, verb, precision),
        _ => decimal(out, value, verb, precision),
    }
}

/// No float64 has more decimals than this that are not zero; Rust formats no more than 65,535.
const MAX_DIGITS: usize = 1_100;

/// Significant digits without trailing zeros of meaning, and where the point stands: 0.d1d2… × 10^point.
struct Digits {
    digits: Vec<u8>,
    point: i32,
}

fn decimal(out: &mut Vec<u8>, value: f64, verb: u8, precision: i32) {
    let negative = value.is_sign_negative();
    let magnitude = value.abs();
    let shortest = precision < 0;
    if negative {
        out.push(b'-');
    }
    match verb {
        b'e' | b'E' => {
            let digits =
                if shortest { scientific(magnitude, None) } else { scientific(magnitude, Some(precision)) };
            let precision = if shortest { digits.digits.len() as i32 - 1 } else { precision };
            exponent_form(out, &digits, precision, verb);
        }
        b'f' => {
            if shortest {
                let digits = scientific(magnitude, None);
                let precision = (digits.digits.len() as i32 - digits.point).max(0);
                fixed_form(out, &digits, precision);
            } else {
                use std::io::Write;
                let exact = (precision as usize).min(MAX_DIGITS);
                write!(out, "{magnitude:.exact$}").expect("writing to memory");
                out.resize(out.len() + (precision as usize - exact), b'0');
            }
        }
        b'g' | b'G' => {
            let wanted = if precision == 0 { 1 } else { precision };
            let digits =
                if shortest { scientific(magnitude, None) } else { scientific(magnitude, Some(wanted - 1)) };
            let digits = if shortest { digits } else { trimmed(digits) };
            let count = digits.digits.len() as i32;
            let mut threshold = if shortest { 6 } else { wanted };
            if !shortest && threshold > count && count >= digits.point {
                threshold = count;
            }
            let exponent = digits.point - 1;
            if exponent < -4 || exponent >= threshold {
                let precision = if shortest || wanted > count { count } else { wanted };
                exponent_form(out, &digits, precision - 1, verb + b'e' - b'g');
            } else {
                let precision = (count - digits.point).max(0);
                fixed_form(out, &digits, precision);
            }
        }
        _ => out.extend_from_slice(&[b'%', verb]),
    }
}

fn scientific(magnitude: f64, precision: Option<i32>) -> Digits {
    let text = match precision {
        None => format!("{magnitude:e}"),
        Some(precision) => format!("{magnitude:.0$e}", (precision.max(0) as usize).min(MAX_DIGITS)),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut digits: Vec<u8> = mantissa.bytes().filter(|&b| b != b'.').collect();
    if precision.is_none() {
        to_even(&mut digits, exponent, magnitude);
    }
    if magnitude == 0.0 {
        // Go has no digits for zero and the point at 0; one digit "0" prints the same.
        return Digits { digits: if precision.is_none() { vec![b'0'] } else { digits }, point: 1 };
    }
    Digits { digits, point: exponent + 1 }
}

/// Where two shortest forms are equally near, Rust takes the larger and Go the even one.
fn to_even(digits: &mut [u8], exponent: i32, magnitude: f64) {
    let count = digits.len();
    let Some(last) = digits.last_mut().filter(|last| **last % 2 == 1) else { return };
    // Halves are rare: only then is the next digit a 5 with nothing but zeros after it.
    let longer = format!("{magnitude:.40e}");
    let mut after = longer.bytes().filter(u8::is_ascii_digit).skip(count - 1);
    let is_half = after.next() == Some(*last - 1) && after.next() == Some(b'5');
    if !is_half || !after.take(41 - count - 1).all(|digit| digit == b'0') {
        return;
    }
    *last -= 1;
    // Below a power of two the neighbours are closer, and the even form may no longer read back.
    let text = format!("{}e{}", String::from_utf8_lossy(digits), exponent + 1 - count as i32);
    if text.parse() != Ok(magnitude)
        && let Some(last) = digits.last_mut()
    {
        *last += 1;
    }
}

/// `%g` counts only digits up to the last that is not zero.
fn trimmed(mut digits: Digits) -> Digits {
    while digits.digits.len() > 1 && digits.digits.last() == Some(&b'0') {
        digits.digits.pop();
    }
    digits
}

fn exponent_form(out: &mut Vec<u8>, digits: &Digits, precision: i32, letter: u8) {
    let digit = |at: usize| digits.digits.get(at).copied().unwrap_or(b'0');
    out.push(digit(0));
    if precision > 0 {
        out.push(b'.');
        out.extend((1..=precision as usize).map(digit));
    }
    out.push(letter);
    let exponent = if digits.digits.iter().all(|&d| d == b'0') { 0 } else { digits.point - 1 };
    out.push(if exponent < 0 { b'-' } else { b'+' });
    let exponent = exponent.unsigned_abs();
    if exponent < 10 {
        out.push(b'0');
    }
    out.extend_from_slice(exponent.to_string().as_bytes());
}

fn fixed_form(out: &mut Vec<u8>, digits: &Digits, precision: i32) {
    let digit = |at: i32| match usize::try_from(at) {
        Ok(at) => digits.digits.get(at).copied().unwrap_or(b'0'),
        Err(_) => b'0',
    };
    if digits.point > 0 {
        out.extend((0..digits.point).map(digit));
    } else {
        out.push(b'0');
    }
    if precision > 0 {
        out.push(b'.');
        out.extend((0..precision).map(|at| digit(digits.point + at)));
    }
}

/// Mantissa and exponent such that the value is mantissa × 2^(exponent - 52).
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    let mantissa = bits & ((1 << 52) - 1);
    match exponent {
        0 => (mantissa, -1022),
        _ => (mantissa | 1 << 52, exponent - 1023),
    }
}

fn binary(out: &mut Vec<u8>, value: f64) {
    let (mantissa, exponent) = parts(value);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let exponent = exponent - 52;
    let plus = if exponent >= 0 { "+" } else { "" };
    out.extend_from_slice(format!("{sign}{mantissa}p{plus}{exponent}").as_bytes());
}

fn hexadecimal(out: &mut Vec<u8>, value: f64, verb: u8, precision: i32) {
    let (mut mantissa, mut exponent) = parts(value);
    if mantissa == 0 {
        exponent = 0;
    }
    // One digit before the point, 60 bits after it.
    mantissa <<= 60 - 52;
    while mantissa != 0 && mantissa & (1 << 60) == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    if (0..15).contains(&precision) {
        let shift = precision as u32 * 4;
        let extra = (mantissa << shift) & ((1 << 60) - 1);
        mantissa >>= 60 - shift;
        if extra | (mantissa & 1) > 1 << 59 {
            mantissa += 1;
        }
        mantissa <<= 60 - shift;
        if mantissa & (1 << 61) != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let upper = verb == b'X';
    if value.is_sign_negative() {
        out.push(b'-');
    }
    out.extend_from_slice(&[b'0', verb, b'0' + ((mantissa >> 60) & 1) as u8]);
    mantissa <<= 4;
    let mut digits = String::new();
    if precision < 0 {
        while mantissa != 0 {
            digits.push_str(&format!("{:x}", (mantissa >> 60) & 15));
            mantissa <<= 4;
        }
    } else {
        for _ in 0..precision {
            digits.push_str(&format!("{:x}", (mantissa >> 60) & 15));
            mantissa <<= 4;
        }
    }
    if !digits.is_empty() {
        out.push(b'.');
        let digits = if upper { digits.to_uppercase() } else { digits };
        out.extend_from_slice(digits.as_bytes());
    }
    let letter = if upper { 'P' } else { 'p' };
    let sign = if exponent < 0 { '-' } else { '+' };
    out.extend_from_slice(format!("{letter}{sign}{:02}", exponent.abs()).as_bytes());
}

/// `strconv.ParseFloat` with 64 bits.
pub fn parse_float(text: &[u8]) -> Result<f64, NumberError> {
    let text = std::str::from_utf8(text).map_err(|_| NumberError::Syntax)?;
    let (sign, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let lower = unsigned.to_ascii_lowercase();
    match lower.as_str() {
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    if let Some(hex) = lower.strip_prefix("0x") {
        let hex = hex.replace('_', "");
        if lower.contains('_') && !underscores_ok(text.as_bytes()) {
            return Err(NumberError::Syntax);
        }
        return parse_hex(&hex).map(|value| sign * value);
    }
    if lower.contains('_') && !underscores_ok(text.as_bytes()) {
        return Err(NumberError::Syntax);
    }
    let lower = lower.replace('_', "");
    let plain = lower.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'+' | b'-'));
    if !plain || lower.is_empty() || lower == "." || lower.starts_with('e') || lower.starts_with(".e") {
        return Err(NumberError::Syntax);
    }
    if lower.starts_with(['+', '-']) || lower.ends_with(['e', '+', '-']) {
        return Err(NumberError::Syntax);
    }
    let value: f64 = lower.parse().map_err(|_| NumberError::Syntax)?;
    if value.is_infinite() { Err(NumberError::Range) } else { Ok(sign * value) }
}

/// A hexadecimal float without `0x`: digits, an optional point, and a `p` exponent.
fn parse_hex(text: &str) -> Result<f64, NumberError> {
    let (mantissa, exponent) = text.split_once('p').ok_or(NumberError::Syntax)?;
    let exponent: i64 = match exponent.strip_prefix('+').unwrap_or(exponent) {
        digits
            if !digits.is_empty() && digits.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) =>
        {
            digits.parse().unwrap_or(if digits.starts_with('-') { -100_000 } else { 100_000 })
        }
        _ => return Err(NumberError::Syntax),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(NumberError::Syntax);
    }
    let mut value: u64 = 0;
    let mut shift: i64 = 0;
    let mut sticky = false;
    for (digit, after_point) in whole.chars().map(|c| (c, false)).chain(fraction.chars().map(|c| (c, true))) {
        let digit = digit.to_digit(16).ok_or(NumberError::Syntax)?;
        if value >> 58 == 0 {
            value = value << 4 | u64::from(digit);
            shift -= if after_point { 4 } else { 0 };
        } else {
            sticky |= digit != 0;
            shift += if after_point { 0 } else { 4 };
        }
    }
    let value = (value | u64::from(sticky)) as f64;
    let exponent = exponent.clamp(-100_000, 100_000) + shift.clamp(-100_000, 100_000);
    let result = scale(value, exponent as i32);
    if result.is_infinite() { Err(NumberError::Range) } else { Ok(result) }
}

fn scale(mut value: f64, mut exponent: i32) -> f64 {
    while exponent > 1000 && value.is_finite() && value != 0.0 {
        value *= 2f64.powi(1000);
        exponent -= 1000;
    }
    while exponent < -1000 && value != 0.0 {
        value *= 2f64.powi(-1000);
        exponent += 1000;
    }
    value * 2f64.powi(exponent.clamp(-1000, 1000))
}
