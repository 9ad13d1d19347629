//! Tokens: exchanged for credentials at the place a registry names, if that place may have them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::secret::SecretString;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::{Credentials, Error, Repository};
use crate::transport::{causes, shown};

/// Registries whose token server is, and always was, on another site.
const ELSEWHERE: &[(&str, &str)] = &[("dhi.io", "auth.docker.io")];
const LARGEST_ANSWER: usize = 1 << 20;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

/// What a token is asked for.
pub(super) struct Wanted<'a> {
    pub(super) realm: &'a str,
    pub(super) service: Option<&'a str>,
    pub(super) scope: String,
}

/// A bearer token from the registry's token server.
pub(super) async fn fetch(
    client: &reqwest::Client,
    base: &Url,
    repository: &Repository,
    credentials: Option<&Credentials>,
    wanted: Wanted<'_>,
) -> Result<SecretString, Error> {
    let mut url = Url::parse(wanted.realm).or_else(|_| base.join(wanted.realm)).map_err(|error| {
        Error::Answer { url: shown(base), problem: format!("the realm of its challenge is no URL: {error}") }
    })?;
    if !may_ask(base, &url, credentials.is_some()) {
        let realm = url.host_str().unwrap_or_default().to_owned();
        return Err(Error::ForeignRealm { registry: repository.registry().to_owned(), realm });
    }
    let request = match credentials {
        Some(Credentials::Identity(token)) => {
            let mut form = vec![
                ("grant_type", "refresh_token"),
                ("refresh_token", token.expose().as_str()),
                ("client_id", "flux"),
                ("scope", &wanted.scope),
            ];
            form.extend(wanted.service.map(|service| ("service", service)));
            client.post(url.clone()).form(&form)
        }
        credentials => {
            {
                let mut query = url.query_pairs_mut();
                if let Some(service) = wanted.service {
                    query.append_pair("service", service);
                }
                query.append_pair("scope", &wanted.scope);
            }
            let request = client.get(url.clone());
            match credentials {
                Some(Credentials::Basic { username, password }) => {
                    request.header(AUTHORIZATION, basic(username, password)?)
                }
                _ => request,
            }
        }
    };
    let failed = |error| Error::Unreachable { method: "GET", url: shown(&url), cause: causes(error) };
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    let body = super::registry::body(response, LARGEST_ANSWER, "the token server's answer").await?;
    if !status.is_success() {
        let problem = super::error::problem(status, &body);
        return Err(Error::Refused { method: "GET", url: shown(&url), status: status.as_u16(), problem });
    }
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|_| Error::Answer { url: shown(&url), problem: "no token in the answer".to_owned() })?;
    let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
    if token.is_empty() {
        return Err(Error::Answer { url: shown(&url), problem: "no token in the answer".to_owned() });
    }
    Ok(SecretString::new(token))
}

pub(super) fn basic(username: &str, password: &SecretString) -> Result<HeaderValue, Error> {
    let text = format!("Basic {}", STANDARD.encode(format!("{username}:{}", password.expose())));
    header(&text)
}

pub(super) fn header(text: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Error::Answer {
        url: "credentials".to_owned(),
        problem: "they hold a character that no header may have".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether the token server may be spoken to. Whoever can answer for a registry could otherwise collect its passwords
/// anywhere: credentials stay on the registry's own site, and never lose their TLS.
fn may_ask(registry: &Url, realm: &Url, with_credentials: bool) -> bool {
    let same_origin = registry.origin() == realm.origin();
    if same_origin {
        return true;
    }
    if realm.scheme() != "https" && (with_credentials || registry.scheme() == "https") {
        return false;
    }
    if !matches!(realm.scheme(), "http" | "https") {
        return false;
    }
    if !with_credentials {
        return true;
    }
    let (Some(registry), Some(realm)) = (registry.host_str(), realm.host_str()) else { return false };
    registry == realm || same_site(registry, realm) || ELSEWHERE.contains(&(registry, realm))
}

/// Both below one domain of at least two labels: `index.docker.io` and `auth.docker.io`.
fn same_site(a: &str, b: &str) -> bool {
    let is_address = |host: &str| host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[');
    if is_address(a) || is_address(b) {
        return false;
    }
    let common = a.rsplit('.').zip(b.rsplit('.')).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    // Below domains such as co.uk two labels are nobody's; three are asked for where the second one is short.
    let second = a.rsplit('.').nth(1).map_or(0, str::len);
    common
        >= if second <= 3 && a.rsplit('.').next().map_or(0, str::len) == 2 && a.split('.').count() > 2 {
            3
        } else {
            2
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(registry: &str, realm: &str, with_credentials: bool) -> bool {
        may_ask(&Url::parse(registry).unwrap(), &Url::parse(realm).unwrap(), with_credentials)
    }

    #[test]
    fn credentials_stay_on_the_registrys_site() {
        assert!(may("https://index.docker.io/", "https://auth.docker.io/token", true));
        assert!(may("https://ghcr.io/", "https://ghcr.io/token", true));
        assert!(may("https://registry.gitlab.com/", "https://gitlab.com/jwt/auth", true));
        assert!(may("http://127.0.0.1:5000/", "http://127.0.0.1:5000/token", true));
        assert!(!may("https://ghcr.io/", "https://evil.io/token", true));
        assert!(!may("https://ghcr.io/", "http://ghcr.io/token", true));
        assert!(!may("https://registry.example.co.uk/", "https://evil.co.uk/token", true));
        assert!(!may("https://10.0.0.1/", "https://10.0.0.2/token", true));
        assert!(!may("http://127.0.0.1:5000/", "http://127.0.0.1:6000/token", true));
        assert!(!may("https://ghcr.io/", "file:///etc/passwd", false));
    }

    #[test]
    fn a_token_for_everybody_may_come_from_anywhere_with_tls() {
        assert!(may("https://lscr.io/", "https://ghcr.io/token", false));
        assert!(!may("https://lscr.io/", "http://ghcr.io/token", false));
    }
}
