//! Values as text and numbers, as sprig's `strval` and spf13/cast convert them.

use std::borrow::Cow;

use crate::fmt;
use crate::strconv;
use crate::time::CalendarName;
use crate::value::Value;

/// sprig's `strval`: strings and bytes as they are, everything else as `%v` shows it.
pub fn strval(value: &Value) -> Cow<'_, [u8]> {
    match value {
        Value::String(text) => Cow::Borrowed(text.as_bytes()),
        Value::Bytes(bytes) => Cow::Borrowed(bytes),
        other => Cow::Owned(fmt::show(other).into_bytes()),
    }
}

/// `cast.ToInt64`: 0 for what is no number.
pub fn to_int64(value: &Value) -> i64 {
    match value {
        Value::Bool(value) => i64::from(*value),
        Value::Float64(value) => float_to_int(*value),
        Value::String(text) => strconv::parse_int(without_zero_decimals(text.as_bytes()), 0).unwrap_or(0),
        Value::Duration(_) => 0,
        Value::Object(_) => value.downcast::<CalendarName>().map_or(0, |name| name.number),
        other => other.as_int().or_else(|| other.as_uint().map(|uint| uint as i64)).unwrap_or(0),
    }
}

/// `cast.ToFloat64`: 0 for what is no number.
pub fn to_float64(value: &Value) -> f64 {
    match value {
        Value::Bool(value) => f64::from(u8::from(*value)),
        Value::Float64(value) => *value,
        Value::String(text) => strconv::parse_float(text.as_bytes()).unwrap_or(0.0),
        Value::Uint64(value) => *value as f64,
        other => to_int64(other) as f64,
    }
}

/// Go's conversion on amd64: what does not fit becomes the smallest integer.
pub fn float_to_int(value: f64) -> i64 {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
    if fits { value as i64 } else { i64::MIN }
}

/// `12.00` is an integer to cast.
fn without_zero_decimals(text: &[u8]) -> &[u8] {
    let zeros = text.iter().rev().take_while(|&&byte| byte == b'0').count();
    let rest = &text[..text.len() - zeros];
    match rest.split_last() {
        Some((b'.', whole)) if zeros > 0 => whole,
        _ => text,
    }
}
