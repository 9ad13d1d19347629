//! Go structs and functions as values: what has fields, methods and a way to be called.

use std::any::Any;
use std::rc::Rc;

use super::Value;
use crate::context::{Context, Failure};
use crate::function::Signature;

/// A Go struct, or a pointer to one.
pub trait Object: Any {
    /// The Go type, `sprig.certificate` or `*semver.Version`: with a star for a pointer.
    fn type_name(&self) -> &'static str;

    /// An exported field.
    fn field(&self, name: &str) -> Option<Value> {
        let _ = name;
        None
    }

    /// Field names and values in declaration order, for `%v` (`{a b}`) and `%+v` (`{A:a B:b}`).
    fn fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The answer of its `MarshalText` method: encoders write that, not the fields.
    fn marshal_text(&self) -> Option<String> {
        None
    }

    /// What encoding/json writes: exported fields, unless they are tagged.
    fn json_fields(&self) -> Vec<(&'static str, Value)> {
        let is_exported = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase());
        self.fields().into_iter().filter(|(name, _)| is_exported(name)).collect()
    }

    /// What a function gets when it is handed over by value: without its address, a Go value loses the methods of its
    /// pointer, among them `String`. Nothing if that makes no difference.
    fn as_argument(&self) -> Option<Value> {
        None
    }

    /// The parameters of a method, or nothing if there is no such method.
    fn method(&self, name: &str) -> Option<Signature> {
        let _ = name;
        None
    }

    /// Calls a method that [`Object::method`] knows.
    fn call(&self, ctx: &Context<'_>, name: &str, args: &[Value]) -> Result<Value, Failure> {
        let _ = (ctx, args);
        Err(Failure::new(format!("no method {name}")))
    }

    /// Keys and values in Go's order, for what is a map in Go with keys that are no strings: `range` and `len` take it.
    fn entries(&self) -> Option<Vec<(Value, Value)>> {
        None
    }

    /// The answer of its `String()` or `Error()` method, which printing prefers.
    fn text(&self) -> Option<String> {
        None
    }

    /// `self`, for [`Value::downcast`].
    fn as_any(&self) -> &dyn Any;
}

/// What a Go function value is called with.
pub type Body = dyn Fn(&Context<'_>, &[Value]) -> Result<Value, Failure>;

/// What a loop does with each pair; `false` ends the walk.
pub type Yield<'a> = dyn FnMut(Value, Value) -> bool + 'a;

/// An iterator function that `range` accepts.
pub enum Sequence {
    /// `iter.Seq[V]`: yields elements, the second value is ignored.
    One(Rc<dyn Fn(&mut Yield<'_>)>),
    /// `iter.Seq2[K, V]`
    Two(Rc<dyn Fn(&mut Yield<'_>)>),
}

/// A function as a value: for `call`, and for `range` over iterators.
pub struct Func {
    /// The Go type, `func(int) string`.
    pub type_name: &'static str,
    pub signature: Signature,
    pub body: Rc<Body>,
    pub sequence: Option<Sequence>,
}

impl Value {
    /// A field of a map or object, without calling methods; for code that reads values from Rust.
    pub fn lookup(&self, name: &str) -> Option<Value> {
        match self {
            Self::Map(map) => map.get(name),
            Self::Object(object) => object.field(name),
            _ => None,
        }
    }

    /// The entry at a path of keys.
    pub fn at(&self, path: &[&str]) -> Option<Value> {
        let mut value = self.clone();
        for key in path {
            value = value.lookup(key)?;
        }
        Some(value)
    }
}
