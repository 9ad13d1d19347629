//! Starts the controllers that were asked for and ends them together.
//!
//! To add a controller: an arm in [`Manager::add`], its options in [`ManagerOptions`], its flags in `flux`'s
//! `tree/serve.rs` and `commands/serve/options.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flux_api::kinds::{self, Controller, Kind};
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::artifact::{Fetcher, Storage, StorageOptions, serve};
use crate::kustomize::kustomization::{self, Kustomizations};
use crate::reconcile::run::{Pace, Shard, listen_to_own};
use crate::reconcile::{Cache, Events, FeatureGates, Queue, Reconcile, Selector, run};
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
    /// Controllers that differ from the above.
    pub tuned: BTreeMap<Controller, Tuning>,
    pub source: source::Options,
    pub kustomize: kustomize::Options,
    /// A folder of this machine that some GitRepositories mean.
    pub local: Option<source::LocalFleet>,
}

/// The flags that every controller has, as one of them has them.
#[derive(Clone, Debug)]
pub struct Tuning {
    pub concurrent: usize,
    pub least_retry: Duration,
    pub most_retry: Duration,
    pub events_addr: Option<String>,
    pub jitter_percent: u8,
    /// Works only on objects of its own kinds with these labels; everything else stays visible.
    pub watch_label_selector: Option<String>,
    /// ConfigMaps and Secrets with these labels wake those who refer to them.
    pub watch_configs_label_selector: String,
    pub gates: FeatureGates,
}

/// How many objects of a kind a controller works on at once, unless told otherwise.
pub const fn concurrent(controller: Controller) -> usize {
    match controller {
        Controller::Source => 2,
        Controller::Kustomize
        | Controller::Helm
        | Controller::Notification
        | Controller::ImageReflector
        | Controller::ImageAutomation => 4,
        Controller::SourceWatcher => 10,
    }
}

/// The controllers that can be started.
pub const AVAILABLE: &[Controller] = &[Controller::Source, Controller::Kustomize];

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
            tuned: BTreeMap::new(),
            source: source::Options::upstream(),
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

    /// What applies to `controller`.
    pub fn tuning(&self, controller: Controller) -> Tuning {
        self.tuned.get(&controller).cloned().unwrap_or_else(|| Tuning {
            concurrent: self.concurrent.unwrap_or_else(|| concurrent(controller)),
            least_retry: self.least_retry,
            most_retry: self.most_retry,
            events_addr: self.events_addr.clone(),
            jitter_percent: self.jitter_percent,
            watch_label_selector: None,
            watch_configs_label_selector: format!(
                "{}={}",
                flux_api::names::WATCH_LABEL,
                flux_api::names::WATCH_ENABLED
            ),
            gates: FeatureGates::defaults(controller),
        })
    }
}

/// Controllers at work.
pub struct Manager {
    client: Client,
    cache: Arc<Cache>,
    storage: Arc<Storage>,
    queues: Vec<Arc<Queue>>,
    tasks: Vec<JoinHandle<()>>,
    servers: Vec<JoinHandle<()>>,
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
        let servers = vec![tokio::spawn(serve_files(storage.clone(), listener))];
        let cache = Arc::new(Cache::new(client.clone(), options.namespace.clone()));
        let mut manager = Self { client, cache, storage, queues: Vec::new(), tasks: Vec::new(), servers };
        manager.filter_at_the_server(&options);
        for controller in &options.controllers {
            manager.add(*controller, &options);
        }
        manager.cache.start();
        Ok(manager)
    }

    /// source-controller alone needs nothing of other shards; consumers do, so beside them it filters here.
    fn filter_at_the_server(&self, options: &ManagerOptions) {
        if !options.controllers.iter().eq([&Controller::Source]) {
            return;
        }
        let Some(selector) = options.tuning(Controller::Source).watch_label_selector else { return };
        for kind in SOURCES {
            self.cache.only(kind, &selector);
        }
    }

    fn add(&mut self, controller: Controller, options: &ManagerOptions) {
        let tuning = options.tuning(controller);
        let events = Events::start(self.client.clone(), controller.as_str(), tuning.events_addr.clone());
        match controller {
            Controller::Source => {
                let ctx = Arc::new(source::Context {
                    client: self.client.clone(),
                    cache: self.cache.clone(),
                    storage: self.storage.clone(),
                    events,
                    object_cache: options.storage_path.join(".git-objects"),
                    jitter_percent: tuning.jitter_percent,
                    options: options.source.clone(),
                    local: options.local.clone(),
                });
                let source = GitRepositories { ctx: ctx.clone() };
                self.work(Arc::new(Sources { ctx: ctx.clone(), source }), &tuning);
            }
            Controller::Kustomize => {
                let ctx = Arc::new(kustomize::Context {
                    client: self.client.clone(),
                    cache: self.cache.clone(),
                    fetcher: Fetcher::new(self.storage.clone(), options.http_retry),
                    events,
                    cluster: flux_apply::Cluster::new(self.client.clone()),
                    options: options.kustomize.clone(),
                });
                let queue = self.work(Arc::new(Kustomizations { ctx }), &tuning);
                kustomization::listen(&self.cache, &queue);
            }
            Controller::Helm => {}
            Controller::Notification => {}
            Controller::ImageReflector => {}
            Controller::ImageAutomation => {}
            Controller::SourceWatcher => {}
        }
    }

    /// Has `reconciler` work on its kind; the queue is for those who wake its objects.
    fn work(&mut self, reconciler: Arc<dyn Reconcile>, tuning: &Tuning) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        // The flag was checked when it was read; what cannot be read selects nothing.
        let selector = tuning.watch_label_selector.as_deref().map(|text| {
            Selector::parse(text).unwrap_or_else(|error| {
                tracing::error!(%error, "no object is selected");
                Selector::nothing()
            })
        });
        let shard = Shard::new(selector);
        listen_to_own(&self.cache, reconciler.kind(), &queue, &reconciler, &shard);
        let pace = Pace {
            concurrent: tuning.concurrent,
            least_retry: tuning.least_retry,
            most_retry: tuning.most_retry,
        };
        let (cache, work_queue) = (self.cache.clone(), queue.clone());
        self.tasks.push(tokio::spawn(async move {
            tokio::select! {
                () = cache.synced() => run(reconciler, cache.clone(), work_queue, pace, shard).await,
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
        for server in self.servers {
            server.abort();
        }
    }
}

/// The kinds that source-controller shards by its selector.
const SOURCES: [&Kind; 5] = [
    &kinds::GIT_REPOSITORY,
    &kinds::OCI_REPOSITORY,
    &kinds::BUCKET,
    &kinds::HELM_REPOSITORY,
    &kinds::HELM_CHART,
];

async fn serve_files(storage: Arc<Storage>, listener: TcpListener) {
    if let Err(error) = serve::serve(storage, listener).await {
        tracing::error!(%error, "the artifact server stopped");
    }
}
