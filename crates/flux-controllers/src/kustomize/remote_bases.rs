//! Bases that a kustomization names by URL: fetched before the build, which itself fetches nothing. HTTP and HTTPS
//! only, without credentials: a base is public, or it belongs into a source.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use file_tree::{Files, MemoryTree, TreePath};
use flux_build::remote::Remote;
use flux_remote::git::{self, Checkout, Http, Limits, ObjectStore, Reference};
use futures::StreamExt;
use url::Url;

use super::run::Run;

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
    if run.ctx.options.offline {
        return Err(format!("offline: remote base '{name}' is needed, and bases are not cached"));
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
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|_, (at, _)| at.elapsed() < FRESH);
    if known.len() < MOST {
        known.insert(name.to_owned(), (Instant::now(), remote.clone()));
    }
    Ok(remote)
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
    let inside = place.inside.clone();
    if tree.kind(&inside).is_none() {
        return Err(format!("there is no folder '{inside}' in it"));
    }
    Ok(Remote::Repository { tree: Arc::new(tree), inside })
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
}
