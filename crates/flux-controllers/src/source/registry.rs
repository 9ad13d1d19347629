//! Logging in to a registry as an object says: pull secrets, else the identity of the cloud it runs in.

use flux_api::secret::SecretString;
use flux_api::source::{CloudProvider, HelmRepositorySpec};
use flux_remote::cloud::{Account, Provider};
use flux_remote::oci::{Credentials, Registry, Repository};
use flux_remote::transport::Transport;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use super::Context;
use super::access::{self, Secrets};

/// The registry behind a HelmRepository of type `oci`, for the chart at `place`.
pub async fn for_charts(
    ctx: &Context,
    secrets: Secrets<'_>,
    spec: &HelmRepositorySpec,
    place: &str,
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
        None => cloud(ctx, secrets.namespace, spec.provider(), &repository, None, &transport)
            .await
            .map_err(|error| format!("failed to get credential from '{}': {error}", spec.provider()))?,
    };
    Registry::new(repository, &transport, credentials)
        .map_err(|error| format!("failed to construct Helm client: {error}"))
}

/// Credentials from the cloud, where a provider is named.
pub async fn cloud(
    ctx: &Context,
    namespace: &str,
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
    let account = account(ctx, namespace, provider, service_account, &transport).await?;
    let found =
        ctx.cloud.registry(provider, repository, account.as_ref(), &transport, Timestamp::now()).await;
    found.map(Some).map_err(|error| error.to_string())
}

/// The ServiceAccount that an object names, or the one for those that name none, with a token of its own.
pub async fn account(
    ctx: &Context,
    namespace: &str,
    provider: Provider,
    name: Option<&str>,
    transport: &Transport,
) -> Result<Option<Account>, String> {
    let default = ctx.options.default_service_account.as_deref();
    let Some(name) = name.or(default).filter(|_| ctx.object_level_workload_identity) else {
        return Ok(None);
    };
    let api: Api<ServiceAccount> = Api::namespaced(ctx.client.clone(), namespace);
    let failed = |error: kube::Error| format!("failed to get service account '{namespace}/{name}': {error}");
    let object = api.get(name).await.map_err(failed)?;
    let annotations = object.metadata.annotations.unwrap_or_default();
    let audience = ctx
        .cloud
        .audience(provider, &annotations, transport)
        .await
        .map_err(|error| format!("failed to get provider audiences: {error}"))?;
    let request = TokenRequest {
        spec: TokenRequestSpec { audiences: vec![audience], ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = api.create_token_request(name, &PostParams::default(), &request).await.map_err(|error| {
        format!("failed to create kubernetes token for service account '{namespace}/{name}': {error}")
    })?;
    let token = answer.status.map(|status| status.token).unwrap_or_default();
    Ok(Some(Account {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        annotations,
        token: SecretString::new(token),
    }))
}
