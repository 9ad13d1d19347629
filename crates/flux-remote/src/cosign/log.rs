//! Transparency logs: what one says of a signature, and why that can be believed.
//!
//! A log of the first generation promises to take an entry in and signs the time; one of the second generation gives no time.
//! Either may prove that the entry is in the tree whose head it signed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::TrustRoot;
use super::trust_root::Log;

/// What was signed.
pub(super) struct Signed<'a> {
    /// The bytes that the signature is over.
    pub(super) message: &'a [u8],
    pub(super) signature: &'a [u8],
    /// What a log of the first generation has the hash of.
    pub(super) payload: &'a [u8],
}

/// What a transparency log says of a signature.
pub(super) struct LogEntry {
    /// Base64.
    pub(super) body: String,
    /// Zero where the log gives none.
    pub(super) integrated_time: i64,
    pub(super) log_index: i64,
    pub(super) log_id: Vec<u8>,
    /// The log's word for all of the above.
    pub(super) promise: Option<Vec<u8>>,
    pub(super) proof: Option<Proof>,
}

/// The way from an entry to the head of a tree.
pub(super) struct Proof {
    pub(super) index: u64,
    pub(super) hashes: Vec<Vec<u8>>,
    /// The head, signed.
    pub(super) checkpoint: String,
}

impl LogEntry {
    /// Reads the annotation that stands beside a signature under a tag.
    pub(super) fn from_annotation(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Annotation {
            signed_entry_timestamp: String,
            payload: Payload,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Payload {
            body: String,
            integrated_time: i64,
            log_index: i64,
            #[serde(rename = "logID")]
            log_id: String,
        }
        let annotation: Annotation = serde_json::from_str(text)
            .map_err(|error| format!("a log entry that cannot be read: {error}"))?;
        let promise = STANDARD.decode(&annotation.signed_entry_timestamp);
        Ok(Self {
            body: annotation.payload.body,
            integrated_time: annotation.payload.integrated_time,
            log_index: annotation.payload.log_index,
            log_id: from_hex(&annotation.payload.log_id).ok_or("a log id that is no hexadecimal number")?,
            promise: Some(promise.map_err(|_| "a signed time that is no base64")?),
            proof: None,
        })
    }

    pub(super) fn has_time(&self) -> bool {
        self.integrated_time != 0
    }

    /// That a log of the root has the entry, and when it took it in, if it says so. `None` for a log that is not known.
    pub(super) fn check(&self, root: &TrustRoot) -> Option<Result<Option<Timestamp>, String>> {
        let mut logs = root.logs.iter().filter(|log| log.id == self.log_id).peekable();
        logs.peek()?;
        let mut last = Err("the entry is not by a transparency log of the trusted root".to_owned());
        for log in logs {
            last = self.check_with(log);
            if last.is_ok() {
                break;
            }
        }
        Some(last)
    }

    fn check_with(&self, log: &Log) -> Result<Option<Timestamp>, String> {
        if self.promise.is_none() && self.proof.is_none() {
            return Err("the entry of a transparency log holds neither a promise nor a proof".to_owned());
        }
        let time = self.promise.as_ref().map(|promise| self.promised_time(log, promise)).transpose()?;
        if let Some(proof) = &self.proof {
            let body = STANDARD.decode(&self.body).map_err(|_| "a log entry that is no base64")?;
            proof.check(log, &body)?;
        }
        Ok(time)
    }

    fn promised_time(&self, log: &Log, promise: &[u8]) -> Result<Timestamp, String> {
        let time =
            Timestamp::from_second(self.integrated_time).map_err(|_| "a log entry of no known time")?;
        let hex: String = self.log_id.iter().map(|byte| format!("{byte:02x}")).collect();
        // Keys in order and no spaces: what the log signed.
        let signed = json!({
            "body": self.body, "integratedTime": self.integrated_time, "logID": hex, "logIndex": self.log_index,
        })
        .to_string();
        if !log.valid.holds(time) || !log.key.verifies(signed.as_bytes(), promise) {
            return Err("the entry is not by a transparency log of the trusted root".to_owned());
        }
        Ok(time)
    }

    /// The entry has to be about this signature: otherwise any entry would do for any signature.
    pub(super) fn is_about(&self, signed: &Signed<'_>, leaf: &[u8]) -> Result<(), String> {
        let body = STANDARD.decode(&self.body).map_err(|_| "a log entry that is no base64")?;
        let body: Json = serde_json::from_slice(&body).map_err(|_| "a log entry that is no JSON")?;
        let text = |pointer: &str| body.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
        let second = "/spec/hashedRekordV002";
        let found = match (text("/kind"), text("/apiVersion")) {
            ("hashedrekord", "0.0.2") => {
                let field = |name: &str| text(&format!("{second}/{name}"));
                if self.proof.is_none() {
                    return Err("rekor v2 entries must have an inclusion proof".to_owned());
                }
                Found {
                    digest: STANDARD.decode(field("data/digest")).ok(),
                    expected: hashed(field("data/algorithm"), signed.message),
                    signature: field("signature/content").to_owned(),
                    certificate: STANDARD.decode(field("signature/verifier/x509Certificate/rawBytes")).ok(),
                }
            }
            ("hashedrekord", _) => Found {
                digest: from_hex(text("/spec/data/hash/value")),
                expected: hashed("SHA2_256", signed.payload),
                signature: text("/spec/signature/content").to_owned(),
                certificate: from_pem(text("/spec/signature/publicKey/content")),
            },
            ("dsse", _) => Found {
                digest: from_hex(text("/spec/payloadHash/value")),
                expected: hashed("SHA2_256", signed.payload),
                signature: text("/spec/signatures/0/signature").to_owned(),
                certificate: from_pem(text("/spec/signatures/0/verifier")),
            },
            (other, _) => return Err(format!("log entries of the kind '{other}' are not supported")),
        };
        if !found.is(signed.signature, leaf) {
            return Err("the log entry is about another signature".to_owned());
        }
        Ok(())
    }
}

/// What an entry is about.
struct Found {
    digest: Option<Vec<u8>>,
    expected: Option<Vec<u8>>,
    signature: String,
    certificate: Option<Vec<u8>>,
}

impl Found {
    fn is(&self, signature: &[u8], leaf: &[u8]) -> bool {
        let same_signature = STANDARD.decode(&self.signature).is_ok_and(|found| found == signature);
        let same_digest = self.expected.is_some() && self.digest == self.expected;
        same_digest && same_signature && self.certificate.as_deref() == Some(leaf)
    }
}

fn hashed(algorithm: &str, message: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        "SHA2_256" => Some(Sha256::digest(message).to_vec()),
        "SHA2_384" => Some(Sha384::digest(message).to_vec()),
        "SHA2_512" => Some(Sha512::digest(message).to_vec()),
        _ => None,
    }
}

fn from_pem(encoded: &str) -> Option<Vec<u8>> {
    let pem = STANDARD.decode(encoded).ok()?;
    x509_parser::pem::parse_x509_pem(&pem).ok().map(|(_, block)| block.contents)
}

impl Proof {
    fn check(&self, log: &Log, body: &[u8]) -> Result<(), String> {
        let head = Head::read(&self.checkpoint).ok_or("a checkpoint that cannot be read")?;
        head.check(log, &self.checkpoint)?;
        let leaf = Sha256::new().chain_update([0]).chain_update(body).finalize().to_vec();
        match root_of(self.index, head.size, leaf, &self.hashes) {
            Some(root) if root == head.root => Ok(()),
            _ => Err("the transparency log does not hold the entry".to_owned()),
        }
    }
}

/// The head of a tree, as a note says it.
struct Head<'a> {
    origin: &'a str,
    size: u64,
    root: Vec<u8>,
    /// Whose signatures there are: a name, and four bytes that point to a key before the signature itself.
    signatures: Vec<(&'a str, Vec<u8>)>,
}

impl<'a> Head<'a> {
    fn read(checkpoint: &'a str) -> Option<Self> {
        let (text, signatures) = checkpoint.split_once("\n\n")?;
        let mut lines = text.lines();
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let signatures = signatures.lines().filter_map(|line| {
            let (name, signature) = line.strip_prefix("\u{2014} ")?.rsplit_once(' ')?;
            Some((name, STANDARD.decode(signature).ok()?))
        });
        Some(Self {
            origin,
            size: size.parse().ok()?,
            root: STANDARD.decode(root).ok()?,
            signatures: signatures.collect(),
        })
    }

    fn check(&self, log: &Log, checkpoint: &str) -> Result<(), String> {
        // Logs of the first generation end their name with the number of a tree; others are called by their host.
        let tree = self.origin.rsplit_once(" - ").map(|(_, number)| number);
        let first =
            tree.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
        if !first && log.host.as_deref() != Some(self.origin) {
            return Err("the checkpoint is of another transparency log".to_owned());
        }
        // With the line break that ends the text.
        let end = checkpoint.find("\n\n").map_or(0, |at| at + 1);
        let text = &checkpoint.as_bytes()[..end];
        let hint = log.key.note_hint(self.origin);
        let signed = self.signatures.iter().any(|(name, signature)| {
            let by_name = first || *name == self.origin;
            by_name
                && signature
                    .split_at_checked(4)
                    .is_some_and(|(key, rest)| key == hint && log.key.verifies(text, rest))
        });
        if signed { Ok(()) } else { Err("the checkpoint is not signed by the transparency log".to_owned()) }
    }
}

/// RFC 6962: the root of a tree of `size` leaves, from one leaf and the hashes beside its way up.
fn root_of(index: u64, size: u64, leaf: Vec<u8>, hashes: &[Vec<u8>]) -> Option<Vec<u8>> {
    if index >= size || hashes.len() > 64 || hashes.iter().any(|hash| hash.len() != 32) {
        return None;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, leaf);
    let mut rest = hashes.iter();
    while last > 0 {
        if at % 2 == 1 || at == last {
            hash = node(rest.next()?, &hash);
            while at % 2 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(&hash, rest.next()?);
        }
        at >>= 1;
        last >>= 1;
    }
    rest.next().is_none().then_some(hash)
}

fn node(left: &[u8], right: &[u8]) -> Vec<u8> {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().to_vec()
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree of RFC 6962 over leaves that are numbers: its root, and the hashes beside a leaf's way.
    fn tree(leaves: &[Vec<u8>], index: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
        if leaves.len() == 1 {
            return (leaves[0].clone(), Vec::new());
        }
        let half = leaves.len().next_power_of_two() / 2;
        let (left, right) = leaves.split_at(half);
        if index < half {
            let ((root, mut way), (other, _)) = (tree(left, index), tree(right, 0));
            way.push(other.clone());
            (node(&root, &other), way)
        } else {
            let ((other, _), (root, mut way)) = (tree(left, 0), tree(right, index - half));
            way.push(other.clone());
            (node(&other, &root), way)
        }
    }

    #[test]
    fn every_leaf_of_every_tree_leads_to_its_root() {
        for size in 1..20_usize {
            let leaves: Vec<Vec<u8>> = (0..size).map(|leaf| Sha256::digest([leaf as u8]).to_vec()).collect();
            for index in 0..size {
                let (root, way) = tree(&leaves, index);
                let found = |index: usize, way: &[Vec<u8>]| {
                    root_of(index as u64, size as u64, leaves[index.min(size - 1)].clone(), way)
                };
                assert_eq!(found(index, &way), Some(root.clone()), "{index} of {size}");
                let mut longer = way.clone();
                longer.push(vec![0; 32]);
                assert_eq!(found(index, &longer), None);
                if !way.is_empty() {
                    assert_eq!(found(index, &way[1..]), None);
                    assert_ne!(found((index + 1) % size, &way), Some(root.clone()));
                }
                assert_eq!(root_of(size as u64, size as u64, leaves[index].clone(), &way), None);
            }
        }
    }

    #[test]
    fn checkpoints_that_are_none_are_not_read() {
        for text in
            ["", "\n\n", "origin\n\n", "origin\nx\nAAAA\n\n\u{2014} origin AAAA\n", "origin\n1\n!\n\n"]
        {
            assert!(Head::read(text).is_none(), "{text}");
        }
        let head =
            Head::read("log.example.com\n7\nAAAA\nextension\n\n\u{2014} log.example.com AAAAAAAA\nnot one\n")
                .unwrap();
        assert_eq!((head.origin, head.size, head.signatures.len()), ("log.example.com", 7, 1));
    }
}
