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
        Self { storage, http: reqwest::Client::new(), tries, under_way: Mutex::default() }
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
        let mut delay = Duration::from_millis(500);
        let mut last = Error::NotFound;
        for _ in 0..=self.tries {
            match self.bytes_once(artifact, largest).await {
                Err(Error::Download(cause)) => last = Error::Download(cause),
                result => return result,
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(30));
        }
        Err(last)
    }

    async fn bytes_once(&self, artifact: &Artifact, largest: u64) -> Result<Vec<u8>, Error> {
        let failed = |error: reqwest::Error| Error::Download(error.without_url().to_string());
        let response = self.http.get(address(artifact)).send().await.map_err(failed)?;
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
        let mut delay = Duration::from_millis(500);
        let mut last = Error::NotFound;
        for _ in 0..=self.tries {
            match self.download_once(artifact).await {
                Err(Error::Download(cause)) => last = Error::Download(cause),
                result => return result,
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(30));
        }
        Err(last)
    }

    async fn download_once(&self, artifact: &Artifact) -> Result<(), Error> {
        let failed = |error: reqwest::Error| Error::Download(error.without_url().to_string());
        let response = self.http.get(address(artifact)).send().await.map_err(failed)?;
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

/// Outside of the cluster its names mean nothing: `SOURCE_CONTROLLER_LOCALHOST` is where artifacts are instead.
fn address(artifact: &Artifact) -> String {
    let Ok(host) = std::env::var("SOURCE_CONTROLLER_LOCALHOST") else {
        return artifact.url.clone();
    };
    match url::Url::parse(&artifact.url) {
        Ok(url) if !host.is_empty() => format!("http://{host}{}", url.path()),
        _ => artifact.url.clone(),
    }
}
