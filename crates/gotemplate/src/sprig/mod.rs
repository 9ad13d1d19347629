//! sprig v3: the functions of Masterminds/sprig, under their names and aliases.
//!
//! Not here: `env` and `expandenv`, which Helm takes away too: a template reads nothing of the process it runs in.

mod base32;
mod base64;
mod case;
mod certificate;
mod cipher;
mod convert;
mod date;
mod decimal;
mod default;
mod der;
mod dict;
mod hash;
mod json;
mod json_decode;
mod key;
mod list;
mod merge;
mod number;
mod path;
mod random;
mod reflection;
mod regex;
mod regex_syntax;
mod semver;
mod text;
mod url;
mod wrap;

use crate::context::Failure;
use crate::function::Function;
use crate::value::{Map, Str, Value};

pub use convert::{strval, to_float64, to_int64};
pub use json::{JsonStyle, encode as encode_json};
pub use json_decode::decode as decode_json;
pub use regex::compile_regex;

/// Every function, by subject.
pub const FUNCTIONS: &[&[Function]] = &[
    text::FUNCTIONS,
    list::FUNCTIONS,
    dict::FUNCTIONS,
    number::FUNCTIONS,
    default::FUNCTIONS,
    reflection::FUNCTIONS,
    json::FUNCTIONS,
    date::FUNCTIONS,
    regex::FUNCTIONS,
    path::FUNCTIONS,
    url::FUNCTIONS,
    hash::FUNCTIONS,
    random::FUNCTIONS,
    cipher::FUNCTIONS,
    certificate::FUNCTIONS,
    semver::FUNCTIONS,
];

/// What Go says when a nil is asked for its type.
const NIL_DEREFERENCE: &str = "runtime error: invalid memory address or nil pointer dereference";

type Answer = Result<Value, Failure>;

/// An argument that the signature says is a string.
fn text_arg(args: &[Value], at: usize) -> &[u8] {
    match args.get(at) {
        Some(Value::String(text)) => text.as_bytes(),
        _ => b"",
    }
}

/// An argument that the signature says is an integer.
fn int_arg(args: &[Value], at: usize) -> i64 {
    args.get(at).and_then(Value::as_int).unwrap_or(0)
}

/// An argument that the signature says is a map; nothing for a nil one.
fn map_arg(args: &[Value], at: usize) -> Option<&Map> {
    args.get(at).and_then(Value::as_map)
}

fn string(bytes: impl Into<Str>) -> Answer {
    Ok(Value::String(bytes.into()))
}
