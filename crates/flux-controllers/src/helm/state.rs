//! What is: the state of a release, read off its records, the status and what is wanted. Pure.

use flux_api::helm::HelmReleaseStatus;
use helm::release::{Release, Status};

use super::policy::Policy;
use super::snapshot;

/// What a release looks like from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none, or it was uninstalled.
    Absent {
        why: &'static str,
    },
    /// Somebody else made it, or changed it since.
    Unmanaged {
        why: &'static str,
    },
    /// Its last operation never ended: whoever ran it is gone, since only one controller works on an object.
    Locked {
        status: Status,
    },
    /// Its removal was begun and never ended.
    HalfRemoved,
    Failed {
        why: &'static str,
    },
    /// What is released is not what is wanted.
    OutOfSync {
        why: &'static str,
    },
    Untested,
    /// The cluster is not what was released.
    Drifted,
    InSync,
}

/// All that the state depends on.
pub struct Observed<'a> {
    pub policy: Policy<'a>,
    pub status: &'a HelmReleaseStatus,
    /// The newest record.
    pub last: Option<&'a Release>,
    pub chart_name: &'a str,
    pub chart_version: &'a str,
    pub config_digest: &'a str,
    pub post_renderers_digest: Option<&'a str>,
    pub common_metadata_digest: Option<&'a str>,
    /// Whether a comparison with the cluster found changes. Made only when everything else is in order.
    pub has_drifted: bool,
}

impl Observed<'_> {
    pub fn state(&self) -> State {
        let Some(last) = self.last else {
            return State::Absent { why: "no release in storage for object" };
        };
        match last.info.status {
            status if status.is_pending() => return State::Locked { status },
            Status::Unknown => return State::Locked { status: Status::Unknown },
            Status::Uninstalling => return State::HalfRemoved,
            _ => {}
        }
        let Some(latest) = snapshot::latest(&self.status.history) else {
            return match last.info.status {
                Status::Uninstalled => State::Absent { why: "found uninstalled release in storage" },
                _ => State::Unmanaged { why: "found existing release in storage" },
            };
        };
        if !snapshot::verifies(latest, last) {
            return State::Unmanaged { why: "release not observed to be made for object" };
        }
        match last.info.status {
            Status::Failed => State::Failed { why: "" },
            Status::Uninstalled => State::Absent { why: "found uninstalled release in storage" },
            Status::Deployed => self.deployed(last),
            // Upstream stops here for good. The record after this one was deleted, so nobody knows what is in the
            // cluster: an upgrade finds out.
            Status::Superseded => State::Unmanaged { why: "the newest release in storage is superseded" },
            Status::Unknown
            | Status::Uninstalling
            | Status::PendingInstall
            | Status::PendingUpgrade
            | Status::PendingRollback => State::Locked { status: last.info.status },
        }
    }

    fn deployed(&self, last: &Release) -> State {
        let Some(latest) = snapshot::latest(&self.status.history) else {
            return State::Unmanaged { why: "found existing release in storage" };
        };
        if last.chart_name() != self.chart_name || last.chart_version() != self.chart_version {
            return State::OutOfSync { why: "release chart changed" };
        }
        if latest.config_digest != self.config_digest {
            return State::OutOfSync { why: "release config values changed" };
        }
        // Compared only once for each generation: an older controller may have left no digests behind.
        if Some(self.status.observed_generation) != self.policy.object.metadata.generation {
            if self.post_renderers_digest != self.status.observed_post_renderers_digest.as_deref() {
                return State::OutOfSync { why: "postrenderers digest has changed" };
            }
            if self.common_metadata_digest != self.status.observed_common_metadata_digest.as_deref() {
                return State::OutOfSync { why: "common metadata digest has changed" };
            }
        }
        if self.policy.tests() {
            if !snapshot::is_tested(latest) {
                return State::Untested;
            }
            let counts =
                self.policy.active(self.status).is_some_and(|remediation| !remediation.ignore_test_failures);
            if counts && snapshot::has_failed_test(latest) {
                return State::Failed { why: "release has test in failed phase" };
            }
        }
        if self.has_drifted { State::Drifted } else { State::InSync }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use flux_api::helm::{HelmRelease, ReleaseAction, TestHookStatus};
    use serde_json::{Value, json};

    use super::super::digest;
    use flux_api::digest::Algorithm;

    use super::*;

    pub fn object(spec: Value) -> HelmRelease {
        let mut all = json!({"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "apps", "generation": 2}, "spec": all,
        }))
        .unwrap()
    }

    pub fn release(version: i64, status: Status) -> Release {
        let mut release: Release = serde_json::from_value(json!({
            "name": "web", "namespace": "apps", "version": version,
            "chart": {"metadata": {"name": "c", "version": "1.0.0"}},
        }))
        .unwrap();
        release.info.status = status;
        release
    }

    /// A status that knows `release` as its latest.
    pub fn knows(release: &Release) -> HelmReleaseStatus {
        HelmReleaseStatus {
            observed_generation: 2,
            history: vec![snapshot::of(Algorithm::Sha256, release, Some("upgrade"), None)],
            last_attempted_release_action: Some(ReleaseAction::Upgrade),
            ..HelmReleaseStatus::default()
        }
    }

    fn state_of(spec: Value, last: Option<&Release>, status: &HelmReleaseStatus) -> State {
        state_with(spec, last, status, |_| {})
    }

    fn state_with(
        spec: Value,
        last: Option<&Release>,
        status: &HelmReleaseStatus,
        change: impl Fn(&mut Observed<'_>),
    ) -> State {
        let object = object(spec);
        let nothing = digest::of(Algorithm::Sha256, b"");
        let mut observed = Observed {
            policy: Policy { object: &object, retry_by_default: false },
            status,
            last,
            chart_name: "c",
            chart_version: "1.0.0",
            config_digest: &nothing,
            post_renderers_digest: None,
            common_metadata_digest: None,
            has_drifted: false,
        };
        change(&mut observed);
        observed.state()
    }

    #[test]
    fn no_record_means_absent() {
        let state = state_of(json!({}), None, &HelmReleaseStatus::default());
        assert_eq!(state, State::Absent { why: "no release in storage for object" });
    }

    #[test]
    fn a_pending_record_is_locked_whoever_made_it() {
        for status in
            [Status::PendingInstall, Status::PendingUpgrade, Status::PendingRollback, Status::Unknown]
        {
            let last = release(1, status);
            assert_eq!(
                state_of(json!({}), Some(&last), &HelmReleaseStatus::default()),
                State::Locked { status }
            );
            assert_eq!(state_of(json!({}), Some(&last), &knows(&last)), State::Locked { status });
        }
    }

    #[test]
    fn a_release_nobody_knows_is_unmanaged_unless_it_was_uninstalled() {
        let nobody = HelmReleaseStatus::default();
        for status in [Status::Deployed, Status::Failed, Status::Superseded] {
            let state = state_of(json!({}), Some(&release(1, status)), &nobody);
            assert_eq!(state, State::Unmanaged { why: "found existing release in storage" });
        }
        let state = state_of(json!({}), Some(&release(1, Status::Uninstalled)), &nobody);
        assert_eq!(state, State::Absent { why: "found uninstalled release in storage" });
    }

    #[test]
    fn a_release_that_real_helm_changed_is_unmanaged() {
        let status = knows(&release(1, Status::Deployed));
        let state = state_of(json!({}), Some(&release(2, Status::Deployed)), &status);
        assert_eq!(state, State::Unmanaged { why: "release not observed to be made for object" });
    }

    #[test]
    fn the_status_of_a_known_record_counts() {
        let of = |status| {
            let last = release(1, status);
            state_of(json!({}), Some(&last), &knows(&last))
        };
        assert_eq!(of(Status::Failed), State::Failed { why: "" });
        assert_eq!(of(Status::Uninstalled), State::Absent { why: "found uninstalled release in storage" });
        assert_eq!(of(Status::Uninstalling), State::HalfRemoved);
        assert_eq!(
            of(Status::Superseded),
            State::Unmanaged { why: "the newest release in storage is superseded" }
        );
        assert_eq!(of(Status::Deployed), State::InSync);
    }

    #[test]
    fn another_chart_or_other_values_are_out_of_sync() {
        let last = release(1, Status::Deployed);
        let status = knows(&last);
        let with = |change: &dyn Fn(&mut Observed<'_>)| state_with(json!({}), Some(&last), &status, change);
        let chart = State::OutOfSync { why: "release chart changed" };
        assert_eq!(with(&|observed| observed.chart_version = "1.0.1"), chart);
        assert_eq!(with(&|observed| observed.chart_name = "d"), chart);
        let values = State::OutOfSync { why: "release config values changed" };
        assert_eq!(with(&|observed| observed.config_digest = "sha256:other"), values);
    }

    #[test]
    fn post_renderers_and_metadata_are_compared_once_for_each_generation() {
        let last = release(1, Status::Deployed);
        let mut status = knows(&last);
        let renderers = |observed: &mut Observed<'_>| observed.post_renderers_digest = Some("sha256:new");
        let metadata = |observed: &mut Observed<'_>| observed.common_metadata_digest = Some("sha256:new");
        assert_eq!(state_with(json!({}), Some(&last), &status, renderers), State::InSync);
        status.observed_generation = 1;
        assert_eq!(
            state_with(json!({}), Some(&last), &status, renderers),
            State::OutOfSync { why: "postrenderers digest has changed" }
        );
        assert_eq!(
            state_with(json!({}), Some(&last), &status, metadata),
            State::OutOfSync { why: "common metadata digest has changed" }
        );
    }

    #[test]
    fn tests_that_have_not_run_are_run_and_failed_ones_count() {
        let last = release(1, Status::Deployed);
        let mut status = knows(&last);
        let tests = json!({"test": {"enable": true}});
        assert_eq!(state_of(tests.clone(), Some(&last), &status), State::Untested);
        let hook = TestHookStatus { phase: Some("Failed".to_owned()), ..TestHookStatus::default() };
        status.history[0].test_hooks = Some(BTreeMap::from([("t".to_owned(), hook)]));
        assert_eq!(
            state_of(tests, Some(&last), &status),
            State::Failed { why: "release has test in failed phase" }
        );
        let ignored = json!({"test": {"enable": true, "ignoreFailures": true}});
        assert_eq!(state_of(ignored, Some(&last), &status), State::InSync);
        let by_remediation =
            json!({"test": {"enable": true}, "upgrade": {"remediation": {"ignoreTestFailures": true}}});
        assert_eq!(state_of(by_remediation, Some(&last), &status), State::InSync);
    }

    #[test]
    fn drift_comes_last() {
        let last = release(1, Status::Deployed);
        let status = knows(&last);
        let drifted = |observed: &mut Observed<'_>| observed.has_drifted = true;
        assert_eq!(state_with(json!({}), Some(&last), &status, drifted), State::Drifted);
        let failed = release(1, Status::Failed);
        assert_eq!(state_with(json!({}), Some(&failed), &knows(&failed), drifted), State::Failed { why: "" });
    }
}
