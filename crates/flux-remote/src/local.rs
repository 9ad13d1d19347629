//! A folder of this machine in place of a remote repository: the files as they are now, or as a commit has them.
//!
//! Used where a person tries a fleet before it is pushed. Of files as they are, `.git` and what `.gitignore` in the
//! root names are left out; symbolic links are not followed.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use file_tree::TreePath;
use sha1::{Digest, Sha1};

use crate::git::{LocalRepository, Mode};
use crate::ignore::Ignore;

const MOST_FILES: usize = 200_000;
const DEEPEST: usize = 64;
/// The files of a commit are held in memory.
const LARGEST_COMMIT: usize = 1 << 30;

/// Where files are taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub folder: PathBuf,
    /// A commit of the repository that the folder is or lies in; the files as they are when `None`.
    pub revision: Option<String>,
}

impl Place {
    pub fn open(&self) -> io::Result<LocalFolder> {
        match &self.revision {
            None => LocalFolder::list(&self.folder),
            Some(revision) => LocalFolder::of_commit(&self.folder, revision),
        }
    }
}

pub struct LocalFolder {
    origin: Origin,
    files: Vec<LocalFile>,
}

enum Origin {
    Disk(PathBuf),
    Commit { id: String, contents: BTreeMap<TreePath, Vec<u8>> },
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
        let mut files = Vec::new();
        walk(root, &TreePath::root(), &ignored, 0, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { origin: Origin::Disk(root.to_owned()), files })
    }

    /// The files below `folder` as `revision` of its repository has them.
    fn of_commit(folder: &Path, revision: &str) -> io::Result<Self> {
        let Some((repository, below)) = LocalRepository::find(folder).map_err(io::Error::other)? else {
            return Err(io::Error::other("not a Git repository, nor inside of one"));
        };
        let id = repository.resolve(revision).map_err(io::Error::other)?;
        let checkout = repository.checkout(id).map_err(io::Error::other)?;
        let (mut reader, mut total) = (checkout.reader(), 0);
        let (mut files, mut contents) = (Vec::new(), BTreeMap::new());
        for (path, file) in checkout.files() {
            let executable = match file.mode {
                Mode::Regular => false,
                Mode::Executable => true,
                Mode::Symlink | Mode::Submodule => continue,
            };
            let Some(path) = path.below(&below) else { continue };
            let bytes = reader.blob(file.id).map_err(io::Error::other)?.to_vec();
            total += bytes.len();
            if total > LARGEST_COMMIT || files.len() >= MOST_FILES {
                return Err(io::Error::other(format!("{id} has more files or bytes than can be held here")));
            }
            files.push(LocalFile {
                path: path.clone(),
                executable,
                size: bytes.len() as u64,
                modified: None,
            });
            contents.insert(path, bytes);
        }
        Ok(Self { origin: Origin::Commit { id: id.to_string(), contents }, files })
    }

    pub fn files(&self) -> &[LocalFile] {
        &self.files
    }

    pub fn read(&self, path: &TreePath) -> io::Result<Vec<u8>> {
        match &self.origin {
            Origin::Disk(root) => std::fs::read(root.join(path.as_str())),
            Origin::Commit { contents, .. } => {
                contents.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            }
        }
    }

    /// Whether nothing was added, removed or saved since `other` was listed.
    pub fn looks_like(&self, other: &LocalFolder) -> bool {
        let commit = |origin: &Origin| match origin {
            Origin::Disk(_) => None,
            Origin::Commit { id, .. } => Some(id.clone()),
        };
        self.files == other.files && commit(&self.origin) == commit(&other.origin)
    }

    /// The commit, or a name for the contents that has 40 hexadecimal digits as a commit has.
    pub fn digest(&self) -> io::Result<String> {
        if let Origin::Commit { id, .. } = &self.origin {
            return Ok(id.clone());
        }
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
}

fn walk(
    root: &Path,
    at: &TreePath,
    ignored: &Ignore,
    depth: usize,
    files: &mut Vec<LocalFile>,
) -> io::Result<()> {
    if depth > DEEPEST || files.len() > MOST_FILES {
        return Err(io::Error::other(format!("{at}: too many files or folders below {}", root.display())));
    }
    for entry in std::fs::read_dir(root.join(at.as_str()))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = at.child(&name);
        let kind = entry.file_type()?;
        if name == ".git" || ignored.excludes(&path, kind.is_dir()) {
            continue;
        }
        if kind.is_dir() {
            walk(root, &path, ignored, depth + 1, files)?;
        } else if kind.is_file() {
            let metadata = entry.metadata()?;
            files.push(LocalFile {
                path,
                executable: metadata.permissions().mode() & 0o111 != 0,
                size: metadata.len(),
                modified: metadata.modified().ok(),
            });
        }
    }
    Ok(())
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

    #[test]
    fn a_commit_is_read_with_or_without_packs_and_from_a_folder_inside() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
            let output = command.current_dir(folder.path()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        std::fs::create_dir_all(folder.path().join("fleet/apps")).unwrap();
        git(&["init", "-q", "-b", "main"]);
        std::fs::write(folder.path().join("fleet/apps/a.yaml"), "a: 1").unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "one"]);
        git(&["tag", "-a", "v1", "-m", "tagged"]);
        let first = git(&["rev-parse", "HEAD"]);
        std::fs::write(folder.path().join("fleet/apps/a.yaml"), "a: 2").unwrap();
        git(&["commit", "-q", "-a", "-m", "two"]);
        std::fs::write(folder.path().join("fleet/apps/a.yaml"), "a: 3, not committed").unwrap();

        let path = TreePath::parse("apps/a.yaml").unwrap();
        let text = |revision: &str| {
            let place = Place { folder: folder.path().join("fleet"), revision: Some(revision.to_owned()) };
            let files = place.open().unwrap();
            (String::from_utf8(files.read(&path).unwrap()).unwrap(), files.digest().unwrap())
        };
        for pass in ["loose", "packed"] {
            assert_eq!(text("HEAD"), ("a: 2".to_owned(), git(&["rev-parse", "HEAD"])), "{pass}");
            for name in ["HEAD~1", "v1", "main^", &first, &first[..10]] {
                assert_eq!(text(name), ("a: 1".to_owned(), first.clone()), "{pass} {name}");
            }
            git(&["gc", "-q"]);
        }
        let nowhere = Place { folder: folder.path().to_owned(), revision: Some("nowhere".to_owned()) };
        assert!(nowhere.open().is_err());
        let dirty = Place { folder: folder.path().join("fleet"), revision: None };
        assert_eq!(dirty.open().unwrap().read(&path).unwrap(), b"a: 3, not committed");
    }
}
