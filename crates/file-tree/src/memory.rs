//! A tree held in memory, for tests, generated files and small archives.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::{Entry, Error, EscapesRoot, Files, Kind, TreePath};

#[derive(Clone, Debug, Default)]
pub struct MemoryTree {
    files: BTreeMap<TreePath, Vec<u8>>,
}

impl MemoryTree {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn insert(&mut self, path: TreePath, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path, bytes.into());
    }

    /// A tree from `(path, text)` pairs.
    pub fn from_texts<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, EscapesRoot> {
        let mut tree = Self::new();
        for (path, text) in texts {
            tree.insert(TreePath::parse(path)?, text);
        }
        Ok(tree)
    }

    pub fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.files.keys()
    }

    fn below<'a>(&'a self, folder: &'a TreePath) -> impl Iterator<Item = &'a TreePath> {
        // Names that sort between `apps` and `apps/` (such as `apps-old`) stand between the two.
        self.files.range(folder.clone()..).map(|(path, _)| path).filter(move |path| path.is_within(folder))
    }
}

impl Files for MemoryTree {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, Error> {
        match (self.files.get(path), self.kind(path)) {
            (Some(bytes), _) => Ok(Cow::Borrowed(bytes)),
            (None, Some(_)) => Err(Error::IsFolder(path.clone())),
            (None, None) => Err(Error::NotFound(path.clone())),
        }
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error> {
        match self.kind(path) {
            None => return Err(Error::NotFound(path.clone())),
            Some(Kind::File) => return Err(Error::NotFolder(path.clone())),
            Some(Kind::Folder) => {}
        }
        let depth = path.parts().count();
        let mut entries: BTreeMap<&str, Kind> = BTreeMap::new();
        for file in self.below(path) {
            let mut rest = file.parts().skip(depth);
            if let Some(name) = rest.next() {
                entries.insert(name, if rest.next().is_some() { Kind::Folder } else { Kind::File });
            }
        }
        Ok(entries.into_iter().map(|(name, kind)| Entry { name: name.to_owned(), kind }).collect())
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        if self.files.contains_key(path) {
            return Some(Kind::File);
        }
        (path.is_root() || self.below(path).next().is_some()).then_some(Kind::Folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    #[test]
    fn lists_files_and_folders_once_each() {
        let tree =
            MemoryTree::from_texts([("a/x", "1"), ("a/b/y", "2"), ("a-b/z", "3"), ("a/b/c/w", "4")]).unwrap();
        let names: Vec<_> =
            tree.list(&path("a")).unwrap().into_iter().map(|entry| (entry.name, entry.kind)).collect();
        assert_eq!(names, [("b".to_owned(), Kind::Folder), ("x".to_owned(), Kind::File)]);
        assert_eq!(tree.list(&TreePath::root()).unwrap().len(), 2);
    }

    #[test]
    fn tells_a_missing_file_from_a_folder() {
        let tree = MemoryTree::from_texts([("a/x", "1")]).unwrap();
        assert_eq!(tree.read(&path("a")), Err(Error::IsFolder(path("a"))));
        assert_eq!(tree.read(&path("b")), Err(Error::NotFound(path("b"))));
        assert_eq!(tree.list(&path("a/x")), Err(Error::NotFolder(path("a/x"))));
    }
}
