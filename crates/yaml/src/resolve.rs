//! What a scalar means to go-yaml v2 (YAML 1.1, under sigs.k8s.io/yaml) and v3 (under kyaml).
//!
//! The two differ in booleans (`yes`, `on`, `y` are true to v2 only) and in a few octal spellings.

pub use crate::timestamp::Timestamp;

use crate::node::{ScalarStyle, Tag};
use crate::number::{digits, parse_float, parse_int, parse_int_radix, parse_uint, parse_yaml_float};
use crate::{Error, ErrorKind};

/// Which library reads the scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schema {
    /// go-yaml v2, and so sigs.k8s.io/yaml, Helm and everything that reads Kubernetes objects.
    V2,
    /// go-yaml v3, and so kyaml and kustomize.
    V3,
}

/// The meaning of a scalar. Text is not repeated: a `String` is the scalar's own text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// Above the range of `i64`.
    Uint(u64),
    Float(f64),
    String,
    /// v2 recognises it, too, but hands out the text.
    Timestamp(Timestamp),
    /// `!!binary`: the text is base64.
    Binary,
    /// `<<`
    Merge,
}

impl Resolved {
    /// The tag go-yaml gives the value.
    pub fn tag(self) -> Tag {
        match self {
            Self::Null => Tag::Null,
            Self::Bool(_) => Tag::Bool,
            Self::Int(_) | Self::Uint(_) => Tag::Int,
            Self::Float(_) => Tag::Float,
            Self::String => Tag::Str,
            Self::Timestamp(_) => Tag::Timestamp,
            Self::Binary => Tag::Binary,
            Self::Merge => Tag::Merge,
        }
    }
}

/// An untagged plain scalar as go-yaml v2 reads it.
pub fn resolve_v2(text: &str) -> Resolved {
    plain(text, Schema::V2, true)
}

/// An untagged plain scalar as go-yaml v3 reads it.
pub fn resolve_v3(text: &str) -> Resolved {
    plain(text, Schema::V3, true)
}

/// The tag of an untagged plain scalar.
pub fn implicit_tag(text: &str, schema: Schema) -> Tag {
    plain(text, schema, true).tag()
}

/// Any scalar: its style and tag decide how far its text is looked at.
pub fn resolve_scalar(text: &str, style: ScalarStyle, tag: Tag, schema: Schema) -> Result<Resolved, Error> {
    match (tag, schema) {
        (Tag::Implicit, _) | (Tag::NonSpecific, Schema::V3) => Ok(match style {
            ScalarStyle::Plain => plain(text, schema, true),
            ScalarStyle::SingleQuoted
            | ScalarStyle::DoubleQuoted
            | ScalarStyle::Literal
            | ScalarStyle::Folded => Resolved::String,
        }),
        (Tag::NonSpecific | Tag::Str | Tag::Other | Tag::Map | Tag::Seq | Tag::Merge, _) => {
            Ok(Resolved::String)
        }
        (Tag::Binary, _) => Ok(Resolved::Binary),
        (Tag::Null | Tag::Bool | Tag::Int | Tag::Float | Tag::Timestamp, _) => tagged(text, tag, schema),
    }
}

fn tagged(text: &str, tag: Tag, schema: Schema) -> Result<Resolved, Error> {
    let found = plain(text, schema, tag == Tag::Timestamp);
    if found.tag() == tag {
        return Ok(found);
    }
    if let (Tag::Float, Resolved::Int(value)) = (tag, found) {
        #[expect(clippy::cast_precision_loss, reason = "Go converts the same way")]
        return Ok(Resolved::Float(value as f64));
    }
    let name = |tag: Tag| tag.short().unwrap_or_default();
    Err(Error::new(
        ErrorKind::Value,
        format!("cannot decode {} `{text}` as a {}", name(found.tag()), name(tag)),
    ))
}

fn plain(text: &str, schema: Schema, timestamps: bool) -> Resolved {
    let Some(first) = text.as_bytes().first() else { return Resolved::Null };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => word(text, schema),
        b'.' => dotted(text),
        b'+' | b'-' | b'0'..=b'9' => number(text, schema, timestamps),
        _ => Resolved::String,
    }
}

fn word(text: &str, schema: Schema) -> Resolved {
    match text {
        "~" | "null" | "Null" | "NULL" => Resolved::Null,
        "true" | "True" | "TRUE" => Resolved::Bool(true),
        "false" | "False" | "FALSE" => Resolved::Bool(false),
        _ if schema == Schema::V3 => Resolved::String,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Resolved::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Resolved::Bool(false),
        _ => Resolved::String,
    }
}

/// Whether YAML 1.1 takes the word for a boolean; go-yaml v3 quotes such strings when it writes them.
pub(crate) fn is_old_bool(text: &str) -> bool {
    text.len() <= 3
        && matches!(text.as_bytes().first(), Some(b'y' | b'Y' | b'n' | b'N' | b'o' | b'O'))
        && matches!(word(text, Schema::V2), Resolved::Bool(_))
}

fn dotted(text: &str) -> Resolved {
    match text {
        ".nan" | ".NaN" | ".NAN" => Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" => Resolved::Float(f64::INFINITY),
        // Go's own float syntax decides here, underscores between digits included.
        _ => separated_float(text).map_or(Resolved::String, Resolved::Float),
    }
}

/// A decimal float whose digits may be separated by single underscores, each between two digits.
fn separated_float(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let mut separators = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    if separators.all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1))) {
        return parse_float(&text.replace('_', ""));
    }
    None
}

fn number(text: &str, schema: Schema, timestamps: bool) -> Resolved {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if let Some(time) = timestamps.then(|| Timestamp::parse(text)).flatten() {
        return Resolved::Timestamp(time);
    }
    let stripped;
    let text = if text.contains('_') {
        stripped = text.replace('_', "");
        stripped.as_str()
    } else {
        text
    };
    if let Some(value) = parse_int(text) {
        return Resolved::Int(value);
    }
    if let Some(value) = parse_uint(text) {
        return Resolved::Uint(value);
    }
    if let Some(value) = parse_yaml_float(text) {
        return Resolved::Float(value);
    }
    odd_radix(text, schema).unwrap_or(Resolved::String)
}

/// What strconv refuses but go-yaml tries once more: a sign behind the prefix, as in `0b-11`.
fn odd_radix(text: &str, schema: Schema) -> Option<Resolved> {
    let read = |rest: &str, radix: u32| {
        parse_int_radix(rest, radix).map(Resolved::Int).or_else(|| digits(rest, radix).map(Resolved::Uint))
    };
    if let Some(rest) = text.strip_prefix("0b") {
        return read(rest, 2);
    }
    if schema == Schema::V3 {
        return text.strip_prefix("0o").and_then(|rest| read(rest, 8));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_1_1_booleans_are_words_to_v3() {
        assert_eq!(resolve_v2("yes"), Resolved::Bool(true));
        assert_eq!(resolve_v2("Off"), Resolved::Bool(false));
        assert_eq!(resolve_v3("yes"), Resolved::String);
        assert!(is_old_bool("on") && !is_old_bool("one") && !is_old_bool("nul"));
    }

    #[test]
    fn numbers_follow_go() {
        assert_eq!(resolve_v3("0o17"), Resolved::Int(15));
        assert_eq!(resolve_v3("08"), Resolved::Float(8.0));
        assert_eq!(resolve_v3("1_000"), Resolved::Int(1000));
        assert_eq!(resolve_v3("1e400"), Resolved::String);
        assert_eq!(resolve_v3("0b-11"), Resolved::Int(-3));
        assert_eq!(resolve_v3("18446744073709551615"), Resolved::Uint(u64::MAX));
        assert_eq!(resolve_v3(""), Resolved::Null);
    }

    #[test]
    fn a_tag_the_text_cannot_have_is_an_error() {
        let error = resolve_scalar("a", ScalarStyle::Plain, Tag::Int, Schema::V2).unwrap_err();
        assert_eq!(error.to_string(), "yaml: cannot decode !!str `a` as a !!int");
        assert_eq!(resolve_scalar("3", ScalarStyle::Plain, Tag::Float, Schema::V3), Ok(Resolved::Float(3.0)));
    }
}
