//! How a consumer gets the files of an artifact: in place when they are here, over HTTP when not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use flux_api::artifact::Artifact;
use flux_api::digest::{Algorithm, Digest};
use futures::StreamExt;
use tokio::io::AsyncWriteExt;

use super::digest::Hasher;
use super::storage::{self, Storage};
use super::tree::ArtifactTree;

const LARGEST: u64 = 4 << 30;

pub struct Fetcher {
    storage: Arc<Storage>,
    http: reqwest::Client,
    tries: u32,
    /// Before the second try; twice as long before the next, and so on.
    first_wait: Duration,
    hosts: Hosts,
    /// Downloads under way, by digest: many consumers of one artifact fetch it once.
    under_way: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source has replaced it: its object will say with what.
    #[error("artifact not found")]
    NotFound,
    #[error("failed to download artifact: {0}")]
    Download(String),
    #[error("failed to verify artifact: computed digest doesn't match '{expected}'")]
    Mismatch { expected: String },
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

impl Fetcher {
    /// `storage` is where trees are kept; artifacts it holds itself are never downloaded.
    pub fn new(storage: Arc<Storage>, tries: u32) -> Self {
        let (http, hosts) = (reqwest::Client::new(), Hosts::of_this_process());
        let first_wait = Duration::from_millis(500);
        Self { storage, http, tries, first_wait, hosts, under_way: Mutex::default() }
    }

    /// The same, where a download that takes longer is given up and tried again.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        let http = reqwest::Client::builder().timeout(timeout).build();
        Self { http: http.expect("only the timeout differs from a client that can be built"), ..self }
    }

    pub async fn tree(&self, artifact: &Artifact) -> Result<Arc<ArtifactTree>, Error> {
        if let Some(tree) = self.stored(artifact).await? {
            return Ok(tree);
        }
        let turn = self.turn(artifact);
        let _turn = turn.lock().await;
        if let Some(tree) = self.stored(artifact).await? {
            return Ok(tree);
        }
        self.download(artifact).await?;
        self.stored(artifact).await?.ok_or(Error::NotFound)
    }

    fn turn(&self, artifact: &Artifact) -> Arc<tokio::sync::Mutex<()>> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|_, turn| turn.strong_count() > 0);
        let key = format!("{} {}", artifact.digest.as_str(), artifact.url);
        if let Some(turn) = under_way.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        under_way.insert(key, Arc::downgrade(&turn));
        turn
    }

    /// The artifact as it is, such as a chart; not more than `largest` bytes of it.
    pub async fn bytes(&self, artifact: &Artifact, largest: u64) -> Result<Vec<u8>, Error> {
        let here = self.storage.root().join(&artifact.path);
        // A path that leaves the storage is nobody's artifact.
        let is_plain = !artifact.path.split('/').any(|part| part == ".." || part.is_empty());
        if is_plain && let Ok(bytes) = tokio::fs::read(&here).await {
            let is_whole = check_bytes(artifact, &bytes).is_ok();
            if is_whole && bytes.len() as u64 <= largest {
                return Ok(bytes);
            }
        }
        let mut delay = self.first_wait;
        let mut last = Error::NotFound;
        for attempt in 0..=self.tries {
            if attempt > 0 {
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(Duration::from_secs(30));
            }
            match self.bytes_once(artifact, largest).await {
                Err(Error::Download(cause)) => last = Error::Download(cause),
                result => return result,
            }
        }
        Err(last)
    }

    async fn bytes_once(&self, artifact: &Artifact, largest: u64) -> Result<Vec<u8>, Error> {
        let failed = |error: reqwest::Error| Error::Download(error.without_url().to_string());
        let response = self.http.get(self.hosts.address(&artifact.url)).send().await.map_err(failed)?;
        if response.status().as_u16() == 404 {
            return Err(Error::NotFound);
        }
        let mut body = response.error_for_status().map_err(failed)?.bytes_stream();
        let mut bytes = Vec::new();
        while let Some(chunk) = body.next().await {
            bytes.extend_from_slice(&chunk.map_err(failed)?);
            if bytes.len() as u64 > largest {
                return Err(Error::Download(format!("artifact is larger than {largest} bytes")));
            }
        }
        check_bytes(artifact, &bytes)?;
        Ok(bytes)
    }

    async fn stored(&self, artifact: &Artifact) -> Result<Option<Arc<ArtifactTree>>, Error> {
        let (storage, artifact) = (self.storage.clone(), artifact.clone());
        let opened = crate::reconcile::heavy(move || storage.tree(&artifact)).await;
        opened.map_err(|error| Error::Download(error.to_string()))?.map_err(Error::Storage)
    }

    async fn download(&self, artifact: &Artifact) -> Result<(), Error> {
        let mut delay = self.first_wait;
        let mut last = Error::NotFound;
        for attempt in 0..=self.tries {
            if attempt > 0 {
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(Duration::from_secs(30));
            }
            match self.download_once(artifact).await {
                Err(Error::Download(cause)) => last = Error::Download(cause),
                result => return result,
            }
        }
        Err(last)
    }

    async fn download_once(&self, artifact: &Artifact) -> Result<(), Error> {
        let failed = |error: reqwest::Error| Error::Download(error.without_url().to_string());
        let response = self.http.get(self.hosts.address(&artifact.url)).send().await.map_err(failed)?;
        if response.status().as_u16() == 404 {
            return Err(Error::NotFound);
        }
        let response = response.error_for_status().map_err(failed)?;
        let mut file = tempfile::tempfile().map_err(storage::Error::from).map(tokio::fs::File::from_std)?;
        let algorithm = artifact.digest.algorithm().unwrap_or(Algorithm::Sha256);
        let (mut hash, mut size) = (Hasher::new(algorithm), 0_u64);
        let mut body = response.bytes_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(failed)?;
            size += chunk.len() as u64;
            if size > LARGEST {
                return Err(Error::Download(format!("artifact is larger than {LARGEST} bytes")));
            }
            hash.update(&chunk);
            file.write_all(&chunk).await.map_err(storage::Error::from)?;
        }
        file.flush().await.map_err(storage::Error::from)?;
        check(&artifact.digest, &hash.finish())?;
        self.unpack(file, artifact.clone()).await
    }

    async fn unpack(&self, mut file: tokio::fs::File, artifact: Artifact) -> Result<(), Error> {
        use tokio::io::AsyncSeekExt;
        file.rewind().await.map_err(storage::Error::from)?;
        let file = file.into_std().await;
        let storage = self.storage.clone();
        let unpacked = crate::reconcile::heavy(move || storage.unpack(file, &artifact)).await;
        unpacked.map_err(|error| Error::Download(error.to_string()))?.map_err(Error::Storage)
    }
}

/// A digest without an algorithm is taken for SHA-256.
fn check_bytes(artifact: &Artifact, bytes: &[u8]) -> Result<(), Error> {
    let mut hash = Hasher::new(artifact.digest.algorithm().unwrap_or(Algorithm::Sha256));
    hash.update(bytes);
    check(&artifact.digest, &hash.finish())
}

fn check(expected: &Digest, found: &Digest) -> Result<(), Error> {
    if expected.encoded() == found.encoded() {
        return Ok(());
    }
    Err(Error::Mismatch { expected: expected.as_str().to_owned() })
}

/// Where artifacts are instead of where their addresses say: outside of the cluster its names mean nothing.
#[derive(Default)]
struct Hosts {
    source_controller: Option<String>,
    source_watcher: Option<String>,
}

impl Hosts {
    fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|host| !host.is_empty());
        Self {
            source_controller: variable("SOURCE_CONTROLLER_LOCALHOST"),
            source_watcher: variable("SOURCE_WATCHER_LOCALHOST"),
        }
    }

    /// The same address at the host that stands for the one in it.
    fn address(&self, url: &str) -> String {
        let is_watcher = url.contains("//source-watcher");
        let host = if is_watcher { &self.source_watcher } else { &self.source_controller };
        match (host, url.split_once("://")) {
            (Some(host), Some((scheme, rest))) => {
                let path = rest.find('/').map_or("", |at| &rest[at..]);
                format!("{scheme}://{host}{path}")
            }
            _ => url.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[test]
    fn other_hosts_stand_for_the_clusters_names() {
        let hosts = Hosts {
            source_controller: Some("localhost:8080".to_owned()),
            source_watcher: Some("127.0.0.1:1".to_owned()),
        };
        let of_controller =
            "http://source-controller.flux-system.svc.cluster.local./gitrepository/a/b/c.tar.gz";
        assert_eq!(hosts.address(of_controller), "http://localhost:8080/gitrepository/a/b/c.tar.gz");
        let of_watcher = "https://source-watcher.flux-system.svc/externalartifact/a/b/c.tar.gz";
        assert_eq!(hosts.address(of_watcher), "https://127.0.0.1:1/externalartifact/a/b/c.tar.gz");
        assert_eq!(Hosts::default().address(of_watcher), of_watcher);
    }

    /// A server that answers with these one after the other, and how often it was asked.
    async fn server(answers: Vec<(StatusCode, Vec<u8>)>) -> (String, Arc<Mutex<usize>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a.tar.gz", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(0));
        let count = asked.clone();
        let answer = move || {
            let mut count = count.lock().unwrap();
            let answer = answers[(*count).min(answers.len() - 1)].clone();
            *count += 1;
            async move { answer }
        };
        tokio::spawn(async move {
            axum::serve(listener, axum::Router::new().fallback(answer)).await.unwrap();
        });
        (url, asked)
    }

    fn tarball() -> Vec<u8> {
        let mut writer = flux_remote::archive::Writer::new(Vec::new()).unwrap();
        writer.file(&file_tree::TreePath::parse("apps/a.yaml").unwrap(), false, b"a: 1\n").unwrap();
        writer.finish().unwrap()
    }

    fn artifact(url: String, digest: &str) -> Artifact {
        serde_json::from_value(serde_json::json!({
            "path": "gitrepository/apps/fleet/a.tar.gz", "url": url, "revision": "main@sha1:1",
            "digest": digest, "lastUpdateTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    fn storage(root: &std::path::Path) -> Arc<Storage> {
        let storage = Storage::new(super::super::StorageOptions {
            root: root.to_owned(),
            advertised: "localhost:9090".to_owned(),
            retention_age: Duration::from_secs(60),
            retention_records: 2,
            algorithm: Algorithm::Sha256,
        });
        Arc::new(storage.unwrap())
    }

    async fn fetch(answers: Vec<(StatusCode, Vec<u8>)>, digest: &str) -> (Result<usize, Error>, usize) {
        let (url, asked) = server(answers).await;
        let root = tempfile::tempdir().unwrap();
        let mut fetcher = Fetcher::new(storage(root.path()), 2);
        fetcher.first_wait = Duration::from_millis(1);
        let tree = fetcher.tree(&artifact(url, digest)).await.map(|tree| tree.files().count());
        let asked = *asked.lock().unwrap();
        (tree, asked)
    }

    #[tokio::test]
    async fn a_download_is_tried_again_and_its_digest_counts() {
        let bytes = tarball();
        let digest = super::super::digest::of(Algorithm::Sha256, &bytes[..]).unwrap();
        let good = (StatusCode::OK, bytes.clone());
        let down = (StatusCode::SERVICE_UNAVAILABLE, Vec::new());
        let (tree, asked) = fetch(vec![down.clone(), good.clone()], digest.as_str()).await;
        assert_eq!((tree.unwrap(), asked), (1, 2));
        // So many retries, and not one more.
        let (tree, asked) = fetch(vec![down], digest.as_str()).await;
        assert!(matches!(tree, Err(Error::Download(_))));
        assert_eq!(asked, 3);
        // Whoever replaced it says with what: asking again is of no use.
        let (tree, asked) = fetch(vec![(StatusCode::NOT_FOUND, Vec::new())], digest.as_str()).await;
        assert!(matches!(tree, Err(Error::NotFound)));
        assert_eq!(asked, 1);
        let other = format!("sha256:{}", "0".repeat(64));
        let (tree, asked) = fetch(vec![good], &other).await;
        assert!(matches!(tree, Err(Error::Mismatch { expected }) if expected == other));
        assert_eq!(asked, 1);
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a.tgz", silent.local_addr().unwrap());
        let root = tempfile::tempdir().unwrap();
        let fetcher = Fetcher::new(storage(root.path()), 0).within(Duration::from_millis(50));
        let artifact = artifact(url, &format!("sha256:{}", "0".repeat(64)));
        let found = fetcher.bytes(&artifact, 1 << 20).await;
        assert!(matches!(found, Err(Error::Download(_))), "{found:?}");
    }
}
