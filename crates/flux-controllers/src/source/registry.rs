//! Logging in to a registry as an object says: pull secrets, else the identity of the cloud it runs in.

use flux_api::source::{CloudProvider, HelmRepositorySpec};
use flux_remote::cloud::{CacheEvent, Provider};
use flux_remote::oci::{Credentials, Registry, Repository};
use flux_remote::transport::Transport;
use k8s_openapi::jiff::Timestamp;

use super::Context;
use super::access::{self, Secrets};
use super::cloud::{Asker, CloudIdentity};

/// The registry behind a HelmRepository of type `oci`, for the chart at `place`.
pub async fn for_charts(
    ctx: &Context,
    secrets: Secrets<'_>,
    spec: &HelmRepositorySpec,
    place: &str,
    asker: Asker<'_>,
) -> Result<Registry, String> {
    let repository = Repository::parse(place, spec.insecure)
        .map_err(|error| format!("failed to construct Helm client: {error}"))?;
    let mut transport =
        Transport { skip_verify: spec.insecure && spec.cert_secret_ref.is_none(), ..Transport::default() };
    if let Some(reference) = &spec.cert_secret_ref {
        let tls = secrets
            .transport(Some(reference), None)
            .await
            .map_err(|error| format!("failed to construct Helm client's TLS config: {error}"))?;
        (transport.ca, transport.client_certificate) = (tls.ca, tls.client_certificate);
    }
    let credentials = match &spec.secret_ref {
        Some(reference) => {
            let data = access::auth_secret(secrets, reference).await?;
            if spec.cert_secret_ref.is_none() && data.has_tls() {
                data.add_tls(&mut transport)
                    .map_err(|error| format!("failed to detect authentication methods: {error}"))?;
            }
            data.chart_registry_login(repository.registry(), repository.name())
                .map_err(|error| format!("failed to configure OCI registry authentication: {error}"))?
        }
        None => cloud(&ctx.identity, asker, spec.provider(), &repository, None, &transport)
            .await
            .map_err(|error| format!("failed to get credential from '{}': {error}", spec.provider()))?,
    };
    Registry::new(repository, &transport, credentials)
        .map_err(|error| format!("failed to construct Helm client: {error}"))
}

/// Credentials from the cloud, where a provider is named.
pub async fn cloud(
    identity: &CloudIdentity,
    asker: Asker<'_>,
    provider: CloudProvider,
    repository: &Repository,
    service_account: Option<&str>,
    transport: &Transport,
) -> Result<Option<Credentials>, String> {
    let provider = match provider {
        CloudProvider::Generic => return Ok(None),
        CloudProvider::Aws => Provider::Aws,
        CloudProvider::Azure => Provider::Azure,
        CloudProvider::Gcp => Provider::Gcp,
    };
    // A client certificate is for the registry, not for a cloud's token server.
    let transport = Transport { proxy: transport.proxy.clone(), ..Transport::default() };
    let account = identity.account(asker.namespace, provider, service_account, &transport).await?;
    let found = identity
        .cloud
        .registry_with_event(provider, repository, account.as_ref(), &transport, Timestamp::now())
        .await
        .inspect_err(|_| identity.count(asker, CacheEvent::Miss));
    let (credentials, event) = found.map_err(|error| error.to_string())?;
    identity.count(asker, event);
    Ok(Some(credentials))
}
