//! Signatures without a key of one's own: a short-lived certificate says who signed, a log says when.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::certificate::{self, Signer};
use super::{Error, TrustRoot};

/// A signer, by expressions that have to match somewhere in the issuer and in the subject.
pub struct Identity {
    issuer: Regex,
    subject: Regex,
}

impl Identity {
    pub fn new(issuer: &str, subject: &str) -> Result<Self, Error> {
        let read = |text: &str, what: &str| {
            Regex::new(text).map_err(|error| Error::Key(format!("malformed {what} in identity: {error}")))
        };
        Ok(Self { issuer: read(issuer, "issuer")?, subject: read(subject, "subject")? })
    }

    fn matches(&self, signer: &Signer) -> bool {
        self.issuer.is_match(&signer.issuer) && signer.names.iter().any(|name| self.subject.is_match(name))
    }
}

/// What was signed.
pub(super) struct Signed<'a> {
    /// The bytes that the signature is over.
    pub(super) message: &'a [u8],
    pub(super) signature: &'a [u8],
    /// What the log has the hash of.
    pub(super) payload: &'a [u8],
}

/// What a transparency log says of a signature.
pub(super) struct LogEntry {
    /// Base64.
    pub(super) body: String,
    pub(super) integrated_time: i64,
    pub(super) log_index: i64,
    pub(super) log_id: Vec<u8>,
    /// The log's word for all of the above.
    pub(super) signed_time: Vec<u8>,
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
        let signed_time = STANDARD.decode(&annotation.signed_entry_timestamp);
        Ok(Self {
            body: annotation.payload.body,
            integrated_time: annotation.payload.integrated_time,
            log_index: annotation.payload.log_index,
            log_id: from_hex(&annotation.payload.log_id).ok_or("a log id that is no hexadecimal number")?,
            signed_time: signed_time.map_err(|_| "a signed time that is no base64")?,
        })
    }

    /// When the log took the entry in, if it is a log of the root that says so.
    fn time(&self, root: &TrustRoot) -> Result<Timestamp, String> {
        let time =
            Timestamp::from_second(self.integrated_time).map_err(|_| "a log entry of no known time")?;
        let hex: String = self.log_id.iter().map(|byte| format!("{byte:02x}")).collect();
        // Keys in order and no spaces: what the log signed.
        let signed = json!({
            "body": self.body, "integratedTime": self.integrated_time, "logID": hex, "logIndex": self.log_index,
        })
        .to_string();
        let mut logs = root.logs.iter().filter(|log| log.id == self.log_id && log.valid.holds(time));
        if !logs.any(|log| log.key.verifies(signed.as_bytes(), &self.signed_time)) {
            return Err("the entry is not by a transparency log of the trusted root".to_owned());
        }
        Ok(time)
    }

    /// The entry has to be about this signature: otherwise any entry would do for any signature.
    fn is_about(&self, signed: &Signed<'_>, leaf: &[u8]) -> Result<(), String> {
        let body = STANDARD.decode(&self.body).map_err(|_| "a log entry that is no base64")?;
        let body: Json = serde_json::from_slice(&body).map_err(|_| "a log entry that is no JSON")?;
        let text = |pointer: &str| body.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
        let (hash, signature, verifier) = match text("/kind") {
            "hashedrekord" => (
                text("/spec/data/hash/value"),
                text("/spec/signature/content"),
                text("/spec/signature/publicKey/content"),
            ),
            "dsse" => (
                text("/spec/payloadHash/value"),
                text("/spec/signatures/0/signature"),
                text("/spec/signatures/0/verifier"),
            ),
            other => return Err(format!("log entries of the kind '{other}' are not supported")),
        };
        let digest: String =
            Sha256::digest(signed.payload).iter().map(|byte| format!("{byte:02x}")).collect();
        let pem = STANDARD.decode(verifier).unwrap_or_default();
        let same_certificate =
            x509_parser::pem::parse_x509_pem(&pem).is_ok_and(|(_, block)| block.contents == leaf);
        let same_signature = STANDARD.decode(signature).is_ok_and(|found| found == signed.signature);
        if hash != digest || !same_signature || !same_certificate {
            return Err("the log entry is about another signature".to_owned());
        }
        Ok(())
    }
}

pub(super) fn verify_pem(
    pem: &[u8],
    entry: &LogEntry,
    signed: &Signed<'_>,
    root: &TrustRoot,
    identities: &[Identity],
) -> Result<(), String> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| "a certificate that is no PEM")?;
    verify_der(&block.contents, entry, signed, root, identities)
}

/// The certificate is trusted and was valid when the log took the signature in, the signature is its key's, and its
/// owner is one of those who are asked for.
pub(super) fn verify_der(
    leaf: &[u8],
    entry: &LogEntry,
    signed: &Signed<'_>,
    root: &TrustRoot,
    identities: &[Identity],
) -> Result<(), String> {
    let signer = certificate::trusted(leaf, root)?;
    let time = entry.time(root)?;
    if time < signer.not_before || signer.not_after < time {
        return Err("the signature was made when its certificate was not valid".to_owned());
    }
    entry.is_about(signed, leaf)?;
    if !signer.key.verifies(signed.message, signed.signature) {
        return Err("the signature is not of the certificate's key".to_owned());
    }
    if !identities.is_empty() && !identities.iter().any(|identity| identity.matches(&signer)) {
        let names = signer.names.join(", ");
        return Err(format!(
            "none of the expected identities matched what was in the certificate, got subjects [{names}] with issuer {}",
            signer.issuer
        ));
    }
    Ok(())
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
