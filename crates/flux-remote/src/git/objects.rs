//! The objects of one remote repository, kept as the packs it sent.
//!
//! Each fetch adds a pack with an index. When there are many the store starts over: the next fetch gets one
//! pack of everything. Losing the folder costs a fetch and nothing else.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::fetch::Boundaries;
use super::{Error, Limits, Oid};

const SHA1: gix_hash::Kind = gix_hash::Kind::Sha1;
const STATE: &str = "state.json";
const MOST_PACKS: usize = 40;
const DELTA_CACHE_BYTES: usize = 32 << 20;

pub struct ObjectStore {
    folder: PathBuf,
    packs: Vec<Arc<gix_pack::Bundle>>,
    /// Folders of a repository that holds some objects in files of their own.
    loose: Vec<PathBuf>,
    state: State,
    object_bytes: usize,
}

/// Commits that were fetched, and where their history was cut off.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Commit → depth it was fetched to; `None` is its whole history.
    tips: BTreeMap<String, Option<u32>>,
    boundaries: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub id: Oid,
    pub tree: Oid,
    pub parents: Vec<Oid>,
    /// `Name <address>` as the commit has it.
    pub author: String,
    pub committer: String,
    /// Seconds since the epoch, of the committer.
    pub time: i64,
    pub message: String,
    /// The exact bytes, for signatures.
    pub raw: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Tag {
    pub id: Oid,
    pub target: Oid,
    pub name: String,
    pub message: String,
    pub raw: Vec<u8>,
}

impl ObjectStore {
    /// Opens the store in `folder`, made if need be. Damaged contents are thrown away: they are a cache.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(folder).map_err(Error::cache)?;
        match Self::load(folder) {
            Ok(store) if store.packs.len() <= MOST_PACKS => Ok(store),
            Ok(_) | Err(_) => {
                std::fs::remove_dir_all(folder).map_err(Error::cache)?;
                std::fs::create_dir_all(folder).map_err(Error::cache)?;
                Self::load(folder)
            }
        }
    }

    fn load(folder: &Path) -> Result<Self, Error> {
        let mut packs = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(Error::cache)? {
            let path = entry.map_err(Error::cache)?.path();
            if path.extension().is_some_and(|extension| extension == "idx") {
                packs.push(Arc::new(gix_pack::Bundle::at(&path, SHA1).map_err(Error::cache)?));
            }
        }
        let state = match std::fs::read(folder.join(STATE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(Error::cache)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::default(),
            Err(error) => return Err(Error::cache(error)),
        };
        let object_bytes = Limits::DEFAULT.object_bytes;
        Ok(Self { folder: folder.to_owned(), packs, loose: Vec::new(), state, object_bytes })
    }

    /// The objects of a repository of this machine, in its `objects` folders. To be read only.
    pub(super) fn of_repository(folders: &[PathBuf]) -> Result<Self, Error> {
        let mut packs = Vec::new();
        for folder in folders {
            let Ok(entries) = std::fs::read_dir(folder.join("pack")) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.extension().is_some_and(|extension| extension == "idx") {
                    packs.push(Arc::new(gix_pack::Bundle::at(&path, SHA1).map_err(Error::cache)?));
                }
            }
        }
        let folder = folders.first().cloned().unwrap_or_default();
        let object_bytes = Limits::DEFAULT.object_bytes;
        Ok(Self { folder, packs, loose: folders.to_owned(), state: State::default(), object_bytes })
    }

    /// The one object whose id starts with `hex`, which has at least four digits.
    pub(super) fn shortened(&self, hex: &str) -> Option<Oid> {
        if let Some(id) = Oid::parse(hex) {
            return Some(id);
        }
        let prefix = gix_hash::Prefix::from_hex(hex).ok().filter(|_| hex.len() >= 4)?;
        let mut found = BTreeSet::new();
        for pack in &self.packs {
            let mut range = 0..0;
            pack.index.lookup_prefix(prefix, Some(&mut range));
            found.extend(range.map(|index| Oid(pack.index.oid_at_index(index).to_owned())));
        }
        for folder in &self.loose {
            let Ok(entries) = std::fs::read_dir(folder.join(&hex[..2])) else { continue };
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            let ids = names.filter(|name| name.starts_with(&hex[2..]));
            found.extend(ids.filter_map(|name| Oid::parse(&format!("{}{name}", &hex[..2]))));
        }
        if found.len() == 1 { found.first().copied() } else { None }
    }

    /// Whether `commit` is here with at least `depth` of its history.
    pub fn holds(&self, commit: &Oid, depth: Option<u32>) -> bool {
        let deep_enough = match (self.state.tips.get(&commit.to_string()), depth) {
            (None, _) | (Some(Some(_)), None) => false,
            (Some(None), _) => true,
            (Some(Some(have)), Some(asked)) => *have >= asked,
        };
        deep_enough && self.packs.iter().any(|pack| pack.index.lookup(commit.0).is_some())
    }

    pub(super) fn tips(&self) -> impl Iterator<Item = &str> {
        self.state.tips.keys().map(String::as_str)
    }

    pub(super) fn boundaries(&self) -> impl Iterator<Item = &str> {
        self.state.boundaries.iter().map(String::as_str)
    }

    /// A file for a pack on its way in; it vanishes when dropped.
    pub(super) fn incoming(&self) -> Result<tempfile::NamedTempFile, Error> {
        tempfile::Builder::new().prefix("incoming-").tempfile_in(&self.folder).map_err(Error::cache)
    }

    /// Checks and indexes a received pack. It may build on what is here: then it is completed with that, so that each
    /// pack stands on its own.
    pub(super) async fn add_pack(
        &mut self,
        pack: tempfile::NamedTempFile,
        limits: Limits,
    ) -> Result<(), Error> {
        let (folder, here) = (self.folder.clone(), self.packs.clone());
        let given_up = GivenUp::default();
        let stop = given_up.0.clone();
        let bundle = tokio::task::spawn_blocking(move || index(&pack, &folder, here, &stop, limits))
            .await
            .map_err(|_| Error::Garbage("a pack that could not be read".to_owned()))??;
        self.packs.extend(bundle.map(Arc::new));
        self.object_bytes = limits.object_bytes;
        Ok(())
    }

    /// Takes in a pack that was made here and whose newest commit is `tip`.
    pub(super) async fn keep_pack(&mut self, pack: &[u8], tip: Oid) -> Result<(), Error> {
        let file = self.incoming()?;
        std::fs::write(file.path(), pack).map_err(Error::cache)?;
        self.add_pack(file, Limits::DEFAULT).await?;
        self.note_fetched(&BTreeSet::from([tip]), &Boundaries::default(), Some(1))
    }

    pub(super) fn note_fetched(
        &mut self,
        wants: &BTreeSet<Oid>,
        boundaries: &Boundaries,
        depth: Option<u32>,
    ) -> Result<(), Error> {
        for want in wants {
            self.state.tips.insert(want.to_string(), depth);
        }
        for id in &boundaries.unshallow {
            self.state.boundaries.remove(&id.to_string());
        }
        self.state.boundaries.extend(boundaries.shallow.iter().map(Oid::to_string));
        let bytes = serde_json::to_vec(&self.state).map_err(Error::cache)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(Error::cache)?;
        std::io::Write::write_all(&mut file, &bytes).map_err(Error::cache)?;
        file.persist(self.folder.join(STATE)).map_err(Error::cache)?;
        Ok(())
    }

    /// A reader with its own buffers; the packs are shared.
    pub fn reader(&self) -> Reader<'_> {
        self.reader_with(Buffers::default())
    }

    /// The same with the buffers of a reader of this store before: what it has unpacked is still at hand.
    pub fn reader_with(&self, buffers: Buffers) -> Reader<'_> {
        let Buffers { inflate, cache, buffer } = buffers;
        Reader {
            packs: &self.packs,
            loose: &self.loose,
            inflate,
            cache,
            buffer,
            object_bytes: self.object_bytes,
        }
    }

    pub fn commit(&self, id: Oid) -> Result<Commit, Error> {
        self.reader().commit(id)
    }

    pub fn tag(&self, id: Oid) -> Result<Option<Tag>, Error> {
        self.reader().tag(id)
    }
}

/// Stops the work on a pack when nobody waits for it any more.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is here already, for the deltas of a pack that builds on it.
struct Bases {
    packs: Vec<Arc<gix_pack::Bundle>>,
    inflate: RefCell<gix_zlib::Inflate>,
}

impl gix_object::Find for Bases {
    fn try_find<'a>(
        &self,
        id: &gix_hash::oid,
        buffer: &'a mut Vec<u8>,
    ) -> gix_error::Result<Option<gix_object::Data<'a>>> {
        let Some(pack) = self.packs.iter().rev().find(|pack| pack.index.lookup(id).is_some()) else {
            return Ok(None);
        };
        let mut inflate = self.inflate.borrow_mut();
        let found = pack.find(id, buffer, &mut inflate, &mut gix_pack::cache::Never)?;
        Ok(found.map(|(data, _)| data))
    }
}

fn index(
    pack: &tempfile::NamedTempFile,
    folder: &Path,
    here: Vec<Arc<gix_pack::Bundle>>,
    stop: &AtomicBool,
    limits: Limits,
) -> Result<Option<gix_pack::Bundle>, Error> {
    let garbage = |error: &dyn std::fmt::Display| Error::Garbage(format!("a bad pack: {error}"));
    let mut reader = BufReader::with_capacity(64 << 10, pack.reopen().map_err(Error::cache)?);
    // The first pack has nothing to build on, and is the largest: it is only passed through.
    let bases = (!here.is_empty()).then(|| Bases { packs: here, inflate: RefCell::default() });
    let outcome = gix_pack::Bundle::write_to_directory(
        &mut reader,
        Some(folder),
        &mut gix_utils::progress::Discard,
        stop,
        bases,
        SHA1,
        gix_pack::bundle::write::Options {
            thread_limit: Some(2),
            iteration_mode: gix_pack::data::input::Mode::Verify,
            index_version: gix_pack::index::Version::default(),
            alloc_limit_bytes: Some(limits.object_bytes),
            ..Default::default()
        },
    )
    .map_err(|error| garbage(&error))?;
    if let Some(keep) = &outcome.keep_path {
        let _ = std::fs::remove_file(keep);
    }
    outcome.to_bundle().transpose().map_err(|error| garbage(&error))
}

/// What a reader needs besides the packs, for those who cannot hold on to one.
pub struct Buffers {
    inflate: gix_zlib::Inflate,
    cache: gix_pack::cache::lru::MemoryCappedHashmap,
    buffer: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            inflate: gix_zlib::Inflate::default(),
            cache: gix_pack::cache::lru::MemoryCappedHashmap::new(DELTA_CACHE_BYTES),
            buffer: Vec::new(),
        }
    }
}

pub struct Reader<'a> {
    packs: &'a [Arc<gix_pack::Bundle>],
    loose: &'a [PathBuf],
    inflate: gix_zlib::Inflate,
    cache: gix_pack::cache::lru::MemoryCappedHashmap,
    buffer: Vec<u8>,
    object_bytes: usize,
}

impl Reader<'_> {
    pub fn into_buffers(self) -> Buffers {
        Buffers { inflate: self.inflate, cache: self.cache, buffer: self.buffer }
    }

    fn object(&mut self, id: Oid) -> Result<(gix_object::Kind, &[u8]), Error> {
        let Some(pack) = self.packs.iter().rev().find(|pack| pack.index.lookup(id.0).is_some()) else {
            return self.loose_object(id);
        };
        let found = pack
            .find(&id.0, &mut self.buffer, &mut self.inflate, &mut self.cache)
            .map_err(|error| Error::Garbage(format!("a bad object {id}: {error}")))?;
        let (data, _) = found.ok_or(Error::Missing(id))?;
        if data.data.len() > self.object_bytes {
            return Err(Error::TooLarge { what: "an object", limit: self.object_bytes as u64 });
        }
        Ok((data.kind, data.data))
    }

    /// An object in a file of its own: `kind size\0` and the content, deflated.
    fn loose_object(&mut self, id: Oid) -> Result<(gix_object::Kind, &[u8]), Error> {
        let garbage = || Error::Garbage(format!("a bad object {id}"));
        let name = id.to_string();
        let paths = self.loose.iter().map(|folder| folder.join(&name[..2]).join(&name[2..]));
        let file = paths.into_iter().find_map(|path| std::fs::File::open(path).ok());
        let file = file.ok_or(Error::Missing(id))?;
        self.buffer.clear();
        let limit = self.object_bytes as u64 + 64;
        let mut inflated = std::io::Read::take(flate2::read::ZlibDecoder::new(BufReader::new(file)), limit);
        std::io::Read::read_to_end(&mut inflated, &mut self.buffer).map_err(|_| garbage())?;
        if self.buffer.len() as u64 == limit {
            return Err(Error::TooLarge { what: "an object", limit: self.object_bytes as u64 });
        }
        let end = self.buffer.iter().position(|byte| *byte == 0).ok_or_else(garbage)?;
        let kind = self.buffer[..end].split(|byte| *byte == b' ').next().unwrap_or_default();
        let kind = gix_object::Kind::from_bytes(kind).map_err(|_| garbage())?;
        Ok((kind, &self.buffer[end + 1..]))
    }

    pub fn blob(&mut self, id: Oid) -> Result<&[u8], Error> {
        match self.object(id)? {
            (gix_object::Kind::Blob, data) => Ok(data),
            _ => Err(Error::WrongKind(id, "blob")),
        }
    }

    /// The entries of a tree: mode, name, id.
    pub(super) fn tree(&mut self, id: Oid) -> Result<Vec<(u32, String, Oid)>, Error> {
        let entries = self.raw_tree(id)?;
        let named =
            |entry: RawEntry| (entry.mode, String::from_utf8_lossy(&entry.name).into_owned(), entry.id);
        Ok(entries.into_iter().map(named).collect())
    }

    pub(super) fn raw_tree(&mut self, id: Oid) -> Result<Vec<RawEntry>, Error> {
        match self.object(id)? {
            (gix_object::Kind::Tree, data) => parse_tree(id, data),
            _ => Err(Error::WrongKind(id, "tree")),
        }
    }

    pub fn commit(&mut self, id: Oid) -> Result<Commit, Error> {
        let (gix_object::Kind::Commit, data) = self.object(id)? else {
            return Err(Error::WrongKind(id, "commit"));
        };
        parse_commit(id, data.to_vec())
    }

    /// The annotated tag `id`; `None` when it is a commit (a lightweight tag).
    pub fn tag(&mut self, id: Oid) -> Result<Option<Tag>, Error> {
        let data = match self.object(id)? {
            (gix_object::Kind::Tag, data) => data.to_vec(),
            (gix_object::Kind::Commit, _) => return Ok(None),
            _ => return Err(Error::WrongKind(id, "tag")),
        };
        let (headers, message) = split_headers(&data);
        let header =
            |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let once = |name: &str| headers.iter().filter(|(key, _)| key == name).count() <= 1;
        if !["object", "type", "tag"].into_iter().all(once) {
            return Err(Error::Garbage(format!("a malformed tag {id}")));
        }
        let target = header("object")
            .and_then(Oid::parse)
            .ok_or_else(|| Error::Garbage(format!("a malformed tag {id}")))?;
        let name = header("tag").unwrap_or_default().to_owned();
        Ok(Some(Tag { id, target, name, message, raw: data }))
    }
}

/// An entry of a tree as Git has it: the name need not be text.
pub(super) struct RawEntry {
    pub(super) mode: u32,
    pub(super) name: Vec<u8>,
    pub(super) id: Oid,
}

pub(super) fn parse_tree(id: Oid, mut data: &[u8]) -> Result<Vec<RawEntry>, Error> {
    let garbage = || Error::Garbage(format!("a malformed tree {id}"));
    let mut entries = Vec::new();
    while !data.is_empty() {
        let space = data.iter().position(|byte| *byte == b' ').ok_or_else(garbage)?;
        let end = data.iter().position(|byte| *byte == 0).filter(|end| *end > space).ok_or_else(garbage)?;
        let mode = std::str::from_utf8(&data[..space])
            .ok()
            .and_then(|text| u32::from_str_radix(text, 8).ok())
            .ok_or_else(garbage)?;
        let name = data[space + 1..end].to_vec();
        let id = data.get(end + 1..end + 21).ok_or_else(garbage)?;
        entries.push(RawEntry { mode, name, id: Oid(gix_hash::ObjectId::from_bytes_or_panic(id)) });
        data = &data[end + 21..];
    }
    Ok(entries)
}

/// Strict about what decides which files are checked out: a commit that reads one way here and another way elsewhere
/// would make its signature worthless.
pub(super) fn parse_commit(id: Oid, raw: Vec<u8>) -> Result<Commit, Error> {
    let garbage = || Error::Garbage(format!("a malformed commit {id}"));
    let (headers, message) = split_headers(&raw);
    let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let once = |name: &str| headers.iter().filter(|(key, _)| key == name).count() <= 1;
    let first_is_tree = headers.first().is_some_and(|(key, _)| key == "tree");
    if !first_is_tree || !["tree", "author", "committer", "gpgsig"].into_iter().all(once) {
        return Err(garbage());
    }
    let tree = header("tree").and_then(Oid::parse).ok_or_else(garbage)?;
    let parents = headers
        .iter()
        .filter(|(key, _)| key == "parent")
        .map(|(_, value)| Oid::parse(value).ok_or_else(garbage))
        .collect::<Result<_, _>>()?;
    let (author, _) = person(header("author").unwrap_or_default());
    let (committer, time) = person(header("committer").unwrap_or_default());
    Ok(Commit { id, tree, parents, author, committer, time, message, raw })
}

/// `key value` lines (continued by a leading space), a blank line, then the message.
fn split_headers(raw: &[u8]) -> (Vec<(String, String)>, String) {
    let text = String::from_utf8_lossy(raw);
    let (head, message) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut headers: Vec<(String, String)> = Vec::new();
    for line in head.lines() {
        match line.strip_prefix(' ') {
            Some(more) => {
                if let Some((_, value)) = headers.last_mut() {
                    value.push('\n');
                    value.push_str(more);
                }
            }
            None => {
                let (key, value) = line.split_once(' ').unwrap_or((line, ""));
                headers.push((key.to_owned(), value.to_owned()));
            }
        }
    }
    (headers, message.to_owned())
}

/// `Name <address> seconds zone` → name with address, seconds.
fn person(line: &str) -> (String, i64) {
    let Some((who, when)) = line.rsplit_once("> ") else {
        return (line.to_owned(), 0);
    };
    let seconds = when.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default();
    (format!("{who}>"), seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_may_span_lines() {
        let raw =
            b"tree abc\nauthor A <a@x> 1 +0000\ngpgsig -----BEGIN\n line\n -----END\n\nsubject\n\nbody\n";
        let (headers, message) = split_headers(raw);
        assert_eq!(headers[2], ("gpgsig".to_owned(), "-----BEGIN\nline\n-----END".to_owned()));
        assert_eq!(message, "subject\n\nbody\n");
    }

    #[test]
    fn a_person_has_a_time() {
        assert_eq!(person("Ann Lee <a@x> 1700000000 +0100"), ("Ann Lee <a@x>".to_owned(), 1_700_000_000));
        assert_eq!(person("nonsense"), ("nonsense".to_owned(), 0));
    }
}
