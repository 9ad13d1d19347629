//! Several trees as one: each is mounted at a folder, and no two may supply the same path.

use std::borrow::Cow;
use std::collections::BTreeMap;

use file_tree::{Entry, Error, Files, Kind, TreePath};

/// How deep folders may be nested when trees are compared.
const DEEPEST: usize = 64;

/// Trees at their mount points. The root is a mount point, too.
#[derive(Default)]
pub struct Mounted<'a> {
    trees: Vec<(TreePath, &'a dyn Files)>,
}

/// Two trees supply the same path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is supplied twice: by the tree at '{first}' and by the tree at '{second}'")]
pub struct SuppliedTwice {
    pub path: TreePath,
    pub first: TreePath,
    pub second: TreePath,
}

impl<'a> Mounted<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn mount(&mut self, at: TreePath, tree: &'a dyn Files) -> Result<(), SuppliedTwice> {
        if let Some((path, first)) = self.conflict(&at, tree, &TreePath::root(), 0) {
            return Err(SuppliedTwice { path, first, second: at });
        }
        self.trees.push((at, tree));
        Ok(())
    }

    /// The first path that `tree` and one that is already here both supply.
    fn conflict(
        &self,
        at: &TreePath,
        tree: &dyn Files,
        inside: &TreePath,
        depth: usize,
    ) -> Option<(TreePath, TreePath)> {
        let path = joined(at, inside);
        // The folders above a mount point must not be files elsewhere, nor may a file hide a mount point.
        let mut above = path.clone();
        while let Some(parent) = above.parent() {
            if let Some(owner) = self.owner_of_file(&parent) {
                return Some((parent, owner));
            }
            above = parent;
        }
        if let Some(owner) = self.owner_of_file(&path) {
            return Some((path, owner));
        }
        let there = self.kind(&path);
        match (tree.kind(inside), there) {
            (None, _) | (_, None) => None,
            (Some(Kind::File), Some(_)) => {
                let owner = self.trees.iter().map(|(at, _)| at.clone()).next().unwrap_or_default();
                Some((path, owner))
            }
            (Some(Kind::Folder), Some(_)) if depth < DEEPEST => {
                let entries = tree.list(inside).unwrap_or_default();
                entries
                    .into_iter()
                    .find_map(|entry| self.conflict(at, tree, &inside.child(&entry.name), depth + 1))
            }
            (Some(Kind::Folder), Some(_)) => None,
        }
    }

    fn owner_of_file(&self, path: &TreePath) -> Option<TreePath> {
        self.suppliers(path)
            .find(|(_, tree, inside)| tree.kind(inside) == Some(Kind::File))
            .map(|(at, _, _)| at.clone())
    }

    fn suppliers(&self, path: &TreePath) -> impl Iterator<Item = (&TreePath, &'a dyn Files, TreePath)> {
        self.trees.iter().filter_map(move |(at, tree)| Some((at, *tree, below(path, at)?)))
    }
}

fn joined(at: &TreePath, inside: &TreePath) -> TreePath {
    inside.parts().fold(at.clone(), |path, part| path.child(part))
}

/// `path` as seen from `folder`.
fn below(path: &TreePath, folder: &TreePath) -> Option<TreePath> {
    if path != folder && !path.is_within(folder) {
        return None;
    }
    Some(path.parts().skip(folder.parts().count()).fold(TreePath::root(), |path, part| path.child(part)))
}

impl Files for Mounted<'_> {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, Error> {
        let mut missing = Error::NotFound(path.clone());
        for (_, tree, inside) in self.suppliers(path) {
            match tree.kind(&inside) {
                Some(Kind::File) => return tree.read(&inside),
                Some(Kind::Folder) => missing = Error::IsFolder(path.clone()),
                None => {}
            }
        }
        Err(missing)
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error> {
        match self.kind(path) {
            None => return Err(Error::NotFound(path.clone())),
            Some(Kind::File) => return Err(Error::NotFolder(path.clone())),
            Some(Kind::Folder) => {}
        }
        let mut entries: BTreeMap<String, Kind> = BTreeMap::new();
        for (_, tree, inside) in self.suppliers(path) {
            if tree.kind(&inside) == Some(Kind::Folder) {
                entries.extend(tree.list(&inside)?.into_iter().map(|entry| (entry.name, entry.kind)));
            }
        }
        for (at, _) in &self.trees {
            if at != path
                && let Some(inside) = below(at, path)
                && let Some(name) = inside.parts().next()
            {
                entries.insert(name.to_owned(), Kind::Folder);
            }
        }
        Ok(entries.into_iter().map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        let supplied = self.suppliers(path).find_map(|(_, tree, inside)| tree.kind(&inside));
        let leads_to_a_mount = || self.trees.iter().any(|(at, _)| at == path || at.is_within(path));
        supplied.or_else(|| leads_to_a_mount().then_some(Kind::Folder))
    }

    fn resolve(&self, path: &TreePath) -> Result<TreePath, Error> {
        for (at, tree, inside) in self.suppliers(path) {
            if tree.kind(&inside).is_some() {
                return Ok(joined(at, &tree.resolve(&inside)?));
            }
        }
        match self.kind(path) {
            Some(_) => Ok(path.clone()),
            None => Err(Error::NotFound(path.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_tree::MemoryTree;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    fn names(tree: &dyn Files, at: &str) -> Vec<String> {
        tree.list(&path(at)).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn trees_are_seen_at_their_mount_points() {
        let main = MemoryTree::from_texts([("apps/a.yaml", "a"), ("README", "r")]).unwrap();
        let other = MemoryTree::from_texts([("b.yaml", "b")]).unwrap();
        let mut all = Mounted::new();
        all.mount(TreePath::root(), &main).unwrap();
        all.mount(path("vendor/other"), &other).unwrap();
        assert_eq!(names(&all, ""), ["README", "apps", "vendor"]);
        assert_eq!(names(&all, "vendor"), ["other"]);
        assert_eq!(all.read(&path("vendor/other/b.yaml")).unwrap().as_ref(), b"b");
        assert_eq!(all.kind(&path("vendor")), Some(Kind::Folder));
        assert!(all.read(&path("vendor/other/c.yaml")).is_err());
        assert!(all.list(&path("nope")).is_err());
    }

    #[test]
    fn trees_may_share_folders_but_not_files() {
        let main = MemoryTree::from_texts([("apps/a.yaml", "a")]).unwrap();
        let same = MemoryTree::from_texts([("a.yaml", "other")]).unwrap();
        let beside = MemoryTree::from_texts([("b.yaml", "b")]).unwrap();
        let mut all = Mounted::new();
        all.mount(TreePath::root(), &main).unwrap();
        all.mount(path("apps"), &beside).unwrap();
        assert_eq!(names(&all, "apps"), ["a.yaml", "b.yaml"]);
        let error = all.mount(path("apps"), &same).unwrap_err();
        assert_eq!(error.path, path("apps/a.yaml"));
        assert!(all.mount(path("apps/a.yaml"), &beside).is_err(), "a file is no mount point");
    }
}
