//! The values a template computes with: Go's kinds where a template can tell them apart, and no others.
//!
//! Maps are shared and mutable, since `set`, `unset` and `merge` change a map that other names still point to. Lists
//! are shared but never change: no function of Go, sprig or Helm changes one in place. Rendering is single-threaded,
//! so containers are `Rc`; strings are `Arc`, because parsed templates hold them too and travel between threads.
//! Numbers keep their Go type, because `eq 1 1.0` is an error and `printf "%d" 1.0` says so.

mod json;
mod list;
mod map;
mod object;
mod teardown;
mod text;
mod type_of;

use std::rc::Rc;

use crate::time::{Duration, Time};

pub use json::{Numbers, ToJsonError};
pub use list::List;
pub(crate) use list::ListHandle;
pub(crate) use map::MapHandle;
pub use map::{Map, MapEntries};
pub use object::{Func, Object, Sequence, Yield};
pub use text::Str;
pub use type_of::{Kind, Methods, Named, Type};

/// One value, as a Go template sees it.
#[derive(Clone, Default)]
pub enum Value {
    /// A nil interface: `null` in values, the literal `nil`. Prints `<nil>` inside other values.
    #[default]
    Nil,
    /// Go's invalid `reflect.Value`: a key that is not there. Prints `<no value>`. Functions never get it, except
    /// through parameters of type [`Type::Reflect`].
    NoValue,
    Bool(bool),
    /// Go's `int`: what literals and `len` are.
    Int(i64),
    /// Go's `int32`, which is also `rune`.
    Int32(i32),
    /// Go's `int64`: what sprig's arithmetic and Helm's `--set` make.
    Int64(i64),
    /// Go's `uint8`, which is also `byte`: an element of a string.
    Uint8(u8),
    Uint32(u32),
    Uint64(u64),
    Float64(f64),
    /// Real and imaginary part of a literal such as `1i`.
    Complex(Box<(f64, f64)>),
    String(Str),
    /// Go's `[]byte`.
    Bytes(Rc<bytes::Bytes>),
    List(List),
    Map(Map),
    Time(Rc<Time>),
    Duration(Duration),
    Func(Rc<Func>),
    /// A Go struct, or anything else with fields and methods.
    Object(Rc<dyn Object>),
}

impl Value {
    /// A string value.
    pub fn string(text: impl Into<Str>) -> Self {
        Self::String(text.into())
    }

    /// A `[]interface{}`.
    pub fn list(items: Vec<Value>) -> Self {
        Self::List(List::new(items))
    }

    /// A `[]string`.
    pub fn strings<S: Into<Str>>(items: impl IntoIterator<Item = S>) -> Self {
        let items = items.into_iter().map(|item| Self::String(item.into())).collect();
        Self::List(List::typed(Type::STRINGS, items))
    }

    /// A `map[string]interface{}`.
    pub fn map<K: Into<Str>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Map(Map::from_entries(entries))
    }

    /// A struct or other custom object.
    pub fn object(object: impl Object) -> Self {
        Self::Object(Rc::new(object))
    }

    /// The text, if this is a string that is valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => text.as_str(),
            _ => None,
        }
    }

    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&List> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// Whether this is a nil interface or no value at all.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil | Self::NoValue)
    }

    /// The object behind this value, if it is one of type `T`.
    pub fn downcast<T: Object>(&self) -> Option<&T> {
        match self {
            Self::Object(object) => object.as_any().downcast_ref::<T>(),
            _ => None,
        }
    }

    /// What `if` thinks of it: not the zero or empty value of its type. Objects are always true.
    pub fn truth(&self) -> bool {
        match self {
            Self::Nil | Self::NoValue => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Int64(value) => *value != 0,
            Self::Int32(value) => *value != 0,
            Self::Uint8(value) => *value != 0,
            Self::Uint32(value) => *value != 0,
            Self::Uint64(value) => *value != 0,
            Self::Float64(value) => *value != 0.0,
            Self::Complex(parts) => parts.0 != 0.0 || parts.1 != 0.0,
            Self::String(text) => !text.is_empty(),
            Self::Bytes(bytes) => !bytes.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Duration(duration) => duration.0 != 0,
            Self::Object(object) => object.entries().is_none_or(|entries| !entries.is_empty()),
            Self::Time(_) | Self::Func(_) => true,
        }
    }

    /// The value as a signed integer, if its kind is one of Go's signed integers.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) | Self::Int64(value) => Some(*value),
            Self::Int32(value) => Some(i64::from(*value)),
            Self::Duration(duration) => Some(duration.0),
            _ => None,
        }
    }

    /// The value as an unsigned integer, if its kind is one of Go's unsigned integers.
    pub fn as_uint(&self) -> Option<u64> {
        match self {
            Self::Uint8(value) => Some(u64::from(*value)),
            Self::Uint32(value) => Some(u64::from(*value)),
            Self::Uint64(value) => Some(*value),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may hold secrets: show what kind of thing it is, never what it says.
        write!(f, "Value({})", self.type_of())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value.into())
    }
}

impl From<Vec<u8>> for Str {
    fn from(value: Vec<u8>) -> Self {
        Str::from_bytes(value)
    }
}

impl From<Str> for Value {
    fn from(value: Str) -> Self {
        Self::String(value)
    }
}

impl From<Map> for Value {
    fn from(value: Map) -> Self {
        Self::Map(value)
    }
}

impl From<List> for Value {
    fn from(value: List) -> Self {
        Self::List(value)
    }
}
