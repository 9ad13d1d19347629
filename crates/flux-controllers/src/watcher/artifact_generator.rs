//! ArtifactGenerator: composes the files of sources into artifacts and publishes each as an ExternalArtifact.
//!
//! Builds when a source has another artifact, when the spec changed, or when something of the last build is missing or
//! damaged; a mere request finds nothing to do, as upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use file_tree::{Files, TreePath};
use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus};
use flux_api::digest::Digest as ApiDigest;
use flux_api::extensions::{
    ArtifactGenerator, ArtifactGeneratorStatus, ExternalArtifactReference, OutputArtifact,
};
use flux_api::kinds::{self, Kind};
use flux_api::names;
use flux_api::revision::{ORIGIN_REVISION_METADATA, Revision};
use flux_api::time::Time;
use flux_remote::ignore::Ignore;
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Context;
use super::compose::{self, Source, Staged};
use super::pattern::{self, Wanted};
use crate::artifact::storage::{Contents, Each};
use crate::artifact::tree::ArtifactTree;
use crate::reconcile::events::Happening;
use crate::reconcile::{
    Cache, Cause, Conditions, Next, ObjectKey, Queue, Reconcile, Severity, Worker, decode, jittered,
    resource, status,
};

const KIND: &Kind = &kinds::ARTIFACT_GENERATOR;
const MANAGER: &str = "source-watcher";
/// Without anything new it looks this often whether all is still there.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
const IN_PROGRESS: &str = "Reconciliation in progress";

pub struct ArtifactGenerators {
    pub ctx: Arc<Context>,
}

/// Why there are no artifacts.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Denied(String),
    #[error("get sources failed: {0}")]
    Observe(String),
    #[error("fetch sources failed: {0}")]
    Fetch(String),
    #[error("failed to expand path pattern: {0}")]
    Pattern(pattern::Error),
    #[error("{name} build failed: {cause}")]
    Build { name: String, cause: String },
    #[error("{name} reconcile failed: {cause}")]
    Publish { name: String, cause: String },
}

impl Failure {
    fn reason(&self) -> &'static str {
        match self {
            Failure::Invalid(_) => "ValidationFailed",
            Failure::Denied(_) => "AccessDenied",
            Failure::Observe(_) | Failure::Fetch(_) => "SourceFetchFailed",
            Failure::Pattern(_) | Failure::Build { .. } => "BuildFailed",
            Failure::Publish { .. } => "ReconciliationFailed",
        }
    }

    /// Only a change of the spec can help.
    fn stalls(&self) -> bool {
        matches!(self, Failure::Invalid(_) | Failure::Denied(_) | Failure::Pattern(_))
    }
}

/// A source as it is now.
struct Observed {
    artifact: Artifact,
}

impl Observed {
    fn revision(&self) -> String {
        self.artifact.revision.to_string()
    }
}

type Sources = BTreeMap<String, Observed>;

impl Reconcile for ArtifactGenerators {
    fn kind(&self) -> &'static Kind {
        KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let object: ArtifactGenerator = match decode(&raw) {
                Ok(object) => object,
                Err(problem) => {
                    self.tell(
                        &raw,
                        Severity::Error,
                        "Failed",
                        format!("the object cannot be read: {problem}"),
                    );
                    return Next::OnChange;
                }
            };
            let finalizer = names::ARTIFACT_GENERATOR_FINALIZER;
            if object.is_deleting() {
                return self.finalize(&raw, &object).await;
            }
            if !raw.finalizers().iter().any(|known| known == finalizer) {
                return self.begin(&raw, &object).await;
            }
            self.work(&raw, &object, &worker).await
        })
    }
}

impl ArtifactGenerators {
    /// The finalizer, and a first word about the object.
    async fn begin(&self, raw: &DynamicObject, object: &ArtifactGenerator) -> Next {
        let before = object.status.clone().unwrap_or_default();
        let mut after = before.clone();
        let mut conditions = Conditions { list: &mut after.conditions, generation: object.generation() };
        if object.suspended() {
            let message = "Initialized with reconciliation suspended";
            conditions.set(condition::READY, ConditionStatus::True, "ReconciliationDisabled", message);
        } else {
            progressing(&mut conditions);
        }
        if let Err(error) = self.write(raw, &before, &after).await {
            return Next::Backoff.if_told(Err(error));
        }
        // The status was written meanwhile, so the object has another version.
        let fresh = Api::<DynamicObject>::namespaced_with(
            self.ctx.client.clone(),
            Object::namespace(object),
            &resource(KIND),
        );
        let Ok(fresh) = fresh.get(object.name()).await else { return Next::Backoff };
        let finalizer = names::ARTIFACT_GENERATOR_FINALIZER;
        match status::with_finalizer(&self.ctx.client, KIND, Arc::new(fresh), MANAGER, finalizer).await {
            Ok(_) => Next::Now,
            Err(_) => Next::Backoff,
        }
    }

    async fn finalize(&self, raw: &DynamicObject, object: &ArtifactGenerator) -> Next {
        let made = object.status.as_ref().map(|status| status.inventory.as_slice()).unwrap_or_default();
        self.remove(made).await;
        let finalizer = names::ARTIFACT_GENERATOR_FINALIZER;
        match status::remove_finalizer(&self.ctx.client, KIND, raw, MANAGER, finalizer).await {
            Ok(()) => Next::OnChange,
            Err(_) => Next::Backoff,
        }
    }

    async fn work(&self, raw: &DynamicObject, object: &ArtifactGenerator, worker: &Worker) -> Next {
        let before = object.status.clone().unwrap_or_default();
        let mut after = before.clone();
        if let Some(request) = raw.annotations().get(names::RECONCILE_REQUEST) {
            after.last_handled_reconcile_at = Some(request.clone());
        }
        if object.suspended() {
            self.tell(
                raw,
                Severity::Trace,
                "ReconciliationDisabled",
                "Reconciliation is disabled".to_owned(),
            );
            return Next::OnChange.if_told(self.write(raw, &before, &after).await);
        }
        let mut written = before.clone();
        let result = self.build(raw, object, &mut written, &mut after, worker).await;
        let generation = object.generation();
        let mut conditions = Conditions { list: &mut after.conditions, generation };
        let next = match result {
            Ok(Built::Nothing) => {
                let count = after.inventory.len();
                let message = format!("No drift detected, {count} artifact(s) up to date");
                self.tell(raw, Severity::Trace, condition::READY, message);
                Next::After(INTERVAL)
            }
            Ok(Built::Artifacts) => {
                let message =
                    format!("reconciliation succeeded, generated {} artifact(s)", after.inventory.len());
                conditions.delete(condition::RECONCILING);
                conditions.delete(condition::STALLED);
                conditions.set(condition::READY, ConditionStatus::True, "Succeeded", message.clone());
                self.tell(raw, Severity::Trace, condition::READY, message);
                self.tell_changes(raw, &before, &after);
                Next::After(jittered(INTERVAL, self.ctx.jitter_percent))
            }
            Err(failure) => self.fail(raw, &mut conditions, &failure),
        };
        next.if_told(self.write(raw, &written, &after).await)
    }

    fn fail(&self, raw: &DynamicObject, conditions: &mut Conditions<'_>, failure: &Failure) -> Next {
        let (reason, message) = (failure.reason(), failure.to_string());
        conditions.set(condition::READY, ConditionStatus::False, reason, message.clone());
        if failure.stalls() {
            conditions.delete(condition::RECONCILING);
            conditions.set(condition::STALLED, ConditionStatus::True, reason, message.clone());
        } else {
            conditions.delete(condition::STALLED);
        }
        self.tell(raw, Severity::Error, reason, message);
        match failure {
            Failure::Invalid(_) | Failure::Denied(_) | Failure::Pattern(_) => Next::OnChange,
            Failure::Observe(_) | Failure::Fetch(_) => Next::RetryAfter(self.ctx.options.requeue_dependency),
            Failure::Build { .. } | Failure::Publish { .. } => Next::Backoff,
        }
    }

    /// `written` is what the server has, `after` what it is to have.
    async fn build(
        &self,
        raw: &DynamicObject,
        object: &ArtifactGenerator,
        written: &mut ArtifactGeneratorStatus,
        after: &mut ArtifactGeneratorStatus,
        worker: &Worker,
    ) -> Result<Built, Failure> {
        let before = written.clone();
        validate(object, self.ctx.options.no_cross_namespace_refs)?;
        let sources = self.observe(object)?;
        let digest = sources_digest(&sources);
        if !self.has_drifted(raw, object, &before, &digest).await {
            return Ok(Built::Nothing);
        }
        let mut conditions = Conditions { list: &mut after.conditions, generation: object.generation() };
        progressing(&mut conditions);
        match self.write(raw, &before, after).await {
            Ok(()) => *written = after.clone(),
            Err(error) => tracing::warn!(%error, "progress could not be written"),
        }

        // Nothing else of a run waits for others.
        let limit = self.ctx.options.reconciliation_timeout;
        let fetched = worker.outside(tokio::time::timeout(limit, self.fetch(&sources))).await;
        let trees = fetched.map_err(|_| Failure::Fetch(format!("not done within {limit:?}")))??;
        let mut made = Vec::new();
        for wanted in wanted(object, &trees)? {
            let name = wanted.artifact.name.clone();
            let artifact = self.compose(object, &wanted.artifact, &trees, &sources).await?;
            let published = self.publish(object, raw, &wanted, &artifact).await;
            published.map_err(|error| Failure::Publish { name: name.clone(), cause: error.to_string() })?;
            let known =
                before.inventory.iter().any(|old| old.name == name && old.digest == artifact.digest.as_str());
            let namespace = Object::namespace(object).to_owned();
            if !known {
                let message = format!(
                    "ExternalArtifact/{namespace}/{name} reconciled with revision {}",
                    artifact.revision
                );
                self.tell(raw, Severity::Trace, condition::READY, message);
            }
            made.push(ExternalArtifactReference {
                name,
                namespace,
                digest: artifact.digest.to_string(),
                filename: artifact.path.rsplit('/').next().unwrap_or_default().to_owned(),
            });
        }
        let orphans: Vec<ExternalArtifactReference> = before
            .inventory
            .iter()
            .filter(|old| !made.iter().any(|new| new.name == old.name && new.namespace == old.namespace))
            .cloned()
            .collect();
        self.remove(&orphans).await;
        after.inventory = made;
        after.observed_sources_digest = Some(digest);
        Ok(Built::Artifacts)
    }

    fn observe(&self, object: &ArtifactGenerator) -> Result<Sources, Failure> {
        let mut sources = Sources::new();
        for source in &object.spec.sources {
            let namespace = source.namespace.as_deref().unwrap_or_else(|| Object::namespace(object));
            let key = ObjectKey::new(namespace, &source.name);
            let Some(kind) = kinds::by_kind(source.kind.as_str()) else { continue };
            let found = self.ctx.cache.get(kind, &key).ok_or_else(|| {
                Failure::Observe(format!("{}.{} \"{}\" not found", kind.plural, kind.group, source.name))
            })?;
            let artifact = found.data.pointer("/status/artifact").cloned().unwrap_or_default();
            let artifact = serde_json::from_value::<Artifact>(artifact).map_err(|_| {
                Failure::Observe(format!("source '{}/{namespace}/{}' is not ready", kind.kind, source.name))
            })?;
            sources.insert(source.alias.clone(), Observed { artifact });
        }
        Ok(sources)
    }

    /// Whether anything asks for a build.
    async fn has_drifted(
        &self,
        raw: &DynamicObject,
        object: &ArtifactGenerator,
        status: &ArtifactGeneratorStatus,
        sources: &str,
    ) -> bool {
        let ready = condition::find(&status.conditions, condition::READY);
        let failed = ready.is_none_or(|ready| ready.status == ConditionStatus::False);
        let other_spec = ready.is_none_or(|ready| ready.observed_generation != object.generation());
        let other_sources = status.observed_sources_digest.as_deref() != Some(sources);
        let other_count =
            object.spec.path_pattern.is_none() && status.inventory.len() != object.spec.artifacts.len();
        failed
            || other_spec
            || other_sources
            || other_count
            || self.published_differ(raw, status)
            || !self.files_are_intact(status).await
    }

    /// Whether the ExternalArtifacts are not those of the inventory.
    fn published_differ(&self, raw: &DynamicObject, status: &ArtifactGeneratorStatus) -> bool {
        let uid = raw.uid().unwrap_or_default();
        let all = self.ctx.cache.list(&kinds::EXTERNAL_ARTIFACT);
        let own: Vec<_> = all
            .iter()
            .filter(|one| one.namespace() == raw.namespace())
            .filter(|one| one.labels().get(names::ARTIFACT_GENERATOR_LABEL) == Some(&uid))
            .collect();
        let is_known = |one: &DynamicObject| {
            let digest = one.data.pointer("/status/artifact/digest").and_then(Value::as_str);
            status.inventory.iter().any(|made| made.name == one.name_any() && digest == Some(&made.digest))
        };
        own.len() != status.inventory.len() || !own.iter().all(|one| is_known(one))
    }

    async fn files_are_intact(&self, status: &ArtifactGeneratorStatus) -> bool {
        let (storage, inventory) = (self.ctx.storage.clone(), status.inventory.clone());
        let looked = crate::reconcile::heavy(move || {
            inventory.iter().all(|made| {
                let path = format!("externalartifact/{}/{}/{}", made.namespace, made.name, made.filename);
                let Ok(digest) = made.digest.parse::<ApiDigest>() else { return false };
                let artifact = Artifact {
                    url: storage.url(&path),
                    path: path.clone(),
                    revision: Revision::from(String::new()),
                    digest,
                    last_update_time: Time::new(Timestamp::now()),
                    size: None,
                    metadata: BTreeMap::new(),
                };
                let intact = storage.verify(&artifact).unwrap_or_default();
                if !intact {
                    // A damaged file would be served on; a missing one cannot be removed, which is as well.
                    let _ = std::fs::remove_file(storage.root().join(&path));
                }
                intact
            })
        });
        looked.await.unwrap_or_default()
    }

    async fn fetch(&self, sources: &Sources) -> Result<BTreeMap<String, Arc<ArtifactTree>>, Failure> {
        let mut trees = BTreeMap::new();
        for (alias, source) in sources {
            let tree = self.ctx.fetcher.tree(&source.artifact).await;
            trees.insert(alias.clone(), tree.map_err(|error| Failure::Fetch(error.to_string()))?);
        }
        Ok(trees)
    }

    async fn compose(
        &self,
        object: &ArtifactGenerator,
        wanted: &OutputArtifact,
        trees: &BTreeMap<String, Arc<ArtifactTree>>,
        sources: &Sources,
    ) -> Result<Artifact, Failure> {
        let (storage, trees, copy) = (self.ctx.storage.clone(), trees.clone(), wanted.copy.clone());
        let key = ObjectKey::new(Object::namespace(object), &wanted.name);
        let name = wanted.name.clone();
        let stored = crate::reconcile::heavy(move || {
            let trees: BTreeMap<String, TreeSource> =
                trees.into_iter().map(|(alias, tree)| (alias, TreeSource(tree))).collect();
            let sources: BTreeMap<String, &dyn Source> =
                trees.iter().map(|(alias, tree)| (alias.clone(), tree as &dyn Source)).collect();
            let mut staged = compose::compose(&copy, &sources).map_err(|error| error.to_string())?;
            let file_name = format!("{}.tar.gz", contents_hash(&name, &staged));
            // Upstream archives with its default list of what a source leaves out, and reads no .sourceignore.
            let rules = Ignore::for_source(std::iter::empty(), None);
            staged.retain(|path, _| !rules.excludes(path, false));
            // The whole revision has the digest in it, which storing finds out.
            let revision = Revision::from("latest".to_owned());
            let kind = &kinds::EXTERNAL_ARTIFACT;
            let stored = storage.store(kind, &key, &file_name, revision, &mut StagedContents(staged));
            let stored = stored.map_err(|error| format!("failed to create artifact: {error}"))?;
            if let Err(error) = storage.collect(kind, &key, &stored) {
                tracing::warn!(%error, "old artifacts could not be removed");
            }
            Ok::<_, String>(stored)
        });
        let failed = |cause: String| Failure::Build { name: wanted.name.clone(), cause };
        let mut artifact = stored.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        let of = |alias: &Option<String>| {
            alias.as_deref().and_then(|alias| sources.get(alias.trim_start_matches('@')))
        };
        artifact.revision = match of(&wanted.revision) {
            Some(source) => Revision::from(source.revision()),
            None => Revision::from(format!("latest@{}", artifact.digest)),
        };
        if let Some(source) = of(&wanted.origin_revision) {
            let origin = source.artifact.origin_revision().map(|revision| revision.to_string());
            let origin = origin.unwrap_or_else(|| source.revision());
            artifact.metadata.insert(ORIGIN_REVISION_METADATA.to_owned(), origin);
        }
        Ok(artifact)
    }

    /// Writes the ExternalArtifact, taking it over from whoever had it, and its status.
    async fn publish(
        &self,
        object: &ArtifactGenerator,
        raw: &DynamicObject,
        wanted: &Wanted,
        artifact: &Artifact,
    ) -> Result<(), kube::Error> {
        let common = object.spec.common_metadata.clone().unwrap_or_default();
        let mut labels = common.labels;
        labels.extend(wanted.labels.clone());
        labels.insert("app.kubernetes.io/managed-by".to_owned(), MANAGER.to_owned());
        labels.insert(names::ARTIFACT_GENERATOR_LABEL.to_owned(), raw.uid().unwrap_or_default());
        let namespace = Object::namespace(object);
        let (name, kind) = (&wanted.artifact.name, &kinds::EXTERNAL_ARTIFACT);
        let mut metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
        if !common.annotations.is_empty() {
            metadata["annotations"] = json!(common.annotations);
        }
        let identity = json!({ "apiVersion": kind.api_version(), "kind": kind.kind });
        let mut wished = identity.clone();
        wished["metadata"] = metadata;
        wished["spec"] = json!({ "sourceRef": {
            "apiVersion": KIND.api_version(), "kind": KIND.kind, "name": object.name(), "namespace": namespace,
        } });
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.ctx.client.clone(), namespace, &resource(kind));
        let applied = api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&wished)).await?;
        let mut status = identity;
        status["metadata"] = json!({ "name": name, "namespace": namespace });
        status["status"] = json!({ "artifact": artifact, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Succeeded", "message": "Artifact is ready",
            "lastTransitionTime": Time::new(Timestamp::now()),
            "observedGeneration": applied.metadata.generation.unwrap_or_default(),
        }] });
        let parameters = PatchParams::apply(MANAGER).force();
        api.patch_status(name, &parameters, &Patch::Apply(&status)).await.map(|_| ())
    }

    /// Deletes ExternalArtifacts and their files; what cannot be deleted is only logged, as upstream.
    async fn remove(&self, artifacts: &[ExternalArtifactReference]) {
        let kind = &kinds::EXTERNAL_ARTIFACT;
        for artifact in artifacts {
            let key = ObjectKey::new(&artifact.namespace, &artifact.name);
            if let Err(error) = self.ctx.storage.remove(kind, &key) {
                tracing::error!(%error, artifact = %key, "files could not be removed");
            }
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.ctx.client.clone(), &artifact.namespace, &resource(kind));
            match api.delete(&artifact.name, &Default::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                Err(error) => tracing::error!(%error, artifact = %key, "could not be deleted"),
            }
        }
    }

    fn tell_changes(
        &self,
        raw: &DynamicObject,
        before: &ArtifactGeneratorStatus,
        after: &ArtifactGeneratorStatus,
    ) {
        let known = |new: &ExternalArtifactReference| {
            before.inventory.iter().any(|old| old.name == new.name && old.digest == new.digest)
        };
        let changed: Vec<String> = after
            .inventory
            .iter()
            .filter(|new| !known(new))
            .map(|new| format!("{}/{} ({})", new.namespace, new.name, new.digest))
            .collect();
        if !changed.is_empty() {
            let message = format!("external artifacts reconciled: {}", changed.join("\n"));
            self.tell(raw, Severity::Info, condition::READY, message);
        }
    }

    fn tell(&self, raw: &DynamicObject, severity: Severity, reason: &str, message: String) {
        let happening = Happening { severity, reason: reason.to_owned(), message, metadata: BTreeMap::new() };
        self.ctx.events.tell(KIND, raw, happening);
    }

    async fn write(
        &self,
        raw: &DynamicObject,
        before: &ArtifactGeneratorStatus,
        after: &ArtifactGeneratorStatus,
    ) -> Result<(), kube::Error> {
        let key = ObjectKey::of(raw);
        status::write(&self.ctx.client, KIND, &key, MANAGER, before, after).await?;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Built {
    Nothing,
    Artifacts,
}

fn progressing(conditions: &mut Conditions<'_>) {
    conditions.delete(condition::STALLED);
    conditions.set(condition::RECONCILING, ConditionStatus::True, "Progressing", IN_PROGRESS);
    conditions.set(condition::READY, ConditionStatus::Unknown, "Progressing", IN_PROGRESS);
}

/// What no source can make good.
fn validate(object: &ArtifactGenerator, no_cross_namespace_refs: bool) -> Result<(), Failure> {
    let mut aliases = BTreeSet::new();
    for source in &object.spec.sources {
        if !aliases.insert(source.alias.as_str()) {
            return Err(Failure::Invalid(format!("duplicate source alias '{}' found", source.alias)));
        }
        let foreign = source.namespace.as_deref().filter(|namespace| *namespace != Object::namespace(object));
        if let Some(namespace) = foreign.filter(|_| no_cross_namespace_refs) {
            return Err(Failure::Denied(format!(
                "cross-namespace reference to source {}/{namespace}/{} is not allowed",
                source.kind.as_str(),
                source.name
            )));
        }
    }
    let mut artifacts = BTreeSet::new();
    for artifact in &object.spec.artifacts {
        if !artifacts.insert(artifact.name.as_str()) {
            return Err(Failure::Invalid(format!("duplicate artifact name '{}' found", artifact.name)));
        }
        if object.spec.path_pattern.is_none() && !pattern::is_object_name(&artifact.name) {
            return Err(Failure::Invalid(format!(
                "artifact name \"{}\" is not a valid Kubernetes object name: {}",
                artifact.name,
                pattern::OBJECT_NAME
            )));
        }
        let alias = artifact.revision.as_deref().map(|alias| alias.trim_start_matches('@'));
        if let Some(alias) = alias.filter(|alias| !aliases.contains(alias)) {
            let name = &artifact.name;
            return Err(Failure::Invalid(format!(
                "artifact {name} revision source alias '{alias}' not found"
            )));
        }
    }
    Ok(())
}

/// `sha256:` over `alias=[…]` of every source, sorted as text.
fn sources_digest(sources: &Sources) -> String {
    let mut texts: Vec<String> = sources
        .iter()
        .map(|(alias, source)| {
            let Artifact { digest, revision, url, .. } = &source.artifact;
            format!("{alias}=[digest={digest},revision={revision},url={url}]")
        })
        .collect();
    texts.sort();
    let digest = Sha256::digest(texts.join("|"));
    format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn wanted(
    object: &ArtifactGenerator,
    trees: &BTreeMap<String, Arc<ArtifactTree>>,
) -> Result<Vec<Wanted>, Failure> {
    let artifacts = &object.spec.artifacts;
    let Some(path_pattern) = &object.spec.path_pattern else {
        let plain =
            |artifact: &OutputArtifact| Wanted { artifact: artifact.clone(), labels: BTreeMap::new() };
        return Ok(artifacts.iter().map(plain).collect());
    };
    let alias = path_pattern.trim_start_matches('@').split('/').next().unwrap_or_default();
    let Some(tree) = trees.get(alias) else {
        return Err(Failure::Invalid(format!(
            "pathPattern \"{path_pattern}\": source alias {alias} not found in local sources"
        )));
    };
    let mut folders = BTreeSet::new();
    for (file, _) in tree.files() {
        let mut parent = file.parent();
        while let Some(folder) = parent.filter(|folder| !folders.contains(folder)) {
            parent = folder.parent();
            folders.insert(folder);
        }
    }
    pattern::expand(path_pattern, &folders, artifacts).map_err(Failure::Pattern)
}

/// What upstream names the file by: an Adler-32 over one line a file, `<Adler-32>  <artifact>/<path>`.
fn contents_hash(name: &str, staged: &Staged) -> u32 {
    let mut lines: Vec<String> = staged
        .iter()
        .map(|(path, file)| {
            format!("{}/{}", name, path.as_str()) + "\0" + &format!("{:x}", adler32(&file.bytes))
        })
        .collect();
    lines.sort();
    let text: String = lines
        .iter()
        .filter_map(|line| line.split_once('\0'))
        .map(|(path, hash)| format!("{hash}  {path}\n"))
        .collect();
    adler32(text.as_bytes())
}

pub(crate) fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1_u32, 0_u32);
    // So many bytes fit before a sum could overflow.
    for chunk in bytes.chunks(5_552) {
        for byte in chunk {
            low += u32::from(*byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    (high << 16) | low
}

struct TreeSource(Arc<ArtifactTree>);

impl Source for TreeSource {
    fn files(&self) -> Vec<(TreePath, bool)> {
        self.0.files().map(|(path, executable)| (path.clone(), executable)).collect()
    }

    fn read(&self, path: &TreePath) -> Result<Vec<u8>, String> {
        Files::read(self.0.as_ref(), path).map(|bytes| bytes.into_owned()).map_err(|error| error.to_string())
    }
}

struct StagedContents(Staged);

impl Contents for StagedContents {
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        for (path, file) in &self.0 {
            each(path, file.executable, &file.bytes)?;
        }
        Ok(())
    }
}

/// Wakes generators when a source they take files from has another artifact, and when they are no longer disabled, for
/// which upstream waits to be asked.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>) {
    let woken = queue.clone();
    cache.listen(KIND, move |change| {
        let annotation = |object: Option<&Arc<DynamicObject>>| {
            object.and_then(|object| object.annotations().get(names::ARTIFACT_GENERATOR_RECONCILE).cloned())
        };
        let both = change.old.is_some() && change.new.is_some();
        if both && annotation(change.old.as_ref()) != annotation(change.new.as_ref()) {
            woken.add(change.key.clone(), Cause::Change);
        }
    });
    let sources = [
        &kinds::GIT_REPOSITORY,
        &kinds::OCI_REPOSITORY,
        &kinds::BUCKET,
        &kinds::HELM_CHART,
        &kinds::EXTERNAL_ARTIFACT,
    ];
    for kind in sources {
        let (queue, generators) = (queue.clone(), cache.clone());
        cache.listen(kind, move |change| {
            let revision = |object: Option<&Arc<DynamicObject>>| {
                let revision = object?.data.pointer("/status/artifact/revision")?.as_str()?;
                Some(revision.to_owned())
            };
            if let (None, Some(gone)) = (&change.new, &change.old) {
                wake_maker(&generators, &queue, gone);
            }
            let new = revision(change.new.as_ref());
            if new.is_none() || new == revision(change.old.as_ref()) {
                return;
            }
            for generator in generators.list(KIND) {
                if refers_to(&generator, kind, &change.key) {
                    queue.add(ObjectKey::of(&generator), Cause::Change);
                }
            }
        });
    }
}

/// An ExternalArtifact that somebody deleted is made again at once; upstream waits for its next look.
fn wake_maker(generators: &Cache, queue: &Queue, gone: &DynamicObject) {
    let Some(uid) = gone.labels().get(names::ARTIFACT_GENERATOR_LABEL) else { return };
    for generator in generators.list(KIND) {
        if generator.uid().as_ref() == Some(uid) {
            queue.add(ObjectKey::of(&generator), Cause::Change);
        }
    }
}

fn refers_to(generator: &DynamicObject, kind: &Kind, key: &ObjectKey) -> bool {
    let own = generator.namespace().unwrap_or_default();
    let sources = generator.data.pointer("/spec/sources").and_then(Value::as_array);
    sources.into_iter().flatten().any(|source| {
        let text = |name: &str| source.get(name).and_then(Value::as_str);
        text("kind") == Some(kind.kind)
            && text("name") == Some(&key.name)
            && text("namespace").unwrap_or(&own) == key.namespace
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watcher::compose::StagedFile;

    #[test]
    fn the_file_is_named_as_upstream_names_it() {
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        let file = |text: &str| StagedFile { executable: false, bytes: text.as_bytes().to_vec() };
        let path = |text: &str| TreePath::parse(text).unwrap();
        let staged = Staged::from([(path("b.yaml"), file("b")), (path("a/x.yaml"), file("a"))]);
        let lines = format!("{:x}  app/a/x.yaml\n{:x}  app/b.yaml\n", adler32(b"a"), adler32(b"b"));
        assert_eq!(contents_hash("app", &staged), adler32(lines.as_bytes()));
    }

    #[test]
    fn a_spec_that_cannot_work_is_explained() {
        let object = |spec: Value| -> ArtifactGenerator {
            serde_json::from_value(json!({
                "apiVersion": KIND.api_version(), "kind": KIND.kind,
                "metadata": { "name": "g", "namespace": "n" }, "spec": spec,
            }))
            .unwrap()
        };
        let source = |alias: &str, namespace: &str| json!({ "alias": alias, "kind": "GitRepository", "name": "x", "namespace": namespace });
        let artifact = |name: &str| json!({ "name": name, "copy": [{ "from": "@a/x", "to": "@artifact/" }] });
        let twice =
            object(json!({ "sources": [source("a", "n"), source("a", "n")], "artifacts": [artifact("x")] }));
        let error = validate(&twice, false).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.reason()),
            ("duplicate source alias 'a' found", "ValidationFailed")
        );
        let foreign = object(json!({ "sources": [source("a", "other")], "artifacts": [artifact("x")] }));
        assert!(validate(&foreign, false).is_ok());
        let error = validate(&foreign, true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cross-namespace reference to source GitRepository/other/x is not allowed"
        );
        let bad = object(json!({ "sources": [source("a", "n")], "artifacts": [artifact("Not_A_Name")] }));
        assert!(validate(&bad, false).unwrap_err().stalls());
    }
}
