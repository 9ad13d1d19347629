//! Where the files of a fleet come from, and which of its folders are clusters.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use file_tree::TreePath;
use flux_remote::git::{Http, Limits, LocalRepository, Mode, RemoteRef, Working, list_refs};
use flux_remote::local::{LocalFolder, Place};
use serde_json::Value;
use tempfile::TempDir;
use url::Url;

const SYNC_FILE: &str = "gotk-sync.yaml";

/// A repository as a person hands it over.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    pub(crate) place: Place,
    /// The address under which the cluster knows it.
    pub(crate) url: String,
    /// All addresses that mean it: its own, and those of its remotes.
    pub(crate) urls: Vec<String>,
    pub(crate) branch: String,
    pub(crate) is_bare: bool,
    /// Of a repository elsewhere: a copy of its files, which goes with the last who holds it.
    pub(crate) clone: Option<Arc<TempDir>>,
}

/// A folder that is a cluster: what bootstrap would point at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    /// Below the root of the fleet; `.` for all of it.
    pub(crate) path: String,
    /// The address that `gotk-sync.yaml` has for this repository.
    pub(crate) url: Option<String>,
}

impl Fleet {
    /// `revision` of the repository that `folder` is or lies in; the files as they are where `None`, or where the
    /// folder belongs to no repository.
    pub(crate) fn open(folder: &Path, revision: Option<&str>) -> Result<Fleet> {
        let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
        let repository = LocalRepository::find(&folder).with_context(|| folder.display().to_string())?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = name.trim_end_matches(".git");
        let url = format!("http://localhost/{}.git", if name.is_empty() { "fleet" } else { name });
        let mut urls = vec![url.clone()];
        let mut place = Place { folder, revision: None };
        let (mut branch, mut is_bare) = ("main".to_owned(), false);
        match repository {
            Some((repository, inside)) => {
                place.revision = revision.map(str::to_owned);
                is_bare = !place.folder.join(".git").exists() && place.folder.join("HEAD").is_file();
                // Files as they are belong to no branch.
                let current = repository.branch().filter(|_| revision.is_some());
                branch = current.unwrap_or(branch);
                // A folder inside of a repository is a fleet of its own: the remote means the whole.
                if inside.is_root() {
                    urls.extend(repository.remotes());
                }
            }
            None if revision.is_some_and(|revision| revision != "HEAD") => {
                bail!(
                    "{}: not a Git repository, so there is no {}",
                    place.folder.display(),
                    revision.unwrap_or_default()
                );
            }
            None => {}
        }
        Ok(Fleet { place, url, urls, branch, is_bare, clone: None })
    }

    /// The default branch of a repository elsewhere, without a login.
    pub(crate) async fn clone_of(url: &str) -> Result<Fleet> {
        let address = Url::parse(url).with_context(|| url.to_owned())?;
        if !matches!(address.scheme(), "http" | "https") {
            bail!("{url}: only http and https addresses are fetched; clone it yourself and give the folder");
        }
        if !address.username().is_empty() || address.password().is_some() {
            bail!(
                "the address holds a login, which objects would show; clone it yourself and give the folder"
            );
        }
        let folder = tempfile::Builder::new().prefix("flux-clone-").tempdir()?;
        let mut remote =
            Http::new(reqwest::Client::builder(), &address, None).with_context(|| url.to_owned())?;
        let refs = list_refs(&mut remote, &["HEAD", "refs/heads/"], Limits::DEFAULT)
            .await
            .with_context(|| url.to_owned())?;
        let branch = default_branch(&refs).with_context(|| format!("{url}: there is no branch yet"))?;
        let objects = folder.path().join("objects");
        let working = Working::clone(&mut remote, &objects, &branch).await.with_context(|| url.to_owned())?;
        let files = folder.path().join("files");
        std::fs::create_dir_all(&files)?;
        for (path, mode) in working.files() {
            // What Kustomizations are made of; the rest the source fetches by itself.
            if matches!(mode, Mode::Regular | Mode::Executable) {
                let target = files.join(path.as_str());
                target.parent().map(std::fs::create_dir_all).transpose()?;
                std::fs::write(target, working.read(path.as_str())?)?;
            }
        }
        let place = Place { folder: files, revision: None };
        let urls = vec![url.to_owned()];
        Ok(Fleet { place, url: url.to_owned(), urls, branch, is_bare: false, clone: Some(Arc::new(folder)) })
    }

    /// The same fleet at another commit.
    pub(crate) fn at(&self, revision: &str) -> Fleet {
        let place = Place { folder: self.place.folder.clone(), revision: Some(revision.to_owned()) };
        Fleet { place, ..self.clone() }
    }

    /// What follows the files: `HEAD`, a commit, or the files as they are.
    pub(crate) fn describe(&self) -> String {
        if self.clone.is_some() {
            return format!("{} at {}", self.url, self.branch);
        }
        let folder = self.place.folder.display();
        match &self.place.revision {
            Some(revision) => format!("{folder} at {revision}"),
            None => format!("the files in {folder}"),
        }
    }
}

/// The fleet that comes with the sources, where a person can change it; a binary elsewhere brings a copy.
pub(crate) fn example() -> PathBuf {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fleet"));
    match folder.is_dir() {
        true => folder.to_owned(),
        // What went wrong is told when the folder is opened.
        false => super::example::unpack().unwrap_or_else(|_| folder.to_owned()),
    }
}

/// Whether a person means an address, not a folder.
pub(crate) fn is_url(text: &str) -> bool {
    text.contains("://") || (text.contains('@') && text.contains(':') && !Path::new(text).exists())
}

/// The branch that HEAD is at, the usual names first.
fn default_branch(refs: &[RemoteRef]) -> Option<String> {
    let head = refs.iter().find(|one| one.name == "HEAD").map(|one| one.target);
    let branches = || refs.iter().filter_map(|one| Some((one.name.strip_prefix("refs/heads/")?, one.target)));
    let at_head =
        |name: &&str| head.is_none() || branches().any(|(one, target)| one == *name && Some(target) == head);
    let usual =
        ["main", "master"].into_iter().filter(|name| branches().any(|(one, _)| one == *name)).find(at_head);
    usual.or_else(|| branches().map(|(name, _)| name).find(at_head)).map(str::to_owned)
}

/// The folder asked for; else those that bootstrap has marked; else those in `clusters/`; else everything.
pub(crate) fn entry_points(files: &LocalFolder, asked: Option<&str>) -> Result<Vec<EntryPoint>> {
    let folders = folders(files);
    let synced = synced(files);
    if let Some(asked) = asked {
        let path = asked.trim_start_matches("./").trim_end_matches('/');
        let path = if path.is_empty() { "." } else { path };
        if path != "." && !folders.contains(path) {
            bail!("--path {asked}: there is no such folder{}", instead(&folders));
        }
        let url = synced.iter().find(|sync| sync.path == path).and_then(|sync| sync.url.clone());
        return Ok(vec![EntryPoint { path: path.to_owned(), url }]);
    }
    if !synced.is_empty() {
        return Ok(synced);
    }
    let plain = |path: &str| EntryPoint { path: path.to_owned(), url: None };
    let clusters: Vec<EntryPoint> = folders
        .iter()
        .filter(|folder| folder.strip_prefix("clusters/").is_some_and(|name| !name.contains('/')))
        .map(|folder| plain(folder))
        .collect();
    Ok(if clusters.is_empty() { vec![plain(".")] } else { clusters })
}

fn instead(folders: &BTreeSet<String>) -> String {
    let clusters: Vec<&str> =
        folders.iter().filter(|folder| folder.starts_with("clusters/")).map(String::as_str).collect();
    if clusters.is_empty() { String::new() } else { format!("; there is {}", clusters.join(", ")) }
}

/// Every folder that holds a file, somewhere.
pub(crate) fn folders(files: &LocalFolder) -> BTreeSet<String> {
    let mut folders = BTreeSet::new();
    for file in files.files() {
        let mut folder = file.path.parent();
        while let Some(path) = folder.filter(|path| !path.is_root()) {
            folder = path.parent();
            folders.insert(path.to_string());
        }
    }
    folders
}

/// What each `gotk-sync.yaml` syncs from this repository.
fn synced(files: &LocalFolder) -> Vec<EntryPoint> {
    let mut found = Vec::new();
    for file in files.files().iter().filter(|file| file.path.file_name() == Some(SYNC_FILE)) {
        let objects = documents(files, &file.path);
        let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind);
        // A template leaves it empty for bootstrap to fill: then it is the folder that `flux-system` lies in.
        let above = file.path.parent().and_then(|folder| folder.parent()).unwrap_or_default();
        let path = of_kind("Kustomization").and_then(|object| object["spec"]["path"].as_str());
        let path = path.unwrap_or(above.as_str()).trim_start_matches("./").trim_end_matches('/');
        let url = of_kind("GitRepository").and_then(|object| object["spec"]["url"].as_str());
        let path = if path.is_empty() { "." } else { path }.to_owned();
        found.push(EntryPoint { path, url: url.map(str::to_owned) });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup();
    found
}

/// The objects of a YAML file; nothing of one that cannot be read, which its Kustomization will report.
pub(crate) fn documents(files: &LocalFolder, path: &TreePath) -> Vec<Value> {
    let Ok(bytes) = files.read(path) else { return Vec::new() };
    let Ok(stream) = yaml::parse_stream(&bytes, &yaml::Options::new(yaml::Schema::V2)) else {
        return Vec::new();
    };
    stream.iter().filter_map(|document| yaml::node_to_json(&document.root, yaml::Schema::V2).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, LocalFolder) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let files = LocalFolder::list(folder.path()).unwrap();
        (folder, files)
    }

    fn paths(files: &LocalFolder, asked: Option<&str>) -> Vec<String> {
        entry_points(files, asked).unwrap().into_iter().map(|entry| entry.path).collect()
    }

    #[test]
    fn clusters_are_found_or_named() {
        let (_folder, files) = folder(&[("a.yaml", "")]);
        assert_eq!(paths(&files, None), ["."]);
        let (_folder, files) = folder(&[
            ("clusters/staging/apps.yaml", ""),
            ("clusters/production/x/y.yaml", ""),
            ("apps/a.yaml", ""),
        ]);
        assert_eq!(paths(&files, None), ["clusters/production", "clusters/staging"]);
        assert_eq!(paths(&files, Some("./clusters/staging/")), ["clusters/staging"]);
        let error = entry_points(&files, Some("clusters/nowhere")).unwrap_err().to_string();
        assert!(error.contains("clusters/production"), "{error}");
    }

    #[test]
    fn what_bootstrap_wrote_counts_first() {
        let sync = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nspec:\n  url: ssh://git@example.com/fleet\n---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec:\n  path: ./kubernetes/main\n";
        let (_folder, files) =
            folder(&[("kubernetes/main/flux-system/gotk-sync.yaml", sync), ("clusters/other/a.yaml", "")]);
        let found = entry_points(&files, None).unwrap();
        let url = Some("ssh://git@example.com/fleet".to_owned());
        assert_eq!(found, [EntryPoint { path: "kubernetes/main".to_owned(), url }]);
        let (_folder, files) = folder(&[("hub/flux-system/gotk-sync.yaml", "# filled by bootstrap\n")]);
        assert_eq!(paths(&files, None), ["hub"]);
    }
}
