//! Google Cloud KMS: one call, `decrypt`, with a token of a service account's key, of a user, or of the identity that the
//! Kustomization or this pod has.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use sops::KeyPart;

use super::{read_yaml, send};

pub(super) const SERVICE: &str = "https://cloudkms.googleapis.com";
const TOKENS: &str = "https://oauth2.googleapis.com/token";
const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";
/// A token of another provider.
const LARGEST_SUBJECT: usize = 64 * 1024;
/// How long a token is asked for, in seconds.
const LIFETIME: i64 = 3600;

/// A key file of Google. It cannot be printed.
pub(super) enum Credentials {
    ServiceAccount {
        email: String,
        key: Box<EncodingKey>,
        key_id: Option<String>,
        tokens: String,
    },
    User {
        client: String,
        secret: String,
        refresh: String,
        tokens: String,
    },
    /// Somebody whom another provider vouches for, with a token that lies in a file of this pod.
    External {
        audience: String,
        token_type: String,
        file: String,
        tokens: String,
        impersonation: Option<String>,
    },
}

impl Credentials {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let value = read_yaml(bytes)?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let need = |key: &str| text(key).map(str::to_owned).ok_or_else(|| format!("{key} is missing"));
        if text("type") == Some("external_account") {
            return Self::external(&value);
        }
        let tokens = text("token_uri").unwrap_or(TOKENS).to_owned();
        // The key would go wherever the file says, so at least nobody on the way may read it.
        let local = tokens.starts_with("http://127.0.0.1:");
        if !tokens.starts_with("https://") && !local {
            return Err("token_uri must begin with https://".to_owned());
        }
        match text("type") {
            Some("service_account") => {
                let key = EncodingKey::from_rsa_pem(need("private_key")?.as_bytes())
                    .map_err(|_| "private_key is no RSA key in PEM".to_owned())?;
                let key_id = text("private_key_id").map(str::to_owned);
                Ok(Self::ServiceAccount { email: need("client_email")?, key: Box::new(key), key_id, tokens })
            }
            Some("authorized_user") => Ok(Self::User {
                client: need("client_id")?,
                secret: need("client_secret")?,
                refresh: need("refresh_token")?,
                tokens,
            }),
            Some(other) => Err(format!(
                "credentials of type '{other}' are not supported; there are service_account, authorized_user and external_account"
            )),
            None => Err("type is missing".to_owned()),
        }
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
        Ok(Self::External {
            audience: need("audience")?,
            token_type: need("subject_token_type")?,
            file: file.to_owned(),
            tokens,
            impersonation,
        })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::External { audience, .. } => format!("Google external account {audience}"),
            Self::ServiceAccount { email, .. } => format!("Google service account {email}"),
            Self::User { client, .. } => format!("Google client {client}"),
        }
    }

    pub(super) async fn token(&self, http: &reqwest::Client, now: i64) -> Result<String, String> {
        if let Self::External { impersonation, .. } = self {
            let token = self.exchanged(http).await?;
            return match impersonation {
                Some(url) => impersonate(http, url, &token).await,
                None => Ok(token),
            };
        }
        let (url, form) = match self {
            Self::External { tokens, .. } => (tokens, Vec::new()),
            Self::ServiceAccount { email, key, key_id, tokens } => {
                let claims =
                    json!({ "iss": email, "scope": SCOPE, "aud": tokens, "iat": now, "exp": now + LIFETIME });
                let header = Header { kid: key_id.clone(), ..Header::new(Algorithm::RS256) };
                let assertion = jsonwebtoken::encode(&header, &claims, key)
                    .map_err(|_| "the private key cannot sign".to_owned())?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned();
                (tokens, vec![("grant_type", grant), ("assertion", assertion)])
            }
            Self::User { client, secret, refresh, tokens } => (
                tokens,
                vec![
                    ("grant_type", "refresh_token".to_owned()),
                    ("client_id", client.clone()),
                    ("client_secret", secret.clone()),
                    ("refresh_token", refresh.clone()),
                ],
            ),
        };
        let answer = send(http.post(url).form(&form)).await?;
        let token = answer.get("access_token").and_then(Value::as_str);
        token.map(str::to_owned).ok_or_else(|| "the answer holds no access_token".to_owned())
    }
}

impl Credentials {
    /// A token of Google for one of the other provider.
    async fn exchanged(&self, http: &reqwest::Client) -> Result<String, String> {
        let Self::External { audience, token_type, file, tokens, .. } = self else {
            return Err("no external account".to_owned());
        };
        let subject = tokio::fs::read(file)
            .await
            .map_err(|error| format!("credential_source.file: {}", error.kind()))?;
        if subject.len() > LARGEST_SUBJECT {
            return Err("credential_source.file is too large for a token".to_owned());
        }
        let subject =
            String::from_utf8(subject).map_err(|_| "credential_source.file is not text".to_owned())?;
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", audience),
            ("scope", "https://www.googleapis.com/auth/cloud-platform"),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", token_type),
            ("subject_token", subject.trim()),
        ];
        let answer = send(http.post(tokens).form(&form)).await?;
        let token = answer.get("access_token").and_then(Value::as_str);
        token.map(str::to_owned).ok_or_else(|| "the answer holds no access_token".to_owned())
    }
}

async fn impersonate(http: &reqwest::Client, url: &str, token: &str) -> Result<String, String> {
    let body = json!({ "scope": [SCOPE] });
    let answer = send(http.post(url).bearer_auth(token).json(&body)).await?;
    let token = answer.get("accessToken").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| "the answer holds no accessToken".to_owned())
}

fn is_googles(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default();
    let googles = url.scheme() == "https" && (host == "googleapis.com" || host.ends_with(".googleapis.com"));
    googles || (url.scheme() == "http" && host == "127.0.0.1")
}

pub(super) async fn decrypt(
    http: &reqwest::Client,
    service: &str,
    token: &str,
    resource: &str,
    wrapped: &str,
) -> Result<KeyPart, String> {
    if !is_key(resource) {
        return Err("its resource_id is not projects/…/locations/…/keyRings/…/cryptoKeys/…".to_owned());
    }
    let url = format!("{service}/v1/{resource}:decrypt");
    let answer = send(http.post(url).bearer_auth(token).json(&json!({ "ciphertext": wrapped }))).await?;
    let text = answer.get("plaintext").and_then(Value::as_str).ok_or("the answer holds no plaintext")?;
    STANDARD.decode(text).map(KeyPart::new).map_err(|_| "the answer is no base64".to_owned())
}

/// What stands in an address must not be able to leave it.
fn is_key(resource: &str) -> bool {
    let parts: Vec<&str> = resource.split('/').collect();
    let plain = |part: &&str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
            && !part.contains("..")
    };
    parts.iter().all(plain)
        && matches!(
            parts[..],
            ["projects", _, "locations", _, "keyRings", _, "cryptoKeys", _]
                | ["projects", _, "locations", _, "keyRings", _, "cryptoKeys", _, "cryptoKeyVersions", _]
        )
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake;
    use super::*;

    const KEY: &str = "projects/p/locations/global/keyRings/r/cryptoKeys/k";

    #[tokio::test]
    async fn a_user_gets_a_token_and_decrypts() {
        let (address, seen) = fake(200, json!({"access_token": "t0ken", "plaintext": "a2V5"})).await;
        let file = format!(
            "{{\"type\": \"authorized_user\", \"client_id\": \"C\", \"client_secret\": \"S\", \"refresh_token\": \"R\", \
             \"token_uri\": \"{address}/token\"}}"
        );
        let credentials = Credentials::read(file.as_bytes()).unwrap();
        let http = super::super::client().unwrap();
        let token = credentials.token(&http, 0).await.unwrap();
        assert!(decrypt(&http, &address, &token, KEY, "d3JhcHBlZA==").await.is_ok());
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].0, "/token");
        assert!(seen[0].2.contains("refresh_token=R"), "{}", seen[0].2);
        assert_eq!(seen[1].0, format!("/v1/{KEY}:decrypt"));
        assert_eq!(seen[1].1["authorization"], "Bearer t0ken");
        assert_eq!(seen[1].2, r#"{"ciphertext":"d3JhcHBlZA=="}"#);
    }

    #[tokio::test]
    async fn a_service_account_signs_for_its_token() {
        let (address, seen) = fake(200, json!({"access_token": "t0ken"})).await;
        let key = include_str!("../../../../flux-remote/tests/keys/pkcs8-rsa");
        let file = json!({"type": "service_account", "client_email": "flux@p.iam", "private_key": key,
            "private_key_id": "1", "token_uri": format!("{address}/token")});
        let credentials = Credentials::read(file.to_string().as_bytes()).unwrap();
        assert_eq!(credentials.name(), "Google service account flux@p.iam");
        let http = super::super::client().unwrap();
        assert_eq!(credentials.token(&http, 1_700_000_000).await.unwrap(), "t0ken");
        let seen = seen.lock().unwrap();
        assert!(seen[0].2.contains("assertion=eyJ"), "{}", seen[0].2);
    }

    #[test]
    fn other_types_and_places_are_refused_by_name() {
        let error = |text: &str| Credentials::read(text.as_bytes()).err().unwrap();
        assert!(error("{\"type\": \"gdch_service_account\"}").contains("gdch_service_account"));
        assert!(error("{\"type\": \"external_account\"}").contains("credential_source.file"));
        assert!(
            error("{\"type\": \"authorized_user\", \"token_uri\": \"http://evil.example\"}")
                .contains("https")
        );
        assert!(error("{}").contains("type is missing"));
        assert!(
            is_key(KEY)
                && !is_key("projects/../x")
                && !is_key("projects/p/locations/l/keyRings/r/cryptoKeys/k?x")
        );
    }

    #[tokio::test]
    async fn an_external_account_exchanges_the_token_of_a_file_at_google_only() {
        let (address, seen) = fake(200, json!({"access_token": "first", "accessToken": "second"})).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "subject\n").unwrap();
        let file = |tokens: &str, source: Value| {
            json!({
                "type": "external_account", "audience": "//iam.googleapis.com/pool",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": tokens,
                "service_account_impersonation_url": format!("{address}/impersonate"), "credential_source": source,
            })
            .to_string()
        };
        let credentials =
            Credentials::read(file(&format!("{address}/token"), json!({"file": path})).as_bytes()).unwrap();
        let token = credentials.token(&super::super::client().unwrap(), 0).await.unwrap();
        assert_eq!(token, "second");
        let seen = seen.lock().unwrap();
        assert!(seen[0].2.contains("subject_token=subject"), "{}", seen[0].2);
        assert_eq!(seen[1].1["authorization"], "Bearer first");
        for (tokens, source) in [
            ("https://evil.example.org/token", json!({"file": path})),
            ("https://sts.googleapis.com.evil.example.org/token", json!({"file": path})),
            ("https://sts.googleapis.com/v1/token", json!({"executable": {"command": "sh"}})),
            ("https://sts.googleapis.com/v1/token", json!({"url": "http://169.254.169.254/"})),
        ] {
            assert!(Credentials::read(file(tokens, source).as_bytes()).is_err(), "{tokens}");
        }
    }
}
