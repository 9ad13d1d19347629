//! What stands where in a tarball of ours: an index beside it, so that single files are read without unpacking it
//! and the next tarball can copy what did not change.
//!
//! ```text
//! tarball   ┌ . ┐┌─ chunk 0 ─────────────┐┌─ chunk 1 ──┐ … ┌ end ┐
//!                │ member │ member │ …    │                        a member is a gzip stream of tar entries
//! index     chunks: key, place, size, number of files
//!           files:  path, mode, digest, name of the contents, member, place within it
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use file_tree::TreePath;
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"fluxidx1";
const LARGEST: u64 = 2 << 30;

pub type Hash = [u8; 32];

/// A run of files that was compressed on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Digest of the names, modes and contents in it: the same key, the same bytes.
    pub key: Hash,
    pub offset: u64,
    pub length: u64,
    pub files: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedFile {
    pub path: TreePath,
    pub executable: bool,
    pub hash: Hash,
    /// Where the file's member begins in the tarball.
    pub member: u64,
    /// Where the contents begin in the member when it is inflated.
    pub offset: u64,
    pub length: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The digest of the tarball.
    pub digest: String,
    pub chunks: Vec<Chunk>,
    /// In the order of the chunks.
    pub files: Vec<IndexedFile>,
}

impl Index {
    pub fn write(&self, file: File) -> io::Result<()> {
        let mut out = Summed { out: BufWriter::new(file), sum: Sha256::new() };
        out.write_all(MAGIC)?;
        text(&mut out, &self.digest)?;
        number(&mut out, self.chunks.len() as u64)?;
        for chunk in &self.chunks {
            out.write_all(&chunk.key)?;
            number(&mut out, chunk.offset)?;
            number(&mut out, chunk.length)?;
            number(&mut out, u64::from(chunk.files))?;
        }
        number(&mut out, self.files.len() as u64)?;
        for file in &self.files {
            text(&mut out, file.path.as_str())?;
            out.write_all(&[u8::from(file.executable)])?;
            out.write_all(&file.hash)?;
            number(&mut out, file.member)?;
            number(&mut out, file.offset)?;
            number(&mut out, file.length)?;
        }
        let sum = out.sum.finalize();
        out.out.write_all(&sum)?;
        out.out.flush()
    }

    /// Reads an index; damage of any kind is an error of kind `InvalidData`.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        if size > LARGEST {
            return Err(damaged());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.take(LARGEST).read_to_end(&mut bytes)?;
        let split = bytes.len().checked_sub(32).ok_or_else(damaged)?;
        let (body, sum) = bytes.split_at(split);
        if Sha256::digest(body).as_slice() != sum {
            return Err(damaged());
        }
        parse(body).ok_or_else(damaged)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "damaged artifact index")
}

fn parse(body: &[u8]) -> Option<Index> {
    let mut at = Cursor(body);
    if at.take(8)? != MAGIC {
        return None;
    }
    let digest = at.text()?.to_owned();
    let mut chunks = Vec::new();
    for _ in 0..at.number()? {
        let key = at.hash()?;
        let (offset, length, files) = (at.number()?, at.number()?, at.number()?);
        chunks.push(Chunk { key, offset, length, files: u32::try_from(files).ok()? });
    }
    let mut files = Vec::new();
    for _ in 0..at.number()? {
        let path = TreePath::parse(at.text()?).ok()?;
        let executable = at.take(1)? == [1];
        let hash = at.hash()?;
        let (member, offset, length) = (at.number()?, at.number()?, at.number()?);
        files.push(IndexedFile { path, executable, hash, member, offset, length });
    }
    at.0.is_empty().then_some(Index { digest, chunks, files })
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn hash(&mut self) -> Option<Hash> {
        self.take(32)?.try_into().ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(length)?).ok()
    }
}

struct Summed<W> {
    out: W,
    sum: Sha256,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn number(out: &mut impl Write, number: u64) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

fn text(out: &mut impl Write, text: &str) -> io::Result<()> {
    number(out, text.len() as u64)?;
    out.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_comes_back_and_damage_is_noticed() {
        let index = Index {
            digest: "sha256:00".to_owned(),
            chunks: vec![Chunk { key: [7; 32], offset: 1, length: 2, files: 1 }],
            files: vec![IndexedFile {
                path: TreePath::parse("a/b").unwrap(),
                executable: true,
                hash: [1; 32],
                member: 3,
                offset: 4,
                length: 5,
            }],
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        index.write(file.reopen().unwrap()).unwrap();
        assert_eq!(Index::read(file.path()).unwrap(), index);
        let bytes = std::fs::read(file.path()).unwrap();
        for at in [0, 9, 20, bytes.len() / 2, bytes.len() - 1] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            std::fs::write(file.path(), bytes).unwrap();
            assert_eq!(Index::read(file.path()).unwrap_err().kind(), io::ErrorKind::InvalidData, "{at}");
        }
        for length in [0, 8, bytes.len() - 1] {
            std::fs::write(file.path(), &bytes[..length]).unwrap();
            assert_eq!(Index::read(file.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
