//! Strategic merge patch: how Kubernetes merges by schema, and how a client makes such a patch.
//!
//! The law is apimachinery's `strategicpatch`, errors included: users see them through kubectl and Helm.
//! Go visits a patch's keys in random order; here the order is sorted, so that one input has one answer.
//!
//! * [`merge`] applies a patch to an object (what the API server does).
//! * [`two_way`] makes the patch from an original to a modified object (kubectl, drift reports).
//! * [`three_way`] makes Helm 3's and kubectl's patch: changes from current to modified, deletions from
//!   original to modified, and nothing else.
//!
//! Deliberately absent: preconditions and conflict search (`overwrite: false`), which no caller uses.

mod diff;
mod lists;
mod merge;

use std::fmt;

use serde_json::{Map, Value};

use crate::schema::Schema;
use crate::tables::Type;

pub use diff::{three_way, two_way};

/// Objects nested deeper than this are refused.
const MAX_DEPTH: usize = 500;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

/// Applies a strategic merge patch.
pub fn merge(original: &Value, patch: &Value, schema: Schema<'_>) -> Result<Value, Error> {
    let (original, patch) = (object(original)?.clone(), object(patch)?.clone());
    merge::merge_object(original, patch, schema, merge::Mode::Apply).map(Value::Object)
}

/// Why a strategic merge failed, in apimachinery's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid JSON document")]
    NotAnObject,
    #[error("the document is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey { map: String, key: String },
    #[error("expected a {expected}, but received a {actual}")]
    BadType { expected: &'static str, actual: &'static str },
    #[error("unknown patch type: {directive} in map: {map}")]
    BadDirective { directive: String, map: String },
    #[error("invalid value for special key: $patch")]
    DirectiveNotText,
    #[error("unable to find api field in struct {parent} for the json field {field:?}")]
    UnknownField { parent: String, field: String },
    #[error("merging an object in json but data type is not struct, instead is: {0}")]
    NotAStruct(&'static str),
    #[error("expected slice or array type, but got: struct")]
    NotAList,
    #[error("unexpected slice of slice")]
    SliceOfSlice,
    #[error("cannot merge lists without merge key for {0}")]
    ListWithoutMergeKey(&'static str),
    #[error("list element types are not identical: {0}")]
    MixedList(String),
    #[error("no elements in any of the given slices")]
    EmptyLists,
    #[error("value for key {0} is not a map")]
    ItemNotAMap(usize),
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirectiveInList,
    // The final newline is apimachinery's.
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { patch: String, order: String },
    #[error("{0} and {1} are not deep equal: this may happen when calculating the 3-way diff patch")]
    RetainKeysDiffer(String, String),
    #[error("unexpected patch strategy: [{0}]")]
    BadStrategy(String),
}

/// What the schema says of merging one field.
#[derive(Clone, Copy)]
struct Field<'a> {
    /// The object's schema, or the schema of the list's items.
    schema: Schema<'a>,
    strategy: Strategy,
    retain_keys: bool,
    /// Empty when there is none.
    merge_key: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Strategy {
    Unstated,
    Merge,
    Replace,
}

fn lookup_object<'a>(schema: Schema<'a>, name: &str) -> Result<Field<'a>, Error> {
    let field = find_field(schema, name)?;
    let (retain_keys, strategy) = strategies(field.patch_strategy().unwrap_or(""))?;
    Ok(Field { schema: field, strategy, retain_keys, merge_key: field.merge_key().unwrap_or("") })
}

fn lookup_list<'a>(schema: Schema<'a>, name: &str) -> Result<Field<'a>, Error> {
    let field = lookup_object(schema, name)?;
    let items = field.schema.items().ok_or(Error::NotAList)?;
    if items.type_() == Type::Array {
        return Err(Error::SliceOfSlice);
    }
    Ok(Field { schema: items, ..field })
}

fn find_field<'a>(schema: Schema<'a>, name: &str) -> Result<Schema<'a>, Error> {
    if schema.fields().len() == 0 && schema.definition_name().is_none() {
        return Err(Error::NotAStruct(go_kind(schema)));
    }
    // Go's JSON decoder falls back to names that differ only in case, and so does apimachinery.
    let folded =
        || schema.fields().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, field)| field);
    schema.field(name).or_else(folded).ok_or_else(|| Error::UnknownField {
        parent: schema.definition_name().unwrap_or("").rsplit('.').next().unwrap_or("").to_owned(),
        field: name.to_owned(),
    })
}

fn go_kind(schema: Schema<'_>) -> &'static str {
    match schema.type_() {
        Type::Object if schema.fields().len() > 0 || schema.definition_name().is_some() => "struct",
        Type::Object => "map",
        Type::Array => "slice",
        Type::String => "string",
        Type::Integer => "int32",
        Type::Number => "float64",
        Type::Boolean => "bool",
        Type::Any => "interface",
    }
}

fn strategies(text: &str) -> Result<(bool, Strategy), Error> {
    let all: Vec<&str> = text.split(',').collect();
    match all.as_slice() {
        ["retainKeys"] => Ok((true, Strategy::Unstated)),
        [one] => Ok((false, strategy(one))),
        ["retainKeys", other] | [other, "retainKeys"] => Ok((true, strategy(other))),
        _ => Err(Error::BadStrategy(all.join(" "))),
    }
}

fn strategy(name: &str) -> Strategy {
    match name {
        "merge" => Strategy::Merge,
        "replace" => Strategy::Replace,
        // An unknown strategy behaves as none, as upstream.
        _ => Strategy::Unstated,
    }
}

fn object(value: &Value) -> Result<&Object, Error> {
    within_depth(value, MAX_DEPTH)?;
    value.as_object().ok_or(Error::NotAnObject)
}

fn within_depth(value: &Value, left: usize) -> Result<(), Error> {
    let left = left.checked_sub(1).ok_or(Error::TooDeep)?;
    match value {
        Value::Object(map) => map.values().try_for_each(|value| within_depth(value, left)),
        Value::Array(list) => list.iter().try_for_each(|value| within_depth(value, left)),
        _ => Ok(()),
    }
}

/// The Go type that a JSON value decodes to; values of different types never merge.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => LIST,
        Value::Object(_) => MAP,
    }
}

const LIST: &str = "[]interface {}";
const MAP: &str = "map[string]interface {}";

fn as_list(value: &Value) -> Result<&Vec<Value>, Error> {
    value.as_array().ok_or_else(|| Error::BadType { expected: LIST, actual: go_type(value) })
}

fn as_map(value: &Value) -> Result<&Object, Error> {
    value.as_object().ok_or_else(|| Error::BadType { expected: MAP, actual: go_type(value) })
}

fn merge_value<'a>(item: &'a Value, key: &str) -> Result<&'a Value, Error> {
    let map = as_map(item)?;
    map.get(key).ok_or_else(|| Error::NoMergeKey { map: GoText(item).to_string(), key: key.to_owned() })
}

/// A value as Go's `%v` prints it.
struct GoText<'a>(&'a Value);

impl fmt::Display for GoText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => out.write_str("<nil>"),
            Value::Bool(value) => write!(out, "{value}"),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => write_float(float, out),
                None => write!(out, "{number}"),
            },
            Value::String(text) => out.write_str(text),
            Value::Array(list) => {
                out.write_str("[")?;
                for (index, value) in list.iter().enumerate() {
                    write!(out, "{}{}", if index > 0 { " " } else { "" }, GoText(value))?;
                }
                out.write_str("]")
            }
            Value::Object(map) => {
                out.write_str("map[")?;
                for (index, (key, value)) in map.iter().enumerate() {
                    write!(out, "{}{key}:{}", if index > 0 { " " } else { "" }, GoText(value))?;
                }
                out.write_str("]")
            }
        }
    }
}

/// Go's `%v` of a float: shortest digits, with an exponent below 1e-4 and from 1e21.
fn write_float(float: f64, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let exponent = if float == 0.0 { 0 } else { float.abs().log10().floor() as i32 };
    if (-4..21).contains(&exponent) {
        return write!(out, "{float}");
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    write!(out, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn go_text(value: &Value) -> String {
    GoText(value).to_string()
}
