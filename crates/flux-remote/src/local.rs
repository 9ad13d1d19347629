//! A folder of this machine in place of a remote repository: the files as they are now.
//!
//! Used where a person tries a fleet before it is pushed. `.git` and what `.gitignore` in the root names are left
//! out; symbolic links are not followed.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use file_tree::TreePath;
use sha1::{Digest, Sha1};

use crate::ignore::Ignore;

const MOST_FILES: usize = 200_000;
const DEEPEST: usize = 64;

pub struct LocalFolder {
    root: PathBuf,
    files: Vec<LocalFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFile {
    pub path: TreePath,
    pub executable: bool,
    size: u64,
    modified: Option<std::time::SystemTime>,
}

impl LocalFolder {
    /// Lists the files below `root`, in lexical order.
    pub fn list(root: &Path) -> io::Result<Self> {
        let ignored = match std::fs::read_to_string(root.join(".gitignore")) {
            Ok(text) => Ignore::from_text(&text),
            Err(_) => Ignore::default(),
        };
        let mut folder = Self { root: root.to_owned(), files: Vec::new() };
        folder.walk(&TreePath::root(), &ignored, 0)?;
        folder.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(folder)
    }

    pub fn files(&self) -> &[LocalFile] {
        &self.files
    }

    pub fn read(&self, path: &TreePath) -> io::Result<Vec<u8>> {
        std::fs::read(self.root.join(path.as_str()))
    }

    /// Whether nothing was added, removed or saved since `other` was listed.
    pub fn looks_like(&self, other: &LocalFolder) -> bool {
        self.files == other.files
    }

    /// A name for the contents, 40 hexadecimal digits as a commit has.
    pub fn digest(&self) -> io::Result<String> {
        let mut hash = Sha1::new();
        for file in &self.files {
            let bytes = self.read(&file.path)?;
            hash.update((file.path.as_str().len() as u64).to_le_bytes());
            hash.update(file.path.as_str());
            hash.update([u8::from(file.executable)]);
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn walk(&mut self, at: &TreePath, ignored: &Ignore, depth: usize) -> io::Result<()> {
        if depth > DEEPEST || self.files.len() > MOST_FILES {
            return Err(io::Error::other(format!(
                "{at}: too many files or folders below {}",
                self.root.display()
            )));
        }
        for entry in std::fs::read_dir(self.root.join(at.as_str()))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = at.child(&name);
            let kind = entry.file_type()?;
            if name == ".git" || ignored.excludes(&path, kind.is_dir()) {
                continue;
            }
            if kind.is_dir() {
                self.walk(&path, ignored, depth + 1)?;
            } else if kind.is_file() {
                let metadata = entry.metadata()?;
                self.files.push(LocalFile {
                    path,
                    executable: metadata.permissions().mode() & 0o111 != 0,
                    size: metadata.len(),
                    modified: metadata.modified().ok(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_follows_the_contents_and_ignored_files_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("apps/a.yaml", "a: 1");
        write(".gitignore", "target/\n");
        write(".git/HEAD", "ref: refs/heads/main");
        let first = LocalFolder::list(folder.path()).unwrap();
        let digest = first.digest().unwrap();
        let names: Vec<String> = first.files().iter().map(|file| file.path.to_string()).collect();
        assert_eq!(names, [".gitignore", "apps/a.yaml"]);
        write("target/x", "built");
        let same = LocalFolder::list(folder.path()).unwrap();
        assert_eq!(same.digest().unwrap(), digest);
        write("apps/a.yaml", "a: 22");
        let changed = LocalFolder::list(folder.path()).unwrap();
        assert!(!changed.looks_like(&first));
        assert_ne!(changed.digest().unwrap(), digest);
    }
}
