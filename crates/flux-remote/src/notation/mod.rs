//! Signatures of the Notary Project: an envelope beside an image with a certificate chain in it, and a trust policy that says
//! whose certificates count where, and what is done about a flaw.
//!
//! Nobody is asked whether a certificate was revoked, and timestamps are not looked at: where a policy insists on either, the
//! signature does not count.

mod chain;
mod cose;
mod envelope;
mod name;
mod policy;

use jiff::Timestamp;
use serde::Deserialize;

use crate::oci::{self, Digest, Registry};
use envelope::{Envelope, Scheme};
use policy::{Action, Check, Policy, Statement};

const SIGNATURE: &str = "application/vnd.cncf.notary.signature";
const LARGEST_ENVELOPE: u64 = 10 << 20;
/// As many as upstream looks at.
const MOST_SIGNATURES: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A policy or certificates that cannot be used.
    #[error("{0}")]
    Trust(String),
    #[error("{0}")]
    Registry(#[from] oci::Error),
    #[error("no signature is associated with \"{0}\", make sure the artifact was signed successfully")]
    None(String),
    #[error("{0}")]
    NoMatch(String),
}

/// Whose signatures count.
pub struct Trust {
    policy: Policy,
    /// DER.
    certificates: Vec<Vec<u8>>,
}

/// What came of it, where nothing that the policy insists on is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Verified,
    /// The policy says not to look, or not to mind whose signature it is.
    Unverified,
}

impl Trust {
    /// `policy` is a `trustpolicy.json`; each of the certificates is PEM or DER, and stands in every store that the policy names.
    pub fn new(policy: &[u8], certificates: &[&[u8]]) -> Result<Self, Error> {
        let policy = Policy::from_json(policy).map_err(Error::Trust)?;
        let certificates = certificates
            .iter()
            .map(|bytes| chain::trusted_certificate(bytes))
            .collect::<Result<_, _>>()
            .map_err(Error::Trust)?;
        Ok(Self { policy, certificates })
    }
}

/// Whether the image with `digest` has a signature that counts.
pub async fn verify(
    registry: &Registry,
    digest: &Digest,
    trust: &Trust,
    now: Timestamp,
) -> Result<Verdict, Error> {
    let place = registry.repository().with_digest(digest);
    let scope = place.rsplit_once('@').map_or(place.as_str(), |(scope, _)| scope);
    let statement = trust.policy.applicable(scope).ok_or_else(|| {
        Error::NoMatch(format!(
            "artifact \"{place}\" has no applicable oci trust policy statement. Trust policy applicability for a given artifact is determined by registryScopes"
        ))
    })?;
    if statement.skips() {
        return Ok(Verdict::Unverified);
    }
    let image = registry.fetch(digest.as_str()).await?;
    let target =
        Target { media_type: image.media_type, digest: digest.to_string(), size: image.bytes.len() as u64 };
    let mut problems = vec!["signature verification failed".to_owned()];
    let signatures = registry.referrers(digest, Some(SIGNATURE)).await?;
    for entry in signatures.iter().take(MOST_SIGNATURES) {
        let checking = Checking { statement, trust, target: &target, now };
        let found = signature(registry, &entry.digest).await?;
        match found.and_then(|(media_type, bytes)| checking.check(&media_type, &bytes)) {
            Ok(verdict) => return Ok(verdict),
            Err(problem) => {
                problems.push(format!("failed to verify signature with digest {}, {problem}", entry.digest));
            }
        }
    }
    match signatures.len() {
        0 => Err(Error::None(place)),
        MOST_SIGNATURES.. => Err(Error::NoMatch(format!(
            "signature evaluation stopped. The configured limit of {MOST_SIGNATURES} signatures to verify per artifact exceeded: {}",
            problems.pop().unwrap_or_default()
        ))),
        _ => Err(Error::NoMatch(problems.join("\n"))),
    }
}

/// The envelope in a signature's manifest, and how it is written.
async fn signature(registry: &Registry, digest: &str) -> Result<Result<(String, Vec<u8>), String>, Error> {
    let manifest = registry.fetch(digest).await?.manifest()?;
    let [layer] = manifest.layers.as_slice() else {
        let count = manifest.layers.len();
        return Ok(Err(format!(
            "signature manifest requires exactly one signature envelope blob, got {count}"
        )));
    };
    let bytes = registry.blob(layer, LARGEST_ENVELOPE).await?;
    Ok(Ok((layer.media_type.clone(), bytes)))
}

/// What a signature is about.
#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Target {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    target_artifact: Target,
}

/// One signature, and all that it is held against.
struct Checking<'a> {
    statement: &'a Statement,
    trust: &'a Trust,
    target: &'a Target,
    now: Timestamp,
}

impl Checking<'_> {
    fn check(&self, media_type: &str, bytes: &[u8]) -> Result<Verdict, String> {
        let envelope = Envelope::read(media_type, bytes)?;
        let authentic = self.authenticity(&envelope);
        self.mind(Check::Authenticity, authentic.clone())?;
        self.mind(Check::Expiry, self.expiry(&envelope))?;
        self.mind(Check::AuthenticTimestamp, self.authentic_time(&envelope))?;
        self.mind(Check::Revocation, chain::revocation(&envelope.chain))?;
        let payload: Payload = serde_json::from_slice(&envelope.payload)
            .map_err(|error| format!("the payload of the signature cannot be read: {error}"))?;
        if payload.target_artifact != *self.target {
            return Err("content descriptor mismatch".to_owned());
        }
        // Where nobody minds whose signature it is, it has not been verified.
        Ok(if authentic.is_ok() { Verdict::Verified } else { Verdict::Unverified })
    }

    /// A flaw counts where the policy enforces against it; elsewhere it is told.
    fn mind(&self, check: Check, found: Result<(), String>) -> Result<(), String> {
        match (found, self.statement.action(check)) {
            (Err(problem), Action::Enforce) => Err(problem),
            (Err(problem), Action::Log) => {
                tracing::info!(?check, problem, "a flaw in a signature that the trust policy lets pass");
                Ok(())
            }
            (_, Action::Skip) | (Ok(()), _) => Ok(()),
        }
    }

    fn authenticity(&self, envelope: &Envelope) -> Result<(), String> {
        let store = match envelope.scheme {
            Scheme::X509 => "ca",
            Scheme::SigningAuthority => "signingAuthority",
        };
        if !self.statement.has_store(store) {
            return Err("no trusted certificates are found to verify authenticity".to_owned());
        }
        let known = |certificate: &Vec<u8>| self.trust.certificates.contains(certificate);
        if !envelope.chain.iter().any(known) {
            return Err(
                "the signature's certificate chain does not contain any trusted certificate".to_owned()
            );
        }
        self.statement.identifies(envelope.chain.first().map_or(&[][..], Vec::as_slice))
    }

    fn expiry(&self, envelope: &Envelope) -> Result<(), String> {
        match envelope.expiry {
            Some(expiry) if expiry < self.now => Err(format!("digital signature has expired on {expiry}")),
            _ => Ok(()),
        }
    }

    /// Without a timestamp a chain has to be valid now; with a signing authority, when that says it signed.
    fn authentic_time(&self, envelope: &Envelope) -> Result<(), String> {
        let at = match envelope.scheme {
            Scheme::X509 if self.statement.wants_timestamp(&envelope.chain, self.now) => {
                return Err("timestamp countersignatures are not supported".to_owned());
            }
            Scheme::X509 => self.now,
            Scheme::SigningAuthority => envelope.signing_time,
        };
        chain::valid_at(&envelope.chain, at)
    }
}
