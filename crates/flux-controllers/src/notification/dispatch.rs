//! Deliveries wait for their Provider, each Provider in a queue of its own: a dead endpoint delays nobody else, and
//! whoever reports an event never waits for any.
//!
//! A queue is bounded in number and bytes. When it is full the oldest delivery is dropped and counted
//! (`gotk_notifications_total{result="dropped"}`): what is new says more about the cluster than what is old.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use flux_api::kinds;
use flux_api::notification::Alert;
use futures::FutureExt;
use tokio::sync::Notify;

use super::event::Event;
use super::incident::Incident;
use super::known::Object;
use super::send::{Failure, execute};
use super::{Context, Severity};
use crate::reconcile::ObjectKey;
use crate::reconcile::metrics::NOTIFICATIONS;

/// How many deliveries of a Provider are under way at once.
const AT_ONCE: usize = 16;
const WAITING: usize = 4096;
const WAITING_BYTES: usize = 32 << 20;

/// An event for an Alert's Provider, with the metadata of both.
pub struct Delivery {
    pub alert: Arc<Object<Alert>>,
    pub event: Event,
    /// In incident mode, what the event is about.
    pub incident: Option<Incident>,
}

impl Delivery {
    fn size(&self) -> usize {
        let metadata: usize = self.event.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        512 + self.event.message.len() + metadata
    }
}

#[derive(Default)]
pub struct Dispatcher {
    lanes: Mutex<HashMap<ObjectKey, Lane>>,
    emptied: Notify,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Delivery>,
    bytes: usize,
    running: usize,
    /// Whether the last delivery failed; told once.
    is_dead: bool,
}

impl Lane {
    /// Adds one; returns how many had to go for it.
    fn push(&mut self, delivery: Delivery) -> usize {
        self.bytes += delivery.size();
        self.waiting.push_back(delivery);
        let mut dropped = 0;
        while self.waiting.len() > WAITING || (self.bytes > WAITING_BYTES && self.waiting.len() > 1) {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.waiting.pop_front()?;
        self.bytes -= delivery.size();
        Some(delivery)
    }
}

impl Dispatcher {
    pub fn add(self: &Arc<Self>, ctx: &Arc<Context>, provider: ObjectKey, delivery: Delivery) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(provider.clone()).or_default();
        let dropped = lane.push(delivery);
        if dropped > 0 {
            ctx.metrics.add(
                &NOTIFICATIONS,
                &[&provider.name, &provider.namespace, "dropped"],
                dropped as f64,
            );
        }
        if lane.running < AT_ONCE {
            lane.running += 1;
            tokio::spawn(work(ctx.clone(), provider));
        }
    }

    fn take(&self, provider: &ObjectKey) -> Option<Delivery> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.get_mut(provider)?;
        if let Some(delivery) = lane.pop() {
            return Some(delivery);
        }
        lane.running -= 1;
        self.emptied.notify_waiters();
        None
    }

    /// A Provider that is gone leaves nothing behind.
    pub fn forget(&self, provider: &ObjectKey) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|key, lane| key != provider || lane.running > 0);
        if let Some(lane) = lanes.get_mut(provider) {
            lane.waiting.clear();
            lane.bytes = 0;
        }
    }

    /// Waits until nothing waits and nothing is under way.
    pub async fn idle(&self) {
        loop {
            let emptied = self.emptied.notified();
            let busy = {
                let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
                lanes.values().any(|lane| lane.running > 0)
            };
            if !busy {
                return;
            }
            emptied.await;
        }
    }

    /// Notes how a delivery went; whether that is another end than the last one's.
    fn note(&self, provider: &ObjectKey, is_dead: bool) -> bool {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get_mut(provider).is_some_and(|lane| std::mem::replace(&mut lane.is_dead, is_dead) != is_dead)
    }
}

/// Delivers what waits for a Provider until nothing does.
async fn work(ctx: Arc<Context>, provider: ObjectKey) {
    while let Some(delivery) = ctx.dispatcher.take(&provider) {
        let delivered = AssertUnwindSafe(deliver(&ctx, &provider, &delivery)).catch_unwind().await;
        let result = match delivered {
            Ok(Ok(())) => "sent",
            Ok(Err(failure)) => {
                report(&ctx, &provider, &delivery, &failure);
                "failed"
            }
            Err(_) => {
                tracing::error!(provider = %provider, "a delivery panicked");
                "failed"
            }
        };
        ctx.metrics.add(&NOTIFICATIONS, &[&provider.name, &provider.namespace, result], 1.0);
    }
}

async fn deliver(ctx: &Arc<Context>, key: &ObjectKey, delivery: &Delivery) -> Result<(), Failure> {
    // It may have been suspended or deleted while this waited.
    let Some(provider) = ctx.providers.get(key).filter(|provider| !provider.object.spec.suspend) else {
        return Ok(());
    };
    if !ctx.options.deliver {
        tracing::info!(provider = %key, event = delivery.event.object(), "a notification that is not sent from here");
        return Ok(());
    }
    execute(ctx, &provider.object, delivery).await?;
    if ctx.dispatcher.note(key, false) {
        let message = "notifications are delivered again".to_owned();
        ctx.tell(&kinds::PROVIDER, &provider.raw, Severity::Info, "NotificationDispatchRecovered", message);
    }
    Ok(())
}

/// On the Alert for each event, as upstream; on the Provider once, until one arrives again.
fn report(ctx: &Context, key: &ObjectKey, delivery: &Delivery, failure: &Failure) {
    let object = delivery.event.object();
    let message = match failure {
        Failure::Setup(problem) => {
            format!(
                "failed to dispatch notification for {object}: failed to initialize notifier for provider '{}': {problem}",
                key.name
            )
        }
        Failure::Send(problem) => format!("failed to send notification for {object}: {problem}"),
    };
    ctx.tell_alert(&delivery.alert, "NotificationDispatchFailed", message.clone());
    if ctx.dispatcher.note(key, true)
        && let Some(provider) = ctx.providers.get(key)
    {
        ctx.tell(&kinds::PROVIDER, &provider.raw, Severity::Error, "NotificationDispatchFailed", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;

    fn delivery(message: String) -> Delivery {
        let alert: Alert = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "a", "namespace": "n" }, "spec": { "providerRef": { "name": "p" }, "eventSources": [] },
        }))
        .unwrap();
        let raw = serde_json::from_value(serde_json::json!({ "metadata": { "name": "a" } })).unwrap();
        let alert = Arc::new(Object { raw: Arc::new(raw), object: alert });
        Delivery { alert, event: Event { message, ..example() }, incident: None }
    }

    #[test]
    fn a_full_queue_drops_the_oldest_and_counts_it() {
        let mut lane = Lane::default();
        let dropped: usize = (0..WAITING + 5).map(|index| lane.push(delivery(index.to_string()))).sum();
        assert_eq!((dropped, lane.waiting.len()), (5, WAITING));
        assert_eq!(lane.pop().unwrap().event.message, "5");
    }

    #[test]
    fn large_events_do_not_add_up() {
        let mut lane = Lane::default();
        let dropped: usize = (0..100).map(|_| lane.push(delivery("x".repeat(3 << 20)))).sum();
        assert!(lane.bytes <= WAITING_BYTES && dropped == 100 - lane.waiting.len());
        while lane.pop().is_some() {}
        assert_eq!(lane.bytes, 0);
        assert_eq!(lane.push(delivery("x".repeat(64 << 20))), 0, "one that is too large alone is still sent");
    }
}
