//! What next: the action a state asks for, and whether to go on after it. Pure.

use std::time::Duration;

use flux_api::helm::{DriftDetectionMode, HelmReleaseStatus, ReleaseSnapshot, RemediationStrategy};
use helm::release::{History, Status};
use helm::{HookEvent, HookPhase};

use super::policy::Policy;
use super::snapshot;
use super::state::State;

/// What is done to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Install,
    Upgrade,
    Test,
    Rollback {
        to: i64,
    },
    /// Uninstalls so that the next try starts from nothing.
    Uninstall,
    Unlock,
    CorrectDrift,
}

/// Actions of one sort happen at most once in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Release,
    Remediate,
    Test,
    Unlock,
    DriftCorrection,
}

impl Action {
    /// As conditions call it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Install => "install",
            Action::Upgrade => "upgrade",
            Action::Test => "test",
            Action::Rollback { .. } => "rollback",
            Action::Uninstall => "uninstall",
            Action::Unlock => "unlock",
            Action::CorrectDrift => "correct cluster drift",
        }
    }

    pub fn sort(self) -> Sort {
        match self {
            Action::Install | Action::Upgrade => Sort::Release,
            Action::Rollback { .. } | Action::Uninstall => Sort::Remediate,
            Action::Test => Sort::Test,
            Action::Unlock => Sort::Unlock,
            Action::CorrectDrift => Sort::DriftCorrection,
        }
    }
}

/// What a state comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Do(Action),
    /// Everything is as it should be, or as good as it gets.
    Nothing,
    Stall(Stall),
}

/// Why nothing is tried any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    RetriesExceeded,
    MissingRollbackTarget,
}

/// Where a rollback could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Revision(i64),
    /// There was one, but it is not what it was.
    Changed,
    None,
}

/// What the decision depends on besides the state.
pub struct Situation<'a> {
    pub policy: Policy<'a>,
    pub status: &'a HelmReleaseStatus,
    /// Somebody asked for an upgrade whatever the state.
    pub force: bool,
    pub target: Target,
}

impl Situation<'_> {
    pub fn decide(&self, state: &State) -> Decision {
        match state {
            State::InSync if self.force => Decision::Do(Action::Upgrade),
            State::InSync => Decision::Nothing,
            State::Locked { .. } => Decision::Do(Action::Unlock),
            State::HalfRemoved => Decision::Do(Action::Uninstall),
            State::Absent { .. } => {
                self.unless_exhausted(self.policy.install(self.status).is_exhausted(), Action::Install)
            }
            State::Unmanaged { .. } => Decision::Do(Action::Upgrade),
            State::OutOfSync { .. } => {
                self.unless_exhausted(self.policy.upgrade(self.status).is_exhausted(), Action::Upgrade)
            }
            State::Drifted if self.policy.drift_mode() == DriftDetectionMode::Enabled => {
                Decision::Do(Action::CorrectDrift)
            }
            State::Drifted => Decision::Nothing,
            State::Untested => Decision::Do(Action::Test),
            State::Failed { .. } => self.repair(),
        }
    }

    fn unless_exhausted(&self, exhausted: bool, action: Action) -> Decision {
        if exhausted && !self.force {
            return Decision::Stall(Stall::RetriesExceeded);
        }
        Decision::Do(action)
    }

    fn repair(&self) -> Decision {
        if self.policy.active_retry(self.status).is_some() {
            return Decision::Do(Action::Upgrade);
        }
        let Some(remediation) = self.policy.active(self.status) else {
            return Decision::Do(Action::Upgrade);
        };
        // No failure of what is wanted now: it was something else that failed, or a cause that does not count.
        if remediation.failures <= 0 || self.force {
            return Decision::Do(Action::Upgrade);
        }
        if remediation.is_exhausted() && !remediation.remediate_last_failure {
            return Decision::Stall(Stall::RetriesExceeded);
        }
        match (remediation.strategy, self.target) {
            (RemediationStrategy::Uninstall, _) => Decision::Do(Action::Uninstall),
            (RemediationStrategy::Rollback, Target::Revision(to)) => Decision::Do(Action::Rollback { to }),
            (RemediationStrategy::Rollback, Target::Changed) => Decision::Do(Action::Upgrade),
            (RemediationStrategy::Rollback, Target::None) => Decision::Stall(Stall::MissingRollbackTarget),
        }
    }
}

/// Where to roll back to: the last good release of the status, if its record is what it was; else the last good one
/// among the records, since a status can be lost and records are what Helm rolls back to.
pub fn rollback_target(history: &[ReleaseSnapshot], records: &History, ignore_tests: bool) -> Target {
    let previous = snapshot::previous(history, ignore_tests);
    let record = previous.and_then(|previous| records.get(previous.version));
    match (previous, record) {
        (Some(previous), Some(record)) if snapshot::verifies(previous, record) => {
            Target::Revision(previous.version)
        }
        (Some(_), Some(_)) => Target::Changed,
        (missing, _) => match (last_good(records, ignore_tests), missing) {
            (Some(version), _) => Target::Revision(version),
            (None, Some(_)) => Target::Changed,
            (None, None) => Target::None,
        },
    }
}

fn last_good(records: &History, ignore_tests: bool) -> Option<i64> {
    let newest = records.last()?.version;
    let good = records.revisions().iter().rev().find(|record| {
        let failed_test = record
            .hooks
            .iter()
            .any(|hook| hook.events.contains(&HookEvent::Test) && hook.last_run.phase == HookPhase::Failed);
        record.version < newest
            && matches!(record.info.status, Status::Deployed | Status::Superseded)
            && (ignore_tests || !failed_test)
    });
    good.map(|record| record.version)
}

/// How a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// Look at the state again.
    Continue,
    /// Enough for this run; try again after the failure's own wait.
    Retry,
    /// The strategy's interval counts.
    RetryAfter(Duration),
    /// Nothing to be done before the next interval.
    Rest,
    Stall(Stall),
}

/// Before an action of a sort that has been done already in this run.
pub fn before_repeating(policy: Policy<'_>, status: &HelmReleaseStatus) -> Onward {
    if let Some(interval) = policy.active_retry(status) {
        return Onward::RetryAfter(interval);
    }
    match policy.active(status) {
        Some(remediation) if remediation.is_exhausted() => Onward::Rest,
        _ => Onward::Retry,
    }
}

/// After an action that ended, well or not.
pub fn after(action: Action, policy: Policy<'_>, status: &HelmReleaseStatus) -> Onward {
    if action.sort() != Sort::Remediate {
        return Onward::Continue;
    }
    if let Some(interval) = policy.active_retry(status) {
        return Onward::RetryAfter(interval);
    }
    match policy.active(status) {
        Some(remediation) if remediation.is_exhausted() && !remediation.is_uninstall_after_upgrade() => {
            Onward::Stall(Stall::RetriesExceeded)
        }
        _ => Onward::Retry,
    }
}

#[cfg(test)]
mod tests {
    use flux_api::helm::{HelmRelease, ReleaseAction};
    use serde_json::{Value, json};

    use super::super::state::tests::{knows, object, release};
    use flux_api::digest::Algorithm;

    use super::*;

    struct Case {
        object: HelmRelease,
        status: HelmReleaseStatus,
        force: bool,
        target: Target,
    }

    fn case(spec: Value) -> Case {
        Case {
            object: object(spec),
            status: HelmReleaseStatus::default(),
            force: false,
            target: Target::None,
        }
    }

    impl Case {
        fn tried(mut self, action: ReleaseAction, failures: i64) -> Self {
            self.status.last_attempted_release_action = Some(action);
            match action {
                ReleaseAction::Install => self.status.install_failures = failures,
                ReleaseAction::Upgrade => self.status.upgrade_failures = failures,
            }
            self
        }

        fn target(mut self, target: Target) -> Self {
            self.target = target;
            self
        }

        fn forced(mut self) -> Self {
            self.force = true;
            self
        }

        fn policy(&self) -> Policy<'_> {
            Policy { object: &self.object, retry_by_default: false }
        }

        fn decide(&self, state: State) -> Decision {
            let situation = Situation {
                policy: self.policy(),
                status: &self.status,
                force: self.force,
                target: self.target,
            };
            situation.decide(&state)
        }
    }

    const FAILED: State = State::Failed { why: "" };
    const ABSENT: State = State::Absent { why: "" };
    const OLD: State = State::OutOfSync { why: "" };

    #[test]
    fn what_is_in_sync_is_left_alone_unless_forced() {
        assert_eq!(case(json!({})).decide(State::InSync), Decision::Nothing);
        assert_eq!(case(json!({})).forced().decide(State::InSync), Decision::Do(Action::Upgrade));
    }

    #[test]
    fn what_was_abandoned_is_taken_up() {
        let locked = State::Locked { status: Status::PendingUpgrade };
        assert_eq!(case(json!({})).decide(locked), Decision::Do(Action::Unlock));
        assert_eq!(case(json!({})).decide(State::HalfRemoved), Decision::Do(Action::Uninstall));
        let unmanaged = State::Unmanaged { why: "" };
        assert_eq!(case(json!({})).decide(unmanaged), Decision::Do(Action::Upgrade));
    }

    #[test]
    fn what_is_absent_is_installed_while_retries_last() {
        assert_eq!(case(json!({})).decide(ABSENT), Decision::Do(Action::Install));
        let out = || case(json!({})).tried(ReleaseAction::Install, 1);
        assert_eq!(out().decide(ABSENT), Decision::Stall(Stall::RetriesExceeded));
        assert_eq!(out().forced().decide(ABSENT), Decision::Do(Action::Install));
        let more = case(json!({"install": {"remediation": {"retries": 1}}})).tried(ReleaseAction::Install, 1);
        assert_eq!(more.decide(ABSENT), Decision::Do(Action::Install));
    }

    #[test]
    fn what_is_out_of_sync_is_upgraded_while_retries_last() {
        assert_eq!(case(json!({})).decide(OLD), Decision::Do(Action::Upgrade));
        let out = || case(json!({})).tried(ReleaseAction::Upgrade, 1);
        assert_eq!(out().decide(OLD), Decision::Stall(Stall::RetriesExceeded));
        assert_eq!(out().forced().decide(OLD), Decision::Do(Action::Upgrade));
    }

    #[test]
    fn drift_is_corrected_only_where_asked() {
        let mode = |mode: &str| case(json!({"driftDetection": {"mode": mode}})).decide(State::Drifted);
        assert_eq!(mode("enabled"), Decision::Do(Action::CorrectDrift));
        assert_eq!(mode("warn"), Decision::Nothing);
        assert_eq!(case(json!({})).decide(State::Untested), Decision::Do(Action::Test));
    }

    #[test]
    fn a_failure_that_does_not_count_is_tried_again() {
        assert_eq!(case(json!({})).decide(FAILED), Decision::Do(Action::Upgrade), "nothing was tried yet");
        assert_eq!(
            case(json!({})).tried(ReleaseAction::Install, 0).decide(FAILED),
            Decision::Do(Action::Upgrade)
        );
        let forced = case(json!({})).tried(ReleaseAction::Upgrade, 1).forced();
        assert_eq!(forced.decide(FAILED), Decision::Do(Action::Upgrade));
    }

    #[test]
    fn retry_on_failure_upgrades_for_ever() {
        let spec = json!({"install": {"strategy": {"name": "RetryOnFailure"}}});
        assert_eq!(case(spec).tried(ReleaseAction::Install, 9).decide(FAILED), Decision::Do(Action::Upgrade));
    }

    #[test]
    fn a_failed_install_is_uninstalled_while_retries_last() {
        let spec = json!({"install": {"remediation": {"retries": 1}}});
        let once = case(spec.clone()).tried(ReleaseAction::Install, 1);
        assert_eq!(once.decide(FAILED), Decision::Do(Action::Uninstall));
        let twice = case(spec).tried(ReleaseAction::Install, 2);
        assert_eq!(twice.decide(FAILED), Decision::Stall(Stall::RetriesExceeded));
        let last = json!({"install": {"remediation": {"retries": 1, "remediateLastFailure": true}}});
        let twice = case(last).tried(ReleaseAction::Install, 2);
        assert_eq!(twice.decide(FAILED), Decision::Do(Action::Uninstall));
    }

    #[test]
    fn a_failed_upgrade_is_rolled_back_to_a_target_that_holds() {
        let spec = json!({"upgrade": {"remediation": {"retries": 1}}});
        let failed = |failures| case(spec.clone()).tried(ReleaseAction::Upgrade, failures);
        assert_eq!(
            failed(1).target(Target::Revision(3)).decide(FAILED),
            Decision::Do(Action::Rollback { to: 3 })
        );
        assert_eq!(
            failed(2).target(Target::Revision(3)).decide(FAILED),
            Decision::Do(Action::Rollback { to: 3 })
        );
        assert_eq!(failed(1).target(Target::Changed).decide(FAILED), Decision::Do(Action::Upgrade));
        assert_eq!(failed(1).decide(FAILED), Decision::Stall(Stall::MissingRollbackTarget));
        let uninstall = json!({"upgrade": {"remediation": {"retries": 1, "strategy": "uninstall"}}});
        let failed = case(uninstall).tried(ReleaseAction::Upgrade, 1);
        assert_eq!(failed.decide(FAILED), Decision::Do(Action::Uninstall));
    }

    #[test]
    fn no_retries_means_no_remediation() {
        let failed = case(json!({})).tried(ReleaseAction::Upgrade, 1).target(Target::Revision(1));
        assert_eq!(failed.decide(FAILED), Decision::Stall(Stall::RetriesExceeded));
    }

    #[test]
    fn after_a_remediation_the_run_ends() {
        let spec = json!({"upgrade": {"remediation": {"retries": 1}}});
        let rollback = Action::Rollback { to: 1 };
        let once = case(spec.clone()).tried(ReleaseAction::Upgrade, 1);
        assert_eq!(after(rollback, once.policy(), &once.status), Onward::Retry);
        let twice = case(spec).tried(ReleaseAction::Upgrade, 2);
        assert_eq!(after(rollback, twice.policy(), &twice.status), Onward::Stall(Stall::RetriesExceeded));
        let uninstall = json!({"upgrade": {"remediation": {"strategy": "uninstall"}}});
        let uninstalled = case(uninstall).tried(ReleaseAction::Upgrade, 1);
        assert_eq!(after(Action::Uninstall, uninstalled.policy(), &uninstalled.status), Onward::Retry);
        assert_eq!(after(Action::Upgrade, twice.policy(), &twice.status), Onward::Continue);
    }

    #[test]
    fn an_action_is_not_repeated_in_one_run() {
        let retry = json!({"upgrade": {"strategy": {"name": "RetryOnFailure", "retryInterval": "9s"}}});
        let case_of = |spec: Value, failures| case(spec).tried(ReleaseAction::Upgrade, failures);
        let onward = |case: Case| before_repeating(case.policy(), &case.status);
        assert_eq!(onward(case_of(retry, 1)), Onward::RetryAfter(Duration::from_secs(9)));
        assert_eq!(onward(case_of(json!({}), 0)), Onward::Retry);
        assert_eq!(onward(case_of(json!({}), 1)), Onward::Rest);
    }

    #[test]
    fn the_target_is_the_last_good_release_of_the_status_or_of_the_records() {
        let (first, second, third) =
            (release(1, Status::Superseded), release(2, Status::Deployed), release(3, Status::Failed));
        let records = History::new(vec![first.clone(), second.clone(), third.clone()]);
        let mut status = knows(&third);
        assert_eq!(
            rollback_target(&status.history, &records, false),
            Target::Revision(2),
            "from the records"
        );
        status.history.push(snapshot::of(Algorithm::Sha256, &first, None, None));
        assert_eq!(
            rollback_target(&status.history, &records, false),
            Target::Revision(1),
            "as the status says"
        );
        status.history[1].digest = "sha256:other".to_owned();
        assert_eq!(rollback_target(&status.history, &records, false), Target::Changed);
        let failed_only = History::new(vec![third.clone()]);
        assert_eq!(rollback_target(&knows(&third).history, &failed_only, false), Target::None);
        assert_eq!(rollback_target(&status.history, &failed_only, false), Target::Changed);
    }
}
