//! What the image kinds do around their work: finalizer, suspension, conditions, events, the status.
//!
//! A kind implements [`ImageKind`]: it does its work and says in [`Done`] what came of it, or in [`Failure`] why
//! nothing did. The rules of the conditions are those of upstream's result finalizer, with one difference: a Ready
//! that is False always tells of the last failure, never of an earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::condition::{self, Condition, ConditionStatus};
use flux_api::names::{FINALIZER, RECONCILE_REQUEST};
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use serde::Serialize;

use crate::reconcile::events::Happening;
use crate::reconcile::{Conditions, Events, Next, ObjectKey, Reconcile, Severity, Worker, decode, status};

/// Progress is written down only when a run lasts; most are over before anybody could read it.
const WORTH_TELLING: Duration = Duration::from_secs(1);

pub trait ImageKind: Send + Sync + Sized + 'static {
    type Object: Object + Send + Sync;
    type Status: Status;
    /// The field manager: upstream's name of the controller.
    const MANAGER: &'static str;
    /// Whether a request is noted while the object is suspended; not so by ImageUpdateAutomation, as upstream.
    const HEARS_WHILE_SUSPENDED: bool = true;

    fn client(&self) -> &Client;
    fn events(&self) -> &Events;
    fn status(object: &Self::Object) -> Option<&Self::Status>;

    fn work(&self, run: &mut Run<'_, Self>) -> impl Future<Output = Result<Done, Failure>> + Send;

    /// The object is on its way out.
    fn clean_up(&self, _key: &ObjectKey) {}
}

/// The parts that every status here has.
pub trait Status: Clone + Default + Serialize + Send + Sync + 'static {
    fn conditions(&mut self) -> &mut Vec<Condition>;
    fn observed_generation(&mut self) -> &mut i64;
    fn last_handled_reconcile_at(&mut self) -> &mut Option<String>;
}

macro_rules! status {
    ($($status:ty),+) => {$(
        impl Status for $status {
            fn conditions(&mut self) -> &mut Vec<Condition> {
                &mut self.conditions
            }

            fn observed_generation(&mut self) -> &mut i64 {
                &mut self.observed_generation
            }

            fn last_handled_reconcile_at(&mut self) -> &mut Option<String> {
                &mut self.last_handled_reconcile_at
            }
        }
    )+};
}

status!(
    flux_api::image::ImageRepositoryStatus,
    flux_api::image::ImagePolicyStatus,
    flux_api::image::ImageUpdateAutomationStatus
);

/// What a good run tells.
pub struct Done {
    /// The message of Ready, and of the event when that changed.
    pub message: String,
    /// Something happened that is told in any case.
    pub news: Option<String>,
    /// For those who look closely, when nothing else is told.
    pub trace: String,
    pub next: Next,
}

/// Whether trying again can help, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Backoff,
    After(Duration),
    /// Only a change of the object can help.
    Stalled,
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
    pub retry: Retry,
}

impl Failure {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry: Retry::Backoff }
    }

    pub fn stalled(reason: &'static str, message: impl Into<String>) -> Self {
        Self { retry: Retry::Stalled, ..Self::new(reason, message) }
    }

    pub fn after(self, wait: Duration) -> Self {
        Self { retry: Retry::After(wait), ..self }
    }
}

/// One run for one object.
pub struct Run<'a, K: ImageKind> {
    pub object: &'a K::Object,
    pub raw: &'a DynamicObject,
    pub worker: &'a Worker,
    /// The status as it will be written.
    pub status: K::Status,
    written: K::Status,
    kind: &'a K,
    started: Instant,
}

impl<K: ImageKind> Run<'_, K> {
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(self.raw)
    }

    pub fn request(&self) -> Option<&str> {
        self.raw.annotations().get(RECONCILE_REQUEST).map(String::as_str)
    }

    pub fn conditions(&mut self) -> Conditions<'_> {
        Conditions { generation: self.object.generation(), list: self.status.conditions() }
    }

    /// Says what the run is at; shown once the run has lasted a while. Ready is left as it is unless `drift`.
    pub async fn progress(&mut self, message: &str, drift: bool) {
        progressing(&mut self.conditions(), message, drift);
        if self.started.elapsed() > WORTH_TELLING {
            self.save().await;
        }
    }

    /// Writes what is known so far.
    pub async fn save(&mut self) {
        match self.write().await {
            Ok(()) => self.written = self.status.clone(),
            Err(error) => tracing::warn!(%error, "progress could not be written"),
        }
    }

    pub fn tell(&self, severity: Severity, reason: &str, message: String) {
        let happening = Happening { severity, reason: reason.to_owned(), message, metadata: BTreeMap::new() };
        self.kind.events().tell(K::Object::KIND, self.raw, happening);
    }

    async fn write(&self) -> Result<(), kube::Error> {
        let (client, key) = (self.kind.client(), self.key());
        status::write(client, K::Object::KIND, &key, K::MANAGER, &self.written, &self.status).await?;
        Ok(())
    }
}

/// The reconciler of a kind.
pub struct Images<K>(pub K);

impl<K: ImageKind> Reconcile for Images<K> {
    fn kind(&self) -> &'static flux_api::kinds::Kind {
        K::Object::KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            match decode::<K::Object>(&raw) {
                Ok(object) => self.turn(&raw, &object, &worker).await,
                Err(problem) => {
                    let message = format!("the object cannot be read: {problem}");
                    let happening = Happening {
                        severity: Severity::Error,
                        reason: "Failed".to_owned(),
                        message,
                        metadata: BTreeMap::new(),
                    };
                    self.0.events().tell(K::Object::KIND, &raw, happening);
                    Next::OnChange
                }
            }
        })
    }
}

impl<K: ImageKind> Images<K> {
    async fn turn(&self, raw: &Arc<DynamicObject>, object: &K::Object, worker: &Worker) -> Next {
        let (client, kind) = (self.0.client(), K::Object::KIND);
        if object.is_deleting() {
            self.0.clean_up(&ObjectKey::of(raw));
            return match status::remove_finalizer(client, kind, raw, K::MANAGER, FINALIZER).await {
                Ok(()) => Next::OnChange,
                Err(_) => Next::Backoff,
            };
        }
        match status::with_finalizer(client, kind, raw.clone(), K::MANAGER, FINALIZER).await {
            Ok(Some(_)) => {}
            Ok(None) => return Next::OnChange,
            Err(error) => {
                tracing::warn!(%error, "the finalizer could not be set");
                return Next::Backoff;
            }
        }
        let before = K::status(object).cloned().unwrap_or_default();
        let (kind, started) = (&self.0, Instant::now());
        let mut run = Run { object, raw, worker, status: before.clone(), written: before, kind, started };
        if object.suspended() {
            tracing::info!("reconciliation is suspended for this object");
            if K::HEARS_WHILE_SUSPENDED {
                note_request(&mut run);
            }
            return Next::OnChange.if_told(run.write().await);
        }
        let next = self.work(&mut run).await;
        next.if_told(run.write().await)
    }

    async fn work(&self, run: &mut Run<'_, K>) -> Next {
        let generation = run.object.generation();
        let was_ready = condition::is_ready(run.object.conditions());
        let was =
            condition::find(run.object.conditions(), condition::READY).map(|ready| ready.message.clone());
        let observed = *run.status.observed_generation();
        progressing(&mut run.conditions(), "reconciliation in progress", false);
        if generation != observed {
            let message = format!("processing object: new generation {observed} -> {generation}");
            progressing(&mut run.conditions(), &message, false);
        }
        let result = self.0.work(run).await;
        note_request(run);
        match result {
            Ok(done) => {
                let mut conditions = run.conditions();
                conditions.delete(condition::RECONCILING);
                conditions.delete(condition::STALLED);
                conditions.set(condition::READY, ConditionStatus::True, "Succeeded", done.message.clone());
                *run.status.observed_generation() = generation;
                let changed = was.as_deref() != Some(done.message.as_str());
                match done.news {
                    Some(news) => run.tell(Severity::Info, "Succeeded", news),
                    None if !was_ready || changed => run.tell(Severity::Info, "Succeeded", done.message),
                    None => run.tell(Severity::Trace, "Succeeded", done.trace),
                }
                done.next
            }
            Err(failure) => fail(run, &failure),
        }
    }
}

fn note_request<K: ImageKind>(run: &mut Run<'_, K>) {
    if let Some(request) = run.request().map(str::to_owned) {
        *run.status.last_handled_reconcile_at() = Some(request);
    }
}

fn fail<K: ImageKind>(run: &mut Run<'_, K>, failure: &Failure) -> Next {
    let generation = run.object.generation();
    let (reason, message) = (failure.reason, failure.message.clone());
    let mut conditions = run.conditions();
    conditions.set(condition::READY, ConditionStatus::False, reason, message.clone());
    let next = match failure.retry {
        Retry::Stalled => {
            conditions.set(condition::STALLED, ConditionStatus::True, reason, message.clone());
            *run.status.observed_generation() = generation;
            Next::OnChange
        }
        Retry::Backoff | Retry::After(_) => {
            conditions.delete(condition::STALLED);
            let at = condition::find(conditions.list, condition::RECONCILING);
            let at = at.map(|reconciling| reconciling.message.clone()).unwrap_or_default();
            conditions.set(condition::RECONCILING, ConditionStatus::True, "ProgressingWithRetry", at);
            match failure.retry {
                Retry::After(wait) => Next::RetryAfter(wait),
                Retry::Backoff | Retry::Stalled => Next::Backoff,
            }
        }
    };
    run.tell(Severity::Error, reason, message);
    next
}

/// Reconciling, and Ready only where it says nothing yet or no longer holds.
fn progressing(conditions: &mut Conditions<'_>, message: &str, drift: bool) {
    conditions.set(condition::RECONCILING, ConditionStatus::True, "Progressing", message);
    let unknown = condition::find(conditions.list, condition::READY)
        .is_none_or(|ready| ready.status == ConditionStatus::Unknown);
    if drift || unknown {
        conditions.set(condition::READY, ConditionStatus::Unknown, "Progressing", message);
    }
}
