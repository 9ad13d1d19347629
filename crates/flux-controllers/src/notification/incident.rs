//! Incident mode, which an Alert asks for by annotation: one message when a problem starts, one when it is over, and none
//! in between, however often it is reported.
//!
//! What fails because something it is made from or waits for has failed is folded into that incident. A problem that is
//! over before the threshold is never told. What is open is known to this process alone: after a restart a problem that
//! lasts is told once more, under the same fingerprint.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use flux_api::duration::GoDuration;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::event::Event;
use crate::reconcile::ObjectKey;

/// Annotation on an Alert: `enabled` switches incident mode on.
pub const MODE: &str = "fluxcd.rs/incidents";
/// Annotation on an Alert: how long a problem must last before it is told, such as `2m`.
pub const FOR: &str = "fluxcd.rs/incidents-for";
/// Beyond that many open incidents new ones are told but not remembered.
const OPEN: usize = 10_000;

/// The mode of an Alert with these annotations; the error is for whoever wrote them.
pub fn mode(annotations: &BTreeMap<String, String>) -> Option<Result<Duration, String>> {
    annotations.get(MODE).filter(|mode| *mode == "enabled")?;
    let Some(text) = annotations.get(FOR) else { return Some(Ok(Duration::ZERO)) };
    let wait: Result<GoDuration, _> = text.parse();
    Some(wait.map(|wait| wait.to_std()).map_err(|error| format!("annotation {FOR}: '{text}': {error}")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Started,
    Resolved,
}

/// What is told of an incident.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    pub phase: Phase,
    /// The same for all that is told of one object by one Alert.
    pub fingerprint: String,
    /// Seconds since 1970.
    pub since: i64,
    /// How often it was reported meanwhile.
    pub repeated: u32,
    /// What failed because of it.
    pub folded: BTreeSet<String>,
}

#[cfg(test)]
impl Incident {
    pub fn at(phase: Phase) -> Self {
        Self { phase, fingerprint: "f00".to_owned(), since: 0, repeated: 0, folded: Default::default() }
    }
}

/// What to do about an event.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Quiet,
    Tell(Incident),
    /// Ask [`Incidents::due`] after this time.
    Wait(Duration),
}

enum State {
    Pending { since: i64 },
    Open { since: i64, repeated: u32, folded: BTreeSet<String> },
    Folded { into: String },
}

#[derive(Default)]
pub struct Incidents(Mutex<HashMap<ObjectKey, HashMap<String, State>>>);

/// What an event means for its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Trouble,
    Recovery,
    /// Something on the way, neither good nor bad.
    Neither,
}

pub fn meaning(event: &Event) -> Meaning {
    let reason = event.reason.as_str();
    let good = reason.ends_with("Succeeded") || reason.ends_with("Succeed") || reason == "NewArtifact";
    match (event.is_error(), good) {
        (true, _) => Meaning::Trouble,
        (false, true) => Meaning::Recovery,
        (false, false) => Meaning::Neither,
    }
}

impl Incidents {
    /// Takes an event of `object` in. `parents` are what the object is made from or waits for.
    pub fn observe(
        &self,
        alert: &Source<'_>,
        event: &Event,
        parents: &[String],
        wait: Duration,
        now: i64,
    ) -> Verdict {
        let object = event.object();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = all.values().map(HashMap::len).sum();
        let open = all.entry(alert.key.clone()).or_default();
        let verdict = match meaning(event) {
            Meaning::Neither => Verdict::Quiet,
            Meaning::Recovery => recover(alert, open, &object),
            Meaning::Trouble => trouble(alert, open, &object, parents, wait, now, total < OPEN),
        };
        if open.is_empty() {
            all.remove(alert.key);
        }
        verdict
    }

    /// The threshold of a problem that began at `since` has passed; what is to be told if it lasts.
    pub fn due(&self, alert: &Source<'_>, object: &str, since: i64) -> Option<Incident> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = all.get_mut(alert.key)?.get_mut(object)?;
        if !matches!(state, State::Pending { since: of } if *of == since) {
            return None;
        }
        *state = State::Open { since, repeated: 0, folded: BTreeSet::new() };
        Some(started(alert, object, since))
    }

    /// Whether anything is open for an object: then even an event that was told before may end it.
    pub fn concerns(&self, object: &str) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().any(|open| open.contains_key(object))
    }

    /// Whether an Alert has any.
    pub fn any(&self, alert: &ObjectKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(alert)
    }

    /// An Alert that is gone tells nothing any more.
    pub fn forget(&self, alert: &ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(alert);
    }
}

/// An Alert, as far as its incidents are concerned.
pub struct Source<'a> {
    pub key: &'a ObjectKey,
    pub uid: &'a str,
}

fn started(alert: &Source<'_>, object: &str, since: i64) -> Incident {
    let (phase, fingerprint) = (Phase::Started, fingerprint(alert, object));
    Incident { phase, fingerprint, since, repeated: 0, folded: BTreeSet::new() }
}

fn fingerprint(alert: &Source<'_>, object: &str) -> String {
    let digest = Sha256::digest(format!("{}/{object}", alert.uid).as_bytes());
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recover(alert: &Source<'_>, open: &mut HashMap<String, State>, object: &str) -> Verdict {
    match open.remove(object) {
        Some(State::Open { since, repeated, folded }) => {
            let (phase, fingerprint) = (Phase::Resolved, fingerprint(alert, object));
            Verdict::Tell(Incident { phase, fingerprint, since, repeated, folded })
        }
        Some(State::Pending { .. } | State::Folded { .. }) | None => Verdict::Quiet,
    }
}

fn trouble(
    alert: &Source<'_>,
    open: &mut HashMap<String, State>,
    object: &str,
    parents: &[String],
    wait: Duration,
    now: i64,
    may_remember: bool,
) -> Verdict {
    match open.get_mut(object) {
        Some(State::Pending { .. }) => return Verdict::Quiet,
        Some(State::Open { repeated, .. }) => {
            *repeated = repeated.saturating_add(1);
            return Verdict::Quiet;
        }
        Some(State::Folded { into }) => {
            let into = into.clone();
            if matches!(open.get(&into), Some(State::Open { .. } | State::Pending { .. })) {
                return Verdict::Quiet;
            }
        }
        None => {}
    }
    if !may_remember {
        return Verdict::Tell(started(alert, object, now));
    }
    if let Some(root) = parents.iter().find_map(|parent| root(open, parent)) {
        if let Some(State::Open { folded, .. }) = open.get_mut(&root) {
            folded.insert(object.to_owned());
        }
        open.insert(object.to_owned(), State::Folded { into: root });
        return Verdict::Quiet;
    }
    if wait.is_zero() {
        open.insert(object.to_owned(), State::Open { since: now, repeated: 0, folded: BTreeSet::new() });
        return Verdict::Tell(started(alert, object, now));
    }
    open.insert(object.to_owned(), State::Pending { since: now });
    Verdict::Wait(wait)
}

/// The incident that an object is part of: its own, or the one it was folded into.
fn root(open: &HashMap<String, State>, object: &str) -> Option<String> {
    match open.get(object)? {
        State::Open { .. } | State::Pending { .. } => Some(object.to_owned()),
        State::Folded { into } => open.contains_key(into).then(|| into.clone()),
    }
}

/// What an object is made from and what it waits for, as `Kind/namespace/name`.
pub fn parents(kind: &str, namespace: &str, name: &str, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |reference: &Value, default_kind: Option<&str>| {
        let text = |key: &str| reference.get(key).and_then(Value::as_str);
        if let (Some(kind), Some(name)) = (text("kind").or(default_kind), text("name")) {
            found.push(format!("{kind}/{}/{name}", text("namespace").unwrap_or(namespace)));
        }
    };
    let spec = &object["spec"];
    add(&spec["sourceRef"], None);
    add(&spec["chartRef"], None);
    add(&spec["chart"]["spec"]["sourceRef"], None);
    for dependency in spec["dependsOn"].as_array().into_iter().flatten() {
        add(dependency, Some(kind));
    }
    for source in spec["sources"].as_array().into_iter().flatten() {
        add(source, None);
    }
    if kind == "HelmRelease" && !spec["chart"].is_null() {
        let chart = spec["chart"]["spec"]["sourceRef"]["namespace"].as_str().unwrap_or(namespace);
        found.push(format!("HelmChart/{chart}/{namespace}-{name}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use serde_json::json;

    fn event(kind: &str, name: &str, reason: &str, severity: &str) -> Event {
        let mut event = Event { reason: reason.to_owned(), severity: severity.to_owned(), ..example() };
        (event.involved_object.kind, event.involved_object.name) = (kind.to_owned(), name.to_owned());
        event
    }

    struct Story {
        incidents: Incidents,
        key: ObjectKey,
        wait: Duration,
    }

    impl Story {
        fn new(wait: u64) -> Self {
            Self {
                incidents: Incidents::default(),
                key: ObjectKey::new("apps", "alert"),
                wait: Duration::from_secs(wait),
            }
        }

        fn alert(&self) -> Source<'_> {
            Source { key: &self.key, uid: "uid" }
        }

        fn fails(&self, kind: &str, name: &str, parents: &[&str], now: i64) -> Verdict {
            let parents: Vec<String> = parents.iter().map(|parent| (*parent).to_owned()).collect();
            self.incidents.observe(
                &self.alert(),
                &event(kind, name, "BuildFailed", "error"),
                &parents,
                self.wait,
                now,
            )
        }

        fn works(&self, kind: &str, name: &str) -> Verdict {
            let event = event(kind, name, "ReconciliationSucceeded", "info");
            self.incidents.observe(&self.alert(), &event, &[], self.wait, 0)
        }
    }

    fn told(verdict: Verdict) -> Incident {
        match verdict {
            Verdict::Tell(incident) => incident,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_message_when_it_starts_and_one_when_it_is_over() {
        let story = Story::new(0);
        assert_eq!(story.works("Kustomization", "apps"), Verdict::Quiet, "all is well, nobody needs to know");
        let start = told(story.fails("Kustomization", "apps", &[], 100));
        assert_eq!((start.phase, start.since), (Phase::Started, 100));
        assert_eq!(story.fails("Kustomization", "apps", &[], 200), Verdict::Quiet);
        assert_eq!(story.fails("Kustomization", "apps", &[], 300), Verdict::Quiet);
        let progressing = event("Kustomization", "apps", "Progressing", "info");
        assert_eq!(story.incidents.observe(&story.alert(), &progressing, &[], story.wait, 0), Verdict::Quiet);
        let end = told(story.works("Kustomization", "apps"));
        assert_eq!((end.phase, end.since, end.repeated), (Phase::Resolved, 100, 2));
        assert_eq!(end.fingerprint, start.fingerprint);
        assert_eq!(story.works("Kustomization", "apps"), Verdict::Quiet);
        assert!(!story.incidents.any(&story.key), "nothing is left of it");
        assert_ne!(told(story.fails("Kustomization", "other", &[], 1)).fingerprint, start.fingerprint);
    }

    #[test]
    fn what_is_over_before_the_threshold_is_never_told() {
        let story = Story::new(60);
        assert_eq!(story.fails("Kustomization", "apps", &[], 100), Verdict::Wait(Duration::from_secs(60)));
        assert_eq!(story.fails("Kustomization", "apps", &[], 110), Verdict::Quiet);
        assert_eq!(story.works("Kustomization", "apps"), Verdict::Quiet);
        let object = "Kustomization/gitops-system/apps";
        assert_eq!(story.incidents.due(&story.alert(), object, 100), None);
        assert_eq!(story.fails("Kustomization", "apps", &[], 200), Verdict::Wait(Duration::from_secs(60)));
        assert_eq!(story.incidents.due(&story.alert(), object, 100), None, "that was the one before");
        assert_eq!(story.incidents.due(&story.alert(), object, 200).unwrap().phase, Phase::Started);
        assert_eq!(story.incidents.due(&story.alert(), object, 200), None);
        assert_eq!(told(story.works("Kustomization", "apps")).phase, Phase::Resolved);
    }

    #[test]
    fn what_fails_because_of_a_source_is_folded_into_it() {
        let story = Story::new(0);
        told(story.fails("GitRepository", "fleet", &[], 1));
        let source = "GitRepository/gitops-system/fleet";
        assert_eq!(story.fails("Kustomization", "infra", &[source], 2), Verdict::Quiet);
        assert_eq!(
            story.fails("Kustomization", "apps", &["Kustomization/gitops-system/infra"], 3),
            Verdict::Quiet
        );
        assert_eq!(
            told(story.fails("Kustomization", "other", &["Bucket/gitops-system/x"], 4)).phase,
            Phase::Started
        );
        assert_eq!(story.works("Kustomization", "infra"), Verdict::Quiet);
        let end = told(story.works("GitRepository", "fleet"));
        let folded: Vec<&str> = end.folded.iter().map(String::as_str).collect();
        assert_eq!(folded, ["Kustomization/gitops-system/apps", "Kustomization/gitops-system/infra"]);
        // Its source is well and it still fails: that is a problem of its own.
        assert_eq!(
            told(story.fails("Kustomization", "apps", &["Kustomization/gitops-system/infra"], 5)).phase,
            Phase::Started
        );
    }

    #[test]
    fn annotations_switch_it_on() {
        let of = |pairs: &[(&str, &str)]| {
            mode(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(MODE, "disabled")]), None);
        assert_eq!(of(&[(MODE, "enabled")]), Some(Ok(Duration::ZERO)));
        assert_eq!(of(&[(MODE, "enabled"), (FOR, "2m")]), Some(Ok(Duration::from_secs(120))));
        assert!(of(&[(MODE, "enabled"), (FOR, "soon")]).unwrap().is_err());
    }

    #[test]
    fn parents_are_sources_and_dependencies() {
        let object = json!({ "spec": {
            "chart": { "spec": { "sourceRef": { "kind": "HelmRepository", "name": "charts", "namespace": "infra" } } },
            "dependsOn": [{ "name": "db" }, { "name": "x", "namespace": "other" }],
        } });
        let found = parents("HelmRelease", "apps", "web", &object);
        assert_eq!(
            found,
            [
                "HelmRepository/infra/charts",
                "HelmRelease/apps/db",
                "HelmRelease/other/x",
                "HelmChart/infra/apps-web"
            ]
        );
        let object = json!({ "spec": { "sourceRef": { "kind": "GitRepository", "name": "fleet" } } });
        assert_eq!(parents("Kustomization", "apps", "x", &object), ["GitRepository/apps/fleet"]);
        assert!(parents("GitRepository", "apps", "x", &json!({})).is_empty());
    }
}
