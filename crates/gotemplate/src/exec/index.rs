//! `len`, `index` and `slice`.

use super::call::prepare;
use crate::context::{Context, Failure};
use crate::value::{List, Str, Type, Value};

pub fn len(value: &Value) -> Result<i64, Failure> {
    let length = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        Value::Object(object) if object.entries().is_some() => object.entries().map_or(0, |all| all.len()),
        Value::Nil => return Err(Failure::new("len of nil pointer")),
        Value::NoValue => return Err(Failure::new("reflect: call of reflect.Value.Type on zero Value")),
        other => return Err(Failure::new(format!("len of type {}", other.type_of()))),
    };
    Ok(length as i64)
}

pub fn index(value: &Value, indexes: &[Value]) -> Result<Value, Failure> {
    if value.is_nil() {
        return Err(Failure::new("index of untyped nil"));
    }
    let mut item = value.clone();
    for at in indexes {
        item = index_once(&item, at)?;
    }
    Ok(item)
}

fn index_once(item: &Value, at: &Value) -> Result<Value, Failure> {
    match item {
        Value::Nil | Value::NoValue => Err(Failure::new("index of nil pointer")),
        Value::List(list) => {
            let at = position(at, list.len())?;
            list.get(at).cloned().ok_or_else(|| Failure::new("reflect: slice index out of range"))
        }
        Value::Bytes(bytes) => {
            let at = position(at, bytes.len())?;
            let byte = bytes.get(at).ok_or_else(|| Failure::new("reflect: slice index out of range"))?;
            Ok(Value::Uint8(*byte))
        }
        Value::String(text) => {
            let at = position(at, text.len())?;
            let byte =
                text.as_bytes().get(at).ok_or_else(|| Failure::new("reflect: string index out of range"))?;
            Ok(Value::Uint8(*byte))
        }
        Value::Map(map) => match prepare(at, Type::String)? {
            Value::String(key) => {
                Ok(map.get_bytes(key.as_bytes()).unwrap_or_else(|| map.type_of().element().zero()))
            }
            other => Err(Failure::new(format!("value has type {}; should be string", other.type_of()))),
        },
        // Go has followed pointers by now.
        other => {
            let of = other.type_of().to_string();
            Err(Failure::new(format!("can't index item of type {}", of.trim_start_matches('*'))))
        }
    }
}

/// An index that is at most the length: one past the end is for the caller to refuse, as Go does.
fn position(at: &Value, length: usize) -> Result<usize, Failure> {
    let position = match (at.as_int(), at.as_uint()) {
        (Some(int), _) => int,
        (None, Some(uint)) => uint as i64,
        (None, None) if at.is_nil() => return Err(Failure::new("cannot index slice/array with nil")),
        (None, None) => {
            return Err(Failure::new(format!("cannot index slice/array with type {}", at.type_of())));
        }
    };
    match usize::try_from(position) {
        Ok(position) if position <= length => Ok(position),
        _ => Err(Failure::new(format!("index out of range: {position}"))),
    }
}

pub fn slice(ctx: &Context<'_>, item: &Value, indexes: &[Value]) -> Result<Value, Failure> {
    if item.is_nil() {
        return Err(Failure::new("slice of untyped nil"));
    }
    if indexes.len() > 3 {
        return Err(Failure::new(format!("too many slice indexes: {}", indexes.len())));
    }
    let length = match item {
        Value::String(_) if indexes.len() == 3 => return Err(Failure::new("cannot 3-index slice a string")),
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        other => return Err(Failure::new(format!("can't slice item of type {}", other.type_of()))),
    };
    let mut bounds = [0, length, 0];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, length)?;
    }
    let [from, to, most] = bounds;
    if from > to {
        return Err(Failure::new(format!("invalid slice index: {from} > {to}")));
    }
    if indexes.len() == 3 && to > most {
        return Err(Failure::new(format!("invalid slice index: {to} > {most}")));
    }
    ctx.charge((to - from) * std::mem::size_of::<Value>())?;
    Ok(match item {
        Value::String(text) => Value::String(Str::from(&text.as_bytes()[from..to])),
        Value::Bytes(bytes) => Value::Bytes(std::rc::Rc::new(bytes.slice(from..to))),
        Value::List(list) => Value::List(List::typed(list.type_of(), list[from..to].to_vec())),
        other => other.clone(),
    })
}
