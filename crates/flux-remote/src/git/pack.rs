//! Objects that do not exist yet, and the pack that carries them.
//!
//! Objects go in whole, without deltas: a push holds the few files that changed.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest, Sha1};

use super::{Error, Oid};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Commit,
    Tree,
    Blob,
}

impl ObjectKind {
    fn name(self) -> &'static str {
        match self {
            ObjectKind::Commit => "commit",
            ObjectKind::Tree => "tree",
            ObjectKind::Blob => "blob",
        }
    }

    fn code(self) -> u8 {
        match self {
            ObjectKind::Commit => 1,
            ObjectKind::Tree => 2,
            ObjectKind::Blob => 3,
        }
    }
}

/// Objects made here, by id.
#[derive(Default)]
pub(super) struct NewObjects(BTreeMap<Oid, (ObjectKind, Vec<u8>)>);

impl NewObjects {
    pub(super) fn add(&mut self, kind: ObjectKind, data: Vec<u8>) -> Oid {
        let id = id_of(kind, &data);
        self.0.insert(id, (kind, data));
        id
    }

    pub(super) fn get(&self, id: Oid) -> Option<(ObjectKind, &[u8])> {
        self.0.get(&id).map(|(kind, data)| (*kind, data.as_slice()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// All of them as a pack, version 2.
    pub(super) fn pack(&self) -> Result<Vec<u8>, Error> {
        let count = u32::try_from(self.0.len())
            .map_err(|_| Error::TooLarge { what: "the number of new objects", limit: u64::from(u32::MAX) })?;
        let mut pack = b"PACK\0\0\0\x02".to_vec();
        pack.extend_from_slice(&count.to_be_bytes());
        for (kind, data) in self.0.values() {
            entry_header(&mut pack, *kind, data.len());
            let mut encoder = ZlibEncoder::new(&mut pack, Compression::default());
            encoder.write_all(data).and_then(|()| encoder.finish().map(|_| ())).map_err(Error::cache)?;
        }
        let checksum = Sha1::digest(&pack);
        pack.extend_from_slice(&checksum);
        Ok(pack)
    }
}

/// Kind and four bits of the size in the first byte, then seven bits in each.
fn entry_header(pack: &mut Vec<u8>, kind: ObjectKind, size: usize) {
    let mut byte = (kind.code() << 4) | (size & 0x0f) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        pack.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    pack.push(byte);
}

fn id_of(kind: ObjectKind, data: &[u8]) -> Oid {
    let mut hash = Sha1::new();
    hash.update(format!("{} {}\0", kind.name(), data.len()));
    hash.update(data);
    let digest: [u8; 20] = hash.finalize().into();
    Oid(gix_hash::ObjectId::from(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        assert_eq!(id_of(ObjectKind::Blob, b"").to_string(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(id_of(ObjectKind::Tree, b"").to_string(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        assert_eq!(
            id_of(ObjectKind::Blob, b"hello\n").to_string(),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
    }

    #[test]
    fn sizes_are_written_as_git_reads_them() {
        let header = |size| {
            let mut bytes = Vec::new();
            entry_header(&mut bytes, ObjectKind::Blob, size);
            bytes
        };
        assert_eq!(header(0), [0x30]);
        assert_eq!(header(15), [0x3f]);
        assert_eq!(header(16), [0xb0, 0x01]);
        assert_eq!(header(3000), [0xb8, 0xbb, 0x01]);
    }
}
