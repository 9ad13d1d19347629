//! Changing a repository: clone a branch, edit files, commit, push.
//!
//! There is no work tree on disk. Edits are kept in memory until they are committed, commits until they are pushed;
//! files nobody touched stay exactly as they are, whatever their mode or name.
//!
//! ```no_run
//! # async fn example(remote: &mut dyn flux_remote::git::Remote, signer: flux_remote::git::Signer)
//! # -> Result<(), flux_remote::git::Error> {
//! use flux_remote::git::{NewCommit, Person, PushOptions, Working};
//!
//! let mut fleet = Working::clone(remote, "cache/fleet".as_ref(), "main").await?;
//! let app = String::from_utf8_lossy(&fleet.read("apps/web.yaml")?).replace(":1.0", ":1.1");
//! fleet.write("apps/web.yaml", app.into_bytes())?;
//! fleet.remove("apps/old.yaml")?;
//! let commit = NewCommit {
//!     message: "web 1.1".to_owned(),
//!     author: Person::new("fluxbot", "flux@example.com"),
//!     time: std::time::SystemTime::now(),
//! };
//! if let Some(id) = fleet.commit(&commit, Some(&signer))? {
//!     fleet.push(remote, &PushOptions::default()).await?;
//!     println!("pushed {id}");
//! }
//! # Ok(()) }
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use file_tree::TreePath;

use super::checkout::{Checkout, Mode, TreeFile, is_safe};
use super::fetch::{RemoteRef, fetch, list_refs};
use super::objects::{ObjectStore, RawEntry};
use super::pack::{NewObjects, ObjectKind};
use super::push::{PushOptions, Refspec, Update, push};
use super::reference::Reference;
use super::signature::Signer;
use super::{Error, Limits, Oid, Remote, pick};

const BLOB: u32 = 0o100_644;
const EXECUTABLE: u32 = 0o100_755;
const FOLDER: u32 = 0o040_000;

/// A branch of a repository and what was changed in it.
pub struct Working {
    store: ObjectStore,
    branch: String,
    /// What was checked out, as `main@sha1:…`.
    revision: Option<String>,
    /// The newest commit here; `None` in an empty repository.
    head: Option<Oid>,
    /// Commits that the remote's branch may be at for a push without force: where we started, and all we made.
    history: Vec<Oid>,
    files: BTreeMap<TreePath, TreeFile>,
    /// What changed since the last commit; `None` is a removal.
    edits: BTreeMap<TreePath, Option<(u32, Oid)>>,
    objects: NewObjects,
}

/// What a commit says about itself.
#[derive(Clone, Debug)]
pub struct NewCommit {
    pub message: String,
    /// Also the committer.
    pub author: Person,
    pub time: SystemTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    name: String,
    email: String,
}

impl Person {
    /// Characters that Git gives a meaning to are left out.
    pub fn new(name: &str, email: &str) -> Self {
        let plain = |text: &str| {
            let kept: String =
                text.chars().filter(|one| !one.is_control() && !matches!(one, '<' | '>')).collect();
            kept.trim().to_owned()
        };
        Self { name: plain(name), email: plain(email) }
    }

    fn line(&self, time: SystemTime) -> String {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        format!("{} <{}> {seconds} +0000", self.name, self.email)
    }
}

impl Working {
    /// Fetches `branch` into the cache in `folder`. In an empty repository the branch begins with the first commit.
    pub async fn clone(remote: &mut dyn Remote, folder: &Path, branch: &str) -> Result<Self, Error> {
        let reference = Reference { branch: Some(branch.to_owned()), ..Reference::default() };
        Self::clone_at(remote, folder, &reference, branch).await
    }

    /// The same from any reference; what is committed goes to `branch`.
    pub async fn clone_at(
        remote: &mut dyn Remote,
        folder: &Path,
        reference: &Reference,
        branch: &str,
    ) -> Result<Self, Error> {
        let prefixes = reference.prefixes();
        let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        let refs = list_refs(remote, &prefixes, Limits::DEFAULT).await?;
        let mut working = Self {
            store: ObjectStore::open(folder)?,
            branch: branch.to_owned(),
            revision: None,
            head: None,
            history: Vec::new(),
            files: BTreeMap::new(),
            edits: BTreeMap::new(),
            objects: NewObjects::default(),
        };
        let pick = match pick(reference, &refs) {
            Err(error) if refs.is_empty() => {
                let anything = list_refs(remote, &[], Limits::DEFAULT).await?;
                return if anything.is_empty() { Ok(working) } else { Err(error) };
            }
            picked => picked?,
        };
        let depth = if pick.deep { None } else { Some(1) };
        fetch(remote, &mut working.store, &[pick.want], depth, Limits::DEFAULT).await?;
        working.revision = Some(pick.revision());
        working.look_at(pick.commit)?;
        Ok(working)
    }

    /// Goes on at `branch`: where the remote has it, from its newest commit; else from here.
    pub async fn switch(&mut self, remote: &mut dyn Remote, branch: &str) -> Result<(), Error> {
        let name = format!("refs/heads/{branch}");
        let refs = list_refs(remote, &[&name], Limits::DEFAULT).await?;
        if let Some(RemoteRef { target, .. }) = refs.iter().find(|one| one.name == name) {
            fetch(remote, &mut self.store, &[*target], Some(1), Limits::DEFAULT).await?;
            self.look_at(*target)?;
        }
        self.branch = branch.to_owned();
        Ok(())
    }

    /// Goes on at `branch` from here, whatever the remote has under that name.
    pub fn branch_off(&mut self, branch: &str) {
        self.branch = branch.to_owned();
    }

    /// What was checked out at first, as `main@sha1:…`; nothing of an empty repository.
    pub fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    pub fn branch(&self) -> &str {
        &self.branch
    }

    pub fn head(&self) -> Option<Oid> {
        self.head
    }

    /// Every file with its mode, edits included.
    pub fn files(&self) -> impl Iterator<Item = (&TreePath, Mode)> {
        self.files.iter().map(|(path, file)| (path, file.mode))
    }

    pub fn is_changed(&self) -> bool {
        !self.edits.is_empty()
    }

    pub fn exists(&self, path: &str) -> bool {
        TreePath::parse(path).is_ok_and(|path| self.files.contains_key(&path))
    }

    /// A file's bytes; for a symbolic link, where it points.
    pub fn read(&self, path: &str) -> Result<Cow<'_, [u8]>, Error> {
        let path = checked(path)?;
        let file = self.files.get(&path).ok_or_else(|| Error::NoSuchFile(path.to_string()))?;
        match self.objects.get(file.id) {
            Some((_, data)) => Ok(Cow::Borrowed(data)),
            None => Ok(Cow::Owned(self.store.reader().blob(file.id)?.to_vec())),
        }
    }

    /// Writes a file. A file that is executable stays so; folders come into being as needed.
    pub fn write(&mut self, path: &str, bytes: Vec<u8>) -> Result<(), Error> {
        let path = checked(path)?;
        let mode = match self.files.get(&path).map(|file| file.mode) {
            Some(Mode::Executable) => EXECUTABLE,
            Some(Mode::Regular | Mode::Symlink | Mode::Submodule) | None => BLOB,
        };
        self.put(path, mode, bytes)
    }

    pub fn write_executable(&mut self, path: &str, bytes: Vec<u8>) -> Result<(), Error> {
        self.put(checked(path)?, EXECUTABLE, bytes)
    }

    fn put(&mut self, path: TreePath, mode: u32, bytes: Vec<u8>) -> Result<(), Error> {
        if let Some(other) = self.in_the_way(&path) {
            return Err(Error::UnsafePath(format!("{path}: '{other}' is in the way")));
        }
        let same_mode = |file: &TreeFile| (file.mode == Mode::Executable) == (mode == EXECUTABLE);
        let id = self.objects.add(ObjectKind::Blob, bytes);
        if self.files.get(&path).is_some_and(|file| file.id == id && same_mode(file)) {
            return Ok(());
        }
        let kept = if mode == EXECUTABLE { Mode::Executable } else { Mode::Regular };
        self.files.insert(path.clone(), TreeFile { mode: kept, id });
        self.edits.insert(path, Some((mode, id)));
        Ok(())
    }

    /// A file where a folder is needed, or one below the path that is to be a file.
    fn in_the_way(&self, path: &TreePath) -> Option<&TreePath> {
        let above = std::iter::successors(path.parent(), TreePath::parent);
        let above =
            above.filter_map(|folder| self.files.get_key_value(&folder)).map(|(other, _)| other).next();
        let below = || {
            let near = self.files.range(path.clone()..).map(|(other, _)| other);
            near.take_while(|other| other.as_str().starts_with(path.as_str()))
                .find(|other| other.is_within(path) && *other != path)
        };
        above.or_else(below)
    }

    /// Removes a file, or a folder with all that is in it. What is not there is removed already.
    pub fn remove(&mut self, path: &str) -> Result<(), Error> {
        let path = checked(path)?;
        let gone: Vec<TreePath> = self.files.keys().filter(|one| one.is_within(&path)).cloned().collect();
        for path in gone {
            self.files.remove(&path);
            self.edits.insert(path, None);
        }
        Ok(())
    }

    /// Makes a commit of the edits; nothing when they leave everything as it was.
    pub fn commit(&mut self, commit: &NewCommit, signer: Option<&Signer>) -> Result<Option<Oid>, Error> {
        let before = match self.head {
            Some(head) => Some(self.tree_of(head)?),
            None => None,
        };
        let edits = Node::from_edits(std::mem::take(&mut self.edits));
        let tree = self.edited(before, edits, 0)?;
        let tree = tree.unwrap_or_else(|| self.objects.add(ObjectKind::Tree, Vec::new()));
        if Some(tree) == before || (before.is_none() && self.files.is_empty()) {
            return Ok(None);
        }
        let unsigned = headers(tree, self.head, commit);
        let message = message(&commit.message);
        let data = match signer {
            None => [unsigned.as_slice(), b"\n", message.as_bytes()].concat(),
            Some(signer) => {
                let payload = [unsigned.as_slice(), b"\n", message.as_bytes()].concat();
                let signature = signer.sign(&payload)?;
                let header = format!("gpgsig {}\n", signature.trim_end().replace('\n', "\n "));
                [unsigned.as_slice(), header.as_bytes(), b"\n", message.as_bytes()].concat()
            }
        };
        let id = self.objects.add(ObjectKind::Commit, data);
        self.head = Some(id);
        self.history.push(id);
        Ok(Some(id))
    }

    /// Sends the commits made here. Without refspecs, to the branch of the same name.
    pub async fn push(&mut self, remote: &mut dyn Remote, options: &PushOptions) -> Result<(), Error> {
        let head = self.head.ok_or(Error::NothingToPush)?;
        let own = format!("refs/heads/{}", self.branch);
        let refspecs = match options.refspecs.as_slice() {
            [] => vec![Refspec { force: false, source: Some(own.clone()), target: own.clone() }],
            some => some.to_vec(),
        };
        let mut updates = Vec::new();
        for refspec in refspecs {
            let new = match refspec.source.as_deref() {
                None => None,
                Some(source) if source == "HEAD" || source == own || source == self.branch => Some(head),
                Some(source) => {
                    return Err(Error::NoSuchRef(format!("{source} (only HEAD and {own} are here)")));
                }
            };
            updates.push(Update { target: refspec.target, new, force: refspec.force || options.force });
        }
        let pack = if self.objects.is_empty() { Vec::new() } else { self.objects.pack()? };
        push(remote, &updates, &pack, &self.history, options).await?;
        self.keep(head, pack).await
    }

    /// What was pushed is as good as fetched.
    async fn keep(&mut self, head: Oid, pack: Vec<u8>) -> Result<(), Error> {
        if pack.is_empty() {
            return Ok(());
        }
        self.store.keep_pack(&pack, head).await?;
        self.objects.clear();
        Ok(())
    }

    fn look_at(&mut self, commit: Oid) -> Result<(), Error> {
        let checkout = Checkout::new(&self.store, commit)?;
        self.files = checkout.files().map(|(path, file)| (path.clone(), file.clone())).collect();
        self.edits.clear();
        self.head = Some(commit);
        self.history = vec![commit];
        Ok(())
    }

    fn tree_of(&self, commit: Oid) -> Result<Oid, Error> {
        match self.objects.get(commit) {
            Some((_, data)) => Ok(super::objects::parse_commit(commit, data.to_vec())?.tree),
            None => Ok(self.store.commit(commit)?.tree),
        }
    }

    fn entries(&self, tree: Oid) -> Result<Vec<RawEntry>, Error> {
        match self.objects.get(tree) {
            Some((_, data)) => super::objects::parse_tree(tree, data),
            None => self.store.reader().raw_tree(tree),
        }
    }

    /// `tree` with the edits made; `None` when nothing is left of it.
    fn edited(
        &mut self,
        tree: Option<Oid>,
        edits: BTreeMap<Vec<u8>, Node>,
        depth: usize,
    ) -> Result<Option<Oid>, Error> {
        let mut entries: BTreeMap<Vec<u8>, (u32, Oid)> = match tree {
            Some(tree) => {
                self.entries(tree)?.into_iter().map(|entry| (entry.name, (entry.mode, entry.id))).collect()
            }
            None => BTreeMap::new(),
        };
        for (name, node) in edits {
            let becomes = match node {
                Node::Gone => None,
                Node::File(mode, id) => Some((mode, id)),
                Node::Folder(inner) => {
                    let before = entries.get(&name).filter(|(mode, _)| *mode == FOLDER).map(|(_, id)| *id);
                    self.edited(before, inner, depth + 1)?.map(|id| (FOLDER, id))
                }
            };
            match becomes {
                Some(entry) => entries.insert(name, entry),
                None => entries.remove(&name),
            };
        }
        if entries.is_empty() && depth > 0 {
            return Ok(None);
        }
        let data = serialized(entries);
        Ok(Some(self.objects.add(ObjectKind::Tree, data)))
    }
}

/// Edits as a tree of folders.
enum Node {
    Gone,
    File(u32, Oid),
    Folder(BTreeMap<Vec<u8>, Node>),
}

impl Node {
    fn from_edits(edits: BTreeMap<TreePath, Option<(u32, Oid)>>) -> BTreeMap<Vec<u8>, Node> {
        let mut root = BTreeMap::new();
        for (path, edit) in edits {
            let parts: Vec<&str> = path.parts().collect();
            let Some((name, folders)) = parts.split_last() else { continue };
            let mut at = &mut root;
            for folder in folders {
                let node = at
                    .entry(folder.as_bytes().to_vec())
                    .and_modify(|node| {
                        if !matches!(node, Node::Folder(_)) {
                            *node = Node::Folder(BTreeMap::new());
                        }
                    })
                    .or_insert_with(|| Node::Folder(BTreeMap::new()));
                let Node::Folder(inner) = node else { unreachable!("it was made a folder above") };
                at = inner;
            }
            let leaf = match edit {
                Some((mode, id)) => Node::File(mode, id),
                None => Node::Gone,
            };
            // The removal of a file does not undo what a folder of its name holds now.
            if !(matches!(leaf, Node::Gone) && at.contains_key(name.as_bytes())) {
                at.insert(name.as_bytes().to_vec(), leaf);
            }
        }
        root
    }
}

/// Git sorts a folder as if its name ended in a slash.
fn serialized(entries: BTreeMap<Vec<u8>, (u32, Oid)>) -> Vec<u8> {
    let mut sorted: Vec<(Vec<u8>, u32, Oid)> =
        entries.into_iter().map(|(name, (mode, id))| (name, mode, id)).collect();
    let key = |name: &[u8], mode: u32| {
        let slash: &[u8] = if mode == FOLDER { b"/" } else { b"" };
        [name, slash].concat()
    };
    sorted.sort_by_cached_key(|(name, mode, _)| key(name, *mode));
    let mut data = Vec::new();
    for (name, mode, id) in sorted {
        data.extend_from_slice(format!("{mode:o} ").as_bytes());
        data.extend_from_slice(&name);
        data.push(0);
        data.extend_from_slice(id.0.as_slice());
    }
    data
}

fn headers(tree: Oid, parent: Option<Oid>, commit: &NewCommit) -> Vec<u8> {
    let mut text = format!("tree {tree}\n");
    if let Some(parent) = parent {
        text.push_str(&format!("parent {parent}\n"));
    }
    let who = commit.author.line(commit.time);
    text.push_str(&format!("author {who}\ncommitter {who}\n"));
    text.into_bytes()
}

/// Git ends a message with a line feed, and no message holds a NUL.
fn message(text: &str) -> String {
    let text = text.replace('\0', "");
    if text.ends_with('\n') { text } else { format!("{text}\n") }
}

fn checked(path: &str) -> Result<TreePath, Error> {
    let parsed = TreePath::parse(path).map_err(|_| Error::UnsafePath(path.to_owned()))?;
    if parsed.is_root() || !parsed.parts().all(is_safe) {
        return Err(Error::UnsafePath(path.to_owned()));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_cannot_forge_a_header() {
        let person = Person::new("Eve\nparent 1234 <x>", "e@x> 0 +0000\n");
        assert_eq!(person.line(UNIX_EPOCH), "Eveparent 1234 x <e@x 0 +0000> 0 +0000");
    }

    #[test]
    fn folders_are_sorted_as_if_they_ended_in_a_slash() {
        let id = Oid::parse(&"1".repeat(40)).unwrap();
        let entries = BTreeMap::from([
            (b"a".to_vec(), (FOLDER, id)),
            (b"a.txt".to_vec(), (BLOB, id)),
            (b"a-b".to_vec(), (BLOB, id)),
        ]);
        let data = serialized(entries);
        let names: Vec<Vec<u8>> = super::super::objects::parse_tree(id, &data)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, [b"a-b".to_vec(), b"a.txt".to_vec(), b"a".to_vec()]);
    }

    #[test]
    fn nothing_is_written_into_git_or_above_the_root() {
        for path in ["../x", ".git/config", "a/.GIT/hooks/x", "", ".", "a/../../b"] {
            assert!(checked(path).is_err(), "{path}");
        }
        assert_eq!(checked("./a//b").unwrap().as_str(), "a/b");
    }
}
