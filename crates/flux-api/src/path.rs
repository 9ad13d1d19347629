//! Paths that stay inside a tree, whoever wrote them.
//!
//! Lexical only: a symbolic link inside the tree is the business of whoever opens the file.

use std::fmt;

/// A path below a root: no leading slash, no `.` or `..`, parts joined by `/`. Empty means the root itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(String);

/// A path that cannot name anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A NUL byte ends a path for the operating system, and not for us.
    #[error("path {0:?} contains a NUL byte")]
    Nul(String),
}

impl TreePath {
    /// The root.
    pub const ROOT: TreePath = TreePath(String::new());

    /// Reads a path as Flux does: `..` at the root stays at the root, so that nothing outside can be named.
    pub fn below_root(text: &str) -> Result<Self, Error> {
        if text.contains('\0') {
            return Err(Error::Nul(text.to_owned()));
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                name => parts.push(name),
            }
        }
        Ok(TreePath(parts.join("/")))
    }

    /// The text, without slashes at its ends.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// `other` read from this folder; it may go up, but not out of the tree.
    pub fn join(&self, other: &str) -> Result<Self, Error> {
        // An absolute path starts at the folder it is joined to, as in Go's filepath.Join.
        TreePath::below_root(&format!("{}/{other}", self.0))
    }

    /// Whether it is `folder` or below it.
    pub fn is_within(&self, folder: &TreePath) -> bool {
        folder.is_root()
            || self
                .0
                .strip_prefix(folder.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leaves_the_tree() {
        for (text, path) in [
            ("./apps/prod", "apps/prod"),
            ("/apps//prod/", "apps/prod"),
            ("", ""),
            ("..", ""),
            ("../../etc/passwd", "etc/passwd"),
            ("a/../../b", "b"),
            ("a/./b/..", "a"),
            ("...", "..."),
        ] {
            assert_eq!(TreePath::below_root(text).unwrap().as_str(), path, "{text}");
        }
        assert!(TreePath::below_root("a\0b").is_err());
    }

    #[test]
    fn a_joined_path_may_go_up_but_not_out() {
        let folder = TreePath::below_root("apps/prod").unwrap();
        assert_eq!(folder.join("../base").unwrap().as_str(), "apps/base");
        assert_eq!(folder.join("../../../x").unwrap().as_str(), "x");
        assert_eq!(TreePath::ROOT.join("/x").unwrap().as_str(), "x");
        assert!(TreePath::below_root("apps/prod/x").unwrap().is_within(&folder));
        assert!(!TreePath::below_root("apps/production").unwrap().is_within(&folder));
        assert!(folder.is_within(&TreePath::ROOT));
    }
}
