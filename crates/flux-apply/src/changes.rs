//! Word of changes to objects that somebody waits for, so that nobody has to ask again and again.
//!
//! One watch serves all who wait for objects of a kind; it ends when nobody has waited for a while. It says only *that*
//! an object changed: it runs with the rights of whoever runs the controllers, so whoever waits reads the object with
//! rights of its own. Where a watch cannot be had, [`Watching::is_live`] says so, and one has to ask after all.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use tokio::sync::{Notify, watch};

use crate::discovery::Mapper;
use crate::object::ObjectId;

/// A watch that nobody needs ends after this: long enough for one release to follow another.
const IDLE: Duration = Duration::from_secs(30);
/// The same for a watch of one object, which nobody else will ask for.
const IDLE_ALONE: Duration = Duration::from_secs(1);
/// How long a wait waits for its watch to begin before it begins to look.
const BEGINNING: Duration = Duration::from_secs(5);
/// Between two watches, in case a server ends them at once.
const BREATH: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Watches at once in one cluster; whoever comes later asks.
const MOST: usize = 100;

/// Which objects of a kind one watch is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Among {
    /// Those with a label, wherever they are: the label of a Flux object's own.
    Labelled(&'static str),
    /// The one object.
    Alone,
}

/// The watches of one cluster.
pub struct Changes {
    client: Client,
    mapper: Arc<Mapper>,
    feeds: Arc<Mutex<Feeds>>,
}

type Feeds = HashMap<(String, String, String, String), Arc<Feed>>;
type Place = (String, String);
/// Who waits for an object, and the number it is told by.
type Waiting = HashMap<Place, Vec<(Weak<Shared>, usize)>>;

/// One watch and those who wait for it.
struct Feed {
    waiting: Mutex<Waiting>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Beginning,
    Live,
    Failing,
}

struct Shared {
    changed: Mutex<BTreeSet<usize>>,
    bell: Notify,
}

/// Somebody who waits for some objects; dropping it ends the wait.
pub struct Watching {
    shared: Arc<Shared>,
    feeds: Vec<Arc<Feed>>,
    /// Whether there is a watch for each object.
    complete: bool,
}

impl Watching {
    /// The numbers of the objects that changed since the last word.
    pub async fn changed(&self) -> BTreeSet<usize> {
        loop {
            let rung = self.shared.bell.notified();
            let changed = std::mem::take(&mut *locked(&self.shared.changed));
            if !changed.is_empty() {
                return changed;
            }
            rung.await;
        }
    }

    /// Whether every change will be told. While that is not so, one has to ask.
    pub fn is_live(&self) -> bool {
        self.complete && self.feeds.iter().all(|feed| *feed.state.borrow() == State::Live)
    }
}

impl Changes {
    pub fn new(client: Client, mapper: Arc<Mapper>) -> Self {
        Self { client, mapper, feeds: Arc::default() }
    }

    /// Begins to wait for objects, each with a number to tell of it by. Whatever changes after this has returned is told,
    /// so the look that counts comes after it.
    pub async fn watch(&self, objects: &[(usize, ObjectId, Among)]) -> Watching {
        let shared = Arc::new(Shared { changed: Mutex::default(), bell: Notify::new() });
        let mut watching = Watching { shared: shared.clone(), feeds: Vec::new(), complete: true };
        for (number, id, among) in objects {
            let Ok((resource, namespaced)) = self.mapper.resource(id).await else {
                watching.complete = false;
                continue;
            };
            match self.join(&resource, namespaced, id, among, &shared, *number) {
                Some(feed) if watching.feeds.iter().any(|known| Arc::ptr_eq(known, &feed)) => {}
                Some(feed) => watching.feeds.push(feed),
                None => watching.complete = false,
            }
        }
        for feed in &watching.feeds {
            let mut state = feed.state.subscribe();
            let begun = state.wait_for(|state| *state != State::Beginning);
            // Whoever cannot wait any longer asks.
            let _ = tokio::time::timeout(BEGINNING, begun).await;
        }
        watching
    }

    fn join(
        &self,
        resource: &ApiResource,
        namespaced: bool,
        id: &ObjectId,
        among: &Among,
        shared: &Arc<Shared>,
        number: usize,
    ) -> Option<Arc<Feed>> {
        let narrowed = match among {
            Among::Labelled(label) => (*label).to_owned(),
            Among::Alone => format!("{}/{}", id.namespace, id.name),
        };
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone(), narrowed);
        let mut feeds = locked(&self.feeds);
        let place = (if namespaced { id.namespace.clone() } else { String::new() }, id.name.clone());
        if let Some(feed) = feeds.get(&key) {
            feed.add(place, shared, number);
            return Some(feed.clone());
        }
        if feeds.len() >= MOST {
            return None;
        }
        let (state, _) = watch::channel(State::Beginning);
        let feed = Arc::new(Feed { waiting: Mutex::default(), state });
        feed.add(place, shared, number);
        feeds.insert(key.clone(), feed.clone());
        let api: Api<DynamicObject> = match among {
            Among::Alone if namespaced => Api::namespaced_with(self.client.clone(), &id.namespace, resource),
            Among::Labelled(_) | Among::Alone => Api::all_with(self.client.clone(), resource),
        };
        let source = Source {
            api,
            labels: matches!(among, Among::Labelled(_)).then(|| key.3.clone()),
            fields: matches!(among, Among::Alone).then(|| format!("metadata.name={}", id.name)),
        };
        let idle = if *among == Among::Alone { IDLE_ALONE } else { IDLE };
        let (all, own) = (Arc::downgrade(&self.feeds), feed.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = source.tell(&own) => {}
                () = until_idle(&all, &key, &own, idle) => {}
            }
        });
        Some(feed)
    }
}

impl Feed {
    fn add(&self, place: Place, shared: &Arc<Shared>, number: usize) {
        locked(&self.waiting).entry(place).or_default().push((Arc::downgrade(shared), number));
    }

    fn ring(&self, place: &Place) {
        for (who, number) in locked(&self.waiting).get(place).into_iter().flatten() {
            wake(who, *number);
        }
    }

    /// Something may have been missed.
    fn ring_all(&self) {
        for (who, number) in locked(&self.waiting).values().flatten() {
            wake(who, *number);
        }
    }

    /// Whether anybody still waits.
    fn is_needed(&self) -> bool {
        let mut waiting = locked(&self.waiting);
        waiting.retain(|_, all| {
            all.retain(|(who, _)| who.strong_count() > 0);
            !all.is_empty()
        });
        !waiting.is_empty()
    }
}

fn wake(who: &Weak<Shared>, number: usize) {
    if let Some(shared) = who.upgrade() {
        locked(&shared.changed).insert(number);
        shared.bell.notify_one();
    }
}

/// Ends when nobody has waited for a whole pause; the watch is off the list by then.
async fn until_idle(
    all: &Weak<Mutex<Feeds>>,
    key: &(String, String, String, String),
    own: &Feed,
    pause: Duration,
) {
    let mut was_needed = true;
    loop {
        tokio::time::sleep(pause).await;
        let Some(all) = all.upgrade() else { return };
        let mut all = locked(&all);
        // Nobody can join meanwhile: that takes the list, too.
        let is_needed = own.is_needed();
        if !is_needed && !was_needed {
            all.remove(key);
            return;
        }
        was_needed = is_needed;
    }
}

/// Where word comes from.
struct Source {
    api: Api<DynamicObject>,
    labels: Option<String>,
    fields: Option<String>,
}

impl Source {
    /// Tells for ever.
    async fn tell(&self, feed: &Feed) {
        let mut pause = FIRST_PAUSE;
        let mut from: Option<String> = None;
        loop {
            let version = match from.take() {
                Some(version) => Ok(version),
                None => self.now().await,
            };
            let outcome = match version {
                Ok(version) => self.follow(feed, version).await,
                Err(error) => Err(error),
            };
            match outcome {
                // The server ends every watch now and then; the next one goes on from there.
                Ok(version) => {
                    pause = FIRST_PAUSE;
                    from = Some(version);
                    tokio::time::sleep(BREATH).await;
                }
                // Forbidden, gone too far back, or unreachable: those who wait ask meanwhile.
                Err(_) => {
                    feed.state.send_replace(State::Failing);
                    feed.ring_all();
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// The version of the present, from the shortest list there is.
    async fn now(&self) -> Result<String, kube::Error> {
        let mut parameters = ListParams::default().limit(1);
        parameters.label_selector.clone_from(&self.labels);
        parameters.field_selector.clone_from(&self.fields);
        let list = self.api.list_metadata(&parameters).await?;
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    async fn follow(&self, feed: &Feed, mut version: String) -> Result<String, kube::Error> {
        let mut parameters = WatchParams::default();
        parameters.label_selector.clone_from(&self.labels);
        parameters.field_selector.clone_from(&self.fields);
        let stream = self.api.watch_metadata(&parameters, &version).await?;
        let mut stream = std::pin::pin!(stream);
        feed.state.send_replace(State::Live);
        // Whoever looked while there was no watch looks again.
        feed.ring_all();
        while let Some(event) = stream.next().await {
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    feed.ring(&place(&object));
                    version = object.metadata.resource_version.unwrap_or(version);
                }
                WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(version)
    }
}

fn place(object: &PartialObjectMeta<DynamicObject>) -> Place {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
