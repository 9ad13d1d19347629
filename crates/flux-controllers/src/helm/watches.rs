//! What wakes a HelmRelease besides its own changes: its chart, what it depends on, and where its values come from.

use std::sync::Arc;

use flux_api::Object;
use flux_api::condition::{self, READY};
use flux_api::helm::HelmRelease;
use flux_api::kinds;
use flux_api::meta::ConfigKind;
use kube::api::DynamicObject;
use serde_json::Value;

use super::prerequisites::DEPENDENCY_CYCLE;
use super::report::KIND;
use super::source::SourceKey;
use crate::reconcile::cache::Watched;
use crate::reconcile::{Cache, Cause, ObjectKey, Queue, decode};

/// Records of releases are Secrets, too, and by far the most of them; no values come from there.
const NOT_RECORDS: &str = "owner!=helm";

/// Everything that is looked at, watched before the first object is worked on: what is not listed yet would seem to be gone.
pub fn prepare(cache: &Cache, configs: bool) {
    for kind in
        [&kinds::HELM_CHART, &kinds::OCI_REPOSITORY, &kinds::EXTERNAL_ARTIFACT, KIND, &kinds::KUSTOMIZATION]
    {
        cache.list(kind);
    }
    if configs {
        for (_, watched) in configs_watched() {
            cache.watch(&watched);
        }
    }
}

fn configs_watched() -> [(ConfigKind, Watched); 2] {
    [(ConfigKind::ConfigMap, Watched::config_maps("")), (ConfigKind::Secret, Watched::secrets(NOT_RECORDS))]
}

/// Connects the queue to everything that concerns HelmReleases. `configs`: whether ConfigMaps and Secrets are watched.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>, configs: bool) {
    let mentions = cache
        .index(KIND, |raw| decode::<HelmRelease>(raw).map(|object| mentioned(&object)).unwrap_or_default());
    for kind in [&kinds::HELM_CHART, &kinds::OCI_REPOSITORY, &kinds::EXTERNAL_ARTIFACT] {
        let (queue, lookup, mentions) = (queue.clone(), Arc::downgrade(cache), mentions.clone());
        cache.listen(kind, move |change| {
            let Some(new) = &change.new else { return };
            if !is_news(change.old.as_deref(), new) {
                return;
            }
            let Some(cache) = lookup.upgrade() else { return };
            for key in mentions.find(&term(kind.kind, &change.key)) {
                let tried = cache.get(KIND, &key).is_some_and(|raw| has_tried(&raw, new));
                if !tried {
                    queue.add(key, Cause::Change);
                }
            }
        });
    }
    for kind in [KIND, &kinds::KUSTOMIZATION] {
        let (queue, lookup, mentions) = (queue.clone(), Arc::downgrade(cache), mentions.clone());
        cache.listen(kind, move |change| {
            let Some(new) = &change.new else { return };
            if change.old.as_deref().map(dependents_care_about) == Some(dependents_care_about(new)) {
                return;
            }
            let Some(cache) = lookup.upgrade() else { return };
            for key in mentions.find(&term(kind.kind, &change.key)) {
                let waits = cache.get(KIND, &key).is_some_and(|raw| waits_for_dependency(&raw));
                if waits {
                    queue.add(key, Cause::Change);
                }
            }
        });
    }
    if !configs {
        return;
    }
    // By name, whether labelled or not; only metadata is kept, and contents never enter the cache.
    for (kind, watched) in configs_watched() {
        let (queue, mentions) = (queue.clone(), mentions.clone());
        cache.watch(&watched).listen(move |change| {
            // A first list tells of everything there is: that is no change.
            if change.old.is_none() && change.new.as_deref().is_some_and(is_old) {
                return;
            }
            for key in mentions.find(&term(kind.as_str(), &change.key)) {
                queue.add(key, Cause::Change);
            }
        });
    }
}

/// Made before this process could have missed it.
fn is_old(object: &DynamicObject) -> bool {
    let Some(created) = object.metadata.creation_timestamp.as_ref() else {
        return false;
    };
    created.0.as_second() + 10 < k8s_openapi::jiff::Timestamp::now().as_second()
}

fn term(kind: &str, key: &ObjectKey) -> String {
    format!("{kind}/{key}")
}

fn mentioned(object: &HelmRelease) -> Vec<String> {
    let own = Object::namespace(object);
    let mut terms: Vec<String> =
        SourceKey::of(object).map(|source| term(source.kind.as_str(), &source.key)).into_iter().collect();
    for dependency in &object.spec.depends_on {
        let key = ObjectKey::new(dependency.namespace.as_deref().unwrap_or(own), &dependency.name);
        terms.push(term(dependency.kind.as_deref().unwrap_or(KIND.kind), &key));
    }
    for reference in &object.spec.values_from {
        terms.push(term(reference.kind.as_str(), &ObjectKey::new(own, &reference.name)));
    }
    if let Some(config) = &object.spec.kube_config {
        if let Some(secret) = &config.secret_ref {
            terms.push(term("Secret", &ObjectKey::new(own, &secret.name)));
        }
        if let Some(map) = &config.config_map_ref {
            terms.push(term("ConfigMap", &ObjectKey::new(own, &map.name)));
        }
    }
    terms
}

/// Whether a source has something for those who use it: another artifact, that it got over its trouble, or that it has
/// looked at its latest generation, before which its artifact is not used.
fn is_news(old: Option<&DynamicObject>, new: &DynamicObject) -> bool {
    // Seen for the first time, as after a gap in the watch: whoever has tried its artifact sleeps on.
    let Some(old) = old else { return revision(new).is_some() };
    let at = |object: &DynamicObject, pointer: &str| object.data.pointer(pointer).cloned();
    let is_ready = |object: &DynamicObject| ready_status(object).is_some_and(|status| status == "True");
    let observed = "/status/observedGeneration";
    revision(new).is_some()
        && (revision(old) != revision(new)
            || !is_ready(old) && is_ready(new)
            || at(old, observed) != at(new, observed))
}

fn revision(source: &DynamicObject) -> Option<&str> {
    source.data.pointer("/status/artifact/revision").and_then(Value::as_str)
}

/// Whether a release that is well, or being worked on, has tried the source's artifact already.
fn has_tried(release: &DynamicObject, source: &DynamicObject) -> bool {
    let text = |pointer: &str| release.data.pointer(pointer).and_then(Value::as_str);
    let Some(revision) = revision(source) else { return false };
    let tried = match revision.contains(':') {
        true => {
            let digest = revision.rsplit_once('@').map_or(revision, |(_, digest)| digest);
            text("/status/lastAttemptedRevisionDigest") == Some(digest)
        }
        false => text("/status/lastAttemptedRevision") == Some(revision),
    };
    tried && ready_status(release).is_some_and(|status| status != "False")
}

fn dependents_care_about(object: &DynamicObject) -> (Option<Value>, Option<Value>) {
    (ready_status(object), object.data.pointer("/status/observedGeneration").cloned())
}

fn ready_status(object: &DynamicObject) -> Option<Value> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one["type"] == READY).and_then(|ready| ready.get("status").cloned())
}

fn waits_for_dependency(raw: &DynamicObject) -> bool {
    decode::<HelmRelease>(raw).is_ok_and(|object| {
        condition::find(object.conditions(), READY)
            .is_none_or(|ready| matches!(ready.reason.as_str(), "DependencyNotReady" | DEPENDENCY_CYCLE))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::state::tests::object;
    use super::*;

    fn source(revision: Option<&str>, ready: &str, observed: i64) -> DynamicObject {
        let artifact = revision.map(|revision| json!({"revision": revision}));
        serde_json::from_value(json!({"metadata": {"name": "c"}, "status": {
            "artifact": artifact, "observedGeneration": observed,
            "conditions": [{"type": "Ready", "status": ready}]}}))
        .unwrap()
    }

    #[test]
    fn a_source_wakes_its_releases_with_another_artifact_or_when_it_is_well_again() {
        let old = source(Some("1.0.0"), "True", 1);
        assert!(is_news(None, &old) && !is_news(None, &source(None, "False", 1)));
        assert!(!is_news(Some(&old), &old));
        assert!(is_news(Some(&old), &source(Some("1.1.0"), "True", 1)));
        assert!(is_news(Some(&source(None, "True", 1)), &old), "its first artifact");
        assert!(!is_news(Some(&old), &source(None, "True", 2)), "nothing to release");
        let ill = source(Some("1.0.0"), "False", 1);
        assert!(is_news(Some(&ill), &old) && !is_news(Some(&old), &ill));
        assert!(is_news(Some(&old), &source(Some("1.0.0"), "True", 2)));
    }

    #[test]
    fn a_release_that_has_tried_the_artifact_sleeps_on_unless_it_failed() {
        let release = |ready: &str| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "web"}, "status": {
                "lastAttemptedRevision": "1.0.0", "lastAttemptedRevisionDigest": "sha256:abc",
                "conditions": [{"type": "Ready", "status": ready}]}}))
            .unwrap()
        };
        for tried in ["1.0.0", "sha256:abc", "latest@sha256:abc"] {
            let source = source(Some(tried), "True", 1);
            assert!(has_tried(&release("True"), &source) && has_tried(&release("Unknown"), &source));
            assert!(!has_tried(&release("False"), &source), "{tried}");
        }
        for new in ["1.0.1", "1.0.0@sha256:def"] {
            assert!(!has_tried(&release("True"), &source(Some(new), "True", 1)), "{new}");
        }
    }

    #[test]
    fn everything_a_release_refers_to_wakes_it() {
        let object = object(json!({
            "dependsOn": [{"name": "db"}, {"name": "mesh", "namespace": "infra"}],
            "valuesFrom": [{"kind": "Secret", "name": "s"}, {"kind": "ConfigMap", "name": "c"}],
            "kubeConfig": {"secretRef": {"name": "remote"}},
        }));
        assert_eq!(
            mentioned(&object),
            [
                "HelmChart/apps/c",
                "HelmRelease/apps/db",
                "HelmRelease/infra/mesh",
                "Secret/apps/s",
                "ConfigMap/apps/c",
                "Secret/apps/remote"
            ]
        );
    }
}
