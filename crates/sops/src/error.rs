//! Why a file could not be opened. Recipients, identities, fields and places are named, values never.

use std::fmt;

use crate::Format;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the file has {found} bytes, more than the {limit} that are read")]
    TooLarge { found: usize, limit: usize },
    /// The text is not of its format, or sops has no use for what it holds.
    #[error("not a {format} file that sops can read: {problem}")]
    Syntax { format: Format, problem: String },
    #[error("the file has no sops metadata: it is not encrypted, or not in this format")]
    NotEncrypted,
    #[error("sops metadata: {field}: {problem}")]
    Metadata { field: String, problem: String },
    /// Too few groups of keys could be unwrapped.
    #[error("{}", locked(groups, *threshold, identities))]
    Locked {
        groups: Vec<GroupReport>,
        /// How many groups are needed.
        threshold: usize,
        /// The public names of what there was to unwrap with.
        identities: Vec<String>,
    },
    #[error("the parts of the data key do not fit together: {0}")]
    Shamir(&'static str),
    #[error("the data key has {0} bytes, not 32")]
    DataKeyLength(usize),
    /// A value did not open: another data key, or a value that was changed or moved.
    #[error("cannot decrypt the value at {path}: {problem}")]
    Value { path: String, problem: &'static str },
    /// The values open, but they are not those the file was closed with.
    #[error(
        "MAC mismatch: values were added, removed, reordered or changed since the file was encrypted; \
         encrypt it again if that was intended"
    )]
    MacMismatch,
    #[error("the file has no MAC: it was edited without sops; encrypt it again if that was intended")]
    MacMissing,
    #[error("cannot decrypt the MAC: {0}")]
    MacUnreadable(&'static str),
    /// The content has no form in the format that was asked for.
    #[error("cannot write as {format}: {problem}")]
    Output { format: Format, problem: String },
}

/// Whether one group of keys gave its part, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReport {
    pub unwrapped: bool,
    pub keys: Vec<KeyReport>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReport {
    /// The kind and public name of the recipient.
    pub recipient: String,
    /// What was tried in vain; empty when nothing at hand is for this kind of key.
    pub problem: Option<String>,
}

/// A private key that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error("age identities: line {line}: {problem}")]
    Age { line: usize, problem: &'static str },
    #[error("age identities: no identity found")]
    NoAgeIdentity,
    #[error("SSH private key: {0}")]
    Ssh(&'static str),
    #[error("OpenPGP private key: {0}")]
    Pgp(String),
}

fn locked(groups: &[GroupReport], threshold: usize, identities: &[String]) -> String {
    let open = groups.iter().filter(|group| group.unwrapped).count();
    let mut text = String::from("no key for this file: ");
    if groups.len() > 1 {
        text.push_str(&format!("{open} of {} key groups unwrapped, {threshold} needed; ", groups.len()));
    }
    text.push_str("it is encrypted for ");
    let shown: Vec<String> = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| !group.unwrapped)
        .map(|(index, group)| {
            let keys: Vec<String> = group.keys.iter().map(ToString::to_string).collect();
            let keys = if keys.is_empty() { "nobody".to_owned() } else { keys.join(", ") };
            if groups.len() > 1 { format!("group {index}: {keys}") } else { keys }
        })
        .collect();
    text.push_str(&shown.join("; "));
    text.push_str("; at hand: ");
    if identities.is_empty() {
        text.push_str("no identity");
    } else {
        text.push_str(&identities.join(", "));
    }
    text
}

impl fmt::Display for KeyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Some(problem) => write!(f, "{} ({problem})", self.recipient),
            None => f.write_str(&self.recipient),
        }
    }
}
