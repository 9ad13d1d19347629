//! What users read: conditions and events, in upstream's words.

use std::collections::BTreeMap;

use flux_api::Object;
use flux_api::condition::{
    self, Condition, ConditionStatus, READY, RECONCILING, RELEASED, REMEDIATED, STALLED, TEST_SUCCESS,
};
use flux_api::digest::Algorithm;
use flux_api::helm::{HelmRelease, HelmReleaseStatus, ReleaseSnapshot};
use flux_api::kinds::{self, Kind};
use flux_api::names::EventMetadata;
use kube::api::DynamicObject;

use super::policy::Policy;
use super::prerequisites::DEPENDENCY_CYCLE;
use super::{digest, snapshot};
use crate::reconcile::events::Happening;
use crate::reconcile::{Conditions, Events, Severity};

pub const KIND: &Kind = &kinds::HELM_RELEASE;

/// One run: the object, what it looked like, what it becomes.
pub struct Run<'a> {
    pub raw: &'a DynamicObject,
    pub object: &'a HelmRelease,
    /// What the server has.
    pub written: HelmReleaseStatus,
    pub status: HelmReleaseStatus,
    /// Of the digests in `status`.
    pub algorithm: Algorithm,
}

impl Run<'_> {
    pub fn conditions(&mut self) -> Conditions<'_> {
        Conditions { generation: self.object.generation(), list: &mut self.status.conditions }
    }

    pub fn set(&mut self, kind: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) {
        self.conditions().set(kind, status, reason, message);
    }

    /// Ready was in doubt for a reason that no longer holds.
    pub fn clear_ready(&mut self, reasons: &[&str]) {
        let stale = condition::find(&self.status.conditions, READY)
            .is_some_and(|ready| reasons.contains(&ready.reason.as_str()));
        if stale {
            self.set(READY, ConditionStatus::Unknown, "Progressing", "reconciliation in progress");
        }
    }

    /// Somebody else may have broken the circle, which changes nothing of this object.
    pub fn clear_cycle(&mut self) {
        let was_in_one = condition::find(&self.status.conditions, STALLED)
            .is_some_and(|stalled| stalled.reason == DEPENDENCY_CYCLE);
        if was_in_one {
            condition::delete(&mut self.status.conditions, STALLED);
            self.clear_ready(&[DEPENDENCY_CYCLE]);
        }
    }

    /// Takes Ready from the condition that has the last word: the newest generation counts, then remediation before
    /// tests before the release.
    pub fn summarize(&mut self, policy: Policy<'_>) {
        if !policy.tests() {
            condition::delete(&mut self.status.conditions, TEST_SUCCESS);
        }
        let tests = policy.tests() && !policy.ignores_test_failures();
        let order: &[&str] =
            if tests { &[REMEDIATED, TEST_SUCCESS, RELEASED] } else { &[REMEDIATED, RELEASED] };
        let found = order.iter().rev().filter_map(|kind| condition::find(&self.status.conditions, kind));
        let Some(word) = found.max_by_key(|one| one.observed_generation).cloned() else {
            return;
        };
        // A repaired release is not the release that was asked for.
        let status = if word.kind == REMEDIATED { ConditionStatus::False } else { word.status };
        if status == ConditionStatus::True {
            condition::delete(&mut self.status.conditions, STALLED);
        }
        self.set(READY, status, &word.reason, word.message);
        let spec = &self.object.spec;
        self.status.observed_post_renderers_digest =
            digest::of_post_renderers(self.algorithm, &spec.post_renderers);
        self.status.observed_common_metadata_digest =
            digest::of_common_metadata(self.algorithm, spec.common_metadata.as_ref());
    }

    /// Nothing more is tried: Ready says so, too, since that is what people look at.
    pub fn stall(&mut self, policy: Policy<'_>, reason: &str, message: &str, again: &str) {
        self.summarize(policy);
        condition::delete(&mut self.status.conditions, RECONCILING);
        self.set(STALLED, ConditionStatus::True, reason, message);
        let ready = condition::find(&self.status.conditions, READY).cloned();
        let (why, base) =
            ready.map_or((reason.to_owned(), String::new()), |ready| (ready.reason, ready.message));
        let tail = format!("{reason}: {message}; {again}");
        let message = if base.is_empty() { tail } else { format!("{base}\n{tail}") };
        self.set(READY, ConditionStatus::False, &why, message);
    }

    pub fn ready(&self) -> Option<&Condition> {
        condition::find(&self.status.conditions, READY)
    }
}

/// What an event is about.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub revision: String,
    pub token: String,
    pub app_version: String,
    pub oci_digest: String,
}

impl About {
    pub fn snapshot(snapshot: &ReleaseSnapshot) -> Self {
        Self {
            revision: snapshot.chart_version.clone(),
            token: snapshot.config_digest.clone(),
            app_version: snapshot.app_version.clone().unwrap_or_default(),
            oci_digest: snapshot.oci_digest.clone().unwrap_or_default(),
        }
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let all = [
            (EventMetadata::Revision, &self.revision),
            (EventMetadata::Token, &self.token),
            (EventMetadata::AppVersion, &self.app_version),
            (EventMetadata::OciDigest, &self.oci_digest),
        ];
        let given = all.into_iter().filter(|(_, value)| !value.is_empty());
        given.map(|(key, value)| (key.key(KIND.group), value.clone())).collect()
    }
}

pub fn tell(
    events: &Events,
    raw: &DynamicObject,
    severity: Severity,
    reason: &str,
    message: impl Into<String>,
    about: Option<&About>,
) {
    let metadata = about.map(About::metadata).unwrap_or_default();
    events.tell(
        KIND,
        raw,
        Happening { severity, reason: reason.to_owned(), message: message.into(), metadata },
    );
}

/// `namespace/name.v3 with chart podinfo@1.2.3`
pub fn release_with_chart(one: &ReleaseSnapshot) -> String {
    format!("{} with chart {}", snapshot::full_name(one), snapshot::chart(one))
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::object;
    use super::*;
    use flux_api::condition::Observation;
    use flux_api::time::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn set(list: &mut Vec<Condition>, kind: &str, status: ConditionStatus, generation: i64) {
        let now = Time::new(Timestamp::UNIX_EPOCH);
        condition::set(list, Observation::new(kind, status, &format!("{kind}Reason"), kind), generation, now);
    }

    fn summary(spec: serde_json::Value, conditions: Vec<Condition>) -> (ConditionStatus, String) {
        let object = object(spec);
        let raw: DynamicObject = serde_json::from_value(serde_json::to_value(&object).unwrap()).unwrap();
        let status = HelmReleaseStatus { conditions, ..HelmReleaseStatus::default() };
        let mut run =
            Run { raw: &raw, object: &object, written: status.clone(), status, algorithm: Algorithm::Sha256 };
        run.summarize(Policy { object: &object, retry_by_default: false });
        let ready = run.ready().unwrap();
        (ready.status, ready.reason.clone())
    }

    #[test]
    fn ready_follows_the_condition_with_the_last_word() {
        use ConditionStatus::{False, True};
        let with = |all: &[(&str, ConditionStatus, i64)]| {
            let mut list = Vec::new();
            all.iter().for_each(|(kind, status, generation)| set(&mut list, kind, *status, *generation));
            list
        };
        let plain = || json!({});
        assert_eq!(summary(plain(), with(&[(RELEASED, True, 2)])), (True, "ReleasedReason".to_owned()));
        let remediated = with(&[(RELEASED, False, 2), (REMEDIATED, True, 2)]);
        assert_eq!(summary(plain(), remediated), (False, "RemediatedReason".to_owned()));
        let since_then = with(&[(RELEASED, True, 2), (REMEDIATED, True, 1)]);
        assert_eq!(summary(plain(), since_then), (True, "ReleasedReason".to_owned()));
        let tested = with(&[(RELEASED, True, 2), (TEST_SUCCESS, False, 2)]);
        let enabled = json!({"test": {"enable": true}});
        assert_eq!(summary(enabled, tested.clone()), (False, "TestSuccessReason".to_owned()));
        let ignored = json!({"test": {"enable": true, "ignoreFailures": true}});
        assert_eq!(summary(ignored, tested.clone()), (True, "ReleasedReason".to_owned()));
        assert_eq!(summary(plain(), tested), (True, "ReleasedReason".to_owned()));
    }
}
