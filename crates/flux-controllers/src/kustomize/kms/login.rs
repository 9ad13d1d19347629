//! Who a Kustomization is for a key service, where its Secret says nothing: the account it names, the one a flag names, or
//! this pod. And logins to Vault with a token of that account, at the places that a ConfigMap allows.

use flux_api::secret::SecretString;
use flux_remote::cloud::{self, Account, CacheEvent, Provider};
use flux_remote::transport::Transport;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use serde_json::{Value, json};

use super::super::kustomization::short;
use super::super::run::Run;
use super::{aws, read_yaml, send};
use crate::identity;

const CONFIG: &str = "config.yaml";

/// The account whose identity counts; `None` is this pod.
fn account_name(run: &Run<'_>) -> Option<String> {
    let named = run.object.spec.decryption.as_ref().and_then(|one| one.service_account_name.clone());
    let default = run.ctx.options.default_decryption_service_account.clone();
    named.or(default).filter(|_| run.ctx.options.gates.object_level_workload_identity)
}

async fn account_token(run: &Run<'_>, name: &str, audience: String) -> Result<SecretString, String> {
    let api: Api<ServiceAccount> = Api::namespaced(run.ctx.client.clone(), run.namespace());
    identity::token(&api, name, vec![audience], None).await.map_err(|error| {
        format!("no token for the ServiceAccount '{}/{name}': {}", run.namespace(), short(&error))
    })
}

async fn account(run: &Run<'_>, provider: Provider) -> Result<Option<Account>, String> {
    let named = run.object.spec.decryption.as_ref().and_then(|one| one.service_account_name.as_deref());
    run.ctx.identity.account(run.namespace(), provider, named, &Transport::default()).await
}

/// What was asked of a cloud, counted under upstream's name for it; what failed was not at hand either.
fn counted<T>(
    run: &Run<'_>,
    operation: &str,
    asked: Result<(T, CacheEvent), cloud::Error>,
) -> Result<T, String> {
    let event = asked.as_ref().map_or(CacheEvent::Miss, |(_, event)| *event);
    run.ctx.identity.count_in(operation, run.asker(), event);
    asked.map(|(value, _)| value).map_err(|error| error.to_string())
}

/// Keys for AWS in the region of the key.
pub(super) async fn aws_keys(run: &Run<'_>, region: &str) -> Result<aws::Credentials, String> {
    let account = account(run, Provider::Aws).await?;
    let transport = Transport::default();
    let cloud = &run.ctx.identity.cloud;
    let keys = cloud.aws_keys(Some(region), None, account.as_ref(), &transport, Timestamp::now()).await;
    counted(run, "decrypt_with_aws", keys).map(aws::Credentials::from)
}

/// A token of Azure or Google for `scope`.
pub(super) async fn token(run: &Run<'_>, provider: Provider, scope: &str) -> Result<String, String> {
    let account = account(run, provider).await?;
    let transport = Transport::default();
    let operation = match provider {
        Provider::Aws => "decrypt_with_aws",
        Provider::Azure => "decrypt_with_azure",
        Provider::Gcp => "decrypt_with_gcp",
    };
    let (cloud, now) = (&run.ctx.identity.cloud, Timestamp::now());
    let token = cloud.token_with_event(provider, scope, account.as_ref(), &transport, now).await;
    counted(run, operation, token).map(|token| token.expose().to_owned())
}

/// A token of the Vault at `address`, for a token of the account. Only where the flag's ConfigMap says so: an address in a
/// file of a tenant must not be able to collect tokens.
pub(super) async fn vault_token(
    run: &Run<'_>,
    http: &reqwest::Client,
    address: &str,
) -> Result<String, String> {
    let options = &run.ctx.options;
    let (Some(name), Some(namespace)) = (&options.sops_vault_config_map, &options.runtime_namespace) else {
        return Err(
            "no sops.vault-token at hand, and no --sops-vault-configmap that says where to log in".to_owned()
        );
    };
    let account = account_name(run)
        .ok_or("no sops.vault-token at hand, and no ServiceAccount to log in with (spec.decryption.serviceAccountName)")?;
    let api: Api<ConfigMap> = Api::namespaced(run.ctx.client.clone(), namespace);
    let place = format!("the ConfigMap '{namespace}/{name}' of --sops-vault-configmap");
    let map = api.get(name).await.map_err(|error| format!("{place} cannot be read: {}", short(&error)))?;
    let text = map.data.and_then(|mut data| data.remove(CONFIG));
    let text = text.ok_or_else(|| format!("{place} has no key {CONFIG}"))?;
    let path = login_path(&text, address).map_err(|problem| format!("{place}: {problem}"))?;
    // Its tokens are not kept: each is asked for anew.
    run.ctx.identity.count_in("decrypt_with_vault", run.asker(), CacheEvent::Miss);
    let jwt = account_token(run, &account, address.to_owned()).await?;
    log_in(http, address, &path, jwt.expose()).await
}

/// Where to log in at exactly this address.
fn login_path(config: &str, address: &str) -> Result<String, String> {
    let config = read_yaml(config.as_bytes())?;
    let instances = config.get("instances").and_then(Value::as_array).ok_or("it has no instances")?;
    let text = |one: &Value, key: &str| one.get(key).and_then(Value::as_str).map(str::to_owned);
    let found = instances.iter().find(|one| text(one, "address").as_deref() == Some(address));
    let found = found.ok_or_else(|| format!("the Vault '{address}' is not among its instances"))?;
    let path = text(found, "loginPath").filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| format!("the instance '{address}' has no loginPath"))?;
    let is_plain = |part: &str| {
        !part.is_empty()
            && part != ".."
            && part != "."
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let path = path.trim_matches('/').to_owned();
    if path.split('/').all(is_plain) { Ok(path) } else { Err(format!("loginPath '{path}' is no path")) }
}

async fn log_in(http: &reqwest::Client, address: &str, path: &str, jwt: &str) -> Result<String, String> {
    let role = role(jwt).ok_or("the account's token names no account")?;
    let url = format!("{}/v1/{path}", address.trim_end_matches('/'));
    let answer = send(http.post(url).json(&json!({ "role": role, "jwt": jwt }))).await?;
    let token = answer.pointer("/auth/client_token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| "the login was answered without a token".to_owned())
}

/// `<namespace>_<account>`, from the token itself: `system:serviceaccount:<namespace>:<account>`.
fn role(jwt: &str) -> Option<String> {
    use base64::Engine;
    let claims = jwt.split('.').nth(1)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let account = claims.get("sub")?.as_str()?.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    Some(format!("{namespace}_{name}"))
}

#[cfg(test)]
mod tests {
    use base64::Engine;

    use super::super::tests::fake;
    use super::*;

    #[tokio::test]
    async fn an_account_logs_in_under_its_own_name() {
        let (address, seen) = fake(200, json!({"auth": {"client_token": "s.lent"}})).await;
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .encode(json!({"sub": "system:serviceaccount:team-a:deployer"}).to_string());
        let jwt = format!("e30.{claims}.x");
        let http = super::super::client().unwrap();
        assert_eq!(log_in(&http, &address, "auth/kubernetes/login", &jwt).await.unwrap(), "s.lent");
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].0, "/v1/auth/kubernetes/login");
        let body: Value = serde_json::from_str(&seen[0].2).unwrap();
        assert_eq!(body["role"], "team-a_deployer");
        assert_eq!(body["jwt"], jwt);
    }

    #[test]
    fn only_listed_addresses_are_logged_in_to() {
        let config = "instances:\n- address: https://vault.example.org\n  loginPath: /auth/jwt/login\n- address: https://other\n";
        assert_eq!(login_path(config, "https://vault.example.org").unwrap(), "auth/jwt/login");
        for address in ["https://vault.example.org/", "https://evil.example", "https://other"] {
            assert!(login_path(config, address).is_err(), "{address}");
        }
        let outside = "instances: [{address: a, loginPath: ../sys/seal}]";
        assert!(login_path(outside, "a").is_err());
    }
}
