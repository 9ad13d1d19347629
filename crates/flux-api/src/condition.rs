//! Conditions: one observation about an object, and the rules by which Flux keeps a list of them.
//!
//! The rules differ from Kubernetes' own helper in one point that users see: `lastTransitionTime` moves when the reason or the message
//! changes too, not only when the status does. Nothing here reads a clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::time::Time;

/// Longest message the API accepts; longer ones are cut.
pub const MAX_MESSAGE: usize = 32_768;

/// The object is where its spec says it should be.
pub const READY: &str = "Ready";
/// Work towards the spec is under way.
pub const RECONCILING: &str = "Reconciling";
/// No progress until somebody changes something.
pub const STALLED: &str = "Stalled";
/// The applied objects are healthy. Kustomization.
pub const HEALTHY: &str = "Healthy";

/// The artifact of the current revision is in the storage. Sources.
pub const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
/// A newer revision than the artifact's exists. Sources; bad news when True, like the next four.
pub const ARTIFACT_OUTDATED: &str = "ArtifactOutdated";
/// The source could not be fetched. Sources.
pub const FETCH_FAILED: &str = "FetchFailed";
/// The storage failed. Sources.
pub const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";
/// An included GitRepository has no artifact. GitRepository.
pub const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
/// The chart could not be packaged. HelmChart.
pub const BUILD_FAILED: &str = "BuildFailed";
/// The signature was checked. Sources.
pub const SOURCE_VERIFIED: &str = "SourceVerified";

/// The last install, upgrade or uninstall. HelmRelease.
pub const RELEASED: &str = "Released";
/// The last test run. HelmRelease.
pub const TEST_SUCCESS: &str = "TestSuccess";
/// The last repair of a failed release. HelmRelease.
pub const REMEDIATED: &str = "Remediated";
/// Whether the cluster differs from the release. HelmRelease.
pub const DRIFTED: &str = "Drifted";
/// Whether CRDs that the policy leaves alone differ from the chart's. HelmRelease; upstream has none.
pub const CRDS_OUTDATED: &str = "CRDsOutdated";
/// A release is not uninstalled to be installed elsewhere, since data would go with it. HelmRelease; upstream has none.
pub const REPLACE_HELD: &str = "ReplaceHeld";

closed_set! {
    /// Whether a condition holds.
    #[derive(Default)]
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not.
        False = "False",
        /// Not known yet.
        #[default]
        Unknown = "Unknown",
    }
}

/// One thing that was observed about the object, in the form all Kubernetes tools understand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is observed, such as Ready, Reconciling or Stalled.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The metadata.generation the observation was made for. Older than the object's means it may no longer be true.
    #[serde(default, skip_serializing_if = "absent::zero")]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// When the condition last changed.
    pub last_transition_time: Time,
    /// One CamelCase word saying why, meant for programs.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// A sentence for people. May be empty.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// What [`set`] is told: a condition without the parts that come from the list and the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The condition's type.
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl Observation {
    /// `kind` has `status` because of `reason`.
    pub fn new(kind: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) -> Self {
        Observation { kind: kind.to_owned(), status, reason: reason.to_owned(), message: message.into() }
    }
}

/// The condition of that type, if the list has one.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the condition of that type has that status.
pub fn is(conditions: &[Condition], kind: &str, status: ConditionStatus) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == status)
}

/// Ready, and neither stalled nor at work.
pub fn is_ready(conditions: &[Condition]) -> bool {
    is(conditions, READY, ConditionStatus::True)
        && !is(conditions, STALLED, ConditionStatus::True)
        && !is(conditions, RECONCILING, ConditionStatus::True)
}

/// Removes the condition of that type.
pub fn delete(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|condition| condition.kind != kind);
}

/// Puts an observation made for `generation` into the list, which ends sorted.
///
/// The time moves only if status, reason or message differ from what was there. Marking an object as reconciling takes a Stalled
/// condition away and the reverse, since one excludes the other.
pub fn set(conditions: &mut Vec<Condition>, observation: Observation, generation: i64, now: Time) {
    match (observation.kind.as_str(), observation.status) {
        (RECONCILING, ConditionStatus::True) => delete(conditions, STALLED),
        (STALLED, ConditionStatus::True) => delete(conditions, RECONCILING),
        _ => {}
    }
    let message = cut(observation.message, MAX_MESSAGE);
    let unchanged = |old: &Condition| {
        old.status == observation.status && old.reason == observation.reason && old.message == message
    };
    let last_transition_time = match find(conditions, &observation.kind) {
        Some(old) if unchanged(old) => old.last_transition_time,
        _ => now,
    };
    delete(conditions, &observation.kind);
    conditions.push(Condition {
        kind: observation.kind,
        status: observation.status,
        observed_generation: generation,
        last_transition_time,
        reason: observation.reason,
        message,
    });
    sort(conditions);
}

/// Stalled, Reconciling, Ready, then newest generation, then by name.
pub fn sort(conditions: &mut [Condition]) {
    conditions.sort_by(|a, b| {
        let by_weight = weight(&a.kind).cmp(&weight(&b.kind));
        by_weight.then(b.observed_generation.cmp(&a.observed_generation)).then_with(|| a.kind.cmp(&b.kind))
    });
}

fn weight(kind: &str) -> u8 {
    match kind {
        STALLED => 0,
        RECONCILING => 1,
        READY => 2,
        _ => 3,
    }
}

/// The Ready condition that several others amount to.
///
/// `order` names the conditions that count, most important first; `negative` those that are bad news when True. A bad one that holds
/// decides, then a good one that does not, then a good one that does, then a bad one that does not, then what is unknown; among
/// equals the earlier in `order` gives reason and message. Nothing to go by gives `None`.
pub fn summary(conditions: &[Condition], order: &[&str], negative: &[&str]) -> Option<Observation> {
    let decisive = order
        .iter()
        .filter_map(|kind| find(conditions, kind))
        .min_by_key(|condition| rank(condition.status, negative.contains(&condition.kind.as_str())))?;
    let bad = negative.contains(&decisive.kind.as_str());
    let status = match (decisive.status, bad) {
        (ConditionStatus::True, true) | (ConditionStatus::False, false) => ConditionStatus::False,
        (ConditionStatus::True, false) | (ConditionStatus::False, true) => ConditionStatus::True,
        (ConditionStatus::Unknown, _) => ConditionStatus::Unknown,
    };
    Some(Observation::new(READY, status, &decisive.reason, decisive.message.clone()))
}

fn rank(status: ConditionStatus, negative: bool) -> u8 {
    match (status, negative) {
        (ConditionStatus::True, true) => 0,
        (ConditionStatus::False, false) => 1,
        (ConditionStatus::True, false) => 2,
        (ConditionStatus::False, true) => 3,
        (ConditionStatus::Unknown, _) => 4,
    }
}

/// Upstream cuts in the same way: three dots at the end show that something is missing.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit - 3;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str("...");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        serde_json::from_value(text.into()).unwrap()
    }

    fn list(steps: &[(&str, ConditionStatus, &str, i64)]) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for (kind, status, reason, generation) in steps {
            set(
                &mut conditions,
                Observation::new(kind, *status, reason, ""),
                *generation,
                at("2026-01-01T00:00:00Z"),
            );
        }
        conditions
    }

    fn kinds(conditions: &[Condition]) -> Vec<&str> {
        conditions.iter().map(|condition| condition.kind.as_str()).collect()
    }

    use ConditionStatus::{False, True, Unknown};

    #[test]
    fn the_time_moves_with_status_reason_or_message_and_not_with_the_generation() {
        let mut conditions = Vec::new();
        let mut step = |status, reason, message: &str, generation, now| {
            set(&mut conditions, Observation::new(READY, status, reason, message), generation, at(now));
            (conditions[0].last_transition_time.to_string(), conditions[0].observed_generation)
        };
        assert_eq!(step(True, "A", "m", 1, "2026-01-01T00:00:01Z"), ("2026-01-01T00:00:01Z".into(), 1));
        assert_eq!(step(True, "A", "m", 2, "2026-01-01T00:00:02Z"), ("2026-01-01T00:00:01Z".into(), 2));
        assert_eq!(step(True, "A", "n", 2, "2026-01-01T00:00:03Z"), ("2026-01-01T00:00:03Z".into(), 2));
        assert_eq!(step(True, "B", "n", 2, "2026-01-01T00:00:04Z"), ("2026-01-01T00:00:04Z".into(), 2));
        assert_eq!(step(False, "B", "n", 2, "2026-01-01T00:00:05Z"), ("2026-01-01T00:00:05Z".into(), 2));
    }

    #[test]
    fn reconciling_and_stalled_exclude_each_other() {
        assert_eq!(kinds(&list(&[(STALLED, True, "A", 1), (RECONCILING, True, "B", 1)])), [RECONCILING]);
        assert_eq!(kinds(&list(&[(RECONCILING, True, "A", 1), (STALLED, True, "B", 1)])), [STALLED]);
    }

    #[test]
    fn the_list_is_ordered_by_weight_generation_and_name() {
        let conditions = list(&[
            (HEALTHY, True, "A", 1),
            (DRIFTED, True, "A", 1),
            (RELEASED, True, "A", 2),
            (READY, True, "A", 1),
            (RECONCILING, True, "A", 1),
        ]);
        assert_eq!(kinds(&conditions), [RECONCILING, READY, RELEASED, DRIFTED, HEALTHY]);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let mut conditions = Vec::new();
        let long = "\u{e9}".repeat(20_000);
        set(&mut conditions, Observation::new(READY, True, "A", long), 1, at("2026-01-01T00:00:00Z"));
        let message = &conditions[0].message;
        assert!(message.len() <= MAX_MESSAGE && message.ends_with("\u{e9}..."), "{}", message.len());
    }

    #[test]
    fn ready_sums_up_the_worst_and_then_the_first() {
        let order =
            [STORAGE_OPERATION_FAILED, FETCH_FAILED, ARTIFACT_OUTDATED, ARTIFACT_IN_STORAGE, SOURCE_VERIFIED];
        let negative = [STORAGE_OPERATION_FAILED, FETCH_FAILED, ARTIFACT_OUTDATED];
        let ready = |steps: &[(&str, ConditionStatus, &str, i64)]| {
            summary(&list(steps), &order, &negative).map(|ready| (ready.status, ready.reason))
        };
        assert_eq!(ready(&[]), None);
        assert_eq!(ready(&[(ARTIFACT_IN_STORAGE, True, "Stored", 1)]), Some((True, "Stored".into())));
        assert_eq!(
            ready(&[(ARTIFACT_IN_STORAGE, True, "Stored", 1), (SOURCE_VERIFIED, False, "Bad", 1)]),
            Some((False, "Bad".into()))
        );
        assert_eq!(
            ready(&[
                (SOURCE_VERIFIED, False, "Bad", 1),
                (ARTIFACT_OUTDATED, True, "New", 1),
                (FETCH_FAILED, True, "Git", 1)
            ]),
            Some((False, "Git".into()))
        );
        assert_eq!(ready(&[(SOURCE_VERIFIED, Unknown, "Later", 1)]), Some((Unknown, "Later".into())));
    }

    #[test]
    fn ready_means_neither_stalled_nor_at_work() {
        assert!(is_ready(&list(&[(READY, True, "A", 1)])));
        assert!(!is_ready(&list(&[(READY, True, "A", 1), (RECONCILING, True, "B", 1)])));
        assert!(!is_ready(&[]));
    }
}
