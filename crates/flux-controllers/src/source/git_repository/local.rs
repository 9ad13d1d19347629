//! A folder of this machine in place of the remote, where a fleet is tried.

use std::io;

use flux_api::revision::Revision;
use flux_remote::git::Commit;
use flux_remote::local::Place;

use super::failure::Failure;
use super::{GitRepositories, KIND};
use crate::source::depot::KeptFiles;
use crate::source::skeleton::Job;

impl GitRepositories {
    /// The files as they are now, under a revision made of their contents.
    pub(super) async fn fetch_local(
        &self,
        job: &mut Job<'_, Self>,
        place: Place,
    ) -> Result<Option<Commit>, Failure> {
        let (storage, spec, key) = (self.ctx.storage.clone(), job.object.spec.clone(), job.key());
        let current = job.status.artifact.as_ref().map(|artifact| artifact.revision.clone());
        let same_rules = job.status.observed_ignore == spec.ignore;
        let stored = crate::reconcile::heavy(move || {
            let failed = |error: io::Error| Failure::Folder(format!("{}: {error}", place.folder.display()));
            let files = place.open().map_err(failed)?;
            let digest = files.digest().map_err(failed)?;
            let branch =
                spec.reference.as_ref().and_then(|reference| reference.branch.as_deref()).unwrap_or("main");
            let revision = Revision::from(format!("{branch}@sha1:{digest}"));
            if current.as_ref() == Some(&revision) && same_rules {
                return Ok::<_, Failure>(None);
            }
            let mut contents = KeptFiles::of(&files, spec.ignore.as_deref());
            let artifact = storage.store(KIND, &key, &format!("{digest}.tar.gz"), revision, &mut contents);
            let artifact = artifact.map_err(|error| Failure::Storage(error.to_string()))?;
            Ok(Some(artifact))
        });
        if let Some(artifact) = stored.await.map_err(|error| Failure::Storage(error.to_string()))?? {
            job.status.artifact = Some(artifact);
            job.status.observed_ignore = job.object.spec.ignore.clone();
        }
        Ok(None)
    }
}
