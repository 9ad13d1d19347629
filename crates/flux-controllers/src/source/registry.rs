//! Logging in to a registry as an object says: pull secrets, else the identity of the cloud it runs in.

use flux_api::secret::SecretString;
use flux_api::source::{CloudProvider, HelmRepositorySpec};
use flux_remote::cloud::{Account, Cloud, Provider};
use flux_remote::oci::{Credentials, Registry, Repository};
use flux_remote::transport::Transport;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};

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

/// Who a controller is at a cloud.
pub struct Identity<'a> {
    pub client: &'a Client,
    pub cloud: &'a Cloud,
    /// For objects that name nobody.
    pub default_service_account: Option<&'a str>,
    pub object_level_workload_identity: bool,
}

impl Context {
    pub(super) fn identity(&self) -> Identity<'_> {
        Identity {
            client: &self.client,
            cloud: &self.cloud,
            default_service_account: self.options.default_service_account.as_deref(),
            object_level_workload_identity: self.object_level_workload_identity,
        }
    }
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
    cloud_as(&ctx.identity(), namespace, provider, repository, service_account, transport).await
}

/// The same for any controller.
pub async fn cloud_as(
    identity: &Identity<'_>,
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
    let account = account_as(identity, namespace, provider, service_account, &transport).await?;
    let found =
        identity.cloud.registry(provider, repository, account.as_ref(), &transport, Timestamp::now()).await;
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
    account_as(&ctx.identity(), namespace, provider, name, transport).await
}

async fn account_as(
    identity: &Identity<'_>,
    namespace: &str,
    provider: Provider,
    name: Option<&str>,
    transport: &Transport,
) -> Result<Option<Account>, String> {
    let name = name.or(identity.default_service_account);
    let Some(name) = name.filter(|_| identity.object_level_workload_identity) else {
        return Ok(None);
    };
    let api: Api<ServiceAccount> = Api::namespaced(identity.client.clone(), namespace);
    let failed = |error: kube::Error| format!("failed to get service account '{namespace}/{name}': {error}");
    let object = api.get(name).await.map_err(failed)?;
    let annotations = object.metadata.annotations.unwrap_or_default();
    let audience = identity
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
