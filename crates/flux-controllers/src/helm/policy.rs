//! What a HelmRelease's spec asks for, with its defaults; and its counters of failures. Pure.

use std::time::Duration;

use flux_api::duration::GoDuration;
use flux_api::helm::{
    ActionStrategyName, DriftDetectionMode, HelmRelease, HelmReleaseStatus, ReleaseAction,
    RemediationStrategy,
};

use super::next::Action;

const TIMEOUT: Duration = Duration::from_secs(300);
const RETRY_INTERVAL: Duration = Duration::from_secs(300);

/// How a failed install or upgrade is repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remediation {
    /// Below zero: for ever.
    pub retries: i64,
    pub ignore_test_failures: bool,
    pub remediate_last_failure: bool,
    pub strategy: RemediationStrategy,
    /// Failures so far.
    pub failures: i64,
    action: ReleaseAction,
}

impl Remediation {
    pub fn is_exhausted(&self) -> bool {
        self.retries >= 0 && self.failures > self.retries
    }

    pub fn is_uninstall_after_upgrade(&self) -> bool {
        self.action == ReleaseAction::Upgrade && self.strategy == RemediationStrategy::Uninstall
    }
}

/// The spec's answers.
#[derive(Clone, Copy)]
pub struct Policy<'a> {
    pub object: &'a HelmRelease,
    /// The gate DefaultToRetryOnFailure.
    pub retry_by_default: bool,
}

impl Policy<'_> {
    pub fn install(&self, status: &HelmReleaseStatus) -> Remediation {
        let remediation = self.object.spec.install.as_ref().and_then(|install| install.remediation.as_ref());
        Remediation {
            retries: remediation.map_or(0, |one| one.retries),
            ignore_test_failures: remediation
                .and_then(|one| one.ignore_test_failures)
                .unwrap_or_else(|| self.ignores_test_failures()),
            remediate_last_failure: remediation.and_then(|one| one.remediate_last_failure).unwrap_or(false),
            strategy: RemediationStrategy::Uninstall,
            failures: status.install_failures,
            action: ReleaseAction::Install,
        }
    }

    pub fn upgrade(&self, status: &HelmReleaseStatus) -> Remediation {
        let remediation = self.object.spec.upgrade.as_ref().and_then(|upgrade| upgrade.remediation.as_ref());
        let retries = remediation.map_or(0, |one| one.retries);
        Remediation {
            retries,
            ignore_test_failures: remediation
                .and_then(|one| one.ignore_test_failures)
                .unwrap_or_else(|| self.ignores_test_failures()),
            remediate_last_failure: remediation
                .and_then(|one| one.remediate_last_failure)
                .unwrap_or(retries > 0),
            strategy: remediation.and_then(|one| one.strategy).unwrap_or_default(),
            failures: status.upgrade_failures,
            action: ReleaseAction::Upgrade,
        }
    }

    /// That of the action which was tried last.
    pub fn active(&self, status: &HelmReleaseStatus) -> Option<Remediation> {
        match status.last_attempted_release_action? {
            ReleaseAction::Install => Some(self.install(status)),
            ReleaseAction::Upgrade => Some(self.upgrade(status)),
        }
    }

    /// How soon the action tried last is tried again without repair, if it is.
    pub fn active_retry(&self, status: &HelmReleaseStatus) -> Option<Duration> {
        self.retry(status.last_attempted_release_action?)
    }

    pub fn retry(&self, action: ReleaseAction) -> Option<Duration> {
        let spec = &self.object.spec;
        let strategy = match action {
            ReleaseAction::Install => {
                let strategy = spec.install.as_ref().and_then(|install| install.strategy.as_ref());
                strategy.map(|one| (one.name, one.retry_interval))
            }
            ReleaseAction::Upgrade => {
                let strategy = spec.upgrade.as_ref().and_then(|upgrade| upgrade.strategy.as_ref());
                strategy.map(|one| (one.name, one.retry_interval))
            }
        };
        match strategy {
            Some((ActionStrategyName::RetryOnFailure, interval)) => {
                Some(interval.map_or(RETRY_INTERVAL, GoDuration::to_std))
            }
            Some((ActionStrategyName::RemediateOnFailure, _)) => None,
            None => self.retry_by_default.then_some(RETRY_INTERVAL),
        }
    }

    pub fn tests(&self) -> bool {
        self.object.spec.test.as_ref().is_some_and(|test| test.enable)
    }

    pub fn ignores_test_failures(&self) -> bool {
        self.object.spec.test.as_ref().is_some_and(|test| test.ignore_failures)
    }

    pub fn drift_mode(&self) -> DriftDetectionMode {
        self.object.spec.drift_detection.as_ref().and_then(|drift| drift.mode).unwrap_or_default()
    }

    pub fn detects_drift(&self) -> bool {
        self.drift_mode() != DriftDetectionMode::Disabled
    }

    pub fn max_history(&self) -> usize {
        // Helm takes a negative number for no limit.
        self.object.spec.max_history.map_or(5, |most| usize::try_from(most).unwrap_or(0))
    }

    /// How long an action may take: its own time, else the release's.
    pub fn timeout(&self, action: Action) -> Duration {
        let spec = &self.object.spec;
        let own = match action {
            Action::Install => spec.install.as_ref().and_then(|one| one.timeout),
            Action::Upgrade => spec.upgrade.as_ref().and_then(|one| one.timeout),
            Action::Test => spec.test.as_ref().and_then(|one| one.timeout),
            Action::Rollback { .. } => spec.rollback.as_ref().and_then(|one| one.timeout),
            Action::Uninstall => spec.uninstall.as_ref().and_then(|one| one.timeout),
            Action::Unlock | Action::CorrectDrift => None,
        };
        own.or(spec.timeout).map_or(TIMEOUT, GoDuration::to_std)
    }
}

/// Forgets all failures.
pub fn clear_failures(status: &mut HelmReleaseStatus) {
    status.failures = 0;
    status.install_failures = 0;
    status.upgrade_failures = 0;
}

/// The digest of the values that were tried last. Older controllers left a SHA-1 without its name.
pub fn attempted_values(status: &HelmReleaseStatus) -> Option<String> {
    let checksum = status.last_attempted_values_checksum.as_ref();
    let named = status.last_attempted_config_digest.clone();
    named.or_else(|| checksum.map(|checksum| format!("sha1:{checksum}")))
}

/// Why failures are forgotten: what is tried now is not what failed. `config_digest` is of the same algorithm as
/// [`attempted_values`].
pub fn resets_failures(
    object: &HelmRelease,
    status: &HelmReleaseStatus,
    chart_version: &str,
    config_digest: &str,
    requested: bool,
) -> Option<&'static str> {
    if Some(status.last_attempted_generation) != object.metadata.generation {
        return Some("generation differs from last attempt");
    }
    if status.last_attempted_revision.as_deref() != Some(chart_version) {
        return Some("chart version differs from last attempt");
    }
    if attempted_values(status).is_some_and(|digest| digest != config_digest) {
        return Some("values differ from last attempt");
    }
    requested.then_some("reset requested through annotation")
}

#[cfg(test)]
mod tests {
    use flux_api::digest::Algorithm;
    use serde_json::{Value, json};

    use super::super::digest;
    use super::*;

    fn object(spec: Value) -> HelmRelease {
        let mut all = json!({"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "apps", "generation": 3}, "spec": all,
        }))
        .unwrap()
    }

    fn status(action: ReleaseAction, failures: i64) -> HelmReleaseStatus {
        HelmReleaseStatus {
            last_attempted_release_action: Some(action),
            install_failures: failures,
            upgrade_failures: failures,
            ..HelmReleaseStatus::default()
        }
    }

    #[test]
    fn without_a_word_nothing_is_retried_and_the_last_failure_stays() {
        let object = object(json!({}));
        let policy = Policy { object: &object, retry_by_default: false };
        let upgrade = policy.upgrade(&status(ReleaseAction::Upgrade, 1));
        assert!(upgrade.is_exhausted() && !upgrade.remediate_last_failure);
        assert_eq!(upgrade.strategy, RemediationStrategy::Rollback);
        let install = policy.install(&status(ReleaseAction::Install, 0));
        assert!(!install.is_exhausted());
        assert_eq!(install.strategy, RemediationStrategy::Uninstall);
        assert_eq!(policy.active_retry(&status(ReleaseAction::Install, 1)), None);
        assert_eq!((policy.max_history(), policy.timeout(Action::Unlock)), (5, Duration::from_secs(300)));
    }

    #[test]
    fn retries_below_zero_are_never_exhausted() {
        let object = object(
            json!({"install": {"remediation": {"retries": -1}}, "upgrade": {"remediation": {"retries": 2}}}),
        );
        let policy = Policy { object: &object, retry_by_default: false };
        assert!(!policy.install(&status(ReleaseAction::Install, 99)).is_exhausted());
        let upgrade = policy.upgrade(&status(ReleaseAction::Upgrade, 2));
        assert!(!upgrade.is_exhausted() && upgrade.remediate_last_failure);
        assert!(policy.upgrade(&status(ReleaseAction::Upgrade, 3)).is_exhausted());
    }

    #[test]
    fn retry_on_failure_is_chosen_by_strategy_or_gate() {
        let object =
            object(json!({"install": {"strategy": {"name": "RetryOnFailure", "retryInterval": "7s"}},
            "upgrade": {"strategy": {"name": "RemediateOnFailure"}}}));
        let policy = Policy { object: &object, retry_by_default: true };
        assert_eq!(policy.retry(ReleaseAction::Install), Some(Duration::from_secs(7)));
        assert_eq!(policy.retry(ReleaseAction::Upgrade), None);
        let plain = super::tests::object(json!({}));
        let policy = Policy { object: &plain, retry_by_default: true };
        assert_eq!(policy.retry(ReleaseAction::Upgrade), Some(RETRY_INTERVAL));
    }

    #[test]
    fn failures_are_forgotten_when_something_else_is_tried() {
        let object = object(json!({}));
        let mut tried = status(ReleaseAction::Upgrade, 1);
        tried.last_attempted_generation = 3;
        tried.last_attempted_revision = Some("1.0.0".to_owned());
        tried.last_attempted_config_digest = Some("sha256:a".to_owned());
        let reset = |version, digest, asked| resets_failures(&object, &tried, version, digest, asked);
        assert_eq!(reset("1.0.0", "sha256:a", false), None);
        assert!(reset("1.0.1", "sha256:a", false).is_some());
        assert!(reset("1.0.0", "sha256:b", false).is_some());
        assert!(reset("1.0.0", "sha256:a", true).is_some());
        tried.last_attempted_generation = 2;
        assert!(resets_failures(&object, &tried, "1.0.0", "sha256:a", false).is_some());
    }

    #[test]
    fn a_checksum_of_an_older_controller_is_read_once() {
        let object = object(json!({}));
        let mut tried = status(ReleaseAction::Upgrade, 1);
        tried.last_attempted_generation = 3;
        tried.last_attempted_revision = Some("1.0.0".to_owned());
        let values = serde_json::from_value(json!({"a": 1})).unwrap();
        let sha1 = digest::of_values(Algorithm::Sha1, &values);
        tried.last_attempted_values_checksum = Some(sha1.trim_start_matches("sha1:").to_owned());
        let last = attempted_values(&tried).unwrap();
        assert_eq!((last.as_str(), digest::algorithm_of(&last)), (sha1.as_str(), Algorithm::Sha1));
        assert_eq!(resets_failures(&object, &tried, "1.0.0", &sha1, false), None);
        assert!(resets_failures(&object, &tried, "1.0.0", "sha1:other", false).is_some());
        tried.last_attempted_config_digest = Some("sha256:a".to_owned());
        assert_eq!(attempted_values(&tried).as_deref(), Some("sha256:a"), "the newer one counts");
    }

    #[test]
    fn no_limit_of_records_and_the_times_of_actions() {
        let object =
            object(json!({"maxHistory": 0, "timeout": "2m", "test": {"enable": true, "timeout": "9s"}}));
        let policy = Policy { object: &object, retry_by_default: false };
        assert_eq!(policy.max_history(), 0);
        assert_eq!(policy.timeout(Action::Test), Duration::from_secs(9));
        for own in [Action::Install, Action::Rollback { to: 1 }, Action::Uninstall, Action::CorrectDrift] {
            assert_eq!(policy.timeout(own), Duration::from_secs(120), "{}", own.name());
        }
    }
}
