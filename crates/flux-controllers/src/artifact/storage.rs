//! Where artifacts lie on disk, in upstream's layout: `<kind>/<namespace>/<name>/<file>`.
//!
//! A file is written beside its place and renamed into it, so that it is there as a whole or not at all, whenever the
//! process is killed; what was being written then is swept up at the next start. Names with a leading dot are ours
//! and not served: `.trees` holds the indexes and what was downloaded from elsewhere, `.tmp` what is being written.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use file_tree::TreePath;
use flate2::Compression;
use flux_api::artifact::Artifact;
use flux_api::digest::{Algorithm, Digest};
use flux_api::kinds::Kind;
use flux_api::revision::Revision;
use flux_api::time::Time;
use flux_remote::archive;
use k8s_openapi::jiff::Timestamp;
use tempfile::NamedTempFile;

use super::digest;
use super::index::Index;
pub use super::pack::Listed;
use super::pack::{PackWriter, Previous};
use super::tree::ArtifactTree;
use crate::reconcile::ObjectKey;

const TREES: &str = ".trees";
const TEMPORARY: &str = ".tmp";
const LIMITS: archive::Limits = archive::Limits { bytes: 8 << 30, files: 2_000_000 };
/// A file that nobody wrote to since is not hashed again before this time is over.
const TRUSTED_FOR: Duration = Duration::from_secs(30 * 60);

#[derive(Clone, Debug)]
pub struct StorageOptions {
    pub root: PathBuf,
    /// `host:port` under which others reach the file server.
    pub advertised: String,
    pub retention_age: Duration,
    pub retention_records: usize,
    pub algorithm: Algorithm,
}

pub struct Storage {
    options: StorageOptions,
    /// By digest. Each has a lock of its own: opening one holds up nobody who wants another.
    open: Mutex<HashMap<String, Arc<Mutex<Weak<ArtifactTree>>>>>,
    verified: Mutex<HashMap<PathBuf, Verified>>,
}

/// What a file looked like when its digest was right.
#[derive(Clone, PartialEq, Eq)]
struct Verified {
    digest: String,
    stamp: Stamp,
    at: Instant,
}

/// Changes with every write, whoever writes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("artifact storage: {0}")]
    Io(#[from] io::Error),
    #[error("artifact storage: {0}")]
    Archive(#[from] archive::Error),
}

/// Is handed a path, whether it is executable, and the bytes.
pub type Each<'a> = dyn FnMut(&TreePath, bool, &[u8]) -> io::Result<()> + 'a;

/// What goes into an artifact, in lexical order of paths.
pub trait Contents {
    /// Calls `each` with every file.
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()>;

    /// Every file with a name for its contents, where they are known without reading them (a Git blob's id, an
    /// ETag that is a digest). Then only what is new is read.
    fn listed(&mut self) -> Option<Vec<Listed>> {
        None
    }

    /// The bytes of a listed file.
    fn read(&mut self, file: &Listed) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} cannot be read by name", file.path)))
    }
}

impl Storage {
    pub fn new(options: StorageOptions) -> io::Result<Self> {
        let temporary = options.root.join(TEMPORARY);
        // Left by a process that was killed.
        match fs::remove_dir_all(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(temporary)?;
        fs::create_dir_all(options.root.join(TREES))?;
        Ok(Self { options, open: Mutex::default(), verified: Mutex::default() })
    }

    pub fn root(&self) -> &Path {
        &self.options.root
    }

    /// Stores `contents` as the artifact of an object. What the object's artifact before had is copied, not made.
    pub fn store(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        file_name: &str,
        revision: Revision,
        contents: &mut dyn Contents,
    ) -> Result<Artifact, Error> {
        let path = format!("{}/{}/{}/{file_name}", kind.kind.to_lowercase(), key.namespace, key.name);
        let target = self.file(&path)?;
        let tarball = self.temporary()?;
        let previous = self.previous(&path)?;
        let level = Compression::default();
        let mut writer = PackWriter::new(tarball.reopen()?, self.options.algorithm, level, previous)?;
        match contents.listed() {
            Some(files) => {
                for file in files {
                    writer.add(file, &mut |file| contents.read(file))?;
                }
            }
            None => {
                contents.each(&mut |path, executable, bytes| writer.add_bytes(path, executable, bytes))?
            }
        }
        let (file, digest, size, index) = writer.finish(&mut |file| contents.read(file))?;
        file.sync_data()?;
        self.put(tarball, &target)?;
        self.put_index(&index, &self.index_of(&path)?)?;
        self.trust(&target, &digest);
        Ok(self.artifact(path, revision, digest, size))
    }

    /// Stores bytes as they are: a chart, an index, a copied layer.
    pub fn store_bytes(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        file_name: &str,
        revision: Revision,
        bytes: &[u8],
    ) -> Result<Artifact, Error> {
        let path = format!("{}/{}/{}/{file_name}", kind.kind.to_lowercase(), key.namespace, key.name);
        let target = self.file(&path)?;
        let mut file = self.temporary()?;
        file.write_all(bytes)?;
        file.as_file().sync_data()?;
        self.put(file, &target)?;
        let digest = digest::of(self.options.algorithm, bytes)?;
        self.trust(&target, &digest);
        Ok(self.artifact(path, revision, digest, bytes.len() as u64))
    }

    /// Stores what `write` writes, as it is and without ever having all of it in memory.
    pub fn store_stream<T, E: From<Error>>(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        file_name: &str,
        revision: Revision,
        write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<(Artifact, T), E> {
        let path = format!("{}/{}/{}/{file_name}", kind.kind.to_lowercase(), key.namespace, key.name);
        let target = self.file(&path)?;
        let file = self.temporary().map_err(Error::from)?;
        let out = io::BufWriter::new(file.reopen().map_err(Error::from)?);
        let mut hashing = digest::Hashing::new(out, self.options.algorithm);
        let written = write(&mut hashing)?;
        let (mut out, digest, size) = hashing.into_parts();
        out.flush().map_err(Error::from)?;
        self.put(file, &target).map_err(Error::from)?;
        self.trust(&target, &digest);
        Ok((self.artifact(path, revision, digest, size), written))
    }

    fn artifact(&self, path: String, revision: Revision, digest: Digest, size: u64) -> Artifact {
        Artifact {
            url: self.url(&path),
            path,
            revision,
            digest,
            last_update_time: Time::new(Timestamp::now()),
            size: i64::try_from(size).ok(),
            metadata: Default::default(),
        }
    }

    /// Where others download `path`.
    pub fn url(&self, path: &str) -> String {
        match self.options.advertised.contains("://") {
            true => format!("{}/{path}", self.options.advertised.trim_end_matches('/')),
            false => format!("http://{}/{path}", self.options.advertised),
        }
    }

    /// Whether the artifact's file is there and has the right digest. A file that was found right and not written to
    /// since is not read again for a while.
    pub fn verify(&self, artifact: &Artifact) -> Result<bool, Error> {
        let path = self.file(&artifact.path)?;
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let stamp = Stamp::of(&file.metadata()?);
        if self.is_trusted(&path, artifact.digest.as_str(), stamp) {
            return Ok(true);
        }
        let algorithm = artifact.digest.algorithm().unwrap_or(Algorithm::Sha256);
        let found = digest::of(algorithm, &file)?;
        if found.encoded() != artifact.digest.encoded() {
            return Ok(false);
        }
        self.remember(path, artifact.digest.as_str(), stamp);
        Ok(true)
    }

    fn is_trusted(&self, path: &Path, digest: &str, stamp: Stamp) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.get(path).is_some_and(|known| {
            known.digest == digest && known.stamp == stamp && known.at.elapsed() < TRUSTED_FOR
        })
    }

    fn remember(&self, path: PathBuf, digest: &str, stamp: Stamp) {
        let known = Verified { digest: digest.to_owned(), stamp, at: Instant::now() };
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).insert(path, known);
    }

    /// What was hashed while it was written.
    fn trust(&self, path: &Path, digest: &Digest) {
        if let Ok(metadata) = fs::metadata(path) {
            self.remember(path.to_owned(), digest.as_str(), Stamp::of(&metadata));
        }
    }

    /// The artifact's files, if it is stored here; opened once, shared by all who read it.
    pub fn tree(&self, artifact: &Artifact) -> Result<Option<Arc<ArtifactTree>>, Error> {
        let slot = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|_, slot| {
                Arc::strong_count(slot) > 1
                    || slot.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
            });
            open.entry(artifact.digest.as_str().to_owned()).or_default().clone()
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = slot.upgrade() {
            return Ok(Some(tree));
        }
        let Some(tree) = self.open_tree(artifact)? else {
            return Ok(None);
        };
        let tree = Arc::new(tree);
        *slot = Arc::downgrade(&tree);
        Ok(Some(tree))
    }

    /// By its index; by the copy that was made of it; by making such a copy.
    fn open_tree(&self, artifact: &Artifact) -> Result<Option<ArtifactTree>, Error> {
        let (tarball, index) = (self.file(&artifact.path)?, self.index_of(&artifact.path)?);
        if let Some(tree) = intact(&tarball, &index, artifact.digest.as_str())? {
            return Ok(Some(tree));
        }
        let copy = self.copy_of(artifact)?;
        if let Some(tree) = intact(&copy, &with_index(&copy), artifact.digest.as_str())? {
            return Ok(Some(tree));
        }
        let Ok(tarball) = File::open(tarball) else {
            return Ok(None);
        };
        self.unpack(tarball, artifact)?;
        intact(&copy, &with_index(&copy), artifact.digest.as_str()).map_err(Error::Io)
    }

    /// Keeps a copy, readable in place, of a tarball whose digest was checked. Older ones of the same object go;
    /// whoever reads one keeps its open file.
    pub fn unpack(&self, tarball: impl Read, artifact: &Artifact) -> Result<(), Error> {
        let target = self.copy_of(artifact)?;
        let copy = self.temporary()?;
        let mut writer = PackWriter::new(copy.reopen()?, Algorithm::Sha256, Compression::fast(), None)?;
        let mut failed = None;
        archive::unpack(tarball, LIMITS, |entry| {
            if failed.is_none() {
                failed = writer.add_bytes(&entry.path, entry.executable, &entry.bytes).err();
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        let (_, _, _, mut index) = writer.finish(&mut |_| Err(io::ErrorKind::Unsupported.into()))?;
        // It stands for the artifact it was made of.
        index.digest = artifact.digest.as_str().to_owned();
        self.put(copy, &target)?;
        self.put_index(&index, &with_index(&target))?;
        let (folder, kept) = (target.parent().unwrap_or(&self.options.root), with_index(&target));
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_copy = path.to_string_lossy().contains(COPY);
            if is_copy && path != target && path != kept {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Removes what the object no longer needs: files past their age or beyond the number kept. Links stay.
    pub fn collect(&self, kind: &Kind, key: &ObjectKey, current: &Artifact) -> Result<usize, Error> {
        let object = format!("{}/{}/{}", kind.kind.to_lowercase(), key.namespace, key.name);
        let current = self.file(&current.path)?;
        let mut others: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(self.file(&object)?).into_iter().flatten() {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() && entry.path() != current {
                others.push((metadata.modified()?, entry.path()));
            }
        }
        others.sort_by(|(a, _), (b, _)| b.cmp(a));
        let now = SystemTime::now();
        let kept = self.options.retention_records.saturating_sub(1);
        let mut removed = 0;
        for (index, (modified, path)) in others.into_iter().enumerate() {
            let old = now.duration_since(modified).unwrap_or_default() > self.options.retention_age;
            if old || index >= kept {
                self.verified.lock().unwrap_or_else(PoisonError::into_inner).remove(&path);
                fs::remove_file(&path)?;
                if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                    let _ = fs::remove_file(self.index_of(&format!("{object}/{name}"))?);
                }
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The object is gone: so are its artifacts. Whether there were any.
    pub fn remove(&self, kind: &Kind, key: &ObjectKey) -> Result<bool, Error> {
        let folder = format!("{}/{}/{}", kind.kind.to_lowercase(), key.namespace, key.name);
        let served = self.file(&folder)?;
        let had_some = served.exists();
        for folder in [&served, &self.options.root.join(TREES).join(&folder)] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.retain(|path, _| !path.starts_with(&served));
        Ok(had_some)
    }

    /// The newest tarball of the same object that has an index, to copy from.
    fn previous(&self, path: &str) -> Result<Option<Previous>, Error> {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut newest: Option<(SystemTime, PathBuf)> = None;
        for entry in fs::read_dir(self.file(folder)?).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if metadata.is_file() && newest.as_ref().is_none_or(|(at, _)| modified > *at) {
                newest = Some((modified, entry.path()));
            }
        }
        let Some((_, tarball)) = newest else { return Ok(None) };
        let name = tarball.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Ok(index) = Index::read(&self.index_of(&format!("{folder}/{name}"))?) else {
            return Ok(None);
        };
        // Damage must not be copied on: the file is as it was when its digest was right, or it is hashed.
        let tarball_file = File::open(&tarball)?;
        let stamp = Stamp::of(&tarball_file.metadata()?);
        if !self.is_trusted(&tarball, &index.digest, stamp) {
            let known: Option<Digest> = index.digest.parse().ok();
            let Some(algorithm) = known.and_then(|digest| digest.algorithm()) else { return Ok(None) };
            if digest::of(algorithm, &tarball_file)?.as_str() != index.digest {
                return Ok(None);
            }
        }
        Ok(Some(Previous { index, tarball: tarball_file }))
    }

    fn temporary(&self) -> io::Result<NamedTempFile> {
        NamedTempFile::new_in(self.options.root.join(TEMPORARY))
    }

    fn put(&self, file: NamedTempFile, target: &Path) -> io::Result<()> {
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        file.persist(target).map(|_| ()).map_err(|error| error.error)
    }

    /// An index that is lost or damaged is made again, so nothing waits for the disk here.
    fn put_index(&self, index: &Index, target: &Path) -> io::Result<()> {
        let file = self.temporary()?;
        index.write(file.reopen()?)?;
        self.put(file, target)
    }

    fn index_of(&self, path: &str) -> Result<PathBuf, Error> {
        self.file(&format!("{TREES}/{path}.index"))
    }

    fn copy_of(&self, artifact: &Artifact) -> Result<PathBuf, Error> {
        let object = artifact.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.file(&format!("{TREES}/{object}/{}{COPY}", artifact.digest.as_str().replace(':', "-")))
    }

    fn file(&self, path: &str) -> Result<PathBuf, Error> {
        let safe =
            TreePath::parse(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(self.options.root.join(safe.as_str()))
    }
}

const COPY: &str = ".copy.tar.gz";

fn with_index(copy: &Path) -> PathBuf {
    copy.with_added_extension("index")
}

/// The tree, unless it is missing or damaged; then whatever is left of it is removed, to be made again.
fn intact(tarball: &Path, index: &Path, digest: &str) -> io::Result<Option<ArtifactTree>> {
    match ArtifactTree::open(tarball, index, digest) {
        Ok(tree) => Ok(Some(tree)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let _ = fs::remove_file(index);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests;
