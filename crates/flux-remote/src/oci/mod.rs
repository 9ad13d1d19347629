//! Container registries: tags, manifests, layers, signatures beside them, and pushing.
//!
//! ```text
//! let repository = Repository::parse("ghcr.io/org/app", Insecure::No)?;
//! let registry = Registry::new(repository, &transport, credentials)?;
//! let digest = registry.resolve("v1.0.0").await?;
//! ```
//!
//! Whatever comes is compared with its digest. Credentials reach the registry and its token server, nobody else.

mod artifact;
mod challenge;
mod credentials;
mod digest;
mod error;
mod manifest;
mod push;
mod registry;
mod repository;
mod token;

pub use artifact::{
    ArtifactLayer, CHART_CONFIG, CHART_LAYER, FLUX_CONFIG, FLUX_CONTENT, HELM_TAG_METADATA, chart_tag,
    chart_version,
};
pub use credentials::{Credentials, DockerConfig, DockerConfigError};
pub use digest::{Digest, DigestError};
pub use error::Error;
pub use manifest::{Descriptor, Index, Manifest, Platform};
pub(crate) use registry::body as limited_body;
pub use registry::{Fetched, Limits, Registry};
pub use repository::{Repository, RepositoryError};
