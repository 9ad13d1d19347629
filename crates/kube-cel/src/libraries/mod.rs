//! What the functions do. `signatures` says which there are.

pub(crate) mod base64;
mod lists;
mod names;
mod net;
mod numbers;
mod text;
mod time;

use std::sync::Arc;

use crate::EvalError;
use crate::eval::{Answer, Run};
use crate::quantity::Quantity;
use crate::value::{List, Value};

pub(crate) use lists::must_be_ordered;
pub use names::{NamedFormat, Semver};
pub use net::Cidr;
pub use net::Url;
pub(crate) use text::{check_format, is_pattern};
pub(crate) use time::{duration_text, is_duration, is_timestamp, parse_duration};

/// Calls a function or method; a method's target is the first value.
pub(crate) fn call<'a>(
    run: &mut Run<'a, '_>,
    name: &str,
    is_method: bool,
    values: Vec<Value<'a>>,
) -> Answer<'a> {
    run.pay(values.iter().map(weight).sum())?;
    run.pay(pairs(name, &values))?;
    let answer = dispatch(run, name, is_method, values)?;
    run.pay(weight(&answer))?;
    Ok(answer)
}

fn dispatch<'a>(run: &mut Run<'a, '_>, name: &str, is_method: bool, values: Vec<Value<'a>>) -> Answer<'a> {
    if !is_method && let Some(answer) = numbers::operator(name, &values) {
        return answer;
    }
    match (name, is_method, values.as_slice()) {
        ("_==_", false, [left, right]) => Ok(Value::Bool(left.equals(right))),
        ("_!=_", false, [left, right]) => Ok(Value::Bool(!left.equals(right))),
        ("!_", false, [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", false, [left, right]) => compare(name, left, right),
        ("@in", false, [item, Value::List(list)]) => {
            Ok(Value::Bool(list.iter().any(|other| item.equals(&other))))
        }
        ("@in", false, [key, Value::Map(map)]) => {
            Ok(Value::Bool(key.to_key().is_some_and(|key| map.get(&key).is_some())))
        }
        ("type", false, [value]) => Ok(Value::Type(value.type_name().into())),
        ("dyn", false, [value]) => Ok(value.clone()),
        ("quantity", false, [Value::String(text)]) => quantity(text.as_str()),
        ("sign", false, [Value::Quantity(quantity)]) => Ok(Value::Int(quantity.sign())),
        ("isQuantity", false, [Value::String(text)]) => {
            Ok(Value::Bool(Quantity::parse(text.as_str()).is_ok()))
        }
        ("jsonpatch.escapeKey", false, [Value::String(text)]) => {
            Ok(Value::text(text.as_str().replace('~', "~0").replace('/', "~1")))
        }
        ("base64.encode", false, [Value::Bytes(bytes)]) => Ok(Value::text(base64::encode(bytes))),
        ("base64.decode", false, [Value::String(text)]) => base64::decode(text.as_str())
            .map(|bytes| Value::Bytes(bytes.into()))
            .ok_or_else(|| EvalError::message("illegal base64 data at input byte 0")),
        ("optional.of", false, [value]) => Ok(Value::some(value.clone())),
        ("optional.none", false, []) => Ok(Value::Optional(None)),
        ("optional.ofNonZeroValue", false, [value]) => {
            Ok(if is_zero(value) { Value::Optional(None) } else { Value::some(value.clone()) })
        }
        ("hasValue", true, [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        ("value", true, [Value::Optional(value)]) => {
            value.as_deref().cloned().ok_or_else(|| EvalError::message("optional.none() dereference"))
        }
        (_, true, [Value::Quantity(target), args @ ..]) => quantity_method(name, target, args),
        _ => numbers::conversion(name, is_method, &values)
            .or_else(|| text::call(run, name, is_method, &values))
            .or_else(|| time::call(name, is_method, &values))
            .or_else(|| lists::call(name, is_method, &values))
            .or_else(|| net::call(name, is_method, &values))
            .or_else(|| names::call(name, is_method, &values))
            .unwrap_or(Err(EvalError::NoSuchOverload)),
    }
}

/// How many items are compared with how many others, where that is more than looking at each once.
fn pairs(name: &str, values: &[Value<'_>]) -> u64 {
    let length = |value: &Value<'_>| if let Value::List(list) = value { list.len() as u64 } else { 0 };
    let unordered = values.iter().any(|value| matches!(value, Value::List(List::Unordered(..))));
    match (name, values) {
        ("_==_" | "_!=_" | "_+_", [left, right]) if unordered => length(left).saturating_mul(length(right)),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [left, right]) => {
            length(left).saturating_mul(length(right))
        }
        ("distinct", [list]) => length(list).saturating_mul(length(list)) / 10,
        _ => 0,
    }
}

/// What looking at a value costs: a tenth of a unit per byte of text, a unit per item.
fn weight(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => text.as_str().len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => list.len() as u64,
        Value::Map(map) => map.len() as u64,
        _ => 0,
    }
}

fn compare<'a>(name: &str, left: &Value<'_>, right: &Value<'_>) -> Answer<'a> {
    if matches!((left, right), (Value::Double(left), _) | (_, Value::Double(left)) if left.is_nan()) {
        return Ok(Value::Bool(false));
    }
    let order = left.compare(right).ok_or(EvalError::NoSuchOverload)?;
    Ok(Value::Bool(match name {
        "_<_" => order.is_lt(),
        "_<=_" => order.is_le(),
        "_>_" => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn quantity<'a>(text: &str) -> Answer<'a> {
    Quantity::parse(text)
        .map(|quantity| Value::Quantity(Arc::new(quantity)))
        .map_err(|error| EvalError::message(error.to_string()))
}

fn quantity_method<'a>(name: &str, target: &Quantity, args: &[Value<'a>]) -> Answer<'a> {
    let made = |quantity| Ok(Value::Quantity(Arc::new(quantity)));
    match (name, args) {
        ("isInteger", []) => Ok(Value::Bool(target.as_integer().is_some())),
        ("asInteger", []) => target
            .as_integer()
            .map(Value::Int)
            .ok_or_else(|| EvalError::message("cannot convert value to integer")),
        ("asApproximateFloat", []) => Ok(Value::Double(target.as_float())),
        ("add", [Value::Quantity(other)]) => made(target.add(other)),
        ("add", [Value::Int(other)]) => made(target.add(&Quantity::from_integer(*other))),
        ("sub", [Value::Quantity(other)]) => made(target.subtract(other)),
        ("sub", [Value::Int(other)]) => made(target.subtract(&Quantity::from_integer(*other))),
        ("isGreaterThan", [Value::Quantity(other)]) => Ok(Value::Bool(*target > **other)),
        ("isLessThan", [Value::Quantity(other)]) => Ok(Value::Bool(*target < **other)),
        ("compareTo", [Value::Quantity(other)]) => Ok(Value::Int(target.cmp(other) as i64)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.as_str().is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Duration(nanos) => *nanos == 0,
        Value::Optional(value) => value.is_none(),
        _ => false,
    }
}
