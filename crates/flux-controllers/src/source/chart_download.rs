//! Where charts are published: repositories with an index, registries, and folders of this machine that stand for them.

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::source::{HelmRepository, HelmRepositoryType};
use flux_remote::helm_repository::{self as remote, LookupError, PickError, Repository};
use flux_remote::oci;

use super::access::{self, Secrets};
use super::chart_build::{self as build, BuildError, Reason};
use super::cloud::Asker;
use super::depot::LocalChart;
use super::helm_chart::{HelmCharts, Trouble};
use super::registry;
use super::skeleton::Job;

/// A version of a chart, and where it is.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) reference: String,
}

/// The two ways charts are published, and charts of this machine that stand for them.
pub(super) enum Downloader {
    Http { repository: Box<Repository>, index: Option<Box<Artifact>> },
    Registry(Box<oci::Registry>),
    Local(Vec<LocalChart>),
}

/// The charts of this machine that stand for those of a repository: named by its address, or one by its own.
pub(super) fn stands_for(
    job: &Job<'_, HelmCharts>,
    address: &str,
    chart: &str,
) -> Option<Result<Vec<LocalChart>, String>> {
    let depot = job.ctx.depot.as_ref()?;
    let own = format!("{}/{chart}", address.trim_end_matches('/'));
    depot.charts(&own).or_else(|| depot.charts(address))
}

impl Downloader {
    pub(super) async fn connect(
        job: &Job<'_, HelmCharts>,
        repository: &HelmRepository,
        address: &str,
        chart: &str,
    ) -> Result<Self, Trouble> {
        if let Some(charts) = stands_for(job, address, chart) {
            let charts = charts.map_err(|problem| BuildError::new(Reason::Pull, problem))?;
            return Ok(Downloader::Local(charts));
        }
        let secrets = Secrets { client: &job.ctx.client, namespace: Object::namespace(job.object) };
        if repository.spec.repository_type() == HelmRepositoryType::Oci || address.starts_with("oci://") {
            let Some(place) = address.strip_prefix("oci://") else {
                let message = format!("failed to construct Helm client: invalid OCI registry URL: {address}");
                return Err(Trouble::Around { reason: "Failed", message, stalled: true, unverified: false });
            };
            build::check_name(chart)?;
            let key = job.key();
            let asker = Asker { kind: "HelmChart", namespace: secrets.namespace, name: &key.name };
            let registry =
                registry::for_charts(job.ctx, secrets, &repository.spec, &format!("{place}/{chart}"), asker)
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
    pub(super) async fn find(
        &self,
        job: &Job<'_, HelmCharts>,
        name: &str,
        wanted: &str,
    ) -> Result<Found, BuildError> {
        match self {
            Downloader::Local(charts) => {
                let versions = LocalChart::versions(charts, name);
                let found = match &versions[..] {
                    // Whoever named this one chart said that it stands for what is asked for.
                    [only] => only,
                    several => remote::pick(several, name, wanted).map_err(|error| {
                        BuildError::new(Reason::Pull, format!("what stands for the repository: {error}"))
                    })?,
                };
                let reference = found.urls.first().cloned().unwrap_or_default();
                Ok(Found { name: found.name.clone(), version: found.version.clone(), reference })
            }
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

    pub(super) async fn verify(
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
    pub(super) async fn download(&self, job: &Job<'_, HelmCharts>, found: &Found) -> Result<Vec<u8>, String> {
        let largest = job.ctx.options.helm_chart_max_size;
        match self {
            Downloader::Local(charts) => {
                let same = |chart: &&LocalChart| chart.name == found.name && chart.version == found.version;
                let chart = charts.iter().find(same);
                chart.map(|chart| chart.archive.clone()).ok_or_else(|| format!("no chart '{}'", found.name))
            }
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
