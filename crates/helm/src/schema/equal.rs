//! Equality and arithmetic of JSON numbers by their decimal value, as rational numbers would have it.

use serde_json::{Number, Value as Json};

/// Whether two values are the same; `1` and `1.0` are.
pub(super) fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => compare(a, b).is_eq(),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| equal(value, other)))
        }
        (a, b) => a == b,
    }
}

pub(super) fn compare(a: &Number, b: &Number) -> std::cmp::Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
    }
}

pub(super) fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|f| f.fract() == 0.0)
}

/// Whether `number` is a whole multiple of `of`, counted in decimal digits: 0.3 is three times 0.1.
pub(super) fn is_multiple(number: &Number, of: &Number) -> bool {
    let (Some(a), Some(b)) = (decimal(number), decimal(of)) else {
        return (number.as_f64().unwrap_or_default() / of.as_f64().unwrap_or(1.0)).fract() == 0.0;
    };
    let scale = a.1.min(b.1);
    match (shift(a.0, a.1 - scale), shift(b.0, b.1 - scale)) {
        (Some(a), Some(b)) if b != 0 => a % b == 0,
        _ => (number.as_f64().unwrap_or_default() / of.as_f64().unwrap_or(1.0)).fract() == 0.0,
    }
}

/// Digits and a power of ten.
fn decimal(number: &Number) -> Option<(i128, i32)> {
    if let Some(whole) = number.as_i64() {
        return Some((i128::from(whole), 0));
    }
    let text = format!("{:e}", number.as_f64()?);
    let (mantissa, exponent) = text.split_once('e')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, exponent.parse::<i32>().ok()? - i32::try_from(fraction.len()).ok()?))
}

fn shift(digits: i128, by: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(by).ok()?)?.checked_mul(digits)
}
