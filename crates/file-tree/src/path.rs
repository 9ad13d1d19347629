//! A path inside a tree: slash-separated, relative to the root, without `.`, `..` or empty parts.

use std::fmt;

/// A place in a tree. The empty path is the root; no value of this type can point outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: leaves the root")]
pub struct EscapesRoot(pub String);

impl TreePath {
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads `text` as a path from the root. `..` is resolved by name and may not climb above the root.
    pub fn parse(text: &str) -> Result<Self, EscapesRoot> {
        Self::root().join(text)
    }

    /// `text` as seen from here; an absolute one starts at the root of the tree.
    pub fn join(&self, text: &str) -> Result<Self, EscapesRoot> {
        let mut parts: Vec<&str> = if text.starts_with('/') { Vec::new() } else { self.parts().collect() };
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Err(EscapesRoot(text.to_owned()));
                    }
                }
                name => parts.push(name),
            }
        }
        Ok(Self(parts.join("/")))
    }

    /// The entry called `name` in this folder. `name` comes from a listing, so it is a single part.
    pub fn child(&self, name: &str) -> Self {
        debug_assert!(!name.contains('/') && !matches!(name, "" | "." | ".."), "{name} is not a single name");
        if self.is_root() { Self(name.to_owned()) } else { Self(format!("{}/{name}", self.0)) }
    }

    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        Some(Self(self.0.rsplit_once('/').map(|(parent, _)| parent.to_owned()).unwrap_or_default()))
    }

    pub fn file_name(&self) -> Option<&str> {
        self.0.rsplit('/').next().filter(|name| !name.is_empty())
    }

    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is `folder` or lies below it.
    pub fn is_within(&self, folder: &TreePath) -> bool {
        folder.is_root()
            || self.0.strip_prefix(&folder.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// This path as seen from `folder`; `None` when it does not lie within.
    pub fn below(&self, folder: &TreePath) -> Option<TreePath> {
        if !self.is_within(folder) {
            return None;
        }
        let depth = folder.parts().count();
        Some(self.parts().skip(depth).fold(Self::root(), |path, part| path.child(part)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    #[test]
    fn dots_and_doubled_slashes_are_resolved() {
        assert_eq!(path("./a//b/../c/").as_str(), "a/c");
        assert_eq!(path("a/b").join("../../c").unwrap().as_str(), "c");
    }

    #[test]
    fn nothing_climbs_above_the_root() {
        assert!(TreePath::parse("../etc/passwd").is_err());
        assert!(path("a").join("../../b").is_err());
    }

    #[test]
    fn an_absolute_path_starts_at_the_root_of_the_tree() {
        assert_eq!(path("a/b").join("/c").unwrap().as_str(), "c");
    }

    #[test]
    fn within_compares_whole_names() {
        assert!(path("apps/web").is_within(&path("apps")));
        assert!(!path("apps-old/web").is_within(&path("apps")));
        assert!(path("apps").is_within(&TreePath::root()));
    }

    #[test]
    fn the_root_shows_as_a_dot_and_has_no_parent() {
        assert_eq!(TreePath::root().to_string(), ".");
        assert_eq!(TreePath::root().parent(), None);
        assert_eq!(path("a").parent(), Some(TreePath::root()));
    }
}
