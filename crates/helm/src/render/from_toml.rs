//! `fromToml`. The texts of errors resemble BurntSushi/toml's: line, last key, cause.

use std::rc::Rc;

use gotemplate::{Time, Value, Zone};
use jiff::tz::TimeZone;
use toml::value::Datetime;

pub(super) fn read(text: &str) -> Result<Value, String> {
    let table: toml::Table = text.parse().map_err(|error| explain(text, &error))?;
    Ok(Value::map(table.iter().map(|(key, value)| (key.as_str(), from(value)))))
}

fn from(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(whole) => Value::Int64(*whole),
        toml::Value::Float(float) => Value::Float64(*float),
        toml::Value::Boolean(value) => Value::Bool(*value),
        toml::Value::Datetime(datetime) => time(datetime),
        // A list of tables has a type of its own in Go.
        toml::Value::Array(items) => Value::list(items.iter().map(from).collect()),
        toml::Value::Table(table) => Value::map(table.iter().map(|(key, value)| (key.as_str(), from(value)))),
    }
}

fn time(datetime: &Datetime) -> Value {
    let text = datetime.to_string();
    let offset = match datetime.offset {
        Some(toml::value::Offset::Custom { minutes }) => i32::from(minutes) * 60,
        Some(toml::value::Offset::Z) | None => 0,
    };
    let zone = match jiff::tz::Offset::from_seconds(offset) {
        Ok(offset) if offset.seconds() != 0 => TimeZone::fixed(offset),
        _ => TimeZone::UTC,
    };
    let civil = match (datetime.date, datetime.time) {
        (Some(_), Some(_)) => text.split(['Z', '+']).next().map(|t| t.replace(' ', "T")),
        (Some(_), None) => Some(format!("{text}T00:00:00")),
        (None, _) => Some(format!("0000-01-01T{text}")),
    };
    let parsed = civil.as_deref().map(without_offset).and_then(|t| t.parse::<jiff::civil::DateTime>().ok());
    match parsed.and_then(|civil| civil.to_zoned(zone.clone()).ok()) {
        Some(zoned) => {
            let zone = if offset == 0 { Zone::Utc } else { Zone::Fixed(String::new(), offset) };
            Value::Time(Rc::new(Time { at: zoned.timestamp(), zone }))
        }
        None => Value::from(text),
    }
}

/// Cuts a negative offset off: the dashes of the date come before the `T`.
fn without_offset(text: &str) -> &str {
    match text.find('T').and_then(|t| text[t..].find('-').map(|at| t + at)) {
        Some(at) => &text[..at],
        None => text,
    }
}

fn explain(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(text.len(), |span| span.start).min(text.len());
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let key = before
        .rsplit('\n')
        .next()
        .and_then(|l| l.split_once('='))
        .map(|(key, _)| key.trim().trim_matches('"'));
    let place = key
        .filter(|k| !k.is_empty())
        .map(|k| format!(" (last key {})", crate::quote::go_quote(k)))
        .unwrap_or_default();
    let cause = if text.get(at..).is_none_or(|rest| rest.trim().is_empty()) && key.is_some() {
        "unexpected EOF; expected value".to_owned()
    } else {
        error.message().replace('\n', "; ")
    };
    format!("toml: line {line}{place}: {cause}")
}
