//! Go types, as far as a template can see them: in `typeOf`, `%T`, in error texts, and in what an argument accepts.

use std::fmt;

use super::{Map, Value};
use crate::context::{Context, Failure};
use crate::function::Signature;

/// A Go type.
#[derive(Clone, Copy)]
pub enum Type {
    /// `interface {}`
    Any,
    /// `reflect.Value`, which takes anything, even no value at all. Only Go's builtin functions have it.
    Reflect,
    Bool,
    Int,
    Int32,
    Int64,
    Uint8,
    Uint32,
    Uint64,
    Float64,
    Complex128,
    String,
    Slice(&'static Type),
    /// A map with string keys.
    Map(&'static Type),
    Time,
    Duration,
    Error,
    Func(&'static str),
    /// A struct, or a pointer to one, by its Go name (`*semver.Version`).
    Struct(&'static str),
    Named(&'static Named),
}

/// A named Go type with another type underneath, such as Helm's `common.Values`.
pub struct Named {
    pub name: &'static str,
    pub underlying: Type,
    pub methods: Option<&'static dyn Methods>,
}

/// The methods of a named map or slice type.
pub trait Methods: Sync {
    /// The parameters of a method, or nothing if there is no such method.
    fn method(&self, name: &str) -> Option<Signature>;
    /// Calls it; `receiver` is the map or list, `name` one that [`Methods::method`] knows.
    fn call(&self, ctx: &Context<'_>, receiver: &Value, name: &str, args: &[Value])
    -> Result<Value, Failure>;
    /// The answer of a `String()` or `Error()` method, which printing prefers.
    fn text(&self, receiver: &Value) -> Option<String> {
        let _ = receiver;
        None
    }
}

/// Go's `reflect.Kind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Invalid,
    Bool,
    Int,
    Int32,
    Int64,
    Uint8,
    Uint32,
    Uint64,
    Float64,
    Complex128,
    String,
    Slice,
    Map,
    Struct,
    Pointer,
    Func,
    Interface,
}

impl Kind {
    /// The kind's name, as `kindOf` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Float64 => "float64",
            Self::Complex128 => "complex128",
            Self::String => "string",
            Self::Slice => "slice",
            Self::Map => "map",
            Self::Struct => "struct",
            Self::Pointer => "ptr",
            Self::Func => "func",
            Self::Interface => "interface",
        }
    }
}

impl Type {
    /// `[]interface {}`
    pub const LIST: Type = Type::Slice(&Type::Any);
    /// `[]string`
    pub const STRINGS: Type = Type::Slice(&Type::String);
    /// `[]int`
    pub const INTS: Type = Type::Slice(&Type::Int);
    /// `[]uint8`, which is also `[]byte`
    pub const BYTES: Type = Type::Slice(&Type::Uint8);
    /// `map[string]interface {}`
    pub const MAP: Type = Type::Map(&Type::Any);
    /// `map[string]string`
    pub const STRING_MAP: Type = Type::Map(&Type::String);

    pub fn kind(self) -> Kind {
        match self {
            Self::Any | Self::Error => Kind::Interface,
            Self::Reflect | Self::Time => Kind::Struct,
            Self::Bool => Kind::Bool,
            Self::Int => Kind::Int,
            Self::Int32 => Kind::Int32,
            Self::Int64 | Self::Duration => Kind::Int64,
            Self::Uint8 => Kind::Uint8,
            Self::Uint32 => Kind::Uint32,
            Self::Uint64 => Kind::Uint64,
            Self::Float64 => Kind::Float64,
            Self::Complex128 => Kind::Complex128,
            Self::String => Kind::String,
            Self::Slice(_) => Kind::Slice,
            Self::Map(_) => Kind::Map,
            Self::Func(_) => Kind::Func,
            Self::Struct(name) if name.starts_with('*') => Kind::Pointer,
            Self::Struct(_) => Kind::Struct,
            Self::Named(named) => named.underlying.kind(),
        }
    }

    /// Whether an untyped nil can be given for it.
    pub fn can_be_nil(self) -> bool {
        matches!(self, Self::Reflect)
            || matches!(self.kind(), Kind::Interface | Kind::Map | Kind::Slice | Kind::Pointer | Kind::Func)
    }

    /// Whether a value of this type can be given for `target`.
    pub fn assignable_to(self, target: Type) -> bool {
        match target {
            Self::Any | Self::Reflect => true,
            _ if self.same(target) => true,
            // A named type and its unnamed underlying type can be assigned to each other.
            Self::Named(named) => !named.underlying.is_basic() && self.same(named.underlying),
            _ => match self {
                Self::Named(named) => !named.underlying.is_basic() && named.underlying.same(target),
                _ => false,
            },
        }
    }

    /// Whether values of this type are held in an interface.
    pub fn is_interface(self) -> bool {
        matches!(self, Self::Any | Self::Error)
    }

    /// Whether it is a pointer to `target`.
    pub(crate) fn points_to(self, target: Type) -> bool {
        match (self, target) {
            (Self::Struct(pointer), Self::Struct(name)) => pointer.strip_prefix('*') == Some(name),
            _ => false,
        }
    }

    /// The type of the elements of a slice or map.
    pub fn element(self) -> Type {
        match self {
            Self::Slice(element) | Self::Map(element) => *element,
            Self::Named(named) => named.underlying.element(),
            _ => Self::Any,
        }
    }

    /// The methods of a named type.
    pub fn methods(self) -> Option<&'static dyn Methods> {
        match self {
            Self::Named(named) => named.methods,
            _ => None,
        }
    }

    /// Whether it is the same type.
    pub fn same(self, other: Type) -> bool {
        match (self, other) {
            (Self::Slice(a), Self::Slice(b)) | (Self::Map(a), Self::Map(b)) => a.same(*b),
            (Self::Struct(a), Self::Struct(b)) | (Self::Func(a), Self::Func(b)) => a == b,
            (Self::Named(a), Self::Named(b)) => a.name == b.name,
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }

    /// Predeclared types are themselves named, so a named string is not assignable to a string.
    fn is_basic(self) -> bool {
        !matches!(self, Self::Slice(_) | Self::Map(_) | Self::Func(_))
    }

    /// The zero value, as a missing key of a typed map gives it.
    pub fn zero(self) -> Value {
        match self {
            Self::Any | Self::Error | Self::Reflect | Self::Struct(_) | Self::Func(_) | Self::Time => {
                Value::Nil
            }
            Self::Bool => Value::Bool(false),
            Self::Int => Value::Int(0),
            Self::Int32 => Value::Int32(0),
            Self::Int64 => Value::Int64(0),
            Self::Uint8 => Value::Uint8(0),
            Self::Uint32 => Value::Uint32(0),
            Self::Uint64 => Value::Uint64(0),
            Self::Float64 => Value::Float64(0.0),
            Self::Complex128 => Value::Complex(Box::new((0.0, 0.0))),
            Self::String => Value::String(super::Str::default()),
            Self::Slice(Type::Uint8) => Value::Bytes(std::rc::Rc::default()),
            Self::Slice(_) => Value::List(super::List::typed(self, Vec::new())),
            Self::Map(_) => Value::Map(Map::typed(self, super::MapEntries::new())),
            Self::Duration => Value::Duration(crate::time::Duration(0)),
            Self::Named(named) => match named.underlying {
                Self::Slice(_) => Value::List(super::List::typed(self, Vec::new())),
                Self::Map(_) => Value::Map(Map::typed(self, super::MapEntries::new())),
                other => other.zero(),
            },
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("interface {}"),
            Self::Reflect => f.write_str("reflect.Value"),
            Self::Slice(element) => write!(f, "[]{element}"),
            Self::Map(element) => write!(f, "map[string]{element}"),
            Self::Time => f.write_str("time.Time"),
            Self::Duration => f.write_str("time.Duration"),
            Self::Error => f.write_str("error"),
            Self::Func(name) | Self::Struct(name) => f.write_str(name),
            Self::Named(named) => f.write_str(named.name),
            basic => f.write_str(basic.kind().name()),
        }
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Value {
    /// The value's own Go type; nil has none and answers `interface {}`.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Nil | Self::NoValue => Type::Any,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Int32(_) => Type::Int32,
            Self::Int64(_) => Type::Int64,
            Self::Uint8(_) => Type::Uint8,
            Self::Uint32(_) => Type::Uint32,
            Self::Uint64(_) => Type::Uint64,
            Self::Float64(_) => Type::Float64,
            Self::Complex(_) => Type::Complex128,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::BYTES,
            Self::List(list) => list.type_of(),
            Self::Map(map) => map.type_of(),
            Self::Time(_) => Type::Time,
            Self::Duration(_) => Type::Duration,
            Self::Func(func) => Type::Func(func.type_name),
            Self::Object(object) => Type::Struct(object.type_name()),
        }
    }

    /// The value's Go kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Nil | Self::NoValue => Kind::Invalid,
            other => other.type_of().kind(),
        }
    }
}
