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
use flux_remote::helm_repository::{self as remote, LookupError, PickError, Repository};
use flux_remote::oci;
use helm::{Chart, Dialect, Limits};
use kube::ResourceExt;
use kube::api::DynamicObject;

use super::access::{self, Secrets};
use super::chart_build::{self as build, Build, BuildError, Local, Reason, Wishes};
use super::skeleton::{Failure, Fetched, Job, Source};
use super::{BUILD_FAILED, FETCH_FAILED, SOURCE_VERIFIED, registry};
use crate::reconcile::{Cache, Cause, ObjectKey, Queue, decode};

const KIND: &Kind = &HELM_CHART;

pub struct HelmCharts;

/// Wakes charts whose source has something new.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>) {
    for kind in [&HELM_REPOSITORY, &GIT_REPOSITORY, &BUCKET] {
        let (queue, charts) = (queue.clone(), Arc::downgrade(cache));
        cache.listen(kind, move |change| {
            let (Some(new), Some(charts)) = (&change.new, charts.upgrade()) else { return };
            let Some(revision) = revision(new) else { return };
            if change.old.as_deref().and_then(self::revision) == Some(revision) {
                return;
            }
            for chart in charts.list(KIND) {
                if uses(&chart, kind, &change.key) && observed(&chart) != Some(revision) {
                    queue.add(ObjectKey::of(&chart), Cause::Change);
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

fn uses(chart: &DynamicObject, kind: &Kind, source: &ObjectKey) -> bool {
    let field =
        |name: &str| chart.data.pointer(&format!("/spec/sourceRef/{name}")).and_then(|value| value.as_str());
    chart.namespace().as_deref() == Some(&source.namespace)
        && field("kind") == Some(kind.kind)
        && field("name") == Some(&source.name)
}

/// Where the chart comes from.
enum From {
    Repository(Box<HelmRepository>),
    Files(Artifact),
}

/// Why there is no chart.
enum Trouble {
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
    fn around(reason: &'static str, message: impl Into<String>) -> Self {
        Trouble::Around { reason, message: message.into(), stalled: false, unverified: false }
    }

    fn invalid_url(problem: impl std::fmt::Display) -> Self {
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
                let stored = tokio::task::spawn_blocking(move || {
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
    let tree = tokio::task::spawn_blocking(move || storage.tree(&opened)).await;
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
    let done = tokio::task::spawn_blocking(work).await;
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
    let repository = repository_at(job, &address);
    let text = |trouble: Trouble| match trouble {
        Trouble::Build(error) => error.cause,
        Trouble::Around { message, .. } => message,
    };
    let downloader =
        Downloader::connect(job, &repository, &address, &dependency.name).await.map_err(|trouble| {
            format!("failed to get chart repository for URL '{address}': {}", text(trouble))
        })?;
    let (name, version) = (&dependency.name, &dependency.version);
    let found = downloader.find(job, name, version).await.map_err(|error| {
        format!("failed to get chart '{name}' version '{version}' from '{url}': {}", error.cause)
    })?;
    let archive = downloader
        .download(job, &found)
        .await
        .map_err(|cause| format!("chart download of version '{}' failed: {cause}", found.version))?;
    Chart::from_archive(&archive, Limits::default(), Dialect::Helm4)
        .map_err(|error| format!("failed to load downloaded archive of version '{}': {error}", found.version))
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

/// A version of a chart, and where it is.
struct Found {
    name: String,
    version: String,
    reference: String,
}

/// The two ways charts are published.
enum Downloader {
    Http { repository: Box<Repository>, index: Option<Box<Artifact>> },
    Registry(Box<oci::Registry>),
}

impl Downloader {
    async fn connect(
        job: &Job<'_, HelmCharts>,
        repository: &HelmRepository,
        address: &str,
        chart: &str,
    ) -> Result<Self, Trouble> {
        let secrets = Secrets { client: &job.ctx.client, namespace: Object::namespace(job.object) };
        if repository.spec.repository_type() == HelmRepositoryType::Oci || address.starts_with("oci://") {
            let Some(place) = address.strip_prefix("oci://") else {
                let message = format!("failed to construct Helm client: invalid OCI registry URL: {address}");
                return Err(Trouble::Around { reason: "Failed", message, stalled: true, unverified: false });
            };
            build::check_name(chart)?;
            let registry =
                registry::for_charts(job.ctx, secrets, &repository.spec, &format!("{place}/{chart}"))
                    .await
                    .map_err(|problem| Trouble::around("AuthenticationFailed", problem))?;
            return Ok(Downloader::Registry(Box::new(registry)));
        }
        let (transport, login) = access::chart_repository(secrets, &repository.spec)
            .await
            .map_err(|problem| Trouble::around("AuthenticationFailed", problem))?;
        let http = Repository::new(address, &transport, login).map_err(|error| match error {
            remote::Error::Transport(error) => Trouble::around(
                "AuthenticationFailed",
                format!("failed to construct Helm client's TLS config: {error}"),
            ),
            error => Trouble::invalid_url(error),
        })?;
        let index = repository.status.as_ref().and_then(|status| status.artifact.clone());
        Ok(Downloader::Http { repository: Box::new(http), index: index.map(Box::new) })
    }

    /// The version that is asked for.
    async fn find(&self, job: &Job<'_, HelmCharts>, name: &str, wanted: &str) -> Result<Found, BuildError> {
        match self {
            Downloader::Http { repository, index } => {
                let version = find_in_index(job, repository, index.as_deref(), name, wanted).await;
                let version = version.map_err(|error| {
                    let reason = match &error {
                        LookupError::Reference(_) => Reason::Reference,
                        LookupError::Unreadable(_) => Reason::Pull,
                    };
                    BuildError::new(
                        reason,
                        format!("failed to get chart version for remote reference: {error}"),
                    )
                })?;
                let reference = version.urls.into_iter().next().unwrap_or_default();
                Ok(Found { name: version.name, version: version.version, reference })
            }
            Downloader::Registry(registry) => {
                let version = find_in_registry(registry, name, wanted).await.map_err(|cause| {
                    BuildError::new(
                        Reason::Pull,
                        format!("failed to get chart version for remote reference: {cause}"),
                    )
                })?;
                let reference = oci::chart_tag(&version);
                Ok(Found { name: name.to_owned(), version, reference })
            }
        }
    }

    async fn verify(
        &self,
        job: &Job<'_, HelmCharts>,
        verification: &flux_api::source::HelmChartVerification,
        found: &Found,
    ) -> Result<bool, Trouble> {
        let Downloader::Registry(registry) = self else { return Ok(false) };
        super::verification::chart(
            job.ctx,
            Object::namespace(job.object),
            registry,
            verification,
            &found.reference,
        )
        .await
        .map_err(|error| match error {
            super::verification::Error::Configuration(cause) => {
                let provider = super::verification::provider_name(
                    verification.provider,
                    verification.secret_ref.is_some(),
                );
                Trouble::Around {
                    reason: "VerificationError",
                    message: format!("failed to verify the signature using provider '{provider}': {cause}"),
                    stalled: false,
                    unverified: true,
                }
            }
            super::verification::Error::Signature(cause) => {
                let place = registry.repository().with_tag(&found.reference);
                BuildError::new(Reason::Verification, format!("failed to verify oci://{place}: {cause}"))
                    .into()
            }
        })
    }

    /// The archive of a version.
    async fn download(&self, job: &Job<'_, HelmCharts>, found: &Found) -> Result<Vec<u8>, String> {
        let largest = job.ctx.options.helm_chart_max_size;
        match self {
            Downloader::Http { repository, .. } => {
                if found.reference.is_empty() {
                    return Err(format!("chart '{}' has no downloadable URLs", found.name));
                }
                let fetched = repository.chart(&found.name, &found.reference, largest).await;
                fetched.map_err(|error| error.to_string())
            }
            Downloader::Registry(registry) => {
                pull_chart(registry, &found.reference, largest).await.map_err(|error| {
                    let place = registry.repository().with_tag(&found.reference);
                    format!("failed to get 'oci://{place}': {error}")
                })
            }
        }
    }
}

async fn find_in_index(
    job: &Job<'_, HelmCharts>,
    repository: &Repository,
    index: Option<&Artifact>,
    name: &str,
    wanted: &str,
) -> Result<remote::ChartVersion, LookupError> {
    if let Some(artifact) = index {
        let path = job.ctx.storage.root().join(&artifact.path);
        return job.ctx.indexes.find(&path, artifact.digest.as_str(), name, wanted);
    }
    // A repository that is no object here: its index is fetched for this one look.
    let largest = job.ctx.options.helm_index_max_size;
    let downloaded = repository.index(None, largest).await?;
    let Some(mut downloaded) = downloaded else { return Err(PickError::NoChart.into()) };
    let mut file = tempfile::NamedTempFile::new().map_err(remote::Error::from)?;
    remote::convert(&mut downloaded.file, &mut std::io::BufWriter::new(file.as_file_mut()))?;
    remote::StoredIndex::default().find(file.path(), &downloaded.sha256, name, wanted)
}

async fn find_in_registry(registry: &oci::Registry, name: &str, wanted: &str) -> Result<String, String> {
    if remote::parse_version(wanted).is_some() {
        return Ok(wanted.to_owned());
    }
    let tags = registry.tags().await.map_err(|error| {
        let place = registry.repository();
        format!("could not get tags for \"{name}\": could not fetch tags for \"oci://{place}\": {error}")
    })?;
    if tags.is_empty() {
        return Err(format!("unable to locate any tags in provided repository: {name}"));
    }
    let versions: Vec<String> = tags.iter().map(|tag| oci::chart_version(tag)).collect();
    let found = remote::pick_tag(versions.iter().map(String::as_str), wanted)?;
    found
        .map(str::to_owned)
        .ok_or_else(|| format!("could not locate a version matching provided version string {wanted}"))
}

async fn pull_chart(registry: &oci::Registry, tag: &str, largest: u64) -> Result<Vec<u8>, oci::Error> {
    let digest = registry.resolve(tag).await?;
    let manifest = registry.image(&digest).await?;
    let layer = manifest.layers.iter().find(|layer| layer.media_type == oci::CHART_LAYER);
    let layer = layer.ok_or_else(|| {
        oci::Error::Manifest(format!("manifest does not contain a layer with mediatype {}", oci::CHART_LAYER))
    })?;
    registry.blob(layer, largest).await
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
