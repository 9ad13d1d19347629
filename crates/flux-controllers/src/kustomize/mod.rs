//! kustomize-controller: what a source holds is what the cluster holds.
//!
//! Reading order: `kustomization` is one run from top to bottom; what it awaits stands in `observe` and
//! `dependencies` (may it start?), `build`, `apply`, `health`; `finalize` is its end.

mod apply;
mod brake;
mod build;
mod dependencies;
mod drift;
mod drift_report;
mod failure;
mod finalize;
mod handover;
mod health;
pub mod history;
mod identity;
mod keys;
mod kms;
pub mod kustomization;
pub mod manifests;
pub mod observe;
mod options;
mod owners;
mod remote_bases;
mod run;
mod self_management;
mod target_namespace;
mod teardown;
mod typed;
mod unchanged;
mod wake;

pub use options::{Gates, Options, stage_kinds};
pub use typed::drop_unknown;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use kube::Client;

use crate::artifact::Fetcher;
use crate::reconcile::{Cache, Events, ObjectKey};

/// Objects whose dependencies are being looked at, or were not ready. The status says so too late: a dependency may get
/// ready between the look and the write.
pub type Undecided = Arc<Mutex<BTreeSet<ObjectKey>>>;

/// What the reconciler works with.
pub struct Context {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub fetcher: Fetcher,
    pub events: Events,
    pub cluster: flux_apply::Cluster,
    /// Who we and our objects are at clouds, for key services.
    pub identity: crate::source::cloud::CloudIdentity,
    pub options: Options,
    pub memory: Memory,
}

/// What is remembered from run to run. Losing it costs time, never correctness.
pub struct Memory {
    /// Digests of encrypted files whose authentication code agreed.
    verified_macs: Mutex<BTreeSet<[u8; 32]>>,
    /// Those that were warned about.
    reported_macs: Mutex<BTreeSet<[u8; 32]>>,
    remote_clusters: crate::identity::Clusters,
    remote_bases: remote_bases::Fetched,
    waiting: handover::Waiting,
    claims: handover::Claims,
    teardown: teardown::Since,
    dependents: teardown::Since,
    conflicts: owners::Conflicts,
    /// Advice that was given, by Kustomization, object and field.
    advice: Mutex<BTreeSet<String>>,
    /// What others do to applied objects.
    pub drift: Arc<drift::Drift>,
    builds: unchanged::Builds,
    /// Those that found, or may be finding, a dependency not ready.
    pub undecided: Undecided,
}

impl Memory {
    pub fn new(options: &Options) -> Self {
        Self {
            verified_macs: Mutex::default(),
            reported_macs: Mutex::default(),
            remote_clusters: crate::identity::Clusters::default(),
            remote_bases: remote_bases::Fetched::default(),
            waiting: handover::Waiting::default(),
            claims: handover::Claims::default(),
            teardown: teardown::Since::default(),
            dependents: teardown::Since::default(),
            conflicts: owners::Conflicts::default(),
            advice: Mutex::default(),
            drift: drift::Drift::new(
                options.watch_drift && !options.upstream_only,
                options.override_managers.clone(),
            ),
            builds: unchanged::Builds::default(),
            undecided: Undecided::default(),
        }
    }
}
