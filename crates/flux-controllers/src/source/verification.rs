//! Signatures: whose are required, and whether one of them is there.

use std::sync::Arc;

use flux_api::meta::LocalReference;
use flux_api::source::{HelmChartVerification, OCIVerification, OIDCIdentityMatch, VerificationProvider};
use flux_remote::cosign::{self, Identity, PublicKey, Trust, TrustRoot};
use flux_remote::notation;
use flux_remote::oci::{Digest, Registry};
use k8s_openapi::jiff::Timestamp;

use super::Context;
use super::access::{Data, Secrets};

const TRUSTED_ROOT: &str = "trusted_root.json";
const TRUST_POLICY: &str = "trustpolicy.json";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is to be verified against is missing or wrong.
    #[error("{0}")]
    Configuration(String),
    /// No signature that counts.
    #[error("{0}")]
    Signature(String),
}

/// `cosign`, `cosign keyless` or `notation`.
pub fn provider_name(provider: VerificationProvider, has_secret: bool) -> &'static str {
    match (provider, has_secret) {
        (VerificationProvider::Cosign, false) => "cosign keyless",
        (VerificationProvider::Cosign, true) => "cosign",
        (VerificationProvider::Notation, _) => "notation",
    }
}

/// Whether the chart behind `tag` has a signature that counts.
pub async fn chart(
    ctx: &Context,
    namespace: &str,
    registry: &Registry,
    verification: &HelmChartVerification,
    tag: &str,
) -> Result<bool, Error> {
    let wanted = OCIVerification {
        provider: verification.provider,
        secret_ref: verification.secret_ref.clone(),
        match_oidc_identity: verification.match_oidc_identity.clone(),
        trusted_root_secret_ref: None,
    };
    let required = Required::of(ctx, namespace, &wanted, &registry.repository().with_tag(tag)).await?;
    let digest = registry.resolve(tag).await.map_err(|error| Error::Signature(error.to_string()))?;
    required.check(registry, &digest, &registry.repository().with_tag(tag)).await
}

/// Whether the artifact with `digest` has a signature that counts.
pub async fn artifact(
    ctx: &Context,
    namespace: &str,
    registry: &Registry,
    verification: &OCIVerification,
    digest: &Digest,
) -> Result<bool, Error> {
    let place = registry.repository().with_digest(digest);
    let required = Required::of(ctx, namespace, verification, &place).await?;
    required.check(registry, digest, &place).await
}

/// Whose signatures are required.
enum Required {
    Cosign(Vec<Trust>),
    Notation(notation::Trust),
}

impl Required {
    async fn of(
        ctx: &Context,
        namespace: &str,
        verification: &OCIVerification,
        place: &str,
    ) -> Result<Self, Error> {
        let secrets = Secrets { client: &ctx.client, namespace };
        match (verification.provider, &verification.secret_ref) {
            (VerificationProvider::Cosign, Some(reference)) => {
                keys(&secret(secrets, reference).await?).map(Self::Cosign)
            }
            (VerificationProvider::Cosign, None) => {
                let root = trust_root(ctx, secrets, verification.trusted_root_secret_ref.as_ref()).await?;
                let identities = identities(&verification.match_oidc_identity)?;
                Ok(Self::Cosign(vec![Trust::Keyless { root, identities }]))
            }
            (VerificationProvider::Notation, Some(reference)) => {
                trust_policy(&secret(secrets, reference).await?).map(Self::Notation)
            }
            (VerificationProvider::Notation, None) => {
                Err(Error::Configuration(format!("verification secret cannot be empty: '{place}'")))
            }
        }
    }

    /// Whether there is one; not, where a policy says not to look.
    async fn check(&self, registry: &Registry, digest: &Digest, place: &str) -> Result<bool, Error> {
        match self {
            Self::Cosign(trusts) => any(registry, digest, trusts, place).await,
            Self::Notation(trust) => {
                match notation::verify(registry, digest, trust, Timestamp::now()).await {
                    Ok(verdict) => Ok(verdict == notation::Verdict::Verified),
                    Err(error) => Err(Error::Signature(error.to_string())),
                }
            }
        }
    }
}

/// A trust policy, and every certificate of the Secret.
fn trust_policy(data: &Data) -> Result<notation::Trust, Error> {
    let policy = data.bytes(TRUST_POLICY).ok_or_else(|| {
        Error::Configuration(format!("'{TRUST_POLICY}' not found in secret '{}'", data.id()))
    })?;
    let is_certificate = |name: &str| name.ends_with(".crt") || name.ends_with(".pem");
    let certificates: Vec<&[u8]> =
        data.keys().filter(|(name, _)| is_certificate(name)).map(|(_, bytes)| bytes).collect();
    if certificates.is_empty() {
        return Err(Error::Configuration(format!("no certificates found in secret '{}'", data.id())));
    }
    notation::Trust::new(policy, &certificates).map_err(|error| Error::Configuration(error.to_string()))
}

/// One signature by one of the trusted is enough.
async fn any(registry: &Registry, digest: &Digest, trusts: &[Trust], place: &str) -> Result<bool, Error> {
    let mut last = None;
    for trust in trusts {
        match cosign::verify(registry, digest, trust).await {
            Ok(()) => return Ok(true),
            Err(error) => last = Some(error),
        }
    }
    match last {
        // With keys upstream does not say why; without them the reason is what one has to know.
        Some(error) if trusts.iter().any(|trust| matches!(trust, Trust::Keyless { .. })) => {
            Err(Error::Signature(error.to_string()))
        }
        Some(cosign::Error::Registry(error)) => Err(Error::Signature(error.to_string())),
        _ => Err(Error::Signature(format!("no matching signatures were found for '{place}'"))),
    }
}

async fn secret(secrets: Secrets<'_>, reference: &LocalReference) -> Result<Data, Error> {
    secrets.get(&reference.name).await.map_err(|error| match error {
        super::access::Error::NoSecret(_) => {
            Error::Configuration(format!("secrets \"{}\" not found", reference.name))
        }
        error => Error::Configuration(error.to_string()),
    })
}

/// Every `*.pub` of a Secret.
fn keys(data: &Data) -> Result<Vec<Trust>, Error> {
    let mut found = Vec::new();
    for (name, pem) in data.keys().filter(|(name, _)| name.ends_with(".pub")) {
        let key = PublicKey::from_pem(pem).map_err(|error| {
            Error::Configuration(format!("secret '{}': key '{name}': {error}", data.id()))
        })?;
        found.push(Trust::Key(key));
    }
    if found.is_empty() {
        return Err(Error::Configuration(format!("no public keys found in secret '{}'", data.id())));
    }
    Ok(found)
}

async fn trust_root(
    ctx: &Context,
    secrets: Secrets<'_>,
    reference: Option<&LocalReference>,
) -> Result<Arc<TrustRoot>, Error> {
    let Some(reference) = reference else {
        let root = ctx.sigstore.trust_root(Timestamp::now()).await;
        return root.map_err(|error| Error::Configuration(error.to_string()));
    };
    let id = format!("{}/{}", secrets.namespace, reference.name);
    let failed = |cause: String| {
        Error::Configuration(format!("failed to read trusted root from secret '{id}': {cause}"))
    };
    let data = secret(secrets, reference).await.map_err(|error| failed(error.to_string()))?;
    let json = data
        .bytes(TRUSTED_ROOT)
        .ok_or_else(|| failed(format!("'{TRUSTED_ROOT}' not found in secret '{id}'")))?;
    TrustRoot::from_json(json).map(Arc::new).map_err(|error| Error::Configuration(error.to_string()))
}

fn identities(wanted: &[OIDCIdentityMatch]) -> Result<Vec<Identity>, Error> {
    let read = |one: &OIDCIdentityMatch| Identity::new(&one.issuer, &one.subject);
    wanted.iter().map(read).collect::<Result<_, _>>().map_err(|error| Error::Configuration(error.to_string()))
}
