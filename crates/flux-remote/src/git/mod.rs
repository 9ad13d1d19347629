//! Git over HTTP and SSH, without a `git` binary.
//!
//! Speaks the wire protocol itself (version 2, and version 0 for servers that know nothing newer), keeps
//! the packs it received so that a new commit costs only its delta, and reads commits and trees from them.
//! There is no work tree: a [`Checkout`] lists the files of a commit and reads them from the packs.

mod checkout;
mod fetch;
mod http;
mod objects;
mod packet;
mod reference;
mod transport;

pub use checkout::{Checkout, Mode, TreeFile};
pub use fetch::{RemoteRef, fetch, list_refs};
pub use http::Http;
pub use objects::{Commit, ObjectStore, Tag};
pub use reference::{Pick, Reference, pick};
pub use transport::{Remote, Service};

use std::fmt;

/// Limits on what a server may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub pack_bytes: u64,
    pub refs: usize,
    pub object_bytes: usize,
}

impl Limits {
    pub const DEFAULT: Limits = Limits { pack_bytes: 4 << 30, refs: 1_000_000, object_bytes: 512 << 20 };
}

/// An object's name: a SHA-1 in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(gix_hash::ObjectId);

impl Oid {
    pub fn parse(text: &str) -> Option<Self> {
        gix_hash::ObjectId::from_hex(text.as_bytes()).ok().map(Self)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("authentication required")]
    AuthenticationRequired,
    #[error("authorization failed")]
    Forbidden,
    #[error("repository not found")]
    RepositoryNotFound,
    #[error("{0}")]
    Unreachable(String),
    #[error("the server ended the connection early: {0}")]
    Cut(String),
    #[error("the server sent {0}")]
    Garbage(String),
    #[error("the server refused: {0}")]
    Refused(String),
    #[error("server answered HTTP status {0}")]
    Http(u16),
    #[error("couldn't find remote ref \"{0}\"")]
    NoSuchRef(String),
    #[error("no match found for semver: {0}")]
    NoSemverMatch(String),
    #[error("invalid version range '{range}': {cause}")]
    InvalidRange { range: String, cause: String },
    #[error("remote repository is empty")]
    Empty,
    #[error("object {0} is missing")]
    Missing(Oid),
    #[error("object {0} is not a {1}")]
    WrongKind(Oid, &'static str),
    #[error("unsafe path '{0}' in a Git tree")]
    UnsafePath(String),
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("object cache: {0}")]
    Cache(String),
    #[error("invalid URL: {0}")]
    InvalidUrl(String),
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    fn cut(error: std::io::Error) -> Self {
        Error::Cut(error.to_string())
    }

    fn cache(error: impl fmt::Display) -> Self {
        Error::Cache(error.to_string())
    }
}
