//! HelmChart: one chart, from a repository or from the files of a source, as an archive that Helm loads.

use std::sync::Arc;
use std::time::Duration;

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::{self, BUCKET, GIT_REPOSITORY, HELM_CHART, HELM_REPOSITORY, Kind};
use flux_api::revision::Revision;
use flux_api::source::{
    HelmChart, HelmChartSourceKind, HelmChartStatus, HelmRepository, HelmRepositoryType, ReconcileStrategy,
};
use flux_remote::helm_repository as remote;
use helm::{Chart, Dialect, Limits};
use kube::ResourceExt;
use kube::api::DynamicObject;

use super::chart_build::{self as build, Build, BuildError, Local, Reason, Wishes};
use super::chart_download::{Downloader, stands_for};
use super::depot::{About, Network};
use super::skeleton::{Failure, Fetched, Job, Remote, Source};
use super::{BUILD_FAILED, FETCH_FAILED, SOURCE_VERIFIED};
use crate::reconcile::{Cache, Cause, ObjectKey, Queue, decode};

const KIND: &Kind = &HELM_CHART;

pub struct HelmCharts;

/// Wakes charts whose source has something new.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>) {
    let by_source = cache.index(KIND, |chart| source_of(chart).into_iter().collect());
    for kind in [&HELM_REPOSITORY, &GIT_REPOSITORY, &BUCKET] {
        let (queue, charts) = (queue.clone(), Arc::downgrade(cache));
        let by_source = by_source.clone();
        cache.listen(kind, move |change| {
            let (Some(new), Some(charts)) = (&change.new, charts.upgrade()) else { return };
            let Some(revision) = revision(new) else { return };
            if change.old.as_deref().and_then(self::revision) == Some(revision) {
                return;
            }
            for key in by_source.find(&format!("{} {}", kind.kind, change.key)) {
                let chart = charts.get(KIND, &key);
                if chart.is_some_and(|chart| observed(&chart) != Some(revision)) {
                    queue.add(key, Cause::Change);
                }
            }
        });
    }
}

fn revision(source: &DynamicObject) -> Option<&str> {
    source.data.pointer("/status/artifact/revision")?.as_str()
}

fn observed(chart: &DynamicObject) -> Option<&str> {
    chart.data.pointer("/status/observedSourceArtifactRevision")?.as_str()
}

/// Kind and place of the chart's source.
fn source_of(chart: &DynamicObject) -> Option<String> {
    let field = |name: &str| chart.data.pointer(&format!("/spec/sourceRef/{name}"))?.as_str();
    let source = ObjectKey::new(chart.namespace()?, field("name")?);
    Some(format!("{} {source}", field("kind")?))
}

/// Where the chart comes from.
enum From {
    Repository(Box<HelmRepository>),
    Files(Artifact),
}

/// Why there is no chart.
pub(super) enum Trouble {
    Build(BuildError),
    /// Around the build; `reason` is what the event says.
    Around {
        reason: &'static str,
        message: String,
        stalled: bool,
        unverified: bool,
    },
}

impl std::convert::From<BuildError> for Trouble {
    fn from(error: BuildError) -> Self {
        Trouble::Build(error)
    }
}

impl Trouble {
    pub(super) fn around(reason: &'static str, message: impl Into<String>) -> Self {
        Trouble::Around { reason, message: message.into(), stalled: false, unverified: false }
    }

    pub(super) fn invalid_url(problem: impl std::fmt::Display) -> Self {
        let message = format!("invalid Helm repository URL: {problem}");
        Trouble::Around { reason: "URLInvalid", message, stalled: true, unverified: false }
    }
}

impl Source for HelmCharts {
    type Object = HelmChart;
    type Status = HelmChartStatus;

    fn status(object: &HelmChart) -> Option<&HelmChartStatus> {
        object.status.as_ref()
    }

    fn interval(object: &HelmChart) -> Duration {
        object.spec.interval.to_std()
    }

    fn remote(&self, job: &Job<'_, Self>) -> Option<Remote> {
        let spec = &job.object.spec;
        if spec.source_ref.kind != HelmChartSourceKind::HelmRepository {
            return None;
        }
        let key = ObjectKey::new(Object::namespace(job.object), spec.source_ref.name.clone());
        let repository: HelmRepository = decode(job.ctx.cache.get(&HELM_REPOSITORY, &key)?.as_ref()).ok()?;
        let url = repository.spec.url;
        // Of an index that stands for another one, the charts do, too.
        if stands_for(job, &url, &spec.chart).is_some() {
            return None;
        }
        let what = format!("chart {} {} of {url}", spec.chart, spec.version());
        Some(Remote::new(KIND, &url, spec, what))
    }

    async fn fetch(&self, job: &mut Job<'_, Self>) -> Result<Fetched, Failure> {
        if condition::is(&job.status.conditions, SOURCE_VERIFIED, ConditionStatus::False) {
            job.conditions().delete(SOURCE_VERIFIED);
        }
        let source = find_source(job)?;
        if let Some(artifact) = artifact_of(&source) {
            job.status.observed_source_artifact_revision = Some(artifact.revision.to_string());
        }
        let built = match &source {
            From::Repository(repository) => {
                let limit = repository.spec.timeout().to_std();
                let work = tokio::time::timeout(limit, from_repository(job, repository));
                match job.worker.outside(work).await {
                    Ok(built) => built.map_err(blame_the_login),
                    Err(_) => {
                        let cause = format!("no answer within {} s", limit.as_secs());
                        Err(BuildError::new(Reason::Pull, cause).into())
                    }
                }
            }
            From::Files(artifact) => job.worker.outside(from_files(job, artifact)).await,
        };
        if job.object.spec.verify.is_none() {
            job.conditions().delete(SOURCE_VERIFIED);
        }
        let build = built.map_err(failure)?;
        if build.resolved_dependencies > 0 {
            let message = format!("resolved {} chart dependencies", build.resolved_dependencies);
            job.trace("ResolvedDependencies", message);
        }
        self.store(job, build).await
    }
}

impl HelmCharts {
    async fn store(&self, job: &mut Job<'_, Self>, build: Build) -> Result<Fetched, Failure> {
        let summary = build.summary();
        if !is_stored(job, &build.name, &build.version) {
            job.outdated("NewChart", summary.clone()).await;
        }
        if build.verified {
            let message = format!("verified signature of version {}", build.version);
            job.conditions().set(SOURCE_VERIFIED, ConditionStatus::True, "Succeeded", message);
        }
        let reason = build.reason();
        match build.archive {
            None => {
                let message = format!("artifact up-to-date with remote revision: '{}'", build.version);
                job.trace("ArtifactUpToDate", message);
            }
            Some(archive) => {
                let (storage, key) = (job.ctx.storage.clone(), job.key());
                let (name, version) = (build.name.clone(), build.version.clone());
                let stored = crate::reconcile::heavy(move || {
                    let file = format!("{name}-{version}.tgz");
                    storage.store_bytes(KIND, &key, &file, Revision::from(version), &archive)
                });
                let stored = stored.await.map_err(|error| Failure::storage(error.to_string()))?;
                let artifact = stored.map_err(|error| {
                    Failure::storage(format!("unable to copy Helm chart to storage: {error}"))
                })?;
                job.status.artifact = Some(artifact);
                job.status.observed_chart_name = Some(build.name);
                job.status.observed_values_files = match job.object.spec.ignore_missing_values_files {
                    true => build.values_files,
                    false => Vec::new(),
                };
                job.link("latest.tar.gz");
            }
        }
        Ok(Fetched {
            reason,
            message: summary.clone(),
            news: summary,
            new_artifact: reason,
            recovered: reason,
        })
    }
}

fn is_stored(job: &Job<'_, HelmCharts>, name: &str, version: &str) -> bool {
    job.status.observed_chart_name.as_deref() == Some(name)
        && job.status.artifact.as_ref().is_some_and(|artifact| artifact.revision.as_str() == version)
}

/// The chart that is stored, if it is the one that would be made.
fn stored(
    job: &Job<'_, HelmCharts>,
    name: &str,
    version: &str,
    packaged: bool,
    wishes: &Wishes,
) -> Option<Build> {
    let observed = job.object.status.as_ref().map_or(0, |status| status.observed_generation);
    if observed != job.generation() || !is_stored(job, name, version) {
        return None;
    }
    let values_files = match job.status.observed_values_files.is_empty() {
        true => wishes.files().to_vec(),
        false => job.status.observed_values_files.clone(),
    };
    Some(Build {
        name: name.to_owned(),
        version: version.to_owned(),
        packaged,
        values_files,
        ..Build::default()
    })
}

fn failure(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Build(error) => {
            let condition = if error.reason.is_of_the_build() { BUILD_FAILED } else { FETCH_FAILED };
            let mut failure = Failure::new(condition, error.reason.as_str(), error.to_string());
            failure.unverified = error.reason == Reason::Verification;
            if error.reason.is_persistent() { failure.stalled() } else { failure }
        }
        // Upstream's condition does not say what its event says.
        Trouble::Around { reason, message, stalled, unverified } => {
            let mut failure = Failure::fetch("Unknown", format!("unknown build error: {message}"));
            failure.unverified = unverified;
            failure.told = Some((reason, message));
            if stalled { failure.stalled() } else { failure }
        }
    }
}

/// Upstream tells a refused login from other errors by the words in it.
fn blame_the_login(trouble: Trouble) -> Trouble {
    let Trouble::Build(error) = &trouble else { return trouble };
    let text = error.to_string();
    let signs = ["401", "unauthorized", "authentication required", "tls", "unknown certificate authority"];
    if error.reason != Reason::Verification && signs.iter().any(|sign| text.contains(sign)) {
        return Trouble::around(
            "AuthenticationFailed",
            format!("failed to authenticate with the Helm repository: {text}"),
        );
    }
    trouble
}

fn find_source(job: &Job<'_, HelmCharts>) -> Result<From, Failure> {
    let reference = &job.object.spec.source_ref;
    let key = ObjectKey::new(Object::namespace(job.object), reference.name.clone());
    let kind: &'static Kind = match reference.kind {
        HelmChartSourceKind::HelmRepository => &kinds::HELM_REPOSITORY,
        HelmChartSourceKind::GitRepository => &kinds::GIT_REPOSITORY,
        HelmChartSourceKind::Bucket => &kinds::BUCKET,
    };
    let unavailable =
        |cause: String| Failure::fetch("SourceUnavailable", format!("failed to get source: {cause}"));
    let found = job.ctx.cache.get(kind, &key).ok_or_else(|| {
        unavailable(format!("{}.{} \"{}\" not found", kind.plural, kind.group, reference.name))
    })?;
    if reference.kind == HelmChartSourceKind::HelmRepository {
        let repository: HelmRepository = decode(&found).map_err(unavailable)?;
        if repository.spec.repository_type() == HelmRepositoryType::Oci {
            return Ok(From::Repository(Box::new(repository)));
        }
        let artifact = repository.status.as_ref().and_then(|status| status.artifact.clone());
        check_artifact(job, artifact)?;
        return Ok(From::Repository(Box::new(repository)));
    }
    let artifact = found.data.pointer("/status/artifact").cloned();
    let artifact = artifact.and_then(|artifact| serde_json::from_value(artifact).ok());
    check_artifact(job, artifact).map(From::Files)
}

fn check_artifact(job: &Job<'_, HelmCharts>, artifact: Option<Artifact>) -> Result<Artifact, Failure> {
    let is_here = |artifact: &Artifact| job.ctx.storage.root().join(&artifact.path).is_file();
    artifact.filter(is_here).ok_or_else(|| {
        let reference = &job.object.spec.source_ref;
        let message = format!("no artifact available for {} source '{}'", reference.kind, reference.name);
        Failure::fetch("NoSourceArtifact", message).waiting(None)
    })
}

fn artifact_of(source: &From) -> Option<&Artifact> {
    match source {
        From::Repository(repository) => repository.status.as_ref()?.artifact.as_ref(),
        From::Files(artifact) => Some(artifact),
    }
}

fn wishes(job: &Job<'_, HelmCharts>) -> Wishes {
    let spec = &job.object.spec;
    Wishes {
        version_metadata: String::new(),
        values_files: spec.values_files.clone(),
        ignore_missing_values_files: spec.ignore_missing_values_files,
        largest_file: job.ctx.options.helm_chart_file_max_size,
    }
}

/// A chart of a repository, over HTTP or from a registry.
async fn from_repository(job: &Job<'_, HelmCharts>, repository: &HelmRepository) -> Result<Build, Trouble> {
    let mut wishes = wishes(job);
    if !wishes.files().is_empty() {
        wishes.version_metadata = job.generation().to_string();
    }
    let spec = &job.object.spec;
    let address = remote::normalize(&repository.spec.url).map_err(Trouble::invalid_url)?;
    let downloader = Downloader::connect(job, repository, &address, &spec.chart).await?;
    if spec.verify.is_some() && matches!(downloader, Downloader::Http { .. }) {
        let name = repository.metadata.name.as_deref().unwrap_or_default();
        return Err(BuildError::new(
            Reason::Verification,
            format!("spec.verify is for charts from registries: HelmRepository '{name}' needs `type: oci`, or remove spec.verify"),
        )
        .into());
    }
    build::check_name(&spec.chart)?;
    let found = downloader.find(job, &spec.chart, spec.version()).await?;
    let mut verified = false;
    if let Some(verification) = &spec.verify {
        verified = downloader.verify(job, verification, &found).await?;
    }
    let version = wishes.version(&found.version)?;
    let packaged = wishes.needs_packaging();
    if let Some(stored) = stored(job, &found.name, &version, packaged, &wishes) {
        return Ok(Build { verified, ..stored });
    }
    let archive = downloader.download(job, &found).await.map_err(|cause| {
        BuildError::new(Reason::Pull, format!("failed to download chart for remote reference: {cause}"))
    })?;
    let built = in_background(move || build::from_archive(archive, version, &wishes)).await?;
    // The index names the chart; what it calls itself is Helm's business.
    Ok(Build { name: found.name, verified, ..built })
}

/// A chart among the files of a source.
async fn from_files(job: &Job<'_, HelmCharts>, artifact: &Artifact) -> Result<Build, Trouble> {
    let mut wishes = wishes(job);
    if job.object.spec.reconcile_strategy() == ReconcileStrategy::Revision {
        wishes.version_metadata = short_revision(&artifact.revision);
    }
    if !wishes.files().is_empty() {
        if !wishes.version_metadata.is_empty() {
            wishes.version_metadata.push('.');
        }
        wishes.version_metadata.push_str(&job.generation().to_string());
    }
    let (storage, opened) = (job.ctx.storage.clone(), artifact.clone());
    let tree = crate::reconcile::heavy(move || storage.tree(&opened)).await;
    let tree = match tree {
        Ok(Ok(Some(tree))) => tree,
        Ok(Ok(None)) => {
            return Err(Trouble::around("ReadOperationFailed", "failed to open source artifact: not found"));
        }
        Ok(Err(error)) => return Err(Trouble::around("Failed", format!("artifact untar error: {error}"))),
        Err(error) => return Err(Trouble::around("Failed", error.to_string())),
    };
    let local = Local::find(tree.as_ref(), &job.object.spec.chart, wishes.largest_file)?;
    let version = wishes.version(&local.metadata.version)?;
    let packaged = local.needs_packaging(&wishes);
    if let Some(stored) = stored(job, &local.metadata.name, &version, packaged, &wishes) {
        return Ok(stored);
    }
    if !packaged {
        return Ok(local.copy(version)?);
    }
    let (mut chart, values) = local.load(&wishes)?;
    let mut resolved = 0;
    if local.is_folder {
        for dependency in build::missing_dependencies(&chart)? {
            let name = build::local_name(&dependency);
            let found = match build::is_local(&dependency) {
                true => build::local_dependency(tree.as_ref(), &local.path, &dependency)
                    .map_err(|cause| format!("failed to add local dependency '{name}': {cause}")),
                false => remote_dependency(job, &dependency)
                    .await
                    .map_err(|cause| format!("failed to add remote dependency '{name}': {cause}")),
            };
            let found = found.map_err(|cause| BuildError::new(Reason::Dependencies, cause))?;
            build::add_dependency(&mut chart, found, &dependency);
            resolved += 1;
        }
    }
    let built = in_background(move || build::package(&mut chart, version, values)).await?;
    Ok(Build { resolved_dependencies: resolved, ..built })
}

/// Twelve digits of a commit or of a bucket's digest.
fn short_revision(revision: &Revision) -> String {
    let whole = revision.hash().unwrap_or_else(|| revision.to_string());
    whole.chars().take(12).collect()
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuildError> + Send + 'static,
) -> Result<T, BuildError> {
    let done = crate::reconcile::heavy(work).await;
    done.map_err(|error| BuildError::new(Reason::Package, error))?
}

/// A dependency that has to be fetched, with the login of the HelmRepository that has its address, if there is one.
async fn remote_dependency(
    job: &Job<'_, HelmCharts>,
    dependency: &helm::Dependency,
) -> Result<Chart, String> {
    let url = &dependency.repository;
    if url.starts_with('@') {
        return Err(format!("aliased repository dependency is not supported: {url}"));
    }
    let address = remote::normalize(url).map_err(|error| error.to_string())?;
    if !["oci://", "http://", "https://"].iter().any(|scheme| address.starts_with(scheme)) {
        return Err(format!("invalid dependency repository URL: {address}"));
    }
    let (name, version) = (&dependency.name, &dependency.version);
    let archive = dependency_archive(job, &address, name, version).await?;
    Chart::from_archive(&archive, Limits::default(), Dialect::Helm4)
        .map_err(|error| format!("failed to load downloaded archive of version '{version}': {error}"))
}

/// From the cache of a machine that has one, else from where it is.
async fn dependency_archive(
    job: &Job<'_, HelmCharts>,
    address: &str,
    name: &str,
    version: &str,
) -> Result<Vec<u8>, String> {
    let depot = job.ctx.depot.as_ref().filter(|_| stands_for(job, address, name).is_none());
    let wanted = serde_json::json!({ "dependency": name, "version": version, "url": address });
    let cache = depot.and_then(|depot| depot.cache.as_ref());
    if let Some(depot) = depot.filter(|depot| depot.network != Network::First) {
        match cache.and_then(|cache| cache.find(&wanted)) {
            Some(entry) => return Ok(entry.content),
            None if depot.network == Network::Never => {
                return Err(depot.missing(&format!("chart {name} {version} of {address}"), address));
            }
            None => {}
        }
    }
    let archive = fetch_dependency(job, address, name, version).await?;
    if let Some(cache) = cache {
        let about = About { wanted, file: format!("{name}.tgz"), ..About::default() };
        if let Err(error) = cache.keep(about, &archive) {
            tracing::warn!(%error, "the cache cannot be written");
        }
    }
    Ok(archive)
}

async fn fetch_dependency(
    job: &Job<'_, HelmCharts>,
    address: &str,
    name: &str,
    version: &str,
) -> Result<Vec<u8>, String> {
    let repository = repository_at(job, address);
    let text = |trouble: Trouble| match trouble {
        Trouble::Build(error) => error.cause,
        Trouble::Around { message, .. } => message,
    };
    let downloader = Downloader::connect(job, &repository, address, name).await.map_err(|trouble| {
        format!("failed to get chart repository for URL '{address}': {}", text(trouble))
    })?;
    let found = downloader.find(job, name, version).await.map_err(|error| {
        format!("failed to get chart '{name}' version '{version}' from '{address}': {}", error.cause)
    })?;
    let archive = downloader.download(job, &found).await;
    archive.map_err(|cause| format!("chart download of version '{}' failed: {cause}", found.version))
}

fn repository_at(job: &Job<'_, HelmCharts>, address: &str) -> HelmRepository {
    let namespace = Object::namespace(job.object);
    let known = job.ctx.cache.list(&HELM_REPOSITORY).into_iter().find_map(|object| {
        if object.namespace().as_deref() != Some(namespace) {
            return None;
        }
        let repository: HelmRepository = decode(&object).ok()?;
        (remote::normalize(&repository.spec.url).ok()? == address).then_some(repository)
    });
    known.unwrap_or_else(|| {
        let spec = flux_api::source::HelmRepositorySpec { url: address.to_owned(), ..Default::default() };
        HelmRepository::new("", spec)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_is_told_by_its_words() {
        let error = || BuildError::new(Reason::Pull, "GET https://x: UNAUTHORIZED: authentication required");
        let told = failure(blame_the_login(error().into()));
        assert_eq!((told.condition, told.reason), (FETCH_FAILED, "Unknown"));
        assert!(
            told.message.starts_with("unknown build error: failed to authenticate with the Helm repository")
        );
        assert_eq!(told.told.map(|(reason, _)| reason), Some("AuthenticationFailed"));
        let other = failure(blame_the_login(BuildError::new(Reason::Pull, "no route").into()));
        assert_eq!(other.reason, "ChartPullError");
    }

    #[test]
    fn revisions_are_shortened_to_twelve_digits() {
        let hash = "5394cb7f48332b2de7c17dd8b8384bbc84b7e738";
        assert_eq!(short_revision(&Revision::from(format!("main@sha1:{hash}"))), "5394cb7f4833");
        assert_eq!(short_revision(&Revision::from(format!("sha256:{}", "ab".repeat(32)))), "abababababab");
    }
}
