//! How much memory a session's values hold.
//!
//! Reference counting frees values without telling anyone, so larger ones are followed by weak references that are
//! swept now and then: what was freed since no longer counts. Small strings are added up when a function makes them
//! and taken off when they are seen to be dropped, which catches most: arguments, and what is printed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::error::Limit;
use crate::limits::Limits;
use crate::value::{ListHandle, MapHandle, Value};

/// Values from this size on are followed.
const FOLLOWED: usize = 128;
/// What an allocation costs besides its bytes.
const OVERHEAD: usize = 48;
/// How much may be followed before the freed ones are swept out.
const SWEEP: u64 = 16 << 20;

enum Handle {
    Text(std::sync::Weak<[u8]>),
    Bytes(std::rc::Weak<bytes::Bytes>),
    List(ListHandle),
    Map(MapHandle),
}

impl Handle {
    /// What it still holds; nothing once it was freed.
    fn bytes(&self) -> Option<usize> {
        match self {
            Self::Text(text) => text.upgrade().map(|text| text.len() + OVERHEAD),
            Self::Bytes(bytes) => bytes.upgrade().map(|bytes| bytes.len() + OVERHEAD),
            Self::List(list) => list.bytes(),
            Self::Map(map) => map.len().map(|length| length * MAP_ENTRY),
        }
    }
}

/// Key, value and a share of the tree.
const MAP_ENTRY: usize = 80;

#[derive(Default)]
pub struct Memory {
    followed: RefCell<Vec<Handle>>,
    /// Followed since the last sweep.
    fresh: Cell<u64>,
    /// Found alive by the last sweep.
    alive: Cell<u64>,
    /// Taken by values too small to follow, as far as they were not seen to be dropped.
    small: Cell<u64>,
    /// In the buffers of templates that are being executed.
    written: Cell<u64>,
}

impl Memory {
    /// Counts a value a function returned.
    pub fn made(&self, value: &Value, limits: &Limits) -> Result<(), Limit> {
        let (size, handle): (usize, Option<Handle>) = match value {
            // Someone else holds it: it was there before, and was counted then.
            Value::String(text) if Arc::strong_count(text.shared()) > 1 => return Ok(()),
            Value::List(list) if list.is_shared() => return Ok(()),
            Value::Map(map) if map.is_shared() => return Ok(()),
            Value::String(text) => {
                let size = text.len();
                (size, (size >= FOLLOWED).then(|| Handle::Text(Arc::downgrade(text.shared()))))
            }
            Value::Bytes(bytes) => {
                (bytes.len(), (bytes.len() >= FOLLOWED).then(|| Handle::Bytes(Rc::downgrade(bytes))))
            }
            Value::List(list) => {
                let size = list.bytes();
                (size, (size >= FOLLOWED).then(|| Handle::List(list.handle())))
            }
            Value::Map(map) => {
                let size = map.len() * MAP_ENTRY;
                (size, (size >= FOLLOWED).then(|| Handle::Map(map.handle())))
            }
            _ => return Ok(()),
        };
        match handle {
            Some(handle) => self.follow(handle, size as u64, limits),
            None => self.small((size + OVERHEAD) as u64, limits),
        }
    }

    /// Takes a value off that is about to be dropped, if it is a small string that nobody else holds.
    pub fn dropped(&self, value: &Value) {
        if let Value::String(text) = value
            && text.len() < FOLLOWED
            && Arc::strong_count(text.shared()) == 1
        {
            self.small.set(self.small.get().saturating_sub((text.len() + OVERHEAD) as u64));
        }
    }

    fn follow(&self, handle: Handle, size: u64, limits: &Limits) -> Result<(), Limit> {
        self.followed.borrow_mut().push(handle);
        self.fresh.set(self.fresh.get() + size + 32);
        if self.fresh.get() > SWEEP {
            self.sweep();
        }
        self.check(limits)
    }

    /// Counts what is too small to follow.
    pub fn small(&self, bytes: u64, limits: &Limits) -> Result<(), Limit> {
        let total = self.small.get().saturating_add(bytes);
        self.small.set(total);
        if total > limits.small_bytes { Err(Limit::TotalSize(limits.small_bytes)) } else { Ok(()) }
    }

    /// Counts bytes in an output buffer; negative when the buffer is handed on.
    pub fn wrote(&self, bytes: i64, limits: &Limits) -> Result<(), Limit> {
        self.written.set(self.written.get().saturating_add_signed(bytes));
        self.check(limits)
    }

    fn check(&self, limits: &Limits) -> Result<(), Limit> {
        let held = self.alive.get() + self.fresh.get() + self.written.get();
        if held <= limits.live_bytes {
            return Ok(());
        }
        self.sweep();
        let held = self.alive.get() + self.written.get();
        if held > limits.live_bytes { Err(Limit::LiveSize(limits.live_bytes)) } else { Ok(()) }
    }

    /// Forgets what was freed, and what is followed twice because a function returned its argument.
    fn sweep(&self) {
        let mut alive = 0;
        let mut seen = std::collections::HashSet::new();
        self.followed.borrow_mut().retain(|handle| match handle.bytes() {
            Some(bytes) => {
                let address = match handle {
                    Handle::Text(text) => text.as_ptr().cast::<()>() as usize,
                    Handle::Bytes(bytes) => bytes.as_ptr().cast::<()>() as usize,
                    Handle::List(list) => list.address(),
                    Handle::Map(map) => map.address(),
                };
                let is_new = seen.insert(address);
                alive += if is_new { bytes as u64 } else { 0 };
                is_new
            }
            None => false,
        });
        self.alive.set(alive);
        self.fresh.set(0);
    }
}
