//! A tree of files as a trait, so that engines never touch a disk.
//!
//! An unpacked artifact, a Git tree, a chart and a map in a test all answer the same three questions:
//! what is at this path, what does it hold, and what lies below it. [`Recorded`] remembers the questions,
//! so that a caller knows everything an answer depended on.
//!
//! Deliberately absent: writing, permissions, and any way to leave the tree.

mod memory;
mod path;
mod recorded;

pub use memory::MemoryTree;
pub use path::{EscapesRoot, TreePath};
pub use recorded::{Question, Recorded};

use std::borrow::Cow;

/// Something that holds files. Paths are relative to its root and never leave it.
pub trait Files: Sync {
    /// The bytes of the file at `path`, symbolic links followed.
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, Error>;

    /// The names directly below the folder at `path`, sorted by byte.
    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error>;

    /// What is at `path`, symbolic links followed; `None` when there is nothing.
    fn kind(&self, path: &TreePath) -> Option<Kind>;

    /// `path` with every symbolic link resolved. Trees without links return it unchanged.
    fn resolve(&self, path: &TreePath) -> Result<TreePath, Error> {
        match self.kind(path) {
            Some(_) => Ok(path.clone()),
            None => Err(Error::NotFound(path.clone())),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}: no such file or directory")]
    NotFound(TreePath),
    #[error("{0}: is a directory")]
    IsFolder(TreePath),
    #[error("{0}: not a directory")]
    NotFolder(TreePath),
    #[error("{0}: leaves the tree through a symbolic link")]
    Escapes(TreePath),
    #[error("{path}: {cause}")]
    Unreadable { path: TreePath, cause: String },
}
