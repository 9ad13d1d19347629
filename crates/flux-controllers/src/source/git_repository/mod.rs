//! GitRepository: the files of a commit as an artifact.
//!
//! Looks at the remote first and fetches only when something changed. Whatever fails, the last artifact stays
//! where it is and is served on.
//!
//! `connect` finds the way to the remote, `fetch` brings objects here, `verification` checks signatures, `include`
//! looks for other repositories' artifacts, `contents` puts the files together.

mod connect;
mod contents;
mod failure;
mod fetch;
mod include;
mod local;
mod verification;

pub use connect::{Connector, NoWay, Way};
pub use include::listen;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::{self, Kind};
use flux_api::revision::Revision;
use flux_api::source::{GitRepository, GitRepositoryStatus};
use flux_remote::git::{Commit, ObjectStore, Pick, Reference, SshAlgorithms};
use flux_remote::transport::shown_text as shown;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::failure::Failure;
use super::skeleton::{self, Fetched, Job, Remote, Source};
use super::{ARTIFACT_OUTDATED, Context, FETCH_FAILED, INCLUDE_UNAVAILABLE, SOURCE_VERIFIED};
use crate::reconcile::ObjectKey;

const KIND: &Kind = &kinds::GIT_REPOSITORY;
/// Conversations at once with one host: one that answers slowly holds up nobody else's.
const PER_HOST: usize = 16;

pub struct GitRepositories {
    pub ctx: Arc<Context>,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    connector: Connector,
}

impl Source for GitRepositories {
    type Object = GitRepository;
    type Status = GitRepositoryStatus;

    fn status(object: &GitRepository) -> Option<&GitRepositoryStatus> {
        object.status.as_ref()
    }

    fn interval(object: &GitRepository) -> Duration {
        object.spec.interval.to_std()
    }

    fn remote(&self, job: &Job<'_, Self>) -> Option<Remote> {
        let spec = &job.object.spec;
        if self.ctx.depot.as_ref()?.files(&spec.url).is_some() {
            return None;
        }
        let included = self.included(job.object).unwrap_or_default();
        let digests: Vec<String> = included.iter().map(|artifact| artifact.digest.to_string()).collect();
        let what = format!("repository {}", shown(&spec.url));
        Some(Remote::new(KIND, &spec.url, spec, what).with("included", digests))
    }

    async fn fetch(&self, job: &mut Job<'_, Self>) -> Result<Fetched, skeleton::Failure> {
        let commit = self.bring_up_to_date(job).await?;
        let Some(artifact) = &job.status.artifact else {
            return Ok(Fetched::succeeded(String::new(), String::new()));
        };
        let message = format!("stored artifact for revision '{}'", artifact.revision);
        let news = match commit {
            Some(commit) => format!("stored artifact for commit '{}'", subject(&commit.message)),
            None => format!("stored artifact for commit '{}'", artifact.revision),
        };
        Ok(Fetched::succeeded(message, news))
    }

    fn forget(&self, key: &ObjectKey) {
        // Losing it costs a fetch; leaving it costs space for ever.
        let _ = std::fs::remove_dir_all(self.cache_folder(key));
    }
}

/// What a fetch found, before anything is made of it.
struct Found {
    store: ObjectStore,
    pick: Pick,
    commit: Commit,
}

impl GitRepositories {
    pub fn new(ctx: Arc<Context>) -> Self {
        let algorithms = SshAlgorithms {
            key_exchange: ctx.options.ssh_kex_algos.clone(),
            host_keys: ctx.options.ssh_hostkey_algos.clone(),
        };
        let connector = Connector::new(ctx.identity.clone(), algorithms);
        Self { ctx, hosts: Mutex::default(), connector }
    }

    /// Brings the artifact to where the remote is; the commit, when it had to be looked at.
    async fn bring_up_to_date(&self, job: &mut Job<'_, Self>) -> Result<Option<Commit>, skeleton::Failure> {
        if condition::is(&job.status.conditions, SOURCE_VERIFIED, ConditionStatus::False) {
            job.conditions().delete(SOURCE_VERIFIED);
        }
        if job.object.spec.verify.is_none() {
            job.status.source_verification_mode = None;
            job.conditions().delete(SOURCE_VERIFIED);
        }
        if let Some(place) = self.ctx.depot.as_ref().and_then(|depot| depot.files(&job.object.spec.url)) {
            return Ok(self.fetch_local(job, place.clone()).await?);
        }
        let deadline = Instant::now() + job.object.spec.timeout().to_std();
        let mut way = self.connector.connect(job.object, deadline).await?;
        let look_again = self.ctx.options.requeue_dependency;
        let included = self
            .included(job.object)
            .map_err(|failure| skeleton::Failure::from(failure).waiting(Some(look_again)))?;
        job.conditions().delete(INCLUDE_UNAVAILABLE);
        if include::differ(&included, &job.status.included_artifacts) {
            let message = "included artifacts differ from last observed includes";
            match job.status.included_artifacts.is_empty() {
                true => job.progress(format!("building artifact: {message}")).await,
                false => job.outdated("IncludeChange", message.to_owned()).await,
            }
        } else {
            job.conditions().delete(ARTIFACT_OUTDATED);
        }
        let pick = self.look(job, &mut way, deadline).await?;
        let unchanged = is_current(job.object, &job.status, &pick, &included);
        if unchanged && !checks_every_time(job.object) {
            let revision = pick.revision();
            let message = format!("no changes since last reconciliation: observed revision '{revision}'");
            job.trace("GitOperationSucceeded", message);
            return Ok(None);
        }
        let found = self.bring(job, &mut way, pick, deadline).await?;
        job.conditions().delete(FETCH_FAILED);
        contents::check_sparse(&found, &job.object.spec.sparse_checkout)?;
        self.verify(job, &found).await?;
        let revision = found.pick.revision();
        if unchanged {
            job.trace("ArtifactUpToDate", format!("artifact up-to-date with remote revision: '{revision}'"));
            return Ok(Some(found.commit));
        }
        if job.status.artifact.as_ref().is_none_or(|have| have.revision.as_str() != revision) {
            job.outdated("NewRevision", format!("new upstream revision '{revision}'")).await;
        }
        let modules = match job.object.spec.recurse_submodules {
            true => self.submodules(job, &mut way, &found, deadline).await?,
            false => Vec::new(),
        };
        let (artifact, commit) = self.store(job, found, modules, &included).await?;
        let spec = &job.object.spec;
        job.status.artifact = Some(artifact);
        job.status.included_artifacts = included;
        job.status.observed_ignore = spec.ignore.clone();
        job.status.observed_include = spec.include.clone();
        job.status.observed_sparse_checkout = spec.sparse_checkout.clone();
        job.status.observed_recurse_submodules = spec.recurse_submodules;
        Ok(Some(commit))
    }

    async fn store(
        &self,
        job: &Job<'_, Self>,
        found: Found,
        modules: Vec<fetch::Module>,
        included: &[flux_api::artifact::Artifact],
    ) -> Result<(flux_api::artifact::Artifact, Commit), Failure> {
        let (storage, spec, key) = (self.ctx.storage.clone(), job.object.spec.clone(), job.key());
        let included = included.to_vec();
        let stored = crate::reconcile::heavy(move || {
            let Found { store, pick, commit } = found;
            let failed = |cause| Failure::Git { url: shown(&spec.url), listing: false, cause };
            let mut contents =
                contents::Assembly::new(store, &pick, &spec.sparse_checkout).map_err(failed)?;
            for module in modules {
                contents.add_submodule(module).map_err(failed)?;
            }
            for (include, artifact) in spec.include.iter().zip(&included) {
                contents.add_include(include, artifact, &storage)?;
            }
            contents.ignore(spec.ignore.as_deref());
            let name = format!("{}.tar.gz", pick.commit);
            let artifact = storage
                .store(KIND, &key, &name, Revision::from(pick.revision()), &mut contents)
                .map_err(|error| Failure::Storage(error.to_string()))?;
            Ok((artifact, commit))
        });
        stored.await.map_err(|error| Failure::Storage(error.to_string()))?
    }

    /// What was fetched for an object, apart from all others: nobody reads what another may.
    fn cache_folder(&self, key: &ObjectKey) -> std::path::PathBuf {
        self.ctx.object_cache.join(hash(&format!("{}\n{}", key.namespace, key.name)))
    }

    fn turn_at(&self, host: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // Hosts nobody talks to are forgotten.
        hosts.retain(|_, turns| Arc::strong_count(turns) > 1);
        hosts.entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(PER_HOST))).clone()
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn reference(object: &GitRepository) -> Reference {
    let Some(reference) = &object.spec.reference else {
        return Reference::default();
    };
    Reference {
        branch: reference.branch.clone(),
        tag: reference.tag.clone(),
        semver: reference.semver.clone(),
        name: reference.name.clone(),
        commit: reference.commit.clone(),
    }
}

/// Whether the stored artifact is what a fetch would make again.
fn is_current(
    object: &GitRepository,
    status: &GitRepositoryStatus,
    pick: &Pick,
    included: &[flux_api::artifact::Artifact],
) -> bool {
    let spec = &object.spec;
    let same_revision =
        status.artifact.as_ref().is_some_and(|have| have.revision.as_str() == pick.revision());
    same_revision
        && pick.rivals.is_empty()
        && status.observed_ignore == spec.ignore
        && status.observed_sparse_checkout == spec.sparse_checkout
        && status.observed_recurse_submodules == spec.recurse_submodules
        && status.observed_include == spec.include
        && !include::differ(included, &status.included_artifacts)
        && !verification::is_due(object, status)
}

/// A commit or a range is checked out anew in each run, as upstream has it, and so is its signature.
fn checks_every_time(object: &GitRepository) -> bool {
    let reference = object.spec.reference.as_ref();
    let fixed = reference.is_some_and(|one| {
        one.commit.is_some() || (one.name.is_none() && one.tag.is_none() && one.semver.is_some())
    });
    object.spec.verify.is_some() && fixed
}

/// The first line of a commit message, 50 characters of it at most.
fn subject(message: &str) -> String {
    let line = message.split('\n').next().unwrap_or_default();
    match line.char_indices().nth(50) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_subject_is_cut() {
        assert_eq!(subject("short\n\nbody"), "short");
        assert_eq!(subject(&"é".repeat(50)), "é".repeat(50));
        assert_eq!(subject(&"é".repeat(51)), format!("{}...", "é".repeat(50)));
    }
}
