//! Who a controller, or an object of its, is at a cloud: one value for all that log in anywhere with it.
//!
//! How a cloud is asked is `flux-remote`'s; with whose rights an object acts in a cluster is `crate::identity`'s.

use std::sync::Arc;

use flux_remote::cloud::{Account, AccountToken, CacheEvent, Cloud, Provider};
use flux_remote::transport::Transport;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};

use crate::identity;
use crate::reconcile::{Metrics, metrics};

/// As upstream tells a tenant that its namespace lacks the account it is held to.
const NO_DEFAULT_ACCOUNT: &str = "the specified default service account does not exist in the object namespace. your cluster is subject to multi-tenant workload identity lockdown, reach out to your cluster administrator for help";

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
        self.count_in(metrics::TOKEN_OPERATION, asker, event);
    }

    /// The same for what tokens are asked for in other operations than a plain reconcile.
    pub fn count_in(&self, operation: &str, asker: Asker<'_>, event: CacheEvent) {
        let event = match event {
            CacheEvent::Hit => "cache_hit",
            CacheEvent::Miss => "cache_miss",
        };
        let labels = [event, asker.kind, asker.name, asker.namespace, operation];
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
        let named = name.is_some();
        let name = name.or(self.default_service_account.as_deref());
        let Some(name) = name.filter(|_| self.object_level) else {
            return Ok(None);
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let failed = |error: kube::Error| {
            let cause = match error {
                kube::Error::Api(answer) if answer.code == 404 && !named => NO_DEFAULT_ACCOUNT.to_owned(),
                error => error.to_string(),
            };
            format!("failed to get service account '{namespace}/{name}': {cause}")
        };
        let object = api.get(name).await.map_err(failed)?;
        let annotations = object.metadata.annotations.unwrap_or_default();
        let audience = self
            .cloud
            .audience(provider, &annotations, transport)
            .await
            .map_err(|error| format!("failed to get provider audiences: {error}"))?;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let token = token_of(&api, &namespace, &name, audience);
        Ok(Some(Account { namespace, name, annotations, token }))
    }
}

fn token_of(api: &Api<ServiceAccount>, namespace: &str, name: &str, audience: String) -> AccountToken {
    let failed = format!("failed to create kubernetes token for service account '{namespace}/{name}'");
    let (api, name) = (api.clone(), name.to_owned());
    AccountToken::by(move || {
        let (api, name, audience, failed) = (api.clone(), name.clone(), audience.clone(), failed.clone());
        async move {
            let token = identity::token(&api, &name, vec![audience], None).await;
            token.map_err(|error| format!("{failed}: {error}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flux_remote::cloud::Environment;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_default_account_that_is_missing_is_told_as_the_lock_down_it_is() {
        let nothing_there = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let problem = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "serviceaccounts not found",
            });
            let body = kube::client::Body::from(problem.to_string().into_bytes());
            let mut answer = http::Response::new(body);
            *answer.status_mut() = http::StatusCode::NOT_FOUND;
            Ok::<_, std::io::Error>(answer)
        });
        let environment = Environment::for_tests(&[], "http://127.0.0.1:1");
        let identity = CloudIdentity {
            client: Client::new(nothing_there, "default"),
            cloud: Arc::new(Cloud::new(environment, 1, Duration::from_secs(1))),
            default_service_account: Some("tenant".to_owned()),
            object_level: true,
            metrics: Metrics::default(),
        };
        let transport = Transport::default();
        let problem = async |name: Option<&str>| {
            let account = identity.account("apps", Provider::Azure, name, &transport).await;
            account.err().unwrap_or_default()
        };
        let default = problem(None).await;
        assert!(default.starts_with("failed to get service account 'apps/tenant': "), "{default}");
        assert!(default.ends_with(NO_DEFAULT_ACCOUNT), "{default}");
        let named = problem(Some("own")).await;
        assert!(named.contains("'apps/own'") && !named.contains("lockdown"), "{named}");
    }
}
