//! Where artifacts lie on disk, in upstream's layout: `<kind>/<namespace>/<name>/<file>`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use file_tree::TreePath;
use flux_api::artifact::Artifact;
use flux_api::digest::{Algorithm, Digest};
use flux_api::kinds::Kind;
use flux_api::revision::Revision;
use flux_api::time::Time;
use flux_remote::archive;
use k8s_openapi::jiff::Timestamp;
use sha2::Sha256;

use super::tree::{ArtifactTree, TreeWriter};
use crate::reconcile::ObjectKey;

/// Trees stand apart from what is served over HTTP.
const TREES: &str = ".trees";
const LIMITS: archive::Limits = archive::Limits { bytes: 8 << 30, files: 2_000_000 };

#[derive(Clone, Debug)]
pub struct StorageOptions {
    pub root: PathBuf,
    /// `host:port` under which others reach the file server.
    pub advertised: String,
    pub retention_age: Duration,
    pub retention_records: usize,
}

pub struct Storage {
    options: StorageOptions,
    open: Mutex<HashMap<String, Weak<ArtifactTree>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("artifact storage: {0}")]
    Io(#[from] io::Error),
    #[error("artifact storage: {0}")]
    Archive(#[from] archive::Error),
    #[error("artifact '{path}' was changed on disk: expected digest {expected}, found {found}")]
    Changed { path: String, expected: String, found: String },
}

/// Is handed a path, whether it is executable, and the bytes.
pub type Each<'a> = dyn FnMut(&TreePath, bool, &[u8]) -> io::Result<()> + 'a;

/// What goes into an artifact, in lexical order of paths.
pub trait Contents {
    /// Calls `each` with every file.
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()>;
}

impl Storage {
    pub fn new(options: StorageOptions) -> io::Result<Self> {
        fs::create_dir_all(options.root.join(TREES))?;
        Ok(Self { options, open: Mutex::default() })
    }

    pub fn root(&self) -> &Path {
        &self.options.root
    }

    /// Stores `contents` as the artifact of an object, both as tarball and as tree.
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
        let folder = target.parent().unwrap_or(&self.options.root);
        fs::create_dir_all(folder)?;
        let tarball = tempfile::NamedTempFile::new_in(folder)?;
        let tree = tempfile::NamedTempFile::new_in(self.options.root.join(TREES))?;

        let mut tree_writer = TreeWriter::new(tree.reopen()?);
        let mut tar_writer = archive::Writer::new(Hashing::new(io::BufWriter::new(tarball.reopen()?)))?;
        contents.each(&mut |path, executable, bytes| {
            tree_writer.add(path.clone(), executable, bytes)?;
            tar_writer.file(path, executable, bytes)
        })?;
        tree_writer.finish()?;
        let (mut out, hash, size) = tar_writer.finish()?.into_parts();
        out.flush()?;

        let digest = sha256(&hash);
        self.keep_tree(tree, &path, &digest)?;
        tarball.persist(&target).map_err(|error| error.error)?;
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
        let folder = target.parent().unwrap_or(&self.options.root);
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.persist(&target).map_err(|error| error.error)?;
        let digest = sha256(&<Sha256 as sha2::Digest>::digest(bytes));
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
        let folder = target.parent().unwrap_or(&self.options.root);
        fs::create_dir_all(folder).map_err(Error::from)?;
        let file = tempfile::NamedTempFile::new_in(folder).map_err(Error::from)?;
        let mut hashing = Hashing::new(io::BufWriter::new(file.reopen().map_err(Error::from)?));
        let written = write(&mut hashing)?;
        let (mut out, hash, size) = hashing.into_parts();
        out.flush().map_err(Error::from)?;
        file.persist(&target).map_err(|error| Error::from(error.error))?;
        Ok((self.artifact(path, revision, sha256(&hash), size), written))
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

    /// Whether the artifact's file is there and has the right digest.
    pub fn verify(&self, artifact: &Artifact) -> Result<bool, Error> {
        let mut file = match File::open(self.file(&artifact.path)?) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut hashing = Hashing::new(io::sink());
        io::copy(&mut file, &mut hashing)?;
        let found = sha256(&hashing.into_parts().1);
        Ok(found.as_str() == artifact.digest.as_str())
    }

    /// The artifact's files, if it is stored here; unpacked at most once at a time, shared by all who read it.
    pub fn tree(&self, artifact: &Artifact) -> Result<Option<Arc<ArtifactTree>>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let id = artifact.digest.as_str().to_owned();
        if let Some(tree) = open.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(tree));
        }
        open.retain(|_, tree| tree.strong_count() > 0);
        let path = self.tree_file(&artifact.path, &artifact.digest)?;
        if !path.exists() {
            let Ok(tarball) = File::open(self.file(&artifact.path)?) else {
                return Ok(None);
            };
            self.unpack(tarball, artifact)?;
        }
        let tree = Arc::new(ArtifactTree::open(&path)?);
        open.insert(id, Arc::downgrade(&tree));
        Ok(Some(tree))
    }

    /// Unpacks a tarball downloaded from elsewhere, whose digest was checked.
    pub fn unpack(&self, tarball: impl Read, artifact: &Artifact) -> Result<(), Error> {
        let file = tempfile::NamedTempFile::new_in(self.options.root.join(TREES))?;
        let mut writer = TreeWriter::new(file.reopen()?);
        let mut failed = None;
        archive::unpack(tarball, LIMITS, |entry| {
            if failed.is_none() {
                failed = writer.add(entry.path, entry.executable, &entry.bytes).err();
            }
        })?;
        match failed {
            Some(error) => return Err(error.into()),
            None => writer.finish()?,
        }
        self.keep_tree(file, &artifact.path, &artifact.digest)
    }

    /// Removes what the object no longer needs: files past their age or beyond the number kept.
    pub fn collect(&self, kind: &Kind, key: &ObjectKey, current: &Artifact) -> Result<usize, Error> {
        let folder = self.file(&format!("{}/{}/{}", kind.kind.to_lowercase(), key.namespace, key.name))?;
        let current = self.file(&current.path)?;
        let mut others: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&folder).into_iter().flatten() {
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
                fs::remove_file(path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The object is gone: so are its artifacts.
    pub fn remove(&self, kind: &Kind, key: &ObjectKey) -> Result<(), Error> {
        let folder = format!("{}/{}/{}", kind.kind.to_lowercase(), key.namespace, key.name);
        for folder in [self.file(&folder)?, self.file(&format!("{TREES}/{folder}"))?] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Puts a finished tree in its place and removes the object's older ones. Whoever still reads one keeps
    /// its open file.
    fn keep_tree(&self, tree: tempfile::NamedTempFile, path: &str, digest: &Digest) -> Result<(), Error> {
        let target = self.tree_file(path, digest)?;
        let folder = target.parent().unwrap_or(&self.options.root);
        fs::create_dir_all(folder)?;
        tree.persist(&target).map_err(|error| error.error)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path != target {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn tree_file(&self, path: &str, digest: &Digest) -> Result<PathBuf, Error> {
        let object = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.file(&format!("{TREES}/{object}/{}", digest.as_str().replace(':', "-")))
    }

    fn file(&self, path: &str) -> Result<PathBuf, Error> {
        let safe =
            TreePath::parse(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(self.options.root.join(safe.as_str()))
    }
}

fn sha256(hash: &[u8]) -> Digest {
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Digest::new(Algorithm::Sha256, &hex).expect("32 bytes are 64 hexadecimal digits")
}

/// Counts and hashes what passes through.
struct Hashing<W> {
    out: W,
    hash: Sha256,
    size: u64,
}

impl<W> Hashing<W> {
    fn new(out: W) -> Self {
        Self { out, hash: <Sha256 as sha2::Digest>::new(), size: 0 }
    }

    fn into_parts(self) -> (W, [u8; 32], u64) {
        (self.out, <Sha256 as sha2::Digest>::finalize(self.hash).into(), self.size)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        <Sha256 as sha2::Digest>::update(&mut self.hash, &bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
