//! The loop that every controller shares: watch, queue, work, write the status, come again.
//!
//! A reconciler is handed one object and a [`Worker`]; it says when it wants to see the object again.
//! Waiting happens outside of the worker's permit ([`Worker::outside`]), so what waits costs nobody a turn.

pub mod cache;
pub mod events;
pub mod queue;
pub mod run;
pub mod status;

pub use cache::{Cache, Change, resource};
pub use events::{Events, Severity};
pub use queue::{Cause, Queue};
pub use run::{Next, Reconcile, Worker, run};

use std::fmt;

use kube::ResourceExt;
use kube::api::DynamicObject;

/// Where an object is, its kind being known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(object: &DynamicObject) -> Self {
        Self::new(object.namespace().unwrap_or_default(), object.name_any())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
