//! The steps of a bootstrap, and what is said about each.

use std::path::Path;
use std::time::{Duration, SystemTime};

use file_tree::{MemoryTree, TreePath};
use flux_api::kinds as api;
use flux_remote::git::{NewCommit, Person, PushOptions, Signer, Working};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::Value;

use crate::commands::create;
use crate::commands::delete::confirmed;
use crate::commands::install;
use crate::commands::version::CLIENT;
use crate::error::{CliError, fail};
use crate::fleet::seen;
use crate::kinds::{self, condition, text};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::credentials::{GitLogin, SourceLogin};
use super::provider::{Client, Repository};
use super::sync::{self, Sync};

const POLL: Duration = Duration::from_millis(500);

pub(super) struct Bootstrap<'a> {
    pub(super) run: &'a Invocation,
    pub(super) session: &'a Session,
    pub(super) signer: Option<Signer>,
    /// Where we clone from, as it is told.
    pub(super) address: String,
    /// Where the source on the cluster fetches from.
    pub(super) sync_url: String,
    pub(super) provider: Option<(&'a Client, &'a Repository)>,
}

impl Bootstrap<'_> {
    pub(super) async fn go(&self, mut login: GitLogin, source: SourceLogin) -> Result<(), CliError> {
        let folder =
            tempfile::tempdir().map_err(|error| fail!("failed to create temporary working dir: {error}"))?;
        let mut working = self.cloned(&mut login, folder.path()).await?;
        self.components(&mut working, &mut login).await?;
        self.secret(source).await?;
        let sync = self.sync();
        self.synced(&mut working, &mut login, &sync, folder.path()).await?;
        self.healthy(&working).await
    }

    fn branch(&self) -> &str {
        self.run.text("branch")
    }

    fn path(&self) -> &str {
        self.run.some("path").unwrap_or("./")
    }

    fn folder(&self) -> String {
        sync::folder(self.path(), &self.session.namespace)
    }

    fn sync(&self) -> Sync {
        Sync {
            name: self.session.namespace.clone(),
            url: self.sync_url.clone(),
            branch: self.branch().to_owned(),
            secret: self.run.text("secret-name").to_owned(),
            interval: self.run.text("interval").to_owned(),
            path: format!("./{}", self.path().trim_start_matches("./")),
            recurse_submodules: self.run.is("recurse-submodules"),
            sparse_checkout: self.run.list("sparse-checkout"),
        }
    }

    async fn cloned(&self, login: &mut GitLogin, folder: &Path) -> Result<Working, CliError> {
        output::action(&format!("cloning branch {:?} from Git repository {:?}", self.branch(), self.address));
        let working = Working::clone(login.0.as_mut(), folder, self.branch()).await;
        let working = working.map_err(|error| fail!("failed to clone repository: {error}"))?;
        output::success("cloned repository");
        Ok(working)
    }

    async fn components(&self, working: &mut Working, login: &mut GitLogin) -> Result<(), CliError> {
        output::action("generating component manifests");
        let options = install::options(self.run)?;
        let manifests = options.manifests();
        let content = manifests.text(&options)?;
        output::success("generated component manifests");
        let file = format!("{}/gotk-components.yaml", self.folder());
        let what = format!("Add Flux v{CLIENT} component manifests");
        self.committed(working, login, &[(file, content)], &what, "component manifests").await?;
        if self.must_install().await {
            output::action(&format!("installing components in {:?} namespace", self.session.namespace));
            install::apply(self.session, self.with_patches(working, manifests.objects)?).await?;
            output::success("installed components");
        }
        if let Some((user, password)) = install::registry_credentials(self.run)? {
            let name = self.run.text("image-pull-secret");
            let secret =
                create::registry_secret(name, &self.session.namespace, &options.registry, &user, &password);
            let applied = create::apply_secret(self.session, &secret).await;
            applied.map_err(|error| fail!("failed to reconcile image pull secret: {error}"))?;
            output::success(&format!("reconciled image pull secret {name}"));
        }
        output::success("reconciled components");
        Ok(())
    }

    /// The components as the repository's kustomization.yaml patches them, where there is one.
    fn with_patches(&self, working: &Working, objects: Vec<Value>) -> Result<Vec<Value>, CliError> {
        let folder = self.folder();
        if !working.exists(&format!("{folder}/kustomization.yaml")) {
            return Ok(objects);
        }
        let mut files = MemoryTree::new();
        for (path, _) in working.files() {
            let bytes = working.read(path.as_str()).map_err(|error| fail!("{path}: {error}"))?;
            files.insert(path.clone(), bytes.into_owned());
        }
        // A person who prepared the folder may have listed it before there is one.
        let sync = format!("{folder}/gotk-sync.yaml");
        if !working.exists(&sync) {
            files.insert(tree_path(&sync)?, Vec::new());
        }
        built(&files, &folder)
    }

    /// Commits what is not there yet. A second run finds everything as it is.
    async fn committed(
        &self,
        working: &mut Working,
        login: &mut GitLogin,
        files: &[(String, String)],
        message: &str,
        what: &str,
    ) -> Result<bool, CliError> {
        for (path, content) in files {
            let same = working.exists(path)
                && working.read(path).is_ok_and(|bytes| bytes.as_ref() == content.as_bytes());
            if !same {
                let written = working.write(path, content.clone().into_bytes());
                written.map_err(|error| fail!("failed to commit {what}: {error}"))?;
            }
        }
        let mut message = message.to_owned();
        if let Some(appendix) = self.run.some("commit-message-appendix") {
            message.push_str(&format!("\n\n{appendix}"));
        }
        let author = Person::new(self.run.text("author-name"), self.run.text("author-email"));
        let commit = NewCommit { message, author, time: SystemTime::now() };
        let committed = working.commit(&commit, self.signer.as_ref());
        let Some(commit) = committed.map_err(|error| fail!("failed to commit {what}: {error}"))? else {
            output::success(&format!("{what} are up to date"));
            return Ok(false);
        };
        output::success(&format!("committed {what} to {:?} (\"{commit}\")", self.branch()));
        output::action(&format!("pushing {what} to {:?}", self.address));
        let pushed = working.push(login.0.as_mut(), &PushOptions::default()).await;
        let short = if what == "component manifests" { "manifests" } else { what };
        pushed.map_err(|error| fail!("failed to push {short}: {error}"))?;
        Ok(true)
    }

    /// A Flux that follows the repository already will take the change from there.
    async fn must_install(&self) -> bool {
        let found = self.session.get(&api::KUSTOMIZATION, &self.session.namespace).await;
        found.map_or(true, |object| text(&object, "/status/lastAppliedRevision").is_empty())
    }

    async fn secret(&self, source: SourceLogin) -> Result<(), CliError> {
        let (name, namespace) = (self.run.text("secret-name"), &self.session.namespace);
        output::action(&format!("determining if source secret \"{namespace}/{name}\" exists"));
        let api: Api<Secret> = Api::namespaced(self.session.client.clone(), namespace);
        let found = api.get_opt(name).await.map_err(|error| self.session.failed(error, None));
        let found =
            found.map_err(|error| fail!("failed to determine if deploy key secret exists: {error}"))?;
        if found.is_some() && !source.is_given() {
            output::success("source secret up to date");
            return Ok(());
        }
        output::action("generating source secret");
        let secret = source.secret(self.run, name, namespace).await?;
        if let Some(key) = secret.pointer("/stringData/identity.pub").and_then(Value::as_str) {
            self.deploy_key(key).await?;
        }
        output::action(&format!("applying source secret \"{namespace}/{name}\""));
        create::apply_secret(self.session, &secret).await?;
        output::success("reconciled source secret");
        Ok(())
    }

    async fn deploy_key(&self, key: &str) -> Result<(), CliError> {
        output::success(&format!("public key: {}", key.trim()));
        match self.provider {
            Some((client, repository)) => {
                let name = self.key_name();
                if client.deploy_key(self.run, repository, &name, key.trim()).await? {
                    output::success(&format!("configured deploy key {name:?} for {:?}", repository.shown()));
                }
                Ok(())
            }
            None if self.run.is("silent") => Ok(()),
            None => {
                if confirmed("Please give the key access to your repository") {
                    Ok(())
                } else {
                    Err(fail!("aborting"))
                }
            }
        }
    }

    /// Distinct for each cluster that shares a repository.
    fn key_name(&self) -> String {
        key_name(self.run, &self.session.namespace)
    }

    async fn synced(
        &self,
        working: &mut Working,
        login: &mut GitLogin,
        sync: &Sync,
        cache: &Path,
    ) -> Result<(), CliError> {
        self.check_path(sync).await?;
        output::action("generating sync manifests");
        let folder = self.folder();
        let mut files = vec![(format!("{folder}/gotk-sync.yaml"), sync.text()?)];
        let place = format!("{folder}/kustomization.yaml");
        let existing = working.exists(&place).then(|| working.read(&place).map(|bytes| bytes.into_owned()));
        let existing = existing.transpose().map_err(|error| fail!("{place}: {error}"))?;
        let existing = existing.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        files.extend(sync::kustomization(existing.as_deref())?.map(|text| (place, text)));
        output::success("generated sync manifests");
        let pushed =
            self.committed(working, login, &files, "Add Flux sync manifests", "sync manifests").await;
        if let Err(error) = pushed {
            if !error.to_string().contains("non-fast-forward") {
                return Err(error);
            }
            // Flux itself, or somebody else, was quicker.
            output::waiting("git conflict detected, retrying with a fresh clone");
            *working = Working::clone(login.0.as_mut(), cache, self.branch())
                .await
                .map_err(|error| fail!("failed to clone repository: {error}"))?;
            self.committed(working, login, &files, "Add Flux sync manifests", "sync manifests").await?;
        }
        output::action("applying sync manifests");
        let mut objects = Vec::new();
        let options = install::options(self.run)?;
        objects.extend(self.applied_with_sync(working, options.manifests().objects, sync)?);
        install::apply(self.session, objects).await?;
        output::success("reconciled sync configuration");
        Ok(())
    }

    /// Everything that kustomization.yaml makes of the folder, so that patches of the sync count too.
    fn applied_with_sync(
        &self,
        working: &Working,
        components: Vec<Value>,
        sync: &Sync,
    ) -> Result<Vec<Value>, CliError> {
        let folder = self.folder();
        let mut files = MemoryTree::new();
        for (path, _) in working.files() {
            let bytes = working.read(path.as_str()).map_err(|error| fail!("{path}: {error}"))?;
            files.insert(path.clone(), bytes.into_owned());
        }
        match built(&files, &folder) {
            Ok(objects) => Ok(objects),
            // Without a kustomization.yaml there is nothing but ours.
            Err(_) if !working.exists(&format!("{folder}/kustomization.yaml")) => {
                Ok(components.into_iter().chain(sync.objects()).collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Two paths would fight over one cluster.
    async fn check_path(&self, sync: &Sync) -> Result<(), CliError> {
        let found = match self.session.get(&api::KUSTOMIZATION, &sync.name).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() || error.is_no_such_kind() => return Ok(()),
            Err(error) => {
                return Err(fail!(
                    "failed to determine if sync configuration would overwrite existing Kustomization: {error}"
                ));
            }
        };
        let normal = |path: &str| format!("./{}", path.trim_start_matches("./").trim_end_matches('/'));
        let current = text(&found, "/spec/path");
        if normal(current) == normal(&sync.path) {
            return Ok(());
        }
        Err(fail!(
            "sync path configuration ({:?}) would overwrite path ({current:?}) of existing Kustomization",
            sync.path
        ))
    }

    async fn healthy(&self, working: &Working) -> Result<(), CliError> {
        let head = working.head().map(|commit| commit.to_string()).unwrap_or_default();
        let revision = format!("{}@sha1:{head}", self.branch());
        let mut failed = Vec::new();
        for (kind, pointer) in [
            (&api::GIT_REPOSITORY, "/status/artifact/revision"),
            (&api::KUSTOMIZATION, "/status/lastAppliedRevision"),
        ] {
            if let Err(error) = self.reconciled(kind, pointer, &revision).await {
                output::failure(&error);
                failed.push(format!("error while waiting for {} to be ready: '{error}'", kind.kind));
            }
        }
        output::action("confirming components are healthy");
        let options = install::options(self.run)?;
        let names: Vec<&str> = options.components.iter().map(|component| component.name()).collect();
        if install::deployments_ready(self.session, &names).await {
            output::success("all components are healthy");
        } else {
            failed.push("timed out waiting for all resources to be ready".to_owned());
        }
        match failed.len() {
            0 => Ok(()),
            1 => Err(fail!("bootstrap failed with 1 health check failure(s): {}", failed[0])),
            several => {
                Err(fail!("bootstrap failed with {several} health check failure(s): [{}]", failed.join(", ")))
            }
        }
    }

    async fn reconciled(&self, kind: &api::Kind, pointer: &str, revision: &str) -> Result<(), String> {
        let name = &self.session.namespace;
        let shown = format!("{name}/{name}");
        output::waiting(&format!("waiting for {} {shown:?} to be reconciled", kind.kind));
        let (mut last, mut asked) = (String::new(), false);
        let waiting = async {
            loop {
                let object = self.session.get(kind, name).await.map_err(|error| error.to_string())?;
                if kinds::is_suspended(&object) {
                    return Err(format!("{} '{shown}' is suspended", kind.kind));
                }
                let current =
                    object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
                if let Some(ready) = condition(&object, "Ready").filter(|_| current) {
                    let at_it = text(&object, pointer) == revision;
                    if !at_it && !asked && *kind == api::GIT_REPOSITORY {
                        // Else the whole interval would pass before it looks.
                        asked = seen::request(&self.session.client, kind, name, name).await.is_ok();
                    }
                    match text(ready, "/status") {
                        "True" if at_it => return Ok(()),
                        "False" => return Err(text(ready, "/message").to_owned()),
                        _ => text(ready, "/message").clone_into(&mut last),
                    }
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(self.session.timeout, waiting).await {
            Ok(Ok(())) => {
                output::success(&format!("{} reconciled successfully", kind.kind));
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) if last.is_empty() => Err("context deadline exceeded".to_owned()),
            Err(_) => Err(format!("{} '{shown}' not ready: '{last}'", kind.kind.to_lowercase())),
        }
    }
}

pub(super) fn key_name(run: &Invocation, namespace: &str) -> String {
    let path = run.some("path").unwrap_or_default();
    let parts = [namespace, run.text("branch"), run.text("secret-name"), path];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn tree_path(text: &str) -> Result<TreePath, CliError> {
    TreePath::parse(text).map_err(|_| fail!("{text} is outside of the repository"))
}

/// What kustomize makes of a folder of the repository.
fn built(files: &MemoryTree, folder: &str) -> Result<Vec<Value>, CliError> {
    let failed = |error: &dyn std::fmt::Display| fail!("kustomize build failed: {error}");
    let spec = serde_json::json!({"interval": "0s", "prune": true, "path": format!("./{folder}")});
    let spec = serde_json::from_value(spec).map_err(|error| failed(&error))?;
    let input = flux_build::Input { strict: false, ..flux_build::Input::new(&spec, files) };
    let built = flux_build::kustomization(&input).map_err(|error| fail!("{error}"))?;
    Ok(flux_controllers::kustomize::manifests::flatten(built.objects))
}
