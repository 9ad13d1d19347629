//! What sops makes of a file of any format: documents of ordered entries, with comments between them.
//!
//! Strings are bytes, as in Go: a value may be anything that was encrypted. Nothing here can be printed.

use ::yaml::resolve::Timestamp;

/// The entries of one mapping, in the order of the file.
pub(crate) type Branch = Vec<Item>;

pub(crate) enum Item {
    /// A comment line between entries, or at the end of a line.
    Comment(Comment),
    Entry(Vec<u8>, Value),
}

#[derive(Clone)]
pub(crate) struct Comment {
    /// Without the `#`.
    pub text: Vec<u8>,
    /// At the end of a line.
    pub inline: bool,
}

pub(crate) enum Value {
    Null,
    Str(Vec<u8>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Time(Timestamp),
    /// What the type `bytes` of the first, Python, sops holds; Go writes it as a list of numbers.
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Map(Branch),
    /// A comment in a list.
    Comment(Comment),
}

impl Value {
    /// What it is, for errors that must not show it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Str(_) => "a string",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::Time(_) => "a timestamp",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
            Self::Comment(_) => "a comment",
        }
    }
}

/// `strconv.FormatFloat(value, 'f', -1, 64)`, which the MAC is computed over.
pub(crate) fn decimal(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

/// A value on one line of a dotenv or INI file; `None` for collections.
pub(crate) fn flat_text(value: &Value) -> Option<Vec<u8>> {
    Some(match value {
        // Go's `%v` of nil.
        Value::Null => b"<nil>".to_vec(),
        Value::Str(text) => text.clone(),
        Value::Int(number) => number.to_string().into_bytes(),
        Value::Float(number) => flat_float(*number).into_bytes(),
        Value::Bool(flag) => flag.to_string().into_bytes(),
        Value::Time(time) => crate::time::to_seconds(time).into_bytes(),
        Value::Bytes(bytes) => {
            let shown: Vec<String> = bytes.iter().map(u8::to_string).collect();
            format!("[{}]", shown.join(" ")).into_bytes()
        }
        Value::List(_) | Value::Map(_) | Value::Comment(_) => return None,
    })
}

/// As sops writes floats where there are no types: never so that it looks like an integer.
fn flat_float(value: f64) -> String {
    if !value.is_finite() {
        // Go adds `.0` only to what has neither point nor exponent; `%.1f` of these is their name again.
        return decimal(value);
    }
    let text = ::yaml::format_float_g(value).to_uppercase();
    if text.contains(['.', 'E']) { text } else { format!("{value:.1}") }
}
