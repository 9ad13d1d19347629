//! Files of one kustomization folder: which may be read, and in which words it is said that one may not.

use std::borrow::Cow;

use file_tree::{Files, Kind, TreePath};

use crate::error::{Class, Error};
use crate::remote;

/// Which files a kustomization may read besides folders, which it may always build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadRestrictions {
    /// Only files in or below its own folder.
    #[default]
    RootOnly,
    /// Any file of the tree. Nothing outside of the tree can be read either way.
    None,
}

/// How many folders may include one another; real trees stay below twenty.
const MAX_DEPTH: usize = 128;

/// The view of the tree from one kustomization folder.
#[derive(Clone)]
pub(crate) struct Loader<'a> {
    files: &'a dyn Files,
    restrictions: LoadRestrictions,
    root: TreePath,
    /// The folders that led here, nearest first.
    referrers: Vec<TreePath>,
}

impl<'a> Loader<'a> {
    /// Starts at `root`, which must be a folder; `shown` is what the caller's user calls it.
    pub(crate) fn new(
        files: &'a dyn Files,
        root: &TreePath,
        restrictions: LoadRestrictions,
    ) -> Result<Self, Error> {
        let root = confirm_folder(files, root)?;
        Ok(Self { files, restrictions, root, referrers: Vec::new() })
    }

    pub(crate) fn root(&self) -> String {
        absolute(&self.root)
    }

    pub(crate) fn folder_name(&self) -> &str {
        self.root.file_name().unwrap_or("/")
    }

    /// The content of a file named in the kustomization.
    pub(crate) fn load(&self, path: &str) -> Result<Cow<'a, [u8]>, Error> {
        if remote::is_url(path) {
            return Err(refused(path));
        }
        let place = self.place(path)?;
        match self.restrictions {
            LoadRestrictions::RootOnly => self.load_below_root(&place),
            LoadRestrictions::None => self.files.read(&place).map_err(|error| self.unreadable(&place, error)),
        }
    }

    fn load_below_root(&self, place: &TreePath) -> Result<Cow<'a, [u8]>, Error> {
        let shown = absolute(place);
        let resolved = resolve(self.files, place, &shown)?;
        if self.files.kind(&resolved) == Some(Kind::Folder) {
            return Err(Error::new(Class::Load, format!("'{shown}' must resolve to a file")));
        }
        if !resolved.parent().is_some_and(|folder| folder.is_within(&self.root)) {
            return Err(Error::new(
                Class::Escape,
                format!("security; file '{shown}' is not in or below '{}'", self.root()),
            ));
        }
        self.files.read(&resolved).map_err(|error| self.unreadable(&resolved, error))
    }

    /// The content of a file directly in this folder, if there is one that may be read.
    pub(crate) fn load_own(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        self.files.kind(&self.root.child(name)).and_then(|_| self.load(name).ok())
    }

    fn unreadable(&self, place: &TreePath, error: file_tree::Error) -> Error {
        let shown = absolute(place);
        let (class, text) = match error {
            file_tree::Error::NotFound(_) => {
                (Class::Load, format!("open {shown}: no such file or directory"))
            }
            file_tree::Error::NotFolder(_) => (Class::Load, format!("open {shown}: not a directory")),
            file_tree::Error::IsFolder(_) => (Class::Load, format!("read {shown}: is a directory")),
            file_tree::Error::Escapes(_) => (Class::Escape, leaves_tree(&shown)),
            file_tree::Error::Unreadable { cause, .. } => (Class::Load, format!("open {shown}: {cause}")),
        };
        Error::new(class, text)
    }

    fn place(&self, path: &str) -> Result<TreePath, Error> {
        self.root.join(path).map_err(|_| Error::new(Class::Escape, leaves_tree(path)))
    }

    /// The view from a folder named in the kustomization.
    pub(crate) fn enter(&self, path: &str) -> Result<Self, Error> {
        if path.is_empty() {
            return Err(Error::new(Class::Load, "new root cannot be empty"));
        }
        if remote::is_repository(path) || remote::is_url(path) {
            return Err(refused(path));
        }
        if path.starts_with('/') {
            return Err(Error::new(Class::Escape, format!("new root '{path}' cannot be absolute")));
        }
        let root = confirm_folder(self.files, &self.place(path)?)?;
        for visited in std::iter::once(&self.root).chain(&self.referrers) {
            if visited.is_within(&root) {
                let text = format!(
                    "cycle detected: candidate root '{}' contains visited root '{}'",
                    absolute(&root),
                    absolute(visited)
                );
                return Err(Error::new(Class::Cycle, text));
            }
        }
        if self.referrers.len() >= MAX_DEPTH {
            let text = format!(
                "more than {MAX_DEPTH} folders include one another, the last being '{}'",
                absolute(&root)
            );
            return Err(Error::new(Class::Limit, text));
        }
        let referrers = std::iter::once(&self.root).chain(&self.referrers).cloned().collect();
        Ok(Self { root, referrers, ..self.clone() })
    }
}

/// The resolved path of a folder.
fn confirm_folder(files: &dyn Files, place: &TreePath) -> Result<TreePath, Error> {
    let shown = absolute(place);
    let not_built = |error: Error| error.context("must build at directory");
    let resolved =
        resolve(files, place, &shown).map_err(|error| not_built(error.context("not a valid directory")))?;
    if files.kind(&resolved) != Some(Kind::Folder) {
        return Err(not_built(Error::new(Class::Load, format!("'{shown}': file is not directory"))));
    }
    Ok(resolved)
}

fn resolve(files: &dyn Files, place: &TreePath, shown: &str) -> Result<TreePath, Error> {
    files.resolve(place).map_err(|error| {
        let (class, cause) = match error {
            file_tree::Error::NotFound(_) | file_tree::Error::NotFolder(_) => {
                (Class::Load, missing_part(files, place))
            }
            file_tree::Error::Escapes(_) => (Class::Escape, leaves_tree(shown)),
            file_tree::Error::IsFolder(_) => (Class::Load, "is a directory".to_owned()),
            file_tree::Error::Unreadable { cause, .. } => (Class::Load, cause),
        };
        Error::new(class, format!("evalsymlink failure on '{shown}' : {cause}"))
    })
}

/// What Go's `EvalSymlinks` says about a path that is not there: it names the first part that is missing.
fn missing_part(files: &dyn Files, place: &TreePath) -> String {
    let mut at = TreePath::root();
    for part in place.parts() {
        if files.kind(&at) == Some(Kind::File) {
            return "not a directory".to_owned();
        }
        at = at.child(part);
        if files.kind(&at).is_none() {
            break;
        }
    }
    format!("lstat {}: no such file or directory", absolute(&at))
}

fn absolute(path: &TreePath) -> String {
    format!("/{}", path.as_str())
}

fn leaves_tree(path: &str) -> String {
    format!("security; '{path}' leaves the tree of files that this build may read")
}

fn refused(path: &str) -> Error {
    let text = format!("remote '{path}' is not fetched during a build; make it a local folder or file first");
    Error::new(Class::Remote, text)
}

#[cfg(test)]
mod tests {
    use file_tree::MemoryTree;

    use super::*;

    fn tree() -> MemoryTree {
        MemoryTree::from_texts([("a/kustomization.yaml", ""), ("a/b/f.yaml", "x"), ("c.yaml", "y")]).unwrap()
    }

    fn loader<'a>(tree: &'a MemoryTree, restrictions: LoadRestrictions) -> Loader<'a> {
        Loader::new(tree, &TreePath::parse("a").unwrap(), restrictions).unwrap()
    }

    #[test]
    fn files_outside_of_the_root_are_refused_unless_allowed() {
        let tree = tree();
        let error = loader(&tree, LoadRestrictions::RootOnly).load("../c.yaml").unwrap_err();
        assert_eq!(error.to_string(), "security; file '/c.yaml' is not in or below '/a'");
        assert_eq!(&*loader(&tree, LoadRestrictions::None).load("../c.yaml").unwrap(), b"y");
    }

    #[test]
    fn nothing_outside_of_the_tree_can_be_read() {
        let tree = tree();
        for restrictions in [LoadRestrictions::RootOnly, LoadRestrictions::None] {
            let error = loader(&tree, restrictions).load("../../etc/passwd").unwrap_err();
            assert_eq!(error.class(), Class::Escape);
        }
    }

    #[test]
    fn a_missing_folder_on_the_way_is_named() {
        let tree = tree();
        let error = loader(&tree, LoadRestrictions::RootOnly).load("x/y").unwrap_err();
        assert_eq!(
            error.to_string(),
            "evalsymlink failure on '/a/x/y' : lstat /a/x: no such file or directory"
        );
    }

    #[test]
    fn a_folder_that_includes_itself_is_a_cycle() {
        let tree = tree();
        let loader = loader(&tree, LoadRestrictions::RootOnly);
        assert_eq!(loader.enter("..").err().map(|error| error.class()), Some(Class::Cycle));
        assert_eq!(loader.enter(".").err().map(|error| error.class()), Some(Class::Cycle));
        assert!(loader.enter("b").is_ok());
    }
}
