//! Go's slices: a type and the elements, shared and never changed in place.

use std::ops::Deref;
use std::rc::{Rc, Weak};

use super::teardown::{holds_others, teardown};
use super::{Type, Value};

/// A slice with its Go type, `[]interface {}` unless said otherwise.
#[derive(Clone)]
pub struct List(Rc<Inner>);

struct Inner {
    of: Type,
    items: Vec<Value>,
    is_nil: bool,
}

impl List {
    /// A `[]interface{}`.
    pub fn new(items: Vec<Value>) -> Self {
        Self::typed(Type::LIST, items)
    }

    /// A slice of the type `of`, which is a slice type or a named type that is one underneath.
    pub fn typed(of: Type, items: Vec<Value>) -> Self {
        Self(Rc::new(Inner { of, items, is_nil: false }))
    }

    /// Go's nil slice: empty, and `null` in JSON where an empty one is `[]`.
    pub fn nil(of: Type) -> Self {
        Self(Rc::new(Inner { of, items: Vec::new(), is_nil: true }))
    }

    pub fn is_nil(&self) -> bool {
        self.0.is_nil
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

impl Drop for Inner {
    fn drop(&mut self) {
        if self.items.iter().any(holds_others) {
            teardown(std::mem::take(&mut self.items));
        }
    }
}

/// A list, as long as someone else holds it.
pub(crate) struct ListHandle(Weak<Inner>);

impl ListHandle {
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.0.upgrade().map(|list| List(list).bytes())
    }

    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl List {
    /// Moves the items out, if nobody else holds the list.
    pub(super) fn into_items(self, into: &mut Vec<Value>) {
        if let Some(mut inner) = Rc::into_inner(self.0) {
            into.append(&mut inner.items);
        }
    }

    /// Whether someone else holds it too.
    pub(crate) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    /// About what it takes: functions that return lists of strings make the strings too.
    pub(crate) fn bytes(&self) -> usize {
        let each = if self.0.of.same(Type::STRINGS) { 80 } else { std::mem::size_of::<Value>() };
        self.len() * each
    }

    pub(crate) fn handle(&self) -> ListHandle {
        ListHandle(Rc::downgrade(&self.0))
    }
}

impl Deref for List {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0.items
    }
}
