//! Whether encrypted files are as they were when they were encrypted. Built objects have other bytes than their
//! files, so this looks at the files that a build read.

use std::collections::BTreeSet;

use file_tree::{Files, Question, TreePath};
use sha2::{Digest, Sha256};
use sops::{Encrypted, Mac};

use super::{Keyring, LARGEST, format_of, is_encrypted};

/// What the message authentication code of a file says.
#[derive(Clone, Debug)]
pub struct FileMac {
    pub path: TreePath,
    /// SHA-256 of the encrypted file.
    pub digest: [u8; 32],
    pub mac: Mac,
}

/// Looks at every encrypted file that was read, except those whose digests are `known`. What does not open is not
/// judged: if it mattered, the build has failed.
pub(crate) fn look_at_macs(
    files: &dyn Files,
    questions: &BTreeSet<Question>,
    keys: &Keyring,
    known: &BTreeSet<[u8; 32]>,
) -> Vec<FileMac> {
    let read = questions.iter().filter_map(|question| match question {
        Question::Read(path) => Some(path),
        Question::List(_) | Question::Kind(_) => None,
    });
    read.filter_map(|path| {
        let bytes = files.read(path).ok()?;
        let format = format_of(path.as_str());
        if bytes.len() > LARGEST || !is_encrypted(&bytes, format) {
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        if known.contains(&digest) {
            return None;
        }
        let encrypted = Encrypted::parse(&bytes, format).ok()?;
        let mac = keys.open(&encrypted).ok()?.mac();
        Some(FileMac { path: path.clone(), digest, mac })
    })
    .collect()
}
