//! Keys that a key service unwraps: AWS KMS, Azure Key Vault, Google Cloud KMS, and the transit engine of Vault or OpenBao,
//! each with the credentials of the Kustomization's own Secret, or with the identity that it or this pod has.
//!
//! Requests follow no redirect: credentials stay with the host they were meant for.

mod aws;
mod azure;
mod gcp;
mod login;
mod vault;

use std::time::Duration;

use flux_build::decrypt::Keyring;
use flux_remote::cloud::Provider;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use sops::{KeyPart, Recipient};

use super::run::Run;

const TIMEOUT: Duration = Duration::from_secs(15);
/// What a key service answers is small.
const LARGEST: usize = 1 << 20;

/// Credentials for key services. They cannot be printed.
#[derive(Default)]
pub(super) struct ServiceKeys {
    vault_token: Option<String>,
    aws: Option<aws::Credentials>,
    azure: Option<azure::Credentials>,
    gcp: Option<gcp::Credentials>,
}

impl ServiceKeys {
    /// Takes a key of the decryption Secret, if it is one of a key service; the public name of the identity.
    pub(super) fn import(&mut self, name: &str, value: &[u8]) -> Result<Option<String>, String> {
        let text = || std::str::from_utf8(value).map_err(|_| "it is not text".to_owned());
        match name {
            "sops.vault-token" => {
                self.vault_token = Some(text()?.trim().to_owned());
                Ok(Some("Vault token".to_owned()))
            }
            "sops.aws-kms" => {
                let credentials = aws::Credentials::read(value)?;
                let name = credentials.name();
                self.aws = Some(credentials);
                Ok(Some(name))
            }
            "sops.azure-kv" => {
                let credentials = azure::Credentials::read(value)?;
                let name = credentials.name();
                self.azure = Some(credentials);
                Ok(Some(name))
            }
            "sops.gcp-kms" => {
                let credentials = gcp::Credentials::read(value).map_err(|error| error.to_string())?;
                let name = credentials.name();
                self.gcp = Some(credentials);
                Ok(Some(name))
            }
            _ => Ok(None),
        }
    }
}

/// Asks the services for `recipients` and hands the answers to `keyring`.
pub(super) async fn unwrap(
    run: &Run<'_>,
    keyring: &mut Keyring,
    services: &ServiceKeys,
    recipients: &[Recipient],
) {
    let Ok(http) = client() else { return };
    for recipient in recipients {
        let asking: BoxFuture<'_, _> = Box::pin(ask(run, &http, services, recipient));
        let asking = tokio::time::timeout(TIMEOUT, asking);
        let answer = run.worker.outside(asking).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
        keyring.answer(recipient, answer);
    }
}

fn client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()
}

async fn ask(
    run: &Run<'_>,
    http: &reqwest::Client,
    services: &ServiceKeys,
    recipient: &Recipient,
) -> Result<KeyPart, String> {
    match recipient {
        Recipient::Vault { address, engine_path, key_name, wrapped } => {
            let token = match &services.vault_token {
                Some(token) => token.clone(),
                None => login::vault_token(run, http, address).await?,
            };
            vault::decrypt(http, &token, [address, engine_path, key_name], wrapped).await
        }
        Recipient::AwsKms { arn, role, context, wrapped, .. } => {
            let region = aws::region(arn)?;
            let lent;
            let own = match &services.aws {
                Some(credentials) => credentials,
                None => {
                    lent = login::aws_keys(run, region).await?;
                    &lent
                }
            };
            if role.is_empty() {
                return aws::decrypt(http, own, arn, context, wrapped).await;
            }
            let assumed = aws::assume(http, own, region, role).await?;
            aws::decrypt(http, &assumed, arn, context, wrapped).await
        }
        Recipient::AzureKeyVault { vault_url, name, version, wrapped } => {
            let token = match &services.azure {
                Some(credentials) => azure::token(http, credentials, vault_url).await?,
                None => login::token(run, Provider::Azure, azure::scope(vault_url)).await?,
            };
            azure::decrypt(http, &token, [vault_url, name, version], wrapped).await
        }
        Recipient::GcpKms { resource_id, wrapped } => {
            let token = match &services.gcp {
                Some(credentials) => {
                    let token = credentials.token(http, gcp::SCOPE, Timestamp::now()).await;
                    token.map_err(|error| error.to_string())?.into_exposed()
                }
                None => login::token(run, Provider::Gcp, "").await?,
            };
            gcp::decrypt(http, gcp::SERVICE, &token, resource_id, wrapped).await
        }
        Recipient::HuaweiKms { .. } => Err("Huawei Cloud KMS is not supported".to_owned()),
        Recipient::Age { .. } | Recipient::Pgp { .. } => Err("no key service has this key".to_owned()),
    }
}

/// Sends a request; the answer's JSON, or what the service says is wrong. Neither quotes what was sent.
async fn send(request: reqwest::RequestBuilder) -> Result<Value, String> {
    let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
    let status = answer.status();
    if answer.content_length().is_some_and(|length| length > LARGEST as u64) {
        return Err("the answer is too large".to_owned());
    }
    let bytes = answer.bytes().await.map_err(|error| error.without_url().to_string())?;
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    let said = ["/errors/0", "/message", "/Message", "/error/message", "/error_description", "/error"];
    let said = said.iter().find_map(|pointer| value.pointer(pointer)?.as_str());
    Err(match said {
        Some(said) => format!("HTTP {}: {}", status.as_u16(), said.chars().take(200).collect::<String>()),
        None => format!("HTTP {}", status.as_u16()),
    })
}

fn read_yaml(bytes: &[u8]) -> Result<Value, String> {
    // The parser's message may quote a credential.
    yaml::to_json(bytes).map_err(|_| "it is neither YAML nor JSON".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::Bytes;
    use axum::http::{HeaderMap, StatusCode, Uri};
    use serde_json::json;

    use super::*;

    type Seen = Arc<Mutex<Vec<(String, HeaderMap, String)>>>;

    /// A service that answers everything alike, and remembers what it was asked.
    pub(super) async fn fake(status: u16, answer: Value) -> (String, Seen) {
        fake_text(status, &answer.to_string()).await
    }

    pub(super) async fn fake_text(status: u16, answer: &str) -> (String, Seen) {
        let answer = answer.to_owned();
        let seen: Seen = Arc::default();
        let log = seen.clone();
        let router = Router::new().fallback(move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let text = String::from_utf8_lossy(&body).into_owned();
                log.lock().unwrap().push((uri.to_string(), headers, text));
                (StatusCode::from_u16(status).unwrap(), answer)
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (address, seen)
    }

    #[tokio::test]
    async fn vault_is_asked_with_the_token_of_the_secret() {
        let (address, seen) = fake(200, json!({"data": {"plaintext": "a2V5"}})).await;
        let mut services = ServiceKeys::default();
        services.import("sops.vault-token", b" s.token\n").unwrap();
        let token = services.vault_token.clone().unwrap();
        let place = [address.as_str(), "transit", "flux"];
        assert!(vault::decrypt(&client().unwrap(), &token, place, "vault:v1:abc").await.is_ok());
        let seen = seen.lock().unwrap();
        let (path, headers, body) = &seen[0];
        assert_eq!(path, "/v1/transit/decrypt/flux");
        assert_eq!(headers["x-vault-token"], "s.token");
        assert_eq!(body, r#"{"ciphertext":"vault:v1:abc"}"#);
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_words_of_the_service_without_the_token() {
        let (address, _) = fake(403, json!({"errors": ["permission denied"]})).await;
        let place = [address.as_str(), "transit", "flux"];
        let error = vault::decrypt(&client().unwrap(), "s.token", place, "vault:v1:abc").await.err().unwrap();
        assert_eq!(error, "HTTP 403: permission denied");
    }
}
