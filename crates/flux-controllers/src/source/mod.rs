//! source-controller: what is out there becomes an artifact in here.

pub mod access;
pub mod bucket;
mod bucket_login;
pub mod chart_build;
pub mod chart_download;
pub mod cloud;
pub mod credentials;
pub mod depot;
pub mod git_repository;
pub mod helm_chart;
pub mod helm_repository;
mod oci_local;
pub mod oci_repository;
pub mod options;
mod pen;
pub mod registry;
pub mod skeleton;
pub mod verification;

use std::sync::Arc;

use flux_api::condition::{self, ConditionStatus};
use kube::Client;

pub use depot::{Depot, StandIn};
pub use options::Options;

use crate::artifact::Storage;
use crate::reconcile::{Cache, Conditions, Events};

/// What every source reconciler works with.
pub struct Context {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub storage: Arc<Storage>,
    pub events: Events,
    /// Where objects of remote repositories are kept between fetches.
    pub object_cache: std::path::PathBuf,
    pub jitter_percent: u8,
    pub options: Options,
    /// Who we and our objects are at clouds.
    pub identity: cloud::CloudIdentity,
    pub metrics: crate::reconcile::Metrics,
    /// Stored indexes of chart repositories, looked up by HelmCharts.
    pub indexes: flux_remote::helm_repository::StoredIndex,
    /// Whom signatures without a key are trusted by, where an object does not say.
    pub sigstore: Arc<flux_remote::cosign::Sigstore>,
    /// What stands in for the network, where a fleet is tried on a machine.
    pub depot: Option<Depot>,
}

/// The conditions that decide whether a source is ready, most important first.
const ORDER: &[&str] = &[
    STORAGE_OPERATION_FAILED,
    FETCH_FAILED,
    INCLUDE_UNAVAILABLE,
    BUILD_FAILED,
    ARTIFACT_OUTDATED,
    ARTIFACT_IN_STORAGE,
    SOURCE_VERIFIED,
    condition::STALLED,
    condition::RECONCILING,
];
const NEGATIVE: &[&str] = &[
    STORAGE_OPERATION_FAILED,
    FETCH_FAILED,
    INCLUDE_UNAVAILABLE,
    BUILD_FAILED,
    ARTIFACT_OUTDATED,
    condition::STALLED,
    condition::RECONCILING,
];

pub const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";
pub const FETCH_FAILED: &str = "FetchFailed";
pub const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
pub const BUILD_FAILED: &str = "BuildFailed";
pub const ARTIFACT_OUTDATED: &str = "ArtifactOutdated";
pub const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
pub const SOURCE_VERIFIED: &str = "SourceVerified";

/// Ready, as the other conditions have it; a source that failed its verification is never ready.
pub(crate) fn summarize(conditions: &mut Conditions<'_>) {
    if let Some(summary) = condition::summary(conditions.list, ORDER, NEGATIVE) {
        conditions.set(condition::READY, summary.status, &summary.reason, summary.message);
    }
    let unverified = condition::find(conditions.list, SOURCE_VERIFIED)
        .filter(|verified| verified.status == ConditionStatus::False)
        .map(|verified| (verified.reason.clone(), verified.message.clone()));
    if let Some((reason, message)) = unverified {
        conditions.set(condition::READY, ConditionStatus::False, &reason, message);
    }
}
