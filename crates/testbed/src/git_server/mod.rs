//! A Git server on loopback: smart HTTP (plain or TLS) and SSH over the same bare repositories.
//!
//! The protocol itself is spoken by the `git` binary; this adds accounts, keys, faults and a record.
//! Without accounts everyone may read and write; with accounts nobody else may do either.

mod backend;
mod http;
pub mod repository;
mod ssh;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use tempfile::TempDir;

use crate::fault::Faults;
use crate::http_server::HttpServer;
pub use crate::http_server::Security;
pub use repository::{Change, Repository};
pub use ssh::SshKey;

/// Who may come in, and how.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// User and password for HTTP basic authentication; a token is a password with any user name.
    pub passwords: Vec<(String, String)>,
    /// Bearer tokens, which also pass as password of any user, as Git hosts have it.
    pub tokens: Vec<String>,
    /// Public keys in OpenSSH's one-line format.
    pub keys: Vec<String>,
    /// Keys that may fetch but not push, as deploy keys are unless somebody ticks a box.
    pub read_only_keys: Vec<String>,
}

/// Both servers and the folder of their repositories.
pub struct GitServer {
    http: HttpServer,
    ssh: ssh::SshServer,
    root: Arc<TempDir>,
    is_old: Arc<AtomicBool>,
}

impl GitServer {
    /// Starts it without accounts: open to everyone over HTTP and SSH.
    pub fn start() -> Result<Self> {
        Self::start_with(Accounts::default(), Security::Plain)
    }

    pub fn start_with(accounts: Accounts, security: Security<'_>) -> Result<Self> {
        let root = Arc::new(tempfile::tempdir()?);
        let accounts = Arc::new(accounts);
        let is_old = Arc::new(AtomicBool::new(false));
        let site = http::router(root.path().to_owned(), accounts.clone(), is_old.clone());
        Ok(Self {
            http: HttpServer::start(site, security)?,
            ssh: ssh::SshServer::start(root.path().to_owned(), accounts, is_old.clone())?,
            root,
            is_old,
        })
    }

    /// From now on it knows only the first version of Git's protocol, whatever it is asked for.
    pub fn grow_old(&self) {
        self.is_old.store(true, Ordering::Relaxed);
    }

    /// Makes an empty repository; `name` may contain slashes and needs no `.git`.
    pub fn create(&self, name: &str) -> Result<Repository> {
        Repository::create(self.root.clone(), &self.root.path().join(format!("{name}.git")))
    }

    /// The HTTP side: its address, faults and requests.
    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    /// The clone URL of a repository over HTTP.
    pub fn http_url(&self, name: &str) -> String {
        format!("{}/{name}.git", self.http.url())
    }

    /// The clone URL of a repository over SSH.
    pub fn ssh_url(&self, name: &str) -> String {
        format!("ssh://git@{}/{name}.git", self.ssh.address())
    }

    pub fn ssh_faults(&self) -> &Faults {
        self.ssh.faults()
    }

    /// A line for `known_hosts`.
    pub fn known_hosts(&self) -> Result<String> {
        self.ssh.known_hosts()
    }

    /// Every command that came over SSH, as in `git-upload-pack '/a.git'`.
    pub fn ssh_commands(&self) -> Vec<String> {
        self.ssh.commands()
    }

    /// The folder with the bare repositories.
    pub fn root(&self) -> PathBuf {
        self.root.path().to_owned()
    }
}
