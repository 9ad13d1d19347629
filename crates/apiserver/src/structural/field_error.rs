//! Errors about fields, as `kubectl` shows them.

use std::fmt;

use serde_json::Value;

/// One complaint about one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: ErrorKind,
    /// `spec.ports[0].name`; `<nil>` for the whole object, as Kubernetes writes it.
    pub field: String,
    /// The value to show, if any is shown.
    pub value: Shown,
    pub detail: String,
}

/// What the complaint is, which also decides the cause's reason in a Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
}

/// The value beside a complaint.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    Nothing,
    Value(Value),
    /// Shown as it is.
    Raw(String),
}

impl ErrorKind {
    /// The reason of the cause: `FieldValueInvalid`, …
    pub fn reason(self) -> &'static str {
        match self {
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Invalid => "FieldValueInvalid",
            ErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            ErrorKind::NotSupported => "FieldValueNotSupported",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::TooMany => "FieldValueTooMany",
        }
    }

    fn text(self) -> &'static str {
        match self {
            ErrorKind::Required => "Required value",
            ErrorKind::Invalid | ErrorKind::TypeInvalid => "Invalid value",
            ErrorKind::NotSupported => "Unsupported value",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooMany => "Too many",
        }
    }
}

impl FieldError {
    pub(super) fn new(
        kind: ErrorKind,
        field: impl Into<String>,
        value: Shown,
        detail: impl Into<String>,
    ) -> Self {
        let field = match field.into() {
            field if field.is_empty() => "<nil>".to_owned(),
            field => field,
        };
        FieldError { kind, field, value, detail: detail.into() }
    }

    pub(super) fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError::new(ErrorKind::Required, field, Shown::Nothing, detail)
    }

    pub(super) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError::new(ErrorKind::Forbidden, field, Shown::Nothing, detail)
    }

    pub(super) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        FieldError::new(ErrorKind::Invalid, field, Shown::Value(value.into()), detail)
    }

    pub(super) fn duplicate(field: impl Into<String>, value: Value) -> Self {
        FieldError::new(ErrorKind::Duplicate, field, Shown::Value(value), "")
    }

    /// What follows the field's name: `Invalid value: -1: spec.x in body should be …`.
    pub fn message(&self) -> String {
        let mut out = self.kind.text().to_owned();
        match &self.value {
            Shown::Nothing => {}
            Shown::Value(value) => out += &format!(": {}", shown(value)),
            Shown::Raw(text) => out += &format!(": {text}"),
        }
        if !self.detail.is_empty() {
            out += ": ";
            out += &self.detail;
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.message())
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        // Go prints a float's shortest form and leaves out a fraction of zero.
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

pub(super) fn go_float(value: f64) -> String {
    let exponent = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if (-4..21).contains(&exponent) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Go's `%q`.
pub(super) fn go_quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", control as u32));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// `parent.name`, or `parent[name]` for an entry of a map.
pub(super) fn child(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}
