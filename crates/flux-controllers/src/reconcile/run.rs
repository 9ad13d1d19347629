//! Takes objects from the queue and hands them to their reconciler, each in a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use flux_api::kinds::Kind;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::DynamicObject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::ObjectKey;
use super::cache::{Cache, Change};
use super::queue::{Cause, Queue, Taken};

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

/// Connects a kind's own changes to its queue.
pub fn listen_to_own(
    cache: &Cache,
    kind: &'static Kind,
    queue: &Arc<Queue>,
    reconciler: &Arc<dyn Reconcile>,
) {
    let (queue, reconciler) = (queue.clone(), reconciler.clone());
    cache.listen(kind, move |change| match &change.new {
        None => {
            queue.remove(&change.key);
            reconciler.forget(&change.key);
        }
        Some(_) if wants_attention(change) => queue.add(change.key.clone(), Cause::Request),
        Some(_) => {}
    });
}

/// New, another generation, another request, on its way out. A mere change of status is our own doing.
fn wants_attention(change: &Change) -> bool {
    let (Some(new), Some(old)) = (&change.new, &change.old) else {
        return true;
    };
    let request =
        |object: &DynamicObject| object.annotations().get(flux_api::names::RECONCILE_REQUEST).cloned();
    new.metadata.generation != old.metadata.generation
        || new.metadata.deletion_timestamp != old.metadata.deletion_timestamp
        || request(new) != request(old)
        || new.uid() != old.uid()
}

/// Works on `queue` until it is closed; then waits for what is under way.
pub async fn run(reconciler: Arc<dyn Reconcile>, cache: Arc<Cache>, queue: Arc<Queue>, pace: Pace) {
    let permits = Arc::new(Semaphore::new(pace.concurrent));
    let mut tasks = JoinSet::new();
    while let Some(taken) = queue.next().await {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let (reconciler, cache, queue, permits) =
            (reconciler.clone(), cache.clone(), queue.clone(), permits.clone());
        tasks.spawn(async move {
            let key = taken.key.clone();
            let next = turn(reconciler, &cache, taken, permits, permit).await;
            settle(&queue, &key, next, pace);
            queue.done(&key);
        });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

async fn turn(
    reconciler: Arc<dyn Reconcile>,
    cache: &Cache,
    taken: Taken,
    permits: Arc<Semaphore>,
    permit: OwnedSemaphorePermit,
) -> Next {
    let kind = reconciler.kind();
    let Some(object) = cache.get(kind, &taken.key) else {
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
        controllerKind = kind.kind,
        namespace = taken.key.namespace,
        name = taken.key.name
    );
    let reconcile = reconciler.reconcile(object, worker).instrument(span);
    match AssertUnwindSafe(reconcile).catch_unwind().await {
        Ok(next) => next,
        Err(_) => {
            tracing::error!(kind = kind.kind, object = %taken.key, "the reconcile panicked; trying again later");
            Next::Backoff
        }
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
