//! One copy of every object that any controller here looks at, kept fresh by one watch for each kind.
//!
//! A kind of Flux is watched whole and unfiltered, since dependents need those of other shards too. Anything
//! else (ConfigMaps, Secrets, what a Kustomization applied) is watched by its metadata alone and only where a
//! selector picks it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use flux_api::kinds::Kind;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use tokio::task::JoinHandle;

use super::ObjectKey;
pub use super::store::{Change, Index, Store};

const LEAST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How much of an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Depth {
    Whole,
    /// Names, labels, annotations, generation and resourceVersion; no contents.
    Metadata,
}

/// What a watch is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watched {
    pub resource: ApiResource,
    pub namespaced: bool,
    pub selector: Option<String>,
    pub depth: Depth,
}

impl Watched {
    /// A kind of Flux, whole and unfiltered.
    pub fn kind(kind: &Kind) -> Self {
        Self { resource: resource(kind), namespaced: true, selector: None, depth: Depth::Whole }
    }

    /// The metadata of any kind, of the objects that `selector` picks.
    pub fn metadata(resource: ApiResource, namespaced: bool, selector: &str) -> Self {
        let selector = (!selector.is_empty()).then(|| selector.to_owned());
        Self { resource, namespaced, selector, depth: Depth::Metadata }
    }

    /// The metadata of ConfigMaps with these labels.
    pub fn config_maps(selector: &str) -> Self {
        Self::metadata(core_resource("ConfigMap", "configmaps"), true, selector)
    }

    /// The metadata of Secrets with these labels; their contents never enter the cache.
    pub fn secrets(selector: &str) -> Self {
        Self::metadata(core_resource("Secret", "secrets"), true, selector)
    }
}

pub struct Cache {
    client: Client,
    namespace: Option<String>,
    stores: RwLock<HashMap<Watched, Arc<Store>>>,
    /// Selectors for kinds of which only a shard is wanted.
    shards: RwLock<HashMap<&'static str, String>>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    started: bool,
    watches: HashMap<Watched, JoinHandle<()>>,
}

impl Cache {
    /// Watches in `namespace`, or everywhere.
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        Self {
            client,
            namespace,
            stores: RwLock::default(),
            shards: RwLock::default(),
            running: Mutex::default(),
        }
    }

    /// The only namespace that is watched, where it is only one.
    pub fn namespace(&self) -> Option<String> {
        self.namespace.clone()
    }

    /// Has the server filter a kind of which nobody here needs the rest. Before anything of it is watched.
    pub fn only(&self, kind: &'static Kind, selector: &str) {
        self.shards.write().unwrap_or_else(PoisonError::into_inner).insert(kind.kind, selector.to_owned());
    }

    /// Calls `listener` for every change of `kind` from now on. Listeners only put keys into queues.
    pub fn listen(&self, kind: &'static Kind, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.kind(kind).listen(listener);
    }

    pub fn get(&self, kind: &'static Kind, key: &ObjectKey) -> Option<Arc<DynamicObject>> {
        self.kind(kind).get(key)
    }

    pub fn list(&self, kind: &'static Kind) -> Vec<Arc<DynamicObject>> {
        self.kind(kind).list()
    }

    /// Finds objects of `kind` by what they mention; see [`Store::index`].
    pub fn index(
        &self,
        kind: &'static Kind,
        terms: impl Fn(&DynamicObject) -> Vec<String> + Send + Sync + 'static,
    ) -> Arc<Index> {
        self.kind(kind).index(terms)
    }

    /// The objects of a watch, which starts with the others or, after those, at once.
    pub fn watch(&self, watched: &Watched) -> Arc<Store> {
        if let Some(store) = self.stores.read().unwrap_or_else(PoisonError::into_inner).get(watched) {
            return store.clone();
        }
        let store = self
            .stores
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(watched.clone())
            .or_default()
            .clone();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.started {
            self.spawn(&mut running, watched, &store);
        }
        store
    }

    /// Ends a watch that nobody needs any more.
    pub fn unwatch(&self, watched: &Watched) {
        self.stores.write().unwrap_or_else(PoisonError::into_inner).remove(watched);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = running.watches.remove(watched) {
            watch.abort();
        }
    }

    /// Starts the watches of all that somebody listens to or reads, once.
    pub fn start(&self) {
        let stores: Vec<_> = self
            .stores
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(watched, store)| (watched.clone(), store.clone()))
            .collect();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.started = true;
        for (watched, store) in stores {
            self.spawn(&mut running, &watched, &store);
        }
    }

    /// Waits until everything watched so far was listed once.
    pub async fn synced(&self) {
        let stores: Vec<_> =
            self.stores.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for store in stores {
            store.synced().await;
        }
    }

    pub fn stop(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.started = false;
        for (_, watch) in running.watches.drain() {
            watch.abort();
        }
    }

    fn kind(&self, kind: &'static Kind) -> Arc<Store> {
        let mut watched = Watched::kind(kind);
        watched.selector = self.shards.read().unwrap_or_else(PoisonError::into_inner).get(kind.kind).cloned();
        self.watch(&watched)
    }

    fn spawn(&self, running: &mut Running, watched: &Watched, store: &Arc<Store>) {
        if running.watches.contains_key(watched) {
            return;
        }
        let namespace = self.namespace.clone().filter(|_| watched.namespaced);
        let scope = Scope { client: self.client.clone(), namespace, resource: watched.resource.clone() };
        let watch = tokio::spawn(keep_fresh(scope, watched.clone(), store.clone()));
        running.watches.insert(watched.clone(), watch);
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

fn core_resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Where a watch looks.
struct Scope {
    client: Client,
    namespace: Option<String>,
    resource: ApiResource,
}

impl Scope {
    fn api<K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>>(
        &self,
    ) -> Api<K> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.resource),
            None => Api::all_with(self.client.clone(), &self.resource),
        }
    }
}

type Events = BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>>;

fn events(scope: &Scope, watched: &Watched, streaming: bool) -> Events {
    let mut config = watcher::Config { label_selector: watched.selector.clone(), ..Default::default() };
    if streaming {
        config = config.streaming_lists();
    }
    match watched.depth {
        Depth::Whole => watcher::watcher(scope.api::<DynamicObject>(), config).boxed(),
        Depth::Metadata => {
            let resource = watched.resource.clone();
            let whole = move |event| map(event, &|object| bare(object, &resource));
            watcher::watcher(scope.api::<Partial>(), config).map_ok(whole).boxed()
        }
    }
}

type Partial = kube::core::PartialObjectMeta<DynamicObject>;

fn map(event: Event<Partial>, with: &dyn Fn(Partial) -> DynamicObject) -> Event<DynamicObject> {
    match event {
        Event::Apply(object) => Event::Apply(with(object)),
        Event::Delete(object) => Event::Delete(with(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(with(object)),
        Event::InitDone => Event::InitDone,
    }
}

/// An object of which only the metadata is known.
fn bare(partial: Partial, resource: &ApiResource) -> DynamicObject {
    let mut object = DynamicObject::new("", resource);
    object.metadata = partial.metadata;
    object
}

async fn keep_fresh(scope: Scope, watched: Watched, store: Arc<Store>) {
    let kind = watched.resource.kind.as_str();
    let mut streaming = true;
    let mut events = events(&scope, &watched, streaming);
    let mut relist: Option<BTreeMap<ObjectKey, Arc<DynamicObject>>> = None;
    let mut delay = LEAST_WAIT;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => relist = Some(BTreeMap::new()),
            Ok(Event::InitApply(object)) => {
                if let Some(relist) = &mut relist {
                    relist.insert(ObjectKey::of(&object), slim(object));
                }
            }
            Ok(Event::InitDone) => {
                store.replace(relist.take().unwrap_or_default());
                store.set_synced();
                delay = LEAST_WAIT;
            }
            Ok(Event::Apply(object)) => store.put(slim(object)),
            Ok(Event::Delete(object)) => store.remove(&ObjectKey::of(&object)),
            Err(error) if streaming && refuses_streaming(&error) => {
                tracing::debug!(watched = kind, "the server has no streaming lists");
                streaming = false;
                events = self::events(&scope, &watched, streaming);
            }
            Err(error) => {
                if code(&error) == Some(404) {
                    // A kind that is not installed has no objects; it may be installed later.
                    store.replace(BTreeMap::new());
                    store.set_synced();
                }
                tracing::debug!(watched = kind, %error, "watch failed, trying again");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LONGEST_WAIT);
            }
        }
    }
}

fn slim(mut object: DynamicObject) -> Arc<DynamicObject> {
    object.metadata.managed_fields = None;
    Arc::new(object)
}

/// Servers before 1.32, and those where it is switched off, do not know `sendInitialEvents`.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(code(error), Some(400 | 422))
}

fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(answer))
        | watcher::Error::WatchStartFailed(kube::Error::Api(answer))
        | watcher::Error::WatchFailed(kube::Error::Api(answer)) => Some(answer.code),
        watcher::Error::WatchError(answer) => Some(answer.code),
        _ => None,
    }
}
