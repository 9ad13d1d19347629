//! Credentials for registries, and the docker configuration that holds them in Secrets.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::secret::SecretString;
use serde::Deserialize;

/// How to log in to a registry.
#[derive(Clone)]
pub enum Credentials {
    Basic {
        username: String,
        password: SecretString,
    },
    /// A token that is exchanged for another one.
    Identity(SecretString),
    /// A token that is sent as it is.
    Bearer(SecretString),
}

#[derive(Debug, thiserror::Error)]
pub enum DockerConfigError {
    #[error("no JSON object with 'auths' in it")]
    Malformed,
    #[error("the entry for '{0}' has an 'auth' that is no base64 of 'user:password'")]
    Auth(String),
}

/// The `.dockerconfigjson` of a pull secret.
#[derive(Default)]
pub struct DockerConfig {
    entries: BTreeMap<String, Credentials>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

impl DockerConfig {
    /// Reads `{"auths": …}`.
    pub fn parse(json: &[u8]) -> Result<Self, DockerConfigError> {
        let file: File = serde_json::from_slice(json).map_err(|_| DockerConfigError::Malformed)?;
        Self::from_entries(file.auths)
    }

    /// Reads the old form, `.dockercfg`, which is the inner map alone.
    pub fn parse_legacy(json: &[u8]) -> Result<Self, DockerConfigError> {
        let auths = serde_json::from_slice(json).map_err(|_| DockerConfigError::Malformed)?;
        Self::from_entries(auths)
    }

    fn from_entries(auths: BTreeMap<String, Entry>) -> Result<Self, DockerConfigError> {
        let mut entries = BTreeMap::new();
        for (registry, entry) in auths {
            if let Some(credentials) = entry.credentials(&registry)? {
                entries.insert(plain(&registry), credentials);
            }
        }
        Ok(Self { entries })
    }

    /// Adds what another secret says; what is known already stays.
    pub fn merge(&mut self, other: DockerConfig) {
        for (registry, credentials) in other.entries {
            self.entries.entry(registry).or_insert(credentials);
        }
    }

    /// The credentials for a repository: of its longest known prefix, as the kubelet matches them. A `*` stands for one
    /// label of a host name.
    pub fn find(&self, registry: &str, name: &str) -> Option<&Credentials> {
        let mut wanted = format!("{registry}/{name}");
        loop {
            if let Some(found) = self.entries.get(&wanted) {
                return Some(found);
            }
            match wanted.rsplit_once('/') {
                Some((shorter, _)) => wanted = shorter.to_owned(),
                None => break,
            }
        }
        if registry == "index.docker.io"
            && let Some(found) =
                self.entries.get("docker.io").or_else(|| self.entries.get("registry-1.docker.io"))
        {
            return Some(found);
        }
        self.entries.iter().find(|(pattern, _)| matches(pattern, registry)).map(|(_, found)| found)
    }
}

impl Entry {
    fn credentials(self, registry: &str) -> Result<Option<Credentials>, DockerConfigError> {
        if !self.registrytoken.is_empty() {
            return Ok(Some(Credentials::Bearer(SecretString::new(self.registrytoken))));
        }
        if !self.identitytoken.is_empty() {
            return Ok(Some(Credentials::Identity(SecretString::new(self.identitytoken))));
        }
        if !self.auth.is_empty() {
            let wrong = || DockerConfigError::Auth(registry.to_owned());
            let text = STANDARD.decode(self.auth.trim().trim_end_matches('\0')).map_err(|_| wrong())?;
            let text = String::from_utf8(text).map_err(|_| wrong())?;
            let (username, password) = text.split_once(':').ok_or_else(wrong)?;
            let password = SecretString::new(password.trim_end_matches('\0').to_owned());
            return Ok(Some(Credentials::Basic { username: username.to_owned(), password }));
        }
        if self.username.is_empty() && self.password.is_empty() {
            return Ok(None);
        }
        Ok(Some(Credentials::Basic { username: self.username, password: SecretString::new(self.password) }))
    }
}

/// `https://index.docker.io/v1/` and the like as host and path alone.
fn plain(registry: &str) -> String {
    let rest = registry.split_once("://").map_or(registry, |(_, rest)| rest);
    let rest = rest.trim_end_matches('/');
    for suffix in ["/v1", "/v2"] {
        if let Some(rest) = rest.strip_suffix(suffix) {
            return rest.to_owned();
        }
    }
    rest.to_owned()
}

fn matches(pattern: &str, registry: &str) -> bool {
    let pattern = pattern.split('/').next().unwrap_or_default();
    if !pattern.contains('*') {
        return false;
    }
    let (wanted, found): (Vec<&str>, Vec<&str>) =
        (pattern.split('.').collect(), registry.split('.').collect());
    let label = |(wanted, found): (&&str, &&str)| match wanted.split_once('*') {
        Some((start, end)) => {
            found.len() >= start.len() + end.len() && found.starts_with(start) && found.ends_with(end)
        }
        None => wanted == found,
    };
    wanted.len() == found.len() && wanted.iter().zip(&found).all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(config: &DockerConfig, registry: &str, name: &str) -> Option<String> {
        match config.find(registry, name)? {
            Credentials::Basic { username, .. } => Some(username.clone()),
            Credentials::Identity(_) | Credentials::Bearer(_) => Some("token".to_owned()),
        }
    }

    #[test]
    fn the_closest_entry_is_used() {
        let json = br#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnA="},
            "ghcr.io": {"username": "ghcr", "password": "p"},
            "ghcr.io/org": {"username": "org", "password": "p"},
            "*.example.com": {"identitytoken": "t"},
            "empty.io": {}
        }}"#;
        let config = DockerConfig::parse(json).unwrap();
        assert_eq!(user(&config, "index.docker.io", "library/nginx").as_deref(), Some("hub"));
        assert_eq!(user(&config, "ghcr.io", "org/app").as_deref(), Some("org"));
        assert_eq!(user(&config, "ghcr.io", "organisation/app").as_deref(), Some("ghcr"));
        assert_eq!(user(&config, "eu.example.com", "app").as_deref(), Some("token"));
        assert_eq!(user(&config, "a.b.example.com", "app"), None);
        assert_eq!(user(&config, "empty.io", "app"), None);
        assert_eq!(user(&config, "ghcr.io.evil.com", "app"), None);
    }

    #[test]
    fn damage_is_named_without_the_secret() {
        let error = DockerConfig::parse(br#"{"auths":{"a.io":{"auth":"Y2FuYXJ5"}}}"#)
            .err()
            .map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("the entry for 'a.io' has an 'auth' that is no base64 of 'user:password'")
        );
        assert!(DockerConfig::parse(b"canary").is_err());
    }
}
