//! Bucket: the objects of a bucket as an artifact.
//!
//! The revision is made of keys and ETags, so that a look at the list is enough to know whether anything changed.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use file_tree::TreePath;
use flux_api::kinds::{BUCKET, Kind};
use flux_api::revision::Revision;
use flux_api::source::{Bucket, BucketSpec, BucketStatus};
use flux_remote::bucket::{Index, Store};
use flux_remote::ignore::{self, Ignore};
use flux_remote::transport::shown_text;
use futures::{StreamExt, TryStreamExt};

use super::bucket_login;
use super::oci_repository::Kept;
use super::skeleton::{Failure, Fetched, Job, Remote, Source};
use crate::artifact::tree::{ArtifactTree, TreeWriter};

const KIND: &Kind = &BUCKET;
const LARGEST_OBJECT: u64 = 512 << 20;
const LARGEST_IGNORE_FILE: u64 = 1 << 20;
/// Objects fetched at once.
const AT_ONCE: usize = 16;

pub struct Buckets;

impl Source for Buckets {
    type Object = Bucket;
    type Status = BucketStatus;

    fn status(object: &Bucket) -> Option<&BucketStatus> {
        object.status.as_ref()
    }

    fn interval(object: &Bucket) -> Duration {
        object.spec.interval.to_std()
    }

    fn remote(&self, job: &Job<'_, Self>) -> Option<Remote> {
        let spec = &job.object.spec;
        // Azure's endpoints may hold a signature.
        let endpoint = shown_text(&spec.endpoint);
        let url = format!("{endpoint}/{}", spec.bucket_name);
        Some(Remote::new(KIND, &url, spec, format!("bucket {} at {endpoint}", spec.bucket_name)))
    }

    async fn fetch(&self, job: &mut Job<'_, Self>) -> Result<Fetched, Failure> {
        let store = bucket_login::connect(job).await?;
        let spec = &job.object.spec;
        let limit = spec.timeout().to_std();
        let listed = job.worker.outside(in_time(limit, list(&store, spec))).await;
        let mut listed = listed.map_err(failed)?;
        let revision = format!("sha256:{}", listed.index.sha256());
        if job.status.artifact.as_ref().is_some_and(|artifact| artifact.revision.as_str() == revision) {
            job.trace("ArtifactUpToDate", format!("artifact up-to-date with remote revision: '{revision}'"));
            return Ok(told(job, &revision, listed.index.len()));
        }
        job.outdated("NewRevision", format!("new upstream revision '{revision}'")).await;
        let tree =
            job.worker.outside(in_time(limit, download(&store, spec, &mut listed))).await.map_err(failed)?;
        // What changed under our hands is part of the revision.
        let digest = listed.index.sha256();
        let revision = format!("sha256:{digest}");
        let (storage, key, stored_as) =
            (job.ctx.storage.clone(), job.key(), Revision::from(revision.clone()));
        let stored = crate::reconcile::heavy(move || {
            let mut contents = Kept { tree: &tree, rules: Ignore::from_text("") };
            storage.store(KIND, &key, &format!("{digest}.tar.gz"), stored_as, &mut contents)
        });
        let stored = stored.await.map_err(|error| Failure::storage(error.to_string()))?;
        let artifact = stored
            .map_err(|error| Failure::storage(format!("unable to archive artifact to storage: {error}")))?;
        job.status.artifact = Some(artifact);
        job.status.observed_ignore = job.object.spec.ignore.clone();
        job.link("latest.tar.gz");
        Ok(told(job, &revision, listed.index.len()))
    }
}

fn told(job: &Job<'_, Buckets>, revision: &str, count: usize) -> Fetched {
    Fetched::succeeded(
        format!("stored artifact: revision '{revision}'"),
        format!("stored artifact with {count} fetched files from '{}' bucket", job.object.spec.bucket_name),
    )
}

fn failed(cause: String) -> Failure {
    Failure::fetch("BucketOperationFailed", cause)
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// What a bucket holds, and the rules it brings along.
struct Listed {
    index: Index,
    ignore_file: Option<Vec<u8>>,
}

async fn list(store: &Store, spec: &BucketSpec) -> Result<Listed, String> {
    let bucket = &spec.bucket_name;
    let exists = store
        .bucket_exists(bucket)
        .await
        .map_err(|error| format!("failed to confirm existence of '{bucket}' bucket: {error}"))?;
    if !exists {
        return Err(format!("bucket '{bucket}' not found"));
    }
    let ignore_file = store
        .get(bucket, ignore::FILE_NAME, LARGEST_IGNORE_FILE)
        .await
        .map_err(|error| format!("failed to get Etag for '{}' object: {error}", ignore::FILE_NAME))?
        .map(|object| object.bytes);
    // Unlike elsewhere, nothing is left out unless somebody says so.
    let mut patterns = ignore_file.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    patterns.push('\n');
    patterns.push_str(spec.ignore.as_deref().unwrap_or_default());
    let rules = Ignore::from_text(&patterns);
    let mut index = Index::default();
    let prefix = spec.prefix.as_deref().unwrap_or_default();
    store
        .list(bucket, prefix, |key, etag| {
            if is_wanted(&key, &rules) {
                index.add(key, etag);
            }
        })
        .await
        .map_err(|error| format!("indexation of objects from bucket '{bucket}' failed: {error}"))?;
    Ok(Listed { index, ignore_file })
}

fn is_wanted(key: &str, rules: &Ignore) -> bool {
    if key.ends_with('/') || key == ignore::FILE_NAME {
        return false;
    }
    TreePath::parse(key).map_or(true, |path| !rules.excludes(&path, false))
}

/// Fetches everything on the list into a tree of files.
async fn download(store: &Store, spec: &BucketSpec, listed: &mut Listed) -> Result<ArtifactTree, String> {
    let bucket = &spec.bucket_name;
    let paths = paths(&listed.index)?;
    let failed = |error: io::Error| error.to_string();
    let mut writer = TreeWriter::new(tempfile::tempfile().map_err(failed)?).map_err(failed)?;
    if let Some(text) = &listed.ignore_file {
        writer.add(TreePath::root().child(ignore::FILE_NAME), false, text).map_err(failed)?;
    }
    let writer = Arc::new(Mutex::new(writer));
    let fetches = paths.into_iter().map(|(key, path)| {
        let writer = writer.clone();
        async move {
            let object = store.get(bucket, &key, LARGEST_OBJECT).await.map_err(|error| {
                format!("fetch from bucket '{bucket}' failed: failed to get '{key}' object: {error}")
            })?;
            let Some(object) = object else {
                tracing::info!(key, "indexed object disappeared from the bucket");
                return Ok::<_, String>((key, None));
            };
            writer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(path, false, &object.bytes)
                .map_err(|error| error.to_string())?;
            Ok((key, Some(object.etag)))
        }
    });
    let fetched: Vec<_> = futures::stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await?;
    for (key, etag) in fetched {
        match etag {
            Some(etag) => listed.index.add(key, etag),
            None => listed.index.remove(&key),
        }
    }
    let writer = Arc::into_inner(writer).ok_or("a fetch is still under way")?;
    let writer = writer.into_inner().unwrap_or_else(PoisonError::into_inner);
    writer.finish().map_err(failed)
}

/// Where each object goes. Keys are anything; files are not.
fn paths(index: &Index) -> Result<Vec<(String, TreePath)>, String> {
    let mut paths = Vec::with_capacity(index.len());
    let mut known = BTreeSet::new();
    for (key, _) in index.iter() {
        let refused = |problem: &str| format!("failed to resolve path for '{key}' object: {problem}");
        if key.contains(['\\', '\0']) || key.starts_with('/') {
            return Err(refused("a name that no file may have"));
        }
        let path = TreePath::parse(key).map_err(|error| refused(&error.to_string()))?;
        if path.is_root() || !known.insert(path.clone()) {
            return Err(refused("another object has the same path"));
        }
        paths.push((key.to_owned(), path));
    }
    for path in &known {
        let mut above = path.parent();
        while let Some(folder) = above {
            if known.contains(&folder) && !folder.is_root() {
                return Err(format!(
                    "failed to resolve path for '{path}' object: '{folder}' is an object, too"
                ));
            }
            above = folder.parent();
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[&str]) -> Result<usize, String> {
        let mut index = Index::default();
        keys.iter().for_each(|key| index.add(*key, "e"));
        paths(&index).map(|paths| paths.len())
    }

    #[test]
    fn keys_that_are_no_paths_are_refused() {
        assert_eq!(check(&["a/b", "a/c", "d"]), Ok(3));
        for bad in [
            &["../x"][..],
            &["a/../../x"],
            &["/etc/passwd"],
            &["a\\b"],
            &["a", "a/b"],
            &["a//b", "a/b"],
            &["."],
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nothing_is_left_out_by_default() {
        let none = Ignore::from_text("");
        assert!(is_wanted("logo.png", &none) && is_wanted(".github/x", &none));
        assert!(!is_wanted("folder/", &none) && !is_wanted(".sourceignore", &none));
        assert!(!is_wanted("logo.png", &Ignore::from_text("*.png")));
    }
}
