//! What is wrong with a value, in words. Numbers have thousands separators, as Helm prints them.

use serde_json::{Number, Value as Json};

use crate::quote::go_quote;

/// A failed check and the failed checks it comes from.
pub(super) struct Failure {
    pub(super) at: Vec<String>,
    pub(super) kind: Kind,
    pub(super) causes: Vec<Failure>,
}

pub(super) enum Kind {
    Group,
    Reference,
    Text(String),
}

impl Failure {
    /// Adds the lines of this failure, each below the one it belongs to.
    pub(super) fn write(&self, out: &mut String, indent: usize) {
        let mut indent = indent;
        // A reference with one cause says nothing that its cause does not say.
        if !(matches!(self.kind, Kind::Reference) && self.causes.len() == 1) {
            let pointer: String =
                self.at.iter().map(|token| format!("/{}", super::resource::escape(token))).collect();
            let text = match &self.kind {
                Kind::Group | Kind::Reference => "validation failed",
                Kind::Text(text) => text,
            };
            out.push_str(&format!("{}- at {}: {text}\n", "  ".repeat(indent), quote(&pointer)));
            indent += 1;
        }
        for cause in &self.causes {
            cause.write(out, indent);
        }
    }
}

/// In single quotes, escaped as Go does.
pub(super) fn quote(text: &str) -> String {
    let quoted = go_quote(text).replace("\\\"", "\"").replace('\'', "\\'");
    format!("'{}'", &quoted[1..quoted.len() - 1])
}

pub(super) fn quote_all<S: AsRef<str>>(texts: &[S]) -> String {
    texts.iter().map(|text| quote(text.as_ref())).collect::<Vec<_>>().join(", ")
}

/// A scalar as it stands in `enum` and `const` messages.
pub(super) fn display(value: &Json) -> String {
    match value {
        Json::Null => "<nil>".to_owned(),
        Json::String(text) => quote(text),
        Json::Array(_) | Json::Object(_) => "value".to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn one_of(wanted: &[Json]) -> String {
    if wanted.iter().any(|v| v.is_array() || v.is_object()) {
        return "'enum' failed".to_owned();
    }
    match wanted {
        [one] => format!("value must be {}", display(one)),
        many => format!("value must be one of {}", many.iter().map(display).collect::<Vec<_>>().join(", ")),
    }
}

pub(super) fn compared(keyword: &str, got: &Number, want: &Number) -> String {
    format!(
        "{keyword}: got {}, want {}",
        number(got.as_f64().unwrap_or_default()),
        number(want.as_f64().unwrap_or_default())
    )
}

pub(super) fn counted(keyword: &str, got: usize, want: i64) -> String {
    format!("{keyword}: got {}, want {}", grouped(&got.to_string()), grouped(&want.to_string()))
}

/// English number formatting of Go's `%g`: `70,000.125`, `1×10²⁵`.
fn number(value: f64) -> String {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&power) {
        let sign = if power < 0 { "⁻" } else { "" };
        return format!("{mantissa}×10{sign}{}", superscript(&format!("{:02}", power.unsigned_abs())));
    }
    grouped(&yaml::format_float_v(value))
}

/// Commas between groups of three digits before the point.
fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, String::new()), |(w, f)| (w, format!(".{f}")));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{sign}{out}{fraction}")
}

fn superscript(digits: &str) -> String {
    const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    digits.bytes().filter_map(|b| SUPERSCRIPTS.get(usize::from(b.wrapping_sub(b'0')))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_english() {
        for (value, expected) in [
            (70_000.0, "70,000"),
            (70_000.125, "70,000.125"),
            (-5.0, "-5"),
            (1e25, "1×10²⁵"),
            (1e-5, "1×10⁻⁰⁵"),
            (0.1234567, "0.1234567"),
            (1_234_567_890.123_456_7, "1.2345678901234567×10⁰⁹"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn quotes_are_single() {
        assert_eq!(quote("it's \"q\"\n"), "'it\\'s \"q\"\\n'");
    }
}
