//! `eq`, `lt` and their kin, and the deep equality that sprig's `deepEqual` and `has` ask for.

use std::rc::Rc;

use crate::context::Failure;
use crate::fmt;
use crate::value::{Kind, Value};

/// Go's classes of values that can be compared with `==` and `<`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    None,
    Bool,
    Complex,
    Int,
    Uint,
    Float,
    String,
}

fn class(value: &Value) -> Class {
    match value {
        Value::Bool(_) => Class::Bool,
        Value::Int(_) | Value::Int32(_) | Value::Int64(_) | Value::Duration(_) => Class::Int,
        Value::Uint8(_) | Value::Uint32(_) | Value::Uint64(_) => Class::Uint,
        Value::Float64(_) => Class::Float,
        Value::Complex(_) => Class::Complex,
        Value::String(_) => Class::String,
        _ => Class::None,
    }
}

pub fn eq(first: &Value, others: &[Value]) -> Result<bool, Failure> {
    if others.is_empty() {
        return Err(Failure::new("missing argument for comparison"));
    }
    for other in others {
        if equal(first, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal(a: &Value, b: &Value) -> Result<bool, Failure> {
    let (class_a, class_b) = (class(a), class(b));
    if class_a != class_b {
        return match (a.as_int(), a.as_uint(), b.as_int(), b.as_uint()) {
            (Some(int), _, _, Some(uint)) | (_, Some(uint), Some(int), _) => {
                Ok(u64::try_from(int).is_ok_and(|int| int == uint))
            }
            _ if a.is_nil() || b.is_nil() => Ok(false),
            _ => Err(incompatible(a, b)),
        };
    }
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Float64(a), Value::Float64(b)) => Ok(a == b),
        (Value::Complex(a), Value::Complex(b)) => Ok(a == b),
        (Value::String(a), Value::String(b)) => Ok(a == b),
        _ if class_a == Class::Int => Ok(a.as_int() == b.as_int()),
        _ if class_a == Class::Uint => Ok(a.as_uint() == b.as_uint()),
        _ => equal_others(a, b),
    }
}

/// A nil interface, slice or map.
fn nil(value: &Value) -> bool {
    match value {
        Value::List(list) => list.is_nil(),
        Value::Map(map) => map.is_nil(),
        other => other.is_nil(),
    }
}

fn different(a: &Value, b: &Value) -> Failure {
    Failure::new(format!(
        "non-comparable types {}: {}, {}: {}",
        fmt::verb(a, 's'),
        a.type_of(),
        b.type_of(),
        fmt::show(b)
    ))
}

/// Neither has an order: nil, lists, maps, structs, functions.
fn equal_others(a: &Value, b: &Value) -> Result<bool, Failure> {
    if nil(a) || nil(b) {
        let comparable = a.kind() == b.kind() || a.is_nil() || b.is_nil();
        return if comparable { Ok(nil(a) == nil(b)) } else { Err(different(a, b)) };
    }
    if a.kind() != b.kind() {
        return Err(different(a, b));
    }
    if matches!(b.kind(), Kind::Map | Kind::Slice | Kind::Func) {
        return Err(Failure::new(format!("non-comparable type {}: {}", fmt::verb(b, 's'), b.type_of())));
    }
    Ok(match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            Rc::ptr_eq(a, b) || (!a.type_name().starts_with('*') && same_fields(a.fields(), b.fields()))
        }
        (Value::Time(a), Value::Time(b)) => a.identical(b),
        _ => false,
    })
}

fn same_fields(a: Vec<(&'static str, Value)>, b: Vec<(&'static str, Value)>) -> bool {
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0 == b.0 && deep_equal(&a.1, &b.1))
}

pub fn lt(a: &Value, b: &Value) -> Result<bool, Failure> {
    const BAD: &str = "invalid type for comparison";
    let (class_a, class_b) = (class(a), class(b));
    if class_a == Class::None || class_b == Class::None {
        return Err(Failure::new(BAD));
    }
    match (a.as_int(), a.as_uint(), b.as_int(), b.as_uint()) {
        (Some(a), _, Some(b), _) => return Ok(a < b),
        (_, Some(a), _, Some(b)) => return Ok(a < b),
        (Some(a), _, _, Some(b)) => return Ok(u64::try_from(a).map_or(true, |a| a < b)),
        (_, Some(a), Some(b), _) => return Ok(u64::try_from(b).is_ok_and(|b| a < b)),
        _ => {}
    }
    match (a, b) {
        (Value::Float64(a), Value::Float64(b)) => Ok(a < b),
        (Value::String(a), Value::String(b)) => Ok(a < b),
        _ if class_a != class_b => Err(incompatible(a, b)),
        _ => Err(Failure::new(BAD)),
    }
}

pub fn le(a: &Value, b: &Value) -> Result<bool, Failure> {
    Ok(lt(a, b)? || equal(a, b)?)
}

fn incompatible(a: &Value, b: &Value) -> Failure {
    Failure::new(format!("incompatible types for comparison: {} and {}", a.type_of(), b.type_of()))
}

/// `reflect.DeepEqual`: the same type and the same content, all the way down.
pub fn deep_equal(a: &Value, b: &Value) -> bool {
    deep_equal_within(a, b, 0, &mut 0)
}

fn deep_equal_within(a: &Value, b: &Value, depth: usize, compared: &mut usize) -> bool {
    /// Maps that share what they hold can be small and still take for ever to compare.
    const MAX_COMPARED: usize = 1_000_000;
    *compared += 1;
    if *compared > MAX_COMPARED {
        return false;
    }
    /// Go remembers pairs it has begun to compare, so cycles end; here they end at this depth.
    const MAX_DEPTH: usize = 500;
    if depth > MAX_DEPTH {
        return true;
    }
    match (a, b) {
        (Value::Nil | Value::NoValue, Value::Nil | Value::NoValue) => true,
        (Value::List(a), Value::List(b)) => {
            a.same(b)
                || (a.type_of().same(b.type_of())
                    && a.is_nil() == b.is_nil()
                    && a.len() == b.len()
                    && a.iter().zip(b.iter()).all(|(a, b)| deep_equal_within(a, b, depth + 1, compared)))
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.same(b) {
                return true;
            }
            let (left, right) = (a.entries(), b.entries());
            a.type_of().same(b.type_of())
                && left.len() == right.len()
                && left.iter().zip(right.iter()).all(|((key_a, a), (key_b, b))| {
                    key_a == key_b && deep_equal_within(a, b, depth + 1, compared)
                })
        }
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Func(_), Value::Func(_)) => false,
        (Value::Object(a), Value::Object(b)) => {
            Rc::ptr_eq(a, b)
                || (a.type_name() == b.type_name()
                    && a.text() == b.text()
                    && same_fields(a.fields(), b.fields()))
        }
        (Value::Time(a), Value::Time(b)) => a.identical(b),
        _ => a.type_of().same(b.type_of()) && equal(a, b).unwrap_or(false),
    }
}
