//! source-controller: what is out there becomes an artifact in here.

pub mod credentials;
pub mod git_repository;

use std::sync::Arc;
use std::time::Duration;

use flux_api::condition::{self, Condition, ConditionStatus, Observation};
use flux_api::time::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use crate::artifact::Storage;
use crate::reconcile::{Cache, Events};

/// What every source reconciler works with.
pub struct Context {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub storage: Arc<Storage>,
    pub events: Events,
    /// Where objects of remote repositories are kept between fetches.
    pub object_cache: std::path::PathBuf,
    pub jitter_percent: u8,
}

/// The conditions that decide whether a source is ready, most important first.
const ORDER: &[&str] = &[
    STORAGE_OPERATION_FAILED,
    FETCH_FAILED,
    INCLUDE_UNAVAILABLE,
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
    ARTIFACT_OUTDATED,
    condition::STALLED,
    condition::RECONCILING,
];

pub const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";
pub const FETCH_FAILED: &str = "FetchFailed";
pub const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
pub const ARTIFACT_OUTDATED: &str = "ArtifactOutdated";
pub const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
pub const SOURCE_VERIFIED: &str = "SourceVerified";

/// A list of conditions that belongs to one generation of an object.
pub(crate) struct Conditions<'a> {
    pub(crate) list: &'a mut Vec<Condition>,
    pub(crate) generation: i64,
}

impl Conditions<'_> {
    pub(crate) fn set(
        &mut self,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
    ) {
        let now = Time::new(Timestamp::now());
        condition::set(self.list, Observation::new(kind, status, reason, message), self.generation, now);
    }

    pub(crate) fn delete(&mut self, kind: &str) {
        condition::delete(self.list, kind);
    }

    /// Ready, as the other conditions have it; a source that failed its verification is never ready.
    pub(crate) fn summarize(&mut self) {
        if let Some(summary) = condition::summary(self.list, ORDER, NEGATIVE) {
            self.set(condition::READY, summary.status, &summary.reason, summary.message);
        }
        let unverified = condition::find(self.list, SOURCE_VERIFIED)
            .filter(|verified| verified.status == ConditionStatus::False)
            .map(|verified| (verified.reason.clone(), verified.message.clone()));
        if let Some((reason, message)) = unverified {
            self.set(condition::READY, ConditionStatus::False, &reason, message);
        }
    }
}

/// `interval`, a few percent earlier or later, so that objects made together do not stay together.
pub(crate) fn jittered(interval: Duration, percent: u8) -> Duration {
    if percent == 0 {
        return interval;
    }
    let share = f64::from(percent.min(99)) / 100.0;
    interval.mul_f64(1.0 + share * (2.0 * rand::random::<f64>() - 1.0))
}
