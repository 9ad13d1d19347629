//! Remote bases: what a kustomization names by URL is fetched by the caller, mounted beside the artifact, and the
//! reference is rewritten to the mount. Pure: what is missing is named, and the caller comes back with it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use file_tree::{Files, Kind, MemoryTree, TreePath};
use serde_json::{Value, json};

use crate::generate;
use crate::mounted::{Mounted, SuppliedTwice};

/// Where fetched bases are mounted; no source has a folder of this name by accident.
const FOLDER: &str = ".flux-remote-bases";

/// Fetched bases by the text that names them.
pub type Remotes = BTreeMap<String, Remote>;

/// What stood at a URL.
#[derive(Clone)]
pub enum Remote {
    File(Arc<MemoryTree>),
    Repository {
        tree: Arc<dyn Files + Send + Sync>,
        /// The folder that was named.
        inside: TreePath,
    },
}

impl Remote {
    /// A file; its content is all that matters.
    pub fn file(bytes: Vec<u8>) -> Self {
        let mut tree = MemoryTree::new();
        tree.insert(TreePath::root().child("manifests.yaml"), bytes);
        Remote::File(Arc::new(tree))
    }

    fn tree(&self) -> &dyn Files {
        match self {
            Remote::File(tree) => tree.as_ref(),
            Remote::Repository { tree, .. } => tree.as_ref(),
        }
    }
}

/// `files` with every fetched base mounted.
pub(crate) fn mounted<'a>(files: &'a dyn Files, remotes: &'a Remotes) -> Result<Mounted<'a>, SuppliedTwice> {
    let mut all = Mounted::new();
    all.mount(TreePath::root(), files)?;
    for (number, remote) in remotes.values().enumerate() {
        all.mount(TreePath::root().child(FOLDER).child(&number.to_string()), remote.tree())?;
    }
    Ok(all)
}

/// What a walk over the kustomizations found.
pub(crate) struct Rewritten {
    /// The kustomization that the build starts from.
    pub(crate) text: Vec<u8>,
    /// Those of other folders that had to change.
    pub(crate) files: BTreeMap<TreePath, Vec<u8>>,
    /// What has to be fetched first.
    pub(crate) wanted: BTreeSet<String>,
}

/// Rewrites references to fetched bases in the kustomization `text` of `folder` and in those it includes.
pub(crate) fn rewrite(files: &dyn Files, folder: &TreePath, text: &[u8], remotes: &Remotes) -> Rewritten {
    let mut walk = Walk {
        files,
        remotes,
        visited: BTreeSet::from([folder.clone()]),
        changed: BTreeMap::new(),
        wanted: BTreeSet::new(),
    };
    let text = walk.kustomization(folder, text).unwrap_or_else(|| text.to_vec());
    Rewritten { text, files: walk.changed, wanted: walk.wanted }
}

struct Walk<'a> {
    files: &'a dyn Files,
    remotes: &'a Remotes,
    visited: BTreeSet<TreePath>,
    changed: BTreeMap<TreePath, Vec<u8>>,
    wanted: BTreeSet<String>,
}

impl Walk<'_> {
    /// The text after rewriting; `None` when it stays as it is.
    fn kustomization(&mut self, folder: &TreePath, text: &[u8]) -> Option<Vec<u8>> {
        let mut file = yaml::to_json(text).ok()?;
        let mut changed = false;
        for field in ["resources", "components", "bases"] {
            let Some(Value::Array(entries)) = file.get_mut(field) else { continue };
            for entry in entries {
                let Some(path) = entry.as_str().map(str::to_owned) else { continue };
                if kustomize::is_remote(&path) {
                    if let Some(local) = self.local(folder, &path) {
                        *entry = json!(local);
                        changed = true;
                    }
                } else if let Ok(inner) = folder.join(&path) {
                    self.enter(&inner);
                }
            }
        }
        changed.then(|| file.to_string().into_bytes())
    }

    /// Where a fetched base is, as seen from `folder`.
    fn local(&mut self, folder: &TreePath, path: &str) -> Option<String> {
        let Some((number, remote)) =
            self.remotes.iter().enumerate().find(|(_, (name, _))| *name == path).map(|(n, (_, r))| (n, r))
        else {
            self.wanted.insert(path.to_owned());
            return None;
        };
        let mut place = TreePath::root().child(FOLDER).child(&number.to_string());
        match remote {
            Remote::File(_) => place = place.child("manifests.yaml"),
            Remote::Repository { inside, .. } => {
                place = inside.parts().fold(place, |place, part| place.child(part));
                self.enter(&place);
            }
        }
        let up = "../".repeat(folder.parts().count());
        Some(format!("{up}{place}"))
    }

    fn enter(&mut self, folder: &TreePath) {
        if self.files.kind(folder) != Some(Kind::Folder) || !self.visited.insert(folder.clone()) {
            return;
        }
        let Some(file) = generate::existing(self.files, folder) else { return };
        let Ok(text) = self.files.read(&file).map(Cow::into_owned) else { return };
        if let Some(changed) = self.kustomization(folder, &text) {
            self.changed.insert(file, changed);
        }
    }
}
