//! The tags that scans found, on disk, so that they survive a restart: one small file for each ImageRepository, in the
//! layout of upstream's filesystem storage (`imagerepository/<namespace>/<name>/tags.txt`, or `tags.txt.gz`).
//!
//! Nothing is kept in memory: a list is read when a policy needs it. A file is written beside its place and renamed
//! into it, so that it is there as a whole or not at all.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::reconcile::ObjectKey;
use crate::watcher::artifact_generator::adler32;

const FOLDER: &str = "imagerepository";
const PLAIN: &str = "tags.txt";
const COMPRESSED: &str = "tags.txt.gz";
/// Upstream's mark of the layout that it keeps beside the feature gate `FluxStorage`.
const VERSION_FILE: &str = ".storage-version";
/// What a list may unpack to: twice the most tags that are ever stored.
const LARGEST: u64 = 256 << 20;

/// How a list of tags is summed up, which users see as the revision of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Upstream's database: Adler-32 over the list as JSON.
    Adler32,
    /// Upstream's filesystem storage: SHA-256 over the lines.
    Sha256,
}

#[derive(Debug, thiserror::Error)]
#[error("tag storage: {path}: {cause}")]
pub struct Error {
    path: String,
    cause: io::Error,
}

pub struct TagStore {
    root: PathBuf,
    checksum: Checksum,
    compression_threshold: usize,
    swept: Mutex<Instant>,
}

impl TagStore {
    pub fn new(root: &Path, checksum: Checksum, compression_threshold: usize) -> Self {
        let store = Self {
            root: root.to_owned(),
            checksum,
            compression_threshold,
            swept: Mutex::new(Instant::now()),
        };
        let version = root.join(VERSION_FILE);
        let marked = match checksum {
            Checksum::Sha256 => fs::create_dir_all(root).and_then(|()| fs::write(&version, "2\n")),
            Checksum::Adler32 => missing_is_fine(fs::remove_file(&version)),
        };
        // Only upstream's controller reads the mark, and without it scans everything once.
        if let Err(error) = marked.map_err(at(&version)) {
            tracing::warn!(%error, "the storage could not be marked");
        }
        store
    }

    /// The tags in the order they were stored; none where there was no scan.
    pub fn get(&self, key: &ObjectKey) -> Result<Vec<String>, Error> {
        let folder = self.folder(key);
        let mut bytes = String::new();
        for name in [PLAIN, COMPRESSED] {
            let path = folder.join(name);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(at(&path)(error)),
            };
            let read = match name {
                PLAIN => file.take(LARGEST).read_to_string(&mut bytes),
                _ => GzDecoder::new(file).take(LARGEST).read_to_string(&mut bytes),
            };
            read.map_err(at(&path))?;
            break;
        }
        Ok(bytes.lines().map(str::to_owned).collect())
    }

    /// Whether there are any.
    pub fn has(&self, key: &ObjectKey) -> bool {
        let folder = self.folder(key);
        let holds = |name| fs::metadata(folder.join(name)).is_ok_and(|file| file.len() > 0);
        holds(PLAIN) || holds(COMPRESSED)
    }

    /// Stores the tags and sums them up.
    pub fn set(&self, key: &ObjectKey, tags: &[String]) -> Result<String, Error> {
        let mut lines = String::with_capacity(tags.iter().map(|tag| tag.len() + 1).sum());
        for tag in tags {
            lines.push_str(tag);
            lines.push('\n');
        }
        let folder = self.folder(key);
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let (name, other) = match lines.len() >= self.compression_threshold {
            true => (COMPRESSED, PLAIN),
            false => (PLAIN, COMPRESSED),
        };
        let path = folder.join(name);
        write_whole(&folder, &path, lines.as_bytes(), name == COMPRESSED).map_err(at(&path))?;
        missing_is_fine(fs::remove_file(folder.join(other))).map_err(at(&folder))?;
        Ok(self.revision(tags, &lines))
    }

    /// Forgets an object's tags.
    pub fn remove(&self, key: &ObjectKey) -> Result<(), Error> {
        let folder = self.folder(key);
        missing_is_fine(fs::remove_dir_all(&folder)).map_err(at(&folder))
    }

    /// Removes what belongs to none of `known`, if that was not done for a while.
    pub fn sweep(&self, every: Duration, known: impl FnOnce() -> BTreeSet<ObjectKey>) {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if every.is_zero() || swept.elapsed() < every {
                return;
            }
            *swept = Instant::now();
        }
        let known = known();
        for namespace in names(&self.root.join(FOLDER)) {
            for name in names(&self.root.join(FOLDER).join(&namespace)) {
                let key = ObjectKey::new(namespace.clone(), name);
                if !known.contains(&key)
                    && let Err(error) = self.remove(&key)
                {
                    tracing::warn!(%error, "tags of an object that is gone could not be removed");
                }
            }
        }
    }

    fn revision(&self, tags: &[String], lines: &str) -> String {
        match self.checksum {
            Checksum::Adler32 => {
                let json = serde_json::to_vec(tags).unwrap_or_default();
                adler32(&json).to_string()
            }
            Checksum::Sha256 => {
                let digest = Sha256::digest(lines);
                format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
        }
    }

    fn folder(&self, key: &ObjectKey) -> PathBuf {
        // The API server allows no such names; a path is no place to rely on it.
        let plain = |text: &str| text.replace(['/', '\\'], "_").trim_start_matches('.').to_owned();
        self.root.join(FOLDER).join(plain(&key.namespace)).join(plain(&key.name))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn write_whole(folder: &Path, path: &Path, bytes: &[u8], compress: bool) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    match compress {
        true => {
            let mut encoder = GzEncoder::new(&mut file, Compression::default());
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
        false => file.write_all(bytes)?,
    }
    file.as_file().sync_data()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.display().to_string();
    move |cause| Error { path: path.clone(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_was_stored_is_there_after_a_restart_in_the_same_order() {
        let folder = tempfile::tempdir().unwrap();
        let key = ObjectKey::new("apps", "web");
        let open = || TagStore::new(folder.path(), Checksum::Adler32, 64);
        assert!(!open().has(&key) && open().get(&key).unwrap().is_empty());
        let few = tags("b a 1.0.0");
        open().set(&key, &few).unwrap();
        assert_eq!(open().get(&key).unwrap(), few);
        let many: Vec<String> = (0..100).map(|number| format!("1.0.{number}")).collect();
        open().set(&key, &many).unwrap();
        assert_eq!(open().get(&key).unwrap(), many);
        let path = folder.path().join("imagerepository/apps/web");
        assert!(path.join(COMPRESSED).exists() && !path.join(PLAIN).exists());
        open().set(&key, &few).unwrap();
        assert_eq!(open().get(&key).unwrap(), few);
        assert!(!path.join(COMPRESSED).exists());
        open().remove(&key).unwrap();
        assert!(!open().has(&key));
    }

    #[test]
    fn revisions_are_those_that_upstream_writes() {
        let folder = tempfile::tempdir().unwrap();
        let key = ObjectKey::new("apps", "web");
        let list = tags("0.1.0 0.0.1");
        let store = TagStore::new(folder.path(), Checksum::Adler32, 1 << 16);
        assert_eq!(store.set(&key, &list).unwrap(), adler32(br#"["0.1.0","0.0.1"]"#).to_string());
        let store = TagStore::new(folder.path(), Checksum::Sha256, 1 << 16);
        let expected =
            Sha256::digest("0.1.0\n0.0.1\n").iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(store.set(&key, &list).unwrap(), format!("sha256:{expected}"));
        assert_eq!(fs::read_to_string(folder.path().join(VERSION_FILE)).unwrap(), "2\n");
        drop(TagStore::new(folder.path(), Checksum::Adler32, 1 << 16));
        assert!(!folder.path().join(VERSION_FILE).exists());
    }

    #[test]
    fn files_of_objects_that_are_gone_are_swept_up_and_no_name_leaves_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = TagStore::new(folder.path(), Checksum::Adler32, 1 << 16);
        let (kept, gone) = (ObjectKey::new("apps", "web"), ObjectKey::new("apps", "old"));
        store.set(&kept, &tags("1")).unwrap();
        store.set(&gone, &tags("1")).unwrap();
        store.sweep(Duration::ZERO, BTreeSet::new);
        assert!(store.has(&gone), "zero means never");
        store.sweep(Duration::from_nanos(1), || BTreeSet::from([kept.clone()]));
        assert!(store.has(&kept) && !store.has(&gone));
        store.set(&ObjectKey::new("..", "../../x"), &tags("1")).unwrap();
        assert!(!folder.path().parent().unwrap().join("x").exists());
    }
}
