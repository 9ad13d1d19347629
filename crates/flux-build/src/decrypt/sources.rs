//! Encrypted files that kustomizations name: sources of Secret generators, and patches. They are opened before the
//! build, which then sees them as if they had never been encrypted.
//!
//! References that cannot be followed are left alone here: kustomize reports them better.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use file_tree::{Entry, Files, Kind, TreePath};
use serde_json::Value;
use sops::{Encrypted, Format};

use super::{Keyring, LARGEST, Unopened, format_of, is_encrypted};
use crate::generate;

/// A tree in which some files have another content.
pub(crate) struct Overlay<'a> {
    pub(crate) base: &'a dyn Files,
    pub(crate) replaced: BTreeMap<TreePath, Vec<u8>>,
}

impl Files for Overlay<'_> {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, file_tree::Error> {
        match self.replaced.get(path) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.base.read(path),
        }
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, file_tree::Error> {
        self.base.list(path)
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        self.base.kind(path)
    }

    fn resolve(&self, path: &TreePath) -> Result<TreePath, file_tree::Error> {
        self.base.resolve(path)
    }
}

/// A file that could not be opened.
pub(crate) struct Closed {
    pub(crate) path: TreePath,
    pub(crate) why: Unopened,
}

/// Opens what the kustomization `text` in `folder` names, and what those it includes name.
pub(crate) fn sources(
    files: &dyn Files,
    folder: &TreePath,
    text: &[u8],
    keys: &Keyring,
) -> Result<BTreeMap<TreePath, Vec<u8>>, Closed> {
    let mut walk = Walk { files, keys, visited: BTreeSet::new(), opened: BTreeMap::new() };
    walk.kustomization(folder, text)?;
    Ok(walk.opened)
}

struct Walk<'a> {
    files: &'a dyn Files,
    keys: &'a Keyring,
    visited: BTreeSet<TreePath>,
    opened: BTreeMap<TreePath, Vec<u8>>,
}

impl Walk<'_> {
    fn kustomization(&mut self, folder: &TreePath, text: &[u8]) -> Result<(), Closed> {
        // Every folder once, so the walk ends however they include one another.
        if !self.visited.insert(folder.clone()) {
            return Ok(());
        }
        let Ok(file) = yaml::to_json(text) else { return Ok(()) };
        for generator in list(&file, "secretGenerator") {
            for source in texts(generator, "files") {
                let (key, path) = source.split_once('=').unwrap_or((source, source));
                self.open(folder, path, format_of(key))?;
            }
            for path in texts(generator, "envs") {
                let format = match format_of(path) {
                    Format::Binary => Format::Dotenv,
                    known => known,
                };
                self.open(folder, path, format)?;
            }
        }
        for patch in list(&file, "patches") {
            if let Some(path) = patch.get("path").and_then(Value::as_str) {
                self.open(folder, path, format_of(path))?;
            }
        }
        for field in ["resources", "components"] {
            for path in texts(&file, field) {
                self.enter(folder, path)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, folder: &TreePath, path: &str) -> Result<(), Closed> {
        let Ok(folder) = folder.join(path) else { return Ok(()) };
        if self.files.kind(&folder) != Some(Kind::Folder) {
            return Ok(());
        }
        let Some(file) = generate::existing(self.files, &folder) else { return Ok(()) };
        let Ok(text) = self.files.read(&file).map(Cow::into_owned) else { return Ok(()) };
        self.kustomization(&folder, &text)
    }

    fn open(&mut self, folder: &TreePath, path: &str, format: Format) -> Result<(), Closed> {
        let Ok(path) = folder.join(path) else { return Ok(()) };
        if self.files.kind(&path) != Some(Kind::File) || self.opened.contains_key(&path) {
            return Ok(());
        }
        let Ok(bytes) = self.files.read(&path) else { return Ok(()) };
        if !is_encrypted(&bytes, format) {
            return Ok(());
        }
        let opened = open(&bytes, format, self.keys).map_err(|why| Closed { path: path.clone(), why })?;
        self.opened.insert(path, opened);
        Ok(())
    }
}

fn open(bytes: &[u8], format: Format, keys: &Keyring) -> Result<Vec<u8>, Unopened> {
    if bytes.len() > LARGEST {
        return Err(Unopened::Failed(sops::Error::TooLarge { found: bytes.len(), limit: LARGEST }));
    }
    let encrypted = Encrypted::parse(bytes, format)?;
    Ok(keys.open(&encrypted)?.to_bytes(format)?)
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn texts<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    list(value, field).filter_map(Value::as_str)
}
