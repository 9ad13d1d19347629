//! The loop that every controller shares: watch, queue, work, write the status, come again.
//!
//! A reconciler is handed one object and a [`Worker`]; it says when it wants to see the object again.
//! Waiting happens outside of the worker's permit ([`Worker::outside`]), so what waits costs nobody a turn.

pub mod cache;
pub mod circle;
pub mod conditions;
pub mod election;
pub mod events;
pub mod gates;
pub mod heavy;
pub mod impersonate;
mod leader_change;
pub mod metrics;
pub mod probes;
pub mod queue;
pub mod run;
pub mod selector;
pub mod state_metrics;
pub mod status;
pub mod store;
pub mod suspension;
pub mod throttle;

pub use cache::{Cache, Change, Index, Store, Watched, resource};
pub use conditions::{Conditions, jittered};
pub use events::{Events, Happening, Severity};
pub use gates::FeatureGates;
pub use heavy::heavy;
pub use metrics::Metrics;
pub use queue::{Cause, Queue};
pub use run::{Next, Reconcile, Worker, run};
pub use selector::Selector;

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

/// Reads an object as its kind; the error names the field.
pub fn decode<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Result<T, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}
