//! What a HelmRelease says about installing, upgrading, testing, rolling back and uninstalling.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::duration::GoDuration;

/// How to install a release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Install {
    /// As spec.timeout, for this action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// What to do when it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<InstallStrategy>,
    /// How to repair a failed install. Only with the strategy RemediateOnFailure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<InstallRemediation>,
    /// Whether to fail on objects that belong to another release or to none, instead of taking them over.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_take_ownership: bool,
    /// Whether to succeed without waiting for the objects to become healthy.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_wait: bool,
    /// Whether to succeed without waiting for Jobs to complete.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_wait_for_jobs: bool,
    /// Whether to leave hooks out.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_hooks: bool,
    /// Whether to skip the check of the rendered objects against the API's schema.
    #[serde(rename = "disableOpenAPIValidation", default, skip_serializing_if = "absent::no")]
    pub disable_open_api_validation: bool,
    /// Whether to skip the check of the values against the chart's values.schema.json.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_schema_validation: bool,
    /// Whether to reuse the name of a release that failed or was uninstalled with its history kept.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub replace: bool,
    /// Has no effect any more: use crds.
    #[serde(rename = "skipCRDs", default, skip_serializing_if = "absent::no")]
    pub skip_cr_ds: bool,
    /// What to do with the chart's crds folder: Skip, Create (the default) or CreateReplace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crds: Option<CRDsPolicy>,
    /// Whether to create the target namespace. Only with spec.targetNamespace.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub create_namespace: bool,
    /// Whether to apply on the server; true if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<bool>,
}

/// What to do when an install fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"!has(self.retryInterval) || self.name != 'RemediateOnFailure'", "message": ".retryInterval cannot be set when .name is 'RemediateOnFailure'" },
    ]))]
pub struct InstallStrategy {
    /// RemediateOnFailure uninstalls and installs again as remediation says; RetryOnFailure upgrades until it works.
    pub name: ActionStrategyName,
    /// How soon RetryOnFailure tries again; 5m if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
}

/// How to repair a failed install: it is uninstalled, then tried again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallRemediation {
    /// How often to try again; -1 for ever, 0 never.
    #[serde(default, skip_serializing_if = "absent::zero")]
    #[schemars(extend("x-no-format" = true))]
    pub retries: i64,
    /// Whether failed tests count as success; spec.test.ignoreFailures if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_test_failures: Option<bool>,
    /// Whether to uninstall also after the last try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediate_last_failure: Option<bool>,
}

/// How to upgrade a release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// As spec.timeout, for this action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// What to do when it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpgradeStrategy>,
    /// How to repair a failed upgrade. Only with the strategy RemediateOnFailure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<UpgradeRemediation>,
    /// Whether to fail on objects that belong to another release or to none, instead of taking them over.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_take_ownership: bool,
    /// Whether to succeed without waiting for the objects to become healthy.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_wait: bool,
    /// Whether to succeed without waiting for Jobs to complete.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_wait_for_jobs: bool,
    /// Whether to leave hooks out.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_hooks: bool,
    /// Whether to skip the check of the rendered objects against the API's schema.
    #[serde(rename = "disableOpenAPIValidation", default, skip_serializing_if = "absent::no")]
    pub disable_open_api_validation: bool,
    /// Whether to skip the check of the values against the chart's values.schema.json.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_schema_validation: bool,
    /// Whether to replace objects that cannot be changed in place. Not with server-side apply.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub force: bool,
    /// Whether to keep the values of the last release and merge the new ones over them.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub preserve_values: bool,
    /// Whether to delete what a failed upgrade created.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub cleanup_on_fail: bool,
    /// What to do with the chart's crds folder: Skip, Create (the default) or CreateReplace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crds: Option<CRDsPolicy>,
    /// What to do when the release holds a chart of another name: Reinstall (the default), or InPlaceUpdate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart_name_change_strategy: Option<ChartNameChangeStrategy>,
    /// Whether to apply on the server: enabled, disabled, or auto, as the last release did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApplyMode>,
}

/// What to do when an upgrade fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"!has(self.retryInterval) || self.name == 'RetryOnFailure'", "message": ".retryInterval can only be set when .name is 'RetryOnFailure'" },
    ]))]
pub struct UpgradeStrategy {
    /// RemediateOnFailure repairs as remediation says; RetryOnFailure upgrades until it works.
    pub name: ActionStrategyName,
    /// How soon RetryOnFailure tries again; 5m if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
}

/// How to repair a failed upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRemediation {
    /// How often to try again; -1 for ever, 0 never.
    #[serde(default, skip_serializing_if = "absent::zero")]
    #[schemars(extend("x-no-format" = true))]
    pub retries: i64,
    /// Whether failed tests count as success; spec.test.ignoreFailures if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_test_failures: Option<bool>,
    /// Whether to repair also after the last try; true if left out and retries is over 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediate_last_failure: Option<bool>,
    /// rollback (the default) or uninstall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RemediationStrategy>,
}

/// How to run the chart's tests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Test {
    /// Whether to run them after install and upgrade.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub enable: bool,
    /// As spec.timeout, for this action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Whether the release is good even when tests fail.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub ignore_failures: bool,
    /// Which tests to run; all if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<TestFilter>,
}

/// A choice of tests by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestFilter {
    /// Name of the test.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether to leave this test out instead.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub exclude: bool,
}

/// How to roll back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// As spec.timeout, for this action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Whether to succeed without waiting for the objects to become healthy.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_wait: bool,
    /// Whether to succeed without waiting for Jobs to complete.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_wait_for_jobs: bool,
    /// Whether to leave hooks out.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_hooks: bool,
    /// Has no effect any more: Helm no longer restarts Pods.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub recreate: bool,
    /// Whether to replace objects that cannot be changed in place.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub force: bool,
    /// Whether to delete what a failed rollback created.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub cleanup_on_fail: bool,
    /// Whether to apply on the server: enabled, disabled, or auto, as the last release did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApplyMode>,
}

/// How to uninstall.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Uninstall {
    /// As spec.timeout, for this action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Whether to leave hooks out.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_hooks: bool,
    /// Whether to keep the records of the release, marked as deleted.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub keep_history: bool,
    /// Whether to succeed without waiting for the objects to be gone.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub disable_wait: bool,
    /// How Kubernetes deletes what an object owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "background"))]
    pub deletion_propagation: Option<DeletionPropagation>,
}

closed_set! {
    /// What to do with the chart's crds folder.
    pub enum CRDsPolicy {
        /// Nothing.
        Skip = "Skip",
        /// Create those that are missing.
        Create = "Create",
        /// Create those that are missing, and replace the others.
        CreateReplace = "CreateReplace",
    }
}

closed_set! {
    /// What to do when an action fails.
    pub enum ActionStrategyName {
        /// Repair, then try again.
        RemediateOnFailure = "RemediateOnFailure",
        /// Try again.
        RetryOnFailure = "RetryOnFailure",
    }
}

closed_set! {
    /// Whether to apply on the server.
    pub enum ServerSideApplyMode {
        /// Yes.
        Enabled = "enabled",
        /// No.
        Disabled = "disabled",
        /// As the last release did.
        Auto = "auto",
    }
}

closed_set! {
    /// What to do when a release holds a chart of another name.
    pub enum ChartNameChangeStrategy {
        /// Upgrade it.
        InPlaceUpdate = "InPlaceUpdate",
        /// Uninstall it, then install.
        Reinstall = "Reinstall",
    }
}

closed_set! {
    /// How a failed upgrade is repaired.
    #[derive(Default)]
    pub enum RemediationStrategy {
        /// Back to the last good release.
        #[default]
        Rollback = "rollback",
        /// Uninstall, then install.
        Uninstall = "uninstall",
    }
}

closed_set! {
    /// How Kubernetes deletes what an object owns.
    #[derive(Default)]
    pub enum DeletionPropagation {
        /// After the object.
        #[default]
        Background = "background",
        /// Before the object.
        Foreground = "foreground",
        /// Not at all.
        Orphan = "orphan",
    }
}
