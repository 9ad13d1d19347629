//! Secrets in the shapes Flux documents, read once and never shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::secret::SecretString;
use flux_remote::git::SshLogin;
use flux_remote::git::github_app::AppData;
use flux_remote::transport::Proxy;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

/// Of a proxy.
const LONGEST_ADDRESS: usize = 2048;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to get secret '{namespace}/{name}': {cause}")]
    Missing { namespace: String, name: String, cause: String },
    #[error("secret '{0}': key '{1}' is not text")]
    NotText(String, &'static str),
    #[error("secret '{0}': invalid basic auth data: required fields 'username' and 'password'")]
    HalfBasic(String),
    #[error("secret '{0}': {1}")]
    Malformed(String, String),
    #[error("invalid '{scheme}' auth option: {problem}")]
    Option { scheme: String, problem: &'static str },
    #[error("SSH identity key is encrypted but no 'password' field was provided in the secret '{0}'")]
    EncryptedKey(String),
}

impl Error {
    /// What went wrong without saying again which Secret it is.
    pub fn cause(&self) -> String {
        match self {
            Error::Missing { cause, .. } => cause.clone(),
            other => other.to_string(),
        }
    }
}

/// What a Secret offers to log in with over HTTP.
#[derive(Default)]
pub struct HttpLogin {
    pub authorization: Option<SecretString>,
    pub ca: Option<Vec<u8>>,
    /// Certificate and key, PEM.
    pub client_certificate: Option<SecretString>,
}

pub async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Secret, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    api.get(name).await.map_err(|error| Error::Missing {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        cause: match error {
            kube::Error::Api(answer) => answer.message.clone(),
            error => error.to_string(),
        },
    })
}

/// Basic or bearer credentials and TLS material. A bearer token wins.
pub fn http_login(secret: &Secret) -> Result<HttpLogin, Error> {
    let name = secret.metadata.name.clone().unwrap_or_default();
    let bytes = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.clone());
    let text = |key: &'static str| match bytes(key) {
        Some(value) => String::from_utf8(value)
            .map(|text| Some(text.trim_end_matches(['\n', '\r']).to_owned()))
            .map_err(|_| Error::NotText(name.clone(), key)),
        None => Ok(None),
    };
    let authorization = match (text("bearerToken")?, text("username")?, text("password")?) {
        (Some(token), _, _) => Some(SecretString::new(format!("Bearer {token}"))),
        (None, Some(username), Some(password)) => Some(basic(&username, &password)),
        (None, None, None) => None,
        (None, Some(_), None) | (None, None, Some(_)) => return Err(Error::HalfBasic(name)),
    };
    Ok(HttpLogin { authorization, ..tls(secret)? })
}

/// CA bundle and client certificate.
fn tls(secret: &Secret) -> Result<HttpLogin, Error> {
    let name = secret.metadata.name.clone().unwrap_or_default();
    let bytes = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.clone());
    let ca = bytes("ca.crt").or_else(|| bytes("caFile"));
    let certificate = bytes("tls.crt").or_else(|| bytes("certFile"));
    let key = bytes("tls.key").or_else(|| bytes("keyFile"));
    let client_certificate = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let pem = [certificate, b"\n".to_vec(), key].concat();
            let pem = String::from_utf8(pem).map_err(|_| Error::NotText(name.clone(), "tls.crt"))?;
            Some(SecretString::new(pem))
        }
        (None, None) => None,
        _ => {
            let problem = "'tls.crt' and 'tls.key' belong together, one of them is missing".to_owned();
            return Err(Error::Malformed(name, problem));
        }
    };
    Ok(HttpLogin { authorization: None, ca, client_certificate })
}

/// What a Secret offers to log in to a Git host with.
#[derive(Default)]
pub struct GitLogin {
    pub http: HttpLogin,
    pub ssh: Option<SshLogin>,
    pub app: AppData,
}

/// Credentials for an address with `scheme` (http, https or ssh); what the Secret does not say of user and password, the
/// address may. What an SSH key needs stays with SSH: its passphrase stands under `password`, and is nobody's HTTP
/// password.
pub fn git_login(
    secret: Option<&Secret>,
    scheme: &str,
    username_in_url: Option<String>,
    password_in_url: Option<String>,
) -> Result<GitLogin, Error> {
    let invalid = |problem| Error::Option { scheme: scheme.to_owned(), problem };
    let value = |key: &str| secret.and_then(|secret| text(secret, key));
    let (identity, known_hosts) = (value("identity"), value("known_hosts"));
    if scheme == "ssh" {
        let login = SshLogin {
            identity: SecretString::new(identity.ok_or_else(|| invalid("'identity' is required"))?),
            passphrase: value("password").filter(|text| !text.is_empty()).map(SecretString::new),
            known_hosts: known_hosts.ok_or_else(|| invalid("'known_hosts' is required"))?,
        };
        return Ok(GitLogin { ssh: Some(login), ..GitLogin::default() });
    }
    let (username, password) = (value("username").or(username_in_url), value("password").or(password_in_url));
    let authorization = match (value("bearerToken"), username, password) {
        (Some(token), _, _) => Some(SecretString::new(format!("Bearer {token}"))),
        (None, Some(username), password) => Some(basic(&username, password.as_deref().unwrap_or_default())),
        (None, None, Some(_)) => return Err(invalid("'password' requires 'username' to be set")),
        (None, None, None) => None,
    };
    let tls = match secret {
        Some(secret) => tls(secret)?,
        None => HttpLogin::default(),
    };
    let ssh = identity.zip(known_hosts).map(|(identity, known_hosts)| SshLogin {
        identity: SecretString::new(identity),
        passphrase: None,
        known_hosts,
    });
    let app = AppData {
        app_id: value("githubAppID"),
        installation_owner: value("githubAppInstallationOwner"),
        installation_id: value("githubAppInstallationID"),
        private_key: value("githubAppPrivateKey").map(SecretString::new),
        base_url: value("githubAppBaseURL"),
    };
    Ok(GitLogin { http: HttpLogin { authorization, ..tls }, ssh, app })
}

/// The text under `key`, if there is any, without the line feed that editors add.
pub fn text(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    let text = String::from_utf8(value.0.clone()).ok()?;
    Some(text.trim_end_matches(['\n', '\r']).to_owned()).filter(|text| !text.is_empty())
}

/// A proxy: `address` and, if it wants them, `username` and `password`.
pub fn proxy(secret: &Secret) -> Result<Proxy, Error> {
    let name = secret.metadata.name.clone().unwrap_or_default();
    let malformed = |problem: &str| Error::Malformed(name.clone(), problem.to_owned());
    let address = text(secret, "address").ok_or_else(|| malformed("key 'address' is missing"))?;
    if address.len() > LONGEST_ADDRESS {
        return Err(malformed("key 'address' is longer than 2048 characters"));
    }
    let url = url::Url::parse(&address).map_err(|_| malformed("key 'address' is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") || !url.has_host() {
        return Err(malformed("key 'address' must begin with http, https or socks5"));
    }
    let (username, password) = (text(secret, "username"), text(secret, "password").unwrap_or_default());
    let login = username.map(|username| (username, SecretString::new(password)));
    Ok(Proxy { address, login })
}

pub fn basic(username: &str, password: &str) -> SecretString {
    SecretString::new(format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn with(keys: &[(&str, &str)]) -> Secret {
        let data = keys.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        Secret { data: Some(data.collect()), ..Secret::default() }
    }

    #[test]
    fn a_bearer_token_wins_over_a_password() {
        let login = http_login(&with(&[("bearerToken", "t\n"), ("username", "u"), ("password", "p")]))
            .unwrap_or_default();
        assert_eq!(login.authorization.map(SecretString::into_exposed), Some("Bearer t".to_owned()));
    }

    #[test]
    fn half_a_login_is_an_error_that_shows_no_value() {
        let error = http_login(&with(&[("password", "hunter2")])).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("username") && !text.contains("hunter2")));
        assert!(http_login(&with(&[("tls.crt", "x")])).is_err());
    }

    fn problem(secret: &Secret, scheme: &str) -> String {
        git_login(Some(secret), scheme, None, None).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn ssh_needs_a_key_and_known_hosts() {
        assert_eq!(
            git_login(None, "ssh", None, None).err().map(|error| error.to_string()),
            Some("invalid 'ssh' auth option: 'identity' is required".to_owned())
        );
        let half = with(&[("identity", "key")]);
        assert_eq!(problem(&half, "ssh"), "invalid 'ssh' auth option: 'known_hosts' is required");
        let whole = with(&[("identity", "key"), ("known_hosts", "host key"), ("password", "phrase")]);
        let login = git_login(Some(&whole), "ssh", None, None).unwrap_or_default();
        assert!(login.http.authorization.is_none(), "a passphrase is no HTTP password");
        assert!(login.ssh.is_some_and(|ssh| ssh.passphrase.is_some()));
    }

    #[test]
    fn a_git_password_needs_a_user_name_and_no_value_is_shown() {
        let text = problem(&with(&[("password", "hunter2")]), "https");
        assert_eq!(text, "invalid 'https' auth option: 'password' requires 'username' to be set");
        let token = with(&[("bearerToken", "t"), ("username", "u")]);
        assert_eq!(shown(Some(&token), None, None), "Bearer t");
    }

    fn shown(secret: Option<&Secret>, username: Option<&str>, password: Option<&str>) -> String {
        let (username, password) = (username.map(str::to_owned), password.map(str::to_owned));
        let login = git_login(secret, "https", username, password).unwrap_or_default();
        login.http.authorization.map(SecretString::into_exposed).unwrap_or_default()
    }

    #[test]
    fn the_address_says_what_the_secret_does_not() {
        let basic = |username, password| super::basic(username, password).into_exposed();
        assert_eq!(shown(None, Some("ann"), Some("p@ss")), basic("ann", "p@ss"));
        assert_eq!(shown(None, Some("token"), None), basic("token", ""));
        let secret = with(&[("username", "ann"), ("password", "right")]);
        assert_eq!(shown(Some(&secret), Some("bob"), Some("wrong")), basic("ann", "right"));
        assert_eq!(shown(Some(&with(&[("password", "p")])), Some("bob"), None), basic("bob", "p"));
        assert_eq!(shown(None, None, None), "");
    }

    #[test]
    fn a_proxy_has_an_address_and_maybe_credentials() {
        assert!(
            proxy(&with(&[("address", "http://proxy:3128"), ("username", "u"), ("password", "p@ss")]))
                .is_ok()
        );
        assert!(proxy(&with(&[("address", "socks5://proxy:1080")])).is_ok());
        let long = format!("http://{}", "x".repeat(2048));
        for keys in [
            &[("username", "u")][..],
            &[("address", "ftp://x")],
            &[("address", "nonsense")],
            &[("address", long.as_str())],
        ] {
            let text = proxy(&with(keys)).err().map(|error| error.to_string());
            assert!(text.is_some_and(|text| text.contains("address")));
        }
    }
}
