//! Writes a tarball so that the next one is cheap: a gzip stream of many members, cut where the names say so.
//!
//! Where a chunk ends depends on names alone, so a changed file changes one chunk; all others are copied from the
//! tarball before as they are. The bytes depend only on the files, not on what was there before: the same files give
//! the same digest. Layout within the tar is source-controller's: the root first, every folder before its files,
//! owner 0, time 0, modes 0750, 0600 and 0700.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use file_tree::TreePath;
use flate2::Compression;
use flate2::write::GzEncoder;
use flux_api::digest::{Algorithm, Digest};
use sha2::{Digest as _, Sha256};

use super::digest::Hashing;
use super::index::{Chunk, Hash, Index, IndexedFile};

/// One name in so many begins a chunk.
const CHUNK_BEGINS: u64 = 32;
const MOST_FILES: usize = 256;
/// What is held in memory of files that must be read to be named.
const MOST_UNNAMED: usize = 8 << 20;
/// A member is inflated as a whole to read one file of it.
const MEMBER: usize = 1 << 20;
const COPY: usize = 1 << 18;

/// A file, and a name for its contents: equal names, equal bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub path: TreePath,
    pub executable: bool,
    pub id: Vec<u8>,
}

/// A tarball and its index, to copy from.
pub struct Previous {
    pub index: Index,
    pub tarball: File,
}

/// Reads a listed file.
pub type Read<'a> = dyn FnMut(&Listed) -> io::Result<Vec<u8>> + 'a;

pub struct PackWriter {
    out: Hashing<BufWriter<File>>,
    level: Compression,
    previous: Option<Previous>,
    /// Where each chunk of the tarball before begins among its files.
    known: std::collections::HashMap<Hash, (usize, usize)>,
    folder: TreePath,
    chunk: OpenChunk,
    member: Member,
    index: Index,
}

/// The chunk that is being filled.
#[derive(Default)]
struct OpenChunk {
    at: u64,
    files: usize,
    key: Sha256,
    /// Files that are written once it is known whether the tarball before has them.
    pending: Vec<Pending>,
    unnamed: usize,
}

struct Pending {
    listed: Listed,
    /// Folders that are entered with this file.
    folders: Vec<TreePath>,
    bytes: Option<Vec<u8>>,
}

impl PackWriter {
    pub fn new(
        out: File,
        algorithm: Algorithm,
        level: Compression,
        previous: Option<Previous>,
    ) -> io::Result<Self> {
        let mut known = std::collections::HashMap::new();
        let mut first = 0;
        for (number, chunk) in previous.iter().flat_map(|previous| &previous.index.chunks).enumerate() {
            known.insert(chunk.key, (number, first));
            first += chunk.files as usize;
        }
        let mut writer = Self {
            out: Hashing::new(BufWriter::with_capacity(COPY, out), algorithm),
            level,
            previous,
            known,
            folder: TreePath::root(),
            chunk: OpenChunk::default(),
            member: Member::new(),
            index: Index::default(),
        };
        let mut root = Member::new();
        root.folder(".")?;
        writer.out.write_all(&compress(&root.tar, level)?)?;
        Ok(writer)
    }

    /// Adds a file whose contents are read only if they are not in the tarball before. Files come in lexical order.
    pub fn add(&mut self, listed: Listed, read: &mut Read<'_>) -> io::Result<()> {
        self.begin(&listed.path, read)?;
        let folders = self.enter(&listed);
        self.chunk.pending.push(Pending { listed, folders, bytes: None });
        Ok(())
    }

    /// Adds a file that has a name and is here already.
    pub fn add_named(&mut self, listed: Listed, bytes: &[u8]) -> io::Result<()> {
        self.begin(&listed.path, &mut nothing_to_read)?;
        self.push(listed, bytes)
    }

    /// Adds a file that has no name but its digest.
    pub fn add_bytes(&mut self, path: &TreePath, executable: bool, bytes: &[u8]) -> io::Result<()> {
        if self.chunk.unnamed >= MOST_UNNAMED {
            self.end_chunk(&mut nothing_to_read)?;
        }
        self.begin(path, &mut nothing_to_read)?;
        self.chunk.unnamed += bytes.len();
        let id = Sha256::digest(bytes).to_vec();
        self.push(Listed { path: path.clone(), executable, id }, bytes)
    }

    /// Without a tarball before there is nothing to wait for.
    fn push(&mut self, listed: Listed, bytes: &[u8]) -> io::Result<()> {
        let folders = self.enter(&listed);
        if self.previous.is_none() {
            return self.write(listed, &folders, bytes);
        }
        self.chunk.pending.push(Pending { listed, folders, bytes: Some(bytes.to_vec()) });
        Ok(())
    }

    /// Ends the tarball. The index still lacks its digest where only the caller knows it.
    pub fn finish(mut self, read: &mut Read<'_>) -> io::Result<(File, Digest, u64, Index)> {
        self.end_chunk(read)?;
        // Two empty blocks end an archive.
        self.out.write_all(&compress(&[0; 1024], self.level)?)?;
        let (out, digest, size) = self.out.into_parts();
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.index.digest = digest.as_str().to_owned();
        Ok((file, digest, size, self.index))
    }

    /// Ends the chunk before, if this name begins one.
    fn begin(&mut self, path: &TreePath, read: &mut Read<'_>) -> io::Result<()> {
        if self.chunk.files >= MOST_FILES || begins_chunk(path) {
            self.end_chunk(read)?;
        }
        if self.chunk.files == 0 {
            self.chunk.at = self.out.size();
        }
        self.chunk.files += 1;
        Ok(())
    }

    /// Notes the file in the chunk's key; says which folders come before it.
    fn enter(&mut self, listed: &Listed) -> Vec<TreePath> {
        let folder = listed.path.parent().unwrap_or_default();
        let mut missing = Vec::new();
        let mut at = folder.clone();
        while !self.folder.is_within(&at) {
            missing.push(at.clone());
            at = at.parent().unwrap_or_default();
        }
        missing.reverse();
        self.folder = folder;
        self.chunk.note(&missing, listed);
        missing
    }

    fn end_chunk(&mut self, read: &mut Read<'_>) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.files == 0 {
            return Ok(());
        }
        let key = chunk.key.finalize().into();
        match self.known.get(&key).copied() {
            Some((number, first)) => self.copy(number, first)?,
            None => {
                for pending in chunk.pending {
                    let bytes = match pending.bytes {
                        Some(bytes) => bytes,
                        None => read(&pending.listed)?,
                    };
                    self.write(pending.listed, &pending.folders, &bytes)?;
                }
                self.end_member()?;
            }
        }
        let length = self.out.size() - chunk.at;
        let files = u32::try_from(chunk.files).unwrap_or(u32::MAX);
        self.index.chunks.push(Chunk { key, offset: chunk.at, length, files });
        Ok(())
    }

    /// Takes a chunk over from the tarball before, compressed as it is.
    fn copy(&mut self, number: usize, first: usize) -> io::Result<()> {
        let Some(previous) = &self.previous else { return Ok(()) };
        let Some(chunk) = previous.index.chunks.get(number).cloned() else { return Ok(()) };
        let to = self.out.size();
        let mut buffer = vec![0; COPY.min(usize::try_from(chunk.length).unwrap_or(COPY))];
        let mut copied = 0;
        while copied < chunk.length {
            let part = usize::try_from(chunk.length - copied).unwrap_or(COPY).min(buffer.len());
            previous.tarball.read_exact_at(&mut buffer[..part], chunk.offset + copied)?;
            self.out.write_all(&buffer[..part])?;
            copied += part as u64;
        }
        let files = previous.index.files.iter().skip(first).take(chunk.files as usize);
        for file in files {
            let member = file.member - chunk.offset + to;
            self.index.files.push(IndexedFile { member, ..file.clone() });
        }
        Ok(())
    }

    fn write(&mut self, listed: Listed, folders: &[TreePath], bytes: &[u8]) -> io::Result<()> {
        for folder in folders {
            self.member.folder(folder.as_str())?;
        }
        let Listed { path, executable, .. } = listed;
        let offset = self.member.file(&path, executable, bytes)?;
        let (member, hash) = (self.out.size(), Sha256::digest(bytes).into());
        let length = bytes.len() as u64;
        self.index.files.push(IndexedFile { path, executable, hash, member, offset, length });
        if self.member.tar.len() >= MEMBER {
            self.end_member()?;
        }
        Ok(())
    }

    fn end_member(&mut self) -> io::Result<()> {
        if !self.member.tar.is_empty() {
            self.out.write_all(&compress(&self.member.tar, self.level)?)?;
            self.member.tar.clear();
        }
        Ok(())
    }
}

impl OpenChunk {
    fn note(&mut self, folders: &[TreePath], listed: &Listed) {
        let mut part = |kind: u8, bytes: &[u8]| {
            self.key.update([kind]);
            self.key.update((bytes.len() as u64).to_le_bytes());
            self.key.update(bytes);
        };
        for folder in folders {
            part(0, folder.as_str().as_bytes());
        }
        part(if listed.executable { 2 } else { 1 }, listed.path.as_str().as_bytes());
        part(3, &listed.id);
    }
}

/// For writers whose files are all here.
fn nothing_to_read(listed: &Listed) -> io::Result<Vec<u8>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} cannot be read by name", listed.path)))
}

/// FNV-1a: all that matters is that it never changes.
fn begins_chunk(path: &TreePath) -> bool {
    let hash = path.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 32).is_multiple_of(CHUNK_BEGINS)
}

fn compress(bytes: &[u8], level: Compression) -> io::Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::with_capacity(bytes.len() / 4 + 64), level);
    out.write_all(bytes)?;
    out.finish()
}

/// Tar entries, without the end of an archive.
struct Member {
    tar: Vec<u8>,
}

impl Member {
    fn new() -> Self {
        Self { tar: Vec::new() }
    }

    fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, tar::EntryType::Directory, 0o750, &[])
    }

    /// Says where the contents begin.
    fn file(&mut self, path: &TreePath, executable: bool, bytes: &[u8]) -> io::Result<u64> {
        let mode = if executable { 0o700 } else { 0o600 };
        self.entry(path.as_str(), tar::EntryType::Regular, mode, bytes)?;
        Ok((self.tar.len() - bytes.len().next_multiple_of(512)) as u64)
    }

    fn entry(&mut self, name: &str, kind: tar::EntryType, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        let mut builder = tar::Builder::new(std::mem::take(&mut self.tar));
        builder.append_data(&mut header, name, bytes)?;
        // Ending the builder would write the end of the archive; what stands before it is ours.
        let end = builder.get_ref().len();
        self.tar = builder.into_inner()?;
        self.tar.truncate(end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(files: &[(String, String)], previous: Option<Previous>) -> (File, Digest, Index, usize) {
        let file = tempfile::tempfile().unwrap();
        let level = Compression::default();
        let mut writer = PackWriter::new(file, Algorithm::Sha256, level, previous).unwrap();
        let mut reads = 0;
        let mut read = |listed: &Listed| {
            reads += 1;
            let found = files.iter().find(|(path, _)| *path == listed.path.as_str()).unwrap();
            Ok(found.1.clone().into_bytes())
        };
        for (path, text) in files {
            let path = TreePath::parse(path).unwrap();
            let id = Sha256::digest(text.as_bytes()).to_vec();
            writer.add(Listed { path, executable: false, id }, &mut read).unwrap();
        }
        let (file, digest, _, index) = writer.finish(&mut read).unwrap();
        (file, digest, index, reads)
    }

    fn files(count: usize) -> Vec<(String, String)> {
        (0..count)
            .map(|n| (format!("apps/a{:03}/f{:03}.yaml", n / 10, n % 10), format!("n: {n}\n")))
            .collect()
    }

    #[test]
    fn a_changed_file_costs_its_chunk_and_the_bytes_do_not_tell() {
        let mut files = files(2000);
        let (tarball, before, index, reads) = pack(&files, None);
        assert_eq!(reads, 2000);
        assert!(index.chunks.len() > 20);
        files[777].1 = "n: changed\n".to_owned();
        let (_, after, copied, reads) = pack(&files, Some(Previous { index, tarball }));
        assert!(reads <= MOST_FILES, "{reads}");
        assert_ne!(before, after);
        let (_, from_nothing, fresh, _) = pack(&files, None);
        assert_eq!((after, copied), (from_nothing, fresh));
    }

    #[test]
    fn any_reader_unpacks_it() {
        use std::io::{Read as _, Seek as _};
        let files = files(300);
        let (mut tarball, digest, _, _) = pack(&files, None);
        tarball.rewind().unwrap();
        assert_eq!(super::super::digest::of(Algorithm::Sha256, &tarball).unwrap(), digest);
        tarball.rewind().unwrap();
        let mut seen = Vec::new();
        let mut archive = tar::Archive::new(flate2::read::MultiGzDecoder::new(tarball));
        let mut folders = 0;
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let (mode, kind) = (entry.header().mode().unwrap(), entry.header().entry_type());
            if kind == tar::EntryType::Directory {
                assert_eq!(mode, 0o750);
                folders += 1;
                continue;
            }
            assert_eq!(mode, 0o600);
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            seen.push((name, text));
        }
        assert_eq!(seen, files);
        assert_eq!(folders, 1 + 1 + 30, "the root, apps, and each of its folders");
    }
}
