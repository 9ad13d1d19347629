//! Text: the standard functions, the extended ones, and regular expressions. Positions count characters.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

use crate::eval::{Answer, Run};
use crate::value::{Key, List, Text, Value};
use crate::{EvalError, Libraries};

/// Compiled patterns kept for the next run.
const MAX_PATTERNS: usize = 256;

pub(super) fn call<'a>(
    run: &mut Run<'a, '_>,
    name: &str,
    is_method: bool,
    values: &[Value<'a>],
) -> Option<Answer<'a>> {
    let text = |text: &Text<'_>| text.as_str().to_owned();
    Some(match (name, is_method, values) {
        ("size", _, [Value::String(text)]) => Ok(Value::Int(text.as_str().chars().count() as i64)),
        ("size", _, [Value::Bytes(bytes)]) => Ok(Value::Int(bytes.len() as i64)),
        ("contains", true, [Value::String(all), Value::String(part)]) => {
            Ok(Value::Bool(all.as_str().contains(part.as_str())))
        }
        ("startsWith", true, [Value::String(all), Value::String(part)]) => {
            Ok(Value::Bool(all.as_str().starts_with(part.as_str())))
        }
        ("endsWith", true, [Value::String(all), Value::String(part)]) => {
            Ok(Value::Bool(all.as_str().ends_with(part.as_str())))
        }
        ("matches", _, [Value::String(all), Value::String(regex)]) => {
            pattern(regex.as_str()).map(|regex| Value::Bool(regex.is_match(all.as_str())))
        }
        ("find", true, [Value::String(all), Value::String(regex)]) => pattern(regex.as_str())
            .map(|regex| Value::text(regex.find(all.as_str()).map_or("", |found| found.as_str()))),
        ("findAll", true, [Value::String(all), Value::String(regex)]) => {
            find_all(all.as_str(), regex.as_str(), -1)
        }
        ("findAll", true, [Value::String(all), Value::String(regex), Value::Int(count)]) => {
            find_all(all.as_str(), regex.as_str(), *count)
        }
        ("strings.quote", false, [Value::String(value)]) => Ok(Value::text(quote(value.as_str()))),
        ("lowerAscii", true, [Value::String(value)]) => Ok(Value::text(value.as_str().to_ascii_lowercase())),
        ("upperAscii", true, [Value::String(value)]) => Ok(Value::text(value.as_str().to_ascii_uppercase())),
        ("trim", true, [Value::String(value)]) => Ok(Value::text(value.as_str().trim())),
        ("charAt", true, [Value::String(value), Value::Int(index)]) => char_at(value.as_str(), *index),
        ("indexOf", true, [Value::String(all), Value::String(part)]) => {
            index_of(all.as_str(), part.as_str(), 0)
        }
        ("indexOf", true, [Value::String(all), Value::String(part), Value::Int(start)]) => {
            index_of(all.as_str(), part.as_str(), *start)
        }
        ("lastIndexOf", true, [Value::String(all), Value::String(part)]) => {
            last_index_of(all.as_str(), part.as_str(), i64::MAX)
        }
        ("lastIndexOf", true, [Value::String(all), Value::String(part), Value::Int(end)]) => {
            last_index_of(all.as_str(), part.as_str(), *end)
        }
        ("replace", true, [Value::String(all), Value::String(from), Value::String(to)]) => {
            replace(run, all.as_str(), from.as_str(), to.as_str(), -1)
        }
        (
            "replace",
            true,
            [Value::String(all), Value::String(from), Value::String(to), Value::Int(count)],
        ) => replace(run, all.as_str(), from.as_str(), to.as_str(), *count),
        ("split", true, [Value::String(all), Value::String(by)]) => Ok(split(all.as_str(), by.as_str(), -1)),
        ("split", true, [Value::String(all), Value::String(by), Value::Int(count)]) => {
            Ok(split(all.as_str(), by.as_str(), *count))
        }
        ("substring", true, [Value::String(all), Value::Int(start)]) => {
            substring(all.as_str(), *start, all.as_str().chars().count() as i64)
        }
        ("substring", true, [Value::String(all), Value::Int(start), Value::Int(end)]) => {
            substring(all.as_str(), *start, *end)
        }
        ("join", true, [Value::List(list)]) => join(run, list, ""),
        ("join", true, [Value::List(list), Value::String(by)]) => join(run, list, &text(by)),
        ("format", true, [Value::String(format), Value::List(args)]) => {
            format_text(format.as_str(), args, run.libraries)
        }
        ("reverse", true, [Value::String(value)]) if run.libraries == Libraries::Extended => {
            Ok(Value::text(value.as_str().chars().rev().collect::<String>()))
        }
        _ => return None,
    })
}

fn pattern(text: &str) -> Result<Regex, EvalError> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = known.get(text) {
        return Ok(regex.clone());
    }
    let regex = RegexBuilder::new(text)
        .size_limit(1 << 20)
        .build()
        .map_err(|_| EvalError::message(format!("error parsing regexp: {text}")))?;
    if known.len() >= MAX_PATTERNS {
        known.clear();
    }
    known.insert(text.to_owned(), regex.clone());
    Ok(regex)
}

pub(crate) fn is_pattern(text: &str) -> bool {
    pattern(text).is_ok()
}

fn find_all<'a>(all: &str, regex: &str, count: i64) -> Answer<'a> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let regex = pattern(regex)?;
    Ok(Value::list(regex.find_iter(all).take(count).map(|found| Value::text(found.as_str())).collect()))
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::message(format!("index out of range: {index}"))
}

fn char_at<'a>(text: &str, index: i64) -> Answer<'a> {
    let count = text.chars().count() as i64;
    if index < 0 || index > count {
        return Err(out_of_range(index));
    }
    let found = text.chars().nth(index as usize);
    Ok(Value::text(found.map(String::from).unwrap_or_default()))
}

fn index_of<'a>(all: &str, part: &str, start: i64) -> Answer<'a> {
    let count = all.chars().count() as i64;
    if part.is_empty() {
        return Ok(Value::Int(start.clamp(0, count)));
    }
    if start < 0 {
        return Err(out_of_range(start));
    }
    if start >= count {
        return Ok(Value::Int(-1));
    }
    let skipped = byte_at(all, start);
    let found = all[skipped..].find(part).map(|at| all[..skipped + at].chars().count() as i64);
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn last_index_of<'a>(all: &str, part: &str, end: i64) -> Answer<'a> {
    let count = all.chars().count() as i64;
    if part.is_empty() {
        return Ok(Value::Int(end.clamp(0, count)));
    }
    if end < 0 || end != i64::MAX && end >= count {
        return Err(out_of_range(end));
    }
    // The part may begin at `end` at the latest.
    let limit = byte_at(all, end.min(count)).saturating_add(part.len()).min(all.len());
    let limit = (limit..=all.len()).find(|at| all.is_char_boundary(*at)).unwrap_or(all.len());
    let found = all[..limit].rfind(part).map(|at| all[..at].chars().count() as i64);
    Ok(Value::Int(found.unwrap_or(-1)))
}

/// Where the character of this number begins.
fn byte_at(text: &str, index: i64) -> usize {
    text.char_indices().nth(index.max(0) as usize).map_or(text.len(), |(at, _)| at)
}

fn replace<'a>(run: &mut Run<'a, '_>, all: &str, from: &str, to: &str, count: i64) -> Answer<'a> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let hits = all.matches(from).take(count).count();
    run.pay((hits as u64).saturating_mul(to.len() as u64) / 10)?;
    Ok(Value::text(all.replacen(from, to, count)))
}

fn split<'a>(all: &str, by: &str, count: i64) -> Value<'a> {
    let parts: Vec<&str> = match usize::try_from(count) {
        Ok(0) => Vec::new(),
        _ if by.is_empty() => all.split("").filter(|part| !part.is_empty()).collect(),
        Ok(count) => all.splitn(count, by).collect(),
        Err(_) => all.split(by).collect(),
    };
    Value::list(parts.into_iter().map(Value::text).collect())
}

fn substring<'a>(all: &str, start: i64, end: i64) -> Answer<'a> {
    let count = all.chars().count() as i64;
    if start < 0 || start > count {
        return Err(out_of_range(start));
    }
    if end < 0 || end > count {
        return Err(out_of_range(end));
    }
    if start > end {
        return Err(EvalError::message(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(Value::text(&all[byte_at(all, start)..byte_at(all, end)]))
}

fn join<'a>(run: &mut Run<'a, '_>, list: &List<'a>, by: &str) -> Answer<'a> {
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        let Value::String(item) = item else { return Err(EvalError::NoSuchOverload) };
        if index > 0 {
            out.push_str(by);
        }
        out.push_str(item.as_str());
    }
    run.pay(out.len() as u64 / 10)?;
    Ok(Value::text(out))
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Go's shortest form, which both `string()` and `%s` use.
pub(super) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let exponent = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if (-4..21).contains(&exponent) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// A piece of a format: text, or a clause.
enum Piece<'a> {
    Text(&'a str),
    Clause { verb: char, precision: usize },
}

fn pieces(format: &str) -> Result<Vec<Piece<'_>>, String> {
    const MAX_PRECISION: usize = 100;
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push(Piece::Text(&rest[..at]));
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push(Piece::Text("%"));
            rest = after;
            continue;
        }
        let mut precision = 6;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|next: char| !next.is_ascii_digit()).unwrap_or(after.len());
            precision = after[..end].parse().unwrap_or(MAX_PRECISION + 1);
            rest = &after[end..];
            if precision > MAX_PRECISION {
                return Err("error while parsing precision: too large".to_owned());
            }
        }
        let verb =
            rest.chars().next().ok_or("could not parse formatting clause: unexpected end of string")?;
        if !"sdfebxXo".contains(verb) {
            return Err(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            ));
        }
        rest = &rest[verb.len_utf8()..];
        out.push(Piece::Clause { verb, precision });
    }
    out.push(Piece::Text(rest));
    Ok(out)
}

/// Compares a format with the arguments whose kind is known before running. The number says which argument is wrong, none
/// that the call is.
pub(crate) fn check_format(
    format: &str,
    args: &[Option<&'static str>],
) -> Result<(), (Option<usize>, String)> {
    let verbs: Vec<char> = pieces(format)
        .map_err(|message| (None, message))?
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Clause { verb, .. } => Some(verb),
            Piece::Text(_) => None,
        })
        .collect();
    for (index, verb) in verbs.iter().enumerate() {
        match (verb, args.get(index)) {
            (_, None) => return Err((None, format!("index {index} out of range"))),
            ('d', Some(Some(kind))) => {
                let message = format!(
                    "error during formatting: decimal clause can only be used on integers, was given {kind}"
                );
                return Err((Some(index), message));
            }
            _ => {}
        }
    }
    if args.len() > verbs.len() {
        let (wanted, got) = (verbs.len(), args.len());
        return Err((
            None,
            format!("too many arguments supplied to string.format (expected {wanted}, got {got})"),
        ));
    }
    Ok(())
}

fn format_text<'a>(format: &str, args: &List<'a>, libraries: Libraries) -> Answer<'a> {
    let (mut out, mut next) = (String::new(), 0);
    for piece in pieces(format).map_err(EvalError::message)? {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Clause { verb, precision } => {
                let value =
                    args.get(next).ok_or_else(|| EvalError::message(format!("index {next} out of range")))?;
                next += 1;
                out.push_str(&formatted(verb, precision, &value, libraries)?);
            }
        }
    }
    if next < args.len() {
        let message =
            format!("too many arguments supplied to string.format (expected {next}, got {})", args.len());
        return Err(EvalError::message(message));
    }
    Ok(Value::text(out))
}

fn formatted(
    verb: char,
    precision: usize,
    value: &Value<'_>,
    libraries: Libraries,
) -> Result<String, EvalError> {
    let wrong = || {
        EvalError::message(format!(
            "error during formatting: clause %{verb} does not take a value of type {}",
            value.type_name()
        ))
    };
    match (verb, value) {
        ('s', value) => Ok(shown(value)),
        ('d', Value::Int(value)) => Ok(value.to_string()),
        ('d', Value::Uint(value)) => Ok(value.to_string()),
        ('d', Value::Double(value)) if value.is_nan() || value.is_infinite() => Ok(double_text(*value)),
        ('f', Value::Double(value)) => Ok(format!("{value:.precision$}")),
        ('f', Value::Int(value)) => Ok(format!("{:.precision$}", *value as f64)),
        ('f', Value::Uint(value)) => Ok(format!("{:.precision$}", *value as f64)),
        ('e', Value::Double(value)) => Ok(exponent(*value, precision, libraries)),
        ('e', Value::Int(value)) => Ok(exponent(*value as f64, precision, libraries)),
        ('b', Value::Int(value)) => Ok(signed(*value, |value| format!("{value:b}"))),
        ('b', Value::Uint(value)) => Ok(format!("{value:b}")),
        ('b', Value::Bool(value)) => Ok(u8::from(*value).to_string()),
        ('o', Value::Int(value)) => Ok(signed(*value, |value| format!("{value:o}"))),
        ('o', Value::Uint(value)) => Ok(format!("{value:o}")),
        ('x', Value::Int(value)) => Ok(signed(*value, |value| format!("{value:x}"))),
        ('x', Value::Uint(value)) => Ok(format!("{value:x}")),
        ('X', Value::Int(value)) => Ok(signed(*value, |value| format!("{value:X}"))),
        ('X', Value::Uint(value)) => Ok(format!("{value:X}")),
        ('x', Value::String(text)) => Ok(text.as_str().bytes().map(|byte| format!("{byte:02x}")).collect()),
        ('X', Value::String(text)) => Ok(text.as_str().bytes().map(|byte| format!("{byte:02X}")).collect()),
        ('x', Value::Bytes(bytes)) => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        ('X', Value::Bytes(bytes)) => Ok(bytes.iter().map(|byte| format!("{byte:02X}")).collect()),
        ('d' | 'f' | 'e' | 'b' | 'o' | 'x' | 'X', _) => Err(wrong()),
        (other, _) => Err(EvalError::message(format!(
            "could not parse formatting clause: unrecognized formatting clause {other:?}"
        ))),
    }
}

fn signed(value: i64, write: impl Fn(u64) -> String) -> String {
    format!("{}{}", if value < 0 { "-" } else { "" }, write(value.unsigned_abs()))
}

fn exponent(value: f64, precision: usize, libraries: Libraries) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if libraries == Libraries::Extended {
        return format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    // Version 2 of the library, which Kubernetes uses, writes powers of ten.
    let raised = |digit: char| match digit {
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        other => char::from_u32(u32::from('⁰') + (u32::from(other) - u32::from('0'))).unwrap_or(other),
    };
    let power: String = format!("{:02}", exponent.abs()).chars().map(raised).collect();
    format!("{digits}×10{}{power}", if exponent < 0 { "⁻" } else { "" })
}

/// Text inside of a list or map is quoted.
fn nested(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => quote(text.as_str()),
        other => shown(other),
    }
}

/// A value as `%s` shows it.
fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double_text(*value),
        Value::String(text) => text.as_str().to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::List(list) => {
            format!("[{}]", list.iter().map(|item| nested(&item)).collect::<Vec<_>>().join(", "))
        }
        Value::Map(map) => {
            let entry =
                |(key, value): (Key, Value<'_>)| format!("{}:{}", nested(&key.to_value()), nested(&value));
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Timestamp(time) => time.to_string(),
        Value::Duration(nanos) => super::duration_text(*nanos),
        Value::Type(name) => name.to_string(),
        Value::Quantity(quantity) => quantity.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        Value::Url(url) => url.to_string(),
        Value::Semver(version) => version.to_string(),
        Value::Optional(value) => value.as_deref().map(shown).unwrap_or_default(),
        Value::NamedFormat(format) => format!("{format:?}"),
    }
}
