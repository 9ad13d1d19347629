//! Go's maps with string keys: shared, changed in place, and kept in the order Go prints and ranges over them.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use super::teardown::{holds_others, teardown};
use super::{Str, Type, Value};

/// What a map holds, in key order.
pub type MapEntries = BTreeMap<Str, Value>;

/// A map with its Go type, `map[string]interface {}` unless said otherwise. A clone is the same map.
#[derive(Clone)]
pub struct Map(Rc<Inner>);

struct Inner {
    of: Type,
    entries: RefCell<MapEntries>,
    is_nil: bool,
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl Map {
    /// An empty `map[string]interface{}`.
    pub fn new() -> Self {
        Self::typed(Type::MAP, MapEntries::new())
    }

    pub fn from_entries<K: Into<Str>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::typed(Type::MAP, entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// A map of the type `of`, which is a map type or a named type that is one underneath.
    pub fn typed(of: Type, entries: MapEntries) -> Self {
        Self(Rc::new(Inner { of, entries: RefCell::new(entries), is_nil: false }))
    }

    /// Go's nil map: empty, and `null` in JSON where an empty one is `{}`.
    pub fn nil(of: Type) -> Self {
        Self(Rc::new(Inner { of, entries: RefCell::default(), is_nil: true }))
    }

    pub fn is_nil(&self) -> bool {
        self.0.is_nil && self.is_empty()
    }

    pub fn type_of(&self) -> Type {
        self.0.of
    }

    pub fn get(&self, key: &str) -> Option<Value> {
        self.get_bytes(key.as_bytes())
    }

    pub fn get_bytes(&self, key: &[u8]) -> Option<Value> {
        self.0.entries.borrow().get(key).cloned()
    }

    pub fn contains(&self, key: &str) -> bool {
        self.0.entries.borrow().contains_key(key.as_bytes())
    }

    pub fn set(&self, key: impl Into<Str>, value: Value) {
        self.0.entries.borrow_mut().insert(key.into(), value);
    }

    pub fn unset(&self, key: &str) -> Option<Value> {
        self.0.entries.borrow_mut().remove(key.as_bytes())
    }

    pub fn unset_bytes(&self, key: &[u8]) -> Option<Value> {
        self.0.entries.borrow_mut().remove(key)
    }

    pub fn len(&self) -> usize {
        self.0.entries.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.entries.borrow().is_empty()
    }

    /// The entries, to read. Nothing may be set while they are borrowed.
    pub fn entries(&self) -> Ref<'_, MapEntries> {
        self.0.entries.borrow()
    }

    /// The entries as they are now: what a loop that may change the map walks over.
    pub fn snapshot(&self) -> Vec<(Str, Value)> {
        self.0.entries.borrow().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Takes everything out.
    pub fn take(&self) -> MapEntries {
        std::mem::take(&mut *self.0.entries.borrow_mut())
    }

    /// A new map with the same entries and type; maps within are still shared.
    pub fn shallow_copy(&self) -> Map {
        Self::typed(self.0.of, self.0.entries.borrow().clone())
    }

    /// Whether both are the same map, not only equal ones.
    pub fn same(&self, other: &Map) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// A number that tells this map from all others that are alive.
    pub fn identity(&self) -> usize {
        Rc::as_ptr(&self.0).cast::<()>() as usize
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.entries.get_mut().values().any(holds_others) {
            teardown(std::mem::take(self.entries.get_mut()).into_values().collect());
        }
    }
}

/// A map, as long as someone else holds it.
pub(crate) struct MapHandle(Weak<Inner>);

impl MapHandle {
    pub(crate) fn len(&self) -> Option<usize> {
        // While it is being changed it is alive; its size is counted the next time.
        self.0.upgrade().map(|map| map.entries.try_borrow().map_or(0, |entries| entries.len()))
    }

    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl Map {
    /// Moves the values out, if nobody else holds the map.
    pub(super) fn into_values(self, into: &mut Vec<Value>) {
        if let Some(mut inner) = Rc::into_inner(self.0) {
            into.extend(std::mem::take(inner.entries.get_mut()).into_values());
        }
    }

    /// Whether someone else holds it too.
    pub(crate) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    pub(crate) fn handle(&self) -> MapHandle {
        MapHandle(Rc::downgrade(&self.0))
    }
}
