//! `registry/name`: where images are, read as Docker and go-containerregistry read it.

use std::fmt;
use std::net::IpAddr;

const DOCKER: &str = "index.docker.io";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    registry: String,
    name: String,
    insecure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    #[error("could not parse reference: {0}")]
    Unreadable(String),
    #[error("repository can only contain the characters `abcdefghijklmnopqrstuvwxyz0123456789_-./`: {0}")]
    Characters(String),
    #[error("a repository name must have between 2 and 255 characters: {0}")]
    Length(String),
    #[error("registries must be valid RFC 3986 URI authorities: {0}")]
    Registry(String),
    #[error("URL must not contain a tag; remove ':{0}'")]
    Tag(String),
}

impl Repository {
    /// Reads `[registry/]name`. With `insecure` the registry may be spoken to without TLS.
    pub fn parse(text: &str, insecure: bool) -> Result<Self, RepositoryError> {
        let (registry, name) = match text.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (DOCKER, text),
        };
        let registry = if registry == "docker.io" { DOCKER } else { registry };
        let name = match registry {
            DOCKER if !name.contains('/') => format!("library/{name}"),
            _ => name.to_owned(),
        };
        if let Some((_, tag)) = name.split_once(':') {
            return Err(RepositoryError::Tag(tag.to_owned()));
        }
        if name.is_empty() {
            return Err(RepositoryError::Unreadable(text.to_owned()));
        }
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
        if !name.chars().all(allowed)
            || name.split('/').any(|part| part.is_empty() || part == "." || part == "..")
        {
            return Err(RepositoryError::Characters(name));
        }
        if !(2..=255).contains(&name.len()) {
            return Err(RepositoryError::Length(name));
        }
        let host_characters = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if registry.is_empty() || !registry.chars().all(host_characters) || url(registry).is_none() {
            return Err(RepositoryError::Registry(registry.to_owned()));
        }
        Ok(Self { registry: registry.to_owned(), name, insecure })
    }

    /// Host and, if not the usual one, port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What to try, best first: machines nearby may lack TLS, others only where the user said so.
    pub(super) fn schemes(&self) -> &'static [&'static str] {
        if self.insecure || self.is_nearby() { &["https", "http"] } else { &["https"] }
    }

    fn is_nearby(&self) -> bool {
        let Some(url) = url(&self.registry) else { return false };
        match url.host() {
            Some(url::Host::Domain(name)) => {
                name == "localhost" || name.ends_with(".localhost") || name.ends_with(".local")
            }
            Some(url::Host::Ipv4(address)) => address.is_loopback() || address.is_private(),
            Some(url::Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
            None => false,
        }
    }

    /// The repository with a tag, as users write it.
    pub fn with_tag(&self, tag: &str) -> String {
        format!("{self}:{tag}")
    }

    /// The repository with a digest.
    pub fn with_digest(&self, digest: &super::Digest) -> String {
        format!("{self}@{digest}")
    }
}

fn url(registry: &str) -> Option<url::Url> {
    url::Url::parse(&format!("https://{registry}/"))
        .ok()
        .filter(|url| url.path() == "/" && url.username().is_empty())
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, RepositoryError> {
        Repository::parse(text, false).map(|repository| repository.to_string())
    }

    #[test]
    fn names_are_completed_as_docker_completes_them() {
        assert_eq!(parsed("nginx").unwrap(), "index.docker.io/library/nginx");
        assert_eq!(parsed("org/app").unwrap(), "index.docker.io/org/app");
        assert_eq!(parsed("docker.io/org/app").unwrap(), "index.docker.io/org/app");
        assert_eq!(parsed("ghcr.io/org/app/sub").unwrap(), "ghcr.io/org/app/sub");
        assert_eq!(parsed("localhost/app").unwrap(), "localhost/app");
        assert_eq!(parsed("registry:5000/app").unwrap(), "registry:5000/app");
    }

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        for text in [
            "ghcr.io/",
            "ghcr.io/Org/app",
            "ghcr.io/a/../b",
            "ghcr.io/a//b",
            "ghcr.io/a?b",
            "user@ghcr.io/a",
            "gh cr.io/app",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
        assert_eq!(parsed("ghcr.io/org/app:v1"), Err(RepositoryError::Tag("v1".into())));
    }

    #[test]
    fn plain_http_is_for_the_neighbourhood_and_for_those_who_ask() {
        let schemes = |text: &str, insecure| Repository::parse(text, insecure).unwrap().schemes().len();
        assert_eq!(schemes("ghcr.io/org/app", false), 1);
        assert_eq!(schemes("ghcr.io/org/app", true), 2);
        for near in
            ["127.0.0.1:5000/app", "localhost:5000/app", "10.1.2.3/app", "[::1]:5000/app", "x.local/app"]
        {
            assert_eq!(schemes(near, false), 2, "{near}");
        }
    }
}
