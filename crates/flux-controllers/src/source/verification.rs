//! Signatures: whose are required, and whether one of them is there.

use flux_api::meta::LocalReference;
use flux_api::source::{HelmChartVerification, OCIVerification, OIDCIdentityMatch, VerificationProvider};
use flux_remote::cosign::{self, Identity, PublicKey, Trust, TrustRoot};
use flux_remote::oci::{Digest, Registry};

use super::Context;
use super::access::{Data, Secrets};

const TRUSTED_ROOT: &str = "trusted_root.json";

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
    let trusts = trusts(ctx, namespace, &wanted).await?;
    let digest = registry.resolve(tag).await.map_err(|error| Error::Signature(error.to_string()))?;
    any(registry, &digest, &trusts, &registry.repository().with_tag(tag)).await
}

/// Whether the artifact with `digest` has a signature that counts.
pub async fn artifact(
    ctx: &Context,
    namespace: &str,
    registry: &Registry,
    verification: &OCIVerification,
    digest: &Digest,
) -> Result<bool, Error> {
    let trusts = trusts(ctx, namespace, verification).await?;
    any(registry, digest, &trusts, &registry.repository().with_digest(digest)).await
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

async fn trusts(ctx: &Context, namespace: &str, verification: &OCIVerification) -> Result<Vec<Trust>, Error> {
    let secrets = Secrets { client: &ctx.client, namespace };
    match (verification.provider, &verification.secret_ref) {
        (VerificationProvider::Cosign, Some(reference)) => keys(&secret(secrets, reference).await?),
        (VerificationProvider::Cosign, None) => {
            let root = trust_root(secrets, verification.trusted_root_secret_ref.as_ref()).await?;
            let identities = identities(&verification.match_oidc_identity)?;
            Ok(vec![Trust::Keyless { root: Box::new(root), identities }])
        }
        (VerificationProvider::Notation, _) => Err(Error::Configuration(
            "the provider 'notation' is not supported yet; sign with cosign".to_owned(),
        )),
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

async fn trust_root(secrets: Secrets<'_>, reference: Option<&LocalReference>) -> Result<TrustRoot, Error> {
    let Some(reference) = reference else {
        return Err(Error::Configuration(
            "the trust root of the public Sigstore instance is not fetched by this version; \
             put its trusted_root.json into a Secret and name that in spec.verify.trustedRootSecretRef"
                .to_owned(),
        ));
    };
    let id = format!("{}/{}", secrets.namespace, reference.name);
    let failed = |cause: String| {
        Error::Configuration(format!("failed to read trusted root from secret '{id}': {cause}"))
    };
    let data = secret(secrets, reference).await.map_err(|error| failed(error.to_string()))?;
    let json = data
        .bytes(TRUSTED_ROOT)
        .ok_or_else(|| failed(format!("'{TRUSTED_ROOT}' not found in secret '{id}'")))?;
    TrustRoot::from_json(json).map_err(|error| Error::Configuration(error.to_string()))
}

fn identities(wanted: &[OIDCIdentityMatch]) -> Result<Vec<Identity>, Error> {
    let read = |one: &OIDCIdentityMatch| Identity::new(&one.issuer, &one.subject);
    wanted.iter().map(read).collect::<Result<_, _>>().map_err(|error| Error::Configuration(error.to_string()))
}
