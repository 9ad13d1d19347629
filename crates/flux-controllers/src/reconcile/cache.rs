//! One copy of every object that any controller here looks at, kept fresh by one watch per kind.
//!
//! Objects are kept as the server sends them and decoded one by one by whoever reads them, so a malformed
//! one is its own problem and not that of its kind.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use flux_api::kinds::Kind;
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ObjectKey;

/// What a controller hears about an object.
pub struct Change {
    pub key: ObjectKey,
    pub old: Option<Arc<DynamicObject>>,
    pub new: Option<Arc<DynamicObject>>,
}

type Listener = Box<dyn Fn(&Change) + Send + Sync>;

pub struct Cache {
    client: Client,
    namespace: Option<String>,
    kinds: RwLock<HashMap<&'static str, Arc<KindCache>>>,
    watches: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct KindCache {
    objects: RwLock<BTreeMap<ObjectKey, Arc<DynamicObject>>>,
    listeners: RwLock<Vec<Listener>>,
    synced: watch::Sender<bool>,
}

impl Cache {
    /// Watches in `namespace`, or everywhere.
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace, kinds: RwLock::default(), watches: Mutex::default() }
    }

    /// Calls `listener` for every change of `kind` from now on. Listeners only put keys into queues.
    pub fn listen(&self, kind: &'static Kind, listener: impl Fn(&Change) + Send + Sync + 'static) {
        let cache = self.kind(kind);
        cache.listeners.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    pub fn get(&self, kind: &'static Kind, key: &ObjectKey) -> Option<Arc<DynamicObject>> {
        self.kind(kind).objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub fn list(&self, kind: &'static Kind) -> Vec<Arc<DynamicObject>> {
        self.kind(kind).objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Starts the watches of all kinds that somebody listens to or reads, once.
    pub fn start(&self) {
        let kinds: Vec<_> = self
            .kinds
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(name, cache)| (*name, cache.clone()))
            .collect();
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if !watches.is_empty() {
            return;
        }
        for (name, cache) in kinds {
            let Some(kind) = flux_api::kinds::by_kind(name) else { continue };
            watches.push(tokio::spawn(keep_fresh(self.api(kind), name, cache)));
        }
    }

    /// Waits until every watched kind was listed once.
    pub async fn synced(&self) {
        let kinds: Vec<_> =
            self.kinds.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for cache in kinds {
            // The sender lives as long as the cache, so this only ends when the list arrived.
            let _ = cache.synced.subscribe().wait_for(|synced| *synced).await;
        }
    }

    pub fn stop(&self) {
        for watch in self.watches.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            watch.abort();
        }
    }

    fn api(&self, kind: &'static Kind) -> Api<DynamicObject> {
        let resource = resource(kind);
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    fn kind(&self, kind: &'static Kind) -> Arc<KindCache> {
        if let Some(cache) = self.kinds.read().unwrap_or_else(PoisonError::into_inner).get(kind.kind) {
            return cache.clone();
        }
        self.kinds.write().unwrap_or_else(PoisonError::into_inner).entry(kind.kind).or_default().clone()
    }
}

pub fn resource(kind: &Kind) -> ApiResource {
    ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: format!("{}/{}", kind.group, kind.version),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

async fn keep_fresh(api: Api<DynamicObject>, kind: &'static str, cache: Arc<KindCache>) {
    let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
    let mut relist: Option<BTreeMap<ObjectKey, Arc<DynamicObject>>> = None;
    let mut delay = std::time::Duration::from_millis(500);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => relist = Some(BTreeMap::new()),
            Ok(Event::InitApply(object)) => {
                if let Some(relist) = &mut relist {
                    relist.insert(ObjectKey::of(&object), Arc::new(object));
                }
            }
            Ok(Event::InitDone) => {
                cache.replace(relist.take().unwrap_or_default());
                cache.synced.send_replace(true);
                delay = std::time::Duration::from_millis(500);
            }
            Ok(Event::Apply(object)) => cache.put(object),
            Ok(Event::Delete(object)) => cache.remove(&ObjectKey::of(&object)),
            Err(error) => {
                tracing::warn!(kind, %error, "watch failed, trying again");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(std::time::Duration::from_secs(30));
            }
        }
    }
}

impl KindCache {
    fn put(&self, object: DynamicObject) {
        let key = ObjectKey::of(&object);
        let object = Arc::new(object);
        let old =
            self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), object.clone());
        if old.as_ref().is_some_and(|old| old.resource_version() == object.resource_version()) {
            return;
        }
        self.tell(&Change { key, old, new: Some(object) });
    }

    fn remove(&self, key: &ObjectKey) {
        let old = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        if old.is_some() {
            self.tell(&Change { key: key.clone(), old, new: None });
        }
    }

    /// After a list: what is missing from it was deleted while nobody was looking.
    fn replace(&self, listed: BTreeMap<ObjectKey, Arc<DynamicObject>>) {
        let old = std::mem::replace(
            &mut *self.objects.write().unwrap_or_else(PoisonError::into_inner),
            listed.clone(),
        );
        for (key, object) in &listed {
            let before = old.get(key).cloned();
            if before.as_ref().is_some_and(|before| before.resource_version() == object.resource_version()) {
                continue;
            }
            self.tell(&Change { key: key.clone(), old: before, new: Some(object.clone()) });
        }
        for (key, object) in old {
            if !listed.contains_key(&key) {
                self.tell(&Change { key, old: Some(object), new: None });
            }
        }
    }

    fn tell(&self, change: &Change) {
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(change);
        }
    }
}
