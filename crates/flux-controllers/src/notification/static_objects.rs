//! Providers and Alerts say what they want and have no status. All that is done to them is to their finalizers: a Provider
//! has one so that nothing is left of it, an Alert of older versions loses its own.

use std::sync::Arc;

use flux_api::kinds::{self, Kind};
use flux_api::names;
use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::DynamicObject;

use super::{Context, Severity};
use crate::reconcile::metrics::NOTIFICATIONS;
use crate::reconcile::{Next, ObjectKey, Reconcile, Worker, status};

pub const MANAGER: &str = "notification-controller";

pub struct Providers(pub Arc<Context>);

pub struct Alerts(pub Arc<Context>);

impl Reconcile for Providers {
    fn kind(&self) -> &'static Kind {
        &kinds::PROVIDER
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, _: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let client = &self.0.client;
            let written = if raw.metadata.deletion_timestamp.is_some() {
                self.0.dispatcher.forget(&ObjectKey::of(&raw));
                status::remove_finalizer(client, &kinds::PROVIDER, &raw, MANAGER, names::FINALIZER).await
            } else {
                let raw = raw.clone();
                status::with_finalizer(client, &kinds::PROVIDER, raw, MANAGER, names::FINALIZER)
                    .await
                    .map(drop)
            };
            Next::OnChange.if_told(written)
        })
    }

    fn forget(&self, key: &ObjectKey) {
        self.0.dispatcher.forget(key);
        for result in ["sent", "failed", "dropped"] {
            self.0.metrics.forget(&NOTIFICATIONS, &[&key.name, &key.namespace, result]);
        }
    }
}

impl Reconcile for Alerts {
    fn kind(&self) -> &'static Kind {
        &kinds::ALERT
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, _: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let suspended =
                raw.data.pointer("/spec/suspend").and_then(serde_json::Value::as_bool) == Some(true);
            if !has_finalizer(&raw) || (suspended && raw.metadata.deletion_timestamp.is_none()) {
                return Next::OnChange;
            }
            let client = &self.0.client;
            let written =
                status::remove_finalizer(client, &kinds::ALERT, &raw, MANAGER, names::FINALIZER).await;
            if written.is_ok() {
                let message = "removed finalizer from Alert to migrate to static Alert".to_owned();
                self.0.tell(&kinds::ALERT, &raw, Severity::Info, "Migration", message);
            }
            Next::OnChange.if_told(written)
        })
    }

    fn forget(&self, key: &ObjectKey) {
        self.0.incidents.forget(key);
    }
}

fn has_finalizer(raw: &DynamicObject) -> bool {
    raw.finalizers().iter().any(|known| known == names::FINALIZER)
}
