//! Lists and sets.

use std::cmp::Ordering;
use std::collections::HashSet;

use crate::EvalError;
use crate::eval::Answer;
use crate::value::{List, Value};

pub(super) fn call<'a>(name: &str, is_method: bool, values: &[Value<'a>]) -> Option<Answer<'a>> {
    match (name, is_method, values) {
        ("size", _, [Value::List(list)]) => Some(Ok(Value::Int(list.len() as i64))),
        ("size", _, [Value::Map(map)]) => Some(Ok(Value::Int(map.len() as i64))),
        ("lists.range", false, [Value::Int(count)]) => Some(range(*count)),
        ("sets.contains", false, [Value::List(all), Value::List(some)]) => {
            Some(Ok(Value::Bool(contains(all, some))))
        }
        ("sets.equivalent", false, [Value::List(left), Value::List(right)]) => {
            Some(Ok(Value::Bool(contains(left, right) && contains(right, left))))
        }
        ("sets.intersects", false, [Value::List(left), Value::List(right)]) => {
            Some(Ok(Value::Bool(right.iter().any(|item| has(left, &item)))))
        }
        (_, true, [Value::List(list), args @ ..]) => method(name, list, args),
        _ => None,
    }
}

fn method<'a>(name: &str, list: &List<'a>, args: &[Value<'a>]) -> Option<Answer<'a>> {
    let at = |index: Option<usize>| Ok(Value::Int(index.map_or(-1, |index| index as i64)));
    Some(match (name, args) {
        ("isSorted", []) => {
            let items: Vec<Value<'a>> = list.iter().collect();
            must_be_ordered(&items)
                .map(|()| Value::Bool(items.windows(2).all(|pair| !is_less(&pair[1], &pair[0]))))
        }
        ("sum", []) => sum(list),
        ("min", []) => extreme(list, "min", Ordering::Less),
        ("max", []) => extreme(list, "max", Ordering::Greater),
        ("indexOf", [item]) => at(list.iter().position(|other| other.equals(item))),
        ("lastIndexOf", [item]) => {
            let items: Vec<Value<'a>> = list.iter().collect();
            at(items.iter().rposition(|other| other.equals(item)))
        }
        ("first", []) => Ok(Value::Optional(list.get(0).map(Box::new))),
        ("last", []) => {
            Ok(Value::Optional(list.len().checked_sub(1).and_then(|last| list.get(last)).map(Box::new)))
        }
        ("slice", [Value::Int(start), Value::Int(end)]) => slice(list, *start, *end),
        ("flatten", []) => flatten(list, 1).map(Value::list),
        ("flatten", [Value::Int(depth)]) if *depth < 0 => {
            Err(EvalError::message("level must be non-negative"))
        }
        ("flatten", [Value::Int(depth)]) => flatten(list, (*depth).min(64) as usize).map(Value::list),
        ("distinct", []) => Ok(Value::list(distinct(list))),
        ("reverse", []) => {
            let mut items: Vec<Value<'a>> = list.iter().collect();
            items.reverse();
            Ok(Value::list(items))
        }
        ("sort", []) => {
            let mut items: Vec<Value<'a>> = list.iter().collect();
            must_be_ordered(&items).map(|()| {
                items.sort_by(|left, right| left.compare(right).unwrap_or(Ordering::Equal));
                Value::list(items)
            })
        }
        _ => return None,
    })
}

fn is_less(left: &Value<'_>, right: &Value<'_>) -> bool {
    left.compare(right) == Some(Ordering::Less)
}

/// Sorting needs items of one type that has an order.
pub(crate) fn must_be_ordered(items: &[Value<'_>]) -> Result<(), EvalError> {
    let Some(first) = items.first() else { return Ok(()) };
    if first.compare(first).is_none() || items.iter().any(|item| item.type_name() != first.type_name()) {
        return Err(EvalError::message("list elements must have the same type and be comparable"));
    }
    Ok(())
}

fn sum<'a>(list: &List<'a>) -> Answer<'a> {
    let mut items = list.iter();
    let Some(first) = items.next() else { return Ok(Value::Int(0)) };
    items.try_fold(first, |sum, item| {
        super::numbers::operator("_+_", &[sum, item]).unwrap_or(Err(EvalError::NoSuchOverload))
    })
}

fn extreme<'a>(list: &List<'a>, name: &str, wanted: Ordering) -> Answer<'a> {
    let mut items = list.iter();
    let first = items.next().ok_or_else(|| EvalError::message(format!("{name} called on empty list")))?;
    items.try_fold(first, |best, item| {
        let order = item.compare(&best).ok_or(EvalError::NoSuchOverload)?;
        Ok(if order == wanted { item } else { best })
    })
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Answer<'a> {
    let length = list.len() as i64;
    if start < 0 || end < 0 {
        return Err(EvalError::message(format!(
            "cannot slice({start}, {end}), negative indexes not supported"
        )));
    }
    if start > end {
        return Err(EvalError::message(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        )));
    }
    if end > length {
        return Err(EvalError::message(format!("cannot slice({start}, {end}), list is length {length}")));
    }
    Ok(Value::list(list.iter().skip(start as usize).take((end - start) as usize).collect()))
}

fn flatten<'a>(list: &List<'a>, depth: usize) -> Result<Vec<Value<'a>>, EvalError> {
    let mut out = Vec::new();
    for item in list.iter() {
        match item {
            Value::List(inner) if depth > 0 => out.extend(flatten(&inner, depth - 1)?),
            other => out.push(other),
        }
    }
    Ok(out)
}

fn distinct<'a>(list: &List<'a>) -> Vec<Value<'a>> {
    let mut seen = HashSet::new();
    let mut out: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        let new = match item.to_key() {
            Some(key) => seen.insert(key.to_string() + item.type_name()),
            None => !out.iter().any(|other| other.equals(&item)),
        };
        if new {
            out.push(item);
        }
    }
    out
}

fn range<'a>(count: i64) -> Answer<'a> {
    const MAX: i64 = 100_000;
    if count > MAX {
        return Err(EvalError::CostLimit);
    }
    Ok(Value::list((0..count.max(0)).map(Value::Int).collect()))
}

fn has(list: &List<'_>, item: &Value<'_>) -> bool {
    list.iter().any(|other| other.equals(item))
}

fn contains(all: &List<'_>, some: &List<'_>) -> bool {
    some.iter().all(|item| has(all, &item))
}
