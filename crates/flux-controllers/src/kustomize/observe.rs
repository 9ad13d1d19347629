//! What a Kustomization waits for: its source and its dependencies.

use std::sync::Arc;

use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::{self, Kind};
use flux_api::kustomize::{Kustomization, SourceKind};
use flux_api::{Object, revision::Revision};
use kube::api::DynamicObject;
use serde_json::Value;

use crate::reconcile::{Cache, ObjectKey, decode};

/// Where a Kustomization's files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKey {
    pub kind: SourceKind,
    pub key: ObjectKey,
}

impl SourceKey {
    /// The source whose revision is reported: `sourceRef`, or the first of `sourceRefs`.
    pub fn primary(object: &Kustomization) -> Option<Self> {
        let own = Object::namespace(object);
        let key = |namespace: &Option<String>, name: &str| {
            ObjectKey::new(namespace.clone().unwrap_or_else(|| own.to_owned()), name)
        };
        if let Some(reference) = &object.spec.source_ref {
            return Some(Self { kind: reference.kind, key: key(&reference.namespace, &reference.name) });
        }
        let first = object.spec.source_refs.first()?;
        Some(Self { kind: first.kind, key: key(&first.namespace, &first.name) })
    }

    pub fn kind_row(&self) -> &'static Kind {
        match self.kind {
            SourceKind::OCIRepository => &kinds::OCI_REPOSITORY,
            SourceKind::GitRepository => &kinds::GIT_REPOSITORY,
            SourceKind::Bucket => &kinds::BUCKET,
            SourceKind::ExternalArtifact => &kinds::EXTERNAL_ARTIFACT,
        }
    }
}

impl std::fmt::Display for SourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.key)
    }
}

/// The artifact of a source object, if it has one.
pub fn artifact(source: &DynamicObject) -> Option<Artifact> {
    serde_json::from_value(source.data.pointer("/status/artifact")?.clone()).ok()
}

/// Why a dependency holds its dependents up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("dependency '{0}' not found")]
    NotFound(ObjectKey),
    #[error("dependency '{0}' is not ready")]
    NotReady(ObjectKey),
    #[error("dependency '{0}' revision is not up to date")]
    OldRevision(ObjectKey),
}

/// The first dependency that is not there yet.
pub fn unready_dependency(cache: &Cache, object: &Kustomization, revision: &Revision) -> Option<NotReady> {
    let own = Object::namespace(object);
    object.spec.depends_on.iter().find_map(|dependency| {
        let key =
            ObjectKey::new(dependency.namespace.clone().unwrap_or_else(|| own.to_owned()), &dependency.name);
        let found: Option<Arc<DynamicObject>> = cache.get(&kinds::KUSTOMIZATION, &key);
        let Some(found) = found else {
            return Some(NotReady::NotFound(key));
        };
        let Ok(dependency) = decode::<Kustomization>(&found) else {
            return Some(NotReady::NotReady(key));
        };
        judge_dependency(&dependency, key, SourceKey::primary(object), revision)
    })
}

fn judge_dependency(
    dependency: &Kustomization,
    key: ObjectKey,
    source: Option<SourceKey>,
    revision: &Revision,
) -> Option<NotReady> {
    let observed = dependency.observed_generation();
    let settled = observed == Some(dependency.generation());
    if !settled || !condition::is(dependency.conditions(), condition::READY, ConditionStatus::True) {
        return Some(NotReady::NotReady(key));
    }
    // From the same source, "ready" must mean ready at the same revision.
    let applied = dependency.status.as_ref().and_then(|status| status.last_applied_revision.as_ref());
    if SourceKey::primary(dependency) == source && applied != Some(revision) {
        return Some(NotReady::OldRevision(key));
    }
    None
}

/// What dependents look at: ready or not, and at which revision.
pub fn dependents_care_about(object: &DynamicObject) -> (Option<Value>, Option<Value>, Option<Value>) {
    let ready = object.data.pointer("/status/conditions").and_then(Value::as_array).and_then(|conditions| {
        conditions.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(condition::READY))
    });
    (
        ready.and_then(|ready| ready.get("status").cloned()),
        object.data.pointer("/status/lastAppliedRevision").cloned(),
        object.data.pointer("/status/observedGeneration").cloned(),
    )
}
