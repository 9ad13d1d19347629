//! Go's slices: a type and the elements, shared and never changed in place.

use std::ops::Deref;
use std::rc::Rc;

use super::{Type, Value};

/// A slice with its Go type, `[]interface {}` unless said otherwise.
#[derive(Clone)]
pub struct List(Rc<Inner>);

struct Inner {
    of: Type,
    items: Vec<Value>,
}

impl List {
    /// A `[]interface{}`.
    pub fn new(items: Vec<Value>) -> Self {
        Self::typed(Type::LIST, items)
    }

    /// A slice of the type `of`, which is a slice type or a named type that is one underneath.
    pub fn typed(of: Type, items: Vec<Value>) -> Self {
        Self(Rc::new(Inner { of, items }))
    }

    pub fn type_of(&self) -> Type {
        self.0.of
    }

    pub fn items(&self) -> &[Value] {
        &self.0.items
    }

    /// Whether both are the same list, not only equal ones.
    pub fn same(&self, other: &List) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for List {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0.items
    }
}
