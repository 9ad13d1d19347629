//! Tokens of clouds for Providers that log in to one: of the ServiceAccount that the Provider names, or of the machine.

use flux_api::Object;
use flux_api::notification::{Provider, ProviderType};
use flux_remote::cloud;
use flux_remote::transport::Transport;
use k8s_openapi::jiff::Timestamp;

use super::provider::Settings;
use crate::source::cloud::CloudIdentity;

const EVENT_HUBS: &str = "https://eventhubs.azure.net/.default";
/// Azure DevOps, by the number that Entra knows it under.
const AZURE_DEVOPS: &str = "499b84ac-1321-427f-aa17-267ca6975798/.default";

/// Which cloud is asked for what; nothing where the type knows none or its Secret says all.
fn wanted(settings: &Settings) -> Option<(cloud::Provider, &'static str)> {
    if !settings.token.expose().is_empty() {
        return None;
    }
    match settings.provider_type {
        ProviderType::AzureEventHub if !settings.address.contains("SharedAccessKey") => {
            Some((cloud::Provider::Azure, EVENT_HUBS))
        }
        ProviderType::AzureDevOps => Some((cloud::Provider::Azure, AZURE_DEVOPS)),
        ProviderType::GooglePubSub => Some((cloud::Provider::Gcp, "")),
        _ => None,
    }
}

/// Adds the token, where one is wanted.
pub async fn add(
    identity: &CloudIdentity,
    provider: &Provider,
    settings: &mut Settings,
) -> Result<(), String> {
    let Some((cloud, scope)) = wanted(settings) else { return Ok(()) };
    // A client certificate is for the service, not for the one who gives out tokens.
    let transport = Transport { proxy: settings.transport.proxy.clone(), ..Transport::default() };
    let account = provider.spec.service_account_name.as_deref();
    let account = identity.account(provider.namespace(), cloud, account, &transport).await?;
    let token = identity.cloud.token(cloud, scope, account.as_ref(), &transport, Timestamp::now()).await;
    settings.identity = token.map_err(|error| format!("failed to get provider credential: {error}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        provider_type: ProviderType,
        address: &str,
        token: &str,
    ) -> Option<(cloud::Provider, &'static str)> {
        let mut settings = Settings::new(provider_type);
        settings.address = address.to_owned();
        settings.token = token.to_owned().into();
        wanted(&settings)
    }

    #[test]
    fn a_cloud_is_asked_only_where_the_secret_says_nothing() {
        let azure = cloud::Provider::Azure;
        assert_eq!(of(ProviderType::AzureEventHub, "hub", ""), Some((azure, EVENT_HUBS)));
        assert_eq!(of(ProviderType::AzureEventHub, "hub", "jwt"), None);
        assert_eq!(of(ProviderType::AzureEventHub, "Endpoint=sb://x/;SharedAccessKey=k", ""), None);
        assert_eq!(of(ProviderType::AzureDevOps, "https://dev.azure.com/a", ""), Some((azure, AZURE_DEVOPS)));
        assert_eq!(of(ProviderType::AzureDevOps, "https://dev.azure.com/a", "pat"), None);
        assert_eq!(of(ProviderType::GooglePubSub, "project", ""), Some((cloud::Provider::Gcp, "")));
        assert_eq!(of(ProviderType::Slack, "https://x", ""), None);
    }

    /// An API server that knows one ServiceAccount and makes tokens for it.
    fn client() -> kube::Client {
        let answer = |request: http::Request<kube::client::Body>| async move {
            let body = match request.method() {
                &http::Method::POST => serde_json::json!({
                    "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [] },
                    "status": { "token": "canary-kubernetes", "expirationTimestamp": "2099-01-01T00:00:00Z" },
                }),
                _ => serde_json::json!({
                    "apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": { "name": "sender", "namespace": "apps", "annotations": {
                        "azure.workload.identity/tenant-id": "tenant", "azure.workload.identity/client-id": "client",
                    } },
                }),
            };
            let body = kube::client::Body::from(serde_json::to_vec(&body).unwrap_or_default());
            Ok::<_, std::io::Error>(http::Response::new(body))
        };
        kube::Client::new(tower::service_fn(answer), "apps")
    }

    #[tokio::test]
    async fn hubs_and_topics_are_reached_as_a_machine_or_a_service_account() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let token = |name: &'static str| {
            let answer = serde_json::json!({ "access_token": name, "expires_in": 3600 });
            axum::routing::any(async move || axum::Json(answer))
        };
        let router = axum::Router::new()
            .route("/imds", token("imds"))
            .route("/entra", token("entra"))
            .route("/google-sts", token("exchanged"))
            .route("/metadata/instance/service-accounts/default/token", token("machine"))
            .fallback(async || "x");
        tokio::spawn(async move { axum::serve(listener, router).await });
        let environment = cloud::Environment::for_tests(&[], &base);
        let hour = std::time::Duration::from_secs(3600);
        let identity = |object_level: bool| CloudIdentity {
            client: client(),
            cloud: std::sync::Arc::new(cloud::Cloud::new(environment.clone(), 10, hour)),
            default_service_account: None,
            object_level,
            metrics: Default::default(),
        };
        for (provider_type, address, account, object_level, expected) in [
            ("azureeventhub", "hub", None, true, "imds"),
            ("azureeventhub", "hub", Some("sender"), true, "entra"),
            ("azureeventhub", "hub", Some("sender"), false, "imds"),
            ("googlepubsub", "project", None, true, "machine"),
            ("googlepubsub", "project", Some("sender"), true, "exchanged"),
            ("azuredevops", "https://dev.azure.com/o/p/_git/r", Some("sender"), true, "entra"),
            ("slack", "https://x", Some("sender"), true, ""),
        ] {
            let provider: Provider = serde_json::from_value(serde_json::json!({
                "metadata": { "name": "p", "namespace": "apps" },
                "spec": { "type": provider_type, "address": address, "serviceAccountName": account },
            }))
            .unwrap();
            let mut settings = Settings::new(provider.spec.provider_type);
            settings.address = address.to_owned();
            add(&identity(object_level), &provider, &mut settings).await.unwrap();
            assert_eq!(settings.identity.expose(), expected, "{provider_type} {account:?}");
        }
        let nowhere = cloud::Environment::for_tests(&[], "http://127.0.0.1:1");
        let lost = CloudIdentity {
            cloud: std::sync::Arc::new(cloud::Cloud::new(nowhere, 10, hour)),
            ..identity(true)
        };
        let provider: Provider = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "p", "namespace": "apps" },
            "spec": { "type": "azureeventhub", "address": "hub", "serviceAccountName": "sender" },
        }))
        .unwrap();
        let mut settings = Settings::new(ProviderType::AzureEventHub);
        settings.address = "hub".to_owned();
        let error = add(&lost, &provider, &mut settings).await.unwrap_err();
        assert!(
            error.starts_with("failed to get provider credential: ") && !error.contains("canary"),
            "{error}"
        );
    }
}
