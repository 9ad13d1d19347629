//! The file system as a tree of files, for the examples and tests of this crate.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use file_tree::{Entry, Error, Files, Kind, TreePath};

/// The file system, from its root.
pub struct Disk;

fn real(path: &TreePath) -> PathBuf {
    Path::new("/").join(path.as_str())
}

fn failed(path: &TreePath, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound(path.clone()),
        std::io::ErrorKind::IsADirectory => Error::IsFolder(path.clone()),
        std::io::ErrorKind::NotADirectory => Error::NotFolder(path.clone()),
        _ => Error::Unreadable { path: path.clone(), cause: error.to_string() },
    }
}

impl Files for Disk {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, Error> {
        std::fs::read(real(path)).map(Cow::Owned).map_err(|error| failed(path, &error))
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(real(path)).map_err(|error| failed(path, &error))? {
            let entry = entry.map_err(|error| failed(path, &error))?;
            let kind = if entry.path().is_dir() { Kind::Folder } else { Kind::File };
            entries.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), kind });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        let metadata = std::fs::metadata(real(path)).ok()?;
        Some(if metadata.is_dir() { Kind::Folder } else { Kind::File })
    }

    fn resolve(&self, path: &TreePath) -> Result<TreePath, Error> {
        let resolved = std::fs::canonicalize(real(path)).map_err(|error| failed(path, &error))?;
        let text = resolved.to_str().ok_or_else(|| Error::NotFound(path.clone()))?;
        TreePath::parse(text).map_err(|_| Error::Escapes(path.clone()))
    }
}
