//! Secrets in the shapes Flux documents, read once and never shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::secret::SecretString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

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
    Ok(HttpLogin { authorization, ca, client_certificate })
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
}
