//! HTTP clients for remotes: whose certificates are trusted, who we are, which proxy stands between.
//!
//! Clients are shared: reading the system's certificates anew for each request would cost more than the request.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use flux_api::secret::SecretString;
use sha2::{Digest, Sha256};

/// How many different clients are kept; beyond that they are made anew.
const KEPT: usize = 256;

/// What an object says about the way to its remote.
#[derive(Clone, Default)]
pub struct Transport {
    /// Certificate authorities, PEM, beside those of the system.
    pub ca: Option<Vec<u8>>,
    /// Certificate and key, PEM.
    pub client_certificate: Option<SecretString>,
    pub proxy: Option<Proxy>,
    /// Whether any certificate will do.
    pub skip_verify: bool,
    /// Whether an answer that points elsewhere is handed to the caller instead of being followed.
    pub no_redirects: bool,
}

/// Who keeps the time.
#[derive(Clone, Copy)]
enum Manner {
    Usual,
    Patient,
}

#[derive(Clone)]
pub struct Proxy {
    pub address: String,
    pub login: Option<(String, SecretString)>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("ca.crt: {0}")]
    Ca(String),
    #[error("tls.crt and tls.key are no valid pair")]
    ClientCertificate,
    #[error("invalid proxy address: {0}")]
    Proxy(String),
    #[error("no HTTP client: {0}")]
    Client(String),
}

impl Transport {
    /// A client, new or shared with everybody who asked for the same.
    pub fn client(&self) -> Result<reqwest::Client, Error> {
        self.shared(Manner::Usual)
    }

    /// For those who keep the time themselves: a Git server may think about a large pack for as long as they wait.
    pub fn patient_client(&self) -> Result<reqwest::Client, Error> {
        self.shared(Manner::Patient)
    }

    fn shared(&self, manner: Manner) -> Result<reqwest::Client, Error> {
        static CLIENTS: LazyLock<Mutex<HashMap<[u8; 32], reqwest::Client>>> = LazyLock::new(Mutex::default);
        // A client's connections belong to the runtime they were made in.
        let runtime = tokio::runtime::Handle::try_current().map(|handle| format!("{:?}", handle.id())).ok();
        let id = self.id(runtime.as_deref().unwrap_or_default(), manner);
        if let Some(client) = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(client.clone());
        }
        let client = self.build(manner)?;
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= KEPT {
            clients.clear();
        }
        clients.insert(id, client.clone());
        Ok(client)
    }

    fn build(&self, manner: Manner) -> Result<reqwest::Client, Error> {
        // Bytes are compared with digests, so nobody may unpack them on the way.
        let mut builder = reqwest::Client::builder()
            .user_agent("flux/v2")
            .no_gzip()
            .connect_timeout(std::time::Duration::from_secs(30))
            .pool_max_idle_per_host(4);
        if let Manner::Usual = manner {
            // Between two pieces of an answer; a remote that says nothing for so long is gone.
            builder = builder.read_timeout(std::time::Duration::from_secs(60));
        }
        if let Some(ca) = &self.ca {
            let bundle =
                reqwest::Certificate::from_pem_bundle(ca).map_err(|error| Error::Ca(error.to_string()))?;
            if bundle.is_empty() {
                return Err(Error::Ca("no certificate in it".to_owned()));
            }
            builder = builder.tls_certs_merge(bundle);
        }
        if let Some(pem) = &self.client_certificate {
            let identity = reqwest::Identity::from_pem(pem.expose().as_bytes());
            builder = builder.identity(identity.map_err(|_| Error::ClientCertificate)?);
        }
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(proxy.to_reqwest()?);
        }
        if self.skip_verify {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if self.no_redirects {
            builder = builder.redirect(reqwest::redirect::Policy::none());
        }
        builder.build().map_err(|error| Error::Client(error.without_url().to_string()))
    }

    fn id(&self, runtime: &str, manner: Manner) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(runtime.as_bytes());
        field(self.ca.as_deref().unwrap_or_default());
        field(self.client_certificate.as_ref().map(|pem| pem.expose().as_bytes()).unwrap_or_default());
        if let Some(proxy) = &self.proxy {
            field(proxy.address.as_bytes());
            if let Some((user, password)) = &proxy.login {
                field(user.as_bytes());
                field(password.expose().as_bytes());
            }
        }
        field(&[u8::from(self.skip_verify), u8::from(self.no_redirects), manner as u8]);
        hash.finalize().into()
    }
}

impl Proxy {
    fn to_reqwest(&self) -> Result<reqwest::Proxy, Error> {
        let proxy = reqwest::Proxy::all(&self.address)
            .map_err(|error| Error::Proxy(error.without_url().to_string()))?;
        Ok(match &self.login {
            Some((user, password)) => proxy.basic_auth(user, password.expose()),
            None => proxy,
        })
    }
}

/// The chain of causes without the URL, which may carry a token.
pub fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The URL without user, password and query, to be shown to people.
pub fn shown(url: &url::Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// An address as it was written, without what may be a password in it. Whoever logs in over SSH is no secret.
pub fn shown_text(address: &str) -> String {
    let Ok(mut url) = url::Url::parse(address) else {
        return address.rsplit_once('@').map_or_else(|| address.to_owned(), |(_, rest)| rest.to_owned());
    };
    // In an HTTP address a user name alone may be a token, and so may the query.
    if url.scheme().starts_with("http") {
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        return if plain { address.to_owned() } else { shown(&url) };
    }
    if url.password().is_none() {
        return address.to_owned();
    }
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_url_holds_no_secret() {
        let url = url::Url::parse("https://user:canary@host/path?sig=canary#canary").unwrap();
        assert_eq!(shown(&url), "https://host/path");
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        assert_eq!(shown_text("https://user:pass@host/a.git"), "https://host/a.git");
        assert_eq!(shown_text("https://token@host/a.git"), "https://host/a.git");
        assert_eq!(shown_text("https://host/charts?token=canary"), "https://host/charts");
        assert_eq!(shown_text("ssh://git:pass@host/a.git"), "ssh://git@host/a.git");
        assert_eq!(shown_text("ssh://git@host/a.git"), "ssh://git@host/a.git");
        assert_eq!(shown_text("https://host/A.git"), "https://host/A.git");
        assert_eq!(shown_text("oci://host/charts"), "oci://host/charts");
        assert_eq!(shown_text("ssh://me:pass@[bad"), "[bad");
    }

    #[test]
    fn a_bad_authority_is_named_and_not_shown() {
        let transport = Transport { ca: Some(b"canary".to_vec()), ..Transport::default() };
        let error = transport.client().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("ca.crt: ") && !error.contains("canary"), "{error}");
    }
}
