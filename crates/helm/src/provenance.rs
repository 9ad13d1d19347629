//! Provenance files: `.prov`, which signs a chart's archive by its checksum.

use pgp::composed::{CleartextSignedMessage, PublicOrSecret, SignedPublicKey};
use pgp::crypto::public_key::PublicKeyAlgorithm;
use pgp::types::KeyDetails;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::quote::go_quote;

/// Who signed a chart, and what exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// User ids of the signing key.
    pub signed_by: Vec<String>,
    /// In hexadecimal.
    pub fingerprint: String,
    /// `sha256:…`
    pub file_hash: String,
    pub file_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    #[error("reading keyring: {0}")]
    Keyring(String),
    #[error("signature block not found")]
    NoSignature,
    #[error("openpgp: signature made by unknown entity")]
    UnknownSigner,
    /// The key is in the ring, but the text is not what it signed.
    #[error("openpgp: invalid signature: {0} verification failure")]
    OtherText(&'static str),
    #[error("openpgp: key expired")]
    Expired,
    #[error("message block must have at least two parts")]
    NoChecksums,
    #[error("{0}")]
    Checksums(String),
    #[error("provenance does not contain a SHA for a file named {}", go_quote(.0))]
    NotListed(String),
    #[error("sha256 sum does not match for {file}: {} != {}", go_quote(.signed), go_quote(.found))]
    OtherSum { file: String, signed: String, found: String },
}

/// Checks that a key of the ring signed the provenance, and that the provenance names this archive. `file_name` is the archive's
/// last name; `now` decides whether a key has expired.
pub fn verify(
    archive: &[u8],
    provenance: &[u8],
    file_name: &str,
    keyring: &[u8],
    now: jiff::Timestamp,
) -> Result<Verification, ProvenanceError> {
    let keys = read_keyring(keyring)?;
    let text = String::from_utf8_lossy(provenance);
    let start = text.find("-----BEGIN PGP SIGNED MESSAGE-----").ok_or(ProvenanceError::NoSignature)?;
    let (message, _) =
        CleartextSignedMessage::from_string(&text[start..]).map_err(|_| ProvenanceError::NoSignature)?;
    let signer = signer(&message, &keys, now)?;
    let signed = message.signed_text().replace("\r\n", "\n");
    let found = format!("sha256:{}", hex(&Sha256::digest(archive)));
    let listed = checksum(&signed, file_name)?;
    if listed != found {
        return Err(ProvenanceError::OtherSum { file: file_name.to_owned(), signed: listed, found });
    }
    Ok(Verification {
        signed_by: signer
            .details
            .users
            .iter()
            .map(|user| String::from_utf8_lossy(user.id.id()).into_owned())
            .collect(),
        fingerprint: format!("{:x}", signer.primary_key.fingerprint()),
        file_hash: found,
        file_name: file_name.to_owned(),
    })
}

/// Keys of a binary ring, or of one or more armored blocks.
fn read_keyring(keyring: &[u8]) -> Result<Vec<SignedPublicKey>, ProvenanceError> {
    const BEGIN: &str = "-----BEGIN PGP";
    let wrong = |error: pgp::errors::Error| ProvenanceError::Keyring(error.to_string());
    let mut keys = Vec::new();
    let text = String::from_utf8_lossy(keyring);
    if text.trim_start().starts_with(BEGIN) {
        for block in text.split(BEGIN).skip(1) {
            let (found, _) = PublicOrSecret::from_armor_many(std::io::Cursor::new(format!("{BEGIN}{block}")))
                .map_err(wrong)?;
            for key in found {
                keys.extend(public(key.map_err(wrong)?));
            }
        }
    } else {
        for key in PublicOrSecret::from_bytes_many(std::io::Cursor::new(keyring)).map_err(wrong)? {
            keys.extend(public(key.map_err(wrong)?));
        }
    }
    Ok(keys)
}

fn public(key: PublicOrSecret) -> Option<SignedPublicKey> {
    match key {
        PublicOrSecret::Public(key) => Some(key),
        PublicOrSecret::Secret(_) => None,
    }
}

/// The key of the ring that made a signature, itself or by a subkey it vouches for.
fn signer<'k>(
    message: &CleartextSignedMessage,
    keys: &'k [SignedPublicKey],
    now: jiff::Timestamp,
) -> Result<&'k SignedPublicKey, ProvenanceError> {
    for key in keys {
        if key.verify_bindings().is_err() || !key.details.revocation_signatures.is_empty() {
            continue;
        }
        let by_subkey = || key.public_subkeys.iter().any(|sub| message.verify(&sub.key).is_ok());
        if message.verify(&key.primary_key).is_ok() || by_subkey() {
            return if has_expired(key, now) { Err(ProvenanceError::Expired) } else { Ok(key) };
        }
    }
    let issuers: Vec<_> =
        message.signatures().iter().flat_map(|signature| signature.issuer_key_id()).collect();
    let named = keys.iter().find(|key| {
        issuers.contains(&&key.primary_key.legacy_key_id())
            || key.public_subkeys.iter().any(|sub| issuers.contains(&&sub.key.legacy_key_id()))
    });
    Err(named.map_or(ProvenanceError::UnknownSigner, |key| ProvenanceError::OtherText(algorithm(key))))
}

/// As Go's openpgp calls it when a signature is wrong.
fn algorithm(key: &SignedPublicKey) -> &'static str {
    match key.primary_key.algorithm() {
        PublicKeyAlgorithm::DSA => "DSA",
        PublicKeyAlgorithm::ECDSA => "ECDSA",
        PublicKeyAlgorithm::EdDSALegacy => "EdDSA",
        PublicKeyAlgorithm::Ed25519 => "Ed25519",
        PublicKeyAlgorithm::Ed448 => "Ed448",
        _ => "RSA",
    }
}

fn has_expired(key: &SignedPublicKey, now: jiff::Timestamp) -> bool {
    let self_signatures =
        key.details.users.iter().flat_map(|user| &user.signatures).chain(&key.details.direct_signatures);
    let Some(newest) = self_signatures.max_by_key(|signature| signature.created().map(|t| t.as_secs()))
    else {
        return false;
    };
    let Some(lifetime) =
        newest.key_expiration_time().map(|d| i64::from(d.as_secs())).filter(|seconds| *seconds > 0)
    else {
        return false;
    };
    i64::from(key.primary_key.created_at().as_secs()) + lifetime < now.as_second()
}

fn checksum(signed: &str, file_name: &str) -> Result<String, ProvenanceError> {
    let sums = signed.split("\n...\n").nth(1).ok_or(ProvenanceError::NoChecksums)?;
    let tree = crate::document::parse(sums.as_bytes()).map_err(ProvenanceError::Checksums)?;
    let wrong = |found: &Json, wanted: &str| {
        let kind = crate::chart::json_kind(found);
        let prefix = crate::chart::PREFIX;
        ProvenanceError::Checksums(format!(
            "{prefix}json: cannot unmarshal {kind} into Go struct field SumCollection.files of type {wanted}"
        ))
    };
    let not_listed = || ProvenanceError::NotListed(file_name.to_owned());
    match tree.get("files") {
        None | Some(Json::Null) => Err(not_listed()),
        Some(Json::Object(files)) => match files.get(file_name) {
            None => Err(not_listed()),
            Some(Json::String(sum)) => Ok(sum.clone()),
            Some(Json::Null) => Ok(String::new()),
            Some(other) => Err(wrong(other, "string")),
        },
        Some(other) => Err(wrong(other, "map[string]string")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
