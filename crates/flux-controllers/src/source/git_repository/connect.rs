//! The way to a repository: its address, the credentials of the Secret, the proxy.

use std::time::SystemTime;

use flux_api::Object;
use flux_api::secret::SecretString;
use flux_api::source::{GitProvider, GitRepository};
use flux_remote::cloud::{self, Provider};
use flux_remote::git::github_app::{self, AppData, GithubApp};
use flux_remote::git::{self, Address, Http, Remote, Ssh, SshAlgorithms, SshLogin};
use flux_remote::transport::{self, Proxy, Transport, shown_text as shown};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::cloud::{Asker, CloudIdentity};
use super::super::credentials::{self, GitLogin};
use super::failure::Failure;
use super::hash;

/// Opens ways to repositories, for whoever has a GitRepository to go by.
pub struct Connector {
    identity: CloudIdentity,
    algorithms: SshAlgorithms,
}

/// Why there is no way to a repository.
#[derive(Debug, thiserror::Error)]
pub enum NoWay {
    /// Only a change of the GitRepository can help.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Failed(String),
}

/// How to reach the repository and, with the same means, its submodules.
pub struct Way {
    pub address: Address,
    pub remote: Box<dyn Remote>,
    login: GitLogin,
    proxy: Option<Proxy>,
}

impl Connector {
    pub fn new(identity: CloudIdentity, algorithms: SshAlgorithms) -> Self {
        Self { identity, algorithms }
    }

    /// The same as [`Connector::connect`] for those who have no word in how a GitRepository is judged.
    pub async fn open(&self, object: &GitRepository, deadline: Instant) -> Result<Way, NoWay> {
        self.connect(object, deadline).await.map_err(|failure| match failure {
            Failure::Provider(_) | Failure::NoAppSecret | Failure::NoAppData | Failure::GateDisabled => {
                NoWay::Invalid(failure.to_string())
            }
            failure => NoWay::Failed(failure.to_string()),
        })
    }

    pub(super) async fn connect(&self, object: &GitRepository, deadline: Instant) -> Result<Way, Failure> {
        let spec = &object.spec;
        let proxy = self.proxy(object).await?;
        let address = Address::parse(&spec.url)
            .map_err(|error| Failure::Url { url: shown(&spec.url), cause: plain(&error) })?;
        let mut login = self.login(object, &address).await?;
        if spec.provider() == GitProvider::Github {
            let asking = self.app_token(object, &login, proxy.as_ref());
            let timed = tokio::time::timeout_at(deadline, asking).await;
            let token = timed.map_err(|_| Failure::Login("the GitHub API does not answer".to_owned()))??;
            login.http.authorization = Some(credentials::basic(github_app::TOKEN_USER, token.expose()));
        }
        if let Address::Http(url) = &address
            && let Some(authorization) = self.cloud_login(object, url, proxy.as_ref()).await?
        {
            login.http.authorization = Some(authorization);
        }
        if proxy.is_some() && matches!(address, Address::Ssh(_)) {
            let problem = "spec.proxySecretRef is for http and https addresses, not for ssh";
            return Err(Failure::Proxy(problem.to_owned()));
        }
        let remote = self.remote(&address, &login, proxy.as_ref(), true)?;
        Ok(Way { address, remote, login, proxy })
    }

    /// The same credentials for a submodule, where they belong there. An SSH key is shown to any host that
    /// `known_hosts` names, since that gives nothing away; a password only to the host it was made for.
    pub(super) fn connect_submodule(&self, way: &Way, address: &Address) -> Result<Box<dyn Remote>, Failure> {
        let same = way.address.origin() == address.origin();
        self.remote(address, &way.login, way.proxy.as_ref(), same)
    }

    fn remote(
        &self,
        address: &Address,
        login: &GitLogin,
        proxy: Option<&Proxy>,
        with_password: bool,
    ) -> Result<Box<dyn Remote>, Failure> {
        let failed = |error: git::Error| Failure::AuthMethod(error.to_string());
        match address {
            Address::Http(url) => {
                let client = client(login, proxy, with_password)?;
                let own = login.http.authorization.clone().filter(|_| with_password);
                // A submodule may have an address with credentials of its own.
                let authorization = own.or_else(|| in_address(address)).map(SecretString::into_exposed);
                Ok(Box::new(Http::with_client(client, url, authorization).map_err(failed)?))
            }
            Address::Ssh(address) => {
                let login = login.ssh.as_ref().ok_or_else(|| {
                    Failure::Login(
                        "a submodule is at an ssh address and the Secret holds no SSH key".to_owned(),
                    )
                })?;
                let ssh = Ssh::new(address.clone(), login, &self.algorithms).map_err(failed)?;
                Ok(Box::new(ssh))
            }
        }
    }

    async fn login(&self, object: &GitRepository, address: &Address) -> Result<GitLogin, Failure> {
        let spec = &object.spec;
        let secret = match &spec.secret_ref {
            Some(reference) => {
                let found =
                    credentials::secret(&self.identity.client, Object::namespace(object), &reference.name)
                        .await;
                Some(found.map_err(Failure::Secret)?)
            }
            None => None,
        };
        let has_app =
            secret.as_ref().is_some_and(|secret| credentials::text(secret, "githubAppID").is_some());
        match spec.provider() {
            GitProvider::Generic if has_app => {
                let name =
                    spec.secret_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
                let namespace = Object::namespace(object);
                let problem = format!(
                    "secretRef '{namespace}/{name}' has github app data but provider is not set to github"
                );
                return Err(Failure::Provider(problem));
            }
            GitProvider::Generic => {}
            GitProvider::Github if secret.is_none() => return Err(Failure::NoAppSecret),
            GitProvider::Github if !has_app => return Err(Failure::NoAppData),
            GitProvider::Github => {}
            GitProvider::Azure | GitProvider::Aws => {}
        }
        let login =
            git_login(secret.as_ref(), address).map_err(|problem| Failure::Login(problem.to_string()))?;
        if let Some(ssh) = login.ssh.as_ref().filter(|_| matches!(address, Address::Ssh(_))) {
            check_key(ssh, object)?;
        }
        Ok(login)
    }

    /// What the identity of the object, or our own, is worth at the Git host of a cloud.
    async fn cloud_login(
        &self,
        object: &GitRepository,
        url: &url::Url,
        proxy: Option<&Proxy>,
    ) -> Result<Option<SecretString>, Failure> {
        let provider = match object.spec.provider() {
            GitProvider::Generic | GitProvider::Github => return Ok(None),
            GitProvider::Azure => Provider::Azure,
            GitProvider::Aws => Provider::Aws,
        };
        let account = object.spec.service_account_name.as_deref();
        if account.is_some() && !self.identity.object_level {
            return Err(Failure::GateDisabled);
        }
        let transport = Transport { proxy: proxy.cloned(), ..Transport::default() };
        let namespace = Object::namespace(object);
        let account = self.identity.account(namespace, provider, account, &transport).await;
        let account = account.map_err(Failure::Cloud)?;
        let found =
            self.identity.cloud.git(provider, url, account.as_ref(), &transport, Timestamp::now()).await;
        let asker = Asker { kind: "GitRepository", namespace, name: Object::name(object) };
        let found = found.inspect_err(|_| self.identity.count(asker, cloud::CacheEvent::Miss));
        let (login, event) = found.map_err(|error| Failure::Cloud(error.to_string()))?;
        self.identity.count(asker, event);
        Ok(Some(match login {
            cloud::GitLogin::Bearer(token) => token.map(|token| format!("Bearer {token}")),
            cloud::GitLogin::Password { username, password } => {
                credentials::basic(username.expose(), password.expose())
            }
        }))
    }

    /// The token of a GitHub App, kept with those of clouds.
    async fn app_token(
        &self,
        object: &GitRepository,
        login: &GitLogin,
        proxy: Option<&Proxy>,
    ) -> Result<SecretString, Failure> {
        let asker =
            Asker { kind: "GitRepository", namespace: Object::namespace(object), name: Object::name(object) };
        let (name, cloud) = (format!("github\n{}", identity(&login.app)), &self.identity.cloud);
        if let Some(token) = cloud.kept(&name, Timestamp::now()) {
            self.identity.count(asker, cloud::CacheEvent::Hit);
            return Ok(token);
        }
        self.identity.count(asker, cloud::CacheEvent::Miss);
        let app = GithubApp::new(&login.app)?;
        let client = client(login, proxy, true)?;
        let given = app.token(&client, SystemTime::now()).await?;
        let expires = Timestamp::try_from(given.expires).unwrap_or_else(|_| Timestamp::now());
        cloud.keep(name, given.token.clone(), expires, Timestamp::now());
        Ok(given.token)
    }

    async fn proxy(&self, object: &GitRepository) -> Result<Option<Proxy>, Failure> {
        let Some(reference) = &object.spec.proxy_secret_ref else {
            return Ok(None);
        };
        let secret = credentials::secret(&self.identity.client, Object::namespace(object), &reference.name)
            .await
            .map_err(|error| Failure::Proxy(error.to_string()))?;
        credentials::proxy(&secret).map(Some).map_err(|error| Failure::Proxy(error.to_string()))
    }
}

fn git_login(secret: Option<&Secret>, address: &Address) -> Result<GitLogin, credentials::Error> {
    let (username, password) = address.user_and_password();
    credentials::git_login(secret, &address.origin().0, username, password)
}

/// What an address itself has to log in with.
fn in_address(address: &Address) -> Option<SecretString> {
    match address.user_and_password() {
        (None, None) => None,
        (username, password) => {
            Some(credentials::basic(&username.unwrap_or_default(), &password.unwrap_or_default()))
        }
    }
}

fn check_key(ssh: &SshLogin, object: &GitRepository) -> Result<(), Failure> {
    match git::private_key(&ssh.identity, ssh.passphrase.as_ref()) {
        Ok(_) => Ok(()),
        Err(git::Error::PassphraseMissing) => {
            let name =
                object.spec.secret_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
            let namespace = Object::namespace(object);
            Err(Failure::Secret(credentials::Error::EncryptedKey(format!("{namespace}/{name}"))))
        }
        Err(error) => Err(Failure::AuthMethod(error.to_string())),
    }
}

/// Shared with everybody on the same way: reading the system's certificates costs more than asking a Git server.
fn client(
    login: &GitLogin,
    proxy: Option<&Proxy>,
    with_certificate: bool,
) -> Result<reqwest::Client, Failure> {
    let transport = Transport {
        ca: login.http.ca.clone(),
        client_certificate: login.http.client_certificate.clone().filter(|_| with_certificate),
        // Without a proxy of its own, the environment's are used.
        proxy: proxy.cloned(),
        no_redirects: true,
        ..Transport::default()
    };
    transport.patient_client().map_err(|error| match error {
        transport::Error::Ca(_) => Failure::AuthMethod("ca.crt holds no certificates in PEM".to_owned()),
        transport::Error::ClientCertificate => {
            Failure::AuthMethod("tls.crt and tls.key are no valid pair".to_owned())
        }
        transport::Error::Proxy(cause) => Failure::Proxy(cause),
        transport::Error::Client(cause) => Failure::Login(cause),
    })
}

fn plain(error: &git::Error) -> String {
    error.to_string().trim_start_matches("invalid URL: ").to_owned()
}

/// A hash of the app's data: the key itself is kept nowhere.
fn identity(app: &AppData) -> String {
    let mut digest = Sha256::new();
    let key = app.private_key.as_ref().map(|key| key.expose().as_str());
    for part in [
        app.app_id.as_deref(),
        app.installation_owner.as_deref(),
        app.installation_id.as_deref(),
        app.base_url.as_deref(),
        key,
    ] {
        digest.update(part.unwrap_or_default());
        digest.update([0]);
    }
    hash(&digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}
