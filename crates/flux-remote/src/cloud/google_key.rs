//! Key files of Google: of a service account, of a user, or of somebody whom another provider vouches for.

use flux_api::secret::SecretString;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Error;
use super::assertion::{Scheme, SigningKey};

const TOKENS: &str = "https://oauth2.googleapis.com/token";
const WHAT: &str = "asking Google for a token";
/// A token of another provider.
const LARGEST_SUBJECT: usize = 64 * 1024;
/// How long a token is asked for, in seconds.
const LIFETIME: i64 = 3600;

/// A key file. It cannot be printed.
pub struct GoogleKey {
    owner: Owner,
    tokens: String,
}

enum Owner {
    ServiceAccount {
        email: String,
        key: Box<SigningKey>,
        key_id: Option<String>,
    },
    User {
        client: String,
        secret: SecretString,
        refresh: SecretString,
    },
    /// Somebody with a token of another provider that lies in a file of this pod.
    External {
        audience: String,
        token_type: String,
        file: String,
        impersonation: Option<String>,
    },
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
}

impl GoogleKey {
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        Self::parse(bytes).map_err(Error::Configuration)
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        // The parser's message may quote the key.
        let value = yaml::to_json(bytes).map_err(|_| "it is neither YAML nor JSON".to_owned())?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let need = |key: &str| text(key).map(str::to_owned).ok_or_else(|| format!("{key} is missing"));
        if text("type") == Some("external_account") {
            return Self::external(&value);
        }
        let tokens = text("token_uri").unwrap_or(TOKENS).to_owned();
        // The key's word would go wherever the file says, so at least nobody on the way may read it.
        if !tokens.starts_with("https://") && !tokens.starts_with("http://127.0.0.1:") {
            return Err("token_uri must begin with https://".to_owned());
        }
        let owner = match text("type") {
            Some("service_account") => {
                let key = SigningKey::from_pem(need("private_key")?.as_bytes())
                    .ok_or("private_key is no RSA key in PEM")?;
                let key_id = text("private_key_id").map(str::to_owned);
                Owner::ServiceAccount { email: need("client_email")?, key: Box::new(key), key_id }
            }
            Some("authorized_user") => Owner::User {
                client: need("client_id")?,
                secret: SecretString::new(need("client_secret")?),
                refresh: SecretString::new(need("refresh_token")?),
            },
            Some(other) => {
                return Err(format!(
                    "credentials of type '{other}' are not supported; there are service_account, authorized_user and external_account"
                ));
            }
            None => return Err("type is missing".to_owned()),
        };
        Ok(Self { owner, tokens })
    }

    /// Other sources of a token than a file would have this process call wherever, or run whatever, a tenant likes; and the
    /// token goes to Google only.
    fn external(value: &Value) -> Result<Self, String> {
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let need = |key: &str| {
            text(&format!("/{key}")).map(str::to_owned).ok_or_else(|| format!("{key} is missing"))
        };
        let file = text("/credential_source/file")
            .ok_or("credential_source.file is missing, and others than a file are not supported")?;
        let tokens = need("token_url")?;
        let impersonation = text("/service_account_impersonation_url").map(str::to_owned);
        for (name, url) in
            [("token_url", Some(&tokens)), ("service_account_impersonation_url", impersonation.as_ref())]
        {
            if url.is_some_and(|url| !is_googles(url)) {
                return Err(format!("{name} is not at googleapis.com"));
            }
        }
        let owner = Owner::External {
            audience: need("audience")?,
            token_type: need("subject_token_type")?,
            file: file.to_owned(),
            impersonation,
        };
        Ok(Self { owner, tokens })
    }

    /// Whose key it is.
    pub fn name(&self) -> String {
        match &self.owner {
            Owner::External { audience, .. } => format!("Google external account {audience}"),
            Owner::ServiceAccount { email, .. } => format!("Google service account {email}"),
            Owner::User { client, .. } => format!("Google client {client}"),
        }
    }

    /// A token for `scope`. `client` brings the proxy, and should follow no redirect.
    pub async fn token(
        &self,
        client: &reqwest::Client,
        scope: &str,
        now: Timestamp,
    ) -> Result<SecretString, Error> {
        let form = match &self.owner {
            Owner::ServiceAccount { email, key, key_id } => {
                let second = now.as_second();
                let claims = json!({
                    "iss": email, "scope": scope, "aud": self.tokens, "iat": second, "exp": second + LIFETIME,
                });
                let header = key_id.as_ref().map_or_else(|| json!({}), |id| json!({ "kid": id }));
                let assertion = key
                    .sign(Scheme::Rs256, header, &claims)
                    .ok_or_else(|| Error::Configuration("the private key cannot sign".to_owned()))?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned();
                vec![("grant_type", grant), ("assertion", assertion.into_exposed())]
            }
            Owner::User { client, secret, refresh } => vec![
                ("grant_type", "refresh_token".to_owned()),
                ("client_id", client.clone()),
                ("client_secret", secret.expose().clone()),
                ("refresh_token", refresh.expose().clone()),
            ],
            Owner::External { audience, token_type, file, .. } => vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange".to_owned()),
                ("audience", audience.clone()),
                ("scope", super::gcp::SCOPE.to_owned()),
                ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token".to_owned()),
                ("subject_token_type", token_type.clone()),
                ("subject_token", subject(file).await?),
            ],
        };
        let granted: Granted = super::json(client.post(&self.tokens).form(&form), WHAT).await?;
        match &self.owner {
            Owner::External { impersonation: Some(url), .. } => {
                impersonate(client, url, &granted.access_token, scope).await
            }
            _ => Ok(SecretString::new(granted.access_token)),
        }
    }
}

async fn subject(file: &str) -> Result<String, Error> {
    let wrong = |problem: String| Error::Configuration(format!("credential_source.file {problem}"));
    let bytes =
        tokio::fs::read(file).await.map_err(|error| wrong(format!("cannot be read: {}", error.kind())))?;
    if bytes.len() > LARGEST_SUBJECT {
        return Err(wrong("is too large for a token".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not text".to_owned()))?;
    Ok(text.trim().to_owned())
}

async fn impersonate(
    client: &reqwest::Client,
    url: &str,
    token: &str,
    scope: &str,
) -> Result<SecretString, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Impersonated {
        access_token: String,
    }
    let request = client.post(url).bearer_auth(token).json(&json!({ "scope": [scope] }));
    let found: Impersonated = super::json(request, WHAT).await?;
    Ok(SecretString::new(found.access_token))
}

fn is_googles(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default();
    let googles = url.scheme() == "https" && (host == "googleapis.com" || host.ends_with(".googleapis.com"));
    googles || (url.scheme() == "http" && host == "127.0.0.1")
}
