//! A tree of files in one file: contents one after another, an index at the end.
//!
//! The index also holds a digest for every file and folder, so that "did anything below this path change?"
//! is a comparison of two digests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use file_tree::{Entry, Error, Files, Kind, TreePath};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"fluxtre1";
const LONGEST_PATH: usize = 1 << 16;

pub type Hash = [u8; 32];

pub struct ArtifactTree {
    file: File,
    files: BTreeMap<TreePath, Stored>,
    folders: BTreeMap<TreePath, Hash>,
}

#[derive(Clone, Copy)]
struct Stored {
    offset: u64,
    length: u64,
    executable: bool,
    hash: Hash,
}

impl ArtifactTree {
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "damaged artifact tree");
        let size = file.metadata()?.len();
        let mut tail = [0; 16];
        file.seek(SeekFrom::Start(size.checked_sub(16).ok_or_else(damaged)?))?;
        file.read_exact(&mut tail)?;
        if &tail[8..] != MAGIC {
            return Err(damaged());
        }
        let start = u64::from_le_bytes(tail[..8].try_into().map_err(|_| damaged())?);
        let length = (size - 16).checked_sub(start).ok_or_else(damaged)?;
        let mut index = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        file.read_exact_at(&mut index, start)?;
        let files = read_index(&index, start).ok_or_else(damaged)?;
        let folders = folder_hashes(&files);
        Ok(Self { file, files, folders })
    }

    /// The digest of the file or folder at `path`; `None` when there is nothing.
    pub fn hash(&self, path: &TreePath) -> Option<Hash> {
        self.folders.get(path).copied().or_else(|| self.files.get(path).map(|stored| stored.hash))
    }

    /// Every file with its mode, in lexical order.
    pub fn files(&self) -> impl Iterator<Item = (&TreePath, bool)> {
        self.files.iter().map(|(path, stored)| (path, stored.executable))
    }
}

/// Writes a tree file by file.
pub struct TreeWriter {
    out: BufWriter<File>,
    offset: u64,
    files: BTreeMap<TreePath, Stored>,
}

impl TreeWriter {
    pub fn new(file: File) -> Self {
        Self { out: BufWriter::new(file), offset: 0, files: BTreeMap::new() }
    }

    /// Adds a file. The same path again replaces the earlier one, as in an archive.
    pub fn add(&mut self, path: TreePath, executable: bool, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        let length = bytes.len() as u64;
        let hash = Sha256::digest(bytes).into();
        self.files.insert(path, Stored { offset: self.offset, length, executable, hash });
        self.offset += length;
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<()> {
        for (path, stored) in &self.files {
            let name = path.as_str().as_bytes();
            self.out.write_all(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes())?;
            self.out.write_all(name)?;
            self.out.write_all(&stored.offset.to_le_bytes())?;
            self.out.write_all(&stored.length.to_le_bytes())?;
            self.out.write_all(&[u8::from(stored.executable)])?;
            self.out.write_all(&stored.hash)?;
        }
        self.out.write_all(&self.offset.to_le_bytes())?;
        self.out.write_all(MAGIC)?;
        self.out.flush()
    }
}

fn read_index(mut index: &[u8], end_of_data: u64) -> Option<BTreeMap<TreePath, Stored>> {
    let mut files = BTreeMap::new();
    let mut take = |length: usize| {
        let (head, rest) = index.split_at_checked(length)?;
        index = rest;
        Some(head)
    };
    while let Some(length) = take(4) {
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        if length > LONGEST_PATH {
            return None;
        }
        let path = TreePath::parse(std::str::from_utf8(take(length)?).ok()?).ok()?;
        let offset = u64::from_le_bytes(take(8)?.try_into().ok()?);
        let length = u64::from_le_bytes(take(8)?.try_into().ok()?);
        let executable = take(1)? == [1];
        let hash = take(32)?.try_into().ok()?;
        if offset.checked_add(length)? > end_of_data {
            return None;
        }
        files.insert(path, Stored { offset, length, executable, hash });
    }
    Some(files)
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
        let mut bytes = vec![0; stored.length as usize];
        self.file
            .read_exact_at(&mut bytes, stored.offset)
            .map_err(|error| Error::Unreadable { path: path.clone(), cause: error.to_string() })?;
        Ok(Cow::Owned(bytes))
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
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = TreeWriter::new(file.reopen().unwrap());
        for (name, text) in files {
            writer.add(path(name), false, text.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        ArtifactTree::open(file.path()).unwrap()
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
    fn damage_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"short").unwrap();
        assert!(ArtifactTree::open(file.path()).is_err());
        std::fs::write(file.path(), [b"\xff\xff\xff\xff\xff\xff\xff\xff".as_slice(), MAGIC].concat())
            .unwrap();
        assert!(ArtifactTree::open(file.path()).is_err());
    }
}
