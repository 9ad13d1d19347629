//! Starts the controllers that were asked for and ends them together.
//!
//! To add a controller: an arm in [`Manager::add`], its options in [`ManagerOptions`], its flags in `flux`'s
//! `tree/serve.rs` and `commands/serve/options.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flux_api::digest::Algorithm;
use flux_api::kinds::{self, Controller, Kind};
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::artifact::{Fetcher, Storage, StorageOptions, serve};
use crate::helm::helm_release::HelmReleases;
use crate::image::automation::{self, ImageUpdateAutomations};
use crate::image::image_policy::{self, ImagePolicies};
use crate::image::image_repository::ImageRepositories;
use crate::image::run::Images;
use crate::image::tags::{Checksum, TagStore};
use crate::kustomize::kustomization::{self, Kustomizations};
use crate::notification::receiver::reconciler::{self, Receivers};
use crate::notification::static_objects::{Alerts, Providers};
use crate::reconcile::election::{ElectionOptions, Leadership, lease_name};
use crate::reconcile::metrics::{self, Metrics};
use crate::reconcile::probes::{self, Readiness};
use crate::reconcile::run::{Pace, Shard, Work, listen_to_own};
use crate::reconcile::suspension::Resumer;
use crate::reconcile::throttle::{Limits, bounded};
use crate::reconcile::{Cache, Events, FeatureGates, Queue, Reconcile, Selector, run, state_metrics};
use crate::source::bucket::Buckets;
use crate::source::cloud::CloudIdentity;
use crate::source::git_repository::{self, GitRepositories};
use crate::source::helm_chart::{self, HelmCharts};
use crate::source::helm_repository::HelmRepositories;
use crate::source::oci_repository::OciRepositories;
use crate::source::skeleton::Sources;
use crate::watcher::artifact_generator::{self, ArtifactGenerators};
use crate::{helm, image, kustomize, notification, source, watcher};

/// What is under way when the process is told to end has this long, unless a flag says otherwise.
const STOP_WITHIN: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct ManagerOptions {
    pub controllers: BTreeSet<Controller>,
    /// Watch only this namespace; all of them when `None`.
    pub namespace: Option<String>,
    pub storage_path: PathBuf,
    pub storage_addr: SocketAddr,
    /// Where `/metrics` is, if anywhere.
    pub metrics_addr: Option<SocketAddr>,
    /// Where `/healthz` and `/readyz` are, if anywhere.
    pub health_addr: Option<SocketAddr>,
    /// Works only while it holds the Leases of all its controllers.
    pub election: Option<ElectionOptions>,
    /// Requests a second, where the API server does not share its time out by itself.
    pub kube_api: Limits,
    /// Makes `gotk_resource_info`; off where kube-state-metrics does.
    pub resource_info: bool,
    /// How others reach the file server; derived from the listener when `None`.
    pub storage_adv_addr: Option<String>,
    /// Where events are sent besides the API server.
    pub events_addr: Option<String>,
    pub concurrent: Option<usize>,
    pub least_retry: Duration,
    pub most_retry: Duration,
    pub artifact_retention_ttl: Duration,
    pub artifact_retention_records: usize,
    pub artifact_digest_algo: Algorithm,
    pub http_retry: u32,
    pub jitter_percent: u8,
    /// How long what is under way may take when the process is told to end.
    pub stop_within: Duration,
    /// Controllers that differ from the above.
    pub tuned: BTreeMap<Controller, Tuning>,
    pub source: source::Options,
    pub kustomize: kustomize::Options,
    pub helm: helm::Options,
    pub reflector: image::ReflectorOptions,
    pub automation: automation::AutomationOptions,
    pub watcher: watcher::Options,
    pub notification: notification::Options,
    /// What clouds are told about where this runs.
    pub cloud: flux_remote::cloud::Environment,
    /// Whom signatures without a key are trusted by, where an object does not say.
    pub sigstore: Arc<flux_remote::cosign::Sigstore>,
    /// What stands in for the network, where a fleet is tried on a machine.
    pub depot: Option<source::Depot>,
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
    /// How often a download of an artifact is tried again.
    pub http_retry: u32,
    /// Makes `gotk_resource_info` for its kinds.
    pub resource_info: bool,
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
pub const AVAILABLE: &[Controller] = &[
    Controller::Source,
    Controller::Kustomize,
    Controller::Helm,
    Controller::Notification,
    Controller::ImageReflector,
    Controller::ImageAutomation,
    Controller::SourceWatcher,
];

impl ManagerOptions {
    /// Upstream's defaults, for the given controllers, with artifacts below `storage_path`.
    pub fn new(controllers: BTreeSet<Controller>, storage_path: PathBuf, storage_addr: SocketAddr) -> Self {
        Self {
            controllers,
            namespace: None,
            storage_path,
            storage_addr,
            metrics_addr: None,
            health_addr: None,
            election: None,
            kube_api: Limits { qps: 50.0, burst: 300.0 },
            resource_info: true,
            storage_adv_addr: None,
            events_addr: None,
            concurrent: None,
            least_retry: Duration::from_millis(750),
            most_retry: Duration::from_secs(15 * 60),
            artifact_retention_ttl: Duration::from_secs(60),
            artifact_retention_records: 2,
            artifact_digest_algo: Algorithm::Sha256,
            http_retry: 9,
            jitter_percent: 5,
            stop_within: STOP_WITHIN,
            tuned: BTreeMap::new(),
            source: source::Options::upstream(),
            kustomize: kustomize::Options::default(),
            helm: helm::Options::upstream(),
            reflector: image::ReflectorOptions::upstream(),
            automation: automation::AutomationOptions::upstream(),
            watcher: watcher::Options::upstream(),
            notification: notification::Options::upstream(),
            cloud: flux_remote::cloud::Environment::of_this_process(),
            sigstore: Arc::new(flux_remote::cosign::Sigstore::of_this_process()),
            depot: None,
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
            http_retry: self.http_retry,
            resource_info: self.resource_info,
        })
    }
}

/// Controllers at work.
pub struct Manager {
    client: Client,
    cache: Arc<Cache>,
    storage: Arc<Storage>,
    metrics: Metrics,
    leadership: Option<Leadership>,
    queues: Vec<Arc<Queue>>,
    tasks: JoinSet<()>,
    servers: Servers,
    notification: Option<notification::Running>,
    stop_within: Duration,
}

/// Listeners end with whoever holds this.
#[derive(Default)]
struct Servers(Vec<JoinHandle<()>>);

impl Servers {
    fn add(&mut self, server: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(server));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &self.0 {
            server.abort();
        }
    }
}

impl Manager {
    /// Starts listening, waits for the Leases where there is an election, and starts to work.
    pub async fn start(client: Client, options: ManagerOptions) -> std::io::Result<Self> {
        let metrics = Metrics::default();
        let client = bounded(&client, options.kube_api, metrics.clone());
        let mut servers = Servers::default();
        let readiness = Readiness::default();
        // Where there is no file server a standby is ready, as upstream's: a new Pod must be, before the old one
        // gives its Lease back.
        readiness.set(options.election.is_none() || !serves_files(&options));
        if let Some(address) = options.health_addr {
            servers.add(probes::serve_health(TcpListener::bind(address).await?, readiness.clone()));
        }
        if let Some(address) = options.metrics_addr {
            servers.add(probes::serve_metrics(TcpListener::bind(address).await?, metrics.clone()));
        }
        // Its listeners serve on every replica, as upstream's: whoever is called answers.
        let notification = listen_for_notifications(&client, &options, &metrics).await?;
        let leadership = elect(&client, &options, &metrics).await;
        let storage = storage(&options, &mut servers).await?;
        let cache = Arc::new(Cache::new(client.clone(), options.namespace.clone()));
        let (queues, tasks) = (Vec::new(), JoinSet::new());
        let mut manager = Self {
            client,
            cache,
            storage,
            metrics,
            leadership,
            queues,
            tasks,
            servers,
            notification,
            stop_within: options.stop_within,
        };
        manager.filter_at_the_server(&options);
        for controller in &options.controllers {
            manager.add(*controller, &options);
        }
        manager.cache.start();
        readiness.set(true);
        Ok(manager)
    }

    /// Ends when a Lease was lost: then the process must end too, since another one works now.
    pub async fn lost(&self) {
        match &self.leadership {
            Some(leadership) => leadership.lost().await,
            None => std::future::pending().await,
        }
    }

    /// The listeners of notification-controller, if it runs here.
    pub fn notification(&self) -> Option<&notification::Running> {
        self.notification.as_ref()
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
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
        if controller == Controller::Notification {
            return self.add_notification(&tuning);
        }
        let events_addr = tuning.events_addr.clone().or_else(|| self.own_events_addr());
        let events = start_events(&self.client, controller, events_addr, &self.metrics);
        match controller {
            Controller::Source => {
                let of = &options.source;
                let cached = (of.token_cache_max_size, of.token_cache_max_duration);
                let identity =
                    self.cloud_identity(options, cached, of.default_service_account.as_deref(), &tuning);
                let ctx = Arc::new(source::Context {
                    client: self.client.clone(),
                    cache: self.cache.clone(),
                    storage: self.storage.clone(),
                    events: events.clone(),
                    object_cache: options.storage_path.join(".git-objects"),
                    jitter_percent: tuning.jitter_percent,
                    options: options.source.clone(),
                    identity,
                    metrics: self.metrics.clone(),
                    indexes: Default::default(),
                    sigstore: options.sigstore.clone(),
                    depot: options.depot.clone(),
                });
                let source = GitRepositories::new(ctx.clone());
                let queue = self.work(Arc::new(Sources { ctx: ctx.clone(), source }), &tuning, &events);
                git_repository::listen(&self.cache, &queue);
                let source = HelmRepositories::default();
                self.work(Arc::new(Sources { ctx: ctx.clone(), source }), &tuning, &events);
                self.work(Arc::new(Sources { ctx: ctx.clone(), source: OciRepositories }), &tuning, &events);
                self.work(Arc::new(Sources { ctx: ctx.clone(), source: Buckets }), &tuning, &events);
                let charts = self.work(Arc::new(Sources { ctx, source: HelmCharts }), &tuning, &events);
                helm_chart::listen(&self.cache, &charts);
            }
            Controller::Kustomize => {
                let memory = kustomize::Memory::new(&options.kustomize);
                let of = &options.kustomize;
                let cached = (of.token_cache_max_size, of.token_cache_max_duration);
                let account = of.default_decryption_service_account.as_deref();
                let mut identity = self.cloud_identity(options, cached, account, &tuning);
                identity.object_level = of.gates.object_level_workload_identity;
                let ctx = Arc::new(kustomize::Context {
                    client: self.client.clone(),
                    cache: self.cache.clone(),
                    fetcher: Fetcher::new(self.storage.clone(), tuning.http_retry),
                    events: events.clone(),
                    cluster: flux_apply::Cluster::new(self.client.clone()),
                    identity,
                    options: options.kustomize.clone(),
                    memory,
                });
                let configs = options.kustomize.watched_configs(&tuning);
                let queue = self.work(Arc::new(Kustomizations { ctx: ctx.clone() }), &tuning, &events);
                kustomization::listen(&self.cache, &queue, &ctx.memory, configs);
            }
            Controller::Helm => {
                let fetcher = Fetcher::new(self.storage.clone(), tuning.http_retry);
                let ctx = Arc::new(helm::Context {
                    client: self.client.clone(),
                    cache: self.cache.clone(),
                    fetcher: fetcher.within(options.helm.http_timeout),
                    events: events.clone(),
                    local: helm::identity::Target::new(self.client.clone()),
                    remotes: helm::identity::Remotes::default(),
                    charts: helm::source::Charts::default(),
                    jitter_percent: tuning.jitter_percent,
                    options: options.helm.clone().gated(&tuning.gates),
                });
                let watch_configs = !ctx.options.disable_config_watchers;
                helm::watches::prepare(&self.cache, watch_configs);
                let queue = self.work(Arc::new(HelmReleases::new(ctx)), &tuning, &events);
                helm::watches::listen(&self.cache, &queue, watch_configs);
            }
            Controller::Notification => {} // above: its listeners run already
            Controller::ImageReflector => self.reflect_images(events, &tuning, options),
            Controller::ImageAutomation => self.automate_images(events, &tuning, options),
            Controller::SourceWatcher => {
                let ctx = Arc::new(watcher::Context {
                    client: self.client.clone(),
                    cache: self.cache.clone(),
                    storage: self.storage.clone(),
                    fetcher: Fetcher::new(self.storage.clone(), tuning.http_retry),
                    events: events.clone(),
                    jitter_percent: tuning.jitter_percent,
                    options: options.watcher.clone(),
                });
                let queue = self.work(Arc::new(ArtifactGenerators { ctx }), &tuning, &events);
                artifact_generator::listen(&self.cache, &queue);
            }
        }
    }

    fn add_notification(&mut self, tuning: &Tuning) {
        let Some(ctx) = self.notification.as_ref().map(|running| running.ctx.clone()) else { return };
        let events = ctx.events.clone();
        self.work(Arc::new(Providers(ctx.clone())), tuning, &events);
        self.work(Arc::new(Alerts(ctx.clone())), tuning, &events);
        let queue = self.work(Arc::new(Receivers(ctx)), tuning, &events);
        if !tuning.gates.is("DisableConfigWatchers") {
            reconciler::listen(&self.cache, &queue, &tuning.watch_configs_label_selector);
        }
    }

    /// Where notification-controller listens for the others, if it runs here and they were not told otherwise.
    fn own_events_addr(&self) -> Option<String> {
        let mut address = self.notification.as_ref()?.events_addr;
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        Some(format!("http://{address}/"))
    }

    fn cloud_identity(
        &self,
        options: &ManagerOptions,
        cached: (usize, Duration),
        default_service_account: Option<&str>,
        tuning: &Tuning,
    ) -> CloudIdentity {
        cloud_identity(&self.client, &self.metrics, options, cached, default_service_account, tuning)
    }

    fn reflect_images(&mut self, events: Events, tuning: &Tuning, options: &ManagerOptions) {
        let checksum = match tuning.gates.is("FluxStorage") {
            true => Checksum::Sha256,
            false => Checksum::Adler32,
        };
        let reflector = options.reflector.clone();
        // Beside artifacts, where files are served to whoever asks, lists of tags are kept under a name that is not.
        let root = match serves_files(options) {
            true => options.storage_path.join(".images"),
            false => options.storage_path.clone(),
        };
        let tags = TagStore::new(&root, checksum, reflector.compression_threshold);
        let ctx = Arc::new(image::Reflector {
            client: self.client.clone(),
            cache: self.cache.clone(),
            events: events.clone(),
            tags,
            hosts: image::hosts::Hosts::new(tuning.concurrent),
            identity: self.cloud_identity(
                options,
                (reflector.token_cache_max_size, reflector.token_cache_max_duration),
                reflector.default_service_account.as_deref(),
                tuning,
            ),
            options: reflector,
        });
        self.work(Arc::new(Images(ImageRepositories { ctx: ctx.clone() })), tuning, &events);
        let policies = self.work(Arc::new(Images(ImagePolicies { ctx })), tuning, &events);
        image_policy::listen(&self.cache, &policies);
    }

    fn automate_images(&mut self, events: Events, tuning: &Tuning, options: &ManagerOptions) {
        let automation = options.automation.clone();
        let algorithms = flux_remote::git::SshAlgorithms {
            key_exchange: automation.ssh_kex_algos.clone(),
            host_keys: automation.ssh_hostkey_algos.clone(),
        };
        let cached = (automation.token_cache_max_size, automation.token_cache_max_duration);
        let identity =
            self.cloud_identity(options, cached, automation.default_service_account.as_deref(), tuning);
        let automations = ImageUpdateAutomations {
            client: self.client.clone(),
            cache: self.cache.clone(),
            events: events.clone(),
            connector: git_repository::Connector::new(identity, algorithms),
            folder: options.storage_path.join(".image-automation"),
            force_push_branch: tuning.gates.is("GitForcePushBranch"),
            all_branch_references: tuning.gates.is("GitAllBranchReferences"),
            options: automation,
            turns: Default::default(),
            told: Default::default(),
        };
        let queue = self.work(Arc::new(Images(automations)), tuning, &events);
        automation::listen(&self.cache, &queue);
    }

    /// Has `reconciler` work on its kind; the queue is for those who wake its objects.
    fn work(&mut self, reconciler: Arc<dyn Reconcile>, tuning: &Tuning, events: &Events) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        // The flag was checked when it was read; what cannot be read selects nothing.
        let selector = tuning.watch_label_selector.as_deref().map(|text| {
            Selector::parse(text).unwrap_or_else(|error| {
                tracing::error!(%error, "no object is selected");
                Selector::nothing()
            })
        });
        let shard = Shard::new(selector);
        let kind = reconciler.kind();
        listen_to_own(&self.cache, kind, &queue, &reconciler, &shard, &self.metrics);
        self.measure(kind, &queue, &shard, tuning);
        let pace = Pace {
            concurrent: tuning.concurrent,
            least_retry: tuning.least_retry,
            most_retry: tuning.most_retry,
        };
        let (cache, closed) = (self.cache.clone(), queue.clone());
        let (work_queue, metrics) = (queue.clone(), self.metrics.clone());
        let resumer = Resumer { client: self.client.clone(), events: events.clone() };
        let work =
            Work { reconciler, cache: cache.clone(), queue: work_queue, pace, shard, metrics, resumer };
        self.tasks.spawn(async move {
            tokio::select! {
                () = cache.synced() => {}
                () = closed.closed() => return,
            }
            run(work).await;
        });
        self.queues.push(queue.clone());
        queue
    }

    /// Has a kind's objects and queue appear among the metrics.
    fn measure(&self, kind: &'static Kind, queue: &Arc<Queue>, shard: &Shard, tuning: &Tuning) {
        let controller = kind.kind.to_lowercase();
        let (cache, queue, shard) = (Arc::downgrade(&self.cache), queue.clone(), shard.clone());
        let (concurrent, resource_info) = (tuning.concurrent, tuning.resource_info);
        self.metrics.collect(move |page| {
            if let Some(cache) = cache.upgrade() {
                state_metrics::collect(page, &cache, kind, &shard, resource_info);
            }
            let (figures, labels) = (queue.figures(), [controller.as_str(), controller.as_str()]);
            page.number(&metrics::MOST_WORKERS, &[&controller], concurrent as f64);
            page.number(&metrics::ACTIVE_WORKERS, &[&controller], figures.running as f64);
            page.number(&metrics::QUEUE_DEPTH, &labels, figures.depth as f64);
            page.number(&metrics::QUEUE_ADDS, &labels, figures.adds as f64);
            page.number(&metrics::QUEUE_RETRIES, &labels, figures.retries as f64);
            page.number(&metrics::QUEUE_UNFINISHED, &labels, figures.unfinished);
            page.number(&metrics::QUEUE_LONGEST, &labels, figures.longest);
        });
    }

    /// Stops taking work, lets what is under way end, closes the listeners and gives the Leases back.
    pub async fn stop(mut self) {
        self.cache.stop();
        for queue in &self.queues {
            queue.close();
        }
        let under_way = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(self.stop_within, under_way).await.is_err() {
            let running: Vec<String> =
                self.queues.iter().flat_map(|queue| queue.running()).map(|key| key.to_string()).collect();
            tracing::error!(objects = running.join(", "), "what was under way did not end in time");
            self.tasks.abort_all();
        }
        self.servers = Servers::default();
        if let Some(notification) = self.notification.take() {
            notification.stop().await;
        }
        if let Some(leadership) = self.leadership.take() {
            leadership.release().await;
        }
    }
}

/// Without [`Manager::stop`] everything ends at once, as if the process were killed.
impl Drop for Manager {
    fn drop(&mut self) {
        self.cache.stop();
    }
}

/// Sends a controller's events, and counts what it had to drop.
fn start_events(
    client: &Client,
    controller: Controller,
    address: Option<String>,
    metrics: &Metrics,
) -> Events {
    let name = controller.as_str();
    let events = Events::start(client.clone(), name, address);
    let told = events.clone();
    metrics.collect(move |page| page.number(&metrics::EVENTS_DROPPED, &[name], told.dropped() as f64));
    events
}

/// Who a controller is at clouds, with a cache of so many tokens for so long.
fn cloud_identity(
    client: &Client,
    metrics: &Metrics,
    options: &ManagerOptions,
    (cached, longest): (usize, Duration),
    default_service_account: Option<&str>,
    tuning: &Tuning,
) -> CloudIdentity {
    let cloud = Arc::new(flux_remote::cloud::Cloud::new(options.cloud.clone(), cached, longest));
    let tokens = cloud.clone();
    metrics.collect(move |page| page.tokens(tokens.counts()));
    CloudIdentity {
        client: client.clone(),
        cloud,
        default_service_account: default_service_account.map(str::to_owned),
        object_level: tuning.gates.is("ObjectLevelWorkloadIdentity"),
        metrics: metrics.clone(),
    }
}

async fn listen_for_notifications(
    client: &Client,
    options: &ManagerOptions,
    metrics: &Metrics,
) -> std::io::Result<Option<notification::Running>> {
    if !options.controllers.contains(&Controller::Notification) {
        return Ok(None);
    }
    // What it says about its own objects goes to nobody: it would be told of its own failures for ever.
    let events = start_events(client, Controller::Notification, None, metrics);
    let mut of = options.notification.clone();
    let tuning = options.tuning(Controller::Notification);
    of.object_level_workload_identity = tuning.gates.is("ObjectLevelWorkloadIdentity");
    let cached = (of.token_cache_max_size, of.token_cache_max_duration);
    let account = of.default_service_account.as_deref();
    let identity = cloud_identity(client, metrics, options, cached, account, &tuning);
    let namespace = options.namespace.clone();
    notification::Running::start(client.clone(), namespace, events, identity, of, metrics.clone())
        .await
        .map(Some)
}

fn serves_files(options: &ManagerOptions) -> bool {
    [Controller::Source, Controller::SourceWatcher].iter().any(|one| options.controllers.contains(one))
}

/// The Leases of all controllers that run, in their fixed order.
async fn elect(client: &Client, options: &ManagerOptions, metrics: &Metrics) -> Option<Leadership> {
    let election = options.election.as_ref()?;
    let names = options.controllers.iter().map(|controller| {
        lease_name(*controller, options.tuning(*controller).watch_label_selector.as_deref())
    });
    Some(Leadership::win(client, names.collect(), election, metrics).await)
}

/// Where artifacts are; served to others where a controller here makes some.
async fn storage(options: &ManagerOptions, servers: &mut Servers) -> std::io::Result<Arc<Storage>> {
    let listener = match serves_files(options) {
        true => Some(TcpListener::bind(options.storage_addr).await?),
        false => None,
    };
    let advertised = match (&options.storage_adv_addr, &listener) {
        (Some(address), _) => address.clone(),
        (None, Some(listener)) => serve::advertised(listener.local_addr()?),
        (None, None) => String::new(),
    };
    let storage = Arc::new(Storage::new(StorageOptions {
        root: options.storage_path.clone(),
        advertised,
        retention_age: options.artifact_retention_ttl,
        retention_records: options.artifact_retention_records,
        algorithm: options.artifact_digest_algo,
    })?);
    if let Some(listener) = listener {
        servers.add(serve_files(storage.clone(), listener));
    }
    Ok(storage)
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
