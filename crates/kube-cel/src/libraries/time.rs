//! Timestamps and durations.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use crate::EvalError;
use crate::eval::Answer;
use crate::value::Value;

pub(super) fn call<'a>(name: &str, is_method: bool, values: &[Value<'a>]) -> Option<Answer<'a>> {
    if !is_method || !name.starts_with("get") {
        return None;
    }
    match values {
        [Value::Duration(nanos)] => {
            let per = match name {
                "getHours" => 3_600_000_000_000,
                "getMinutes" => 60_000_000_000,
                "getSeconds" => 1_000_000_000,
                "getMilliseconds" => 1_000_000,
                _ => return None,
            };
            Some(Ok(Value::Int(nanos / per)))
        }
        [Value::Timestamp(time)] => part(name, time.to_zoned(TimeZone::UTC).datetime()).map(Ok),
        [Value::Timestamp(time), Value::String(zone)] => Some(match offset(zone.as_str()) {
            Some(offset) => part(name, offset.to_datetime(*time)).ok_or(EvalError::NoSuchOverload),
            None => Err(EvalError::message(format!("unknown time zone {}", zone.as_str()))),
        }),
        _ => None,
    }
}

/// Months, days of the month (but not the date), days of the week and of the year count from zero.
fn part<'a>(name: &str, time: DateTime) -> Option<Value<'a>> {
    Some(Value::Int(match name {
        "getFullYear" => time.year().into(),
        "getMonth" => i64::from(time.month()) - 1,
        "getDate" => time.day().into(),
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDayOfWeek" => time.weekday().to_sunday_zero_offset().into(),
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getHours" => time.hour().into(),
        "getMinutes" => time.minute().into(),
        "getSeconds" => time.second().into(),
        "getMilliseconds" => time.millisecond().into(),
        _ => return None,
    }))
}

fn offset(zone: &str) -> Option<Offset> {
    if matches!(zone, "UTC" | "Z" | "") {
        return Some(Offset::UTC);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

pub(super) fn parse_timestamp(text: &str) -> Result<Timestamp, EvalError> {
    let wrong = || {
        EvalError::message(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse"))
    };
    // RFC 3339 only: jiff alone would take more.
    let strict = text.len() >= 20
        && text.as_bytes()[10] == b'T'
        && (text.ends_with('Z') || text[19..].contains(['+', '-']));
    if !strict || !text.is_ascii() {
        return Err(wrong());
    }
    text.parse().map_err(|_| wrong())
}

pub(crate) fn is_timestamp(text: &str) -> bool {
    parse_timestamp(text).is_ok()
}

pub(crate) fn is_duration(text: &str) -> bool {
    parse_duration(text).is_some()
}

/// Go's format: `1h30m`, `1.5s`, `300ms`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1i128, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0i128;
    while !rest.is_empty() {
        let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|next: char| next.is_ascii_digit() || next == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let digits = &fraction[..fraction.len().min(18)];
        let part: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        total += whole.checked_mul(scale)? + part * scale / 10i128.pow(digits.len() as u32);
        rest = tail;
    }
    i64::try_from(sign * total).ok()
}

/// `duration` as text: seconds, as protobuf writes it.
pub(crate) fn duration_text(nanos: i64) -> String {
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}
