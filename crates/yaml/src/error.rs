//! What can be wrong with a text, in go-yaml's words: kustomize and Helm print these lines, and scripts read them.

use std::fmt;

/// An error of parsing or decoding. `Display` gives go-yaml's text: `yaml: line 3: mapping values are not …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    /// The line go-yaml would print, from 1; `None` where it prints none (its first line, for example).
    pub line: Option<u32>,
    /// The column of the problem, from 1. go-yaml never prints it.
    pub column: Option<u32>,
    message: String,
}

/// What went wrong, for callers that tell cases apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes are not text: invalid UTF-8, a control character.
    Encoding,
    /// The text is not YAML.
    Syntax,
    /// An alias without an anchor, or one that contains itself.
    Alias,
    /// A mapping has the same key twice.
    DuplicateKey,
    /// A value cannot be what its tag says, or a key cannot be a key.
    Value,
    /// A [`crate::Limits`] was exceeded.
    Limit,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, line: None, column: None, message: message.into() }
    }

    pub(crate) fn at(mut self, line: u32, column: u32) -> Self {
        self.line = (line > 0).then_some(line);
        self.column = Some(column);
        self
    }

    /// The text without `yaml: ` and without the line.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "yaml: line {line}: {}", self.message),
            // Errors of encoding/json and of the key conversion come without the prefix.
            None if self.message.starts_with("json: ") || self.message.starts_with("unsupported map key") => {
                f.write_str(&self.message)
            }
            None => write!(f, "yaml: {}", self.message),
        }
    }
}

impl std::error::Error for Error {}
