//! Logging in as a GitHub App: a signed statement of who we are is exchanged for a token of one hour.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flux_api::secret::SecretString;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::{Client, RequestBuilder};
use serde::{Deserialize, Serialize};
use url::Url;

const GITHUB: &str = "https://api.github.com/";
/// The user name that goes with such a token.
pub const TOKEN_USER: &str = "x-access-token";
/// Clocks differ a little.
const CLOCK_DRIFT: Duration = Duration::from_secs(30);
const STATEMENT_LASTS: Duration = Duration::from_secs(120);
const LONGEST_ANSWER: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("app ID must be provided to use github app authentication")]
    NoAppId,
    #[error("app installation owner or ID must be provided to use github app authentication")]
    NoInstallation,
    #[error("only one of app installation owner or ID must be provided to use github app authentication")]
    TwoInstallations,
    #[error("private key must be provided to use github app authentication")]
    NoPrivateKey,
    #[error("could not parse private key: expected an RSA key in PEM")]
    PrivateKey,
    #[error("invalid API URL: {0}")]
    BaseUrl(String),
    #[error("failed to find an installation for '{owner}': {cause}")]
    NoSuchInstallation { owner: String, cause: String },
    #[error("{0}")]
    Api(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Installation {
    Id(u64),
    Owner(String),
}

/// An app and where it is installed.
pub struct GithubApp {
    id: u64,
    installation: Installation,
    key: EncodingKey,
    api: Url,
}

/// A token and when it ends.
pub struct AppToken {
    pub token: SecretString,
    pub expires: SystemTime,
}

/// The keys of a Secret, as Flux names them.
#[derive(Default)]
pub struct AppData {
    pub app_id: Option<String>,
    pub installation_owner: Option<String>,
    pub installation_id: Option<String>,
    pub private_key: Option<SecretString>,
    pub base_url: Option<String>,
}

impl GithubApp {
    pub fn new(data: &AppData) -> Result<Self, Error> {
        let number = |text: &Option<String>| text.as_deref().and_then(|text| text.trim().parse::<u64>().ok());
        let id = number(&data.app_id).filter(|id| *id != 0).ok_or(Error::NoAppId)?;
        let owner = data.installation_owner.clone().filter(|owner| !owner.is_empty());
        let installation = match (owner, number(&data.installation_id).filter(|id| *id != 0)) {
            (None, None) => return Err(Error::NoInstallation),
            (Some(_), Some(_)) => return Err(Error::TwoInstallations),
            (Some(owner), None) => Installation::Owner(owner),
            (None, Some(id)) => Installation::Id(id),
        };
        let key = data.private_key.as_ref().ok_or(Error::NoPrivateKey)?;
        let key = EncodingKey::from_rsa_pem(key.expose().as_bytes()).map_err(|_| Error::PrivateKey)?;
        let base = data.base_url.as_deref().filter(|base| !base.is_empty()).unwrap_or(GITHUB);
        let api = Url::parse(&format!("{}/", base.trim_end_matches('/')))
            .map_err(|error| Error::BaseUrl(error.to_string()))?;
        Ok(Self { id, installation, key, api })
    }

    /// A new token. `client` brings proxy and certificates.
    pub async fn token(&self, client: &Client, now: SystemTime) -> Result<AppToken, Error> {
        let statement = self.statement(now)?;
        let installation = self.installation_id(client, &statement).await?;
        let url = self.at(&format!("app/installations/{installation}/access_tokens"))?;
        let answer: Token = ask(client.post(url), &statement).await.map_err(Error::Api)?;
        let lasts = Duration::from_secs(3600);
        let expires = answer.expires_at.parse::<jiff::Timestamp>().map_or(now + lasts, SystemTime::from);
        Ok(AppToken { token: SecretString::new(answer.token), expires })
    }

    async fn installation_id(&self, client: &Client, statement: &SecretString) -> Result<u64, Error> {
        let owner = match &self.installation {
            Installation::Id(id) => return Ok(*id),
            Installation::Owner(owner) => owner,
        };
        let mut causes = Vec::new();
        for kind in ["orgs", "users"] {
            let url = self.at(&format!("{kind}/{owner}/installation"))?;
            match ask::<Found>(client.get(url), statement).await {
                Ok(found) => return Ok(found.id),
                Err(cause) => causes.push(cause),
            }
        }
        Err(Error::NoSuchInstallation { owner: owner.clone(), cause: causes.join("; ") })
    }

    fn at(&self, path: &str) -> Result<Url, Error> {
        self.api.join(path).map_err(|error| Error::BaseUrl(error.to_string()))
    }

    fn statement(&self, now: SystemTime) -> Result<SecretString, Error> {
        let from = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(CLOCK_DRIFT);
        let claims =
            Claims { iat: from.as_secs(), exp: (from + STATEMENT_LASTS).as_secs(), iss: self.id.to_string() };
        jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &self.key)
            .map(SecretString::new)
            .map_err(|_| Error::PrivateKey)
    }
}

#[derive(Serialize)]
struct Claims {
    iat: u64,
    exp: u64,
    iss: String,
}

#[derive(Deserialize)]
struct Found {
    id: u64,
}

#[derive(Deserialize)]
struct Token {
    token: String,
    #[serde(default)]
    expires_at: String,
}

async fn ask<T: serde::de::DeserializeOwned>(
    request: RequestBuilder,
    statement: &SecretString,
) -> Result<T, String> {
    let plain = |error: reqwest::Error| error.without_url().to_string();
    let request = request
        .bearer_auth(statement.expose())
        .header("Accept", "application/vnd.github+json")
        .header("User-Agent", "flux");
    let mut response = request.send().await.map_err(plain)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(plain)? {
        body.extend_from_slice(&chunk);
        if body.len() > LONGEST_ANSWER {
            return Err("the answer of the GitHub API is too long".to_owned());
        }
    }
    if !status.is_success() {
        return Err(refusal(&body, status));
    }
    // The body may hold a token: errors say nothing of it.
    serde_json::from_slice(&body).map_err(|_| "the GitHub API sent an answer that cannot be read".to_owned())
}

fn refusal(body: &[u8], status: impl Display) -> String {
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    let said = serde_json::from_slice::<Said>(body).map(|said| said.message).unwrap_or_default();
    let said: String = said.chars().filter(|one| !one.is_control()).take(200).collect();
    format!("the GitHub API answered {status} {said}").trim_end().to_owned()
}
