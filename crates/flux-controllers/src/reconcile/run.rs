//! Takes objects from the queue and hands them to their reconciler, each in a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flux_api::kinds::Kind;
use flux_api::names::{RECONCILE_REQUEST, SUSPEND_UNTIL};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::ObjectKey;
use super::cache::{Cache, Change};
use super::metrics::{self, Metrics};
use super::queue::{Cause, Queue, Taken};
use super::selector::Selector;
use super::suspension::{Resumer, Suspension};

/// When an object is to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All is well: at its interval.
    After(Duration),
    /// Something failed: the wait doubles each time.
    Backoff,
    /// Something failed, and the object itself says how long to wait.
    RetryAfter(Duration),
    /// At once.
    Now,
    /// When it changes.
    OnChange,
}

impl Next {
    /// The same, unless the status that tells of the run could not be written: then the run counts as failed, for
    /// whoever waits for it has seen nothing, and at the next interval is far too late.
    pub fn if_told(self, written: Result<(), kube::Error>) -> Self {
        let Err(error) = written else { return self };
        tracing::warn!(%error, "status could not be written");
        match self {
            Self::After(_) | Self::OnChange => Self::Backoff,
            soon @ (Self::Backoff | Self::RetryAfter(_) | Self::Now) => soon,
        }
    }
}

pub trait Reconcile: Send + Sync + 'static {
    fn kind(&self) -> &'static Kind;

    fn reconcile(self: Arc<Self>, object: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next>;

    /// The object is gone from the server.
    fn forget(&self, _key: &ObjectKey) {}
}

/// How a kind's queue is worked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub concurrent: usize,
    pub least_retry: Duration,
    pub most_retry: Duration,
}

/// The turn an object has: a permit to work, and word of anything newer.
#[derive(Clone)]
pub struct Worker {
    permits: Arc<Semaphore>,
    permit: Arc<tokio::sync::Mutex<Option<OwnedSemaphorePermit>>>,
    preempted: CancellationToken,
    pub cause: Cause,
}

impl Worker {
    /// Awaits `future` without holding a turn.
    pub async fn outside<T>(&self, future: impl Future<Output = T>) -> T {
        self.permit.lock().await.take();
        let output = future.await;
        *self.permit.lock().await = self.permits.clone().acquire_owned().await.ok();
        output
    }

    /// Ends when something newer than this run has arrived; to be raced against waits, never against writes.
    pub async fn preempted(&self) {
        self.preempted.cancelled().await;
    }

    pub fn is_preempted(&self) -> bool {
        self.preempted.is_cancelled()
    }
}

/// Which objects of its kind a controller works on; the others belong to another shard.
#[derive(Clone, Debug, Default)]
pub struct Shard(Option<Arc<Selector>>);

impl Shard {
    pub fn new(selector: Option<Selector>) -> Self {
        Self(selector.map(Arc::new))
    }

    pub fn includes(&self, object: &DynamicObject) -> bool {
        self.0.as_ref().is_none_or(|selector| selector.matches(object.labels()))
    }
}

/// Connects a kind's own changes to its queue.
pub fn listen_to_own(
    cache: &Cache,
    kind: &'static Kind,
    queue: &Arc<Queue>,
    reconciler: &Arc<dyn Reconcile>,
    shard: &Shard,
    metrics: &Metrics,
) {
    let (queue, reconciler, shard) = (queue.clone(), reconciler.clone(), shard.clone());
    let metrics = metrics.clone();
    cache.listen(kind, move |change| match attention(change, &shard) {
        Attention::Gone => {
            queue.remove(&change.key);
            reconciler.forget(&change.key);
            forget(&metrics, kind, &change.key);
        }
        Attention::Wanted => queue.add(change.key.clone(), Cause::Request),
        Attention::None => {}
    });
}

#[derive(Debug, PartialEq, Eq)]
enum Attention {
    /// Deleted, or moved to another shard.
    Gone,
    Wanted,
    None,
}

/// New, another generation, another request, another end of its suspension, on its way out. A mere change of status is our own doing.
fn attention(change: &Change, shard: &Shard) -> Attention {
    let old = change.old.as_deref().filter(|old| shard.includes(old));
    let Some(new) = change.new.as_deref().filter(|new| shard.includes(new)) else {
        return if old.is_some() { Attention::Gone } else { Attention::None };
    };
    let Some(old) = old else {
        return Attention::Wanted;
    };
    let request = |object: &DynamicObject| object.annotations().get(RECONCILE_REQUEST).cloned();
    // Taking the annotation away is no request.
    let asked = request(new).is_some() && request(new) != request(old);
    let wanted = new.metadata.generation != old.metadata.generation
        || new.metadata.deletion_timestamp != old.metadata.deletion_timestamp
        || asked
        || new.annotations().get(SUSPEND_UNTIL) != old.annotations().get(SUSPEND_UNTIL)
        || new.uid() != old.uid();
    if wanted { Attention::Wanted } else { Attention::None }
}

/// One kind's work: who does it, on what, how fast, and where it is counted.
pub struct Work {
    pub reconciler: Arc<dyn Reconcile>,
    pub cache: Arc<Cache>,
    pub queue: Arc<Queue>,
    pub pace: Pace,
    pub shard: Shard,
    pub metrics: Metrics,
    pub resumer: Resumer,
}

/// Works on the queue until it is closed; then waits for what is under way.
pub async fn run(work: Work) {
    let work = Arc::new(work);
    let permits = Arc::new(Semaphore::new(work.pace.concurrent));
    let mut tasks = JoinSet::new();
    while let Some(taken) = work.queue.next().await {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let (work, permits) = (work.clone(), permits.clone());
        tasks.spawn(async move {
            let key = taken.key.clone();
            let next = turn(&work, taken, permits, permit).await;
            settle(&work.queue, &key, next, work.pace);
            work.queue.done(&key);
        });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

async fn turn(work: &Work, taken: Taken, permits: Arc<Semaphore>, permit: OwnedSemaphorePermit) -> Next {
    let kind = work.reconciler.kind();
    // Whoever wakes dependents does not look at shards.
    let Some(object) = work.cache.get(kind, &taken.key).filter(|object| work.shard.includes(object)) else {
        return Next::OnChange;
    };
    let worker = Worker {
        permits,
        permit: Arc::new(tokio::sync::Mutex::new(Some(permit))),
        preempted: taken.preempted,
        cause: taken.cause,
    };
    let span = tracing::info_span!(
        "reconcile",
        controllerGroup = kind.group,
        controllerKind = kind.kind,
        name = taken.key.name,
        namespace = taken.key.namespace,
        reconcileID = %uuid::Uuid::new_v4(),
    );
    let started = Instant::now();
    let is_deleted = object.metadata.deletion_timestamp.is_some();
    let suspension = Suspension::of(&object, Timestamp::now());
    if let (Suspension::Over(until), false) = (suspension, is_deleted) {
        return work.resumer.resume(kind, &object, until).instrument(span).await;
    }
    let reconcile = work.reconciler.clone().reconcile(object, worker).instrument(span.clone());
    let next = match AssertUnwindSafe(reconcile).catch_unwind().await {
        Ok(next) => next,
        Err(panic) => {
            let error = said(panic.as_ref());
            span.in_scope(|| tracing::error!(error, "the reconcile panicked; trying again later"));
            work.metrics.add(&metrics::RECONCILE_PANICS, &[&kind.kind.to_lowercase()], 1.0);
            Next::Backoff
        }
    };
    let next = suspension.at_the_latest(next);
    count(work, &taken.key, next, taken.waited, started.elapsed(), is_deleted);
    next
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "no message",
    }
}

fn count(work: &Work, key: &ObjectKey, next: Next, waited: Duration, took: Duration, is_deleted: bool) {
    let (metrics, kind) = (&work.metrics, work.reconciler.kind().kind);
    let controller = kind.to_lowercase();
    let (waited, took) = (waited.as_secs_f64(), took.as_secs_f64());
    let result = match next {
        Next::After(_) => "requeue_after",
        Next::RetryAfter(_) | Next::Backoff => "error",
        Next::Now => "requeue",
        Next::OnChange => "success",
    };
    metrics.add(&metrics::RECONCILES, &[&controller, result], 1.0);
    metrics.observe(&metrics::RECONCILE_TIME, &[&controller], took);
    metrics.observe(&metrics::QUEUE_WAIT, &[&controller, &controller], waited);
    metrics.observe(&metrics::QUEUE_WORK, &[&controller, &controller], took);
    let object = [kind, key.name.as_str(), key.namespace.as_str()];
    if result == "error" {
        metrics.add(&metrics::RECONCILE_FAILURES, &[&controller], 1.0);
        metrics.add(&metrics::RECONCILE_ERRORS, &object, 1.0);
    }
    if !is_deleted {
        metrics.observe(&metrics::RECONCILE_DURATION, &object, took);
    }
}

/// An object that is gone leaves no series behind.
fn forget(metrics: &Metrics, kind: &Kind, key: &ObjectKey) {
    let object = [kind.kind, key.name.as_str(), key.namespace.as_str()];
    metrics.forget(&metrics::RECONCILE_DURATION, &object);
    metrics.forget(&metrics::RECONCILE_ERRORS, &object);
    for event in ["cache_hit", "cache_miss"] {
        metrics.forget(&metrics::TOKEN_CACHE_EVENTS, &[event, object[0], object[1], object[2]]);
    }
}

fn settle(queue: &Queue, key: &ObjectKey, next: Next, pace: Pace) {
    match next {
        Next::After(delay) => {
            queue.forgive(key);
            queue.add_after(key.clone(), delay);
        }
        Next::RetryAfter(delay) => queue.add_after(key.clone(), delay),
        Next::Backoff => {
            let delay = queue.backoff(key, pace.least_retry, pace.most_retry);
            queue.add_after(key.clone(), delay);
        }
        Next::Now => queue.add(key.clone(), Cause::Change),
        Next::OnChange => queue.forgive(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(generation: i64, shard: &str, request: Option<&str>) -> Option<Arc<DynamicObject>> {
        let mut value = json!({
            "apiVersion": "v1", "kind": "Any",
            "metadata": { "name": "a", "namespace": "n", "generation": generation, "labels": { "shard": shard } },
        });
        if let Some(request) = request {
            value["metadata"]["annotations"] = json!({ RECONCILE_REQUEST: request });
        }
        Some(Arc::new(serde_json::from_value(value).unwrap()))
    }

    fn judge(old: Option<Arc<DynamicObject>>, new: Option<Arc<DynamicObject>>) -> Attention {
        let shard = Shard::new(Some(Selector::parse("shard=one").unwrap()));
        attention(&Change { key: ObjectKey::new("n", "a"), old, new }, &shard)
    }

    #[test]
    fn a_new_generation_or_request_is_worked_on_and_a_status_is_not() {
        assert_eq!(judge(None, object(1, "one", None)), Attention::Wanted);
        assert_eq!(judge(object(1, "one", None), object(2, "one", None)), Attention::Wanted);
        assert_eq!(judge(object(1, "one", None), object(1, "one", Some("now"))), Attention::Wanted);
        assert_eq!(judge(object(1, "one", Some("now")), object(1, "one", None)), Attention::None);
        assert_eq!(judge(object(1, "one", None), object(1, "one", None)), Attention::None);
    }

    #[test]
    fn another_end_of_a_suspension_is_looked_at_although_the_spec_is_the_same() {
        let until = |text: &str| {
            let mut value = serde_json::to_value(object(1, "one", None).unwrap().as_ref()).unwrap();
            value["metadata"]["annotations"] = json!({ SUSPEND_UNTIL: text });
            Some(Arc::new(serde_json::from_value(value).unwrap()))
        };
        let (noon, later) = ("2026-01-01T12:00:00Z", "2026-01-01T14:00:00Z");
        assert_eq!(judge(object(1, "one", None), until(noon)), Attention::Wanted);
        assert_eq!(judge(until(noon), until(later)), Attention::Wanted);
        assert_eq!(judge(until(noon), until(noon)), Attention::None);
    }

    #[test]
    fn another_shard_is_somebody_elses_and_moving_between_them_is_noticed() {
        assert_eq!(judge(None, object(1, "two", None)), Attention::None);
        assert_eq!(judge(object(1, "two", None), object(2, "two", None)), Attention::None);
        assert_eq!(judge(object(1, "two", None), object(1, "one", None)), Attention::Wanted);
        assert_eq!(judge(object(1, "one", None), object(1, "two", None)), Attention::Gone);
        assert_eq!(judge(object(1, "one", None), None), Attention::Gone);
        assert_eq!(judge(object(1, "two", None), None), Attention::None);
    }

    struct Panics;

    impl Reconcile for Panics {
        fn kind(&self) -> &'static Kind {
            &flux_api::kinds::KUSTOMIZATION
        }

        fn reconcile(self: Arc<Self>, object: Arc<DynamicObject>, _: Worker) -> BoxFuture<'static, Next> {
            Box::pin(async move {
                assert_ne!(object.name_any(), "a", "this one is bad");
                Next::OnChange
            })
        }
    }

    #[tokio::test]
    async fn a_panic_ends_one_run_and_is_tried_again_later() {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = kube::Client::new(nobody, "default");
        let kind = &flux_api::kinds::KUSTOMIZATION;
        let cache = Arc::new(Cache::new(client.clone(), None));
        let store = cache.watch(&super::super::Watched::kind(kind));
        for name in ["a", "b"] {
            let metadata = json!({ "name": name, "namespace": "n" });
            let object = json!({ "apiVersion": "v1", "kind": "Any", "metadata": metadata });
            store.put(Arc::new(serde_json::from_value(object).unwrap()));
        }
        let metrics = Metrics::default();
        let work = Work {
            reconciler: Arc::new(Panics),
            cache,
            queue: Arc::new(Queue::default()),
            pace: Pace {
                concurrent: 1,
                least_retry: Duration::from_millis(1),
                most_retry: Duration::from_secs(1),
            },
            shard: Shard::default(),
            metrics: metrics.clone(),
            resumer: Resumer {
                client: client.clone(),
                events: super::super::Events::start(client, "test-controller", None),
            },
        };
        let permits = Arc::new(Semaphore::new(1));
        let run = async |name: &str| {
            work.queue.add(ObjectKey::new("n", name), Cause::Request);
            let taken = work.queue.next().await.unwrap();
            let permit = permits.clone().acquire_owned().await.unwrap();
            turn(&work, taken, permits.clone(), permit).await
        };
        assert_eq!(run("a").await, Next::Backoff);
        assert_eq!(run("b").await, Next::OnChange);
        let page = metrics.page();
        let counted = "controller_runtime_reconcile_panics_total{controller=\"kustomization\"} 1";
        assert!(page.contains(counted), "{page}");
    }
}
