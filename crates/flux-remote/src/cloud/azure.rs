//! Azure: a token from Entra, and a registry's login from the token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flux_api::secret::SecretString;
use jiff::Timestamp;
use serde::Deserialize;

use super::azure_login::{AzureLogin, STATEMENT_KIND};
use super::{Account, Environment, Error, Token, json};
use crate::oci::Credentials;
use crate::transport::Transport;

const PATTERN: &str = r"^.+\.(azurecr\.io|azurecr\.cn|azurecr\.de|azurecr\.us)$";
const TENANT: &str = "azure.workload.identity/tenant-id";
const CLIENT: &str = "azure.workload.identity/client-id";
/// What a login to a registry says instead of a user's name.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

pub(super) async fn registry(
    env: &Environment,
    registry: &str,
    account: Option<&Account>,
    transport: &Transport,
    now: Timestamp,
) -> Result<(Credentials, Timestamp), Error> {
    #[derive(Deserialize)]
    struct Answer {
        refresh_token: String,
    }
    let known = ["azurecr.io", "azurecr.cn", "azurecr.de", "azurecr.us"];
    let is_known = registry.split_once('.').is_some_and(|(name, rest)| {
        !name.is_empty()
            && known.iter().any(|suffix| rest == *suffix || rest.ends_with(&format!(".{suffix}")))
    });
    if !is_known {
        return Err(Error::Registry { provider: "Azure", registry: registry.to_owned(), pattern: PATTERN });
    }
    let scope = match registry.rsplit('.').next() {
        Some("cn") => "https://management.chinacloudapi.cn/.default",
        Some("us") => "https://management.usgovcloudapi.net/.default",
        _ => "https://containerregistry.azure.net/.default",
    };
    let token = token(env, scope, account, transport, now).await?;
    let url = env.url("acr", format!("https://{registry}/oauth2/exchange"));
    let form =
        [("grant_type", "access_token"), ("service", registry), ("access_token", token.value.expose())];
    let what = "logging in to the registry";
    let answer: Answer = json(client(transport)?.post(url).form(&form), what).await?;
    let expires = expiry(&answer.refresh_token).unwrap_or(now);
    let password = SecretString::new(answer.refresh_token);
    Ok((Credentials::Basic { username: NOBODY.to_owned(), password }, expires))
}

/// The service that Azure DevOps is.
const DEVOPS: &str = "499b84ac-1321-427f-aa17-267ca6975798/.default";

/// A token for repositories at Azure DevOps.
pub(super) async fn git_token(
    env: &Environment,
    account: Option<&Account>,
    transport: &Transport,
    now: Timestamp,
) -> Result<Token, Error> {
    token(env, DEVOPS, account, transport, now).await
}

/// A token for `scope`, of the account or of the pod we run in.
pub(super) async fn token(
    env: &Environment,
    scope: &str,
    account: Option<&Account>,
    transport: &Transport,
    now: Timestamp,
) -> Result<Token, Error> {
    if let Some(account) = account {
        let annotation = |name: &str| {
            account.annotations.get(name).filter(|value| is_tenant(value)).ok_or_else(|| {
                Error::Configuration(format!(
                    "azure tenant and client ID are required: the annotation {name} is missing or no id"
                ))
            })
        };
        let (tenant, client) = (annotation(TENANT)?, annotation(CLIENT)?);
        let token = account.token.ask().await?;
        return exchange(env, tenant, client, &token, scope, transport, now).await;
    }
    let (tenant, client) = (env.get("AZURE_TENANT_ID"), env.get("AZURE_CLIENT_ID"));
    if let (Some(tenant), Some(client)) = (tenant, client) {
        if let Some(login) = login_of_the_pod(env, tenant, client)? {
            return login.token(env, scope, transport, now).await;
        }
        if let Some(token) = env.file("AZURE_FEDERATED_TOKEN_FILE")? {
            return exchange(env, tenant, client, &token, scope, transport, now).await;
        }
    }
    machine_token(env, scope, client, transport, now).await
}

/// An application whose password or certificate the pod was started with.
fn login_of_the_pod(env: &Environment, tenant: &str, client: &str) -> Result<Option<AzureLogin>, Error> {
    let (tenant, client) = (tenant.to_owned(), client.to_owned());
    if let Some(password) = env.get("AZURE_CLIENT_SECRET") {
        return Ok(Some(AzureLogin::with_password(tenant, client, SecretString::new(password.to_owned()))));
    }
    let variable = "AZURE_CLIENT_CERTIFICATE_PATH";
    let Some(path) = env.get(variable) else { return Ok(None) };
    let pem =
        std::fs::read(path).map_err(|error| Error::Configuration(format!("{variable}: {path}: {error}")))?;
    let sends_chain = env.get("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN").is_some_and(is_yes);
    AzureLogin::with_certificate(tenant, client, &pem, sends_chain).map(Some)
}

/// As Azure's libraries read a flag.
pub(super) fn is_yes(text: &str) -> bool {
    text == "1" || text.eq_ignore_ascii_case("true")
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    expires_in: serde_json::Value,
}

impl Granted {
    fn token(self, now: Timestamp) -> Token {
        // A number from Entra, a text from the metadata server.
        let seconds =
            self.expires_in.as_u64().or_else(|| self.expires_in.as_str()?.parse().ok()).unwrap_or(0);
        Token {
            value: SecretString::new(self.access_token),
            expires: now + std::time::Duration::from_secs(seconds.min(86_400)),
        }
    }
}

async fn exchange(
    env: &Environment,
    tenant: &str,
    client_id: &str,
    assertion: &SecretString,
    scope: &str,
    transport: &Transport,
    now: Timestamp,
) -> Result<Token, Error> {
    let address = format!("{}/{tenant}/oauth2/v2.0/token", env.authority(None));
    let proof = [
        ("client_assertion_type".to_owned(), SecretString::new(STATEMENT_KIND.to_owned())),
        ("client_assertion".to_owned(), assertion.clone()),
    ];
    entra(&env.url("entra", address), client_id, &proof, scope, transport, now).await
}

/// Asks Entra at `address` for a token, with whatever proves who asks.
pub(super) async fn entra(
    address: &str,
    client_id: &str,
    proof: &[(String, SecretString)],
    scope: &str,
    transport: &Transport,
    now: Timestamp,
) -> Result<Token, Error> {
    let mut form = vec![("grant_type", "client_credentials"), ("client_id", client_id), ("scope", scope)];
    form.extend(proof.iter().map(|(name, value)| (name.as_str(), value.expose().as_str())));
    // A proof is for Entra and for nobody whom it may point to.
    let direct = Transport { no_redirects: true, ..transport.clone() };
    let request = client(&direct)?.post(address).form(&form);
    let granted: Granted = json(request, "asking Entra for a token").await?;
    Ok(granted.token(now))
}

/// The machine's own identity, or one of several, from its metadata server.
pub(super) async fn machine_token(
    env: &Environment,
    scope: &str,
    client_id: Option<&str>,
    transport: &Transport,
    now: Timestamp,
) -> Result<Token, Error> {
    let direct = Transport { proxy: None, ..transport.clone() };
    let resource = scope.trim_end_matches("/.default");
    let url = env.url("imds", "http://169.254.169.254/metadata/identity/oauth2/token".to_owned());
    let mut query = vec![("api-version", "2018-02-01"), ("resource", resource)];
    query.extend(client_id.map(|id| ("client_id", id)));
    let request = client(&direct)?.get(url).query(&query).header("metadata", "true");
    let granted: Granted = json(request, "asking the metadata server").await?;
    Ok(granted.token(now))
}

fn client(transport: &Transport) -> Result<reqwest::Client, Error> {
    transport.client().map_err(|error| Error::Configuration(error.to_string()))
}

/// Ids and domains go into addresses: letters, digits, hyphens, and dots that do not lead upwards.
pub(super) fn is_tenant(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    text.bytes().all(allowed) && text.bytes().any(|byte| byte != b'.')
}

/// When a token that is a JWT runs out; its signature is not ours to check.
fn expiry(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}
