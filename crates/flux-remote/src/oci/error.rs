//! What a registry can do wrong.

use serde::Deserialize;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{method} {url}: {cause}")]
    Unreachable { method: &'static str, url: String, cause: String },
    /// The registry says no; `problem` is its own word for it where it gave one.
    #[error("{method} {url}: {problem}")]
    Refused { method: &'static str, url: String, status: u16, problem: String },
    #[error("{url}: {problem}")]
    Answer { url: String, problem: String },
    #[error(
        "the registry '{registry}' wants its credentials sent to '{realm}', which is another site; refused"
    )]
    ForeignRealm { registry: String, realm: String },
    #[error("the registry '{registry}' asks for authentication that is not supported: {scheme}")]
    UnknownChallenge { registry: String, scheme: String },
    #[error("{what}: expected digest {expected}, found {found}")]
    WrongDigest { what: String, expected: String, found: String },
    #[error("{what} has more than {limit} bytes")]
    TooLarge { what: String, limit: u64 },
    #[error("{0}")]
    TooMany(String),
    #[error("{0}")]
    Manifest(String),
    #[error("{0}")]
    Digest(#[from] super::DigestError),
    #[error("{0}")]
    Transport(#[from] crate::transport::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether what was asked for is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Refused { status: 404, .. })
    }

    /// Whether the credentials were not accepted.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Error::Refused { status: 401 | 403, .. })
    }
}

#[derive(Deserialize)]
struct Problems {
    #[serde(default)]
    errors: Vec<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// A registry's own words, or the status where it has none.
pub(super) fn problem(status: reqwest::StatusCode, body: &[u8]) -> String {
    let told: Vec<String> = serde_json::from_slice::<Problems>(body)
        .map(|problems| problems.errors)
        .unwrap_or_default()
        .into_iter()
        .take(4)
        .map(|problem| match problem.message.is_empty() {
            true => problem.code,
            false => format!("{}: {}", problem.code, cut(&problem.message)),
        })
        .collect();
    if told.is_empty() {
        return format!("unexpected status code {status}");
    }
    told.join("; ")
}

fn cut(text: &str) -> String {
    text.chars().take(500).collect()
}
