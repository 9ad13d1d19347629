//! Artifacts as tarballs: written so that the same files give the same bytes, read without trusting a name.

use std::io::{self, Read, Write};

use file_tree::TreePath;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// One file of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    pub path: TreePath,
    pub executable: bool,
    pub bytes: Vec<u8>,
}

/// Writes a gzipped tar as source-controller lays it out: the root first, then every folder and file in
/// lexical order; owner 0, time 0, modes 0750, 0600 and 0700.
pub struct Writer<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    folder: TreePath,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> io::Result<Self> {
        let mut tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
        tar.mode(tar::HeaderMode::Deterministic);
        let mut writer = Self { tar, folder: TreePath::root() };
        writer.entry(".", tar::EntryType::Directory, 0o750, &[])?;
        Ok(writer)
    }

    /// Adds a file; the folders on the way are added when they are first seen. Files come in lexical order.
    pub fn file(&mut self, path: &TreePath, executable: bool, bytes: &[u8]) -> io::Result<()> {
        let folder = path.parent().unwrap_or_default();
        self.enter(&folder)?;
        let mode = if executable { 0o700 } else { 0o600 };
        self.entry(path.as_str(), tar::EntryType::Regular, mode, bytes)
    }

    pub fn finish(self) -> io::Result<W> {
        self.tar.into_inner()?.finish()
    }

    fn enter(&mut self, folder: &TreePath) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = folder.clone();
        while !self.folder.is_within(&at) {
            missing.push(at.clone());
            at = at.parent().unwrap_or_default();
        }
        for folder in missing.into_iter().rev() {
            self.entry(folder.as_str(), tar::EntryType::Directory, 0o750, &[])?;
        }
        self.folder = folder.clone();
        Ok(())
    }

    fn entry(&mut self, name: &str, kind: tar::EntryType, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        self.tar.append_data(&mut header, name, bytes)
    }
}

/// Bounds on what is unpacked.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: u64,
    pub files: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("archive is damaged: {0}")]
    Damaged(#[from] io::Error),
    #[error("archive names '{0}', which lies outside of it")]
    Escapes(String),
    #[error("archive holds more than {0} bytes")]
    TooManyBytes(u64),
    #[error("archive holds more than {0} files")]
    TooManyFiles(usize),
}

/// Unpacks regular files; links and devices are left out, as Flux leaves them out.
pub fn unpack(tarball: impl Read, limits: Limits, mut each: impl FnMut(ArchiveFile)) -> Result<(), Error> {
    let bounded = MultiGzDecoder::new(tarball).take(limits.bytes.saturating_mul(2).max(1 << 20));
    let mut archive = tar::Archive::new(bounded);
    let (mut bytes_left, mut files) = (limits.bytes, 0);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.header().entry_type() != tar::EntryType::Regular {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let path = safe_path(&name).ok_or(Error::Escapes(name))?;
        if entry.size() > bytes_left {
            return Err(Error::TooManyBytes(limits.bytes));
        }
        bytes_left -= entry.size();
        files += 1;
        if files > limits.files {
            return Err(Error::TooManyFiles(limits.files));
        }
        let executable = entry.header().mode()? & 0o111 != 0;
        let mut bytes = Vec::with_capacity(entry.size().min(1 << 20) as usize);
        entry.read_to_end(&mut bytes)?;
        each(ArchiveFile { path, executable, bytes });
    }
    Ok(())
}

/// A relative name without `..`: a name that would need resolving is refused, not repaired.
fn safe_path(name: &str) -> Option<TreePath> {
    if name.starts_with('/') || name.contains(['\\', '\0']) || name.split('/').any(|part| part == "..") {
        return None;
    }
    TreePath::parse(name).ok().filter(|path| !path.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bytes: 1000, files: 10 };

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    fn pack(files: &[(&str, bool, &str)]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for (name, executable, text) in files {
            writer.file(&path(name), *executable, text.as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    fn names(tarball: &[u8]) -> Vec<(String, u32)> {
        tar::Archive::new(MultiGzDecoder::new(tarball))
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                (name, entry.header().mode().unwrap())
            })
            .collect()
    }

    fn hostile(name: &str, kind: tar::EntryType) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(2);
        header.set_mode(0o644);
        header.set_cksum();
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        tar.append(&header, &b"hi"[..]).unwrap();
        tar.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn folders_stand_before_their_files_and_modes_are_fixed() {
        let tarball = pack(&[("a/b/run.sh", true, "x"), ("a/c.yaml", false, "y"), ("d.yaml", false, "z")]);
        assert_eq!(
            names(&tarball),
            [
                (".".to_owned(), 0o750),
                ("a".to_owned(), 0o750),
                ("a/b".to_owned(), 0o750),
                ("a/b/run.sh".to_owned(), 0o700),
                ("a/c.yaml".to_owned(), 0o600),
                ("d.yaml".to_owned(), 0o600),
            ]
        );
    }

    #[test]
    fn the_same_files_give_the_same_bytes_and_come_back() {
        let files = [("a/x.yaml", false, "1"), ("b/y.sh", true, "2")];
        assert_eq!(pack(&files), pack(&files));
        let mut back = Vec::new();
        unpack(&pack(&files)[..], LIMITS, |file| back.push(file)).unwrap();
        assert_eq!(back.len(), 2);
        assert_eq!(back[1], ArchiveFile { path: path("b/y.sh"), executable: true, bytes: b"2".to_vec() });
    }

    #[test]
    fn long_names_survive() {
        let long = format!("{}/x.yaml", "deep".repeat(40));
        let mut back = Vec::new();
        unpack(&pack(&[(&long, false, "1")])[..], LIMITS, |file| back.push(file.path)).unwrap();
        assert_eq!(back, [path(&long)]);
    }

    #[test]
    fn names_that_leave_the_archive_are_refused() {
        for name in ["../etc/passwd", "/etc/passwd", "a/../../b", "a\\..\\b"] {
            let result = unpack(&hostile(name, tar::EntryType::Regular)[..], LIMITS, |_| {});
            assert!(matches!(result, Err(Error::Escapes(_))), "{name}");
        }
    }

    #[test]
    fn links_and_devices_are_left_out() {
        for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Char] {
            let mut seen = 0;
            unpack(&hostile("a", kind)[..], LIMITS, |_| seen += 1).unwrap();
            assert_eq!(seen, 0);
        }
    }

    #[test]
    fn bombs_end_in_an_error() {
        let big = "0".repeat(2000);
        assert!(matches!(
            unpack(&pack(&[("a", false, &big)])[..], LIMITS, |_| {}),
            Err(Error::TooManyBytes(1000))
        ));
        let many: Vec<(String, bool, String)> =
            (0..11).map(|n| (format!("f{n:02}"), false, String::new())).collect();
        let many: Vec<(&str, bool, &str)> =
            many.iter().map(|(n, e, t)| (n.as_str(), *e, t.as_str())).collect();
        assert!(matches!(unpack(&pack(&many)[..], LIMITS, |_| {}), Err(Error::TooManyFiles(10))));
        assert!(unpack(&b"not gzip"[..], LIMITS, |_| {}).is_err());
    }
}
