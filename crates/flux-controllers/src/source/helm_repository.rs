//! HelmRepository: the index of a chart repository as an artifact.
//!
//! One of type `oci` is only looked at by HelmCharts: it has no index, no finalizer and no status.

use std::collections::HashMap;
use std::io::{BufWriter, Seek, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use flux_api::Object;
use flux_api::kinds::{HELM_REPOSITORY, Kind};
use flux_api::revision::Revision;
use flux_api::source::{HelmRepository, HelmRepositoryStatus, HelmRepositoryType};
use flux_remote::helm_repository::{self as remote, Downloaded, Repository, convert};
use sha2::{Digest, Sha256};

use super::access::{self, Secrets};
use super::depot::LocalChart;
use super::skeleton::{Failure, Fetched, Job, Remote, Source};
use crate::reconcile::ObjectKey;

const KIND: &Kind = &HELM_REPOSITORY;
/// Remembered answers; forgetting one costs a download.
const MOST_REMEMBERED: usize = 10_000;

#[derive(Default)]
pub struct HelmRepositories {
    /// What the repository called its last index, to ask only for a newer one.
    seen: Mutex<HashMap<ObjectKey, Seen>>,
}

#[derive(Clone)]
struct Seen {
    url: String,
    etag: String,
    revision: String,
}

impl Source for HelmRepositories {
    type Object = HelmRepository;
    type Status = HelmRepositoryStatus;

    fn status(object: &HelmRepository) -> Option<&HelmRepositoryStatus> {
        object.status.as_ref()
    }

    fn interval(object: &HelmRepository) -> Duration {
        let interval = object.spec.interval().to_std();
        if interval.is_zero() { Duration::from_secs(60) } else { interval }
    }

    fn is_static(object: &HelmRepository) -> bool {
        object.spec.repository_type() == HelmRepositoryType::Oci
    }

    fn remote(&self, job: &Job<'_, Self>) -> Option<Remote> {
        let spec = &job.object.spec;
        if job.ctx.depot.as_ref()?.files(&spec.url).is_some() || spec.url.starts_with("oci://") {
            return None;
        }
        Some(Remote::new(KIND, &spec.url, spec, format!("the index of {}", spec.url)))
    }

    async fn fetch(&self, job: &mut Job<'_, Self>) -> Result<Fetched, Failure> {
        if job.object.spec.url.starts_with("oci://") {
            let problem = "'oci' URL scheme cannot be used with 'default' HelmRepository type";
            return Err(invalid_url(problem));
        }
        if let Some(charts) = job.ctx.depot.as_ref().and_then(|depot| depot.charts(&job.object.spec.url)) {
            let charts = charts.map_err(|problem| Failure::fetch("Failed", problem))?;
            let index = LocalChart::index(&charts).to_string();
            return self.store(job, downloaded(&index)?).await;
        }
        let repository = self.connect(job).await?;
        let limit = job.object.spec.timeout().to_std();
        let (etag, largest) = (self.etag(job), job.ctx.options.helm_index_max_size);
        let download = tokio::time::timeout(limit, repository.index(etag.as_deref(), largest));
        let cause = match job.worker.outside(download).await {
            Ok(Ok(Some(downloaded))) => return self.store(job, downloaded).await,
            Ok(Ok(None)) => return Ok(up_to_date(job)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", limit.as_secs()),
        };
        let message = format!(
            "failed to fetch Helm repository index: failed to cache index to temporary file: {cause}"
        );
        Err(Failure::fetch("Failed", message))
    }
}

impl HelmRepositories {
    async fn connect(&self, job: &Job<'_, Self>) -> Result<Repository, Failure> {
        let spec = &job.object.spec;
        let secrets = Secrets { client: &job.ctx.client, namespace: Object::namespace(job.object) };
        remote::normalize(&spec.url).map_err(|error| invalid_url(&error.to_string()))?;
        let (transport, login) = access::chart_repository(secrets, spec)
            .await
            .map_err(|problem| Failure::fetch("AuthenticationFailed", problem))?;
        Repository::new(&spec.url, &transport, login).map_err(|error| match error {
            remote::Error::Transport(error) => {
                let message = format!("failed to construct Helm client's TLS config: {error}");
                Failure::fetch("AuthenticationFailed", message)
            }
            error => invalid_url(&error.to_string()),
        })
    }

    /// The name of the index we have, if it is still there to be used.
    fn etag(&self, job: &Job<'_, Self>) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(&job.key())?.clone();
        let artifact = job.status.artifact.as_ref()?;
        let same = artifact.revision.as_str() == seen.revision && seen.url == job.object.spec.url;
        same.then_some(seen.etag)
    }

    async fn store(&self, job: &mut Job<'_, Self>, downloaded: Downloaded) -> Result<Fetched, Failure> {
        let revision = format!("sha256:{}", downloaded.sha256);
        let known =
            job.status.artifact.as_ref().is_some_and(|artifact| artifact.revision.as_str() == revision);
        if !known {
            job.outdated("NewRevision", format!("new index revision '{revision}'")).await;
            let name = format!("index-{}.yaml", downloaded.sha256);
            let (storage, key, revision) =
                (job.ctx.storage.clone(), job.key(), Revision::from(revision.clone()));
            let mut file = downloaded.file;
            let stored = crate::reconcile::heavy(move || {
                storage.store_stream(KIND, &key, &name, revision, |out| {
                    let mut out = BufWriter::with_capacity(1 << 16, out);
                    let converted = convert(&mut file, &mut out).map_err(Unstored::Index)?;
                    std::io::Write::flush(&mut out).map_err(|error| Unstored::Storage(error.into()))?;
                    Ok::<_, Unstored>(converted)
                })
            });
            let stored = job.worker.outside(stored).await;
            let stored = stored.map_err(|error| Failure::storage(error.to_string()))?;
            let (artifact, converted) = stored.map_err(Failure::from)?;
            if converted.dropped > 0 {
                tracing::warn!(dropped = converted.dropped, "entries of the index are no valid charts");
            }
            job.status.artifact = Some(artifact);
            job.link("index.yaml");
        }
        if let Some(etag) = downloaded.etag {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.len() >= MOST_REMEMBERED {
                seen.clear();
            }
            let url = job.object.spec.url.clone();
            seen.insert(job.key(), Seen { url, etag, revision: revision.clone() });
        }
        Ok(if known { up_to_date(job) } else { told(job) })
    }
}

/// What can go wrong while the index is written.
enum Unstored {
    Index(remote::Error),
    Storage(crate::artifact::storage::Error),
}

impl From<crate::artifact::storage::Error> for Unstored {
    fn from(error: crate::artifact::storage::Error) -> Self {
        Unstored::Storage(error)
    }
}

impl From<Unstored> for Failure {
    fn from(error: Unstored) -> Self {
        match error {
            Unstored::Index(error) => {
                let message =
                    format!("failed to load Helm repository from index YAML: failed to load index: {error}");
                Failure::fetch("IndexationFailed", message)
            }
            Unstored::Storage(error) => {
                Failure::storage(format!("unable to save artifact to storage: {error}"))
            }
        }
    }
}

/// An index that was made here, as if it had come from somewhere.
fn downloaded(index: &str) -> Result<Downloaded, Failure> {
    let written = || -> std::io::Result<std::fs::File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(index.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    let file = written().map_err(|error| Failure::storage(error.to_string()))?;
    let sha256 = Sha256::digest(index).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Downloaded { file, sha256, etag: None })
}

fn invalid_url(problem: &str) -> Failure {
    Failure::fetch("URLInvalid", format!("invalid Helm repository URL: {problem}")).stalled()
}

fn up_to_date(job: &Job<'_, HelmRepositories>) -> Fetched {
    if let Some(artifact) = &job.status.artifact {
        let message = format!("artifact up-to-date with remote revision: '{}'", artifact.revision);
        job.trace("ArtifactUpToDate", message);
    }
    told(job)
}

fn told(job: &Job<'_, HelmRepositories>) -> Fetched {
    let artifact = job.status.artifact.as_ref();
    let revision = artifact.map(|artifact| artifact.revision.to_string()).unwrap_or_default();
    let size = artifact.and_then(|artifact| artifact.size);
    let size = size.map_or("unknown size".to_owned(), |size| format!("size {}", human_size(size as f64)));
    Fetched::succeeded(
        format!("stored artifact: revision '{revision}'"),
        format!("stored fetched index of {size} from '{}'", job.object.spec.url),
    )
}

/// As Docker's `units` writes sizes: four digits that count, powers of a thousand.
fn human_size(mut size: f64) -> String {
    let mut units = ["B", "kB", "MB", "GB", "TB", "PB"].iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        if size < 1000.0 {
            break;
        }
        size /= 1000.0;
        unit = larger;
    }
    let whole_digits = if size >= 100.0 {
        3
    } else if size >= 10.0 {
        2
    } else {
        1
    };
    let text = format!("{size:.*}", 4 - whole_digits);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_docker_writes_them() {
        for (size, text) in [
            (0.0, "0B"),
            (999.0, "999B"),
            (1000.0, "1kB"),
            (1024.0, "1.024kB"),
            (31_360.0, "31.36kB"),
            (1_234_567.0, "1.235MB"),
            (100_000_000.0, "100MB"),
        ] {
            assert_eq!(human_size(size), text);
        }
    }
}
