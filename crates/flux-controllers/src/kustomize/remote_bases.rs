//! Bases that a kustomization names by URL: fetched before the build, which itself fetches nothing. HTTP and HTTPS
//! only, without credentials: a base is public, or it belongs into a source.
//!
//! Where a fleet is tried on a machine, a folder may stand for a repository, and what was fetched is kept for a run
//! without network.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use file_tree::{Files, MemoryTree, TreePath};
use flux_build::remote::Remote;
use flux_remote::git::{self, Checkout, Http, Limits, ObjectStore, Reference};
use flux_remote::local::LocalFolder;
use futures::StreamExt;
use serde_json::{Value, json};
use url::Url;

use super::run::Run;
use crate::source::depot::{About, Cache, Depot, Entry, Network};

const TIMEOUT: Duration = Duration::from_secs(60);
const LARGEST_FILE: usize = 16 << 20;
const LARGEST_TREE: usize = 256 << 20;
/// A branch is looked at again after this long.
const FRESH: Duration = Duration::from_secs(10);
const MOST: usize = 16;

/// Bases that were fetched a moment ago: many Kustomizations of a fleet use the same ones.
#[derive(Default)]
pub struct Fetched(Mutex<BTreeMap<String, (Instant, Remote)>>);

/// Where a repository is, which version of it, and the folder in it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    url: Url,
    reference: Option<String>,
    inside: TreePath,
}

pub(super) async fn fetch(run: &Run<'_>, name: &str) -> Result<Remote, String> {
    let failed = |why: String| format!("remote base '{name}': {why}");
    if run.ctx.options.no_remote_bases {
        return Err(failed(
            "remote bases are not allowed (--no-remote-bases); copy it into the source".to_owned(),
        ));
    }
    let depot = run.ctx.options.depot.as_ref();
    if let Some(known) = depot.map(|depot| from_depot(depot, name)).transpose()?.flatten() {
        return Ok(known);
    }
    let known = &run.ctx.memory.remote_bases.0;
    let fresh = known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    if let Some((_, remote)) = fresh.filter(|(at, _)| at.elapsed() < FRESH) {
        return Ok(remote);
    }
    let fetching = tokio::time::timeout(TIMEOUT, download(name));
    let remote = run.worker.outside(fetching).await;
    let remote =
        remote.map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))?.map_err(failed)?;
    if let Some(cache) = depot.and_then(|depot| depot.cache.as_ref())
        && let Err(error) = keep(cache, name, &remote)
    {
        tracing::warn!(%error, "the remote base is not kept for a run without network");
    }
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|_, (at, _)| at.elapsed() < FRESH);
    if known.len() < MOST {
        known.insert(name.to_owned(), (Instant::now(), remote.clone()));
    }
    Ok(remote)
}

/// What stands for the base here: somebody's folder, or what was fetched before.
fn from_depot(depot: &Depot, name: &str) -> Result<Option<Remote>, String> {
    let place = place(name);
    let url = place.as_ref().map_or_else(|| name.to_owned(), |place| place.url.to_string());
    if let Some(here) = depot.files(&url) {
        let failed = |error: std::io::Error| {
            format!("remote base '{name}': {}, in place of {url}: {error}", here.folder.display())
        };
        return match &place {
            Some(place) => {
                let tree = folder(&here.open().map_err(failed)?).map_err(failed)?;
                inside(tree, place).map(Some).map_err(|why| format!("remote base '{name}': {why}"))
            }
            None => std::fs::read(&here.folder).map(|bytes| Some(Remote::file(bytes))).map_err(failed),
        };
    }
    if depot.network == Network::First {
        return Ok(None);
    }
    let kept = depot.cache.as_ref().and_then(|cache| cache.find(&wanted(name)));
    match kept.and_then(|entry| unpack(&entry, place.as_ref())) {
        Some(remote) => Ok(Some(remote)),
        None if depot.network == Network::Never => Err(depot.missing(&format!("remote base '{name}'"), &url)),
        None => Ok(None),
    }
}

fn wanted(name: &str) -> Value {
    json!({ "kind": "RemoteBase", "url": name })
}

const ONE_FILE: &str = "manifests.yaml";
const WHOLE_TREE: &str = "repository.tar";

fn keep(cache: &Cache, name: &str, remote: &Remote) -> std::io::Result<()> {
    let (file, content) = match remote {
        Remote::File(tree) => {
            let bytes = tree.read(&TreePath::root().child(ONE_FILE)).map_err(std::io::Error::other)?;
            (ONE_FILE, bytes.into_owned())
        }
        Remote::Repository { tree, .. } => (WHOLE_TREE, packed(tree.as_ref())?),
    };
    let about = About { wanted: wanted(name), file: file.to_owned(), ..About::default() };
    cache.keep(about, &content)
}

fn packed(tree: &dyn Files) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut waiting = vec![TreePath::root()];
    while let Some(folder) = waiting.pop() {
        for entry in tree.list(&folder).map_err(std::io::Error::other)? {
            let path = folder.child(&entry.name);
            if entry.kind == file_tree::Kind::Folder {
                waiting.push(path);
                continue;
            }
            let bytes = tree.read(&path).map_err(std::io::Error::other)?;
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path.as_str(), &bytes[..])?;
        }
    }
    archive.into_inner()
}

/// What was kept; what cannot be read is as good as missing.
fn unpack(entry: &Entry, place: Option<&Place>) -> Option<Remote> {
    let Some(place) = place else { return Some(Remote::file(entry.content.clone())) };
    let mut tree = MemoryTree::new();
    for file in tar::Archive::new(&entry.content[..]).entries().ok()? {
        let mut file = file.ok()?;
        let path = TreePath::parse(file.path().ok()?.to_str()?).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        tree.insert(path, bytes);
    }
    inside(tree, place).ok()
}

fn folder(files: &LocalFolder) -> std::io::Result<MemoryTree> {
    let mut tree = MemoryTree::new();
    for file in files.files() {
        tree.insert(file.path.clone(), files.read(&file.path)?);
    }
    Ok(tree)
}

fn inside(tree: MemoryTree, place: &Place) -> Result<Remote, String> {
    let inside = place.inside.clone();
    if tree.kind(&inside).is_none() {
        return Err(format!("there is no folder '{inside}' in it"));
    }
    Ok(Remote::Repository { tree: Arc::new(tree), inside })
}

async fn download(name: &str) -> Result<Remote, String> {
    // kustomize tries a URL as a file first, unless it can only be a repository.
    match place(name) {
        Some(place) => clone(&place).await,
        None => file(name).await,
    }
}

async fn file(url: &str) -> Result<Remote, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme {} is not supported; use https", url.scheme()));
    }
    let answer = reqwest::get(url).await.map_err(|error| error.without_url().to_string())?;
    let answer = answer.error_for_status().map_err(|error| error.without_url().to_string())?;
    let (mut body, mut bytes) = (answer.bytes_stream(), Vec::new());
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| error.without_url().to_string())?);
        if bytes.len() > LARGEST_FILE {
            return Err(format!("it is larger than {LARGEST_FILE} bytes"));
        }
    }
    Ok(Remote::file(bytes))
}

/// Reads `https://host/org/repository//folder?ref=v1` and its relatives; `None` when it is a plain file.
fn place(name: &str) -> Option<Place> {
    let text = name.strip_prefix("git::").unwrap_or(name);
    let (location, query) = text.split_once('?').unwrap_or((text, ""));
    let query = |key: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.to_owned())
            .filter(|value| !value.is_empty())
    };
    let reference = query("ref").or_else(|| query("version"));
    let github = location.strip_prefix("github.com/").or_else(|| location.strip_prefix("github.com:"));
    let location = github.map_or_else(|| location.to_owned(), |rest| format!("https://github.com/{rest}"));
    let (scheme, rest) = location.split_once("://")?;
    let (host, path) = rest.split_once('/')?;
    let named_file = path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".json");
    let (repository, inside) = if let Some((repository, inside)) = path.split_once("//") {
        (repository, inside)
    } else if let Some(at) = path.find(".git/") {
        (&path[..at + 4], &path[at + 5..])
    } else if path.ends_with(".git") {
        (path, "")
    } else if named_file && reference.is_none() {
        return None;
    } else {
        let end = path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
        (&path[..end], path[end..].trim_start_matches('/'))
    };
    let url = Url::parse(&format!("{scheme}://{host}/{repository}")).ok()?;
    Some(Place { url, reference, inside: TreePath::parse(inside).ok()? })
}

async fn clone(place: &Place) -> Result<Remote, String> {
    if !matches!(place.url.scheme(), "http" | "https") {
        return Err(format!(
            "the scheme {} is not supported for remote bases; use https, or a GitRepository with sourceRefs",
            place.url.scheme()
        ));
    }
    let failed = |error: git::Error| error.to_string();
    let client = reqwest::Client::builder().user_agent("flux/v2");
    let mut remote = Http::new(client, &place.url, None).map_err(failed)?;
    let refs = git::list_refs(&mut remote, &[], Limits::DEFAULT).await.map_err(failed)?;
    let pick = pick(place.reference.as_deref(), &refs)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut store = ObjectStore::open(folder.path()).map_err(failed)?;
    let depth = if pick.deep { None } else { Some(1) };
    git::fetch(&mut remote, &mut store, &[pick.want], depth, Limits::DEFAULT).await.map_err(failed)?;
    let tree = tokio::task::spawn_blocking(move || {
        // The folder lives until its files were read.
        let _folder = folder;
        copy(&store, pick.commit)
    });
    let tree = tree.await.map_err(|error| error.to_string())??;
    inside(tree, place)
}

/// A `ref` may be a branch, a tag or a commit; without one it is the default branch.
fn pick(reference: Option<&str>, refs: &[git::RemoteRef]) -> Result<git::Pick, String> {
    let Some(name) = reference else {
        return git::pick(&Reference { name: Some("HEAD".to_owned()), ..Reference::default() }, refs)
            .map_err(|error| error.to_string());
    };
    let attempts = [
        Reference { tag: Some(name.to_owned()), ..Reference::default() },
        Reference { branch: Some(name.to_owned()), ..Reference::default() },
        Reference { name: Some(name.to_owned()), ..Reference::default() },
        Reference { commit: Some(name.to_owned()), ..Reference::default() },
    ];
    attempts
        .iter()
        .find_map(|reference| git::pick(reference, refs).ok())
        .ok_or_else(|| format!("it has no branch, tag or commit '{name}'"))
}

fn copy(store: &ObjectStore, commit: git::Oid) -> Result<MemoryTree, String> {
    let checkout = Checkout::new(store, commit).map_err(|error| error.to_string())?;
    let mut tree = MemoryTree::new();
    let mut size = 0;
    for (path, _) in checkout.files() {
        // Links and submodules have no content of their own; a build that needs one says so.
        let Ok(bytes) = checkout.read(path) else { continue };
        size += bytes.len();
        if size > LARGEST_TREE {
            return Err(format!("it is larger than {LARGEST_TREE} bytes"));
        }
        tree.insert(path.clone(), bytes.into_owned());
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_told_from_files() {
        let seen = |name: &str| {
            place(name)
                .map(|place| (place.url.to_string(), place.reference, place.inside.as_str().to_owned()))
        };
        let is = |url: &str, reference: Option<&str>, inside: &str| {
            Some((url.to_owned(), reference.map(str::to_owned), inside.to_owned()))
        };
        let repo = "https://github.com/org/repo";
        assert_eq!(seen("https://github.com/org/repo//base/app?ref=v1"), is(repo, Some("v1"), "base/app"));
        assert_eq!(seen("github.com/org/repo/base?ref=main"), is(repo, Some("main"), "base"));
        assert_eq!(seen("https://github.com/org/repo"), is(repo, None, ""));
        assert_eq!(seen("https://host/x.git/a"), is("https://host/x.git", None, "a"));
        assert_eq!(seen("https://host/a/b/install.yaml"), None);
    }

    fn depot(cache: &std::path::Path, network: Network) -> Depot {
        Depot { stand_ins: Vec::new(), cache: Some(Cache::open(cache).unwrap()), network }
    }

    fn text(remote: &Remote, path: &str) -> String {
        let Remote::Repository { tree, .. } = remote else { panic!("no repository") };
        String::from_utf8(tree.read(&TreePath::parse(path).unwrap()).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn what_was_fetched_is_found_without_network_and_what_was_not_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let base = "https://github.com/org/repo//base?ref=v1";
        let tree = MemoryTree::from_texts([("base/a.yaml", "a: 1\n"), ("b.yaml", "b: 2\n")]).unwrap();
        keep(&cache, base, &inside(tree, &place(base).unwrap()).unwrap()).unwrap();
        let file = "https://example.com/install.yaml";
        keep(&cache, file, &Remote::file(b"c: 3\n".to_vec())).unwrap();

        let offline = depot(folder.path(), Network::Never);
        let found = from_depot(&offline, base).unwrap().unwrap();
        assert_eq!(
            (text(&found, "base/a.yaml").as_str(), text(&found, "b.yaml").as_str()),
            ("a: 1\n", "b: 2\n")
        );
        assert!(matches!(from_depot(&offline, file), Ok(Some(Remote::File(_)))));
        let missing = from_depot(&offline, "https://github.com/org/repo//base?ref=v2").err().unwrap();
        assert!(
            missing.starts_with("offline: remote base 'https://github.com/org/repo//base?ref=v2' is needed"),
            "{missing}"
        );
        assert!(missing.ends_with("--local https://github.com/org/repo=PATH"), "{missing}");
        assert!(from_depot(&depot(folder.path(), Network::First), base).unwrap().is_none(), "news is seen");
        assert!(from_depot(&depot(folder.path(), Network::IfMissing), base).unwrap().is_some());
    }

    #[test]
    fn a_folder_may_stand_for_the_repository_of_a_base() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("base")).unwrap();
        std::fs::write(folder.path().join("base/a.yaml"), "a: here\n").unwrap();
        let here = flux_remote::local::Place { folder: folder.path().to_owned(), revision: None };
        let stand_in =
            crate::source::StandIn { place: here, urls: vec!["https://github.com/org/repo".to_owned()] };
        let depot = Depot { stand_ins: vec![stand_in], cache: None, network: Network::Never };
        let found = from_depot(&depot, "github.com/org/repo/base?ref=main").unwrap().unwrap();
        assert_eq!(text(&found, "base/a.yaml"), "a: here\n");
        let wrong = from_depot(&depot, "github.com/org/repo/nowhere?ref=main").err().unwrap();
        assert!(wrong.contains("there is no folder 'nowhere' in it"), "{wrong}");
    }
}
