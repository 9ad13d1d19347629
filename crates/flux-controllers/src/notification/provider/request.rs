//! A request to be sent, and what it is made from.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::notification::ProviderType;
use flux_api::secret::SecretString;
use flux_remote::transport::Transport;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Serialize;
use url::Url;

use crate::notification::incident::Incident;

/// A Provider with what its Secrets say.
#[derive(Clone)]
pub struct Settings {
    pub provider_type: ProviderType,
    /// UID of the Provider.
    pub uid: String,
    /// May carry a token, so it is never shown.
    pub address: String,
    pub channel: String,
    pub username: String,
    pub password: SecretString,
    pub token: SecretString,
    /// A token of the cloud, for types that log in to one and whose Secret has none.
    pub identity: SecretString,
    pub headers: BTreeMap<String, String>,
    /// Everything else in the Secret, by its keys.
    pub data: BTreeMap<String, SecretString>,
    /// The id of the commit status, for types that write one.
    pub commit_status: String,
    /// Whose event it is.
    pub alert: AlertName,
    /// What the event is about, for an Alert in incident mode.
    pub incident: Option<Incident>,
    /// Seconds since 1970, for what is signed with a time.
    pub now: i64,
    /// Where Azure's event hubs are.
    pub service_bus: &'static str,
    pub transport: Transport,
    pub timeout: Duration,
}

/// What an Alert is known by.
#[derive(Clone, Debug, Default)]
pub struct AlertName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Settings {
    pub fn new(provider_type: ProviderType) -> Self {
        Self {
            provider_type,
            uid: String::new(),
            address: String::new(),
            channel: String::new(),
            username: String::new(),
            password: SecretString::default(),
            token: SecretString::default(),
            identity: SecretString::default(),
            headers: BTreeMap::new(),
            data: BTreeMap::new(),
            commit_status: String::new(),
            alert: AlertName::default(),
            incident: None,
            now: 0,
            service_bus: "servicebus.windows.net",
            transport: Transport { no_redirects: true, ..Transport::default() },
            timeout: Duration::from_secs(15),
        }
    }

    /// The address as a URL that can be sent to.
    pub(super) fn url(&self, service: &'static str) -> Result<Url, Error> {
        let url = Url::parse(&self.address)
            .map_err(|error| Error::Address { service, problem: error.to_string() })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Address {
                service,
                problem: "it must begin with http:// or https://".to_owned(),
            });
        }
        Ok(url)
    }

    /// The scheme, host and port of the address.
    pub(super) fn origin(&self, service: &'static str) -> Result<Url, Error> {
        let mut url = self.url(service)?;
        url.set_path("/");
        url.set_query(None);
        url.set_fragment(None);
        Ok(url)
    }

    /// The token, or an error that says `missing`.
    pub(super) fn required_token(&self, missing: &'static str) -> Result<&str, Error> {
        let token = self.token.expose().as_str();
        if token.is_empty() { Err(Error::Missing(missing)) } else { Ok(token) }
    }

    /// Every text that an error must not show, longest first.
    pub fn secrets(&self) -> Vec<String> {
        let mut secrets =
            vec![self.token.expose().clone(), self.password.expose().clone(), self.address.clone()];
        secrets.push(self.identity.expose().clone());
        if let Ok(url) = Url::parse(&self.address) {
            secrets.extend([url.as_str().to_owned(), url.password().unwrap_or_default().to_owned()]);
            // The key of a DSN stands where others have a user.
            if self.provider_type == ProviderType::Sentry {
                secrets.push(url.username().to_owned());
            }
            let path = &url[url::Position::BeforePath..];
            // The path of a webhook is its password; a short one tells nothing and would eat half of the text.
            if path.len() > 8 {
                secrets.push(path.to_owned());
            }
        }
        secrets.extend(self.headers.values().cloned());
        secrets.extend(self.data.values().map(|value| value.expose().trim().to_owned()));
        if let Some(proxy) = &self.transport.proxy {
            secrets.push(proxy.address.clone());
            secrets.extend(proxy.login.iter().map(|(_, password)| password.expose().clone()));
        }
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        secrets
    }
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Error {
    #[error("invalid {service} address: {problem}")]
    Address { service: &'static str, problem: String },
    #[error("{0}")]
    Missing(&'static str),
    #[error("invalid {field}: {problem}")]
    Field { field: &'static str, problem: String },
    #[error("the header '{0}' has a value that cannot be sent")]
    Header(String),
    #[error("{service} answered with something that is not understood: {problem}")]
    Answer { service: &'static str, problem: String },
}

/// What an answer must be for the request to have worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Any 2xx.
    Success,
    /// JSON with `ok: true`: Slack's API answers 200 whatever happened.
    SlackOk,
    /// 404 means that there is nothing yet.
    SuccessOrMissing,
}

pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub accept: Accept,
}

/// A request and, where more depends on its answer, what follows.
pub struct Step {
    pub request: Request,
    pub then: Option<Then>,
}

/// From the body of an answer to what is sent next.
pub type Then = Box<dyn FnOnce(&[u8]) -> Result<Vec<Step>, Error> + Send>;

impl Step {
    pub fn only(request: Request) -> Self {
        Self { request, then: None }
    }

    pub fn then(
        request: Request,
        then: impl FnOnce(&[u8]) -> Result<Vec<Step>, Error> + Send + 'static,
    ) -> Self {
        Self { request, then: Some(Box::new(then)) }
    }
}

impl Request {
    pub fn new(method: Method, url: Url, content_type: &'static str, body: Vec<u8>) -> Self {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        Self { method, url, headers, body, accept: Accept::Success }
    }

    pub fn get(url: Url) -> Self {
        Self::new(Method::GET, url, "", Vec::new())
    }

    pub fn json(method: Method, url: Url, body: &impl Serialize) -> Self {
        // What we send are maps, lists and texts: they can always be written.
        Self::new(method, url, "application/json", serde_json::to_vec(body).unwrap_or_default())
    }

    pub fn post(url: Url, body: &impl Serialize) -> Self {
        Self::json(Method::POST, url, body)
    }

    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let refused = || Error::Header(name.to_owned());
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
        value.set_sensitive(true);
        self.headers.insert(key, value);
        Ok(self)
    }

    pub fn authorization(self, value: &str) -> Result<Self, Error> {
        self.header(AUTHORIZATION.as_str(), value)
    }

    pub fn bearer(self, token: &str) -> Result<Self, Error> {
        self.authorization(&format!("Bearer {token}"))
    }

    pub fn basic(self, username: &str, password: &str) -> Result<Self, Error> {
        self.authorization(&format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))))
    }
}

#[cfg(test)]
impl Request {
    /// `POST https://host/path`
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.url)
    }

    pub fn value(&self, header: &str) -> &str {
        self.headers.get(header).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn body_json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_must_not_be_shown_is_known() {
        let mut settings = Settings::new(ProviderType::Slack);
        settings.address = "https://user:pw123@hooks.example.com/services/T0/B0/secret?sig=1".to_owned();
        settings.token = "tok".to_owned().into();
        settings.headers.insert("X-Key".to_owned(), "header-value".to_owned());
        let secrets = settings.secrets();
        for secret in
            ["tok", "pw123", "/services/T0/B0/secret?sig=1", "header-value", settings.address.as_str()]
        {
            assert!(secrets.iter().any(|known| known == secret), "{secret}");
        }
        assert!(secrets.windows(2).all(|pair| pair[0].len() >= pair[1].len()));
    }
}
