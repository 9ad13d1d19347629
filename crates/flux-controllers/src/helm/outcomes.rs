//! What an action leaves behind in status and events.

use std::time::Instant;

use flux_api::Object;
use flux_api::condition::{
    self, CRDS_OUTDATED, ConditionStatus, DRIFTED, READY, RELEASED, REMEDIATED, TEST_SUCCESS,
};
use flux_api::duration::GoDuration;
use flux_api::helm::{ReleaseAction, ReleaseSnapshot};
use flux_api::time::Time;
use helm::Values;
use helm::release::{Release, Status};
use k8s_openapi::jiff::Timestamp;

use super::actions::Actor;
use super::drift::{self, Drift};
use super::execute::Outcome;
use super::fault::Fault;
use super::inventory::Listed;
use super::next::Action;
use super::policy::{self, Policy};
use super::report::{About, Run, release_with_chart, tell};
use super::snapshot::{self, Made, Newness};
use super::state::State;
use super::storage::Records;
use super::{Loaded, digest, names};
use crate::reconcile::{Events, Severity};

/// What a state means for history and conditions, whatever is done next.
pub fn prepare(run: &mut Run<'_>, policy: Policy<'_>, state: &State, events: &Events, drift: Option<&Drift>) {
    let retries = policy.active_retry(&run.status).is_some();
    let ignore_tests = policy
        .active(&run.status)
        .map_or_else(|| policy.ignores_test_failures(), |remediation| remediation.ignore_test_failures);
    match state {
        State::InSync => {
            if retries {
                snapshot::truncate_by_age(&mut run.status.history);
            } else {
                snapshot::truncate(&mut run.status.history, ignore_tests);
            }
            settle_conditions(run);
            if policy.detects_drift() {
                let text = "No drift detected against the cluster state";
                run.set(DRIFTED, ConditionStatus::False, "NoDriftDetected", text);
            } else {
                condition::delete(&mut run.status.conditions, DRIFTED);
            }
        }
        State::Unmanaged { .. } => run.status.history.clear(),
        State::Untested => replace_remediated(run),
        State::Failed { .. } if retries => snapshot::truncate_by_age(&mut run.status.history),
        State::Failed { .. } => snapshot::truncate(&mut run.status.history, ignore_tests),
        State::Drifted => {
            let (Some(drift), Some(latest)) = (drift, snapshot::latest(&run.status.history)) else { return };
            let text = format!(
                "Cluster state of release {} has drifted from the desired state:\n{}",
                snapshot::full_name(latest),
                drift.summary()
            );
            tell(events, run.raw, Severity::Error, "DriftDetected", text.clone(), None);
            run.set(DRIFTED, ConditionStatus::True, "DriftDetected", text);
        }
        State::Absent { .. } | State::Locked { .. } | State::HalfRemoved | State::OutOfSync { .. } => {}
    }
}

/// A release that is in sync is a success, whatever was said when it was made.
fn settle_conditions(run: &mut Run<'_>) {
    replace_remediated(run);
    let released = condition::find(&run.status.conditions, RELEASED).cloned();
    let (word, reason) = match released.as_ref().map(|one| one.reason.as_str()) {
        Some("InstallFailed") => ("install", "InstallSucceeded"),
        Some("UpgradeFailed") => ("upgrade", "UpgradeSucceeded"),
        // The status was lost, or came from elsewhere: the record says that it was released.
        None => ("upgrade", "UpgradeSucceeded"),
        Some("PendingRelease") => ("upgrade", "UpgradeSucceeded"),
        Some(_) => return,
    };
    if let Some(latest) = snapshot::latest(&run.status.history) {
        let text = format!("Helm {word} succeeded for release {}", release_with_chart(latest));
        run.set(RELEASED, ConditionStatus::True, reason, text);
    }
}

/// Rolled back to what is wanted again: that is a success, too.
fn replace_remediated(run: &mut Run<'_>) {
    if !condition::is(&run.status.conditions, REMEDIATED, ConditionStatus::True) {
        return;
    }
    condition::delete(&mut run.status.conditions, REMEDIATED);
    if let Some(latest) = snapshot::latest(&run.status.history) {
        let text = format!("Helm upgrade succeeded for release {}", release_with_chart(latest));
        run.set(RELEASED, ConditionStatus::True, "UpgradeSucceeded", text);
    }
}

/// Carries an action out. `Err` when it changed nothing in storage: then it counts as not having happened.
#[expect(clippy::too_many_arguments, reason = "the run and its means")]
pub async fn act(
    run: &mut Run<'_>,
    actor: &Actor<'_>,
    action: Action,
    records: &mut Records,
    loaded: &Loaded,
    values: &Values,
    drift: Option<Drift>,
    events: &Events,
) -> Result<(), Fault> {
    match action {
        Action::Install | Action::Upgrade => {
            release(run, actor, action, records, loaded, values, events).await
        }
        Action::Rollback { to } => rollback(run, actor, to, records, loaded, values, events).await,
        Action::Uninstall => remediate_by_uninstall(run, actor, records, events).await,
        Action::Test => test(run, actor, records, events).await,
        Action::Unlock => unlock(run, actor, records, events).await,
        Action::CorrectDrift => {
            run.set(READY, ConditionStatus::Unknown, "Progressing", "correcting cluster drift");
            if let Some(drift) = drift {
                drift::correct(run, actor, drift, events).await;
            }
            Ok(())
        }
    }
}

async fn release(
    run: &mut Run<'_>,
    actor: &Actor<'_>,
    action: Action,
    records: &mut Records,
    loaded: &Loaded,
    values: &Values,
    events: &Events,
) -> Result<(), Fault> {
    let installs = action == Action::Install;
    let (word, attempted, made) = if installs {
        ("install", ReleaseAction::Install, Made::Install)
    } else {
        ("upgrade", ReleaseAction::Upgrade, Made::Upgrade)
    };
    let (succeeded, failed) =
        if installs { ("InstallSucceeded", "InstallFailed") } else { ("UpgradeSucceeded", "UpgradeFailed") };
    run.status.last_attempted_release_action = Some(attempted);
    if installs {
        run.status.history.clear();
    }
    condition::delete(&mut run.status.conditions, TEST_SUCCESS);
    condition::delete(&mut run.status.conditions, REMEDIATED);
    let started = Instant::now();
    let released = if installs {
        actor.install(loaded, values, records).await
    } else {
        actor.upgrade(loaded, values, records).await
    };
    run.status.last_attempted_release_action_duration = Some(GoDuration::from(started.elapsed()));
    note_inventory(run, released.inventory, events);
    if let Some(outdated) = released.outdated_crds {
        note_outdated_crds(run, &outdated);
    }
    let outcome = released.outcome;
    note_written(run, &outcome.written, made, loaded.oci_digest.as_deref());
    let about = About {
        revision: loaded.version().to_owned(),
        token: digest::of_values(run.algorithm, values.as_map()),
        app_version: loaded.chart.metadata.app_version.clone(),
        oci_digest: loaded.oci_digest.clone().unwrap_or_default(),
    };
    if let Some(fault) = outcome.fault {
        let object = run.object;
        let text = format!(
            "Helm {word} failed for release {}/{} with chart {}@{}: {}",
            names::release_namespace(object),
            names::wanted_name(object),
            loaded.chart.name(),
            loaded.version(),
            fault.message.trim()
        );
        fail(run, RELEASED, failed, &text, &fault, &about, events);
        if outcome.written.is_empty() || fault.canceled {
            return Err(fault);
        }
        // What the API server or a webhook could not do just now is no fault of the release.
        if !fault.transient {
            match attempted {
                ReleaseAction::Install => run.status.install_failures += 1,
                ReleaseAction::Upgrade => run.status.upgrade_failures += 1,
            }
        }
        return Ok(());
    }
    let Some(latest) = snapshot::latest(&run.status.history).cloned() else {
        return Ok(());
    };
    let text = format!("Helm {word} succeeded for release {}", release_with_chart(&latest));
    run.set(RELEASED, ConditionStatus::True, succeeded, text.clone());
    if actor.policy.tests() && !snapshot::is_tested(&latest) {
        let text = format!("Helm release {} is awaiting tests", release_with_chart(&latest));
        run.set(TEST_SUCCESS, ConditionStatus::Unknown, "AwaitingTests", text);
    }
    if actor.policy.retry(attempted).is_some() {
        policy::clear_failures(&mut run.status);
    }
    tell(events, run.raw, Severity::Info, succeeded, text, Some(&About::snapshot(&latest)));
    Ok(())
}

/// What the release consists of now. What is not known about it is told, and the last inventory stays.
fn note_inventory(run: &mut Run<'_>, listed: Option<Result<Listed, String>>, events: &Events) {
    let (namespace, name) = (Object::namespace(run.object), run.object.name());
    match listed {
        Some(Ok(listed)) => {
            if !listed.warnings.is_empty() {
                let text = listed.warnings.join("; ");
                tell(events, run.raw, Severity::Error, "NamespaceCheckSkipped", text, None);
            }
            run.status.inventory = Some(listed.inventory);
        }
        Some(Err(problem)) => {
            let text = format!("failed to build inventory for {namespace}/{name}: {problem}");
            tell(events, run.raw, Severity::Error, "InventoryBuildFailed", text, None);
        }
        None => {}
    }
}

/// CRDs that the policy left behind: upgrades of a chart are where this goes wrong unseen.
fn note_outdated_crds(run: &mut Run<'_>, outdated: &[String]) {
    if outdated.is_empty() {
        return condition::delete(&mut run.status.conditions, CRDS_OUTDATED);
    }
    let text = format!(
        "the cluster's CRDs are not the chart's: {}; spec.install.crds and spec.upgrade.crds say whether they are replaced",
        outdated.join(", ")
    );
    run.set(CRDS_OUTDATED, ConditionStatus::True, "LeftByPolicy", text);
}

/// The newest record becomes the latest snapshot, older ones change what is known of them.
fn note_written(run: &mut Run<'_>, written: &[Release], made: Made, oci_digest: Option<&str>) {
    let newest = written.iter().map(|release| release.version).max();
    for release in written {
        if Some(release.version) == newest {
            let new = Newness::Known { made: Some(made), oci_digest };
            snapshot::record(run.algorithm, &mut run.status.history, release, Some(made), &new);
        } else {
            snapshot::record(run.algorithm, &mut run.status.history, release, None, &Newness::Ignored);
        }
    }
}

/// One more failure: the first line of what explains it goes with the condition, all of it with the event.
fn fail(
    run: &mut Run<'_>,
    kind: &str,
    reason: &str,
    text: &str,
    fault: &Fault,
    about: &About,
    events: &Events,
) {
    run.status.failures += 1;
    let first = fault.details.first().map(|line| format!("\n{line}")).unwrap_or_default();
    run.set(kind, ConditionStatus::False, reason, format!("{text}{first}"));
    let all =
        if fault.details.is_empty() { String::new() } else { format!("\n\n{}", fault.details.join("\n")) };
    tell(events, run.raw, Severity::Error, reason, format!("{text}{all}"), Some(about));
}

async fn rollback(
    run: &mut Run<'_>,
    actor: &Actor<'_>,
    to: i64,
    records: &mut Records,
    loaded: &Loaded,
    values: &Values,
    events: &Events,
) -> Result<(), Fault> {
    let Some(target) = records.history.get(to).cloned() else {
        return Err(Fault::new(format!("release has no {to} version")));
    };
    let known = run.status.history.iter().find(|one| snapshot::targets(one, &target)).cloned();
    let previous = known.unwrap_or_else(|| snapshot::of(run.algorithm, &target, None, None));
    let released = actor.rollback(to, loaded, values, records).await;
    note_inventory(run, released.inventory, events);
    for release in &released.outcome.written {
        let new = Newness::Known { made: None, oci_digest: None };
        let made =
            run.status.history.iter().any(|one| snapshot::targets(one, release)).then_some(Made::Rollback);
        snapshot::record(run.algorithm, &mut run.status.history, release, made, &new);
    }
    let about =
        About { token: digest::of_values(run.algorithm, values.as_map()), ..About::snapshot(&previous) };
    let what = format!("Helm rollback to previous release {}", release_with_chart(&previous));
    match released.outcome.fault {
        Some(fault) => {
            let text = format!("{what} failed: {}", fault.message.trim());
            fail(run, REMEDIATED, "RollbackFailed", &text, &fault, &about, events);
            // A rollback that the API server could not do just now is tried again, not given up.
            if released.outcome.written.is_empty() || fault.transient { Err(fault) } else { Ok(()) }
        }
        None => {
            let text = format!("{what} succeeded");
            run.set(REMEDIATED, ConditionStatus::True, "RollbackSucceeded", text.clone());
            tell(events, run.raw, Severity::Info, "RollbackSucceeded", text, Some(&about));
            Ok(())
        }
    }
}

async fn remediate_by_uninstall(
    run: &mut Run<'_>,
    actor: &Actor<'_>,
    records: &mut Records,
    events: &Events,
) -> Result<(), Fault> {
    let outcome = actor.uninstall(records).await;
    note_uninstalled(run, &outcome, Made::UninstallRemediation);
    let Some(latest) = snapshot::latest(&run.status.history).cloned() else {
        return outcome.fault.map_or(Ok(()), Err);
    };
    let about = About::snapshot(&latest);
    let what = format!("Helm uninstall remediation for release {}", release_with_chart(&latest));
    match outcome.fault {
        Some(fault) => {
            let text = format!("{what} failed: {}", fault.message.trim());
            fail(run, REMEDIATED, "UninstallFailed", &text, &fault, &about, events);
            Err(fault)
        }
        None => {
            let text = format!("{what} succeeded");
            run.set(REMEDIATED, ConditionStatus::True, "UninstallSucceeded", text.clone());
            tell(events, run.raw, Severity::Info, "UninstallSucceeded", text, Some(&about));
            Ok(())
        }
    }
}

pub fn note_uninstalled(run: &mut Run<'_>, outcome: &Outcome, made: Made) {
    for release in &outcome.written {
        snapshot::record(run.algorithm, &mut run.status.history, release, Some(made), &Newness::Ignored);
    }
}

async fn test(
    run: &mut Run<'_>,
    actor: &Actor<'_>,
    records: &mut Records,
    events: &Events,
) -> Result<(), Fault> {
    let filters = run.object.spec.test.as_ref().map(|test| test.filters.clone()).unwrap_or_default();
    let outcome = actor.test(records).await;
    if let (Some(tested), Some(known)) =
        (outcome.written.last(), run.status.history.iter_mut().max_by_key(|one| one.version))
        && snapshot::targets(known, tested)
    {
        let mut fresh =
            snapshot::of(run.algorithm, tested, known.action.as_deref(), known.oci_digest.as_deref());
        fresh.test_hooks = Some(snapshot::test_hooks(tested, &filters));
        *known = fresh;
    }
    let Some(latest) = snapshot::latest(&run.status.history).cloned() else {
        return outcome.fault.map_or(Ok(()), Err);
    };
    let about = About::snapshot(&latest);
    if let Some(fault) = outcome.fault {
        let text =
            format!("Helm test failed for release {}: {}", release_with_chart(&latest), fault.message.trim());
        fail(run, TEST_SUCCESS, "TestFailed", &text, &fault, &about, events);
        if !snapshot::is_tested(&latest) {
            return Err(fault);
        }
        let active = actor.policy.active(&run.status);
        if active.is_some_and(|remediation| !remediation.ignore_test_failures) && !fault.transient {
            match run.status.last_attempted_release_action {
                Some(ReleaseAction::Install) => run.status.install_failures += 1,
                Some(ReleaseAction::Upgrade) => run.status.upgrade_failures += 1,
                None => {}
            }
        }
        return Ok(());
    }
    let count = latest.test_hooks.as_ref().map_or(0, |hooks| hooks.len());
    let hooks = match count {
        0 => "no test hooks".to_owned(),
        1 => "1 test hook completed successfully".to_owned(),
        count => format!("{count} test hooks completed successfully"),
    };
    let text = format!("Helm test succeeded for release {}: {hooks}", release_with_chart(&latest));
    run.set(TEST_SUCCESS, ConditionStatus::True, "TestSucceeded", text.clone());
    tell(events, run.raw, Severity::Info, "TestSucceeded", text, Some(&about));
    Ok(())
}

async fn unlock(
    run: &mut Run<'_>,
    actor: &Actor<'_>,
    records: &mut Records,
    events: &Events,
) -> Result<(), Fault> {
    let Some(stuck) = records.history.last().cloned() else {
        return Ok(());
    };
    let known = run.status.history.iter().find(|one| snapshot::targets(one, &stuck));
    let current: ReleaseSnapshot =
        snapshot::of(run.algorithm, &stuck, None, known.and_then(|one| one.oci_digest.as_deref()));
    let outcome = actor.unlock(records).await;
    for release in &outcome.written {
        snapshot::record(run.algorithm, &mut run.status.history, release, None, &Newness::Ignored);
    }
    let about = About::snapshot(&current);
    let status = stuck.info.status.name();
    if let Some(fault) = outcome.fault {
        let text = format!(
            "Unlock of Helm release {} in {status} state failed: {}",
            release_with_chart(&current),
            fault.message.trim()
        );
        fail(run, RELEASED, "PendingRelease", &text, &fault, &about, events);
        return Err(fault);
    }
    let text = format!("Unlocked Helm release {} in {status} state", release_with_chart(&current));
    run.set(RELEASED, ConditionStatus::False, "PendingRelease", text.clone());
    tell(events, run.raw, Severity::Info, "PendingRelease", text, Some(&about));
    Ok(())
}

/// Marks a failed release whose objects became healthy as deployed.
pub async fn recovered(
    run: &mut Run<'_>,
    actor: &Actor<'_>,
    records: &mut Records,
    mut release: Release,
    events: &Events,
) -> bool {
    let older: Vec<Release> =
        records.history.all_deployed().filter(|one| one.version < release.version).cloned().collect();
    for mut old in older {
        old.info.status = Status::Superseded;
        if actor.storage.update(&old, records).await.is_err() {
            return false;
        }
        records.put(&old);
        snapshot::record(run.algorithm, &mut run.status.history, &old, None, &Newness::Ignored);
    }
    let late = Time::new(Timestamp::now());
    release.set_status(Status::Deployed, format!("Became healthy after its timeout, seen at {late}"));
    if actor.storage.update(&release, records).await.is_err() {
        return false;
    }
    snapshot::record(run.algorithm, &mut run.status.history, &release, None, &Newness::Ignored);
    policy::clear_failures(&mut run.status);
    if let Some(latest) = snapshot::latest(&run.status.history).cloned() {
        let text = format!("Release {} became healthy after its timeout", release_with_chart(&latest));
        run.set(RELEASED, ConditionStatus::True, "RecoveredAfterTimeout", text.clone());
        tell(events, run.raw, Severity::Info, "RecoveredAfterTimeout", text, Some(&About::snapshot(&latest)));
    }
    true
}

#[cfg(test)]
mod tests {
    use flux_api::digest::Algorithm;
    use flux_api::helm::{HelmRelease, HelmReleaseStatus};
    use kube::api::DynamicObject;
    use serde_json::{Value, json};

    use super::super::state::tests::{knows, object, release};
    use super::*;

    /// Type, status and reason of what is left of `conditions` once the release was found to be in `state`.
    fn seen(state: &State, spec: Value, conditions: Value) -> Vec<(String, &'static str, String)> {
        let object: HelmRelease = object(spec);
        let raw: DynamicObject = serde_json::from_value(serde_json::to_value(&object).unwrap()).unwrap();
        let status = HelmReleaseStatus {
            conditions: serde_json::from_value(conditions).unwrap(),
            ..knows(&release(3, Status::Deployed))
        };
        let mut run =
            Run { raw: &raw, object: &object, written: status.clone(), status, algorithm: Algorithm::Sha256 };
        let policy = Policy { object: &object, retry_by_default: false };
        prepare(&mut run, policy, state, &Events::silent(), None);
        let told = run.status.conditions.iter();
        told.map(|one| (one.kind.clone(), one.status.as_str(), one.reason.clone())).collect()
    }

    fn one(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn what_is_in_sync_is_a_success_whatever_was_said_before() {
        let now = |conditions: Value| seen(&State::InSync, json!({}), conditions);
        let released = |reason: &str| vec![("Released".to_owned(), "True", reason.to_owned())];
        assert_eq!(now(json!([one("Released", "False", "InstallFailed")])), released("InstallSucceeded"));
        assert_eq!(now(json!([one("Released", "False", "UpgradeFailed")])), released("UpgradeSucceeded"));
        assert_eq!(now(json!([one("Released", "True", "InstallSucceeded")])), released("InstallSucceeded"));
        let rolled_back = json!([
            one("Released", "False", "UpgradeFailed"),
            one("Remediated", "True", "RollbackSucceeded")
        ]);
        assert_eq!(now(rolled_back.clone()), released("UpgradeSucceeded"));
        assert_eq!(seen(&State::Untested, json!({}), rolled_back), released("UpgradeSucceeded"));
    }

    #[test]
    fn drifted_is_false_only_where_drift_is_looked_for() {
        let fine = || json!([one("Released", "True", "InstallSucceeded")]);
        let mode = |mode: &str| seen(&State::InSync, json!({"driftDetection": {"mode": mode}}), fine());
        for looked in ["enabled", "warn"] {
            let drifted = ("Drifted".to_owned(), "False", "NoDriftDetected".to_owned());
            assert!(mode(looked).contains(&drifted), "{looked}");
        }
        assert_eq!(mode("disabled").len(), 1);
    }

    #[test]
    fn a_release_of_somebody_else_is_taken_over_without_the_history() {
        let object = object(json!({}));
        let raw: DynamicObject = serde_json::from_value(serde_json::to_value(&object).unwrap()).unwrap();
        let status = knows(&release(3, Status::Deployed));
        let mut run =
            Run { raw: &raw, object: &object, written: status.clone(), status, algorithm: Algorithm::Sha256 };
        let policy = Policy { object: &object, retry_by_default: false };
        prepare(&mut run, policy, &State::Unmanaged { why: "" }, &Events::silent(), None);
        assert_eq!(run.status.history, []);
    }
}
