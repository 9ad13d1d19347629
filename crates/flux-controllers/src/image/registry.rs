//! The registry of an ImageRepository, logged in as the object says.
//!
//! Unlike for an OCIRepository, a cloud provider wins over pull secrets, and `insecure` means plain HTTP only.

use flux_api::image::ImageRepositorySpec;
use flux_api::source::CloudProvider;
use flux_remote::oci::{Registry, Repository};

use crate::source::access::{self, Secrets};
use crate::source::cloud::{Asker, CloudIdentity};
use crate::source::registry;

pub async fn connect(
    identity: &CloudIdentity,
    asker: Asker<'_>,
    spec: &ImageRepositorySpec,
    repository: Repository,
) -> Result<Registry, String> {
    let secrets = Secrets { client: &identity.client, namespace: asker.namespace };
    let transport = secrets.transport(spec.cert_secret_ref.as_ref(), spec.proxy_secret_ref.as_ref()).await;
    let transport = transport.map_err(words)?;
    let account = spec.service_account_name.as_deref();
    let credentials = match spec.provider() {
        CloudProvider::Generic => {
            let found = secrets.pull_secrets(spec.secret_ref.as_ref(), account).await.map_err(words)?;
            found.and_then(|config| config.find(repository.registry(), repository.name()).cloned())
        }
        provider => registry::cloud(identity, asker, provider, &repository, account, &transport).await?,
    };
    Registry::new(repository, &transport, credentials).map_err(|error| error.to_string())
}

/// A Secret that is not there, as the API server says it.
fn words(error: access::Error) -> String {
    match error {
        access::Error::NoSecret(id) => {
            format!("secrets \"{}\" not found", id.rsplit('/').next().unwrap_or_default())
        }
        other => other.to_string(),
    }
}
