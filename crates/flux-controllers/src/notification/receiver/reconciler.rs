//! Receiver: gives a webhook its path, which is made from the token, and says whether it can be called.

use std::sync::Arc;

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::{self, Kind};
use flux_api::names;
use flux_api::notification::{Receiver, ReceiverStatus};
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::{claims, filter, webhook_path};
use crate::notification::Context;
use crate::notification::static_objects::MANAGER;
use crate::reconcile::cache::Watched;
use crate::reconcile::{
    Cache, Cause, Conditions, Next, ObjectKey, Queue, Reconcile, Severity, Worker, decode, status,
};
use crate::source::access::Secrets;

const KIND: &Kind = &kinds::RECEIVER;
const TERMINAL: &str = "Reconciliation failed terminally due to configuration error";

pub struct Receivers(pub Arc<Context>);

/// Why a Receiver cannot be called.
enum Failure {
    /// Only a change of the spec can help.
    Terminal(&'static str, String),
    Token(String),
}

impl Reconcile for Receivers {
    fn kind(&self) -> &'static Kind {
        KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, _: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let receiver: Receiver = match decode(&raw) {
                Ok(receiver) => receiver,
                Err(problem) => {
                    let message = format!("the object cannot be read: {problem}");
                    self.0.tell(KIND, &raw, Severity::Error, "Failed", message);
                    return Next::OnChange;
                }
            };
            let client = &self.0.client;
            if receiver.is_deleting() {
                let removed = status::remove_finalizer(client, KIND, &raw, MANAGER, names::FINALIZER).await;
                return Next::OnChange.if_told(removed);
            }
            match status::with_finalizer(client, KIND, raw, MANAGER, names::FINALIZER).await {
                Ok(Some(raw)) => self.work(&raw, &receiver).await,
                Ok(None) => Next::OnChange,
                Err(error) => Next::Backoff.if_told(Err(error)),
            }
        })
    }
}

impl Receivers {
    async fn work(&self, raw: &DynamicObject, receiver: &Receiver) -> Next {
        let before = receiver.status.clone().unwrap_or_default();
        let mut after = before.clone();
        if let Some(request) = raw.annotations().get(names::RECONCILE_REQUEST) {
            after.last_handled_reconcile_at = Some(request.clone());
        }
        if receiver.suspended() {
            return Next::OnChange.if_told(self.write(raw, &before, &after).await);
        }
        let path = match check(receiver) {
            Ok(()) => self.path(receiver).await,
            Err(failure) => Err(failure),
        };
        let next = self.settle(raw, receiver, &mut after, path);
        next.if_told(self.write(raw, &before, &after).await)
    }

    async fn path(&self, receiver: &Receiver) -> Result<String, Failure> {
        let (name, namespace) = (receiver.name(), Object::namespace(receiver));
        let Some(reference) = &receiver.spec.secret_ref else {
            return Ok(webhook_path(b"", name, namespace));
        };
        let id = format!("{namespace}/{}", reference.name);
        let secret = Secrets { client: &self.0.client, namespace }.get(&reference.name).await;
        let secret = secret.map_err(|error| {
            Failure::Token(format!("unable to read token from secret '{id}' error: {error}"))
        })?;
        match secret.bytes("token") {
            Some(token) => Ok(webhook_path(token, name, namespace)),
            None => Err(Failure::Token(format!("invalid '{id}' secret data: required fields 'token'"))),
        }
    }

    fn settle(
        &self,
        raw: &DynamicObject,
        receiver: &Receiver,
        after: &mut ReceiverStatus,
        path: Result<String, Failure>,
    ) -> Next {
        let generation = receiver.generation();
        let mut conditions = Conditions { list: &mut after.conditions, generation };
        match path {
            Ok(path) => {
                let message = format!("Receiver initialized for path: {path}");
                conditions.set(condition::READY, ConditionStatus::True, "Succeeded", message);
                conditions.delete(condition::RECONCILING);
                conditions.delete(condition::STALLED);
                after.webhook_path = Some(path);
                after.observed_generation = generation;
                let interval = receiver.spec.interval();
                let message = format!("Reconciliation finished, next run in {interval}");
                self.0.tell(KIND, raw, Severity::Info, "Succeeded", message);
                Next::After(interval.to_std())
            }
            Err(Failure::Token(message)) => {
                conditions.set(condition::READY, ConditionStatus::False, "TokenNotFound", message.clone());
                let progress = "Reconciliation in progress";
                conditions.set(
                    condition::RECONCILING,
                    ConditionStatus::True,
                    "ProgressingWithRetry",
                    progress,
                );
                conditions.delete(condition::STALLED);
                after.webhook_path = None;
                self.0.tell(KIND, raw, Severity::Error, "Failed", message);
                Next::Backoff
            }
            Err(Failure::Terminal(reason, problem)) => {
                let message = format!("{TERMINAL}: {problem}");
                conditions.set(condition::READY, ConditionStatus::False, reason, message.clone());
                conditions.set(condition::STALLED, ConditionStatus::True, reason, message.clone());
                conditions.delete(condition::RECONCILING);
                after.observed_generation = generation;
                self.0.tell(KIND, raw, Severity::Error, reason, message);
                Next::OnChange
            }
        }
    }

    async fn write(
        &self,
        raw: &DynamicObject,
        before: &ReceiverStatus,
        after: &ReceiverStatus,
    ) -> Result<(), kube::Error> {
        status::write(&self.0.client, KIND, &ObjectKey::of(raw), MANAGER, before, after).await.map(drop)
    }
}

/// What can be said without asking anybody.
fn check(receiver: &Receiver) -> Result<(), Failure> {
    let expression = |problem| Failure::Terminal("InvalidCELExpression", problem);
    filter::validate(&receiver.spec).map_err(expression)?;
    claims::validate_spec(&receiver.spec)
        .map_err(|problem| Failure::Terminal("ValidationFailed", problem))?;
    claims::compile_all(&receiver.spec).map_err(expression)
}

/// Has a Receiver look again when a Secret it names changes, of those that `selector` picks.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>, selector: &str) {
    let (receivers, queue) = (Arc::downgrade(cache), queue.clone());
    cache.watch(&Watched::secrets(selector)).listen(move |change| {
        let Some(receivers) = receivers.upgrade() else { return };
        for receiver in receivers.list(KIND) {
            let named = receiver.data.pointer("/spec/secretRef/name").and_then(Value::as_str);
            let key = ObjectKey::of(&receiver);
            if named == Some(&change.key.name) && key.namespace == change.key.namespace {
                queue.add(key, Cause::Change);
            }
        }
    });
}
