//! `trusted_root.json`: the authorities and logs of a Sigstore instance.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Error, PublicKey};

/// Who may issue certificates and keep logs, and when.
pub struct TrustRoot {
    pub(super) authorities: Vec<Authority>,
    /// Transparency logs of signatures.
    pub(super) logs: Vec<Log>,
    /// Transparency logs of certificates.
    pub(super) certificate_logs: Vec<Log>,
    /// Who may say when a signature was made; the first of a chain may be the one that signs.
    pub(super) timestamp_authorities: Vec<Authority>,
}

pub(super) struct Authority {
    /// From the one that signs leaves up to the root, DER.
    pub(super) chain: Vec<Vec<u8>>,
    pub(super) valid: Period,
}

pub(super) struct Log {
    pub(super) id: Vec<u8>,
    /// Of its address; logs of the second generation are called so.
    pub(super) host: Option<String>,
    pub(super) key: PublicKey,
    pub(super) valid: Period,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Period {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl Period {
    pub(super) fn holds(&self, at: Timestamp) -> bool {
        self.start.is_none_or(|start| start <= at) && self.end.is_none_or(|end| at <= end)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    tlogs: Vec<LogInFile>,
    #[serde(default)]
    ctlogs: Vec<LogInFile>,
    #[serde(default)]
    certificate_authorities: Vec<AuthorityInFile>,
    #[serde(default)]
    timestamp_authorities: Vec<AuthorityInFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogInFile {
    #[serde(default)]
    base_url: String,
    public_key: KeyInFile,
    log_id: Option<LogId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogId {
    key_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyInFile {
    raw_bytes: String,
    valid_for: Option<PeriodInFile>,
}

#[derive(Default, Deserialize)]
struct PeriodInFile {
    start: Option<String>,
    end: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityInFile {
    cert_chain: ChainInFile,
    valid_for: Option<PeriodInFile>,
}

#[derive(Deserialize)]
struct ChainInFile {
    #[serde(default)]
    certificates: Vec<CertificateInFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CertificateInFile {
    raw_bytes: String,
}

impl TrustRoot {
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        let wrong = |problem: String| Error::TrustRoot(problem);
        let file: File = serde_json::from_slice(json).map_err(|error| wrong(error.to_string()))?;
        let authorities: Vec<Authority> =
            file.certificate_authorities.into_iter().map(authority).collect::<Result<_, _>>()?;
        let logs: Vec<Log> = file.tlogs.into_iter().map(log).collect::<Result<_, _>>()?;
        let timestamp_authorities =
            file.timestamp_authorities.into_iter().map(authority).collect::<Result<_, _>>()?;
        let certificate_logs = file.ctlogs.into_iter().map(log).collect::<Result<_, _>>()?;
        if authorities.is_empty() {
            return Err(wrong("no certificate authorities found in trusted root".to_owned()));
        }
        if logs.is_empty() {
            return Err(wrong("no transparency log entries found in trusted root".to_owned()));
        }
        Ok(Self { authorities, logs, certificate_logs, timestamp_authorities })
    }
}

fn decode(text: &str, what: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|_| Error::TrustRoot(format!("{what} is no base64")))
}

fn period(file: Option<PeriodInFile>) -> Result<Period, Error> {
    let file = file.unwrap_or_default();
    let time = |text: Option<String>| {
        text.map(|text| text.parse())
            .transpose()
            .map_err(|error: jiff::Error| Error::TrustRoot(format!("validFor: {error}")))
    };
    Ok(Period { start: time(file.start)?, end: time(file.end)? })
}

fn authority(file: AuthorityInFile) -> Result<Authority, Error> {
    let certificates = file.cert_chain.certificates.iter();
    let chain: Vec<Vec<u8>> = certificates
        .map(|certificate| decode(&certificate.raw_bytes, "a certificate"))
        .collect::<Result<_, _>>()?;
    if chain.is_empty() {
        return Err(Error::TrustRoot("a certificate authority without certificates".to_owned()));
    }
    Ok(Authority { chain, valid: period(file.valid_for)? })
}

fn log(file: LogInFile) -> Result<Log, Error> {
    let key = decode(&file.public_key.raw_bytes, "the key of a log")?;
    let key = PublicKey::from_der(&key).map_err(|error| Error::TrustRoot(error.to_string()))?;
    let id = match &file.log_id {
        Some(id) => decode(&id.key_id, "the id of a log")?,
        // What a log is known by is the hash of its key.
        None => <sha2::Sha256 as sha2::Digest>::digest(key.der()).to_vec(),
    };
    let host = url::Url::parse(&file.base_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    Ok(Log { id, host, key, valid: period(file.public_key.valid_for)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_without_anybody_is_none() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"certificateAuthorities":[{"certChain":{}}]}"#,
            r#"{"tlogs":[{"publicKey":{"rawBytes":"!"}}]}"#,
        ] {
            assert!(matches!(TrustRoot::from_json(text.as_bytes()), Err(Error::TrustRoot(_))), "{text}");
        }
    }
}
