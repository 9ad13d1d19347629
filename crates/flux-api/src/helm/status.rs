//! What a HelmRelease reports: its releases, its failures, what was last tried.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::meta::Inventory;
use crate::time::Time;

/// What was released last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmReleaseStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// Checksum of the post-renderers of the last good release.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub observed_post_renderers_digest: Option<String>,
    /// Checksum of the common metadata of the last good release.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub observed_common_metadata_digest: Option<String>,
    /// The metadata.generation that was last tried.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub last_attempted_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Namespace and name of the HelmChart that was made for this release.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub helm_chart: Option<String>,
    /// Namespace that keeps the release's records.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Releases this object made, newest first, back to the last good one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ReleaseSnapshot>,
    /// The objects of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<Inventory>,
    /// install or upgrade, whichever was tried last. Its retries are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_release_action: Option<ReleaseAction>,
    /// How long the last install or upgrade took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-no-pattern" = true))]
    pub last_attempted_release_action_duration: Option<GoDuration>,
    /// Failures since the last success.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub failures: i64,
    /// Failed installs since the last success.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub install_failures: i64,
    /// Failed upgrades since the last success.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub upgrade_failures: i64,
    /// The chart version that was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_attempted_revision: Option<String>,
    /// The digest of the chart that was last tried, if it came as an image.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_attempted_revision_digest: Option<String>,
    /// SHA-1 of the values; written by older versions only.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_attempted_values_checksum: Option<String>,
    /// The revision of the release; written by older versions only.
    #[serde(default, skip_serializing_if = "absent::zero")]
    #[schemars(extend("x-no-format" = true))]
    pub last_release_revision: i64,
    /// Checksum of the values that were last tried.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_attempted_config_digest: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/forceAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_force_at: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/resetAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reset_at: Option<String>,
}

/// One release, as this object made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSnapshot {
    /// Version of how the digest is computed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Checksum of the release as it is stored.
    pub digest: String,
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Revision of the release.
    #[schemars(extend("x-no-format" = true))]
    pub version: i64,
    /// What Helm did: install, upgrade, rollback, uninstall or uninstall-remediation.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub action: Option<String>,
    /// Helm's status of the release, such as deployed or failed.
    pub status: String,
    /// Name of the chart.
    pub chart_name: String,
    /// Version of the chart.
    pub chart_version: String,
    /// Version of the application, as the chart says.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub app_version: Option<String>,
    /// Checksum of the values.
    pub config_digest: String,
    /// When the release was first deployed.
    pub first_deployed: Time,
    /// When the release was last deployed.
    pub last_deployed: Time,
    /// When the release was uninstalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Time>,
    /// Results of the chart's tests, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_hooks: Option<BTreeMap<String, TestHookStatus>>,
    /// Digest of the chart, if it came as an image.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub oci_digest: Option<String>,
}

/// Result of one test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestHookStatus {
    /// When it was last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_started: Option<Time>,
    /// When it last ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_completed: Option<Time>,
    /// How it ended, such as Succeeded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub phase: Option<String>,
}

closed_set! {
    /// What makes a release.
    pub enum ReleaseAction {
        /// Install.
        Install = "install",
        /// Upgrade.
        Upgrade = "upgrade",
    }
}
