//! Emptiness and choice.

use super::Answer;
use crate::context::Context;
use crate::function::Function;
use crate::value::{Type, Value};

const ANY: &[Type] = &[Type::Any];

pub const FUNCTIONS: &[Function] = &[
    Function::variadic("default", ANY, Type::Any, |_, args| {
        Ok(args.get(1).filter(|given| !empty(given)).unwrap_or(&args[0]).clone())
    }),
    Function::new("empty", ANY, |_, args| Ok(Value::Bool(empty(&args[0])))),
    Function::variadic("coalesce", &[], Type::Any, |_, args| {
        Ok(args.iter().find(|arg| !empty(arg)).cloned().unwrap_or(Value::Nil))
    }),
    Function::variadic("all", &[], Type::Any, |_, args| Ok(Value::Bool(!args.iter().any(empty)))),
    Function::variadic("any", &[], Type::Any, |_, args| Ok(Value::Bool(args.iter().any(|arg| !empty(arg))))),
    Function::new("ternary", &[Type::Any, Type::Any, Type::Bool], ternary),
];

/// The zero or empty value of its type; structs are never empty.
pub fn empty(value: &Value) -> bool {
    !value.truth()
}

fn ternary(_: &Context<'_>, args: &[Value]) -> Answer {
    Ok(if args[2].truth() { args[0].clone() } else { args[1].clone() })
}
