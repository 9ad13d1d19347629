//! Waiting for something to become true, by watching instead of sleeping.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt};
use kube::api::Api;
use kube::core::Resource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Long enough for a busy two-core machine, short enough that a hanging test is noticed.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits until the object `name` exists and `condition` holds for it, and returns it.
///
/// `what` completes the sentence "`name` …" in the error, which also shows the object as last seen.
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    limit: Duration,
    what: &str,
    condition: impl Fn(&K) -> bool,
) -> Result<K>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let mut last = None;
    let fields = format!("metadata.name={name}");
    let seen = watch(api, &fields, limit, |objects| {
        last = objects.values().next().cloned();
        last.as_ref().is_some_and(&condition)
    });
    if seen.await? {
        return last.context("the condition held for an object");
    }
    bail!("after {limit:?} it is not true that {name} {what}; last seen: {}", describe(last.as_ref()));
}

/// Waits until the object `name` is gone.
pub async fn until_gone<K>(api: &Api<K>, name: &str, limit: Duration) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let mut last = None;
    let fields = format!("metadata.name={name}");
    let seen = watch(api, &fields, limit, |objects| {
        last = objects.values().next().cloned();
        last.is_none()
    });
    if seen.await? {
        return Ok(());
    }
    bail!("after {limit:?} {name} is still there: {}", describe(last.as_ref()));
}

/// Waits until `condition` holds for all objects of the API together.
pub async fn until_all<K>(
    api: &Api<K>,
    limit: Duration,
    what: &str,
    condition: impl Fn(&[&K]) -> bool,
) -> Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let mut last = Vec::new();
    let seen = watch(api, "", limit, |objects| {
        last = objects.values().cloned().collect();
        condition(&objects.values().collect::<Vec<_>>())
    });
    if seen.await? {
        return Ok(last);
    }
    let names: Vec<String> =
        last.iter().map(|object| object.meta().name.clone().unwrap_or_default()).collect();
    bail!("after {limit:?} it is not true that {what}; there are: {names:?}");
}

/// Waits for a condition over something that is not an API object; `changed` wakes it.
///
/// Used by the recording servers, which know when they have a new request.
pub async fn until_changed<T>(
    limit: Duration,
    what: &str,
    changed: &tokio::sync::Notify,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T> {
    let search = async {
        loop {
            // Registered before looking: a change in between is not missed.
            let change = changed.notified();
            if let Some(found) = look() {
                return found;
            }
            change.await;
        }
    };
    tokio::time::timeout(limit, search)
        .await
        .with_context(|| format!("after {limit:?} it is not true that {what}"))
}

/// Feeds the present set of objects to `done` after each change, until it says yes (`true`) or time is up (`false`).
async fn watch<K>(
    api: &Api<K>,
    fields: &str,
    limit: Duration,
    done: impl FnMut(&BTreeMap<Key, K>) -> bool,
) -> Result<bool>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = if fields.is_empty() {
        watcher::Config::default()
    } else {
        watcher::Config::default().fields(fields)
    };
    let events = watcher::watcher(api.clone(), config).default_backoff();
    match tokio::time::timeout(limit, follow(events, done)).await {
        Ok(result) => result.map(|()| true),
        Err(_) => Ok(false),
    }
}

async fn follow<K: Resource>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    mut done: impl FnMut(&BTreeMap<Key, K>) -> bool,
) -> Result<()> {
    let mut events = std::pin::pin!(events);
    let mut objects = BTreeMap::new();
    let mut complete = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                objects.clear();
                complete = false;
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                objects.insert(key(&object), object);
            }
            Ok(Event::Delete(object)) => {
                objects.remove(&key(&object));
            }
            Ok(Event::InitDone) => complete = true,
            // The watcher tries again by itself; a server that is being restarted is normal here,
            // but a request that the server refuses will be refused again.
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))
                if status.code == 403 || status.code == 404 =>
            {
                bail!("{}", status.message);
            }
            Err(_) => {}
        }
        if complete && done(&objects) {
            return Ok(());
        }
    }
    bail!("the watch ended")
}

/// Namespace and name.
type Key = (Option<String>, Option<String>);

fn key<K: Resource>(object: &K) -> Key {
    let metadata = object.meta();
    (metadata.namespace.clone(), metadata.name.clone())
}

fn describe<K: Serialize>(object: Option<&K>) -> String {
    let Some(object) = object else {
        return "nothing".to_owned();
    };
    let Ok(mut value) = serde_json::to_value(object) else {
        return "an object that cannot be shown".to_owned();
    };
    if let Some(fields) = value.as_object_mut() {
        // A Secret's content does not belong into a test log.
        fields.remove("data");
        fields.remove("stringData");
        if let Some(metadata) = fields.get_mut("metadata").and_then(|m| m.as_object_mut()) {
            metadata.remove("managedFields");
        }
    }
    serde_json::to_string_pretty(&value).unwrap_or_default()
}
