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

#[cfg(test)]
mod tests {
    use super::*;
    use file_tree::MemoryTree;

    /// What stays closed, or which files were opened.
    fn open_all(texts: &[(&str, &str)]) -> Result<Vec<String>, (String, String)> {
        let files = MemoryTree::from_texts(texts.iter().copied()).unwrap();
        let root = TreePath::root();
        let text = files.read(&TreePath::parse("kustomization.yaml").unwrap()).unwrap().into_owned();
        match sources(&files, &root, &text, &Keyring::default()) {
            Ok(opened) => Ok(opened.keys().map(ToString::to_string).collect()),
            Err(Closed { path, why: Unopened::Failed(error) }) => Err((path.to_string(), error.to_string())),
            Err(Closed { path, why: Unopened::Wanted(_) }) => Err((path.to_string(), "wanted".to_owned())),
        }
    }

    fn encrypted(size: usize) -> String {
        format!("a: 1\nsops:\n  mac: ENC[x]\n#{}\n", "x".repeat(size))
    }

    #[test]
    fn an_encrypted_file_over_5_mib_is_refused_and_others_are_not_looked_at() {
        let named = "secretGenerator: [{name: s, files: [key.yaml=big.yaml]}]\n";
        let large = encrypted(LARGEST);
        let (path, problem) = open_all(&[("kustomization.yaml", named), ("big.yaml", &large)]).unwrap_err();
        assert_eq!(path, "big.yaml");
        assert!(problem.contains(&LARGEST.to_string()), "{problem}");
        let plain = "x".repeat(LARGEST + 1);
        assert_eq!(open_all(&[("kustomization.yaml", named), ("big.yaml", &plain)]), Ok(Vec::new()));
    }

    #[test]
    fn generators_and_patches_are_followed_through_folders_and_nothing_else() {
        let broken = encrypted(0);
        let closed = |texts: &[(&str, &str)]| open_all(texts).unwrap_err().0;
        let in_base = [("kustomization.yaml", "resources: [base]\n"), ("base/s.yaml", broken.as_str())];
        let names = "secretGenerator: [{name: s, files: [s.yaml]}]\n";
        assert_eq!(closed(&[&in_base[..], &[("base/kustomization.yaml", names)]].concat()), "base/s.yaml");
        let patch = "patches: [{path: s.yaml}]\n";
        assert_eq!(closed(&[&in_base[..], &[("base/kustomization.yaml", patch)]].concat()), "base/s.yaml");
        let component = [("kustomization.yaml", "components: [c]\n"), ("c/s.yaml", broken.as_str())];
        assert_eq!(closed(&[&component[..], &[("c/kustomization.yaml", names)]].concat()), "c/s.yaml");
        // The format is that of the key, so this one does not carry the mark of its format.
        let as_env = "secretGenerator: [{name: s, files: [x.env=s.yaml]}]\n";
        let other = open_all(&[("kustomization.yaml", as_env), ("s.yaml", &broken)]);
        assert_eq!(other, Ok(Vec::new()));
        // References that lead nowhere, out or to other hosts are kustomize's to report.
        let odd = "secretGenerator: [{name: s, files: [missing, ../out]}]\n\
                   patches: [{path: 'https://example.org/p.yaml'}]\nresources: ['https://example.org/x']\n";
        assert_eq!(open_all(&[("kustomization.yaml", odd)]), Ok(Vec::new()));
    }
}
