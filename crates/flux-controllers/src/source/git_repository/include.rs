//! `spec.include`: other repositories' artifacts, and being woken when one of them changes.

use std::sync::Arc;

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::source::GitRepository;
use kube::api::DynamicObject;

use super::failure::Failure;
use super::{GitRepositories, KIND};
use crate::reconcile::{Cache, Cause, ObjectKey, Queue, decode};

impl GitRepositories {
    /// The artifacts of all includes, in order.
    pub(super) fn included(&self, object: &GitRepository) -> Result<Vec<Artifact>, Failure> {
        let namespace = Object::namespace(object);
        let find = |name: &String| {
            let other = self.ctx.cache.get(KIND, &ObjectKey::new(namespace, name.as_str()));
            let other = other.ok_or_else(|| Failure::IncludeMissing(name.clone()))?;
            artifact(&other).ok_or_else(|| Failure::IncludeEmpty(name.clone()))
        };
        object.spec.include.iter().map(|include| find(&include.repository.name)).collect()
    }
}

/// Whether an artifact was made of other contents than those there are now.
pub(super) fn differ(now: &[Artifact], then: &[Artifact]) -> bool {
    let same = |(a, b): (&Artifact, &Artifact)| a.revision == b.revision && a.digest == b.digest;
    now.len() != then.len() || !now.iter().zip(then).all(same)
}

fn artifact(object: &DynamicObject) -> Option<Artifact> {
    decode::<GitRepository>(object).ok()?.status?.artifact
}

/// Wakes those that include a repository whose artifact changed.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>) {
    let (queue, lookup) = (queue.clone(), Arc::downgrade(cache));
    cache.listen(KIND, move |change| {
        let of = |object: &Option<Arc<DynamicObject>>| object.as_deref().and_then(artifact);
        let (new, old) = (of(&change.new), of(&change.old));
        let Some(new) = new.filter(|new| {
            old.as_ref().is_none_or(|old| old.digest != new.digest || old.revision != new.revision)
        }) else {
            return;
        };
        let Some(cache) = lookup.upgrade() else { return };
        for object in cache.list(KIND) {
            let key = ObjectKey::of(&object);
            let includes = |other: &GitRepository| {
                other.spec.include.iter().any(|one| one.repository.name == change.key.name)
            };
            let wakes = key.namespace == change.key.namespace
                && key != change.key
                && decode::<GitRepository>(&object).is_ok_and(|other| includes(&other));
            if wakes {
                tracing::debug!(object = %key, revision = %new.revision, "an include changed");
                queue.add(key, Cause::Change);
            }
        }
    });
}
