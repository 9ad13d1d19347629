//! `oci://host/repository:tag` or `@digest`. Pure.

use crate::error::{CliError, fail};

const DOCKER_HUB: &str = "index.docker.io";

/// Where an artifact lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Reference {
    given: String,
    host: String,
    repository: String,
    identifier: Identifier,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identifier {
    None,
    Tag(String),
    Digest(String),
}

impl Reference {
    pub(in crate::commands) fn parse(address: &str) -> Result<Reference, CliError> {
        let given = address
            .strip_prefix("oci://")
            .ok_or_else(|| fail!("URL must be in format 'oci://<domain>/<org>/<repo>'"))?;
        Reference::read(given)
            .ok_or_else(|| fail!("'{address}' invalid URL: could not parse reference: {given}"))
    }

    /// Whether this is one, without `oci://`.
    pub(in crate::commands) fn is_one(text: &str) -> bool {
        Reference::read(text).is_some()
    }

    fn read(given: &str) -> Option<Reference> {
        let (base, identifier) = match given.split_once('@') {
            Some((base, digest)) => {
                let hex = digest.strip_prefix("sha256:")?;
                let fits = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
                (base, Some(Identifier::Digest(fits.then(|| digest.to_owned())?)))
            }
            None => (given, None),
        };
        // A colon after the last slash begins a tag; before it, a port.
        let (base, tag) = match base.rsplit_once(':') {
            Some((base, tag)) if !tag.contains('/') => (base, Some(tag)),
            _ => (base, None),
        };
        if let Some(tag) = tag {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            if tag.is_empty() || tag.len() > 128 || !tag.bytes().all(fits) {
                return None;
            }
        }
        let (host, repository) = match base.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest.to_owned()),
            _ => (DOCKER_HUB, base.to_owned()),
        };
        let repository = if host == DOCKER_HUB && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository
        };
        let own = repository.strip_prefix("library/").filter(|_| host == DOCKER_HUB).unwrap_or(&repository);
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-./".contains(&byte);
        if !(2..=255).contains(&own.len()) || !own.bytes().all(fits) || !is_authority(host) {
            return None;
        }
        let identifier =
            identifier.or(tag.map(|tag| Identifier::Tag(tag.to_owned()))).unwrap_or(Identifier::None);
        Some(Reference { given: given.to_owned(), host: host.to_owned(), repository, identifier })
    }

    /// As it was typed, without `oci://`.
    pub(in crate::commands) fn given(&self) -> &str {
        &self.given
    }

    /// `host/repository`
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    pub(super) fn tag(&self) -> Option<&str> {
        match &self.identifier {
            Identifier::Tag(tag) => Some(tag),
            Identifier::Digest(_) | Identifier::None => None,
        }
    }

    /// What names the manifest: a tag, a digest, or `latest`.
    pub(super) fn identifier(&self) -> &str {
        match &self.identifier {
            Identifier::Tag(text) | Identifier::Digest(text) => text,
            Identifier::None => "latest",
        }
    }

    pub(super) fn with_tag(&self, tag: &str) -> Reference {
        Reference { identifier: Identifier::Tag(tag.to_owned()), ..self.clone() }
    }

    /// Registries on this machine speak plain HTTP.
    pub(super) fn is_local(&self) -> bool {
        let host = self.host.rsplit_once(':').map_or(self.host.as_str(), |(host, _)| host);
        matches!(host, "localhost" | "127.0.0.1" | "[::1]")
            || host.ends_with(".local")
            || host.ends_with(".localhost")
    }
}

/// A host with or without a port, and nobody's name before it.
fn is_authority(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]".contains(&byte);
    !name.is_empty() && name.bytes().all(fits) && port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_registries_read_them() {
        let read = |text: &str| Reference::read(text).map(|it| (it.name(), it.identifier().to_owned()));
        let some = |name: &str, identifier: &str| Some((name.to_owned(), identifier.to_owned()));
        assert_eq!(read("ghcr.io/org/app:1.0"), some("ghcr.io/org/app", "1.0"));
        assert_eq!(read("localhost:5000/app"), some("localhost:5000/app", "latest"));
        assert_eq!(read("org/app"), some("index.docker.io/org/app", "latest"));
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(read(&format!("h.io/app:1@{digest}")), some("h.io/app", &digest));
        for bad in ["127.0.0.1:1/y:1", "h.io/App", "h.io/app:", "h.io/app@sha256:12", ""] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
