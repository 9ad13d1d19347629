//! notification-controller: events out to people and services, webhooks in to objects.
//!
//! An event's way: `event_server` → `matching` (which Alerts want it) → `dispatch` (a bounded queue for each Provider) →
//! `settings` (what the Secrets say) → `provider` (which requests that makes; pure) → `send` (with patience).
//! The listeners run on every replica, whoever holds the Lease; only statuses and finalizers wait for it.

mod commit_status;
pub mod dispatch;
mod duplicates;
pub mod event;
mod event_server;
mod github_app;
mod identity;
mod incident;
mod known;
mod matching;
mod message;
mod metadata;
mod nats;
pub mod provider;
pub mod receiver;
mod send;
mod server;
mod settings;
pub mod static_objects;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flux_api::kinds;
use flux_api::notification::{Alert, Provider, Receiver};
use kube::Client;
use kube::api::DynamicObject;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::reconcile::events::Happening;
use crate::reconcile::metrics::{EVENT_REQUEST_TIME, RECEIVER_REQUEST_TIME};
use crate::reconcile::{Cache, Events, Metrics, Severity};
use crate::source::cloud::CloudIdentity;
use dispatch::Dispatcher;
use duplicates::Duplicates;
use event_server::EventServer;
use github_app::AppTokens;
use incident::Incidents;
use known::Known;
use matching::Expressions;
use receiver::Keys;
use receiver::webhook::WebhookServer;
use server::Counted;

/// What a listener that is told to end has for the requests it is at.
const STOP_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Options {
    /// Where controllers send events.
    pub events_addr: SocketAddr,
    /// Where webhooks arrive.
    pub receiver_addr: SocketAddr,
    /// The same event is told once in this time.
    pub rate_limit_interval: Duration,
    pub no_cross_namespace_refs: bool,
    pub object_level_workload_identity: bool,
    pub default_service_account: Option<String>,
    /// Tokens of clouds that are kept, and for how long at most.
    pub token_cache_max_size: usize,
    pub token_cache_max_duration: Duration,
    /// Whether the path of a request is told in metrics.
    pub export_http_path_metrics: bool,
    /// How long to wait before a delivery is tried again; doubles each time.
    pub first_retry: Duration,
    /// Whether notifications leave this process. Without, what would be sent stands in the log: a fleet that is tried out
    /// on a laptop writes to no chat.
    pub deliver: bool,
}

impl Options {
    /// Upstream's defaults.
    pub fn upstream() -> Self {
        Self {
            events_addr: ([0, 0, 0, 0], 9090).into(),
            receiver_addr: ([0, 0, 0, 0], 9292).into(),
            rate_limit_interval: Duration::from_secs(300),
            no_cross_namespace_refs: false,
            object_level_workload_identity: false,
            default_service_account: None,
            token_cache_max_size: 100,
            token_cache_max_duration: Duration::from_secs(3600),
            export_http_path_metrics: false,
            first_retry: Duration::from_secs(2),
            deliver: true,
        }
    }
}

/// What everything here works with.
pub struct Context {
    pub client: Client,
    /// Of the listeners alone, which do not wait for a Lease.
    pub cache: Arc<Cache>,
    pub events: Events,
    pub options: Options,
    pub metrics: Metrics,
    alerts: Arc<Known<Alert>>,
    providers: Arc<Known<Provider>>,
    receivers: Arc<Known<Receiver>>,
    dispatcher: Arc<Dispatcher>,
    duplicates: Duplicates,
    incidents: Incidents,
    expressions: Expressions,
    settings: settings::Remembered,
    app_tokens: AppTokens,
    /// Who we and our Providers are at clouds.
    identity: CloudIdentity,
    /// What issuers of identity tokens sign with.
    keys: Keys,
}

impl Context {
    /// An event on an object of ours.
    fn tell(
        &self,
        kind: &kinds::Kind,
        object: &DynamicObject,
        severity: Severity,
        reason: &str,
        message: String,
    ) {
        let happening =
            Happening { severity, reason: reason.to_owned(), message, metadata: Default::default() };
        self.events.tell(kind, object, happening);
    }
}

/// The listeners at work.
pub struct Running {
    pub ctx: Arc<Context>,
    /// Where events are accepted.
    pub events_addr: SocketAddr,
    /// Where webhooks are.
    pub receiver_addr: SocketAddr,
    stop: CancellationToken,
    servers: Vec<JoinHandle<()>>,
}

impl Running {
    pub async fn start(
        client: Client,
        namespace: Option<String>,
        events: Events,
        identity: CloudIdentity,
        options: Options,
        metrics: Metrics,
    ) -> std::io::Result<Self> {
        let cache = Arc::new(Cache::new(client.clone(), namespace));
        let ctx = Arc::new(Context {
            alerts: Known::follow(&cache, &kinds::ALERT),
            providers: Known::follow(&cache, &kinds::PROVIDER),
            receivers: Known::follow(&cache, &kinds::RECEIVER),
            dispatcher: Arc::default(),
            duplicates: Duplicates::new(options.rate_limit_interval),
            incidents: Incidents::default(),
            expressions: Expressions::default(),
            settings: settings::Remembered::default(),
            app_tokens: AppTokens::default(),
            identity,
            keys: Keys::default(),
            client,
            cache,
            events,
            options,
            metrics,
        });
        let stop = CancellationToken::new();
        let events = TcpListener::bind(ctx.options.events_addr).await?;
        let webhooks = TcpListener::bind(ctx.options.receiver_addr).await?;
        let (events_addr, receiver_addr) = (events.local_addr()?, webhooks.local_addr()?);
        let (metrics, answer) = (ctx.metrics.clone(), Arc::new(EventServer(ctx.clone())));
        let paths = ctx.options.export_http_path_metrics;
        let counted = Counted { name: "events", times: &EVENT_REQUEST_TIME, handler: "/", paths };
        let events = server::serve(events, counted, answer, metrics.clone(), stop.clone());
        let answer = Arc::new(WebhookServer(ctx.clone()));
        let counted =
            Counted { name: "webhooks", times: &RECEIVER_REQUEST_TIME, handler: receiver::PATH, paths };
        let webhooks = server::serve(webhooks, counted, answer, metrics, stop.clone());
        let servers = vec![tokio::spawn(events), tokio::spawn(webhooks)];
        ctx.cache.start();
        Ok(Self { ctx, events_addr, receiver_addr, stop, servers })
    }

    /// Takes nothing new, answers what it is at, and gives what is under way to services a moment.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for server in &mut self.servers {
            let _ = tokio::time::timeout(STOP_WITHIN, server).await;
        }
        let _ = tokio::time::timeout(STOP_WITHIN, self.ctx.dispatcher.idle()).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ctx.cache.stop();
        for server in &self.servers {
            server.abort();
        }
    }
}
