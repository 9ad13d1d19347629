//! Google: a token from the metadata server or from an exchange, which is a registry's login as it is.

use std::collections::BTreeMap;

use flux_api::secret::SecretString;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::google_key::GoogleKey;
use super::{Account, Environment, Error, Token, text};
use crate::oci::Credentials;
use crate::transport::Transport;

const PATTERN: &str = r"^(((.+\.)?gcr\.io)|(.+-docker\.pkg\.dev)|(docker\.s3nsregistry\.fr))$";
const EMAIL: &str = "iam.gke.io/gcp-service-account";
const WORKLOAD_PROVIDER: &str = "gcp.auth.fluxcd.io/workload-identity-provider";
/// Shorter than the hour that Google gives for a key.
const KEY_LASTS: std::time::Duration = std::time::Duration::from_secs(3000);
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

pub(super) async fn registry(
    env: &Environment,
    registry: &str,
    account: Option<&Account>,
    transport: &Transport,
    now: Timestamp,
) -> Result<(Credentials, Timestamp), Error> {
    let is_known = registry == "gcr.io"
        || registry.ends_with(".gcr.io")
        || registry.ends_with("-docker.pkg.dev")
        || registry == "docker.s3nsregistry.fr";
    if !is_known {
        return Err(Error::Registry { provider: "GCP", registry: registry.to_owned(), pattern: PATTERN });
    }
    let token = token(env, account, transport, now).await?;
    Ok((
        Credentials::Basic { username: "oauth2accesstoken".to_owned(), password: token.value },
        token.expires,
    ))
}

/// A token of the account, or of the pod we run in.
pub(super) async fn token(
    env: &Environment,
    account: Option<&Account>,
    transport: &Transport,
    now: Timestamp,
) -> Result<Token, Error> {
    if let Some(account) = account {
        return exchange(env, account, transport, now).await;
    }
    // As Google's libraries do: a file that a variable names goes before the machine.
    let variable = "GOOGLE_APPLICATION_CREDENTIALS";
    let Some(path) = env.get(variable) else { return machine_token(env, transport, now).await };
    let wrong = |problem: String| Error::Configuration(format!("{variable}: {path}: {problem}"));
    let file = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let key = GoogleKey::read(&file).map_err(|error| wrong(error.to_string()))?;
    let direct = Transport { no_redirects: true, ..transport.clone() };
    let value = key.token(&client(&direct)?, SCOPE, now).await?;
    Ok(Token { value, expires: now + KEY_LASTS })
}

/// Whom a ServiceAccount's token has to be for: the cluster's pool, or a provider that an annotation names.
pub(super) async fn audience(
    env: &Environment,
    annotations: &BTreeMap<String, String>,
    transport: &Transport,
) -> Result<String, Error> {
    if let Some(provider) = workload_provider(annotations)? {
        return Ok(provider);
    }
    let project = metadata(env, "project/project-id", transport).await?;
    Ok(format!("{project}.svc.id.goog"))
}

/// `projects/…/providers/…` as an audience.
fn workload_provider(annotations: &BTreeMap<String, String>) -> Result<Option<String>, Error> {
    let Some(provider) = annotations.get(WORKLOAD_PROVIDER) else { return Ok(None) };
    let parts: Vec<&str> = provider.split('/').collect();
    match parts.as_slice() {
        ["projects", number, "locations", "global", "workloadIdentityPools", pool, "providers", name]
            if number.bytes().all(|byte| byte.is_ascii_digit()) && !pool.is_empty() && !name.is_empty() =>
        {
            Ok(Some(format!("//iam.googleapis.com/{provider}")))
        }
        _ => Err(Error::Configuration(format!("invalid {WORKLOAD_PROVIDER} annotation: '{provider}'"))),
    }
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    expires_in: u64,
}

impl Granted {
    fn token(self, now: Timestamp) -> Token {
        let seconds = self.expires_in.min(86_400);
        Token {
            value: SecretString::new(self.access_token),
            expires: now + std::time::Duration::from_secs(seconds),
        }
    }
}

async fn exchange(
    env: &Environment,
    account: &Account,
    transport: &Transport,
    now: Timestamp,
) -> Result<Token, Error> {
    let audience = match workload_provider(&account.annotations)? {
        Some(provider) => provider,
        None => {
            let project = metadata(env, "project/project-id", transport).await?;
            let cluster = metadata(env, "instance/attributes/cluster-name", transport).await?;
            let location = metadata(env, "instance/attributes/cluster-location", transport).await?;
            let cluster = format!(
                "https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{cluster}"
            );
            format!("identitynamespace:{project}.svc.id.goog:{cluster}")
        }
    };
    let client = client(transport)?;
    let token = account.token.ask().await?;
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", audience.as_str()),
        ("scope", SCOPE),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("subject_token", token.expose()),
    ];
    let url = env.url("google-sts", "https://sts.googleapis.com/v1/token".to_owned());
    let granted: Granted = super::json(client.post(url).form(&form), "exchanging the token").await?;
    let token = granted.token(now);
    let Some(email) = account.annotations.get(EMAIL).filter(|email| !email.is_empty()) else {
        return Ok(token);
    };
    impersonate(env, email, &token, &client, now).await
}

/// The token of another account that this one may act as.
async fn impersonate(
    env: &Environment,
    email: &str,
    token: &Token,
    client: &reqwest::Client,
    now: Timestamp,
) -> Result<Token, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Impersonated {
        access_token: String,
        expire_time: String,
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    if !email.chars().all(allowed) || !email.contains('@') {
        return Err(Error::Configuration(format!("invalid {EMAIL} annotation: '{email}' is no address")));
    }
    let address = format!(
        "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{email}:generateAccessToken"
    );
    let request = client
        .post(env.url("google-iam", address))
        .bearer_auth(token.value.expose())
        .json(&json!({ "scope": [SCOPE], "lifetime": "3600s" }));
    let found: Impersonated = super::json(request, "impersonating the service account").await?;
    let expires = found.expire_time.parse().unwrap_or(now);
    Ok(Token { value: SecretString::new(found.access_token), expires })
}

/// The machine's own identity.
async fn machine_token(env: &Environment, transport: &Transport, now: Timestamp) -> Result<Token, Error> {
    let answer = metadata(env, "instance/service-accounts/default/token", transport).await?;
    let granted: Granted = serde_json::from_str(&answer).map_err(|_| Error::Answer {
        what: "asking the metadata server",
        problem: "an answer that is not understood".to_owned(),
    })?;
    Ok(granted.token(now))
}

async fn metadata(env: &Environment, path: &str, transport: &Transport) -> Result<String, Error> {
    let direct = Transport { proxy: None, ..transport.clone() };
    let host = env.get("GCE_METADATA_HOST").unwrap_or("metadata.google.internal");
    let url = match &env.base {
        Some(base) => format!("{base}/metadata/{path}"),
        None => format!("http://{host}/computeMetadata/v1/{path}"),
    };
    let request = client(&direct)?.get(url).header("metadata-flavor", "Google");
    Ok(text(request, "asking the metadata server").await?.trim().to_owned())
}

fn client(transport: &Transport) -> Result<reqwest::Client, Error> {
    transport.client().map_err(|error| Error::Configuration(error.to_string()))
}
