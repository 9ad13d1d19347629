//! What Secrets say about the way to a remote: certificates, proxies, pull secrets. Values are never shown.

use std::collections::BTreeMap;

use flux_api::meta::LocalReference;
use flux_api::secret::SecretString;
use flux_remote::helm_repository::Login;
use flux_remote::oci::{Credentials, DockerConfig};
use flux_remote::transport::{Proxy, Transport};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client, ResourceExt};

use super::credentials::basic;

const LONGEST_PROXY_ADDRESS: usize = 2048;
const DOCKER_CONFIG: &str = ".dockerconfigjson";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("secret '{0}' not found")]
    NoSecret(String),
    #[error("failed to get secret '{0}': {1}")]
    Secret(String, String),
    #[error("serviceaccount '{0}' not found")]
    NoServiceAccount(String),
    #[error("failed to get serviceaccount '{0}': {1}")]
    ServiceAccount(String, String),
    #[error("failed to get image pull secret for serviceaccount '{0}': {1}")]
    PullSecret(String, Box<Error>),
    #[error("secret '{0}': key '{1}' not found")]
    NoKey(String, &'static str),
    #[error("secret '{0}' contains '{1}' but missing '{2}'")]
    HalfPair(String, &'static str, &'static str),
    #[error("secret '{0}' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'")]
    NoTls(String),
    #[error("secret '{0}': malformed basic auth - has '{1}' but missing '{2}'")]
    HalfBasic(String, &'static str, &'static str),
    #[error("secret '{0}': {1}")]
    Malformed(String, String),
}

/// The Secrets of one namespace.
#[derive(Clone, Copy)]
pub struct Secrets<'a> {
    pub client: &'a Client,
    pub namespace: &'a str,
}

/// A Secret with a way to read it.
pub struct Data {
    id: String,
    kind: Option<String>,
    data: BTreeMap<String, k8s_openapi::ByteString>,
}

impl Secrets<'_> {
    pub async fn get(&self, name: &str) -> Result<Data, Error> {
        let id = format!("{}/{name}", self.namespace);
        let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        match api.get_opt(name).await {
            Ok(Some(secret)) => Ok(Data { id, kind: secret.type_, data: secret.data.unwrap_or_default() }),
            Ok(None) => Err(Error::NoSecret(id)),
            Err(error) => Err(Error::Secret(id, api_message(error))),
        }
    }

    /// TLS material and proxy of an object.
    pub async fn transport(
        &self,
        certificates: Option<&LocalReference>,
        proxy: Option<&LocalReference>,
    ) -> Result<Transport, Error> {
        let mut transport = Transport::default();
        if let Some(reference) = certificates {
            self.get(&reference.name).await?.add_tls(&mut transport)?;
        }
        if let Some(reference) = proxy {
            transport.proxy = Some(self.get(&reference.name).await?.proxy()?);
        }
        Ok(transport)
    }

    /// The pull secrets of an object and of its ServiceAccount. `None` when there are none.
    pub async fn pull_secrets(
        &self,
        secret: Option<&LocalReference>,
        service_account: Option<&str>,
    ) -> Result<Option<DockerConfig>, Error> {
        let mut found: Option<DockerConfig> = None;
        let mut add = |config: DockerConfig| found.get_or_insert_default().merge(config);
        if let Some(reference) = secret {
            add(self.get(&reference.name).await?.docker_config()?);
        }
        if let Some(account) = service_account {
            for name in self.image_pull_secrets(account).await? {
                let config = match self.get(&name).await {
                    Ok(data) => data.docker_config(),
                    Err(error) => Err(error),
                };
                let id = || format!("{}/{account}", self.namespace);
                add(config.map_err(|error| Error::PullSecret(id(), Box::new(error)))?);
            }
        }
        Ok(found)
    }

    async fn image_pull_secrets(&self, account: &str) -> Result<Vec<String>, Error> {
        let id = format!("{}/{account}", self.namespace);
        let account = match self.service_account(account).await {
            Ok(Some(account)) => account,
            Ok(None) => return Err(Error::NoServiceAccount(id)),
            Err(error) => return Err(Error::ServiceAccount(id, api_message(error))),
        };
        Ok(account
            .image_pull_secrets
            .unwrap_or_default()
            .into_iter()
            .map(|reference| reference.name)
            .collect())
    }

    pub async fn service_account(&self, name: &str) -> Result<Option<ServiceAccount>, kube::Error> {
        Api::<ServiceAccount>::namespaced(self.client.clone(), self.namespace).get_opt(name).await
    }
}

impl Data {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(|value| value.0.as_slice())
    }

    pub fn keys(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.data.iter().map(|(key, value)| (key.as_str(), value.0.as_slice()))
    }

    /// A text; line breaks at its end are somebody's editor.
    pub fn text(&self, key: &'static str) -> Result<Option<String>, Error> {
        let Some(bytes) = self.bytes(key) else { return Ok(None) };
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::Malformed(self.id.clone(), format!("key '{key}' is not text")))?;
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
    }

    pub fn secret_text(&self, key: &'static str) -> Result<SecretString, Error> {
        let text = self.text(key)?.ok_or_else(|| Error::NoKey(self.id.clone(), key))?;
        Ok(SecretString::new(text))
    }

    /// Certificates under their keys of today or, where those are missing, of the past.
    pub fn add_tls(&self, transport: &mut Transport) -> Result<(), Error> {
        let either = |new, old| self.bytes(new).or_else(|| self.bytes(old)).filter(|bytes| !bytes.is_empty());
        let ca = either("ca.crt", "caFile");
        let pair = match (either("tls.crt", "certFile"), either("tls.key", "keyFile")) {
            (Some(certificate), Some(key)) => Some([certificate, b"\n", key].concat()),
            (Some(_), None) => return Err(Error::HalfPair(self.id.clone(), "tls.crt", "tls.key")),
            (None, Some(_)) => return Err(Error::HalfPair(self.id.clone(), "tls.key", "tls.crt")),
            (None, None) => None,
        };
        if ca.is_none() && pair.is_none() {
            return Err(Error::NoTls(self.id.clone()));
        }
        transport.ca = ca.map(<[u8]>::to_vec);
        transport.client_certificate = match pair.map(String::from_utf8) {
            None => None,
            Some(Ok(pem)) => Some(SecretString::new(pem)),
            Some(Err(_)) => return Err(Error::Malformed(self.id.clone(), "'tls.crt' is no PEM".to_owned())),
        };
        Ok(())
    }

    pub fn has_tls(&self) -> bool {
        ["ca.crt", "caFile", "tls.crt", "certFile"].iter().any(|key| self.bytes(key).is_some())
    }

    pub fn proxy(&self) -> Result<Proxy, Error> {
        let malformed = |problem: String| Error::Malformed(self.id.clone(), problem);
        let address = self.text("address")?.ok_or_else(|| Error::NoKey(self.id.clone(), "address"))?;
        if address.is_empty() {
            return Err(malformed("proxy address is empty".to_owned()));
        }
        if address.len() > LONGEST_PROXY_ADDRESS {
            return Err(malformed(format!(
                "proxy URL exceeds maximum length of {LONGEST_PROXY_ADDRESS} characters"
            )));
        }
        let url = url::Url::parse(&address)
            .map_err(|error| malformed(format!("failed to parse proxy address: {error}")))?;
        if !["http", "https", "socks5", "socks5h"].contains(&url.scheme()) {
            return Err(malformed(format!(
                "proxy URL must use one of the supported schemes (http, https, socks5, socks5h), got '{}'",
                url.scheme()
            )));
        }
        let login = match (self.text("username")?, self.text("password")?) {
            (Some(username), password) => Some((username, SecretString::new(password.unwrap_or_default()))),
            (None, _) => None,
        };
        Ok(Proxy { address, login })
    }

    pub fn basic_auth(&self) -> Result<Option<(String, SecretString)>, Error> {
        match (self.text("username")?, self.text("password")?) {
            (Some(username), Some(password)) => Ok(Some((username, SecretString::new(password)))),
            (Some(_), None) => Err(Error::HalfBasic(self.id.clone(), "username", "password")),
            (None, Some(_)) => Err(Error::HalfBasic(self.id.clone(), "password", "username")),
            (None, None) => Ok(None),
        }
    }

    pub fn docker_config(&self) -> Result<DockerConfig, Error> {
        let malformed = |error: flux_remote::oci::DockerConfigError| {
            Error::Malformed(self.id.clone(), format!("invalid docker config: {error}"))
        };
        if let Some(json) = self.bytes(DOCKER_CONFIG) {
            return DockerConfig::parse(json).map_err(malformed);
        }
        if let Some(json) = self.bytes(".dockercfg") {
            return DockerConfig::parse_legacy(json).map_err(malformed);
        }
        Err(Error::NoKey(self.id.clone(), DOCKER_CONFIG))
    }

    /// The login of a chart repository that is a registry: a docker configuration, or a user and password.
    pub fn chart_registry_login(&self, registry: &str, name: &str) -> Result<Option<Credentials>, Error> {
        let secret = self.id.rsplit('/').next().unwrap_or_default();
        if self.kind.as_deref() == Some("kubernetes.io/dockerconfigjson") {
            let config = self.docker_config()?;
            let found = config.find(registry, name).cloned();
            let problem =
                || format!("no auth config for '{registry}' in the docker-registry Secret '{secret}'");
            return found.map(Some).ok_or_else(|| Error::Malformed(self.id.clone(), problem()));
        }
        Ok(self.basic_auth()?.map(|(username, password)| Credentials::Basic { username, password }))
    }
}

/// The login of a chart repository over HTTP, and its TLS material.
pub async fn chart_repository(
    secrets: Secrets<'_>,
    spec: &flux_api::source::HelmRepositorySpec,
) -> Result<(Transport, Login), String> {
    let mut transport = Transport::default();
    let mut login = Login { authorization: None, pass_credentials: spec.pass_credentials };
    if let Some(reference) = &spec.cert_secret_ref {
        let id = format!("{}/{}", secrets.namespace, reference.name);
        let data = secrets.get(&reference.name).await.map_err(|error| {
            format!("failed to get TLS authentication secret '{id}': {}", cause(&error, &reference.name))
        })?;
        data.add_tls(&mut transport)
            .map_err(|error| format!("failed to construct Helm client's TLS config: {error}"))?;
    }
    if let Some(reference) = &spec.secret_ref {
        let data = auth_secret(secrets, reference).await?;
        let basic_auth =
            data.basic_auth().map_err(|error| format!("failed to detect authentication methods: {error}"))?;
        login.authorization = basic_auth.map(|(username, password)| basic(&username, password.expose()));
        if spec.cert_secret_ref.is_none() && data.has_tls() {
            tracing::info!(
                "warning: specifying TLS authentication data via `.spec.secretRef` is deprecated, please use `.spec.certSecretRef` instead"
            );
            data.add_tls(&mut transport)
                .map_err(|error| format!("failed to detect authentication methods: {error}"))?;
        }
    }
    Ok((transport, login))
}

pub async fn auth_secret(secrets: Secrets<'_>, reference: &LocalReference) -> Result<Data, String> {
    let id = format!("{}/{}", secrets.namespace, reference.name);
    let found = secrets.get(&reference.name).await;
    found.map_err(|error| {
        format!("failed to get authentication secret '{id}': {}", cause(&error, &reference.name))
    })
}

/// As the API server words it.
fn cause(error: &Error, name: &str) -> String {
    match error {
        Error::NoSecret(_) => format!("secrets \"{name}\" not found"),
        Error::Secret(_, cause) => cause.clone(),
        error => error.to_string(),
    }
}

fn api_message(error: kube::Error) -> String {
    match error {
        kube::Error::Api(answer) => answer.message.clone(),
        error => error.to_string(),
    }
}

/// A secret that is at hand, for tests.
impl From<Secret> for Data {
    fn from(secret: Secret) -> Self {
        let id = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
        Data { id, kind: secret.type_, data: secret.data.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn with(keys: &[(&str, &str)]) -> Data {
        let data = keys.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        Data { id: "ns/s".to_owned(), kind: None, data: data.collect() }
    }

    fn tls(keys: &[(&str, &str)]) -> String {
        let mut transport = Transport::default();
        with(keys).add_tls(&mut transport).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn half_of_something_is_named_and_never_shown() {
        assert_eq!(tls(&[("tls.crt", "canary")]), "secret 'ns/s' contains 'tls.crt' but missing 'tls.key'");
        assert_eq!(tls(&[("keyFile", "canary")]), "secret 'ns/s' contains 'tls.key' but missing 'tls.crt'");
        assert_eq!(tls(&[]), "secret 'ns/s' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'");
        assert_eq!(tls(&[("caFile", "x")]), "");
        let error = with(&[("password", "canary")]).basic_auth().err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("secret 'ns/s': malformed basic auth - has 'password' but missing 'username'")
        );
    }

    #[test]
    fn a_proxy_needs_an_address_of_a_known_kind() {
        let proxy = |keys: &[(&str, &str)]| match with(keys).proxy() {
            Ok(proxy) => proxy.address,
            Err(error) => error.to_string(),
        };
        assert_eq!(proxy(&[("address", "http://proxy:3128\n")]), "http://proxy:3128");
        assert_eq!(proxy(&[]), "secret 'ns/s': key 'address' not found");
        assert_eq!(proxy(&[("address", "")]), "secret 'ns/s': proxy address is empty");
        assert!(proxy(&[("address", "ftp://proxy")]).contains("supported schemes"));
    }
}
