//! Signatures that cosign makes: with a key, or without one by an identity that a certificate names for ten minutes.
//!
//! Signatures are looked for where cosign puts them today, beside the image as bundles, and where it put them before,
//! under a tag. Nothing is asked of a transparency log or a certificate authority: what they said is in the signature, and
//! the trust root says who they are.

mod bundle;
mod certificate;
mod der;
mod key;
mod keyless;
mod legacy;
mod log;
mod public;
mod timestamp;
mod trust_root;
mod tuf;

pub(crate) use certificate::is_signed_by;
pub use key::PublicKey;
pub use keyless::Identity;
pub use public::Sigstore;
pub use trust_root::TrustRoot;

use std::sync::Arc;

use crate::oci::{self, Digest, Registry};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Key(String),
    #[error("unable to parse trusted root: {0}")]
    TrustRoot(String),
    #[error("unable to initialize trusted root: {0}")]
    Unavailable(String),
    #[error("{0}")]
    Registry(#[from] oci::Error),
    /// There are signatures, and none of them counts; the reason of the last one is told.
    #[error("no matching signatures: {0}")]
    NoMatch(String),
    #[error("no signatures found")]
    None,
}

/// Whose signatures count.
pub enum Trust {
    Key(PublicKey),
    /// Signatures by one of the identities, or by anybody where none is named.
    Keyless {
        root: Arc<TrustRoot>,
        identities: Vec<Identity>,
    },
}

/// Whether the image with `digest` has a signature that counts.
pub async fn verify(registry: &Registry, digest: &Digest, trust: &Trust) -> Result<(), Error> {
    let bundles = bundle::find(registry, digest).await?;
    if bundles.is_empty() {
        return legacy::verify(registry, digest, trust).await;
    }
    let mut last = String::new();
    for bundle in bundles {
        match bundle.verify(digest, trust) {
            Ok(()) => return Ok(()),
            Err(problem) => last = problem,
        }
    }
    Err(Error::NoMatch(last))
}
