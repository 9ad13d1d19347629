//! JSON text as Go's encoding/json writes it: compact, keys sorted, `<`, `>` and `&` escaped.

use serde_json::{Number, Value};

use crate::number::json_float;

/// What `json.Marshal` prints for the value.
pub fn json_text(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// A number as JSON text; floats that are whole lose their fraction, as in Go.
pub(crate) fn number_text(number: &Number) -> String {
    if number.is_f64() {
        number.as_f64().and_then(json_float).unwrap_or_else(|| number.to_string())
    } else {
        number.to_string()
    }
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, key);
                out.push(':');
                write_value(out, value);
            }
            out.push('}');
        }
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(is_escaped) {
        out.push_str(&rest[..at]);
        let c = rest[at..].chars().next().unwrap_or_default();
        write_escaped(out, c);
        rest = &rest[at + c.len_utf8()..];
    }
    out.push_str(rest);
    out.push('"');
}

fn is_escaped(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

fn write_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ => out.push_str(&format!("\\u{:04x}", u32::from(c))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_characters_are_escaped_as_go_does() {
        let value = serde_json::json!({"b": "<a&b>\u{1}\u{2028}", "a": [1.0, 1e21, null]});
        assert_eq!(
            json_text(&value),
            "{\"a\":[1,1e+21,null],\"b\":\"\\u003ca\\u0026b\\u003e\\u0001\\u2028\"}"
        );
    }
}
