//! Go's predefined functions.

use super::{compare, escape, index};
use crate::context::{Context, Failure};
use crate::fmt;
use crate::function::Signature;
use crate::value::{Type, Value};

/// One of the functions every Go template has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builtin {
    And,
    Or,
    Not,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Len,
    Index,
    Slice,
    Call,
    Print,
    Printf,
    Println,
    Html,
    Js,
    UrlQuery,
}

const ALL: [Builtin; 19] = [
    Builtin::And,
    Builtin::Or,
    Builtin::Not,
    Builtin::Eq,
    Builtin::Ne,
    Builtin::Lt,
    Builtin::Le,
    Builtin::Gt,
    Builtin::Ge,
    Builtin::Len,
    Builtin::Index,
    Builtin::Slice,
    Builtin::Call,
    Builtin::Print,
    Builtin::Printf,
    Builtin::Println,
    Builtin::Html,
    Builtin::Js,
    Builtin::UrlQuery,
];

impl Builtin {
    pub fn find(name: &str) -> Option<Self> {
        ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::And => "and",
            Self::Or => "or",
            Self::Not => "not",
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Lt => "lt",
            Self::Le => "le",
            Self::Gt => "gt",
            Self::Ge => "ge",
            Self::Len => "len",
            Self::Index => "index",
            Self::Slice => "slice",
            Self::Call => "call",
            Self::Print => "print",
            Self::Printf => "printf",
            Self::Println => "println",
            Self::Html => "html",
            Self::Js => "js",
            Self::UrlQuery => "urlquery",
        }
    }

    pub(super) fn signature(self) -> Signature {
        match self {
            Self::And | Self::Or | Self::Eq | Self::Index | Self::Slice | Self::Call => {
                Signature::variadic(&[Type::Reflect], Type::Reflect)
            }
            Self::Not | Self::Len => Signature::new(&[Type::Reflect]),
            Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => {
                Signature::new(&[Type::Reflect, Type::Reflect])
            }
            Self::Print | Self::Println | Self::Html | Self::Js | Self::UrlQuery => {
                Signature::variadic(&[], Type::Any)
            }
            Self::Printf => Signature::variadic(&[Type::String], Type::Any),
        }
    }

    pub(super) fn call(self, ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
        let room = ctx.session().limits().value_bytes;
        let text = |bytes: Vec<u8>| -> Result<Value, Failure> {
            ctx.charge(bytes.len())?;
            ctx.work(bytes.len() as u64 / 32)?;
            Ok(Value::String(bytes.into()))
        };
        match self {
            // These three are handled where they are called.
            Self::And | Self::Or | Self::Call => Err(Failure::new("unreachable")),
            Self::Not => Ok(Value::Bool(!args[0].truth())),
            Self::Eq => compare::eq(&args[0], &args[1..]).map(Value::Bool),
            Self::Ne => compare::eq(&args[0], &args[1..]).map(|equal| Value::Bool(!equal)),
            Self::Lt => compare::lt(&args[0], &args[1]).map(Value::Bool),
            Self::Le => compare::le(&args[0], &args[1]).map(Value::Bool),
            Self::Gt => compare::le(&args[0], &args[1]).map(|le| Value::Bool(!le)),
            Self::Ge => compare::lt(&args[0], &args[1]).map(|lt| Value::Bool(!lt)),
            Self::Len => index::len(&args[0]).map(Value::Int),
            Self::Index => index::index(&args[0], &args[1..]),
            Self::Slice => index::slice(ctx, &args[0], &args[1..]),
            Self::Print => text(fmt::sprint(args, room)?),
            Self::Println => text(fmt::sprintln(args, room)?),
            Self::Printf => match &args[0] {
                Value::String(format) => text(fmt::sprintf(format.as_bytes(), &args[1..], room)?),
                _ => Err(Failure::new("printf without a format")),
            },
            Self::Html => text(escape::html(&joined(args, room)?)),
            Self::Js => text(escape::js(&joined(args, room)?)),
            Self::UrlQuery => text(escape::query_escape(&joined(args, room)?)),
        }
    }
}

/// The arguments of an escaper as one text. A nil is `<no value>` here.
fn joined(args: &[Value], room: usize) -> Result<Vec<u8>, Failure> {
    if let [Value::String(text)] = args {
        return Ok(text.as_bytes().to_vec());
    }
    let shown: Vec<Value> =
        args.iter().map(|arg| if arg.is_nil() { Value::from("<no value>") } else { arg.clone() }).collect();
    Ok(fmt::sprint(&shown, room)?)
}
