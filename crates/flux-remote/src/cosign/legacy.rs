//! Signatures under a tag: `sha256-<hex>.sig` is an image whose layers are what was signed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::keyless::{self, Evidence};
use super::log::{LogEntry, Signed};
use super::{Error, Trust};
use crate::oci::{Descriptor, Digest, Registry};

const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const BUNDLE: &str = "dev.sigstore.cosign/bundle";
const LARGEST_PAYLOAD: u64 = 1 << 20;
const MOST_SIGNATURES: usize = 100;

pub(super) async fn verify(registry: &Registry, digest: &Digest, trust: &Trust) -> Result<(), Error> {
    let tag = format!("{}.sig", digest.as_str().replacen(':', "-", 1));
    let fetched = match registry.fetch(&tag).await {
        Ok(fetched) => fetched,
        Err(error) if error.is_not_found() => return Err(Error::None),
        Err(error) => return Err(error.into()),
    };
    let mut last = "the signature image has no layers".to_owned();
    for layer in fetched.manifest()?.layers.iter().take(MOST_SIGNATURES) {
        let payload = registry.blob(layer, LARGEST_PAYLOAD).await?;
        match check(layer, &payload, digest, trust) {
            Ok(()) => return Ok(()),
            Err(problem) => last = problem,
        }
    }
    Err(Error::NoMatch(last))
}

/// Whether a layer is a signature that counts for `digest`.
fn check(layer: &Descriptor, payload: &[u8], digest: &Digest, trust: &Trust) -> Result<(), String> {
    let encoded = layer.annotations.get(SIGNATURE).ok_or("a layer without signature")?;
    let signature = STANDARD.decode(encoded).map_err(|_| "a signature that is no base64")?;
    match trust {
        Trust::Key(key) => {
            if !key.verifies(payload, &signature) {
                return Err("the signature is not of this key".to_owned());
            }
        }
        Trust::Keyless { root, identities } => {
            let certificate = layer.annotations.get(CERTIFICATE).ok_or("a signature without certificate")?;
            let bundle = layer.annotations.get(BUNDLE).ok_or("a signature that no transparency log knows")?;
            let entry = LogEntry::from_annotation(bundle)?;
            let signed = Signed { message: payload, signature: &signature, payload };
            let leaf = keyless::certificate_of_pem(certificate.as_bytes())?;
            let evidence = Evidence { leaf, entries: vec![entry], timestamps: Vec::new() };
            keyless::verify(&evidence, &signed, root, identities)?;
        }
    }
    claims(payload, digest)
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// What was signed has to be about this image, not about another one.
fn claims(payload: &[u8], digest: &Digest) -> Result<(), String> {
    let payload: Payload = serde_json::from_slice(payload)
        .map_err(|error| format!("what was signed is no claim about an image: {error}"))?;
    if payload.critical.image.digest != digest.as_str() {
        return Err(format!("the signature is for {}", payload.critical.image.digest));
    }
    Ok(())
}
