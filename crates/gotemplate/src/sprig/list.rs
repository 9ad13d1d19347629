//! Lists. Each function comes twice in sprig: the plain one panics where the `must` one returns an error, which a
//! template cannot tell apart.

use std::borrow::Cow;

use super::convert::{strval, to_int64};
use super::default::empty;
use super::{Answer, NIL_DEREFERENCE, int_arg};
use crate::context::{Context, Failure};
use crate::exec::deep_equal;
use crate::function::Function;
use crate::value::{List, Str, Type, Value};

const ANY: &[Type] = &[Type::Any];
const TWO: &[Type] = &[Type::Any, Type::Any];

pub const FUNCTIONS: &[Function] = &[
    Function::variadic("list", &[], Type::Any, list),
    Function::variadic("tuple", &[], Type::Any, list),
    Function::new("append", TWO, push),
    Function::new("push", TWO, push),
    Function::new("mustAppend", TWO, push),
    Function::new("mustPush", TWO, push),
    Function::new("prepend", TWO, prepend),
    Function::new("mustPrepend", TWO, prepend),
    Function::new("first", ANY, first),
    Function::new("mustFirst", ANY, first),
    Function::new("rest", ANY, rest),
    Function::new("mustRest", ANY, rest),
    Function::new("last", ANY, last),
    Function::new("mustLast", ANY, last),
    Function::new("initial", ANY, initial),
    Function::new("mustInitial", ANY, initial),
    Function::new("reverse", ANY, reverse),
    Function::new("mustReverse", ANY, reverse),
    Function::new("compact", ANY, compact),
    Function::new("mustCompact", ANY, compact),
    Function::new("uniq", ANY, uniq),
    Function::new("mustUniq", ANY, uniq),
    Function::variadic("without", ANY, Type::Any, without),
    Function::variadic("mustWithout", ANY, Type::Any, without),
    Function::new("has", TWO, has),
    Function::new("mustHas", TWO, has),
    Function::variadic("slice", ANY, Type::Any, slice),
    Function::variadic("mustSlice", ANY, Type::Any, slice),
    Function::variadic("concat", &[], Type::Any, concat),
    Function::new("chunk", &[Type::Int, Type::Any], chunk),
    Function::new("mustChunk", &[Type::Int, Type::Any], chunk),
    Function::new("sortAlpha", ANY, sort_alpha),
];

/// The elements of a slice of any type.
fn elements(value: &Value) -> Option<Cow<'_, [Value]>> {
    match value {
        Value::List(list) => Some(Cow::Borrowed(list)),
        Value::Bytes(bytes) => Some(Cow::Owned(bytes.iter().map(|&byte| Value::Uint8(byte)).collect())),
        _ => None,
    }
}

/// The elements, or sprig's complaint that this is no list.
fn listed<'v>(value: &'v Value, complaint: &str) -> Result<Cow<'v, [Value]>, Failure> {
    if value.is_nil() {
        return Err(Failure::new(NIL_DEREFERENCE));
    }
    elements(value).ok_or_else(|| Failure::new(format!("{complaint} {}", value.kind().name())))
}

fn made(ctx: &Context<'_>, items: Vec<Value>) -> Answer {
    ctx.charge(items.len() * std::mem::size_of::<Value>())?;
    ctx.work(items.len() as u64 / 2)?;
    Ok(Value::list(items))
}

fn list(ctx: &Context<'_>, args: &[Value]) -> Answer {
    made(ctx, args.to_vec())
}

fn push(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let items = listed(&args[0], "Cannot push on type")?;
    made(ctx, items.iter().chain([&args[1]]).cloned().collect())
}

fn prepend(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let items = listed(&args[0], "Cannot prepend on type")?;
    made(ctx, [&args[1]].into_iter().chain(items.iter()).cloned().collect())
}

fn first(_: &Context<'_>, args: &[Value]) -> Answer {
    Ok(listed(&args[0], "Cannot find first on type")?.first().cloned().unwrap_or(Value::Nil))
}

fn last(_: &Context<'_>, args: &[Value]) -> Answer {
    Ok(listed(&args[0], "Cannot find last on type")?.last().cloned().unwrap_or(Value::Nil))
}

/// sprig answers an empty list with a nil one here.
fn nil_list() -> Answer {
    Ok(Value::List(List::nil(Type::LIST)))
}

fn rest(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let items = listed(&args[0], "Cannot find rest on type")?;
    if items.is_empty() {
        return nil_list();
    }
    made(ctx, items.iter().skip(1).cloned().collect())
}

fn initial(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let items = listed(&args[0], "Cannot find initial on type")?;
    if items.is_empty() {
        return nil_list();
    }
    made(ctx, items.iter().take(items.len().saturating_sub(1)).cloned().collect())
}

fn reverse(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let items = listed(&args[0], "Cannot find reverse on type")?;
    made(ctx, items.iter().rev().cloned().collect())
}

fn compact(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let items = listed(&args[0], "Cannot compact on type")?;
    made(ctx, items.iter().filter(|item| !empty(item)).cloned().collect())
}

/// Whether a list holds an equal value. Comparing is what makes `uniq` slow, so it is counted.
fn holds(ctx: &Context<'_>, haystack: &[Value], needle: &Value) -> Result<bool, Failure> {
    ctx.work(haystack.len() as u64 / 2)?;
    Ok(haystack.iter().any(|item| deep_equal(needle, item)))
}

fn uniq(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let mut kept: Vec<Value> = Vec::new();
    for item in listed(&args[0], "Cannot find uniq on type")?.iter() {
        if !holds(ctx, &kept, item)? {
            kept.push(item.clone());
        }
    }
    made(ctx, kept)
}

fn without(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let mut kept = Vec::new();
    for item in listed(&args[0], "Cannot find without on type")?.iter() {
        if !holds(ctx, &args[1..], item)? {
            kept.push(item.clone());
        }
    }
    made(ctx, kept)
}

fn has(ctx: &Context<'_>, args: &[Value]) -> Answer {
    if args[1].is_nil() {
        return Ok(Value::Bool(false));
    }
    let items = listed(&args[1], "Cannot find has on type")?;
    Ok(Value::Bool(holds(ctx, &items, &args[0])?))
}

fn slice(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let items = listed(&args[0], "list should be type of slice or array but")?;
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let from = args.get(1).map_or(0, to_int64);
    let to = args.get(2).map_or(items.len() as i64, to_int64);
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let Some(part) = range.and_then(|(from, to)| items.get(from..to)) else {
        return Err(Failure::new("reflect.Value.Slice: slice index out of bounds"));
    };
    if let Value::Bytes(bytes) = &args[0] {
        return Ok(Value::Bytes(std::rc::Rc::new(bytes.slice(from as usize..to as usize))));
    }
    ctx.charge(std::mem::size_of_val(part))?;
    Ok(Value::List(List::typed(args[0].type_of(), part.to_vec())))
}

fn concat(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let mut all = Vec::new();
    for arg in args {
        if arg.is_nil() {
            return Err(Failure::new(NIL_DEREFERENCE));
        }
        let items = elements(arg)
            .ok_or_else(|| Failure::new(format!("Cannot concat type {} as list", arg.kind().name())))?;
        all.extend(items.iter().cloned());
    }
    if all.is_empty() { nil_list() } else { made(ctx, all) }
}

fn chunk(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let size = int_arg(args, 0);
    let items = listed(&args[1], "Cannot chunk type")?;
    let Some(size) = usize::try_from(size).ok().filter(|&size| size > 0) else {
        return odd_chunks(size, &items);
    };
    ctx.charge(items.len() * std::mem::size_of::<Value>())?;
    let chunks = items.chunks(size).map(|chunk| Value::list(chunk.to_vec())).collect();
    Ok(Value::List(List::typed(OF_LISTS, chunks)))
}

const OF_LISTS: Type = Type::Slice(&Type::LIST);

/// Sizes below one: sprig divides in floating point and asks Go for that many chunks.
fn odd_chunks(size: i64, items: &[Value]) -> Answer {
    let count = ((items.len() as f64 - 1.0) / size as f64).floor() + 1.0;
    let chunks = match items {
        [only] if size < 0 => vec![Value::list(vec![only.clone()])],
        [_, _, ..] if count == 0.0 => Vec::new(),
        _ => return Err(Failure::new("runtime error: makeslice: len out of range")),
    };
    Ok(Value::List(List::typed(OF_LISTS, chunks)))
}

fn sort_alpha(ctx: &Context<'_>, args: &[Value]) -> Answer {
    if elements(&args[0]).is_none() {
        return Ok(Value::strings([Str::from(&*strval(&args[0]))]));
    }
    let mut texts = texts(&args[0]);
    ctx.charge(texts.len() * 16)?;
    ctx.work(texts.len() as u64)?;
    texts.sort();
    Ok(Value::strings(texts))
}

/// sprig's `strslice`: the elements of a list as text, without nils; anything else as a list of one.
pub fn texts(value: &Value) -> Vec<Str> {
    if value.is_nil() {
        return Vec::new();
    }
    match elements(value) {
        None => vec![as_text(value)],
        Some(items) => items.iter().filter(|item| !item.is_nil()).map(as_text).collect(),
    }
}

fn as_text(value: &Value) -> Str {
    match value {
        Value::String(text) => text.clone(),
        other => Str::from(&*strval(other)),
    }
}
