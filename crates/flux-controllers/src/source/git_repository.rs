//! GitRepository: the files of a commit as an artifact.
//!
//! Looks at the remote first and fetches only when something changed. Whatever fails, the last artifact stays
//! where it is and is served on.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use file_tree::{Files, TreePath};
use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::{self, Kind};
use flux_api::revision::Revision;
use flux_api::source::{GitRepository, GitRepositoryStatus};
use flux_remote::git::{self, Checkout, Commit, Http, Limits, Mode, ObjectStore, Pick, Reference};
use flux_remote::ignore::{self, Ignore};
use flux_remote::local::LocalFolder;
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::DynamicObject;
use sha2::{Digest, Sha256};
use url::Url;

use super::{
    ARTIFACT_IN_STORAGE, ARTIFACT_OUTDATED, Context, FETCH_FAILED, STORAGE_OPERATION_FAILED, credentials,
    summarize,
};
use crate::artifact::storage::{Contents, Each};
use crate::reconcile::events::Happening;
use crate::reconcile::{Conditions, Next, ObjectKey, Reconcile, Severity, Worker, jittered, status};
use flux_api::names::{FINALIZER, RECONCILE_REQUEST};

const KIND: &Kind = &kinds::GIT_REPOSITORY;
const MANAGER: &str = "source-controller";

pub struct GitRepositories {
    pub ctx: Arc<Context>,
}

/// Why a run ended without a new artifact. Each has its reason and says whether trying again can help.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("failed to checkout and determine revision: unable to clone '{url}': {cause}")]
    Git { url: String, cause: git::Error },
    #[error(
        "failed to checkout and determine revision: unable to clone '{url}': no answer within {seconds} s"
    )]
    TimedOut { url: String, seconds: u64 },
    #[error("failed to configure authentication options: {0}")]
    Login(#[from] credentials::Error),
    #[error("invalid URL '{url}': {cause}")]
    Url { url: String, cause: String },
    #[error("{0}")]
    Unsupported(String),
    #[error("unable to archive artifact to storage: {0}")]
    Storage(String),
}

impl Failure {
    fn condition(&self) -> &'static str {
        match self {
            Failure::Git { .. }
            | Failure::TimedOut { .. }
            | Failure::Login(_)
            | Failure::Url { .. }
            | Failure::Unsupported(_) => FETCH_FAILED,
            Failure::Storage(_) => STORAGE_OPERATION_FAILED,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Failure::Git { cause: git::Error::Empty, .. } => "EmptyGitRepository",
            Failure::Git { .. } | Failure::TimedOut { .. } | Failure::Unsupported(_) => "GitOperationFailed",
            Failure::Login(_) => "AuthenticationFailed",
            Failure::Url { .. } => "URLInvalid",
            Failure::Storage(_) => "ArchiveOperationFailed",
        }
    }

    /// Only a change of the object can help.
    fn stalls(&self) -> bool {
        matches!(self, Failure::Url { .. })
    }
}

impl Reconcile for GitRepositories {
    fn kind(&self) -> &'static Kind {
        KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let object: GitRepository = match crate::reconcile::decode(&raw) {
                Ok(object) => object,
                Err(problem) => return self.malformed(&raw, problem),
            };
            if object.is_deleting() {
                return self.finalize(&raw).await;
            }
            if !raw.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
                return self.add_finalizer(&raw).await;
            }
            self.work(&raw, &object, &worker).await
        })
    }
}

impl GitRepositories {
    async fn work(&self, raw: &DynamicObject, object: &GitRepository, worker: &Worker) -> Next {
        let before = object.status.clone().unwrap_or_default();
        let mut after = before.clone();
        if let Some(request) = raw.annotations().get(RECONCILE_REQUEST) {
            after.last_handled_reconcile_at = Some(request.clone());
        }
        if object.spec.suspend {
            self.write(raw, &before, &after).await;
            return Next::OnChange;
        }
        let result = self.fetch(object, &mut after, worker).await;
        let next = self.conclude(raw, object, &before, &mut after, result);
        self.write(raw, &before, &after).await;
        next
    }

    /// Fetches and stores when the remote has something new; says what was stored.
    async fn fetch(
        &self,
        object: &GitRepository,
        after: &mut GitRepositoryStatus,
        worker: &Worker,
    ) -> Result<Option<Commit>, Failure> {
        self.check_storage(after).await?;
        let limit = object.spec.timeout().to_std();
        let fetched = worker.outside(tokio::time::timeout(limit, self.fetch_remote(object, after))).await;
        match fetched {
            Ok(result) => result,
            Err(_) => Err(Failure::TimedOut { url: object.spec.url.clone(), seconds: limit.as_secs() }),
        }
    }

    /// A missing or damaged file is forgotten, so that it is made again.
    async fn check_storage(&self, after: &mut GitRepositoryStatus) -> Result<(), Failure> {
        let Some(artifact) = after.artifact.clone() else {
            return Ok(());
        };
        let storage = self.ctx.storage.clone();
        let path = artifact.path.clone();
        let intact = tokio::task::spawn_blocking(move || storage.verify(&artifact))
            .await
            .map_err(|error| Failure::Storage(error.to_string()))?
            .map_err(|error| Failure::Storage(error.to_string()))?;
        if !intact {
            after.artifact = None;
            condition::delete(&mut after.conditions, ARTIFACT_IN_STORAGE);
        } else if let Some(artifact) = &mut after.artifact {
            artifact.url = self.ctx.storage.url(&path);
        }
        Ok(())
    }

    async fn fetch_remote(
        &self,
        object: &GitRepository,
        after: &mut GitRepositoryStatus,
    ) -> Result<Option<Commit>, Failure> {
        let url = parse_url(&object.spec.url)?;
        if let Some(local) = self.ctx.local.as_ref().filter(|local| local.serves(&object.spec.url)) {
            return self.fetch_local(object, after, local.folder.clone()).await;
        }
        let mut remote = self.connect(object, &url).await?;
        let reference = reference(object);
        let failed = |cause| Failure::Git { url: object.spec.url.clone(), cause };
        let prefixes = reference.prefixes();
        let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        let refs = git::list_refs(&mut remote, &prefixes, Limits::DEFAULT).await.map_err(failed)?;
        let pick = git::pick(&reference, &refs).map_err(failed)?;
        if is_current(object, after, &pick) {
            return Ok(None);
        }
        let mut store = ObjectStore::open(&self.cache_folder(object)).map_err(failed)?;
        let depth = if pick.deep { None } else { Some(1) };
        let mut wants = vec![pick.want];
        wants.extend(pick.rivals.iter().map(|rival| rival.target));
        git::fetch(&mut remote, &mut store, &wants, depth, Limits::DEFAULT).await.map_err(failed)?;

        let (artifact, commit) = self.store(object, store, pick).await?;
        after.artifact = Some(artifact);
        after.observed_ignore = object.spec.ignore.clone();
        after.observed_sparse_checkout = object.spec.sparse_checkout.clone();
        after.observed_recurse_submodules = object.spec.recurse_submodules;
        Ok(Some(commit))
    }

    /// The files of a folder as they are now, under a revision made of their contents.
    async fn fetch_local(
        &self,
        object: &GitRepository,
        after: &mut GitRepositoryStatus,
        folder: std::path::PathBuf,
    ) -> Result<Option<Commit>, Failure> {
        let (storage, spec) = (self.ctx.storage.clone(), object.spec.clone());
        let key = ObjectKey::new(Object::namespace(object), object.name());
        let current = after.artifact.as_ref().map(|artifact| artifact.revision.clone());
        let stored = tokio::task::spawn_blocking(move || {
            let failed = |error: io::Error| Failure::Unsupported(format!("{}: {error}", folder.display()));
            let files = LocalFolder::list(&folder).map_err(failed)?;
            let digest = files.digest().map_err(failed)?;
            let branch =
                spec.reference.as_ref().and_then(|reference| reference.branch.as_deref()).unwrap_or("main");
            let revision = Revision::from(format!("{branch}@sha1:{digest}"));
            if current.as_ref() == Some(&revision) {
                return Ok::<_, Failure>(None);
            }
            let rules = local_rules(&files, spec.ignore.as_deref());
            let mut contents = KeptLocal { files: &files, rules };
            let artifact = storage.store(KIND, &key, &format!("{digest}.tar.gz"), revision, &mut contents);
            let artifact = artifact.map_err(|error| Failure::Storage(error.to_string()))?;
            if let Err(error) = storage.collect(KIND, &key, &artifact) {
                tracing::warn!(%error, "old artifacts could not be removed");
            }
            Ok(Some(artifact))
        });
        if let Some(artifact) = stored.await.map_err(|error| Failure::Storage(error.to_string()))?? {
            after.artifact = Some(artifact);
            after.observed_ignore = object.spec.ignore.clone();
        }
        Ok(None)
    }

    async fn connect(&self, object: &GitRepository, url: &Url) -> Result<Http, Failure> {
        let failed = |cause| Failure::Git { url: object.spec.url.clone(), cause };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Failure::Unsupported(format!("scheme '{}' is not supported", url.scheme())));
        }
        let login = match &object.spec.secret_ref {
            Some(reference) => {
                let secret =
                    credentials::secret(&self.ctx.client, Object::namespace(object), &reference.name).await?;
                credentials::http_login(&secret)?
            }
            None => credentials::HttpLogin::default(),
        };
        let mut builder = reqwest::Client::builder().user_agent("flux/v2");
        if let Some(ca) = &login.ca {
            let bundle = reqwest::Certificate::from_pem_bundle(ca)
                .map_err(|error| Failure::Unsupported(format!("ca.crt: {error}")))?;
            builder = builder.tls_certs_merge(bundle);
        }
        if let Some(pem) = &login.client_certificate {
            let identity = reqwest::Identity::from_pem(pem.expose().as_bytes())
                .map_err(|_| Failure::Unsupported("tls.crt and tls.key are no valid pair".to_owned()))?;
            builder = builder.identity(identity);
        }
        let client = builder
            .build()
            .map_err(|error| failed(git::Error::Unreachable(error.without_url().to_string())))?;
        let in_url = url.password().map(|password| credentials::basic(url.username(), password));
        let authorization = login.authorization.or(in_url).map(flux_api::secret::Secret::into_exposed);
        Http::new(client, url, authorization).map_err(failed)
    }

    /// One folder for each remote and set of credentials' owner, so that nobody reads what another may.
    fn cache_folder(&self, object: &GitRepository) -> std::path::PathBuf {
        let identity = format!("{}\n{}\n{}", Object::namespace(object), object.name(), object.spec.url);
        let hash: String = Sha256::digest(identity).iter().map(|byte| format!("{byte:02x}")).collect();
        self.ctx.object_cache.join(&hash[..32])
    }

    async fn store(
        &self,
        object: &GitRepository,
        store: ObjectStore,
        mut pick: Pick,
    ) -> Result<(Artifact, Commit), Failure> {
        let (storage, spec, url) = (self.ctx.storage.clone(), object.spec.clone(), object.spec.url.clone());
        let key = ObjectKey::new(Object::namespace(object), object.name());
        let stored = tokio::task::spawn_blocking(move || {
            let failed = |cause| Failure::Git { url: url.clone(), cause };
            settle_rivals(&store, &mut pick).map_err(failed)?;
            let commit = store.commit(pick.commit).map_err(failed)?;
            let checkout = Checkout::new(&store, pick.commit).map_err(failed)?;
            let rules = ignore_rules(&checkout, spec.ignore.as_deref());
            let mut contents = Kept { checkout: &checkout, rules, sparse: &spec.sparse_checkout };
            contents.check_sparse().map_err(Failure::Unsupported)?;
            let revision = Revision::from(pick.revision());
            let name = format!("{}.tar.gz", pick.commit);
            let artifact = storage
                .store(KIND, &key, &name, revision, &mut contents)
                .map_err(|error| Failure::Storage(error.to_string()))?;
            if let Err(error) = storage.collect(KIND, &key, &artifact) {
                tracing::warn!(%error, "old artifacts could not be removed");
            }
            Ok((artifact, commit))
        });
        stored.await.map_err(|error| Failure::Storage(error.to_string()))?
    }

    fn conclude(
        &self,
        raw: &DynamicObject,
        object: &GitRepository,
        before: &GitRepositoryStatus,
        after: &mut GitRepositoryStatus,
        result: Result<Option<Commit>, Failure>,
    ) -> Next {
        let generation = object.generation();
        let mut conditions = Conditions { list: &mut after.conditions, generation };
        match result {
            Ok(commit) => {
                for cured in [FETCH_FAILED, STORAGE_OPERATION_FAILED, ARTIFACT_OUTDATED] {
                    conditions.delete(cured);
                }
                conditions.delete(condition::RECONCILING);
                conditions.delete(condition::STALLED);
                if let Some(artifact) = &after.artifact {
                    let message = format!("stored artifact for revision '{}'", artifact.revision);
                    conditions.set(ARTIFACT_IN_STORAGE, ConditionStatus::True, "Succeeded", message);
                }
                summarize(&mut conditions);
                after.observed_generation = generation;
                self.tell_success(raw, before, after, commit.as_ref());
                Next::After(jittered(object.spec.interval.to_std(), self.ctx.jitter_percent))
            }
            Err(failure) => {
                let message = failure.to_string();
                conditions.set(failure.condition(), ConditionStatus::True, failure.reason(), message.clone());
                if failure.stalls() {
                    conditions.set(
                        condition::STALLED,
                        ConditionStatus::True,
                        failure.reason(),
                        message.clone(),
                    );
                    after.observed_generation = generation;
                } else {
                    let progress = "reconciliation in progress";
                    conditions.set(
                        condition::RECONCILING,
                        ConditionStatus::True,
                        "ProgressingWithRetry",
                        progress,
                    );
                }
                let mut conditions = Conditions { list: &mut after.conditions, generation };
                summarize(&mut conditions);
                let happening = Happening {
                    severity: Severity::Error,
                    reason: failure.reason().to_owned(),
                    message,
                    metadata: BTreeMap::new(),
                };
                self.ctx.events.tell(KIND, raw, happening);
                if failure.stalls() { Next::OnChange } else { Next::Backoff }
            }
        }
    }

    fn tell_success(
        &self,
        raw: &DynamicObject,
        before: &GitRepositoryStatus,
        after: &GitRepositoryStatus,
        commit: Option<&Commit>,
    ) {
        let Some(artifact) = &after.artifact else { return };
        let is_new = before.artifact.as_ref().is_none_or(|old| old.digest != artifact.digest);
        let recovered = [FETCH_FAILED, STORAGE_OPERATION_FAILED]
            .iter()
            .any(|kind| condition::is(&before.conditions, kind, ConditionStatus::True));
        let reason = match (is_new, recovered) {
            (true, _) => "NewArtifact",
            (false, true) => "Succeeded",
            (false, false) => return,
        };
        let message = match commit {
            Some(commit) => format!("stored artifact for commit '{}'", subject(&commit.message)),
            None => format!("stored artifact for revision '{}'", artifact.revision),
        };
        let metadata = BTreeMap::from([
            (format!("{}/revision", KIND.group), artifact.revision.to_string()),
            (format!("{}/digest", KIND.group), artifact.digest.to_string()),
        ]);
        let happening = Happening { severity: Severity::Info, reason: reason.to_owned(), message, metadata };
        self.ctx.events.tell(KIND, raw, happening);
    }

    async fn write(&self, raw: &DynamicObject, before: &GitRepositoryStatus, after: &GitRepositoryStatus) {
        let key = ObjectKey::of(raw);
        if let Err(error) = status::write(&self.ctx.client, KIND, &key, MANAGER, before, after).await {
            tracing::warn!(%error, "status could not be written");
        }
    }

    async fn add_finalizer(&self, raw: &DynamicObject) -> Next {
        let mut finalizers = raw.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        match status::write_finalizers(&self.ctx.client, KIND, raw, MANAGER, &finalizers).await {
            Ok(()) => Next::Now,
            Err(error) => {
                tracing::warn!(%error, "finalizer could not be added");
                Next::Backoff
            }
        }
    }

    async fn finalize(&self, raw: &DynamicObject) -> Next {
        let key = ObjectKey::of(raw);
        if let Err(error) = self.ctx.storage.remove(KIND, &key) {
            tracing::warn!(%error, "artifacts could not be removed");
            return Next::Backoff;
        }
        let finalizers: Vec<String> =
            raw.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
        match status::write_finalizers(&self.ctx.client, KIND, raw, MANAGER, &finalizers).await {
            Ok(()) => Next::OnChange,
            Err(_) => Next::Backoff,
        }
    }

    fn malformed(&self, raw: &DynamicObject, problem: String) -> Next {
        let happening = Happening {
            severity: Severity::Error,
            reason: "Failed".to_owned(),
            message: format!("the object cannot be read: {problem}"),
            metadata: BTreeMap::new(),
        };
        self.ctx.events.tell(KIND, raw, happening);
        Next::OnChange
    }
}

fn parse_url(text: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|error| Failure::Url { url: text.to_owned(), cause: error.to_string() })
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
fn is_current(object: &GitRepository, status: &GitRepositoryStatus, pick: &Pick) -> bool {
    let same_revision =
        status.artifact.as_ref().is_some_and(|have| have.revision.as_str() == pick.revision());
    same_revision
        && pick.rivals.is_empty()
        && status.observed_ignore == object.spec.ignore
        && status.observed_sparse_checkout == object.spec.sparse_checkout
        && status.observed_recurse_submodules == object.spec.recurse_submodules
}

/// Among tags of the same version the newest commit wins.
fn settle_rivals(store: &ObjectStore, pick: &mut Pick) -> Result<(), git::Error> {
    let mut newest = store.commit(pick.commit)?.time;
    for rival in std::mem::take(&mut pick.rivals) {
        let time = store.commit(rival.commit())?.time;
        if time > newest {
            newest = time;
            pick.commit = rival.commit();
            pick.tag = rival.peeled.map(|_| rival.target);
            pick.label = Some(rival.name.trim_start_matches("refs/tags/").to_owned());
        }
    }
    Ok(())
}

fn ignore_rules(checkout: &Checkout<'_>, spec: Option<&str>) -> Ignore {
    let mut texts: Vec<(TreePath, String)> = Vec::new();
    for folder in checkout.folders() {
        if let Ok(bytes) = checkout.read(&folder.child(ignore::FILE_NAME)) {
            texts.push((folder.clone(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ignore::for_source(texts.iter().map(|(folder, text)| (folder, text.as_str())), spec)
}

fn local_rules(files: &LocalFolder, spec: Option<&str>) -> Ignore {
    let mut texts: Vec<(TreePath, String)> = Vec::new();
    for file in files.files().iter().filter(|file| file.path.file_name() == Some(ignore::FILE_NAME)) {
        if let Ok(bytes) = files.read(&file.path) {
            let folder = file.path.parent().unwrap_or_default();
            texts.push((folder, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ignore::for_source(texts.iter().map(|(folder, text)| (folder, text.as_str())), spec)
}

/// The files of a folder that the rules leave in.
struct KeptLocal<'a> {
    files: &'a LocalFolder,
    rules: Ignore,
}

impl Contents for KeptLocal<'_> {
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        for file in self.files.files() {
            if !self.rules.excludes(&file.path, false) {
                each(&file.path, file.executable, &self.files.read(&file.path)?)?;
            }
        }
        Ok(())
    }
}

/// The first line of a commit message, at most 50 characters of it.
fn subject(message: &str) -> String {
    message.trim().lines().next().unwrap_or_default().chars().take(50).collect()
}

/// The files of a checkout that the rules leave in.
struct Kept<'a> {
    checkout: &'a Checkout<'a>,
    rules: Ignore,
    sparse: &'a [String],
}

impl Kept<'_> {
    fn check_sparse(&self) -> Result<(), String> {
        for folder in self.sparse {
            let path = TreePath::parse(folder).map_err(|error| error.to_string())?;
            if self.checkout.kind(&path).is_none() {
                return Err(format!("sparse checkout dir '{folder}' does not exist in repository"));
            }
        }
        Ok(())
    }

    fn is_wanted(&self, path: &TreePath) -> bool {
        let sparse = || {
            self.sparse
                .iter()
                .filter_map(|folder| TreePath::parse(folder).ok())
                .any(|folder| path.is_within(&folder))
        };
        (self.sparse.is_empty() || sparse()) && !self.rules.excludes(path, false)
    }
}

impl Contents for Kept<'_> {
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        let mut reader = self.checkout.reader();
        for (path, file) in self.checkout.files() {
            let executable = match file.mode {
                Mode::Regular => false,
                Mode::Executable => true,
                Mode::Symlink | Mode::Submodule => continue,
            };
            if self.is_wanted(path) {
                each(path, executable, reader.blob(file.id).map_err(io::Error::other)?)?;
            }
        }
        Ok(())
    }
}
