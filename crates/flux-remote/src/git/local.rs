//! A repository of this machine, read where it lies: the `.git` of a working tree, or a bare one.
//!
//! Only reads: HEAD, references, and objects that are loose, packed or borrowed from another repository. Whoever
//! wants to change something uses `git`.

use std::io::Read;
use std::path::{Path, PathBuf};

use file_tree::TreePath;

use super::objects::ObjectStore;
use super::{Checkout, Commit, Error, Oid};

/// References that point at references, and repositories that borrow from repositories.
const LONGEST_CHAIN: usize = 8;
const LARGEST_REF_FILE: u64 = 64 << 20;

pub struct LocalRepository {
    /// What belongs to this working tree: HEAD.
    git: PathBuf,
    /// What all working trees of the repository share: references, objects, configuration.
    common: PathBuf,
    store: ObjectStore,
}

impl LocalRepository {
    /// The repository that `folder` is or lies in, and where in its tree the folder lies.
    pub fn find(folder: &Path) -> Result<Option<(Self, TreePath)>, Error> {
        let folder = folder.canonicalize().map_err(Error::cache)?;
        if is_git_folder(&folder) {
            return Ok(Some((Self::open(&folder)?, TreePath::root())));
        }
        for root in folder.ancestors() {
            let Some(git) = git_folder_of(&root.join(".git")) else { continue };
            let inside = folder.strip_prefix(root).unwrap_or(Path::new("")).to_string_lossy().into_owned();
            let inside = TreePath::parse(&inside).map_err(|error| Error::UnsafePath(error.to_string()))?;
            return Ok(Some((Self::open(&git)?, inside)));
        }
        Ok(None)
    }

    fn open(git: &Path) -> Result<Self, Error> {
        let common = match read_small(&git.join("commondir")) {
            Some(text) => git.join(text.trim()),
            None => git.to_owned(),
        };
        let mut folders = vec![common.join("objects")];
        let mut next = 0;
        while let Some(folder) = folders.get(next).cloned() {
            let borrowed = read_small(&folder.join("info/alternates")).unwrap_or_default();
            folders.extend(borrowed.lines().filter(|line| !line.is_empty()).map(|line| folder.join(line)));
            next += 1;
            if next > LONGEST_CHAIN {
                return Err(Error::Cache(format!("{}: too many alternates", git.display())));
            }
        }
        Ok(Self { git: git.to_owned(), store: ObjectStore::of_repository(&folders)?, common })
    }

    /// The branch that HEAD is on.
    pub fn branch(&self) -> Option<String> {
        let head = read_small(&self.git.join("HEAD"))?;
        head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)
    }

    /// The commit a person means by `HEAD`, a branch, a tag, a full or shortened id, each with `^` or `~N` after it.
    pub fn resolve(&self, name: &str) -> Result<Oid, Error> {
        let unknown = || Error::NoSuchRef(name.to_owned());
        let end = name.find(['^', '~']).unwrap_or(name.len());
        let (base, steps) = name.split_at(end);
        let mut commit = self.peel(self.named(base).ok_or_else(unknown)?)?;
        for _ in 0..generations(steps).ok_or_else(unknown)? {
            commit = *self.store.commit(commit)?.parents.first().ok_or_else(unknown)?;
        }
        Ok(commit)
    }

    pub fn commit(&self, id: Oid) -> Result<Commit, Error> {
        self.store.commit(id)
    }

    pub fn checkout(&self, commit: Oid) -> Result<Checkout<'_>, Error> {
        Checkout::new(&self.store, commit)
    }

    /// The addresses of its remotes.
    pub fn remotes(&self) -> Vec<String> {
        let config = read_small(&self.common.join("config")).unwrap_or_default();
        let values = config.lines().filter_map(|line| line.trim().strip_prefix("url"));
        values
            .filter_map(|rest| rest.trim_start().strip_prefix('='))
            .map(|url| url.trim().to_owned())
            .collect()
    }

    fn named(&self, name: &str) -> Option<Oid> {
        let name = if name.is_empty() || name == "@" { "HEAD" } else { name };
        // Git's own order of guesses.
        let guesses = ["", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"];
        guesses
            .iter()
            .find_map(|prefix| self.reference(&format!("{prefix}{name}"), 0))
            .or_else(|| self.reference(&format!("refs/remotes/{name}/HEAD"), 0))
            .or_else(|| self.store.shortened(name))
    }

    fn reference(&self, name: &str, depth: usize) -> Option<Oid> {
        let escapes = name.split('/').any(|part| part.is_empty() || part == "..");
        if depth > LONGEST_CHAIN || escapes {
            return None;
        }
        let loose = [&self.git, &self.common].into_iter().find_map(|folder| read_small(&folder.join(name)));
        let Some(text) = loose else { return self.packed(name) };
        match text.trim().strip_prefix("ref: ") {
            Some(target) => self.reference(target, depth + 1),
            None => Oid::parse(text.trim()),
        }
    }

    fn packed(&self, name: &str) -> Option<Oid> {
        let packed = read_small(&self.common.join("packed-refs"))?;
        let found = packed.lines().filter_map(|line| line.split_once(' ')).find(|(_, known)| *known == name);
        found.and_then(|(id, _)| Oid::parse(id))
    }

    fn peel(&self, mut id: Oid) -> Result<Oid, Error> {
        for _ in 0..LONGEST_CHAIN {
            match self.store.tag(id)? {
                Some(tag) => id = tag.target,
                None => return Ok(id),
            }
        }
        Err(Error::WrongKind(id, "commit"))
    }
}

/// How many first parents `^`, `^^` or `~3` climb; `None` when it says something else.
fn generations(steps: &str) -> Option<usize> {
    let (mut rest, mut count) = (steps, 0);
    while let Some(step) = rest.chars().next() {
        rest = &rest[1..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        count += match (step, number) {
            ('^' | '~', "") | ('^', "1") => 1,
            ('~', number) => number.parse().ok()?,
            _ => return None,
        };
        rest = after;
    }
    (count < 100_000).then_some(count)
}

fn is_git_folder(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir()
}

/// `.git` is a folder, or in linked working trees and submodules a file that names one.
fn git_folder_of(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return is_git_folder(path).then(|| path.to_owned());
    }
    let text = read_small(path)?;
    let target = path.parent()?.join(text.trim().strip_prefix("gitdir:")?.trim());
    target.join("HEAD").is_file().then_some(target)
}

fn read_small(path: &Path) -> Option<String> {
    if !path.is_file() {
        return None;
    }
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(LARGEST_REF_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_counted() {
        assert_eq!(generations(""), Some(0));
        assert_eq!(generations("^"), Some(1));
        assert_eq!(generations("^^~3"), Some(5));
        assert_eq!(generations("~0"), Some(0));
        assert_eq!(generations("^2"), None);
        assert_eq!(generations("~x"), None);
    }
}
