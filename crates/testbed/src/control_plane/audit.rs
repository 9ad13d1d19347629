//! Reads the audit log: who asked the API server for what, and what it answered.
//!
//! The log is written before a request is answered, so whatever a test has awaited is in it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// One answered request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub stage: String,
    pub verb: String,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub user: User,
    pub impersonated_user: Option<User>,
    pub user_agent: Option<String>,
    pub object_ref: Option<ObjectReference>,
    pub response_status: Option<ResponseStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    pub username: String,
    pub groups: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectReference {
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub api_group: String,
    pub subresource: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ResponseStatus {
    pub code: u16,
}

/// A place in the log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

/// The audit log of one API server.
pub struct Log {
    path: PathBuf,
}

impl Log {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Remembers the present end of the log.
    pub fn mark(&self) -> Result<Mark> {
        let length =
            std::fs::metadata(&self.path).with_context(|| format!("read {}", self.path.display()))?.len();
        Ok(Mark(length))
    }

    /// What was answered after `mark`.
    pub fn since(&self, mark: Mark) -> Result<Vec<Entry>> {
        let mut file = File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be half written; what has been answered is whole.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("audit line {line}")))
            .collect()
    }
}
