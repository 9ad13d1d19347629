//! GitRepository: the files of a commit as an artifact.
//!
//! Looks at the remote first and fetches only when something changed. Whatever fails, the last artifact stays
//! where it is and is served on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use file_tree::{Files, TreePath};
use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::kinds::{self, Kind};
use flux_api::revision::Revision;
use flux_api::source::{GitRepository, GitRepositoryStatus};
use flux_remote::git::{self, Checkout, Commit, Http, Limits, Mode, ObjectStore, Pick, Reference};
use flux_remote::ignore::{self, Ignore};
use flux_remote::local::{LocalFolder, Place};
use sha2::{Digest, Sha256};
use url::Url;

use super::skeleton::{self, Fetched, Job, Source};
use super::{Context, FETCH_FAILED, STORAGE_OPERATION_FAILED, credentials};
use crate::artifact::storage::{Contents, Each};
use crate::reconcile::{ObjectKey, Worker};

const KIND: &Kind = &kinds::GIT_REPOSITORY;

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

impl Source for GitRepositories {
    type Object = GitRepository;
    type Status = GitRepositoryStatus;

    fn status(object: &GitRepository) -> Option<&GitRepositoryStatus> {
        object.status.as_ref()
    }

    fn interval(object: &GitRepository) -> Duration {
        object.spec.interval.to_std()
    }

    async fn fetch(&self, job: &mut Job<'_, Self>) -> Result<Fetched, skeleton::Failure> {
        let commit = self.fetch_in_time(job.object, &mut job.status, job.worker).await?;
        let Some(artifact) = &job.status.artifact else {
            return Ok(Fetched::succeeded(String::new(), String::new()));
        };
        let message = format!("stored artifact for revision '{}'", artifact.revision);
        let news = match commit {
            Some(commit) => format!("stored artifact for commit '{}'", subject(&commit.message)),
            None => message.clone(),
        };
        Ok(Fetched::succeeded(message, news))
    }
}

impl From<Failure> for skeleton::Failure {
    fn from(failure: Failure) -> Self {
        let told = skeleton::Failure::new(failure.condition(), failure.reason(), failure.to_string());
        if failure.stalls() { told.stalled() } else { told }
    }
}

impl GitRepositories {
    /// Fetches and stores when the remote has something new; says what was stored.
    async fn fetch_in_time(
        &self,
        object: &GitRepository,
        after: &mut GitRepositoryStatus,
        worker: &Worker,
    ) -> Result<Option<Commit>, Failure> {
        let limit = object.spec.timeout().to_std();
        let fetched = worker.outside(tokio::time::timeout(limit, self.fetch_remote(object, after))).await;
        match fetched {
            Ok(result) => result,
            Err(_) => Err(Failure::TimedOut { url: object.spec.url.clone(), seconds: limit.as_secs() }),
        }
    }

    async fn fetch_remote(
        &self,
        object: &GitRepository,
        after: &mut GitRepositoryStatus,
    ) -> Result<Option<Commit>, Failure> {
        let url = parse_url(&object.spec.url)?;
        if let Some(local) = self.ctx.local.as_ref().filter(|local| local.serves(&object.spec.url)) {
            return self.fetch_local(object, after, local.place.clone()).await;
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
        place: Place,
    ) -> Result<Option<Commit>, Failure> {
        let (storage, spec) = (self.ctx.storage.clone(), object.spec.clone());
        let key = ObjectKey::new(Object::namespace(object), object.name());
        let current = after.artifact.as_ref().map(|artifact| artifact.revision.clone());
        let stored = tokio::task::spawn_blocking(move || {
            let failed =
                |error: io::Error| Failure::Unsupported(format!("{}: {error}", place.folder.display()));
            let files = place.open().map_err(failed)?;
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
        let in_url = url.password().map(|password| credentials::basic(url.username(), password));
        let authorization = login.authorization.or(in_url).map(flux_api::secret::Secret::into_exposed);
        Http::new(builder, url, authorization).map_err(failed)
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
