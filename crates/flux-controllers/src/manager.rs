//! Starts the controllers that were asked for and ends them together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flux_api::kinds::Controller;
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::artifact::{Fetcher, Storage, StorageOptions, serve};
use crate::kustomize::kustomization::{self, Kustomizations};
use crate::reconcile::run::{Pace, listen_to_own};
use crate::reconcile::{Cache, Events, Queue, Reconcile, run};
use crate::source::git_repository::GitRepositories;
use crate::source::skeleton::Sources;
use crate::{kustomize, source};

/// What is under way when the process is told to end has this long.
const STOP_WITHIN: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct ManagerOptions {
    pub controllers: BTreeSet<Controller>,
    /// Watch only this namespace; all of them when `None`.
    pub namespace: Option<String>,
    pub storage_path: PathBuf,
    pub storage_addr: SocketAddr,
    /// How others reach the file server; derived from the listener when `None`.
    pub storage_adv_addr: Option<String>,
    /// Where events are sent besides the API server.
    pub events_addr: Option<String>,
    pub concurrent: Option<usize>,
    pub least_retry: Duration,
    pub most_retry: Duration,
    pub artifact_retention_ttl: Duration,
    pub artifact_retention_records: usize,
    pub http_retry: u32,
    pub jitter_percent: u8,
    pub kustomize: kustomize::Options,
    /// A folder of this machine that some GitRepositories mean.
    pub local: Option<source::LocalFleet>,
}

impl ManagerOptions {
    /// Upstream's defaults, for the given controllers, with artifacts below `storage_path`.
    pub fn new(controllers: BTreeSet<Controller>, storage_path: PathBuf, storage_addr: SocketAddr) -> Self {
        Self {
            controllers,
            namespace: None,
            storage_path,
            storage_addr,
            storage_adv_addr: None,
            events_addr: None,
            concurrent: None,
            least_retry: Duration::from_millis(750),
            most_retry: Duration::from_secs(15 * 60),
            artifact_retention_ttl: Duration::from_secs(60),
            artifact_retention_records: 2,
            http_retry: 9,
            jitter_percent: 5,
            kustomize: kustomize::Options {
                jitter_percent: 5,
                no_cross_namespace_refs: false,
                default_service_account: None,
                strict_substitutions: true,
                requeue_dependency: Duration::from_secs(30),
                concurrent_ssa: 4,
            },
            local: None,
        }
    }
}

/// Controllers at work.
pub struct Manager {
    cache: Arc<Cache>,
    queues: Vec<Arc<Queue>>,
    tasks: Vec<JoinHandle<()>>,
    file_server: JoinHandle<()>,
}

impl Manager {
    pub async fn start(client: Client, options: ManagerOptions) -> std::io::Result<Self> {
        let listener = TcpListener::bind(options.storage_addr).await?;
        let advertised = match &options.storage_adv_addr {
            Some(address) => address.clone(),
            None => serve::advertised(listener.local_addr()?),
        };
        let storage = Arc::new(Storage::new(StorageOptions {
            root: options.storage_path.clone(),
            advertised,
            retention_age: options.artifact_retention_ttl,
            retention_records: options.artifact_retention_records,
        })?);
        let file_server = tokio::spawn(serve_files(storage.clone(), listener));
        let cache = Arc::new(Cache::new(client.clone(), options.namespace.clone()));
        let mut manager = Self { cache, queues: Vec::new(), tasks: Vec::new(), file_server };
        for controller in &options.controllers {
            manager.add(*controller, &client, &storage, &options);
        }
        manager.cache.start();
        Ok(manager)
    }

    fn add(
        &mut self,
        controller: Controller,
        client: &Client,
        storage: &Arc<Storage>,
        options: &ManagerOptions,
    ) {
        let events = || Events::start(client.clone(), controller.as_str(), options.events_addr.clone());
        match controller {
            Controller::Source => {
                let ctx = Arc::new(source::Context {
                    client: client.clone(),
                    cache: self.cache.clone(),
                    storage: storage.clone(),
                    events: events(),
                    object_cache: options.storage_path.join(".git-objects"),
                    jitter_percent: options.jitter_percent,
                    local: options.local.clone(),
                });
                let source = GitRepositories { ctx: ctx.clone() };
                self.work(Arc::new(Sources { ctx: ctx.clone(), source }), 2, options);
            }
            Controller::Kustomize => {
                let ctx = Arc::new(kustomize::Context {
                    client: client.clone(),
                    cache: self.cache.clone(),
                    fetcher: Fetcher::new(storage.clone(), options.http_retry),
                    events: events(),
                    cluster: flux_apply::Cluster::new(client.clone()),
                    options: options.kustomize.clone(),
                });
                let queue = self.work(Arc::new(Kustomizations { ctx }), 4, options);
                kustomization::listen(&self.cache, &queue);
            }
            Controller::Helm
            | Controller::Notification
            | Controller::ImageReflector
            | Controller::ImageAutomation
            | Controller::SourceWatcher => {}
        }
    }

    fn work(
        &mut self,
        reconciler: Arc<dyn Reconcile>,
        concurrent: usize,
        options: &ManagerOptions,
    ) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        listen_to_own(&self.cache, reconciler.kind(), &queue, &reconciler);
        let pace = Pace {
            concurrent: options.concurrent.unwrap_or(concurrent),
            least_retry: options.least_retry,
            most_retry: options.most_retry,
        };
        let (cache, work_queue) = (self.cache.clone(), queue.clone());
        self.tasks.push(tokio::spawn(async move {
            tokio::select! {
                () = cache.synced() => run(reconciler, cache.clone(), work_queue, pace).await,
                () = work_queue.closed() => {}
            }
        }));
        self.queues.push(queue.clone());
        queue
    }

    /// Stops taking work, lets what is under way end, and closes the listeners.
    pub async fn stop(self) {
        self.cache.stop();
        for queue in &self.queues {
            queue.close();
        }
        for mut task in self.tasks {
            if tokio::time::timeout(STOP_WITHIN, &mut task).await.is_err() {
                task.abort();
            }
        }
        self.file_server.abort();
    }
}

async fn serve_files(storage: Arc<Storage>, listener: TcpListener) {
    if let Err(error) = serve::serve(storage, listener).await {
        tracing::error!(%error, "the artifact server stopped");
    }
}
