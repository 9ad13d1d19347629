//! What every kind of source does around its fetch: finalizer, suspension, the stored file, conditions, events.
//!
//! A kind implements [`Source`]: it looks at the remote, stores what is new and says so in [`Fetched`], or says in a
//! [`Failure`] why not. Nothing here knows what a source is made of.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, Condition, ConditionStatus};
use flux_api::names::{EventMetadata, FINALIZER, RECONCILE_REQUEST};
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::depot;
pub use super::depot::Remote;
use super::pen::Pen;
use super::{
    ARTIFACT_IN_STORAGE, ARTIFACT_OUTDATED, BUILD_FAILED, Context, FETCH_FAILED, INCLUDE_UNAVAILABLE,
    SOURCE_VERIFIED, STORAGE_OPERATION_FAILED, summarize,
};
use crate::reconcile::events::Happening;
use crate::reconcile::{Conditions, Next, ObjectKey, Reconcile, Severity, Worker, decode, jittered, status};

pub(super) const MANAGER: &str = "source-controller";

/// A kind of source.
pub trait Source: Send + Sync + Sized + 'static {
    type Object: Object + Send + Sync;
    type Status: Status;

    fn status(object: &Self::Object) -> Option<&Self::Status>;

    fn interval(object: &Self::Object) -> Duration;

    /// Whether objects like this one are only read by others: then they have no finalizer and no status.
    fn is_static(_object: &Self::Object) -> bool {
        false
    }

    /// The object is gone: so may what was kept for it.
    fn forget(&self, _key: &ObjectKey) {}

    /// What lies far away and is to be fetched; `None` where everything is here. Asked only where there is a depot.
    fn remote(&self, _job: &Job<'_, Self>) -> Option<Remote> {
        None
    }

    /// Brings `job.status` to what the remote has.
    fn fetch(&self, job: &mut Job<'_, Self>) -> impl Future<Output = Result<Fetched, Failure>> + Send;
}

/// The parts that every source's status has.
pub trait Status: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    fn conditions(&mut self) -> &mut Vec<Condition>;
    fn artifact(&mut self) -> &mut Option<Artifact>;
    fn observed_generation(&mut self) -> &mut i64;
    fn last_handled_reconcile_at(&mut self) -> &mut Option<String>;
    /// The address that stays the same; GitRepository has none.
    fn url(&mut self) -> Option<&mut Option<String>>;
}

macro_rules! status {
    ($status:ty, |$this:ident| $url:expr) => {
        impl Status for $status {
            fn conditions(&mut self) -> &mut Vec<Condition> {
                &mut self.conditions
            }

            fn artifact(&mut self) -> &mut Option<Artifact> {
                &mut self.artifact
            }

            fn observed_generation(&mut self) -> &mut i64 {
                &mut self.observed_generation
            }

            fn last_handled_reconcile_at(&mut self) -> &mut Option<String> {
                &mut self.last_handled_reconcile_at
            }

            fn url(&mut self) -> Option<&mut Option<String>> {
                let $this = self;
                $url
            }
        }
    };
}

status!(flux_api::source::GitRepositoryStatus, |_this| None);
status!(flux_api::source::OCIRepositoryStatus, |this| Some(&mut this.url));
status!(flux_api::source::HelmRepositoryStatus, |this| Some(&mut this.url));
status!(flux_api::source::HelmChartStatus, |this| Some(&mut this.url));
status!(flux_api::source::BucketStatus, |this| Some(&mut this.url));

/// What a good run tells.
pub struct Fetched {
    /// Reason and message of ArtifactInStorage, and so of Ready.
    pub reason: &'static str,
    pub message: String,
    /// Told when the artifact is new, or when the source recovered from a failure.
    pub news: String,
    /// The reasons of that event in these two cases.
    pub new_artifact: &'static str,
    pub recovered: &'static str,
}

impl Fetched {
    /// For the kinds whose reason is `Succeeded`.
    pub fn succeeded(message: String, news: String) -> Self {
        Self { reason: "Succeeded", message, news, new_artifact: "NewArtifact", recovered: "Succeeded" }
    }
}

/// Whether trying again can help, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Backoff,
    /// Something else has to come first; nobody is alarmed.
    Waiting(Option<Duration>),
    /// Only a change of the object can help.
    Stalled,
}

/// Why a run ended without the artifact that was wanted.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The condition that turns bad.
    pub condition: &'static str,
    pub reason: &'static str,
    pub message: String,
    pub retry: Retry,
    /// Whether it is the signature that is missing or wrong.
    pub unverified: bool,
    /// Reason and message of the event and of Stalled, where they differ from the condition's.
    pub told: Option<(&'static str, String)>,
}

impl Failure {
    pub fn new(condition: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            condition,
            reason,
            message: message.into(),
            retry: Retry::Backoff,
            unverified: false,
            told: None,
        }
    }

    /// The remote, or the way to it.
    pub fn fetch(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(FETCH_FAILED, reason, message)
    }

    /// Our own disk.
    pub fn storage(message: impl Into<String>) -> Self {
        Self::new(STORAGE_OPERATION_FAILED, "ArchiveOperationFailed", message)
    }

    /// The signature: SourceVerified turns False.
    pub fn verification(message: impl Into<String>) -> Self {
        let failure = Self::new(SOURCE_VERIFIED, "VerificationError", message);
        Self { unverified: true, ..failure }
    }

    pub fn stalled(self) -> Self {
        Self { retry: Retry::Stalled, ..self }
    }

    pub fn waiting(self, wait: Option<Duration>) -> Self {
        Self { retry: Retry::Waiting(wait), ..self }
    }
}

/// One run for one object.
pub struct Job<'a, S: Source> {
    pub ctx: &'a Context,
    pub object: &'a S::Object,
    /// The status as it will be written.
    pub status: S::Status,
    pub worker: &'a Worker,
    raw: &'a DynamicObject,
    pen: Arc<Pen<S::Status>>,
}

impl<S: Source> Job<'_, S> {
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(self.raw)
    }

    pub fn generation(&self) -> i64 {
        self.object.generation()
    }

    pub fn conditions(&mut self) -> Conditions<'_> {
        let generation = self.object.generation();
        Conditions { list: self.status.conditions(), generation }
    }

    /// Whether the condition is what it should be for the object as it is now.
    pub fn holds(&mut self, kind: &str) -> bool {
        let generation = self.object.generation();
        condition::find(self.status.conditions(), kind)
            .is_some_and(|it| it.status == ConditionStatus::True && it.observed_generation == generation)
    }

    /// Says what the run is at; shown once the run has lasted a while.
    pub async fn progress(&mut self, message: impl Into<String>) {
        let message = message.into();
        let mut conditions = self.conditions();
        conditions.set(condition::RECONCILING, ConditionStatus::True, "Progressing", message.clone());
        conditions.set(condition::READY, ConditionStatus::Unknown, "Progressing", message);
        self.pen.note(&self.status);
        self.pen.write_what_lasts().await;
    }

    /// Somebody waits for this run: told that it is under way, if it lasts. Ready keeps what it said until something
    /// newer is found.
    fn begin(&mut self, message: String) {
        let mut conditions = self.conditions();
        conditions.set(condition::RECONCILING, ConditionStatus::True, "Progressing", message.clone());
        if condition::find(conditions.list, condition::READY).is_none() {
            conditions.set(condition::READY, ConditionStatus::Unknown, "Progressing", message);
        }
        self.pen.note(&self.status);
    }

    /// Something newer than the artifact was found.
    pub async fn outdated(&mut self, reason: &str, message: String) {
        if self.status.artifact().is_some() {
            self.conditions().set(ARTIFACT_OUTDATED, ConditionStatus::True, reason, message.clone());
        }
        self.progress(format!("building artifact: {message}")).await;
    }

    /// Tells of something that concerns only those who look closely.
    pub fn trace(&self, reason: &str, message: impl Into<String>) {
        self.tell(Severity::Trace, reason, message.into(), BTreeMap::new());
    }

    pub fn warn(&self, reason: &str, message: impl Into<String>) {
        self.tell(Severity::Error, reason, message.into(), BTreeMap::new());
    }

    /// Makes `name` beside the artifact mean it, and writes the address down.
    pub fn link(&mut self, name: &str) {
        let Some(artifact) = self.status.artifact().clone() else { return };
        match link(self.ctx.storage.root(), &artifact.path, name) {
            Ok(path) => {
                let url = self.ctx.storage.url(&path);
                if let Some(slot) = self.status.url() {
                    *slot = Some(url);
                }
            }
            Err(error) => {
                self.trace("SymlinkUpdateFailed", format!("failed to update status URL symlink: {error}"));
            }
        }
    }

    fn tell(&self, severity: Severity, reason: &str, message: String, metadata: BTreeMap<String, String>) {
        let happening = Happening { severity, reason: reason.to_owned(), message, metadata };
        self.ctx.events.tell(S::Object::KIND, self.raw, happening);
    }

    /// Writes the status as it is at the end of the run.
    async fn write(&mut self) -> Result<(), kube::Error> {
        if let Some(request) = self.raw.annotations().get(RECONCILE_REQUEST) {
            *self.status.last_handled_reconcile_at() = Some(request.clone());
        }
        self.pen.write(&self.status).await
    }

    /// A missing or damaged file is forgotten, so that it is made again.
    async fn check_storage(&mut self) -> Result<(), Failure> {
        self.collect_garbage().await;
        let mut disappeared = false;
        if let Some(artifact) = self.status.artifact().clone() {
            match self.stored_file(artifact.clone()).await? {
                StoredFile::Intact => {
                    let url = self.ctx.storage.url(&artifact.path);
                    *self.status.artifact() = Some(Artifact { url, ..artifact });
                    self.refresh_url();
                    return Ok(());
                }
                StoredFile::Damaged => {
                    let cause = format!("computed digest doesn't match '{}'", artifact.digest);
                    let message = format!("failed to verify integrity of artifact: {cause}");
                    self.warn("ArtifactVerificationFailed", message);
                    let file = self.ctx.storage.root().join(&artifact.path);
                    fs::remove_file(file).map_err(|error| Failure::storage(error.to_string()))?;
                }
                StoredFile::Missing => {}
            }
            disappeared = true;
            *self.status.artifact() = None;
            if let Some(url) = self.status.url() {
                *url = None;
            }
        }
        self.conditions().delete(ARTIFACT_IN_STORAGE);
        let suffix = if disappeared { ": disappeared from storage" } else { "" };
        self.progress(format!("building artifact{suffix}")).await;
        Ok(())
    }

    async fn stored_file(&self, artifact: Artifact) -> Result<StoredFile, Failure> {
        let storage = self.ctx.storage.clone();
        let looked = crate::reconcile::heavy(move || {
            if !storage.root().join(&artifact.path).exists() {
                return Ok(StoredFile::Missing);
            }
            let intact = storage.verify(&artifact)?;
            Ok(if intact { StoredFile::Intact } else { StoredFile::Damaged })
        });
        let looked = looked.await.map_err(|error| Failure::storage(error.to_string()))?;
        looked.map_err(|error: crate::artifact::storage::Error| Failure::storage(error.to_string()))
    }

    async fn collect_garbage(&mut self) {
        let Some(artifact) = self.status.artifact().clone() else { return };
        let (storage, key) = (self.ctx.storage.clone(), self.key());
        let collected =
            tokio::task::spawn_blocking(move || storage.collect(S::Object::KIND, &key, &artifact)).await;
        match collected {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => {
                self.trace("GarbageCollectionSucceeded", format!("garbage collected {count} artifacts"));
            }
            Ok(Err(error)) => tracing::warn!(%error, "old artifacts could not be removed"),
            Err(error) => tracing::warn!(%error, "old artifacts could not be removed"),
        }
    }

    /// The host that serves artifacts may have changed since the address was written.
    fn refresh_url(&mut self) {
        let artifact = self.status.artifact().clone();
        let folder = artifact.and_then(|artifact| Some(artifact.path.rsplit_once('/')?.0.to_owned()));
        let (Some(folder), Some(Some(url))) = (folder, self.status.url()) else { return };
        if let Some(name) = url.rsplit('/').next() {
            let fresh = self.ctx.storage.url(&format!("{folder}/{name}"));
            *url = fresh;
        }
    }

    fn conclude(&mut self, before: &S::Status, result: Result<Fetched, Failure>) -> Next {
        match result {
            Ok(fetched) => self.conclude_well(before, fetched),
            Err(failure) => self.conclude_badly(failure),
        }
    }

    fn conclude_well(&mut self, before: &S::Status, fetched: Fetched) -> Next {
        let generation = self.generation();
        let has_artifact = self.status.artifact().is_some();
        let mut conditions = self.conditions();
        for cured in [FETCH_FAILED, STORAGE_OPERATION_FAILED, INCLUDE_UNAVAILABLE, BUILD_FAILED] {
            conditions.delete(cured);
        }
        for over in [ARTIFACT_OUTDATED, condition::RECONCILING, condition::STALLED] {
            conditions.delete(over);
        }
        if has_artifact {
            let message = fetched.message.clone();
            conditions.set(ARTIFACT_IN_STORAGE, ConditionStatus::True, fetched.reason, message);
        }
        summarize(&mut conditions);
        *self.status.observed_generation() = generation;
        self.tell_success(before.clone(), fetched);
        Next::After(jittered(S::interval(self.object), self.ctx.jitter_percent))
    }

    fn tell_success(&mut self, mut before: S::Status, fetched: Fetched) {
        let Some(artifact) = self.status.artifact().clone() else { return };
        let is_new = before.artifact().as_ref().is_none_or(|old| old.digest != artifact.digest);
        let recovered = [FETCH_FAILED, STORAGE_OPERATION_FAILED, INCLUDE_UNAVAILABLE, BUILD_FAILED]
            .iter()
            .any(|kind| condition::is(before.conditions(), kind, ConditionStatus::True));
        let reason = match (is_new, recovered) {
            (true, _) => fetched.new_artifact,
            (false, true) => fetched.recovered,
            (false, false) => return,
        };
        let group = S::Object::KIND.group;
        let metadata = BTreeMap::from([
            (EventMetadata::Revision.key(group), artifact.revision.to_string()),
            (EventMetadata::Digest.key(group), artifact.digest.to_string()),
        ]);
        self.tell(Severity::Info, reason, fetched.news, metadata);
    }

    fn conclude_badly(&mut self, failure: Failure) -> Next {
        let generation = self.generation();
        let mut conditions = self.conditions();
        // A later step fails only after the earlier ones went well.
        match failure.condition {
            STORAGE_OPERATION_FAILED => conditions.delete(FETCH_FAILED),
            BUILD_FAILED => conditions.delete(FETCH_FAILED),
            FETCH_FAILED => conditions.delete(BUILD_FAILED),
            _ => {}
        }
        let message = failure.message.clone();
        if failure.condition != SOURCE_VERIFIED {
            conditions.set(failure.condition, ConditionStatus::True, failure.reason, message.clone());
        }
        if failure.unverified {
            let reason =
                if failure.condition == SOURCE_VERIFIED { failure.reason } else { "VerificationError" };
            conditions.set(SOURCE_VERIFIED, ConditionStatus::False, reason, message.clone());
        }
        let (told_reason, told) = failure.told.unwrap_or((failure.reason, message));
        match failure.retry {
            Retry::Stalled => {
                conditions.set(condition::STALLED, ConditionStatus::True, told_reason, told.clone());
            }
            Retry::Backoff | Retry::Waiting(_) => {
                let known = condition::find(conditions.list, condition::RECONCILING);
                let progress =
                    known.map_or("reconciliation in progress".to_owned(), |known| known.message.clone());
                conditions.set(
                    condition::RECONCILING,
                    ConditionStatus::True,
                    "ProgressingWithRetry",
                    progress,
                );
            }
        }
        summarize(&mut conditions);
        match failure.retry {
            Retry::Stalled => {
                *self.status.observed_generation() = generation;
                self.warn(told_reason, told);
                Next::OnChange
            }
            Retry::Waiting(wait) => {
                self.trace(told_reason, told);
                wait.map_or(Next::Backoff, Next::RetryAfter)
            }
            Retry::Backoff => {
                self.warn(told_reason, told);
                Next::Backoff
            }
        }
    }
}

enum StoredFile {
    Intact,
    Damaged,
    Missing,
}

/// Points `name`, in the folder of the file at `path`, to that file; returns the link's own path.
fn link(root: &std::path::Path, path: &str, name: &str) -> std::io::Result<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let target = root.join(folder).join(name);
    let fresh = root.join(folder).join(format!(".{name}.new"));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(file, &fresh)?;
    fs::rename(&fresh, &target)?;
    Ok(format!("{folder}/{name}"))
}

/// The reconciler of a kind of source.
pub struct Sources<S> {
    pub ctx: Arc<Context>,
    pub source: S,
}

impl<S: Source> Reconcile for Sources<S> {
    fn forget(&self, key: &ObjectKey) {
        self.source.forget(key);
    }

    fn kind(&self) -> &'static flux_api::kinds::Kind {
        S::Object::KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let object: S::Object = match decode(&raw) {
                Ok(object) => object,
                Err(problem) => return self.malformed(&raw, problem),
            };
            let has_finalizer = raw.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
            if object.is_deleting() {
                return self.finalize(&raw).await;
            }
            if S::is_static(&object) {
                return self.make_static(&raw, &object, has_finalizer).await;
            }
            match status::with_finalizer(&self.ctx.client, S::Object::KIND, raw, MANAGER, FINALIZER).await {
                Ok(Some(raw)) => self.work(&raw, &object, &worker).await,
                Ok(None) => Next::OnChange,
                Err(error) => {
                    tracing::warn!(%error, "finalizer could not be added");
                    Next::Backoff
                }
            }
        })
    }
}

impl<S: Source> Sources<S> {
    async fn work(&self, raw: &DynamicObject, object: &S::Object, worker: &Worker) -> Next {
        let before = S::status(object).cloned().unwrap_or_default();
        let pen = Pen::new(self.ctx.client.clone(), S::Object::KIND, ObjectKey::of(raw), before.clone());
        let mut job: Job<'_, S> =
            Job { ctx: &self.ctx, object, status: before.clone(), worker, raw, pen: pen.clone() };
        if object.suspended() {
            return Next::OnChange.if_told(job.write().await);
        }
        let result = {
            let _until_it_is_over = pen.tell_what_lasts();
            self.fetch(&mut job, &before).await
        };
        let next = job.conclude(&before, result);
        next.if_told(job.write().await)
    }

    async fn fetch(&self, job: &mut Job<'_, S>, before: &S::Status) -> Result<Fetched, Failure> {
        let (observed, generation) = (*before.clone().observed_generation(), job.generation());
        // A failed run before this one left its last word here, and what the disk did then says nothing about now.
        for over in [condition::RECONCILING, STORAGE_OPERATION_FAILED] {
            job.conditions().delete(over);
        }
        let request = job.raw.annotations().get(RECONCILE_REQUEST).cloned();
        if observed != generation {
            let message = format!("processing object: new generation {observed} -> {generation}");
            job.begin(message);
        } else if request.is_some() && request != *job.status.last_handled_reconcile_at() {
            job.begin("reconciliation in progress".to_owned());
        }
        job.check_storage().await?;
        if let Some(depot) = &self.ctx.depot
            && let Some(remote) = self.source.remote(job)
        {
            return depot::fetch(&self.source, job, depot, remote).await;
        }
        self.source.fetch(job).await
    }

    async fn finalize(&self, raw: &DynamicObject) -> Next {
        let tell = |severity, reason: &str, message: String| {
            let happening =
                Happening { severity, reason: reason.to_owned(), message, metadata: BTreeMap::new() };
            self.ctx.events.tell(S::Object::KIND, raw, happening);
        };
        match self.ctx.storage.remove(S::Object::KIND, &ObjectKey::of(raw)) {
            Ok(false) => {}
            Ok(true) => {
                let message = "garbage collected artifacts for deleted resource".to_owned();
                tell(Severity::Trace, "GarbageCollectionSucceeded", message);
            }
            Err(error) => {
                let message = format!("garbage collection for deleted resource failed: {error}");
                tell(Severity::Error, "GarbageCollectionFailed", message);
                return Next::Backoff;
            }
        }
        self.remove_finalizer(raw).await
    }

    async fn remove_finalizer(&self, raw: &DynamicObject) -> Next {
        match status::remove_finalizer(&self.ctx.client, S::Object::KIND, raw, MANAGER, FINALIZER).await {
            Ok(()) => Next::OnChange,
            Err(error) => {
                tracing::warn!(%error, "finalizer could not be removed");
                Next::Backoff
            }
        }
    }

    /// Takes back what was done for the object when it was no static one yet.
    async fn make_static(&self, raw: &DynamicObject, object: &S::Object, has_finalizer: bool) -> Next {
        let before = S::status(object).cloned().unwrap_or_default();
        let mut seen = before.clone();
        let untouched = !has_finalizer
            && seen.conditions().is_empty()
            && seen.artifact().is_none()
            && *seen.observed_generation() <= 0;
        if untouched || object.suspended() {
            return Next::OnChange;
        }
        let key = ObjectKey::of(raw);
        if let Err(error) = self.ctx.storage.remove(S::Object::KIND, &key) {
            tracing::warn!(%error, "artifacts could not be removed");
            return Next::Backoff;
        }
        // The finalizer first: writing the status would make `raw` an old version.
        if has_finalizer && self.remove_finalizer(raw).await != Next::OnChange {
            return Next::Backoff;
        }
        let empty = S::Status::default();
        match status::write(&self.ctx.client, S::Object::KIND, &key, MANAGER, &before, &empty).await {
            Ok(_) => Next::OnChange,
            Err(error) => {
                tracing::warn!(%error, "status could not be cleared");
                Next::Backoff
            }
        }
    }

    fn malformed(&self, raw: &DynamicObject, problem: String) -> Next {
        let happening = Happening {
            severity: Severity::Error,
            reason: "Failed".to_owned(),
            message: format!("the object cannot be read: {problem}"),
            metadata: BTreeMap::new(),
        };
        self.ctx.events.tell(S::Object::KIND, raw, happening);
        Next::OnChange
    }
}
