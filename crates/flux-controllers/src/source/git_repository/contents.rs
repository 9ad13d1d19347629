//! The files of an artifact: those of the commit, of its submodules and of what it includes, less what is ignored.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use file_tree::{Files, TreePath};
use flux_api::artifact::Artifact;
use flux_api::source::GitRepositoryInclude;
use flux_remote::git::{self, Checkout, Mode, ObjectStore, Oid, Pick};
use flux_remote::ignore::{self, Ignore};

use super::Found;
use super::failure::Failure;
use super::fetch::Module;
use crate::artifact::Storage;
use crate::artifact::storage::{Contents, Each, Listed};
use crate::artifact::tree::ArtifactTree;

/// Where a file's bytes are.
enum Piece {
    Blob { store: usize, id: Oid, executable: bool },
    Included { tree: usize, path: TreePath, executable: bool },
}

/// All files by path, whatever brought them.
pub(super) struct Assembly {
    stores: Vec<ObjectStore>,
    /// Of each store's last reader: making one for each of a hundred thousand files takes longer than reading them.
    buffers: Vec<Option<git::Buffers>>,
    trees: Vec<Arc<ArtifactTree>>,
    pieces: BTreeMap<TreePath, Piece>,
    rules: Ignore,
}

impl Assembly {
    pub(super) fn new(store: ObjectStore, pick: &Pick, sparse: &[String]) -> Result<Self, git::Error> {
        let mut assembly = Self {
            stores: Vec::new(),
            buffers: Vec::new(),
            trees: Vec::new(),
            pieces: BTreeMap::new(),
            rules: Ignore::default(),
        };
        assembly.add(store, pick.commit, &TreePath::root(), sparse)?;
        Ok(assembly)
    }

    pub(super) fn add_submodule(&mut self, module: Module) -> Result<(), git::Error> {
        self.add(module.store, module.commit, &module.at, &[])
    }

    /// Links are left out of artifacts; so are submodules nobody asked for.
    fn add(
        &mut self,
        store: ObjectStore,
        commit: Oid,
        at: &TreePath,
        sparse: &[String],
    ) -> Result<(), git::Error> {
        let index = self.stores.len();
        {
            let checkout = Checkout::new(&store, commit)?;
            for (path, file) in checkout.files().filter(|(path, _)| is_checked_out(path, sparse)) {
                let executable = match file.mode {
                    Mode::Regular => false,
                    Mode::Executable => true,
                    Mode::Symlink | Mode::Submodule => continue,
                };
                let path = match at.is_root() {
                    true => path.clone(),
                    false => at.join(path.as_str()).map_err(|_| git::Error::UnsafePath(path.to_string()))?,
                };
                self.pieces.insert(path, Piece::Blob { store: index, id: file.id, executable });
            }
        }
        self.stores.push(store);
        self.buffers.push(None);
        Ok(())
    }

    /// Copies a folder or file of another artifact. As upstream, it may not go where a folder is already.
    pub(super) fn add_include(
        &mut self,
        include: &GitRepositoryInclude,
        artifact: &Artifact,
        storage: &Storage,
    ) -> Result<(), Failure> {
        let name = include.repository.name.clone();
        let path = |text: &str| {
            TreePath::parse(text)
                .map_err(|error| Failure::IncludePath { name: name.clone(), cause: error.to_string() })
        };
        let from = path(include.from_path.as_deref().unwrap_or_default())?;
        let to = path(include.to_path())?;
        let failed = |cause: String| Failure::IncludeCopy {
            name: name.clone(),
            from: include.from_path.clone().unwrap_or_default(),
            to: include.to_path().to_owned(),
            cause,
        };
        let tree = storage
            .tree(artifact)
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed("its artifact is not in this storage".to_owned()))?;
        if to.is_root() || self.pieces.keys().any(|path| path.is_within(&to) && *path != to) {
            return Err(failed("file exists".to_owned()));
        }
        let index = self.trees.len();
        let mut copied = 0;
        for (path, executable) in tree.files().filter(|(path, _)| path.is_within(&from)) {
            let rest = path.as_str().strip_prefix(from.as_str()).unwrap_or_default().trim_start_matches('/');
            let target = to.join(rest).map_err(|error| failed(error.to_string()))?;
            self.pieces.insert(target, Piece::Included { tree: index, path: path.clone(), executable });
            copied += 1;
        }
        if copied == 0 && !from.is_root() {
            return Err(failed("no such file or directory".to_owned()));
        }
        self.trees.push(tree);
        Ok(())
    }

    /// Reads the `.sourceignore` files that are here now; `spec` is `spec.ignore`.
    pub(super) fn ignore(&mut self, spec: Option<&str>) {
        let files = self.pieces.iter().filter(|(path, _)| path.file_name() == Some(ignore::FILE_NAME));
        let mut texts: Vec<(TreePath, String)> = Vec::new();
        for (path, piece) in files {
            if let Ok(bytes) = self.bytes(piece) {
                texts.push((path.parent().unwrap_or_default(), String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        // Parents before children: the last word is that of the folder nearest to a file.
        texts.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.rules = Ignore::for_source(texts.iter().map(|(folder, text)| (folder, text.as_str())), spec);
    }

    fn bytes(&self, piece: &Piece) -> io::Result<Vec<u8>> {
        match piece {
            Piece::Blob { store, id, .. } => {
                self.stores[*store].reader().blob(*id).map(<[u8]>::to_vec).map_err(io::Error::other)
            }
            Piece::Included { tree, path, .. } => {
                self.trees[*tree].read(path).map(std::borrow::Cow::into_owned).map_err(io::Error::other)
            }
        }
    }
}

impl Contents for Assembly {
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        let mut readers: Vec<_> = self.stores.iter().map(ObjectStore::reader).collect();
        for (path, piece) in &self.pieces {
            if self.rules.excludes(path, false) {
                continue;
            }
            match piece {
                Piece::Blob { store, id, executable } => {
                    each(path, *executable, readers[*store].blob(*id).map_err(io::Error::other)?)?;
                }
                Piece::Included { tree, path: from, executable } => {
                    let bytes = self.trees[*tree].read(from).map_err(io::Error::other)?;
                    each(path, *executable, &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// A blob is named by its id, a file of another artifact by its digest.
    fn listed(&mut self) -> Option<Vec<Listed>> {
        let mut listed = Vec::with_capacity(self.pieces.len());
        for (path, piece) in self.pieces.iter().filter(|(path, _)| !self.rules.excludes(path, false)) {
            let (id, executable) = match piece {
                Piece::Blob { id, executable, .. } => (id.to_string().into_bytes(), *executable),
                Piece::Included { tree, path, executable } => {
                    (self.trees[*tree].hash(path)?.to_vec(), *executable)
                }
            };
            listed.push(Listed { path: path.clone(), executable, id });
        }
        Some(listed)
    }

    fn read(&mut self, file: &Listed) -> io::Result<Vec<u8>> {
        match self.pieces.get(&file.path) {
            Some(Piece::Blob { store, id, .. }) => {
                let buffers = self.buffers[*store].take().unwrap_or_default();
                let mut reader = self.stores[*store].reader_with(buffers);
                let bytes = reader.blob(*id).map(<[u8]>::to_vec).map_err(io::Error::other);
                self.buffers[*store] = Some(reader.into_buffers());
                bytes
            }
            Some(piece) => self.bytes(piece),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// By the beginning of the path, as upstream's Git library has it: `apps` also takes `apps-old/`.
fn is_checked_out(path: &TreePath, sparse: &[String]) -> bool {
    sparse.is_empty() || sparse.iter().any(|folder| path.as_str().starts_with(stripped(folder)))
}

fn stripped(folder: &str) -> &str {
    folder.strip_prefix("./").unwrap_or(folder)
}

/// Every folder that was asked for must be there.
pub(super) fn check_sparse(found: &Found, sparse: &[String]) -> Result<(), Failure> {
    if sparse.is_empty() {
        return Ok(());
    }
    let checkout =
        Checkout::new(&found.store, found.pick.commit).map_err(|error| Failure::Sparse(error.to_string()))?;
    for folder in sparse {
        let absent =
            || Failure::Sparse(format!("sparse checkout dir '{folder}' does not exist in repository"));
        let path = TreePath::parse(folder).map_err(|error| {
            Failure::Sparse(format!("sparse checkout dir '{folder}' cannot be resolved: {error}"))
        })?;
        let below = |candidate: &TreePath| (candidate.is_within(&path)) && is_checked_out(candidate, sparse);
        if !checkout.files().any(|(candidate, _)| below(candidate)) {
            return Err(absent());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_goes_by_the_beginning_of_the_path() {
        let path = |text: &str| TreePath::parse(text).unwrap();
        let sparse = ["./apps".to_owned(), "infra/".to_owned()];
        assert!(is_checked_out(&path("apps/a"), &sparse));
        assert!(is_checked_out(&path("apps-old/a"), &sparse));
        assert!(is_checked_out(&path("infra/a"), &sparse));
        assert!(!is_checked_out(&path("infra-old/a"), &sparse));
        assert!(!is_checked_out(&path("README.md"), &sparse));
        assert!(is_checked_out(&path("README.md"), &[]));
    }
}
