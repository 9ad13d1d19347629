//! In which order objects go: those that delete others themselves (Kustomizations, HelmReleases) first, and what these
//! need for it (accounts, rights, Secrets, namespaces) only when they are gone. And a Kustomization goes only after those
//! that depend on it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::kinds;
use flux_api::kustomize::Kustomization;
use flux_apply::{Cluster, ObjectId};
use kube::ResourceExt;
use serde_json::Value;

use super::dependencies::kustomization;
use super::run::{KIND, Run};
use crate::reconcile::ObjectKey;

/// How soon a run that left something for later comes again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// What is deleted together is seen to go within this time.
const TOGETHER: Duration = Duration::from_secs(2);
const MOST: usize = 100_000;

/// Since when somebody waits for objects to be gone.
#[derive(Default)]
pub struct Since(Mutex<BTreeMap<ObjectKey, Instant>>);

impl Since {
    /// Whether a wait that began with the first call is still within `limit`.
    fn is_within(&self, key: &ObjectKey, limit: Duration) -> bool {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.len() >= MOST {
            since.clear();
        }
        since.entry(key.clone()).or_insert_with(Instant::now).elapsed() < limit
    }

    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// What is deleted now, and what stays in the inventory for later.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) now: Vec<ObjectId>,
    pub(super) later: Vec<ObjectId>,
}

/// Splits what is to be deleted. Nobody is waited for longer than the Kustomization's timeout.
pub(super) async fn steps(run: &Run<'_>, cluster: &Cluster, delete: Vec<ObjectId>) -> Steps {
    let key = ObjectKey::of(run.raw);
    let since = &run.ctx.memory.teardown;
    if run.ctx.options.upstream_only || !delete.iter().any(takes_others_along) {
        since.forget(&key);
        return Steps { now: delete, later: Vec::new() };
    }
    let mut appliers = BTreeMap::new();
    for id in delete.iter().filter(|id| takes_others_along(id)) {
        // What cannot be looked at is as good as gone: the deletion itself will say what is wrong.
        let live = cluster.get(id).await.ok().flatten().filter(|live| run.owner().owns(live));
        let needs = live.as_ref().map(|live| dependencies_of(id, live)).unwrap_or_default();
        let state = match live {
            None => State::Gone,
            Some(live) if live.pointer("/metadata/deletionTimestamp").is_some() => State::Going,
            Some(_) => State::There,
        };
        appliers.insert(id.clone(), Applier { state, needs });
    }
    let steps = split(delete, &appliers);
    if steps.later.is_empty() {
        since.forget(&key);
        return steps;
    }
    if since.is_within(&key, run.timeout()) {
        return steps;
    }
    since.forget(&key);
    let Steps { mut now, later } = steps;
    let going = |id: &ObjectId| appliers.get(id).is_some_and(|applier| applier.state == State::Going);
    let rest: Vec<ObjectId> = later.into_iter().filter(|id| !going(id) && !now.contains(id)).collect();
    now.extend(rest);
    Steps { now, later: Vec::new() }
}

/// An object that deletes others.
struct Applier {
    state: State,
    /// Kind, namespace and name of what it depends on.
    needs: Vec<(String, String, String)>,
}

fn dependencies_of(id: &ObjectId, live: &Value) -> Vec<(String, String, String)> {
    let entries = live.pointer("/spec/dependsOn").and_then(Value::as_array);
    let read = |entry: &Value| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let or = |key: &str, other: &str| text(key).unwrap_or(other).to_owned();
        Some((or("kind", &id.kind), or("namespace", &id.namespace), text("name")?.to_owned()))
    };
    entries.into_iter().flatten().filter_map(read).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Gone,
    /// Its finalizer is at work.
    Going,
    There,
}

fn split(delete: Vec<ObjectId>, appliers: &BTreeMap<ObjectId, Applier>) -> Steps {
    let all_gone = appliers.values().all(|applier| applier.state == State::Gone);
    let is_needed = |id: &ObjectId| {
        appliers.iter().any(|(other, applier)| {
            other != id
                && applier.state != State::Gone
                && applier.needs.contains(&(id.kind.clone(), id.namespace.clone(), id.name.clone()))
        })
    };
    // In a circle everybody needs somebody; then nobody is spared.
    let first_of_all = appliers.iter().any(|(id, applier)| applier.state != State::Gone && !is_needed(id));
    let mut steps = Steps::default();
    for id in delete {
        match appliers.get(&id).map(|applier| applier.state) {
            Some(State::Gone) => {}
            Some(State::Going) => steps.later.push(id),
            Some(State::There) if first_of_all && is_needed(&id) => steps.later.push(id),
            Some(State::There) => {
                steps.later.push(id.clone());
                steps.now.push(id);
            }
            None if !all_gone && is_ground(&id) => steps.later.push(id),
            None => steps.now.push(id),
        }
    }
    steps
}

fn takes_others_along(id: &ObjectId) -> bool {
    [&kinds::KUSTOMIZATION, &kinds::HELM_RELEASE]
        .iter()
        .any(|kind| kind.group == id.group && kind.kind == id.kind)
}

/// What a finalizer may need: who it acts as, what that one may do, how it reaches its cluster, and the place itself.
fn is_ground(id: &ObjectId) -> bool {
    matches!(
        (id.group.as_str(), id.kind.as_str()),
        ("", "ServiceAccount" | "Secret" | "ConfigMap" | "Namespace")
            | ("rbac.authorization.k8s.io", "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Whether a Kustomization that is on its way out, too, depends on this one and is still there. Those that are deleted
/// together are not all seen to go at once, so for a moment every dependent counts.
pub(super) fn has_finalizing_dependents(run: &Run<'_>) -> bool {
    if run.ctx.options.upstream_only {
        return false;
    }
    let own = ObjectKey::of(run.raw);
    let others = run.ctx.cache.list(KIND).into_iter().filter(|raw| ObjectKey::of(raw) != own);
    let dependents: Vec<bool> = others
        .filter_map(|raw| Some((kustomization(&raw)?, !raw.finalizers().is_empty())))
        .filter(|(other, _)| depends_on(other, &own))
        .map(|(other, is_held)| other.is_deleting() && is_held)
        .collect();
    let since = &run.ctx.memory.dependents;
    if dependents.is_empty() {
        since.forget(&own);
        return false;
    }
    let limit = if dependents.contains(&true) { run.timeout() } else { TOGETHER };
    since.is_within(&own, limit)
}

fn depends_on(other: &Kustomization, own: &ObjectKey) -> bool {
    let place = Object::namespace(other).to_owned();
    other.spec.depends_on.iter().any(|dependency| {
        dependency.kind.as_deref().is_none_or(|kind| kind == KIND.kind)
            && dependency.name == own.name
            && dependency.namespace.as_ref().unwrap_or(&place) == &own.namespace
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(group: &str, kind: &str, name: &str) -> ObjectId {
        ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_a_finalizer_needs_stays_until_all_of_them_are_done() {
        let child = id("kustomize.toolkit.fluxcd.io", "Kustomization", "child");
        let other = id("helm.toolkit.fluxcd.io", "HelmRelease", "other");
        let account = id("", "ServiceAccount", "deployer");
        let workload = id("apps", "Deployment", "web");
        let all = vec![child.clone(), other.clone(), account.clone(), workload.clone()];
        let applier = |state| Applier { state, needs: Vec::new() };
        let states = |a, b| BTreeMap::from([(child.clone(), applier(a)), (other.clone(), applier(b))]);

        let steps = split(all.clone(), &states(State::There, State::Going));
        assert_eq!(steps.now, [child.clone(), workload.clone()]);
        assert_eq!(steps.later, [child.clone(), other.clone(), account.clone()]);
        let steps = split(all.clone(), &states(State::Gone, State::Going));
        assert_eq!((steps.now, steps.later), (vec![workload.clone()], vec![other.clone(), account.clone()]));
        let steps = split(all, &states(State::Gone, State::Gone));
        assert_eq!((steps.now, steps.later), (vec![account, workload], vec![]));
    }

    #[test]
    fn dependents_go_first_and_a_circle_goes_at_once() {
        let a = id("kustomize.toolkit.fluxcd.io", "Kustomization", "a");
        let b = id("kustomize.toolkit.fluxcd.io", "Kustomization", "b");
        let needs = |id: &ObjectId| vec![(id.kind.clone(), id.namespace.clone(), id.name.clone())];
        let there = |needs| Applier { state: State::There, needs };
        let both = vec![a.clone(), b.clone()];
        let line = BTreeMap::from([(a.clone(), there(vec![])), (b.clone(), there(needs(&a)))]);
        let steps = split(both.clone(), &line);
        assert_eq!((steps.now, steps.later), (vec![b.clone()], both.clone()));
        let circle = BTreeMap::from([(a.clone(), there(needs(&b))), (b.clone(), there(needs(&a)))]);
        assert_eq!(split(both.clone(), &circle).now, both);
    }
}
