//! The server as a whole: building it, starting it, and what its parts share.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use jiff::Timestamp;

use crate::auth::flow::{self, Flows};
use crate::auth::{Authenticator, Rbac, User, tokens};
use crate::cluster::Controllers;
use crate::kept::Kept;
use crate::kinds::{Registry, Resource};
use crate::logs::LogSource;
use crate::service::Service;
use crate::storage::{self, Store, Stored};
use crate::tls;

/// Where the server takes the time from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] storage::Error),
    #[error(transparent)]
    Token(#[from] tokens::Error),
    #[error(transparent)]
    Tls(#[from] tls::Error),
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("the cluster's first objects could not be written: {0}")]
    Bootstrap(String),
}

/// Whether workloads are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Simulation {
    Off,
    /// Workloads become ready after `delay`.
    On {
        delay: Duration,
    },
}

/// Makes a server: see [`Server::builder`].
pub struct Builder {
    data: Option<PathBuf>,
    simulation: Simulation,
    clock: Clock,
    tokens: Vec<(String, User)>,
    audit: Option<PathBuf>,
    publish_ca: bool,
    logs: Option<Arc<dyn LogSource>>,
}

/// The entry point of this crate.
pub struct Server;

impl Server {
    /// A server that keeps its objects in memory, plays no workloads and follows the machine's clock.
    pub fn builder() -> Builder {
        Builder {
            data: None,
            simulation: Simulation::Off,
            clock: Arc::new(Timestamp::now),
            tokens: Vec::new(),
            audit: None,
            publish_ca: true,
            logs: None,
        }
    }
}

impl Builder {
    /// Keeps objects (and keys) in this folder; nothing acknowledged is lost when the process dies.
    pub fn data_dir(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.data = Some(folder.into());
        self
    }

    pub fn simulation(mut self, simulation: Simulation) -> Builder {
        self.simulation = simulation;
        self
    }

    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Accepts this bearer token as that user.
    pub fn token(mut self, token: impl Into<String>, user: User) -> Builder {
        self.tokens.push((token.into(), user));
        self
    }

    /// Writes a line of JSON about every request that changes something to this file.
    pub fn audit_log(mut self, file: impl Into<PathBuf>) -> Builder {
        self.audit = Some(file.into());
        self
    }

    /// Where `pods/log` finds what containers wrote.
    pub fn logs(mut self, source: Arc<dyn LogSource>) -> Builder {
        self.logs = Some(source);
        self
    }

    /// Whether every namespace gets the ConfigMap `kube-root-ca.crt`. A cluster without a controller manager, which some
    /// recordings were made on, has none.
    pub fn publish_ca(mut self, publish: bool) -> Builder {
        self.publish_ca = publish;
        self
    }

    /// Starts the server's controllers on the current tokio runtime; when this returns, it is ready.
    pub async fn start(self) -> Result<Handle, Error> {
        let builtin = Registry::new(&[]);
        let store = match &self.data {
            Some(folder) => Store::open(folder, |place, value| {
                let resource = builtin.stored(place);
                resource.map(|resource| crate::strategy::field_values(resource, value)).unwrap_or_default()
            })?,
            None => Store::in_memory(),
        };
        let signer = match &self.data {
            Some(folder) => kept_signer(folder)?,
            None => tokens::Signer::generate()?,
        };
        let authority = match &self.data {
            Some(folder) => tls::Authority::kept(folder)?,
            None => tls::Authority::generate()?,
        };
        let auth = Authenticator::new(signer);
        let admin_token = random_token();
        auth.add_token(admin_token.clone(), User::admin());
        for (token, user) in self.tokens {
            auth.add_token(token, user);
        }
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let inner = Arc::new(Inner {
            store,
            registry: RwLock::new(Arc::new(builtin)),
            clock: self.clock,
            auth,
            rbac: Kept::default(),
            flows: Kept::default(),
            controllers: Controllers {
                simulating: self.simulation != Simulation::Off,
                ..Controllers::default()
            },
            audit: match self.audit {
                Some(file) => Some(crate::audit::Log::open(&file)?),
                None => None,
            },
            simulation: self.simulation,
            root_ca: self.publish_ca.then(|| authority.certificate_pem().to_owned()),
            logs: self.logs,
        });
        crate::cluster::start(&inner, stopped).await?;
        Ok(Handle { inner, admin_token, authority: Arc::new(authority), stop: Arc::new(stop) })
    }
}

fn random_token() -> String {
    use rand::Rng as _;
    let mut random = rand::rng();
    (0..32).map(|_| format!("{:02x}", random.random::<u8>())).collect()
}

fn kept_signer(folder: &std::path::Path) -> Result<tokens::Signer, Error> {
    let path = folder.join("service-account.key");
    let failed = |source| Error::File { path: path.display().to_string(), source };
    match std::fs::read_to_string(&path) {
        Ok(pem) => Ok(tokens::Signer::from_pem(&pem)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let signer = tokens::Signer::generate()?;
            tls::write_private(&path, signer.private_pem.as_bytes()).map_err(failed)?;
            Ok(signer)
        }
        Err(error) => Err(failed(error)),
    }
}

/// A running server. Dropping the last handle and service stops its controllers.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
    admin_token: String,
    pub(crate) authority: Arc<tls::Authority>,
    pub(crate) stop: Arc<tokio::sync::watch::Sender<bool>>,
}

impl Handle {
    /// The API as a tower service, for in-process clients; they act as the administrator.
    pub fn service(&self) -> Service {
        self.service_as(User::admin())
    }

    /// The API for an in-process client that acts as `user`.
    pub fn service_as(&self, user: User) -> Service {
        Service::new(self.inner.clone(), Some(user), self.stop.clone())
    }

    /// The API without a known caller: each request must bring its own credentials.
    pub(crate) fn public_service(&self) -> Service {
        Service::new(self.inner.clone(), None, self.stop.clone())
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    pub fn ca_pem(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// A client certificate and its key (PEM) that make their holder `user`.
    pub fn client_certificate(&self, user: &User) -> Result<(String, String), Error> {
        Ok(self.authority.client_certificate(user)?)
    }

    /// The current revision: what a list's `resourceVersion` would be.
    pub fn revision(&self) -> u64 {
        self.inner.store.revision()
    }

    /// Forgets the history of changes, as etcd does every few minutes: older watches get 410.
    pub fn compact(&self) {
        self.inner.store.compact();
    }

    /// Ends watches, controllers and listeners. Requests in flight are finished.
    pub fn shutdown(&self) {
        // Nobody listens when everything has already stopped.
        let _ = self.stop.send(true);
        self.inner.store.close_watches();
    }
}

/// What the server's parts share.
pub struct Inner {
    pub store: Store,
    registry: RwLock<Arc<Registry>>,
    clock: Clock,
    pub auth: Authenticator,
    rbac: Kept<Rbac>,
    flows: Kept<Flows>,
    pub controllers: Controllers,
    pub audit: Option<crate::audit::Log>,
    pub simulation: Simulation,
    /// What namespaces are told of the server's CA.
    pub root_ca: Option<String>,
    pub logs: Option<Arc<dyn LogSource>>,
}

impl Inner {
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub fn set_registry(&self, registry: Registry) {
        *self.registry.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(registry);
    }

    pub fn time(&self) -> Timestamp {
        (self.clock)()
    }

    /// Now, to the second, as metadata shows it.
    pub fn now(&self) -> String {
        self.time_after(0)
    }

    pub fn time_after(&self, seconds: i64) -> String {
        let second = self.time().as_second().saturating_add(seconds);
        Timestamp::from_second(second).unwrap_or(Timestamp::MAX).to_string()
    }

    pub fn rbac(&self) -> Arc<Rbac> {
        self.rbac.get(|| Rbac::read(&self.store))
    }

    pub fn flows(&self) -> Arc<Flows> {
        self.flows.get(|| Flows::read(&self.store))
    }

    /// Told of every object written, before the writer gets its answer.
    pub fn written(&self, resource: &Arc<Resource>, stored: &Arc<Stored>) {
        self.forget_rules(resource);
        self.controllers.written(resource, stored);
    }

    /// Told of every object that is gone.
    pub fn removed(&self, resource: &Arc<Resource>, stored: &Arc<Stored>) {
        self.forget_rules(resource);
        self.controllers.removed(self, resource, stored);
    }

    fn forget_rules(&self, resource: &Resource) {
        if &*resource.group == crate::auth::rbac::GROUP {
            self.rbac.forget();
        }
        if &*resource.group == flow::GROUP {
            self.flows.forget();
        }
    }
}
