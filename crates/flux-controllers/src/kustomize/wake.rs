//! What makes a Kustomization due before its interval: another artifact of a source, a dependency that got ready, a
//! ConfigMap or Secret it reads that changed.

use std::sync::{Arc, PoisonError};

use flux_api::Object;
use flux_api::kinds::{self, Kind};
use flux_api::kustomize::Kustomization;
use kube::api::DynamicObject;

use super::dependencies::{dependents_care_about, kustomization};
use super::observe::{SourceKey, artifact};
use super::run::KIND;
use super::{Memory, Undecided};
use crate::reconcile::{Cache, Cause, Change, Index, ObjectKey, Queue, Watched};

const SOURCES: [&Kind; 4] =
    [&kinds::GIT_REPOSITORY, &kinds::OCI_REPOSITORY, &kinds::BUCKET, &kinds::EXTERNAL_ARTIFACT];

/// Connects the changes of other objects to the queue. `configs` selects the ConfigMaps and Secrets that are watched.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>, memory: &Memory, configs: Option<String>) {
    memory.drift.connect(cache, queue);
    let undecided = &memory.undecided;
    let index =
        cache.index(KIND, |object| kustomization(object).map(|object| terms(&object)).unwrap_or_default());
    for kind in SOURCES {
        let waker = Waker::new(cache, queue, &index, undecided);
        cache.listen(kind, move |change| {
            if has_another_artifact(change) {
                waker.wake(&term("source", kind.kind, &change.key), |_| true);
            }
            wake_dependents(&waker, kind, change);
        });
    }
    let waker = Waker::new(cache, queue, &index, undecided);
    cache.listen(KIND, move |change| wake_dependents(&waker, KIND, change));
    if let Some(selector) = configs {
        let (cache, queue, undecided) = (cache.clone(), queue.clone(), undecided.clone());
        // Not before everything else is there: without the right to watch Secrets, all but this still works.
        tokio::spawn(async move {
            cache.synced().await;
            for (kind, watched) in
                [("ConfigMap", Watched::config_maps(&selector)), ("Secret", Watched::secrets(&selector))]
            {
                let waker = Waker::new(&cache, &queue, &index, &undecided);
                cache.watch(&watched).listen(move |change| wake_readers(&waker, kind, change));
            }
        });
    }
}

/// What a Kustomization is found by.
fn terms(object: &Kustomization) -> Vec<String> {
    let own = Object::namespace(object);
    let mut terms: Vec<String> = SourceKey::all(object)
        .iter()
        .map(|source| term("source", source.kind.as_str(), &source.key))
        .collect();
    for dependency in &object.spec.depends_on {
        let namespace = dependency.namespace.clone().unwrap_or_else(|| own.to_owned());
        let kind = dependency.kind.as_deref().unwrap_or(KIND.kind);
        terms.push(term("dependency", kind, &ObjectKey::new(namespace, &dependency.name)));
    }
    let mut config = |kind: &str, name: &str| terms.push(term("config", kind, &ObjectKey::new(own, name)));
    for reference in object.spec.post_build.iter().flat_map(|post_build| &post_build.substitute_from) {
        config(reference.kind.as_str(), &reference.name);
    }
    if let Some(reference) =
        object.spec.decryption.as_ref().and_then(|decryption| decryption.secret_ref.as_ref())
    {
        config("Secret", &reference.name);
    }
    if let Some(reference) = &object.spec.kube_config {
        if let Some(secret) = &reference.secret_ref {
            config("Secret", &secret.name);
        }
        if let Some(map) = &reference.config_map_ref {
            config("ConfigMap", &map.name);
        }
    }
    terms
}

fn term(role: &str, kind: &str, key: &ObjectKey) -> String {
    format!("{role} {kind} {key}")
}

struct Waker {
    cache: std::sync::Weak<Cache>,
    queue: Arc<Queue>,
    index: Arc<Index>,
    undecided: Undecided,
}

impl Waker {
    fn new(cache: &Arc<Cache>, queue: &Arc<Queue>, index: &Arc<Index>, undecided: &Undecided) -> Self {
        Self {
            cache: Arc::downgrade(cache),
            queue: queue.clone(),
            index: index.clone(),
            undecided: undecided.clone(),
        }
    }

    fn wake(&self, term: &str, wanted: impl Fn(&Kustomization) -> bool) {
        let Some(cache) = self.cache.upgrade() else { return };
        for key in self.index.find(term) {
            let found = cache.get(KIND, &key).and_then(|object| kustomization(&object));
            if found.is_some_and(|object| wanted(&object)) {
                self.queue.add(key, Cause::Change);
            }
        }
    }
}

/// Upstream looks at the revision only. A digest that changes with the revision staying is another artifact, too; and
/// whoever tries to download from where nothing is any more has to know of the new place.
fn has_another_artifact(change: &Change) -> bool {
    let identity = |object: &Option<Arc<DynamicObject>>| {
        object
            .as_deref()
            .and_then(artifact)
            .map(|artifact| (artifact.revision, artifact.digest, artifact.url))
    };
    let new = identity(&change.new);
    new.is_some() && new != identity(&change.old)
}

fn wake_dependents(waker: &Waker, kind: &Kind, change: &Change) {
    let Some(new) = &change.new else { return };
    if change.old.as_deref().map(dependents_care_about) == Some(dependents_care_about(new)) {
        return;
    }
    let undecided = waker.undecided.lock().unwrap_or_else(PoisonError::into_inner).clone();
    waker.wake(&term("dependency", kind.kind, &change.key), |object| {
        undecided.contains(&ObjectKey::new(Object::namespace(object), object.name()))
    });
}

/// One that appears is news only to those who failed for lack of it: at the start, all of them appear.
fn wake_readers(waker: &Waker, kind: &str, change: &Change) {
    let appeared = change.old.is_none();
    waker.wake(&term("config", kind, &change.key), |object| !appeared || !is_ready(object));
}

fn is_ready(object: &Kustomization) -> bool {
    use flux_api::condition::{self, ConditionStatus};
    condition::is(object.conditions(), condition::READY, ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kustomization_is_found_by_all_that_it_refers_to() {
        let object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "team"},
            "spec": {
                "interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet", "namespace": "flux-system"},
                "dependsOn": [{"name": "infra"}, {"kind": "HelmRelease", "name": "db", "namespace": "data"}],
                "postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": "vars"}]},
                "decryption": {"provider": "sops", "secretRef": {"name": "keys"}},
                "kubeConfig": {"secretRef": {"name": "remote"}},
            },
        });
        let object: Kustomization = serde_json::from_value(object).unwrap();
        let expected = [
            "source GitRepository flux-system/fleet",
            "dependency Kustomization team/infra",
            "dependency HelmRelease data/db",
            "config ConfigMap team/vars",
            "config Secret team/keys",
            "config Secret team/remote",
        ];
        assert_eq!(terms(&object), expected);
    }
}
