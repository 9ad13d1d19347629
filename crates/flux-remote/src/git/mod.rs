//! Git over HTTP and SSH, without a `git` binary.
//!
//! Speaks the wire protocol itself (version 2, and version 0 for servers that know nothing newer), keeps
//! the packs it received so that a new commit costs only its delta, and reads commits and trees from them.
//! There is no work tree: a [`Checkout`] lists the files of a commit and reads them from the packs.

//!
//! To change a repository, see [`Working`]: clone, edit, commit with a [`Signer`], push.

mod address;
mod checkout;
mod fetch;
pub mod github_app;
mod http;
mod known_hosts;
mod local;
mod objects;
mod pack;
mod packet;
mod push;
mod reference;
mod signature;
mod ssh;
mod submodule;
mod transport;
mod working;

pub use address::{Address, SshAddress, submodule_address};
pub use checkout::{Checkout, Mode, TreeFile};
pub use fetch::{RemoteRef, fetch, list_refs};
pub use http::Http;
pub use known_hosts::KnownHosts;
pub use local::LocalRepository;
pub use objects::{Buffers, Commit, ObjectStore, Tag};
pub use push::{PushOptions, Refspec, check_push};
pub use reference::{Pick, Reference, pick};
pub use signature::{Signature, SignatureKind, Signer, TrustedKeys, Unverified};
pub use ssh::{Ssh, SshAlgorithms, SshLogin, private_key};
pub use submodule::{Submodule, parse_submodules};
pub use transport::{Remote, Service};
pub use working::{NewCommit, Person, Working};

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
    #[error("unable to resolve ref '{0}' to a specific commit")]
    UnresolvedRef(String),
    #[error("ref {0} is invalid; Git refs cannot begin or end with a slash '/'")]
    InvalidRef(String),
    #[error("unable to resolve commit object for '{0}': object not found")]
    NoSuchCommit(String),
    #[error("no match found for semver: {0}")]
    NoSemverMatch(String),
    #[error("semver parse error: {0}")]
    InvalidRange(String),
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
    /// The host showed a key that `known_hosts` does not have for it.
    #[error("ssh: handshake failed: {0}")]
    HostKey(String),
    #[error("{0}")]
    Login(String),
    #[error("the SSH key is encrypted and no password was given")]
    PassphraseMissing,
    #[error("{0}: no such file")]
    NoSuchFile(String),
    #[error("there is no commit to push")]
    NothingToPush,
    #[error("non-fast-forward update: {0}")]
    NotFastForward(String),
    #[error("the server refused to update {reference}: {reason}")]
    PushRefused { reference: String, reason: String },
    #[error("the credentials are read-only: {0}")]
    ReadOnly(String),
    #[error("signing failed: {0}")]
    Signing(String),
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    fn cut(error: std::io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<RemoteSaid>()) {
            Some(said) => said.meaning(),
            None => Error::Cut(error.to_string()),
        }
    }

    fn cache(error: impl fmt::Display) -> Self {
        Error::Cache(error.to_string())
    }
}

/// What a server's command printed before it failed.
#[derive(Debug)]
struct RemoteSaid(String);

impl RemoteSaid {
    fn meaning(&self) -> Error {
        let lines: Vec<String> = self
            .0
            .lines()
            .map(|line| line.chars().filter(|one| !one.is_control()).collect::<String>().trim().to_owned())
            .filter(|line| !line.is_empty())
            .collect();
        let text = lines.join(" ");
        let lower = text.to_lowercase();
        let missing =
            ["repository not found", "does not appear to be a git repository", "not found", "does not exist"];
        if missing.iter().any(|one| lower.contains(one)) {
            return Error::RepositoryNotFound;
        }
        match text.is_empty() {
            true => Error::Cut("the command failed without a word".to_owned()),
            false => Error::Refused(text),
        }
    }
}

impl fmt::Display for RemoteSaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim())
    }
}

impl std::error::Error for RemoteSaid {}
