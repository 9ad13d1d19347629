//! Signatures as bundles: an envelope with a statement about the image, and all that is needed to check it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::keyless::{self, Evidence};
use super::log::{LogEntry, Proof, Signed};
use super::{Error, Trust};
use crate::oci::{Digest, Registry};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
const LARGEST_BUNDLE: u64 = 4 << 20;
const MOST_BUNDLES: usize = 100;
const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bundle {
    verification_material: Material,
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    certificate: Option<RawBytes>,
    x509_certificate_chain: Option<Chain>,
    #[serde(default)]
    tlog_entries: Vec<TlogEntry>,
    timestamp_verification_data: Option<Timestamps>,
}

/// Some clients write nothing where there are none, others write that.
#[derive(Deserialize)]
struct Timestamps {
    #[serde(rename = "rfc3161Timestamps")]
    signed: Option<Vec<SignedTimestamp>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignedTimestamp {
    signed_timestamp: String,
}

#[derive(Deserialize)]
struct Chain {
    #[serde(default)]
    certificates: Vec<RawBytes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBytes {
    raw_bytes: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TlogEntry {
    #[serde(default)]
    log_index: String,
    log_id: LogId,
    #[serde(default)]
    integrated_time: String,
    inclusion_promise: Option<Promise>,
    inclusion_proof: Option<ProofInFile>,
    #[serde(default)]
    canonicalized_body: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProofInFile {
    #[serde(default)]
    log_index: String,
    #[serde(default)]
    hashes: Vec<String>,
    checkpoint: Checkpoint,
}

#[derive(Deserialize)]
struct Checkpoint {
    envelope: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogId {
    key_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Promise {
    signed_entry_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    #[serde(default)]
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(default)]
    subject: Vec<Subject>,
    #[serde(default)]
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    digest: std::collections::BTreeMap<String, String>,
}

/// The bundles beside an image; what is no bundle is passed over.
pub(super) async fn find(registry: &Registry, digest: &Digest) -> Result<Vec<Bundle>, Error> {
    let mut found = Vec::new();
    for entry in registry.referrers(digest, None).await?.into_iter().take(MOST_BUNDLES) {
        let Ok(fetched) = registry.fetch(&entry.digest).await else { continue };
        let Ok(manifest) = fetched.manifest() else { continue };
        let Some(layer) = manifest.layers.iter().find(|layer| layer.media_type.starts_with(BUNDLE)) else {
            continue;
        };
        let bytes = registry.blob(layer, LARGEST_BUNDLE).await?;
        if let Ok(bundle) = serde_json::from_slice(&bytes) {
            found.push(bundle);
        }
    }
    Ok(found)
}

impl Bundle {
    pub(super) fn verify(&self, digest: &Digest, trust: &Trust) -> Result<(), String> {
        let envelope = self.dsse_envelope.as_ref().ok_or("bundle does not contain a DSSE envelope")?;
        let payload = decode(&envelope.payload, "payload")?;
        let [signature] = envelope.signatures.as_slice() else {
            return Err("an envelope has to have one signature".to_owned());
        };
        let signature = decode(&signature.sig, "signature")?;
        let message = pre_authentication_encoding(&envelope.payload_type, &payload);
        match trust {
            Trust::Key(key) => {
                if !key.verifies(&message, &signature) {
                    return Err("the signature is not of this key".to_owned());
                }
            }
            Trust::Keyless { root, identities } => {
                let material = &self.verification_material;
                let chain = material.x509_certificate_chain.as_ref();
                let leaf = material
                    .certificate
                    .as_ref()
                    .or_else(|| chain.and_then(|chain| chain.certificates.first()));
                let leaf = decode(&leaf.ok_or("a bundle without certificate")?.raw_bytes, "certificate")?;
                let entries = material.tlog_entries.iter().map(TlogEntry::read).collect::<Result<_, _>>()?;
                let stamps =
                    material.timestamp_verification_data.iter().flat_map(|data| data.signed.iter().flatten());
                let timestamps = stamps.map(|stamp| decode(&stamp.signed_timestamp, "timestamp"));
                let evidence = Evidence { leaf, entries, timestamps: timestamps.collect::<Result<_, _>>()? };
                let signed = Signed { message: &message, signature: &signature, payload: &payload };
                keyless::verify(&evidence, &signed, root, identities)?;
            }
        }
        claims(&envelope.payload_type, &payload, digest)
    }
}

impl TlogEntry {
    fn read(&self) -> Result<LogEntry, String> {
        // Nothing is how JSON writes zero here.
        let number = |text: &str, what: &str| match text {
            "" => Ok(0),
            text => text.parse::<i64>().map_err(|_| format!("a {what} that is no number")),
        };
        let promise = self.inclusion_promise.as_ref();
        let promise =
            promise.map(|promise| decode(&promise.signed_entry_timestamp, "signed time")).transpose()?;
        Ok(LogEntry {
            body: self.canonicalized_body.clone(),
            integrated_time: number(&self.integrated_time, "time")?,
            log_index: number(&self.log_index, "log index")?,
            log_id: decode(&self.log_id.key_id, "log id")?,
            promise: promise.filter(|promise| !promise.is_empty()),
            proof: self.inclusion_proof.as_ref().map(ProofInFile::read).transpose()?,
        })
    }
}

impl ProofInFile {
    fn read(&self) -> Result<Proof, String> {
        let index = if self.log_index.is_empty() { "0" } else { &self.log_index };
        Ok(Proof {
            index: index.parse().map_err(|_| "a log index that is no number")?,
            hashes: self.hashes.iter().map(|hash| decode(hash, "hash")).collect::<Result<_, _>>()?,
            checkpoint: self.checkpoint.envelope.clone(),
        })
    }
}

fn decode(text: &str, what: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|_| format!("a {what} that is no base64"))
}

/// What an envelope's signature is over.
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut message = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    message.extend_from_slice(payload);
    message
}

/// The statement has to be about this image.
fn claims(payload_type: &str, payload: &[u8], digest: &Digest) -> Result<(), String> {
    if payload_type != "application/vnd.in-toto+json" {
        return Err(format!("an envelope of the unknown kind '{payload_type}'"));
    }
    let statement: Statement = serde_json::from_slice(payload)
        .map_err(|error| format!("what was signed is no statement: {error}"))?;
    if statement.predicate_type != PREDICATE {
        return Err(format!("the statement is no signature but '{}'", statement.predicate_type));
    }
    let (name, hex) = digest.as_str().split_once(':').unwrap_or_default();
    let about = |subject: &Subject| subject.digest.get(name).is_some_and(|found| found == hex);
    if !statement.subject.iter().any(about) {
        return Err("the signature is for another image".to_owned());
    }
    Ok(())
}
