//! Identities of clouds: what a pod or a ServiceAccount is there, as tokens, keys and registry logins.
//!
//! Small clients over HTTPS for the few requests it takes. Where we run is told by environment variables and a metadata
//! server; who we are for an object, by a token of its ServiceAccount, which the caller brings.

mod assertion;
mod aws;
mod azure;
mod azure_login;
mod cache;
mod cluster;
mod gcp;
mod google_key;

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_api::secret::SecretString;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

pub use aws::ldap_keys;
pub use azure_login::AzureLogin;
use cache::TokenCache;
pub use cache::{CacheCounts, CacheEvent};
pub use cluster::{ClusterLogin, ClusterPlace};
pub use google_key::GoogleKey;

use crate::bucket::Keys;
use crate::oci::{Credentials, Repository};
use crate::transport::{Transport, causes};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provider {
    Aws,
    Azure,
    Gcp,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid {provider} registry: '{registry}'. must match {pattern}")]
    Registry { provider: &'static str, registry: String, pattern: &'static str },
    #[error("{0}")]
    Configuration(String),
    #[error("{what}: {cause}")]
    Unreachable { what: &'static str, cause: String },
    #[error("{what}: {status}: {problem}")]
    Refused { what: &'static str, status: u16, problem: String },
    #[error("{what}: {problem}")]
    Answer { what: &'static str, problem: String },
}

/// A ServiceAccount whose identity is asked for.
#[derive(Clone)]
pub struct Account {
    pub namespace: String,
    pub name: String,
    pub annotations: BTreeMap<String, String>,
    pub token: AccountToken,
}

type AskForToken = dyn Fn() -> BoxFuture<'static, Result<SecretString, String>> + Send + Sync;

/// A token for the audience that [`Cloud::audience`] named, asked for only where nothing that was kept will do.
#[derive(Clone)]
pub struct AccountToken(Arc<AskForToken>);

impl AccountToken {
    pub fn by<Asked>(ask: impl Fn() -> Asked + Send + Sync + 'static) -> Self
    where
        Asked: Future<Output = Result<SecretString, String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(ask())))
    }

    async fn ask(&self) -> Result<SecretString, Error> {
        (self.0)().await.map_err(Error::Configuration)
    }
}

/// What the process was told about where it runs.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// In tests everything is at this one address, each service below its name.
    base: Option<String>,
}

impl Environment {
    /// The variables of this process that clouds set.
    pub fn of_this_process() -> Self {
        let ours = |name: &String| {
            ["AWS_", "AZURE_", "GCE_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix))
        };
        Self { variables: std::env::vars().filter(|(name, _)| ours(name)).collect(), base: None }
    }

    /// Other variables, and every service below one address.
    pub fn for_tests(variables: &[(&str, &str)], base: &str) -> Self {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { variables, base: Some(base.to_owned()) }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn url(&self, service: &str, address: String) -> String {
        match &self.base {
            Some(base) => format!("{base}/{service}"),
            None => address,
        }
    }

    /// Where Entra is, without a slash at the end.
    fn authority(&self, named: Option<&str>) -> String {
        let authority = named.or_else(|| self.get("AZURE_AUTHORITY_HOST"));
        authority.unwrap_or("https://login.microsoftonline.com").trim_end_matches('/').to_owned()
    }

    /// A token in a file that a variable names; such files are replaced while we run.
    fn file(&self, variable: &str) -> Result<Option<SecretString>, Error> {
        let Some(path) = self.get(variable) else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Configuration(format!("{variable}: {path}: {error}")))?;
        Ok(Some(SecretString::new(text.trim().to_owned())))
    }
}

/// A token that is good for a while.
#[derive(Clone)]
struct Token {
    value: SecretString,
    expires: Timestamp,
}

/// What a Git host of a cloud wants to see.
#[derive(Clone)]
pub enum GitLogin {
    Bearer(SecretString),
    /// The user's name holds a token too.
    Password {
        username: SecretString,
        password: SecretString,
    },
}

/// The clouds, with what they gave out before.
pub struct Cloud {
    environment: Environment,
    git: TokenCache<GitLogin>,
    registries: TokenCache<Credentials>,
    keys: TokenCache<Keys>,
    tokens: TokenCache<SecretString>,
}

impl Cloud {
    pub fn new(environment: Environment, cached: usize, longest: std::time::Duration) -> Self {
        Self {
            environment,
            git: TokenCache::new(cached, longest),
            registries: TokenCache::new(cached, longest),
            keys: TokenCache::new(cached, longest),
            tokens: TokenCache::new(cached, longest),
        }
    }

    /// The audience that a ServiceAccount's token has to be for.
    pub async fn audience(
        &self,
        provider: Provider,
        annotations: &BTreeMap<String, String>,
        transport: &Transport,
    ) -> Result<String, Error> {
        match provider {
            Provider::Aws => Ok("sts.amazonaws.com".to_owned()),
            Provider::Azure => Ok("api://AzureADTokenExchange".to_owned()),
            Provider::Gcp => gcp::audience(&self.environment, annotations, transport).await,
        }
    }

    /// A login for a registry of the provider.
    pub async fn registry(
        &self,
        provider: Provider,
        repository: &Repository,
        account: Option<&Account>,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<Credentials, Error> {
        let found = self.registry_with_event(provider, repository, account, transport, now).await;
        found.map(|(credentials, _)| credentials)
    }

    /// The same, and whether it was at hand.
    pub async fn registry_with_event(
        &self,
        provider: Provider,
        repository: &Repository,
        account: Option<&Account>,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<(Credentials, CacheEvent), Error> {
        let registry = repository.registry();
        let key = cache_key(provider, registry, account, transport);
        if let Some(known) = self.registries.get(&key, now) {
            return Ok((known, CacheEvent::Hit));
        }
        let env = &self.environment;
        let (credentials, expires) = match provider {
            Provider::Aws => aws::registry(env, registry, account, transport, now).await?,
            Provider::Azure => azure::registry(env, registry, account, transport, now).await?,
            Provider::Gcp => gcp::registry(env, registry, account, transport, now).await?,
        };
        self.registries.put(key, credentials.clone(), expires, now);
        Ok((credentials, CacheEvent::Miss))
    }

    /// Keys for requests to Amazon.
    pub async fn aws_keys(
        &self,
        region: Option<&str>,
        sts: Option<&str>,
        account: Option<&Account>,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<(Keys, CacheEvent), Error> {
        let place = format!("{}\n{}", region.unwrap_or_default(), sts.unwrap_or_default());
        let key = cache_key(Provider::Aws, &place, account, transport);
        if let Some(known) = self.keys.get(&key, now) {
            return Ok((known, CacheEvent::Hit));
        }
        let (keys, expires) = aws::keys(&self.environment, region, sts, account, transport, now).await?;
        self.keys.put(key, keys.clone(), expires, now);
        Ok((keys, CacheEvent::Miss))
    }

    /// A login for a repository at Azure DevOps or CodeCommit; Google has no Git host that takes one.
    pub async fn git(
        &self,
        provider: Provider,
        url: &url::Url,
        account: Option<&Account>,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<(GitLogin, CacheEvent), Error> {
        let env = &self.environment;
        // A token of Azure's is good for all repositories, a password of Amazon's for one.
        let place = match provider {
            Provider::Azure => "git".to_owned(),
            Provider::Aws | Provider::Gcp => format!("git\n{url}"),
        };
        let key = cache_key(provider, &place, account, transport);
        if let Some(known) = self.git.get(&key, now) {
            return Ok((known, CacheEvent::Hit));
        }
        let (login, expires) = match provider {
            Provider::Azure => {
                let token = azure::git_token(env, account, transport, now).await?;
                (GitLogin::Bearer(token.value), token.expires)
            }
            Provider::Aws => {
                let region = aws::git_region(url)?;
                let (keys, expires) = aws::keys(env, Some(&region), None, account, transport, now).await?;
                aws::git_login(&keys, expires, url, now)?
            }
            Provider::Gcp => {
                return Err(Error::Configuration("Google has no Git host to log in to".to_owned()));
            }
        };
        self.git.put(key, login.clone(), expires, now);
        Ok((login, CacheEvent::Miss))
    }

    /// A token for the services of Azure (for `scope`) or Google.
    pub async fn token(
        &self,
        provider: Provider,
        scope: &str,
        account: Option<&Account>,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<SecretString, Error> {
        let found = self.token_with_event(provider, scope, account, transport, now).await;
        found.map(|(token, _)| token)
    }

    /// The same, and whether it was at hand.
    pub async fn token_with_event(
        &self,
        provider: Provider,
        scope: &str,
        account: Option<&Account>,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<(SecretString, CacheEvent), Error> {
        let key = cache_key(provider, scope, account, transport);
        if let Some(known) = self.tokens.get(&key, now) {
            return Ok((known, CacheEvent::Hit));
        }
        let env = &self.environment;
        let token = match provider {
            Provider::Azure => azure::token(env, scope, account, transport, now).await?,
            Provider::Gcp => gcp::token(env, account, transport, now).await?,
            Provider::Aws => {
                return Err(Error::Configuration("Amazon is asked with keys, not with tokens".to_owned()));
            }
        };
        self.tokens.put(key, token.value.clone(), token.expires, now);
        Ok((token.value, CacheEvent::Miss))
    }

    /// A token that was kept under a name of the caller's.
    pub fn kept(&self, name: &str, now: Timestamp) -> Option<SecretString> {
        self.tokens.get(name, now)
    }

    /// Keeps a token that nobody here asked for (a GitHub App's) among the others, within the same limits.
    pub fn keep(&self, name: String, token: SecretString, expires: Timestamp, now: Timestamp) {
        self.tokens.put(name, token, expires, now);
    }

    /// A token for a login that somebody brings; it is not kept.
    pub async fn azure_token(
        &self,
        login: &AzureLogin,
        scope: &str,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<SecretString, Error> {
        login.token(&self.environment, scope, transport, now).await.map(|token| token.value)
    }

    /// Where Google's buckets are.
    pub fn google_storage(&self) -> String {
        self.environment.url("google-storage", "https://storage.googleapis.com".to_owned())
    }

    /// Where the event hubs of the Azure that we run in are: those of China and of the US government are apart.
    pub fn service_bus(&self) -> &'static str {
        let authority = self.environment.get("AZURE_AUTHORITY_HOST").unwrap_or_default();
        let authority = authority.trim_start_matches("https://").trim_end_matches('/');
        match authority {
            "login.chinacloudapi.cn" | "login.partner.microsoftonline.cn" => "servicebus.chinacloudapi.cn",
            "login.microsoftonline.us" => "servicebus.usgovcloudapi.net",
            _ => "servicebus.windows.net",
        }
    }

    /// How often something was found in memory, and how often not.
    pub fn counts(&self) -> CacheCounts {
        self.registries.counts() + self.keys.counts() + self.tokens.counts() + self.git.counts()
    }
}

/// Who asks for what, through which proxy.
fn cache_key(provider: Provider, place: &str, account: Option<&Account>, transport: &Transport) -> String {
    let account = account.map(|account| {
        let annotations = &account.annotations;
        format!("{}/{} {annotations:?}", account.namespace, account.name)
    });
    let proxy = transport.proxy.as_ref().map(|proxy| proxy.address.as_str());
    format!("{provider:?}\n{place}\n{}\n{}", account.unwrap_or_default(), proxy.unwrap_or_default())
}

/// Sends a request and reads its JSON; what went wrong is told without what was sent.
async fn json<T: DeserializeOwned>(request: reqwest::RequestBuilder, what: &'static str) -> Result<T, Error> {
    let text = text(request, what).await?;
    serde_json::from_str(&text)
        .map_err(|_| Error::Answer { what, problem: "an answer that is not understood".to_owned() })
}

async fn text(request: reqwest::RequestBuilder, what: &'static str) -> Result<String, Error> {
    let request = request.timeout(std::time::Duration::from_secs(20));
    let response = request.send().await.map_err(|error| Error::Unreachable { what, cause: causes(error) })?;
    let status = response.status();
    let body = crate::oci::limited_body(response, 1 << 20, what)
        .await
        .map_err(|error| Error::Answer { what, problem: error.to_string() })?;
    let body = String::from_utf8_lossy(&body).into_owned();
    if !status.is_success() {
        return Err(Error::Refused { what, status: status.as_u16(), problem: complaint(&body) });
    }
    Ok(body)
}

/// What a cloud says is wrong, whichever way it says it.
fn complaint(body: &str) -> String {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Complaint {
        error_description: String,
        message: String,
        // A text, or what Google puts around its message.
        error: serde_json::Value,
        #[serde(rename = "Message")]
        aws: String,
    }
    let json: Complaint = serde_json::from_str(body).unwrap_or_default();
    let nested = json.error.pointer("/message").or(Some(&json.error)).and_then(serde_json::Value::as_str);
    let words = [json.error_description, json.message, json.aws, nested.unwrap_or_default().to_owned()];
    let found =
        words.into_iter().find(|text| !text.is_empty()).or_else(|| crate::bucket::xml_text(body, "Message"));
    found.unwrap_or_else(|| "refused".to_owned()).chars().take(300).collect()
}
