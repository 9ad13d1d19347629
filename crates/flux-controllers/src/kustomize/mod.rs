//! kustomize-controller: what a source holds is what the cluster holds.

pub mod history;
pub mod kustomization;
pub mod manifests;
pub mod observe;

use std::sync::Arc;

use kube::Client;

use crate::artifact::Fetcher;
use crate::reconcile::{Cache, Events};

/// What the reconciler works with.
pub struct Context {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub fetcher: Fetcher,
    pub events: Events,
    pub cluster: flux_apply::Cluster,
    pub options: Options,
}

/// The controller's flags.
#[derive(Clone, Debug)]
pub struct Options {
    pub jitter_percent: u8,
    pub no_cross_namespace_refs: bool,
    /// Impersonated where a Kustomization names nobody.
    pub default_service_account: Option<String>,
    /// An unknown variable is an error.
    pub strict_substitutions: bool,
    pub requeue_dependency: std::time::Duration,
    pub concurrent_ssa: usize,
}
