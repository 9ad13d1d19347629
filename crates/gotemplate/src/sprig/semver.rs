//! Versions and constraints; their rules are the crate `semver-range`'s.

use std::any::Any;

use semver_range::{Constraint, Version};

use super::{Answer, text_arg};
use crate::context::{Context, Failure};
use crate::function::{Function, Signature};
use crate::value::{Object, Type, Value};

const S: Type = Type::String;

pub const FUNCTIONS: &[Function] = &[
    Function::new("semver", &[S], |_, args| Ok(Value::object(SemVer(version(args, 0)?)))),
    Function::new("semverCompare", &[S, S], compare),
];

fn version(args: &[Value], at: usize) -> Result<Version, Failure> {
    let text = String::from_utf8_lossy(text_arg(args, at));
    Version::parse(&text).map_err(|error| Failure::new(error.to_string()))
}

fn compare(_: &Context<'_>, args: &[Value]) -> Answer {
    let text = String::from_utf8_lossy(text_arg(args, 0));
    let constraint = Constraint::parse(&text).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Value::Bool(constraint.check(&version(args, 1)?)))
}

/// What `semver` returns: a `*semver.Version`, whose parts are methods.
struct SemVer(Version);

const POINTER: Type = Type::Struct("*semver.Version");

impl Object for SemVer {
    fn type_name(&self) -> &'static str {
        "*semver.Version"
    }

    fn marshal_text(&self) -> Option<String> {
        Some(self.0.to_string())
    }

    fn method(&self, name: &str) -> Option<Signature> {
        let params: &'static [Type] = match name {
            "Major" | "Minor" | "Patch" | "Prerelease" | "Metadata" | "Original" | "String" | "IncMajor"
            | "IncMinor" | "IncPatch" => &[],
            "Compare" | "LessThan" | "GreaterThan" | "Equal" | "LessThanEqual" | "GreaterThanEqual" => {
                &[POINTER]
            }
            "SetPrerelease" | "SetMetadata" => &[Type::String],
            _ => return None,
        };
        Some(Signature::new(params))
    }

    fn call(&self, _: &Context<'_>, name: &str, args: &[Value]) -> Answer {
        let version = &self.0;
        let made = |next: Option<Version>| match next {
            Some(next) => Ok(Value::object(SemVer(next))),
            None => Err(Failure::new("version out of range")),
        };
        let other = |args: &[Value]| match args.first().and_then(|arg| arg.downcast::<SemVer>()) {
            Some(other) => Ok(version.cmp(&other.0)),
            None => Err(Failure::new(super::NIL_DEREFERENCE)),
        };
        let text = String::from_utf8_lossy(text_arg(args, 0)).into_owned();
        Ok(match name {
            "Major" => Value::Uint64(version.major()),
            "Minor" => Value::Uint64(version.minor()),
            "Patch" => Value::Uint64(version.patch()),
            "Prerelease" => Value::from(version.prerelease()),
            "Metadata" => Value::from(version.metadata()),
            "Original" => Value::from(version.original()),
            "String" => Value::from(version.to_string()),
            "IncMajor" => return made(version.next_major()),
            "IncMinor" => return made(version.next_minor()),
            "IncPatch" => return made(version.next_patch()),
            "SetPrerelease" => {
                let next = version.with_prerelease(&text).map_err(|error| Failure::new(error.to_string()))?;
                Value::object(SemVer(next))
            }
            "SetMetadata" => {
                let next = version.with_metadata(&text).map_err(|error| Failure::new(error.to_string()))?;
                Value::object(SemVer(next))
            }
            "Compare" => Value::Int(other(args)? as i64),
            "LessThan" => Value::Bool(other(args)?.is_lt()),
            "GreaterThan" => Value::Bool(other(args)?.is_gt()),
            "Equal" => Value::Bool(other(args)?.is_eq()),
            "LessThanEqual" => Value::Bool(other(args)?.is_le()),
            "GreaterThanEqual" => Value::Bool(other(args)?.is_ge()),
            _ => return Err(Failure::new(format!("no method {name}"))),
        })
    }

    fn text(&self) -> Option<String> {
        Some(self.0.to_string())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
