//! source-watcher: new artifacts from the files of sources.

pub mod artifact_generator;
pub mod compose;
mod glob;
mod pattern;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use crate::artifact::{Fetcher, Storage};
use crate::reconcile::{Cache, Events};

/// What the reconciler works with.
pub struct Context {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub storage: Arc<Storage>,
    pub fetcher: Fetcher,
    pub events: Events,
    pub jitter_percent: u8,
    pub options: Options,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub no_cross_namespace_refs: bool,
    /// How soon to look again for a source that is not ready.
    pub requeue_dependency: Duration,
    /// How long the sources of one generator may take to come.
    pub reconciliation_timeout: Duration,
}

impl Options {
    pub fn upstream() -> Self {
        Self {
            no_cross_namespace_refs: false,
            requeue_dependency: Duration::from_secs(5),
            reconciliation_timeout: Duration::from_secs(600),
        }
    }
}
