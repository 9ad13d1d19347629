//! Dictionaries. `set`, `unset` and `merge` change the map they are given: whoever else holds it sees the change.

use super::convert::strval;
use super::merge::{Overwrite, merge};
use super::{Answer, map_arg, text_arg};
use crate::context::{Context, Failure};
use crate::function::Function;
use crate::value::{Map, MapEntries, Str, Type, Value};

const M: Type = Type::MAP;
const S: Type = Type::String;

pub const FUNCTIONS: &[Function] = &[
    Function::variadic("dict", &[], Type::Any, dict),
    Function::new("get", &[M, S], get),
    Function::new("set", &[M, S, Type::Any], set),
    Function::new("unset", &[M, S], unset),
    Function::new("hasKey", &[M, S], |_, args| {
        Ok(Value::Bool(map_arg(args, 0).is_some_and(|map| map.entries().contains_key(text_arg(args, 1)))))
    }),
    Function::variadic("pluck", &[S], M, pluck),
    Function::variadic("keys", &[], M, keys),
    Function::new("values", &[M], |_, args| {
        Ok(Value::list(
            map_arg(args, 0).map(|map| map.entries().values().cloned().collect()).unwrap_or_default(),
        ))
    }),
    Function::variadic("pick", &[M], S, |_, args| filtered(args, true)),
    Function::variadic("omit", &[M], S, |_, args| filtered(args, false)),
    Function::variadic("merge", &[M], M, |ctx, args| merged(ctx, args, Overwrite::No)),
    Function::variadic("mustMerge", &[M], M, |ctx, args| merged(ctx, args, Overwrite::No)),
    Function::variadic("mergeOverwrite", &[M], M, |ctx, args| merged(ctx, args, Overwrite::Yes)),
    Function::variadic("mustMergeOverwrite", &[M], M, |ctx, args| merged(ctx, args, Overwrite::Yes)),
    Function::new("deepCopy", &[Type::Any], deep_copy),
    Function::new("mustDeepCopy", &[Type::Any], deep_copy),
    Function::variadic("dig", &[], Type::Any, dig),
];

fn dict(ctx: &Context<'_>, args: &[Value]) -> Answer {
    ctx.charge(args.len() * 48)?;
    let mut entries = MapEntries::new();
    for pair in args.chunks(2) {
        let key = match &pair[0] {
            Value::String(key) => key.clone(),
            other => Str::from(&*strval(other)),
        };
        entries.insert(key, pair.get(1).cloned().unwrap_or_else(|| Value::from("")));
    }
    Ok(Value::Map(Map::typed(Type::MAP, entries)))
}

fn get(_: &Context<'_>, args: &[Value]) -> Answer {
    let found = map_arg(args, 0).and_then(|map| map.get_bytes(text_arg(args, 1)));
    Ok(found.unwrap_or_else(|| Value::from("")))
}

fn set(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let (Some(map), Value::String(key)) = (map_arg(args, 0), &args[1]) else {
        return Err(Failure::new("assignment to entry in nil map"));
    };
    if map.is_nil() {
        return Err(Failure::new("assignment to entry in nil map"));
    }
    ctx.session().grow(key.len() + 80)?;
    ctx.session().grew(map, &args[2]);
    map.set(key.clone(), args[2].clone());
    Ok(plain(map))
}

fn unset(_: &Context<'_>, args: &[Value]) -> Answer {
    match map_arg(args, 0) {
        Some(map) => {
            map.unset_bytes(text_arg(args, 1));
            Ok(plain(map))
        }
        None => Ok(Value::map::<Str>([])),
    }
}

/// The same map. A named type such as Helm's values is lost on the way through a parameter, and with it its methods;
/// a template cannot tell unless it asks for the type.
fn plain(map: &Map) -> Value {
    Value::Map(map.clone())
}

fn pluck(_: &Context<'_>, args: &[Value]) -> Answer {
    let key = text_arg(args, 0);
    Ok(Value::list(args[1..].iter().filter_map(|map| map.as_map()?.get_bytes(key)).collect()))
}

/// Go's order is random; this one is sorted.
fn keys(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let keys: Vec<Str> = args
        .iter()
        .filter_map(Value::as_map)
        .flat_map(|map| map.entries().keys().cloned().collect::<Vec<_>>())
        .collect();
    ctx.charge(keys.len() * 24)?;
    Ok(Value::strings(keys))
}

/// `pick` keeps the named keys, `omit` all others.
fn filtered(args: &[Value], keeps: bool) -> Answer {
    let named = |key: &Str| args[1..].iter().any(|name| matches!(name, Value::String(name) if name == key));
    let entries = match map_arg(args, 0) {
        Some(map) => {
            let entries = map.entries();
            entries
                .iter()
                .filter(|(key, _)| named(key) == keeps)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect()
        }
        None => MapEntries::new(),
    };
    Ok(Value::Map(Map::typed(Type::MAP, entries)))
}

fn merged(ctx: &Context<'_>, args: &[Value], overwrite: Overwrite) -> Answer {
    let target = map_arg(args, 0).cloned().unwrap_or_default();
    for source in args[1..].iter().filter_map(Value::as_map) {
        merge(ctx, &target, source, overwrite, 0)?;
    }
    Ok(plain(&target))
}

fn deep_copy(ctx: &Context<'_>, args: &[Value]) -> Answer {
    if args[0].is_nil() {
        return Err(Failure::new("reflect: call of reflect.Value.Type on zero Value"));
    }
    count(ctx, &args[0], 0)?;
    Ok(args[0].deep_copy())
}

/// Charges for a copy before it is made.
fn count(ctx: &Context<'_>, value: &Value, depth: usize) -> Result<(), Failure> {
    const MAX_DEPTH: usize = 500;
    if depth > MAX_DEPTH {
        return Err(crate::error::Limit::Nesting(MAX_DEPTH).into());
    }
    ctx.work(1)?;
    match value {
        Value::List(list) => {
            ctx.session().grow(list.len() * std::mem::size_of::<Value>())?;
            list.iter().try_for_each(|item| count(ctx, item, depth + 1))
        }
        Value::Map(map) => {
            ctx.session().grow(map.len() * 80)?;
            map.entries().values().try_for_each(|item| count(ctx, item, depth + 1))
        }
        _ => Ok(()),
    }
}

fn dig(_: &Context<'_>, args: &[Value]) -> Answer {
    let [path @ .., default, dict] = args else {
        return Err(Failure::new("dig needs at least three arguments"));
    };
    if path.is_empty() {
        return Err(Failure::new("dig needs at least three arguments"));
    }
    let mut current = dig_map(dict)?;
    for (at, key) in path.iter().enumerate() {
        if !matches!(key, Value::String(_)) {
            return Err(conversion(key, "string"));
        }
        let found = current.get_bytes(text_arg(path, at));
        match found {
            None => return Ok(default.clone()),
            Some(value) if at + 1 == path.len() => return Ok(value),
            Some(value) => current = dig_map(&value)?,
        }
    }
    Ok(default.clone())
}

fn dig_map(value: &Value) -> Result<Map, Failure> {
    match value {
        // A type assertion wants exactly this type: Helm's named values are not one.
        Value::Map(map) if map.type_of().same(Type::MAP) => Ok(map.clone()),
        other => Err(conversion(other, "map[string]interface {}")),
    }
}

fn conversion(value: &Value, wanted: &str) -> Failure {
    let given = if value.is_nil() { "nil".to_owned() } else { value.type_of().to_string() };
    Failure::new(format!("interface conversion: interface {{}} is {given}, not {wanted}"))
}
