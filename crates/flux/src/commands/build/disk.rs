//! The file system as a tree of files, from its root: a kustomization may name bases beside its folder.
//!
//! Nothing is written. Upstream puts a kustomization.yaml into the folder and takes it away again; here the generated file never
//! exists, so an interrupted build leaves nothing behind.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use file_tree::{Entry, Error, Files, Kind, TreePath};
use flux_remote::ignore::{FILE_NAME, Ignore};

/// Folders deeper than this are not searched for ignore files.
const DEEPEST: usize = 64;

pub(super) struct Disk {
    root: PathBuf,
    /// Files below the folder that a generated kustomization leaves out.
    ignored: Option<(TreePath, Ignore)>,
}

impl Disk {
    /// With patterns, the folder's `.sourceignore` files count too, as upstream has it; without, neither does.
    pub(super) fn new(folder: &TreePath, patterns: &[String]) -> Disk {
        if patterns.is_empty() {
            return Disk { root: PathBuf::from("/"), ignored: None };
        }
        let mut files = Vec::new();
        ignore_files(&below(Path::new("/"), folder), &TreePath::root(), 0, &mut files);
        let text = patterns.join("\n");
        let files = files.iter().map(|(folder, text)| (folder, text.as_str()));
        let ignored = Some((folder.clone(), Ignore::for_source(files, Some(&text))));
        Disk { root: PathBuf::from("/"), ignored }
    }

    /// Only what lies below a folder, as if there was nothing else.
    pub(super) fn below(root: &Path) -> std::io::Result<Disk> {
        Ok(Disk { root: std::fs::canonicalize(root)?, ignored: None })
    }

    fn real(&self, path: &TreePath) -> PathBuf {
        below(&self.root, path)
    }

    fn is_ignored(&self, path: &TreePath) -> bool {
        let Some((folder, ignore)) = &self.ignored else { return false };
        if !path.is_within(folder) {
            return false;
        }
        let below: Vec<&str> = path.parts().skip(folder.parts().count()).collect();
        TreePath::parse(&below.join("/")).is_ok_and(|below| ignore.excludes(&below, false))
    }
}

fn ignore_files(real: &Path, folder: &TreePath, depth: usize, found: &mut Vec<(TreePath, String)>) {
    if let Ok(text) = std::fs::read_to_string(real.join(FILE_NAME)) {
        found.push((folder.clone(), text));
    }
    if depth == DEEPEST {
        return;
    }
    for entry in std::fs::read_dir(real).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let below = folder.child(&entry.file_name().to_string_lossy());
            ignore_files(&entry.path(), &below, depth + 1, found);
        }
    }
}

fn below(root: &Path, path: &TreePath) -> PathBuf {
    if path.is_root() { root.to_owned() } else { root.join(path.as_str()) }
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
        std::fs::read(self.real(path)).map(Cow::Owned).map_err(|error| failed(path, &error))
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.real(path)).map_err(|error| failed(path, &error))? {
            let entry = entry.map_err(|error| failed(path, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = if entry.path().is_dir() { Kind::Folder } else { Kind::File };
            if kind == Kind::Folder || !self.is_ignored(&path.child(&name)) {
                entries.push(Entry { name, kind });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        let metadata = std::fs::metadata(self.real(path)).ok()?;
        Some(if metadata.is_dir() { Kind::Folder } else { Kind::File })
    }

    fn resolve(&self, path: &TreePath) -> Result<TreePath, Error> {
        let resolved = std::fs::canonicalize(self.real(path)).map_err(|error| failed(path, &error))?;
        let resolved = resolved.strip_prefix(&self.root).map_err(|_| Error::Escapes(path.clone()))?;
        let text = resolved.to_str().ok_or_else(|| Error::NotFound(path.clone()))?;
        TreePath::parse(text).map_err(|_| Error::Escapes(path.clone()))
    }
}
