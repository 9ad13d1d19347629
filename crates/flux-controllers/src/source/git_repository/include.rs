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
    let queue = queue.clone();
    let by_include = cache.index(KIND, included_by);
    cache.listen(KIND, move |change| {
        let of = |object: &Option<Arc<DynamicObject>>| object.as_deref().and_then(artifact);
        let (new, old) = (of(&change.new), of(&change.old));
        let Some(new) = new.filter(|new| {
            old.as_ref().is_none_or(|old| old.digest != new.digest || old.revision != new.revision)
        }) else {
            return;
        };
        for key in by_include.find(&change.key.to_string()).into_iter().filter(|key| *key != change.key) {
            tracing::debug!(object = %key, revision = %new.revision, "an include changed");
            queue.add(key, Cause::Change);
        }
    });
}

/// The repositories that an object includes, by namespace and name.
fn included_by(object: &DynamicObject) -> Vec<String> {
    let Ok(repository) = decode::<GitRepository>(object) else { return Vec::new() };
    let namespace = Object::namespace(&repository);
    let key = |name: &str| ObjectKey::new(namespace, name).to_string();
    repository.spec.include.iter().map(|include| key(&include.repository.name)).collect()
}
