//! The files of one commit, read from the packs: no work tree is written.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use file_tree::{Entry, Files, Kind, TreePath};

use super::objects::{ObjectStore, Reader};
use super::{Error, Oid};

const DEEPEST: usize = 128;
const MOST_FILES: usize = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Regular,
    Executable,
    Symlink,
    /// A submodule: the id is a commit of another repository.
    Submodule,
}

#[derive(Clone, Debug)]
pub struct TreeFile {
    pub mode: Mode,
    pub id: Oid,
}

/// A commit's files by path.
pub struct Checkout<'a> {
    store: &'a ObjectStore,
    reader: Mutex<Reader<'a>>,
    files: BTreeMap<TreePath, TreeFile>,
    folders: BTreeSet<TreePath>,
}

impl<'a> Checkout<'a> {
    /// Lists the tree of `commit`. Names that would leave the tree or enter a `.git` are refused.
    pub fn new(store: &'a ObjectStore, commit: Oid) -> Result<Self, Error> {
        let mut reader = store.reader();
        let root = reader.commit(commit)?.tree;
        let mut checkout = Self {
            store,
            reader: Mutex::new(store.reader()),
            files: BTreeMap::new(),
            folders: BTreeSet::from([TreePath::root()]),
        };
        checkout.walk(&mut reader, root, &TreePath::root(), 0)?;
        Ok(checkout)
    }

    pub fn files(&self) -> impl Iterator<Item = (&TreePath, &TreeFile)> {
        self.files.iter()
    }

    pub fn folders(&self) -> impl Iterator<Item = &TreePath> {
        self.folders.iter()
    }

    /// A reader for whoever reads many files in a row.
    pub fn reader(&self) -> Reader<'a> {
        self.store.reader()
    }

    fn walk(&mut self, reader: &mut Reader<'_>, tree: Oid, at: &TreePath, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(Error::TooLarge { what: "the depth of the tree", limit: DEEPEST as u64 });
        }
        for (mode, name, id) in reader.tree(tree)? {
            if !is_safe(&name) {
                return Err(Error::UnsafePath(format!("{at}/{name}")));
            }
            let path = at.child(&name);
            let mode = match mode & 0o170_000 {
                0o040_000 => {
                    self.folders.insert(path.clone());
                    self.walk(reader, id, &path, depth + 1)?;
                    continue;
                }
                0o120_000 => Mode::Symlink,
                0o160_000 => Mode::Submodule,
                _ if mode & 0o111 != 0 => Mode::Executable,
                _ => Mode::Regular,
            };
            if self.files.len() >= MOST_FILES {
                return Err(Error::TooLarge { what: "the number of files", limit: MOST_FILES as u64 });
            }
            self.files.insert(path, TreeFile { mode, id });
        }
        Ok(())
    }
}

/// The same refusals as Git's own: nothing that climbs, nothing that is or resembles `.git`.
pub(super) fn is_safe(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    !(name.is_empty()
        || name == "."
        || name == ".."
        || name.contains(['/', '\\', '\0'])
        || lower == ".git"
        || lower == "git~1"
        || lower.starts_with(".git::")
        || lower.trim_end_matches([' ', '.']) == ".git")
}

impl Files for Checkout<'_> {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, file_tree::Error> {
        let Some(file) = self.files.get(path) else {
            let missing = if self.folders.contains(path) {
                file_tree::Error::IsFolder
            } else {
                file_tree::Error::NotFound
            };
            return Err(missing(path.clone()));
        };
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        match reader.blob(file.id) {
            Ok(bytes) => Ok(Cow::Owned(bytes.to_vec())),
            Err(error) => Err(file_tree::Error::Unreadable { path: path.clone(), cause: error.to_string() }),
        }
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, file_tree::Error> {
        if !self.folders.contains(path) {
            return Err(file_tree::Error::NotFound(path.clone()));
        }
        let mut entries: Vec<Entry> = Vec::new();
        let own = |candidate: &&TreePath| candidate.parent().as_ref() == Some(path);
        let named =
            |path: &TreePath, kind| Entry { name: path.file_name().unwrap_or_default().to_owned(), kind };
        entries.extend(self.folders.range(path.clone()..).filter(own).map(|path| named(path, Kind::Folder)));
        entries.extend(self.files.keys().filter(own).map(|path| named(path, Kind::File)));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        if self.folders.contains(path) {
            return Some(Kind::Folder);
        }
        self.files.get(path).map(|_| Kind::File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_escape_or_reach_git_are_refused() {
        for name in ["..", ".", "", "a/b", ".git", ".GIT", ".git ", ".git.", "git~1", "a\\b", "a\0"] {
            assert!(!is_safe(name), "{name:?}");
        }
        for name in [".gitignore", "git", "a b", ".github", "...", "ünï"] {
            assert!(is_safe(name), "{name:?}");
        }
    }
}
