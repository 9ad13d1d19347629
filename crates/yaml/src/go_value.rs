//! Values as Go's decoders hold them, and how Go's `%#v` prints them: that is what some error messages show.

use crate::node::Text;
use crate::resolve::Timestamp;

/// A value as Go holds it after decoding into `interface{}`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GoValue {
    Nil,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    String(Text),
    Time(Timestamp),
    Slice(Vec<GoValue>),
    Map { entries: Vec<(GoValue, GoValue)>, string_keys: bool },
}

/// Go's `%#v`, as far as error messages show it.
pub(crate) fn go_value_syntax(value: &GoValue) -> String {
    match value {
        GoValue::Nil => "interface {}(nil)".to_owned(),
        GoValue::Bool(value) => value.to_string(),
        GoValue::Int(value) => value.to_string(),
        GoValue::Uint(value) => format!("0x{value:x}"),
        GoValue::Float(value) => go_float(*value),
        GoValue::String(text) => go_quote(text),
        GoValue::Time(time) => go_time(time),
        GoValue::Slice(items) => {
            format!(
                "[]interface {{}}{{{}}}",
                items.iter().map(go_value_syntax).collect::<Vec<_>>().join(", ")
            )
        }
        GoValue::Map { entries, string_keys } => {
            let mut sorted: Vec<&(GoValue, GoValue)> = entries.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| match (a, b) {
                (GoValue::String(a), GoValue::String(b)) => a.cmp(b),
                (GoValue::Int(a), GoValue::Int(b)) => a.cmp(b),
                (GoValue::Bool(a), GoValue::Bool(b)) => a.cmp(b),
                (GoValue::Float(a), GoValue::Float(b)) => a.total_cmp(b),
                _ => key_rank(a).cmp(&key_rank(b)),
            });
            let shown: Vec<String> = sorted
                .iter()
                .map(|(key, value)| format!("{}:{}", go_value_syntax(key), go_value_syntax(value)))
                .collect();
            let kind = if *string_keys { "map[string]interface {}" } else { "map[interface {}]interface {}" };
            format!("{kind}{{{}}}", shown.join(", "))
        }
    }
}

/// The order in which Go prints keys of different types.
pub(crate) fn key_rank(key: &GoValue) -> u8 {
    match key {
        GoValue::Nil => 0,
        GoValue::String(_) => 1,
        GoValue::Int(_) => 2,
        GoValue::Float(_) => 3,
        GoValue::Bool(_) => 4,
        GoValue::Uint(_) => 5,
        GoValue::Time(_) | GoValue::Slice(_) | GoValue::Map { .. } => 6,
    }
}

/// `%+#v` at the top of a message, where nil has no type.
pub(crate) fn go_flag_syntax(value: &GoValue) -> String {
    if *value == GoValue::Nil { "<nil>".to_owned() } else { go_value_syntax(value) }
}

/// `%#v` of a float.
fn go_float(value: f64) -> String {
    if value.is_finite() { crate::number::format_float_g(value) } else { go_infinite(value).to_owned() }
}

/// Go's `strconv.Quote`.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\0'..='\u{1f}' | '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            _ if !is_shown(c) && c <= '\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ if !is_shown(c) => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether Go prints the character as it is. Format characters, spaces and private characters are escaped.
fn is_shown(c: char) -> bool {
    !matches!(c,
        '\u{7f}'..='\u{a0}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{1680}'
        | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{3000}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{e0000}'..='\u{10ffff}')
}

/// `%#v` of a time.
fn go_time(time: &Timestamp) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let Timestamp { year, month, day, hour, minute, second, nanosecond, offset_minutes } = time;
    let month = MONTHS[usize::from(*month - 1) % 12];
    let zone = if *offset_minutes == 0 { "time.UTC" } else { "time.Location(\"\")" };
    format!("time.Date({year}, time.{month}, {day}, {hour}, {minute}, {second}, {nanosecond}, {zone})")
}

/// Go's names for the floats that JSON does not have.
pub(crate) fn go_infinite(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "+Inf"
    } else {
        "-Inf"
    }
}
