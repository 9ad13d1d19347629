//! Who a controller, or an object of its, is at a cloud: one value for all that log in anywhere with it.
//!
//! How a cloud is asked is `flux-remote`'s; with whose rights an object acts in a cluster is `crate::identity`'s.

use std::sync::Arc;

use flux_api::secret::SecretString;
use flux_remote::cloud::{Account, CacheEvent, Cloud, Provider};
use flux_remote::transport::Transport;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::reconcile::{Metrics, metrics};

/// Who a controller is at clouds.
#[derive(Clone)]
pub struct CloudIdentity {
    pub client: Client,
    /// The clouds, with the tokens they gave out.
    pub cloud: Arc<Cloud>,
    /// For objects that name nobody.
    pub default_service_account: Option<String>,
    /// Whether objects may name a ServiceAccount to log in with.
    pub object_level: bool,
    pub metrics: Metrics,
}

/// The object that a token is for; counted under its name.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub kind: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl CloudIdentity {
    pub fn count(&self, asker: Asker<'_>, event: CacheEvent) {
        let event = match event {
            CacheEvent::Hit => "cache_hit",
            CacheEvent::Miss => "cache_miss",
        };
        let labels = [event, asker.kind, asker.name, asker.namespace, metrics::TOKEN_OPERATION];
        self.metrics.add(&metrics::TOKEN_CACHE_EVENTS, &labels, 1.0);
    }

    /// The ServiceAccount that an object names, or the one for those that name none, with a token of its own.
    pub async fn account(
        &self,
        namespace: &str,
        provider: Provider,
        name: Option<&str>,
        transport: &Transport,
    ) -> Result<Option<Account>, String> {
        let name = name.or(self.default_service_account.as_deref());
        let Some(name) = name.filter(|_| self.object_level) else {
            return Ok(None);
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let failed =
            |error: kube::Error| format!("failed to get service account '{namespace}/{name}': {error}");
        let object = api.get(name).await.map_err(failed)?;
        let annotations = object.metadata.annotations.unwrap_or_default();
        let audience = self
            .cloud
            .audience(provider, &annotations, transport)
            .await
            .map_err(|error| format!("failed to get provider audiences: {error}"))?;
        let request = TokenRequest {
            spec: TokenRequestSpec { audiences: vec![audience], ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let answer =
            api.create_token_request(name, &PostParams::default(), &request).await.map_err(|error| {
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
}
