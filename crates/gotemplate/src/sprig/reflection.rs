//! Types and kinds.

use super::text_arg;
use crate::exec::deep_equal;
use crate::function::Function;
use crate::value::{Type, Value};

const ANY: &[Type] = &[Type::Any];
const NAMED: &[Type] = &[Type::String, Type::Any];

pub const FUNCTIONS: &[Function] = &[
    Function::new("typeOf", ANY, |_, args| Ok(Value::from(type_of(&args[0])))),
    Function::new("typeIs", NAMED, |_, args| {
        Ok(Value::Bool(type_of(&args[1]).as_bytes() == text_arg(args, 0)))
    }),
    Function::new("typeIsLike", NAMED, |_, args| {
        let name = type_of(&args[1]);
        let target = text_arg(args, 0);
        let pointer = name.strip_prefix('*').is_some_and(|name| name.as_bytes() == target);
        Ok(Value::Bool(name.as_bytes() == target || pointer))
    }),
    Function::new("kindOf", ANY, |_, args| Ok(Value::from(args[0].kind().name()))),
    Function::new("kindIs", NAMED, |_, args| {
        Ok(Value::Bool(args[1].kind().name().as_bytes() == text_arg(args, 0)))
    }),
    Function::new("deepEqual", &[Type::Any, Type::Any], |_, args| {
        Ok(Value::Bool(deep_equal(&args[0], &args[1])))
    }),
];

/// `%T`, which is `<nil>` for a nil.
fn type_of(value: &Value) -> String {
    if value.is_nil() { "<nil>".to_owned() } else { value.type_of().to_string() }
}
