//! The files of a tarball, read in place by its index.
//!
//! Also holds a digest for every file and folder, so that "did anything below this path change?" is a comparison of
//! two digests. Whoever has a tree has its tarball open: it stays readable after it was collected.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use file_tree::{Entry, Error, Files, Kind, TreePath};
use flate2::Compression;
use flate2::read::GzDecoder;
use flux_api::digest::Algorithm;
use sha2::{Digest, Sha256};

pub use super::index::Hash;
use super::index::Index;
use super::pack::PackWriter;

/// Inflated members that are kept: files are mostly read in order.
const KEPT_MEMBERS: usize = 4;
const LARGEST_KEPT: usize = 4 << 20;

pub struct ArtifactTree {
    tarball: File,
    files: BTreeMap<TreePath, Stored>,
    folders: BTreeMap<TreePath, Hash>,
    inflated: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

#[derive(Clone, Copy)]
struct Stored {
    member: u64,
    offset: u64,
    length: u64,
    executable: bool,
    hash: Hash,
}

impl ArtifactTree {
    /// Opens a tarball by the index beside it, which must be of this very tarball.
    pub fn open(tarball: &Path, index: &Path, digest: &str) -> io::Result<Self> {
        let index = Index::read(index)?;
        if index.digest != digest {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the index is of another artifact"));
        }
        Ok(Self::new(File::open(tarball)?, index))
    }

    pub(super) fn new(tarball: File, index: Index) -> Self {
        let files: BTreeMap<TreePath, Stored> = index
            .files
            .into_iter()
            .map(|file| {
                let stored = Stored {
                    member: file.member,
                    offset: file.offset,
                    length: file.length,
                    executable: file.executable,
                    hash: file.hash,
                };
                (file.path, stored)
            })
            .collect();
        let folders = folder_hashes(&files);
        Self { tarball, files, folders, inflated: Mutex::default() }
    }

    /// The digest of the file or folder at `path`; `None` when there is nothing.
    pub fn hash(&self, path: &TreePath) -> Option<Hash> {
        self.folders.get(path).copied().or_else(|| self.files.get(path).map(|stored| stored.hash))
    }

    /// Every file with its mode, in lexical order.
    pub fn files(&self) -> impl Iterator<Item = (&TreePath, bool)> {
        self.files.iter().map(|(path, stored)| (path, stored.executable))
    }

    fn contents(&self, stored: &Stored) -> io::Result<Vec<u8>> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "damaged artifact");
        let member = self.member(stored)?;
        let start = usize::try_from(stored.offset).map_err(|_| damaged())?;
        let end = start.checked_add(usize::try_from(stored.length).map_err(|_| damaged())?);
        let bytes = end.and_then(|end| member.get(start..end)).ok_or_else(damaged)?;
        Ok(bytes.to_vec())
    }

    fn member(&self, stored: &Stored) -> io::Result<Arc<Vec<u8>>> {
        let mut kept = self.inflated.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, member)) = kept.iter().find(|(at, _)| *at == stored.member) {
            return Ok(member.clone());
        }
        drop(kept);
        // A member is a little more than its last file; nothing of ours inflates further.
        let limit = stored.offset.saturating_add(stored.length).saturating_add(64 << 20);
        let place = Place { file: &self.tarball, at: stored.member };
        let mut bytes = Vec::new();
        GzDecoder::new(io::BufReader::new(place)).take(limit).read_to_end(&mut bytes)?;
        let member = Arc::new(bytes);
        if member.len() <= LARGEST_KEPT {
            kept = self.inflated.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_front((stored.member, member.clone()));
            kept.truncate(KEPT_MEMBERS);
        }
        Ok(member)
    }
}

/// Files in any order, kept in a file of their own until they are stored.
pub struct TreeWriter(PackWriter);

impl TreeWriter {
    pub fn new(file: File) -> io::Result<Self> {
        // Nobody keeps it: not worth compressing.
        PackWriter::new(file, Algorithm::Sha256, Compression::none(), None).map(Self)
    }

    /// Adds a file. The same path again replaces the earlier one, as in an archive.
    pub fn add(&mut self, path: TreePath, executable: bool, bytes: &[u8]) -> io::Result<()> {
        self.0.add_bytes(&path, executable, bytes)
    }

    pub fn finish(self) -> io::Result<ArtifactTree> {
        let (file, _, _, index) = self.0.finish(&mut |_| Err(io::ErrorKind::Unsupported.into()))?;
        Ok(ArtifactTree::new(file, index))
    }
}

/// A file from some place on.
struct Place<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Place<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Each folder's digest covers the names, modes and digests of what is directly in it.
fn folder_hashes(files: &BTreeMap<TreePath, Stored>) -> BTreeMap<TreePath, Hash> {
    let mut children: BTreeMap<TreePath, Vec<(String, Option<Stored>)>> = BTreeMap::new();
    children.entry(TreePath::root()).or_default();
    for (path, stored) in files {
        let mut at = path.clone();
        let mut leaf = Some(*stored);
        while let (Some(parent), Some(name)) = (at.parent(), at.file_name()) {
            let known = children.contains_key(&parent);
            let siblings = children.entry(parent.clone()).or_default();
            if siblings.last().is_none_or(|(last, _)| last != name) {
                siblings.push((name.to_owned(), leaf));
            }
            if known {
                break;
            }
            leaf = None;
            at = parent;
        }
    }
    let mut folders: BTreeMap<TreePath, Hash> = BTreeMap::new();
    // Reverse order visits children before their parents.
    for (folder, entries) in children.iter().rev() {
        let mut hash = Sha256::new();
        for (name, stored) in entries {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            match stored {
                Some(stored) => {
                    hash.update([if stored.executable { 2 } else { 1 }]);
                    hash.update(stored.hash);
                }
                None => {
                    hash.update([0]);
                    hash.update(folders.get(&folder.child(name)).copied().unwrap_or_default());
                }
            }
        }
        folders.insert(folder.clone(), hash.finalize().into());
    }
    folders
}

impl Files for ArtifactTree {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, Error> {
        let Some(stored) = self.files.get(path) else {
            let error = if self.folders.contains_key(path) { Error::IsFolder } else { Error::NotFound };
            return Err(error(path.clone()));
        };
        let contents = self.contents(stored);
        let contents =
            contents.map_err(|error| Error::Unreadable { path: path.clone(), cause: error.to_string() })?;
        Ok(Cow::Owned(contents))
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error> {
        match self.kind(path) {
            None => return Err(Error::NotFound(path.clone())),
            Some(Kind::File) => return Err(Error::NotFolder(path.clone())),
            Some(Kind::Folder) => {}
        }
        let depth = path.parts().count();
        let mut entries: BTreeMap<&str, Kind> = BTreeMap::new();
        // Between `apps` and `apps/…` may stand names such as `apps-old`; past `apps0` nothing is below.
        for (file, _) in self.files.range(path.clone()..) {
            if !file.is_within(path) {
                if file.as_str() > path.as_str() && !file.as_str().starts_with(path.as_str()) {
                    break;
                }
                continue;
            }
            let mut rest = file.parts().skip(depth);
            if let Some(name) = rest.next() {
                entries.insert(name, if rest.next().is_some() { Kind::Folder } else { Kind::File });
            }
        }
        Ok(entries.into_iter().map(|(name, kind)| Entry { name: name.to_owned(), kind }).collect())
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        if self.folders.contains_key(path) {
            return Some(Kind::Folder);
        }
        self.files.contains_key(path).then_some(Kind::File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> ArtifactTree {
        let file = tempfile::tempfile().unwrap();
        let level = flate2::Compression::default();
        let algorithm = flux_api::digest::Algorithm::Sha256;
        let mut writer = PackWriter::new(file, algorithm, level, None).unwrap();
        for (name, text) in files {
            writer.add_bytes(&path(name), false, text.as_bytes()).unwrap();
        }
        let (file, _, _, index) = writer.finish(&mut |_| Err(io::ErrorKind::Unsupported.into())).unwrap();
        ArtifactTree::new(file, index)
    }

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    #[test]
    fn files_come_back_and_folders_are_listed() {
        let tree = tree(&[("apps/a.yaml", "a"), ("apps/b/c.yaml", "c"), ("apps-old/x", "x"), ("z", "")]);
        assert_eq!(tree.read(&path("apps/b/c.yaml")).unwrap().as_ref(), b"c");
        assert_eq!(tree.read(&path("z")).unwrap().as_ref(), b"");
        let names = |at: &str| -> Vec<String> {
            tree.list(&path(at)).unwrap().into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(""), ["apps", "apps-old", "z"]);
        assert_eq!(names("apps"), ["a.yaml", "b"]);
        assert_eq!(tree.kind(&path("apps/b")), Some(Kind::Folder));
        assert_eq!(tree.kind(&path("nope")), None);
    }

    #[test]
    fn a_change_shows_in_the_digests_above_it_and_nowhere_else() {
        let one = tree(&[("apps/a/x", "1"), ("apps/b/y", "2"), ("infra/z", "3")]);
        let two = tree(&[("apps/a/x", "changed"), ("apps/b/y", "2"), ("infra/z", "3")]);
        for changed in ["", "apps", "apps/a", "apps/a/x"] {
            assert_ne!(one.hash(&path(changed)), two.hash(&path(changed)), "{changed}");
        }
        for same in ["apps/b", "apps/b/y", "infra"] {
            assert_eq!(one.hash(&path(same)), two.hash(&path(same)), "{same}");
        }
    }

    #[test]
    fn large_and_small_files_stand_side_by_side() {
        let large = "x".repeat(3 << 20);
        let names: Vec<String> = (0..200).map(|n| format!("f{n:03}")).collect();
        let files: Vec<(&str, &str)> = names
            .iter()
            .enumerate()
            .map(|(n, name)| (name.as_str(), if n % 50 == 7 { large.as_str() } else { "small" }))
            .collect();
        let tree = tree(&files);
        for (name, text) in files {
            assert_eq!(tree.read(&path(name)).unwrap().len(), text.len(), "{name}");
        }
    }

    #[test]
    fn damage_is_noticed() {
        let mut index = Index::default();
        index.files.push(crate::artifact::index::IndexedFile {
            path: path("a"),
            executable: false,
            hash: [0; 32],
            member: 5,
            offset: u64::MAX - 1,
            length: u64::MAX,
        });
        let tree = ArtifactTree::new(tempfile::tempfile().unwrap(), index);
        assert!(matches!(tree.read(&path("a")), Err(Error::Unreadable { .. })));
    }
}
