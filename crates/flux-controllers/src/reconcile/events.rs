//! Events: as core/v1 Events beside the object and, where an address is given, to notification-controller.
//!
//! Sending happens behind bounded queues and never holds up a reconcile. What does not fit is counted and
//! dropped: the status says the same. The two ways have a queue each: an API server that is slow to write Events delays no
//! message to a chat, and a notification-controller that is gone keeps no Event from being written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;

use flux_api::kinds::Kind;

const WAITING: usize = 1024;
/// The same event again within this time raises the count of the first one.
const SAME_EVENT: Duration = Duration::from_secs(600);
const REMEMBERED: usize = 4096;
const POST_TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_NOTE: usize = 32 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Info,
    Error,
    /// Recorded beside the object, never sent on.
    Trace,
}

impl Severity {
    fn event_type(self) -> &'static str {
        match self {
            Severity::Info | Severity::Trace => "Normal",
            Severity::Error => "Warning",
        }
    }
}

/// Something that happened to an object, as it is told to people.
#[derive(Clone, Debug)]
pub struct Happening {
    pub severity: Severity,
    pub reason: String,
    pub message: String,
    /// `<group>/<key>` → value.
    pub metadata: BTreeMap<String, String>,
}

struct Told {
    involved: ObjectReference,
    happening: Happening,
    at: Timestamp,
}

#[derive(Clone)]
pub struct Events {
    records: mpsc::Sender<Arc<Told>>,
    /// To notification-controller, if there is one.
    posts: Option<mpsc::Sender<Arc<Told>>>,
    dropped: Arc<AtomicU64>,
}

impl Events {
    /// Starts sending for `controller`; `address` is where notification-controller listens, if it does.
    pub fn start(client: Client, controller: &'static str, address: Option<String>) -> Self {
        let instance = std::env::var("HOSTNAME").unwrap_or_else(|_| controller.to_owned());
        let (records, told) = mpsc::channel(WAITING);
        let recorder = Recorder { client, controller, instance: instance.clone(), recent: BTreeMap::new() };
        tokio::spawn(recorder.run(told));
        let posts = address.map(|address| {
            let (posts, told) = mpsc::channel(WAITING);
            let (http, first_wait) = (reqwest::Client::new(), FIRST_WAIT);
            tokio::spawn(Poster { controller, instance, address, http, first_wait }.run(told));
            posts
        });
        Self { records, posts, dropped: Arc::default() }
    }

    /// Tells nobody.
    #[cfg(test)]
    pub fn silent() -> Self {
        Self { records: mpsc::channel(1).0, posts: None, dropped: Arc::default() }
    }

    /// Tells of `happening` at `object`. Annotations `event.toolkit.fluxcd.io/<key>` join its metadata.
    pub fn tell(&self, kind: &Kind, object: &DynamicObject, mut happening: Happening) {
        happening.metadata.extend(event_annotations(object));
        log(&happening);
        let told = Arc::new(Told { involved: reference(kind, object), happening, at: Timestamp::now() });
        let posts = self.posts.iter().filter(|_| told.happening.severity != Severity::Trace);
        for queue in posts.chain([&self.records]) {
            if queue.try_send(told.clone()).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// They keep their prefix, which is how notification-controller tells them from what the controller says: a commit or a
/// change request to report to is looked for under it.
fn event_annotations(object: &DynamicObject) -> impl Iterator<Item = (String, String)> {
    let annotations = object.annotations().iter();
    annotations
        .filter(|(key, _)| key.starts_with(flux_api::names::EVENT_ANNOTATION_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
}

/// What people are told also stands in the log, beside the object it happened to.
fn log(happening: &Happening) {
    let revision = happening.metadata.iter().find(|(key, _)| key.ends_with("/revision"));
    let revision = revision.map(|(_, value)| value.as_str());
    match happening.severity {
        Severity::Info => tracing::info!(reason = happening.reason, revision, "{}", happening.message),
        Severity::Trace => tracing::debug!(reason = happening.reason, revision, "{}", happening.message),
        Severity::Error => {
            tracing::error!(
                reason = happening.reason,
                revision,
                error = happening.message,
                "Reconciler error"
            );
        }
    }
}

fn reference(kind: &Kind, object: &DynamicObject) -> ObjectReference {
    ObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.kind.to_owned()),
        name: Some(object.name_any()),
        namespace: object.namespace(),
        uid: object.uid(),
        resource_version: object.resource_version(),
        field_path: None,
    }
}

/// Writes Events.
struct Recorder {
    client: Client,
    controller: &'static str,
    instance: String,
    /// (uid, reason, message) → name of the Event, its count, when it was last raised.
    recent: BTreeMap<(String, String, String), (String, i32, Timestamp)>,
}

impl Recorder {
    async fn run(mut self, mut told: mpsc::Receiver<Arc<Told>>) {
        while let Some(one) = told.recv().await {
            self.record(&one).await;
        }
    }

    async fn record(&mut self, told: &Told) {
        let namespace = told.involved.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let identity = (
            told.involved.uid.clone().unwrap_or_default(),
            told.happening.reason.clone(),
            told.happening.message.clone(),
        );
        let same = self
            .recent
            .get(&identity)
            .filter(|(_, _, at)| told.at.duration_since(*at).unsigned_abs() < SAME_EVENT);
        let result = if let Some((name, count, _)) = same {
            let (name, count) = (name.clone(), count + 1);
            let patch = json!({ "count": count, "lastTimestamp": Time(told.at) });
            let answer = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            answer.map(|_| (name, count))
        } else {
            let event = self.event(told, &namespace);
            let name = event.metadata.name.clone().unwrap_or_default();
            api.create(&PostParams::default(), &event).await.map(|_| (name, 1))
        };
        match result {
            Ok((name, count)) => {
                if self.recent.len() >= REMEMBERED {
                    self.recent.clear();
                }
                self.recent.insert(identity, (name, count, told.at));
            }
            Err(error) => {
                self.recent.remove(&identity);
                tracing::debug!(%error, "event not recorded");
            }
        }
    }

    fn event(&self, told: &Told, namespace: &str) -> Event {
        let involved = told.involved.name.clone().unwrap_or_default();
        let annotations = &told.happening.metadata;
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{involved}.{:x}", told.at.as_nanosecond())),
                namespace: Some(namespace.to_owned()),
                annotations: (!annotations.is_empty()).then(|| annotations.clone()),
                ..ObjectMeta::default()
            },
            involved_object: told.involved.clone(),
            type_: Some(told.happening.severity.event_type().to_owned()),
            reason: Some(told.happening.reason.clone()),
            message: Some(cut(&told.happening.message, LONGEST_NOTE)),
            source: Some(EventSource { component: Some(self.controller.to_owned()), host: None }),
            first_timestamp: Some(Time(told.at)),
            last_timestamp: Some(Time(told.at)),
            count: Some(1),
            reporting_component: Some(self.controller.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// Posts to notification-controller, one after the other: it is to hear of things in their order.
struct Poster {
    controller: &'static str,
    instance: String,
    address: String,
    http: reqwest::Client,
    /// Before the second try; twice as long before the next, and so on.
    first_wait: Duration,
}

impl Poster {
    async fn run(self, mut told: mpsc::Receiver<Arc<Told>>) {
        while let Some(one) = told.recv().await {
            self.post(&one).await;
        }
    }

    async fn post(&self, told: &Told) {
        let body = json!({
            "involvedObject": told.involved,
            "severity": if told.happening.severity == Severity::Error { "error" } else { "info" },
            "timestamp": Time(told.at),
            "message": told.happening.message,
            "reason": told.happening.reason,
            "metadata": told.happening.metadata,
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        });
        let mut delay = self.first_wait;
        for _ in 0..POST_TRIES {
            let answer =
                self.http.post(&self.address).json(&body).timeout(Duration::from_secs(5)).send().await;
            match answer.map(|answer| answer.status().as_u16()) {
                // 429 means it was told before.
                Ok(status) if status < 300 || status == 429 => return,
                Ok(status) if status < 500 => {
                    tracing::warn!(status, "notification-controller refused an event");
                    return;
                }
                Ok(_) | Err(_) => tokio::time::sleep(delay).await,
            }
            delay *= 2;
        }
        tracing::warn!("notification-controller could not be reached, event dropped");
    }
}

/// A message is for people; etcd has better uses for megabytes of it.
fn cut(message: &str, longest: usize) -> String {
    if message.len() <= longest {
        return message.to_owned();
    }
    let mut end = longest - 3;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_join_the_metadata_under_their_own_names() {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": { "name": "a", "annotations": { "event.toolkit.fluxcd.io/commit": "sha1:1", "other": "x" } },
        }))
        .unwrap();
        let found: Vec<_> = event_annotations(&object).collect();
        assert_eq!(found, [("event.toolkit.fluxcd.io/commit".to_owned(), "sha1:1".to_owned())]);
        // What the object says counts more than what the controller says under the same name.
        let mut metadata = BTreeMap::from([("event.toolkit.fluxcd.io/commit".to_owned(), "ours".to_owned())]);
        metadata.extend(event_annotations(&object));
        assert_eq!(metadata.into_values().collect::<Vec<_>>(), ["sha1:1"]);
    }

    /// An API server that never answers a write: the message is posted all the same.
    #[tokio::test]
    async fn a_slow_server_delays_no_message() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (heard, mut said) = mpsc::channel(1);
        let take = move |body: axum::Json<serde_json::Value>| async move {
            heard.send(body.0).await.unwrap();
        };
        let router = axum::Router::new().fallback(axum::routing::post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let stuck = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let events = Events::start(Client::new(stuck, "default"), "test-controller", Some(address));
        let object: DynamicObject = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        let happening = |message: &str, severity| Happening {
            severity,
            reason: "Because".to_owned(),
            message: message.to_owned(),
            metadata: BTreeMap::new(),
        };
        let kind = &flux_api::kinds::KUSTOMIZATION;
        events.tell(kind, &object, happening("quiet", Severity::Trace));
        events.tell(kind, &object, happening("loud", Severity::Info));
        let heard = tokio::time::timeout(Duration::from_secs(20), said.recv()).await.unwrap().unwrap();
        assert_eq!(heard["message"], "loud");
        // What neither way has room for is counted.
        for number in 0..WAITING + 10 {
            events.tell(kind, &object, happening(&format!("{number}"), Severity::Trace));
        }
        assert!(events.dropped() >= 9, "{}", events.dropped());
    }

    /// What a listener hears that answers with these one after the other, the last of them for ever.
    async fn posted(answers: &'static [u16], severity: Severity) -> Vec<serde_json::Value> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = heard.clone();
        let take = move |body: axum::Json<serde_json::Value>| {
            let mut kept = kept.lock().unwrap();
            let answer = answers[kept.len().min(answers.len() - 1)];
            kept.push(body.0);
            async move { http::StatusCode::from_u16(answer).unwrap() }
        };
        let router = axum::Router::new().fallback(axum::routing::post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let poster = Poster {
            controller: "test-controller",
            instance: "test-0".to_owned(),
            address,
            http: reqwest::Client::new(),
            first_wait: Duration::from_millis(1),
        };
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": { "name": "a", "namespace": "apps", "uid": "1-2", "resourceVersion": "7" },
        }))
        .unwrap();
        let told = Told {
            involved: reference(&flux_api::kinds::KUSTOMIZATION, &object),
            happening: Happening {
                severity,
                reason: "Because".to_owned(),
                message: "it happened".to_owned(),
                metadata: BTreeMap::from([("group/revision".to_owned(), "main@sha1:1".to_owned())]),
            },
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
        };
        poster.post(&told).await;
        let heard = heard.lock().unwrap();
        heard.clone()
    }

    #[tokio::test]
    async fn an_event_is_posted_as_flux_writes_it() {
        let event = json!({
            "involvedObject": {
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "a",
                "namespace": "apps", "uid": "1-2", "resourceVersion": "7",
            },
            "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "message": "it happened",
            "reason": "Because", "metadata": { "group/revision": "main@sha1:1" },
            "reportingController": "test-controller", "reportingInstance": "test-0",
        });
        assert_eq!(posted(&[202], Severity::Info).await, [event]);
        assert_eq!(posted(&[202], Severity::Error).await[0]["severity"], "error");
    }

    #[tokio::test]
    async fn a_post_is_tried_again_unless_it_was_told_before_or_refused() {
        assert_eq!(posted(&[503, 500, 202], Severity::Info).await.len(), 3);
        assert_eq!(posted(&[429], Severity::Info).await.len(), 1, "it was told before");
        assert_eq!(posted(&[400], Severity::Info).await.len(), 1, "it will be refused again");
        assert_eq!(posted(&[503], Severity::Info).await.len(), POST_TRIES as usize, "there is an end");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let text = "ü".repeat(20_000);
        let short = cut(&text, LONGEST_NOTE);
        assert!(short.len() <= LONGEST_NOTE && short.ends_with("..."));
        assert_eq!(cut("short", LONGEST_NOTE), "short");
    }
}
