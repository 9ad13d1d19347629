//! Arithmetic, and conversions between types.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::EvalError;
use crate::eval::Answer;
use crate::value::Value;

use super::time::{duration_text, parse_duration, parse_timestamp};

/// The answer of an arithmetic operator; none if `name` is no such operator.
pub(super) fn operator<'a>(name: &str, values: &[Value<'a>]) -> Option<Answer<'a>> {
    let overflow = || EvalError::message("integer overflow");
    let unsigned = || EvalError::message("unsigned integer overflow");
    Some(match (name, values) {
        ("-_", [Value::Int(value)]) => value.checked_neg().map(Value::Int).ok_or_else(overflow),
        ("-_", [Value::Double(value)]) => Ok(Value::Double(-value)),
        ("_+_", [Value::Int(left), Value::Int(right)]) => {
            left.checked_add(*right).map(Value::Int).ok_or_else(overflow)
        }
        ("_-_", [Value::Int(left), Value::Int(right)]) => {
            left.checked_sub(*right).map(Value::Int).ok_or_else(overflow)
        }
        ("_*_", [Value::Int(left), Value::Int(right)]) => {
            left.checked_mul(*right).map(Value::Int).ok_or_else(overflow)
        }
        ("_/_", [Value::Int(_), Value::Int(0)]) | ("_/_", [Value::Uint(_), Value::Uint(0)]) => {
            Err(EvalError::message("division by zero"))
        }
        ("_%_", [Value::Int(_), Value::Int(0)]) | ("_%_", [Value::Uint(_), Value::Uint(0)]) => {
            Err(EvalError::message("modulus by zero"))
        }
        ("_/_", [Value::Int(left), Value::Int(right)]) => {
            left.checked_div(*right).map(Value::Int).ok_or_else(overflow)
        }
        ("_%_", [Value::Int(left), Value::Int(right)]) => {
            left.checked_rem(*right).map(Value::Int).ok_or_else(overflow)
        }
        ("_+_", [Value::Uint(left), Value::Uint(right)]) => {
            left.checked_add(*right).map(Value::Uint).ok_or_else(unsigned)
        }
        ("_-_", [Value::Uint(left), Value::Uint(right)]) => {
            left.checked_sub(*right).map(Value::Uint).ok_or_else(unsigned)
        }
        ("_*_", [Value::Uint(left), Value::Uint(right)]) => {
            left.checked_mul(*right).map(Value::Uint).ok_or_else(unsigned)
        }
        ("_/_", [Value::Uint(left), Value::Uint(right)]) => Ok(Value::Uint(left / right)),
        ("_%_", [Value::Uint(left), Value::Uint(right)]) => Ok(Value::Uint(left % right)),
        ("_+_", [Value::Double(left), Value::Double(right)]) => Ok(Value::Double(left + right)),
        ("_-_", [Value::Double(left), Value::Double(right)]) => Ok(Value::Double(left - right)),
        ("_*_", [Value::Double(left), Value::Double(right)]) => Ok(Value::Double(left * right)),
        ("_/_", [Value::Double(left), Value::Double(right)]) => Ok(Value::Double(left / right)),
        ("_+_", [Value::String(left), Value::String(right)]) => {
            Ok(Value::text(format!("{}{}", left.as_str(), right.as_str())))
        }
        ("_+_", [Value::Bytes(left), Value::Bytes(right)]) => {
            Ok(Value::Bytes(left.iter().chain(right.iter()).copied().collect()))
        }
        ("_+_", [Value::List(left), Value::List(right)]) => Ok(Value::List(left.join(right))),
        ("_+_", [Value::Duration(left), Value::Duration(right)]) => {
            left.checked_add(*right).map(Value::Duration).ok_or_else(overflow)
        }
        ("_-_", [Value::Duration(left), Value::Duration(right)]) => {
            left.checked_sub(*right).map(Value::Duration).ok_or_else(overflow)
        }
        (
            "_+_",
            [Value::Timestamp(time), Value::Duration(nanos)]
            | [Value::Duration(nanos), Value::Timestamp(time)],
        ) => shifted(*time, *nanos),
        ("_-_", [Value::Timestamp(time), Value::Duration(nanos)]) => {
            nanos.checked_neg().ok_or_else(overflow).and_then(|nanos| shifted(*time, nanos))
        }
        ("_-_", [Value::Timestamp(left), Value::Timestamp(right)]) => {
            let nanos = left.as_nanosecond() - right.as_nanosecond();
            i64::try_from(nanos).map(Value::Duration).map_err(|_| overflow())
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "-_", _) => Err(EvalError::NoSuchOverload),
        _ => return None,
    })
}

fn shifted<'a>(time: Timestamp, nanos: i64) -> Answer<'a> {
    let time = time.checked_add(SignedDuration::from_nanos(nanos));
    time.map(Value::Timestamp).map_err(|_| EvalError::message("timestamp overflow"))
}

pub(super) fn conversion<'a>(name: &str, is_method: bool, values: &[Value<'a>]) -> Option<Answer<'a>> {
    let [value] = values else { return None };
    if is_method {
        return None;
    }
    Some(match name {
        "int" => to_int(value),
        "uint" => to_uint(value),
        "double" => to_double(value),
        "string" => to_text(value),
        "bytes" => match value {
            Value::String(text) => Ok(Value::Bytes(text.as_str().as_bytes().into())),
            Value::Bytes(_) => Ok(value.clone()),
            _ => Err(EvalError::NoSuchOverload),
        },
        "bool" => match value {
            Value::Bool(_) => Ok(value.clone()),
            Value::String(text) => match text.as_str() {
                "true" | "TRUE" | "True" | "t" | "T" | "1" => Ok(Value::Bool(true)),
                "false" | "FALSE" | "False" | "f" | "F" | "0" => Ok(Value::Bool(false)),
                _ => Err(EvalError::message("type conversion error from 'string' to 'bool'")),
            },
            _ => Err(EvalError::NoSuchOverload),
        },
        "timestamp" => match value {
            Value::Timestamp(_) => Ok(value.clone()),
            Value::String(text) => parse_timestamp(text.as_str()).map(Value::Timestamp),
            Value::Int(seconds) => Timestamp::from_second(*seconds)
                .map(Value::Timestamp)
                .map_err(|_| EvalError::message("timestamp overflow")),
            _ => Err(EvalError::NoSuchOverload),
        },
        "duration" => match value {
            Value::Duration(_) => Ok(value.clone()),
            Value::Int(nanos) => Ok(Value::Duration(*nanos)),
            Value::String(text) => parse_duration(text.as_str())
                .map(Value::Duration)
                .ok_or_else(|| EvalError::message(format!("time: invalid duration {:?}", text.as_str()))),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => return None,
    })
}

fn to_int<'a>(value: &Value<'a>) -> Answer<'a> {
    let range = || EvalError::message("integer overflow");
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(number) => i64::try_from(*number).map(Value::Int).map_err(|_| range()),
        Value::Double(number) if *number > -9.223372036854775e18 && *number < 9.223372036854775e18 => {
            Ok(Value::Int(*number as i64))
        }
        Value::Double(_) => Err(range()),
        Value::String(text) => text
            .as_str()
            .parse()
            .map(Value::Int)
            .map_err(|_| EvalError::message("type conversion error from 'string' to 'int'")),
        Value::Timestamp(time) => Ok(Value::Int(time.as_second())),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_uint<'a>(value: &Value<'a>) -> Answer<'a> {
    let range = || EvalError::message("unsigned integer overflow");
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(number) => u64::try_from(*number).map(Value::Uint).map_err(|_| range()),
        Value::Double(number) if *number >= 0.0 && *number < 1.8446744073709552e19 => {
            Ok(Value::Uint(*number as u64))
        }
        Value::Double(_) => Err(range()),
        Value::String(text) => text
            .as_str()
            .parse()
            .map(Value::Uint)
            .map_err(|_| EvalError::message("type conversion error from 'string' to 'uint'")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_double<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::String(text) => text
            .as_str()
            .parse()
            .map(Value::Double)
            .map_err(|_| EvalError::message("type conversion error from 'string' to 'double'")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_text<'a>(value: &Value<'a>) -> Answer<'a> {
    let text: Arc<str> = match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bool(value) => value.to_string().into(),
        Value::Int(value) => value.to_string().into(),
        Value::Uint(value) => value.to_string().into(),
        Value::Double(value) => super::text::double_text(*value).into(),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec())
            .map_err(|_| EvalError::message("invalid UTF-8 in bytes, cannot convert to string"))?
            .into(),
        Value::Timestamp(time) => time.to_string().into(),
        Value::Duration(nanos) => duration_text(*nanos).into(),
        Value::Ip(address) => address.to_string().into(),
        Value::Cidr(cidr) => cidr.to_string().into(),
        Value::Quantity(quantity) => quantity.to_string().into(),
        Value::Semver(version) => version.to_string().into(),
        Value::Url(url) => url.to_string().into(),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::text(text))
}
