//! The embedded API server as a cluster for tests: in this process, with RBAC, audit log and played workloads.
//!
//! It runs on the servers' runtime, so it outlives the test that started it. In-process clients need no socket;
//! kubectl and impersonated clients come through TLS.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::{Handle, Server, Simulation};
use kube::Client;
use tempfile::TempDir;

use crate::http_server::runtime;

/// A running server. Dropping it ends it.
pub struct Embedded {
    handle: Handle,
    folder: TempDir,
}

/// Workloads are ready at once.
pub(crate) const PLAYED: Simulation = Simulation::On { delay: Duration::ZERO };

impl Embedded {
    pub(crate) async fn start(simulation: Simulation) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (audit, kubeconfig) = (audit_log(folder.path()), kubeconfig(folder.path()));
        let started = runtime().spawn(async move {
            let handle = Server::builder().simulation(simulation).audit_log(audit).start().await?;
            let listening = handle.serve(([127, 0, 0, 1], 0).into()).await?;
            listening.write_kubeconfig(&kubeconfig)?;
            Ok::<_, apiserver::Error>(handle)
        });
        let handle = started.await?.context("start the embedded server")?;
        Ok(Self { handle, folder })
    }

    /// An administrator's client that needs no socket.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.handle.service(), "default")
    }

    /// The server itself, for what only it can do, such as forgetting its history.
    pub fn server(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        kubeconfig(self.folder.path())
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        audit_log(self.folder.path())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

fn kubeconfig(folder: &Path) -> PathBuf {
    folder.join("kubeconfig")
}

fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}
