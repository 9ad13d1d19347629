//! OCIRepository: a layer of an image as an artifact.
//!
//! Looks at the registry with one small request and pulls only what is new. Everything pulled is compared with the
//! digest it was asked for by.

use std::fs::File;
use std::io;
use std::time::Duration;

use file_tree::{Files, TreePath};
use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::{Kind, OCI_REPOSITORY};
use flux_api::revision::Revision;
use flux_api::source::{
    CloudProvider, LayerOperation, OCIRepository, OCIRepositorySpec, OCIRepositoryStatus,
};
use flux_remote::archive;
use flux_remote::helm_repository::{parse_version, pick_tag};
use flux_remote::ignore::{self, Ignore};
use flux_remote::oci::{self, Descriptor, Digest, Registry, Repository};

use super::access::Secrets;
use super::cloud::Asker;
use super::skeleton::{Failure, Fetched, Job, Remote, Source};
use super::{SOURCE_VERIFIED, registry, verification};
use crate::artifact::storage::{Contents, Each, Storage};
use crate::artifact::tree::{ArtifactTree, TreeWriter};
use crate::reconcile::ObjectKey;

pub(super) const KIND: &Kind = &OCI_REPOSITORY;
/// What a layer may unpack to.
const UNPACKED: archive::Limits = archive::Limits { bytes: 2 << 30, files: 500_000 };
const LARGEST_LAYER: u64 = 2 << 30;

pub struct OciRepositories;

impl Source for OciRepositories {
    type Object = OCIRepository;
    type Status = OCIRepositoryStatus;

    fn status(object: &OCIRepository) -> Option<&OCIRepositoryStatus> {
        object.status.as_ref()
    }

    fn interval(object: &OCIRepository) -> Duration {
        object.spec.interval.to_std()
    }

    fn remote(&self, job: &Job<'_, Self>) -> Option<Remote> {
        let spec = &job.object.spec;
        if job.ctx.depot.as_ref()?.files(&spec.url).is_some() {
            return None;
        }
        let reference = spec.reference.as_ref();
        let version = reference.and_then(|one| {
            one.digest.as_ref().or(one.semver.as_ref()).or(one.tag.as_ref()).map(String::as_str)
        });
        let what = format!("artifact {} {}", spec.url, version.unwrap_or("latest"));
        Some(Remote::new(KIND, &spec.url, spec, what))
    }

    async fn fetch(&self, job: &mut Job<'_, Self>) -> Result<Fetched, Failure> {
        if let Some(place) = job.ctx.depot.as_ref().and_then(|depot| depot.files(&job.object.spec.url)) {
            return self.fetch_local(job, place.clone()).await;
        }
        if condition::is(&job.status.conditions, SOURCE_VERIFIED, ConditionStatus::False) {
            job.conditions().delete(SOURCE_VERIFIED);
        }
        let limit = job.object.spec.timeout().to_std();
        let look = tokio::time::timeout(limit, look(job));
        let (registry, picked) = match job.worker.outside(look).await {
            Ok(found) => found?,
            Err(_) => {
                let message =
                    format!("failed to determine artifact digest: no answer within {} s", limit.as_secs());
                return Err(Failure::fetch("OCIArtifactPullFailed", message));
            }
        };
        let revision = picked.revision();
        let known = has_revision(job, &revision);
        self.verify(job, &registry, &picked, &revision, known).await?;
        if known && !content_changed(job) {
            let message = format!("artifact up-to-date with remote revision: '{revision}'");
            job.trace("ArtifactUpToDate", message);
            return Ok(told(job, &revision));
        }
        if !known {
            let place = picked.place(&registry);
            job.outdated("NewRevision", format!("new revision '{revision}' for '{place}'")).await;
        }
        let pulled = job.worker.outside(pull(&registry, &job.object.spec, &picked.digest)).await?;
        self.store(job, pulled, &picked.digest, &revision).await?;
        Ok(told(job, &revision))
    }
}

impl OciRepositories {
    /// A signature is looked at when there is something new to sign for, or when the last look ended badly.
    async fn verify(
        &self,
        job: &mut Job<'_, Self>,
        registry: &Registry,
        picked: &Picked,
        revision: &str,
        known: bool,
    ) -> Result<(), Failure> {
        let Some(wanted) = &job.object.spec.verify else {
            job.conditions().delete(SOURCE_VERIFIED);
            return Ok(());
        };
        if known && job.holds(SOURCE_VERIFIED) {
            return Ok(());
        }
        let limit = job.object.spec.timeout().to_std();
        let namespace = Object::namespace(job.object);
        let check = verification::artifact(job.ctx, namespace, registry, wanted, &picked.digest);
        let result = match job.worker.outside(tokio::time::timeout(limit, check)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
        };
        match result {
            Ok(true) => {
                let message = format!("verified signature of revision {revision}");
                job.conditions().set(SOURCE_VERIFIED, ConditionStatus::True, "Succeeded", message);
                Ok(())
            }
            // A policy that says to skip: nothing was verified, and nobody minds.
            Ok(false) => {
                job.conditions().delete(SOURCE_VERIFIED);
                Ok(())
            }
            Err(cause) => {
                let provider = verification::provider_name(wanted.provider, wanted.secret_ref.is_some());
                let message = format!("failed to verify the signature using provider '{provider}': {cause}");
                if !known {
                    let place = picked.place(registry);
                    job.outdated("NewRevision", format!("new revision '{revision}' for '{place}'")).await;
                }
                Err(Failure::verification(message))
            }
        }
    }

    pub(super) async fn store(
        &self,
        job: &mut Job<'_, Self>,
        pulled: Pulled,
        digest: &Digest,
        revision: &str,
    ) -> Result<(), Failure> {
        let spec = job.object.spec.clone();
        let (storage, key, name) = (job.ctx.storage.clone(), job.key(), format!("{digest}.tar.gz"));
        let revision = Revision::from(revision);
        let stored = crate::reconcile::heavy(move || match spec.layer_operation() {
            LayerOperation::Copy => copy(&storage, &key, &name, revision, pulled.layer),
            LayerOperation::Extract => {
                extract(&storage, &key, &name, revision, pulled.layer, spec.ignore.as_deref())
            }
        });
        let artifact = stored.await.map_err(|error| Failure::storage(error.to_string()))??;
        job.status.artifact = Some(Artifact { metadata: pulled.annotations, ..artifact });
        job.status.observed_ignore = job.object.spec.ignore.clone();
        job.status.observed_layer_selector = job.object.spec.layer_selector.clone();
        job.link("latest.tar.gz");
        Ok(())
    }
}

/// What `spec.ref` means at the moment.
struct Picked {
    tag: Option<String>,
    digest: Digest,
}

impl Picked {
    fn revision(&self) -> String {
        match &self.tag {
            Some(tag) => format!("{tag}@{}", self.digest),
            None => self.digest.to_string(),
        }
    }

    fn place(&self, registry: &Registry) -> String {
        match &self.tag {
            Some(tag) => registry.repository().with_tag(tag),
            None => registry.repository().with_digest(&self.digest),
        }
    }
}

async fn look(job: &Job<'_, OciRepositories>) -> Result<(Registry, Picked), Failure> {
    let spec = &job.object.spec;
    let repository = parse_url(spec)?;
    let registry = connect(job, repository).await?;
    let picked = pick(&registry, spec).await?;
    Ok((registry, picked))
}

fn parse_url(spec: &OCIRepositorySpec) -> Result<Repository, Failure> {
    let invalid = |cause: String| {
        let message = format!("URL validation failed for '{}': {cause}", spec.url);
        Failure::fetch("URLInvalid", message).stalled()
    };
    let place = spec
        .url
        .strip_prefix("oci://")
        .ok_or_else(|| invalid("URL must be in format 'oci://<domain>/<org>/<repo>'".to_owned()))?;
    Repository::parse(place, spec.insecure).map_err(|error| invalid(error.to_string()))
}

async fn connect(job: &Job<'_, OciRepositories>, repository: Repository) -> Result<Registry, Failure> {
    let spec = &job.object.spec;
    let namespace = Object::namespace(job.object);
    let secrets = Secrets { client: &job.ctx.client, namespace };
    let refused = |message: String| Failure::fetch("AuthenticationFailed", message);
    let pull_secrets = secrets
        .pull_secrets(spec.secret_ref.as_ref(), spec.service_account_name.as_deref())
        .await
        .map_err(|error| refused(format!("failed to get credential: {error}")))?;
    let proxy = secrets.transport(None, spec.proxy_secret_ref.as_ref()).await;
    let proxy = proxy.map_err(|error| refused(format!("failed to get proxy address: {error}")))?.proxy;
    let cloud = spec.provider() != CloudProvider::Generic && pull_secrets.is_none();
    if cloud && spec.service_account_name.is_some() && !job.ctx.identity.object_level {
        let message = "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller";
        return Err(Failure::fetch("FeatureGateDisabled", message).stalled());
    }
    let transport = secrets.transport(spec.cert_secret_ref.as_ref(), None).await;
    let mut transport = transport
        .map_err(|error| refused(format!("failed to generate transport for '{}': {error}", spec.url)))?;
    transport.proxy = proxy;
    transport.skip_verify = spec.insecure && spec.cert_secret_ref.is_none();
    let credentials = match &pull_secrets {
        Some(config) => config.find(repository.registry(), repository.name()).cloned(),
        None => {
            let account = spec.service_account_name.as_deref();
            let asker = Asker { kind: "OCIRepository", namespace, name: &job.key().name };
            registry::cloud(&job.ctx.identity, asker, spec.provider(), &repository, account, &transport)
                .await
                .map_err(|error| {
                    refused(format!("failed to get credential from {}: {error}", spec.provider()))
                })?
        }
    };
    Registry::new(repository, &transport, credentials)
        .map_err(|error| refused(format!("failed to generate transport for '{}': {error}", spec.url)))
}

async fn pick(registry: &Registry, spec: &OCIRepositorySpec) -> Result<Picked, Failure> {
    let reference = spec.reference.clone().unwrap_or_default();
    let undetermined = |cause: String| {
        Failure::fetch("OCIArtifactPullFailed", format!("failed to determine artifact digest: {cause}"))
    };
    if let Some(digest) = reference.digest {
        let digest = digest.parse().map_err(|error: oci::DigestError| undetermined(error.to_string()))?;
        return Ok(Picked { tag: None, digest });
    }
    let tag = match (reference.semver, reference.tag) {
        (Some(range), _) => {
            let is_chart = spec.layer_media_type() == Some(oci::CHART_LAYER);
            let filter = reference.semver_filter.as_deref();
            highest(registry, &range, filter, is_chart).await.map_err(|cause| {
                let message = format!("failed to determine the artifact tag for '{}': {cause}", spec.url);
                Failure::fetch("ReadOperationFailed", message)
            })?
        }
        (None, Some(tag)) => tag,
        (None, None) => "latest".to_owned(),
    };
    let digest = registry.resolve(&tag).await.map_err(|error| undetermined(error.to_string()))?;
    Ok(Picked { tag: Some(tag), digest })
}

async fn highest(
    registry: &Registry,
    range: &str,
    filter: Option<&str>,
    is_chart: bool,
) -> Result<String, String> {
    let tags = registry.tags().await.map_err(|error| error.to_string())?;
    highest_of(&tags, range, filter, is_chart)
}

/// The highest version in `range` among the tags that match `filter`. Only charts write `+` as `_`.
pub(super) fn highest_of(
    tags: &[String],
    range: &str,
    filter: Option<&str>,
    is_chart: bool,
) -> Result<String, String> {
    let filter =
        filter.map(regex::Regex::new).transpose().map_err(|error| format!("semverFilter: {error}"))?;
    let kept = tags.iter().filter(|tag| filter.as_ref().is_none_or(|filter| filter.is_match(tag)));
    let versions: Vec<String> =
        kept.map(|tag| if is_chart { oci::chart_version(tag) } else { tag.clone() }).collect();
    // Here a tag that is spelled like the range has no right of its own.
    let candidates = versions.iter().map(String::as_str).filter(|tag| parse_version(tag).is_some());
    let found =
        pick_tag(candidates, range).map_err(|error| format!("semver '{range}' parse error: {error}"))?;
    let found = found.ok_or_else(|| format!("no match found for semver: {range}"))?;
    Ok(if is_chart { oci::chart_tag(found) } else { found.to_owned() })
}

fn has_revision(job: &Job<'_, OciRepositories>, revision: &str) -> bool {
    job.status.artifact.as_ref().is_some_and(|artifact| artifact.revision.as_str() == revision)
}

/// Whether the artifact was made under other instructions.
fn content_changed(job: &Job<'_, OciRepositories>) -> bool {
    job.object.spec.ignore != job.status.observed_ignore
        || job.object.spec.layer_selector != job.status.observed_layer_selector
}

/// A layer that came, and what its image says.
pub(super) struct Pulled {
    pub(super) layer: File,
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

async fn pull(registry: &Registry, spec: &OCIRepositorySpec, digest: &Digest) -> Result<Pulled, Failure> {
    let failed = |cause: oci::Error| {
        Failure::fetch(
            "OCIArtifactPullFailed",
            format!("failed to pull artifact from '{}': {cause}", spec.url),
        )
    };
    let wrong = |message: String| Failure::fetch("OCIArtifactLayerOperationFailed", message);
    let manifest = registry.image(digest).await.map_err(failed)?;
    let layer = select_layer(&manifest.layers, spec.layer_media_type()).map_err(wrong)?;
    let file = tempfile::tempfile().map_err(|error| Failure::storage(error.to_string()))?;
    let mut out = tokio::fs::File::from_std(file);
    let action = match spec.layer_operation() {
        LayerOperation::Copy => "copy layer",
        LayerOperation::Extract => "extract layer contents",
    };
    registry
        .copy_blob(layer, LARGEST_LAYER, &mut out)
        .await
        .map_err(|error| wrong(format!("failed to {action} from artifact: {error}")))?;
    let mut layer = out.into_std().await;
    io::Seek::rewind(&mut layer).map_err(|error| Failure::storage(error.to_string()))?;
    Ok(Pulled { layer, annotations: manifest.annotations })
}

fn select_layer<'a>(layers: &'a [Descriptor], media_type: Option<&str>) -> Result<&'a Descriptor, String> {
    let first = layers.first().ok_or("no layers found in artifact")?;
    let Some(wanted) = media_type else { return Ok(first) };
    layers
        .iter()
        .find(|layer| layer.media_type == wanted)
        .ok_or_else(|| format!("failed to find layer with media type '{wanted}' in artifact"))
}

fn copy(
    storage: &Storage,
    key: &ObjectKey,
    name: &str,
    revision: Revision,
    mut layer: File,
) -> Result<Artifact, Failure> {
    let stored = storage.store_stream(KIND, key, name, revision, |out| {
        io::copy(&mut layer, out).map_err(crate::artifact::storage::Error::from)
    });
    let (artifact, _) =
        stored.map_err(|error| Failure::storage(format!("unable to copy artifact to storage: {error}")))?;
    Ok(artifact)
}

fn extract(
    storage: &Storage,
    key: &ObjectKey,
    name: &str,
    revision: Revision,
    layer: File,
    spec: Option<&str>,
) -> Result<Artifact, Failure> {
    let tree = unpack(layer).map_err(|cause| {
        let message = format!("failed to extract layer contents from artifact: {cause}");
        Failure::fetch("OCIArtifactLayerOperationFailed", message)
    })?;
    let rules = ignore_rules(&tree, spec);
    let mut contents = Kept { tree: &tree, rules };
    storage
        .store(KIND, key, name, revision, &mut contents)
        .map_err(|error| Failure::storage(format!("unable to archive artifact to storage: {error}")))
}

/// The files of a layer, in a file of their own until they are stored in order.
fn unpack(layer: File) -> Result<ArtifactTree, String> {
    let file = tempfile::tempfile().map_err(|error| error.to_string())?;
    let mut writer = TreeWriter::new(file).map_err(|error| error.to_string())?;
    let mut failed = None;
    archive::unpack(io::BufReader::new(layer), UNPACKED, |entry| {
        if failed.is_none() {
            failed = writer.add(entry.path, entry.executable, &entry.bytes).err();
        }
    })
    .map_err(|error| error.to_string())?;
    if let Some(error) = failed {
        return Err(error.to_string());
    }
    writer.finish().map_err(|error| error.to_string())
}

/// The rules in the files themselves and in the object.
pub(super) fn ignore_rules(tree: &ArtifactTree, spec: Option<&str>) -> Ignore {
    let mut texts: Vec<(TreePath, String)> = Vec::new();
    for (path, _) in tree.files().filter(|(path, _)| path.file_name() == Some(ignore::FILE_NAME)) {
        if let Ok(bytes) = tree.read(path) {
            let folder = path.parent().unwrap_or_default();
            texts.push((folder, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ignore::for_source(texts.iter().map(|(folder, text)| (folder, text.as_str())), spec)
}

/// The files that the rules leave in.
pub(super) struct Kept<'a> {
    pub(super) tree: &'a ArtifactTree,
    pub(super) rules: Ignore,
}

impl Contents for Kept<'_> {
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        for (path, executable) in self.tree.files() {
            if !self.rules.excludes(path, false) {
                each(path, executable, &self.tree.read(path).map_err(io::Error::other)?)?;
            }
        }
        Ok(())
    }
}

pub(super) fn told(job: &Job<'_, OciRepositories>, revision: &str) -> Fetched {
    let mut news = format!("stored artifact with revision '{revision}' from '{}'", job.object.spec.url);
    let metadata = job.status.artifact.as_ref().map(|artifact| &artifact.metadata);
    let annotation = |name: &str| {
        metadata
            .and_then(|metadata| metadata.get(&format!("org.opencontainers.image.{name}")))
            .filter(|text| !text.is_empty())
    };
    if let (Some(source), Some(origin)) = (annotation("source"), annotation("revision")) {
        news.push_str(&format!(", origin source '{source}', origin revision '{origin}'"));
    }
    Fetched::succeeded(format!("stored artifact for digest '{revision}'"), news)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(list: &[&str]) -> Vec<String> {
        list.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn the_highest_tag_in_the_range_and_filter_is_taken() {
        let list =
            tags(&["latest", "v1.0.0", "1.2.0", "1.2.0-rc.1", "2.0.0-alpha", "1.1.0-prod", "1.3.0_build"]);
        assert_eq!(highest_of(&list, "1.x", None, false).unwrap(), "1.2.0");
        assert_eq!(highest_of(&list, ">=1.0.0-0", Some(".*-(rc|prod).*"), false).unwrap(), "1.2.0-rc.1");
        assert_eq!(highest_of(&list, "1.x", None, true).unwrap(), "1.3.0_build");
        assert_eq!(highest_of(&list, "9.x", None, false).unwrap_err(), "no match found for semver: 9.x");
        assert!(highest_of(&list, "1.x", Some("("), false).is_err());
        assert!(highest_of(&list, "what", None, false).unwrap_err().starts_with("semver 'what' parse error"));
    }

    #[test]
    fn a_layer_is_chosen_by_its_type() {
        let layer =
            |media_type: &str| Descriptor { media_type: media_type.to_owned(), ..Descriptor::default() };
        let layers = [layer("a"), layer("b"), layer("b")];
        assert_eq!(select_layer(&layers, None).map(|layer| layer.media_type.as_str()), Ok("a"));
        assert!(std::ptr::eq(select_layer(&layers, Some("b")).unwrap(), &layers[1]));
        assert_eq!(
            select_layer(&layers, Some("c")).unwrap_err(),
            "failed to find layer with media type 'c' in artifact"
        );
        assert_eq!(select_layer(&[], None).unwrap_err(), "no layers found in artifact");
    }
}
