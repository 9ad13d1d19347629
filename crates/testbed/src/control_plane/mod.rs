//! A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager.
//!
//! RBAC and the audit log are on. There is no scheduler and no kubelet, so Pods stay pending unless
//! [`crate::workloads`] plays them. Everything lives in one scratch folder and ends with its owner.

pub mod audit;
mod commands;
mod files;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};

use crate::process::{Scratch, Supervised};
use crate::reference::{self, Kubernetes, Tool};
use files::Files;

/// How long a control plane may take to become ready; about 6 s is usual, a busy machine needs more.
const START_LIMIT: Duration = Duration::from_secs(180);
/// A free port can be taken by someone else before etcd binds it: then everything starts anew.
const ATTEMPTS: usize = 3;

/// What can be chosen about a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub version: Kubernetes,
    /// Whether a list can be streamed as a watch (the feature gate `WatchList`).
    pub streaming_lists: bool,
    /// Without it nothing is garbage collected and namespaces are never gone; starts faster.
    pub controller_manager: bool,
    /// Whether the bearer tokens `admintoken` (of an administrator) and `usertoken` (of alice) are taken, as recordings of
    /// requests use them.
    pub recorded_users: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Kubernetes::default(),
            streaming_lists: true,
            controller_manager: true,
            recorded_users: false,
        }
    }
}

/// The running processes. Dropping it ends them.
pub struct ControlPlane {
    options: Options,
    binaries: Binaries,
    ports: Ports,
    servers: Mutex<Servers>,
    files: Files,
    // Last, so that the processes are gone before their folder is.
    _scratch: Scratch,
}

struct Servers {
    // Fields are dropped in this order: clients before the server they need.
    controller_manager: Option<Supervised>,
    api_server: Supervised,
    _etcd: Supervised,
}

pub(crate) struct Binaries {
    etcd: PathBuf,
    api_server: PathBuf,
    controller_manager: PathBuf,
}

#[derive(Clone, Copy)]
pub(crate) struct Ports {
    api_server: u16,
    etcd_client: u16,
    etcd_peer: u16,
}

impl ControlPlane {
    /// Builds the binaries if they are not cached, starts everything and waits until it is ready.
    pub async fn start(options: Options) -> Result<Self> {
        let binaries = tokio::task::spawn_blocking(move || Binaries::of(options.version)).await??;
        let mut binaries = Some(binaries);
        let mut attempt = 1;
        loop {
            let of_this_attempt = match binaries.take() {
                Some(binaries) => binaries,
                None => Binaries::of(options.version)?,
            };
            match Self::try_start(options, of_this_attempt).await {
                Err(error) if attempt < ATTEMPTS && format!("{error:#}").contains("in use") => {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn try_start(options: Options, binaries: Binaries) -> Result<Self> {
        let scratch = Scratch::new()?;
        let ports = Ports::free()?;
        let files = Files::write(scratch.path(), ports)?;
        let etcd = Supervised::start(&binaries.etcd, commands::etcd(ports, &files), &files.log("etcd"))?;
        let api_server = start_api_server(&binaries, ports, &files, options)?;
        let plane = Self {
            options,
            binaries,
            ports,
            servers: Mutex::new(Servers { controller_manager: None, api_server, _etcd: etcd }),
            files,
            _scratch: scratch,
        };
        let client = plane.client().await?;
        plane.wait_until_ready(&client).await?;
        if options.controller_manager {
            plane.start_controller_manager(&client).await?;
        }
        Ok(plane)
    }

    pub fn options(&self) -> Options {
        self.options
    }

    /// The configuration of an administrator (group `system:masters`).
    pub fn kubeconfig(&self) -> &Path {
        &self.files.kubeconfig
    }

    /// The folder with logs, keys and data.
    pub fn folder(&self) -> &Path {
        &self.files.folder
    }

    pub fn audit_log(&self) -> audit::Log {
        audit::Log::at(&self.files.audit_log)
    }

    /// Kills the API server as a crash would, starts it again on the same port, and waits until it answers.
    pub async fn restart_api_server(&self) -> Result<()> {
        self.stop_api_server();
        self.resume_api_server().await
    }

    /// Kills the API server and leaves it down: an outage, until [`Self::resume_api_server`].
    pub fn stop_api_server(&self) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.api_server.stop();
    }

    /// Ends an outage.
    pub async fn resume_api_server(&self) -> Result<()> {
        let api_server = start_api_server(&self.binaries, self.ports, &self.files, self.options)?;
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).api_server = api_server;
        let client = self.client().await?;
        self.wait_until_ready(&client).await
    }

    async fn client(&self) -> Result<Client> {
        crate::cluster::client_from(self.kubeconfig()).await
    }

    async fn wait_until_ready(&self, client: &Client) -> Result<()> {
        let started = Instant::now();
        loop {
            self.check_processes()?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match client.request_text(request).await {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > START_LIMIT => {
                    return Err(error).context("kube-apiserver did not become ready");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn start_controller_manager(&self, client: &Client) -> Result<()> {
        let manager = Supervised::start(
            &self.binaries.controller_manager,
            commands::controller_manager(&self.files),
            &self.files.log("kube-controller-manager"),
        )?;
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).controller_manager = Some(manager);
        // The first thing that only the controller manager does, and that Pods depend on.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let ready = crate::wait::until(&accounts, "default", START_LIMIT, "is there", |_| true);
        tokio::select! {
            found = ready => found.map(|_| ()),
            failure = self.first_failure() => bail!(failure),
        }
    }

    async fn first_failure(&self) -> String {
        loop {
            if let Err(error) = self.check_processes() {
                return format!("{error:#}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn check_processes(&self) -> Result<()> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let Servers { controller_manager, api_server, _etcd } = &mut *servers;
        let all = [Some(_etcd), Some(api_server), controller_manager.as_mut()];
        for server in all.into_iter().flatten() {
            if let Some(failure) = server.failure()? {
                bail!(failure);
            }
        }
        Ok(())
    }
}

fn start_api_server(
    binaries: &Binaries,
    ports: Ports,
    files: &Files,
    options: Options,
) -> Result<Supervised> {
    Supervised::start(
        &binaries.api_server,
        commands::api_server(ports, files, options),
        &files.log("kube-apiserver"),
    )
}

impl Binaries {
    fn of(version: Kubernetes) -> Result<Self> {
        let kubernetes = Tool::Kubernetes(version);
        Ok(Self {
            etcd: reference::binary(Tool::Etcd, "etcd")?,
            api_server: reference::binary(kubernetes, "kube-apiserver")?,
            controller_manager: reference::binary(kubernetes, "kube-controller-manager")?,
        })
    }
}

impl Ports {
    fn free() -> Result<Self> {
        // All three are held at once: asked for one by one, the same port could come back twice.
        let listeners = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        let [api_server, etcd_client, etcd_peer] = &listeners;
        Ok(Self {
            api_server: api_server.local_addr()?.port(),
            etcd_client: etcd_client.local_addr()?.port(),
            etcd_peer: etcd_peer.local_addr()?.port(),
        })
    }
}
