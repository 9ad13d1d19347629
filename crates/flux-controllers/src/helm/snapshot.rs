//! `.status.history`: the releases this object made, newest first. Pure.

use std::collections::BTreeMap;

use flux_api::digest::Algorithm;
use flux_api::helm::{ReleaseSnapshot, TestFilter, TestHookStatus};
use flux_api::time::Time;
use helm::HookEvent;
use helm::release::Release;
use k8s_openapi::jiff::Timestamp;
use serde_json::Map;

use super::digest;

/// How the digest of a snapshot is computed; others are not compared.
pub const VERSION: &str = "v2";
/// How many snapshots are kept when none of them is good.
const MOST: usize = 5;

/// What Helm did to make a release what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
    UninstallRemediation,
}

impl Made {
    pub fn as_str(self) -> &'static str {
        match self {
            Made::Install => "install",
            Made::Upgrade => "upgrade",
            Made::Rollback => "rollback",
            Made::Uninstall => "uninstall",
            Made::UninstallRemediation => "uninstall-remediation",
        }
    }
}

/// A release as it is stored, in short.
pub fn of(
    algorithm: Algorithm,
    release: &Release,
    action: Option<&str>,
    oci_digest: Option<&str>,
) -> ReleaseSnapshot {
    let empty = Map::new();
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ReleaseSnapshot {
        api_version: Some(VERSION.to_owned()),
        digest: digest::of_release(algorithm, release, oci_digest),
        name: release.name.clone(),
        namespace: release.namespace.clone(),
        version: release.version,
        action: action.map(str::to_owned),
        status: release.info.status.name().to_owned(),
        chart_name: release.chart_name().to_owned(),
        chart_version: release.chart_version().to_owned(),
        app_version: text(release.app_version()),
        config_digest: digest::of_values(algorithm, release.config.as_ref().unwrap_or(&empty)),
        first_deployed: time(&release.info.first_deployed).unwrap_or_else(zero),
        last_deployed: time(&release.info.last_deployed).unwrap_or_else(zero),
        deleted: time(&release.info.deleted),
        test_hooks: None,
        oci_digest: oci_digest.map(str::to_owned),
    }
}

fn time(text: &str) -> Option<Time> {
    let moment: Timestamp = text.parse().ok()?;
    (!text.starts_with("0001-01-01T00:00:00")).then(|| Time::new(moment))
}

fn zero() -> Time {
    Time::new(Timestamp::UNIX_EPOCH)
}

/// The results of a release's tests, those that `filters` choose.
pub fn test_hooks(release: &Release, filters: &[TestFilter]) -> BTreeMap<String, TestHookStatus> {
    let tests = release.hooks.iter().filter(|hook| hook.events.contains(&HookEvent::Test));
    tests
        .filter(|hook| is_chosen(&hook.name, filters))
        .map(|hook| {
            let run = &hook.last_run;
            let phase = serde_json::to_value(run.phase).ok();
            let phase = phase.as_ref().and_then(|phase| phase.as_str()).filter(|phase| !phase.is_empty());
            let status = TestHookStatus {
                last_started: time(&run.started_at),
                last_completed: time(&run.completed_at),
                phase: phase.map(str::to_owned),
            };
            (hook.name.clone(), status)
        })
        .collect()
}

fn is_chosen(name: &str, filters: &[TestFilter]) -> bool {
    let named = |exclude: bool| filters.iter().any(|one| one.exclude == exclude && one.name == name);
    let only = filters.iter().any(|filter| !filter.exclude);
    !named(true) && (!only || named(false))
}

/// `namespace/name.v3`
pub fn full_name(snapshot: &ReleaseSnapshot) -> String {
    format!("{}/{}.v{}", snapshot.namespace, snapshot.name, snapshot.version)
}

/// `chart@1.2.3`
pub fn chart(snapshot: &ReleaseSnapshot) -> String {
    format!("{}@{}", snapshot.chart_name, snapshot.chart_version)
}

pub fn targets(snapshot: &ReleaseSnapshot, release: &Release) -> bool {
    snapshot.name == release.name
        && snapshot.namespace == release.namespace
        && snapshot.version == release.version
}

/// Whether `release` is what the snapshot saw, and nobody else has touched it since.
pub fn verifies(snapshot: &ReleaseSnapshot, release: &Release) -> bool {
    let algorithm = digest::algorithm_of(&snapshot.digest);
    snapshot.api_version.as_deref() != Some(VERSION)
        || snapshot.digest == digest::of_release(algorithm, release, snapshot.oci_digest.as_deref())
}

/// Whether all tests have run, or one has failed. No tests are tests that have run.
pub fn is_tested(snapshot: &ReleaseSnapshot) -> bool {
    let Some(hooks) = &snapshot.test_hooks else {
        return false;
    };
    let is = |hook: &TestHookStatus, phase: &str| hook.phase.as_deref() == Some(phase);
    hooks.values().any(|hook| is(hook, "Failed")) || hooks.values().all(|hook| is(hook, "Succeeded"))
}

pub fn has_failed_test(snapshot: &ReleaseSnapshot) -> bool {
    snapshot.test_hooks.iter().flat_map(BTreeMap::values).any(|hook| hook.phase.as_deref() == Some("Failed"))
}

pub fn latest(history: &[ReleaseSnapshot]) -> Option<&ReleaseSnapshot> {
    history.iter().max_by_key(|snapshot| snapshot.version)
}

/// The newest good release before the latest.
pub fn previous(history: &[ReleaseSnapshot], ignore_tests: bool) -> Option<&ReleaseSnapshot> {
    let latest = latest(history)?.version;
    history
        .iter()
        .filter(|snapshot| snapshot.version < latest && is_good(snapshot, ignore_tests))
        .max_by_key(|snapshot| snapshot.version)
}

fn is_good(snapshot: &ReleaseSnapshot, ignore_tests: bool) -> bool {
    matches!(snapshot.status.as_str(), "deployed" | "superseded")
        && (ignore_tests || !has_failed_test(snapshot))
}

/// Forgets what is older than the newest good release before the latest.
pub fn truncate(history: &mut Vec<ReleaseSnapshot>, ignore_tests: bool) {
    sort(history);
    let good = history.iter().skip(1).position(|snapshot| is_good(snapshot, ignore_tests));
    history.truncate(good.map_or(MOST, |at| at + 2));
}

/// Forgets what is too old, whether it was good or not.
pub fn truncate_by_age(history: &mut Vec<ReleaseSnapshot>) {
    sort(history);
    history.truncate(MOST);
}

/// Newest first.
pub fn sort(history: &mut [ReleaseSnapshot]) {
    history.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.version));
}

/// Puts what was stored into the history: over the snapshot of the same revision, whose tests and origin are kept, or
/// in front as a new one.
pub fn record(
    algorithm: Algorithm,
    history: &mut Vec<ReleaseSnapshot>,
    release: &Release,
    made: Option<Made>,
    new: &Newness<'_>,
) {
    if let Some(known) = history.iter_mut().find(|snapshot| targets(snapshot, release)) {
        let action = made.map(Made::as_str).or(known.action.as_deref());
        let mut fresh = of(algorithm, release, action, known.oci_digest.as_deref());
        fresh.test_hooks = known.test_hooks.take();
        *known = fresh;
    } else if let Newness::Known { made, oci_digest } = new {
        history.insert(0, of(algorithm, release, made.map(Made::as_str), *oci_digest));
        sort(history);
    }
}

/// What becomes of a revision that the history does not know.
pub enum Newness<'a> {
    /// It is ours: it joins the history.
    Known { made: Option<Made>, oci_digest: Option<&'a str> },
    /// It is an older one that somebody else made.
    Ignored,
}

#[cfg(test)]
mod tests {
    use helm::release::Status;
    use serde_json::json;

    use super::*;

    fn release(version: i64, status: Status) -> Release {
        let mut release: Release = serde_json::from_value(json!({
            "name": "web", "namespace": "apps", "version": version, "chart": {"metadata": {"name": "c", "version": "1.0.0"}},
            "info": {"first_deployed": "2026-01-02T03:04:05.6Z", "last_deployed": "2026-01-02T03:04:05.6Z"},
        }))
        .unwrap();
        release.info.status = status;
        release
    }

    fn history(statuses: &[Status]) -> Vec<ReleaseSnapshot> {
        let snapshots = statuses
            .iter()
            .enumerate()
            .map(|(at, status)| of(Algorithm::Sha256, &release(at as i64 + 1, *status), None, None));
        let mut history: Vec<_> = snapshots.collect();
        sort(&mut history);
        history
    }

    fn failed_test(snapshot: &mut ReleaseSnapshot) {
        let hook = TestHookStatus { phase: Some("Failed".to_owned()), ..TestHookStatus::default() };
        snapshot.test_hooks = Some(BTreeMap::from([("t".to_owned(), hook)]));
    }

    #[test]
    fn a_snapshot_knows_its_release_again_until_somebody_touches_it() {
        let mut stored = release(3, Status::Deployed);
        let snapshot = of(Algorithm::Sha256, &stored, Some("upgrade"), Some("sha256:abc"));
        assert_eq!((full_name(&snapshot), chart(&snapshot)), ("apps/web.v3".into(), "c@1.0.0".into()));
        assert_eq!(snapshot.first_deployed.to_string(), "2026-01-02T03:04:05Z");
        assert!(verifies(&snapshot, &stored));
        stored.info.description = "Rollback to 1".to_owned();
        assert!(!verifies(&snapshot, &stored));
        let old = ReleaseSnapshot { api_version: None, ..snapshot };
        assert!(verifies(&old, &stored), "digests of other versions are not compared");
    }

    #[test]
    fn the_previous_release_is_the_newest_good_one() {
        let mut all = history(&[Status::Superseded, Status::Deployed, Status::Failed, Status::Failed]);
        assert_eq!(previous(&all, false).map(|s| s.version), Some(2));
        failed_test(&mut all[2]);
        assert_eq!(previous(&all, false).map(|s| s.version), Some(1));
        assert_eq!(previous(&all, true).map(|s| s.version), Some(2));
        assert_eq!(previous(&all[..1], false), None);
    }

    #[test]
    fn truncation_keeps_the_previous_good_release() {
        let mut all = history(&[
            Status::Superseded,
            Status::Superseded,
            Status::Superseded,
            Status::Failed,
            Status::Failed,
        ]);
        truncate(&mut all, false);
        assert_eq!(all.iter().map(|s| s.version).collect::<Vec<_>>(), [5, 4, 3]);
        let mut bad = history(&[Status::Failed; 8]);
        truncate(&mut bad, false);
        assert_eq!(bad.len(), 5);
        let mut aged = history(&[Status::Superseded; 8]);
        truncate_by_age(&mut aged);
        assert_eq!(aged.iter().map(|s| s.version).collect::<Vec<_>>(), [8, 7, 6, 5, 4]);
    }

    #[test]
    fn tests_have_run_when_all_succeeded_or_one_failed() {
        let mut snapshot = of(Algorithm::Sha256, &release(1, Status::Deployed), None, None);
        assert!(!is_tested(&snapshot));
        snapshot.test_hooks = Some(BTreeMap::new());
        assert!(is_tested(&snapshot));
        let hook =
            |phase: &str| TestHookStatus { phase: Some(phase.to_owned()), ..TestHookStatus::default() };
        snapshot.test_hooks =
            Some(BTreeMap::from([("a".into(), hook("Succeeded")), ("b".into(), hook("Running"))]));
        assert!(!is_tested(&snapshot));
        snapshot.test_hooks.as_mut().unwrap().insert("c".into(), hook("Failed"));
        assert!(is_tested(&snapshot) && has_failed_test(&snapshot));
    }

    #[test]
    fn filters_choose_and_exclude_tests() {
        let filter = |name: &str, exclude| TestFilter { name: name.to_owned(), exclude };
        assert!(is_chosen("a", &[]));
        assert!(!is_chosen("a", &[filter("a", true)]));
        assert!(is_chosen("b", &[filter("a", true)]));
        assert!(!is_chosen("b", &[filter("a", false)]));
        assert!(!is_chosen("a", &[filter("a", false), filter("a", true)]));
    }

    #[test]
    fn what_is_stored_again_keeps_its_tests() {
        let mut all = history(&[Status::Deployed]);
        failed_test(&mut all[0]);
        record(Algorithm::Sha256, &mut all, &release(1, Status::Superseded), None, &Newness::Ignored);
        assert_eq!((all.len(), all[0].status.as_str(), has_failed_test(&all[0])), (1, "superseded", true));
        record(Algorithm::Sha256, &mut all, &release(2, Status::Deployed), None, &Newness::Ignored);
        assert_eq!(all.len(), 1);
        let new = Newness::Known { made: Some(Made::Upgrade), oci_digest: None };
        record(Algorithm::Sha256, &mut all, &release(2, Status::Deployed), None, &new);
        assert_eq!((all[0].version, all[0].action.as_deref()), (2, Some("upgrade")));
    }

    #[test]
    fn a_snapshot_is_verified_with_the_algorithm_it_was_taken_with() {
        let stored = release(1, Status::Deployed);
        for (algorithm, prefix) in [(Algorithm::Sha512, "sha512:"), (Algorithm::Blake3, "blake3:")] {
            let snapshot = of(algorithm, &stored, None, None);
            assert!(snapshot.digest.starts_with(prefix), "{}", snapshot.digest);
            assert!(snapshot.config_digest.starts_with(prefix), "{}", snapshot.config_digest);
            assert!(verifies(&snapshot, &stored));
            assert!(!verifies(&snapshot, &release(1, Status::Failed)));
        }
    }
}
