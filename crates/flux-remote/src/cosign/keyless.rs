//! Signatures without a key of one's own: a short-lived certificate says who signed, a log says when.

use jiff::Timestamp;
use regex::Regex;

use super::certificate::{self, Signer};
use super::log::{LogEntry, Signed};
use super::{Error, TrustRoot, timestamp};

/// Of each kind.
const MOST: usize = 32;

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

/// What there is to go by, beside the signature itself.
pub(super) struct Evidence {
    /// The certificate, DER.
    pub(super) leaf: Vec<u8>,
    pub(super) entries: Vec<LogEntry>,
    /// Timestamps of RFC 3161.
    pub(super) timestamps: Vec<Vec<u8>>,
}

impl Evidence {
    /// A log has to know the signature. It also says when it was made, unless it is one of those that do not: then an
    /// authority has to.
    fn times(&self, signed: &Signed<'_>, root: &TrustRoot) -> Result<Vec<Timestamp>, String> {
        if self.entries.len() > MOST || self.timestamps.len() > MOST {
            return Err("too many log entries or timestamps".to_owned());
        }
        let mut times = Vec::new();
        let mut known = 0;
        let mut last = "a signature that no transparency log knows".to_owned();
        for entry in &self.entries {
            match entry.check(root) {
                Some(Ok(time)) => {
                    entry.is_about(signed, &self.leaf)?;
                    known += 1;
                    times.extend(time);
                }
                Some(Err(problem)) => last = problem,
                None => last = "the entry is not by a transparency log of the trusted root".to_owned(),
            }
        }
        if known == 0 {
            return Err(last);
        }
        if self.entries.iter().any(LogEntry::has_time) {
            return if times.is_empty() {
                Err("the transparency log gave no signed time".to_owned())
            } else {
                Ok(times)
            };
        }
        let mut last =
            "the transparency log gave no time, and there is no timestamp of an authority".to_owned();
        for stamp in &self.timestamps {
            match timestamp::verify(stamp, signed.signature, root) {
                Ok(time) => times.push(time),
                Err(problem) => last = problem,
            }
        }
        if times.is_empty() { Err(last) } else { Ok(times) }
    }
}

pub(super) fn certificate_of_pem(pem: &[u8]) -> Result<Vec<u8>, String> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| "a certificate that is no PEM")?;
    Ok(block.contents)
}

/// The certificate is trusted and was valid when the signature was made, the signature is its key's, and its owner is one
/// of those who are asked for.
pub(super) fn verify(
    evidence: &Evidence,
    signed: &Signed<'_>,
    root: &TrustRoot,
    identities: &[Identity],
) -> Result<(), String> {
    let signer = certificate::trusted(&evidence.leaf, root)?;
    let times = evidence.times(signed, root)?;
    if times.iter().any(|time| *time < signer.not_before || signer.not_after < *time) {
        return Err("the signature was made when its certificate was not valid".to_owned());
    }
    if !signer.key.verifies_message(signed.message, signed.signature) {
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
