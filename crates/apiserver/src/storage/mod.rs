//! Objects in memory under one global revision, with a log of changes that watches read.
//!
//! An object is kept as the JSON bytes clients will see, serialised once: reads and all watchers share them. Every
//! collection keeps its recent changes; what is older was compacted, and asking for it is answered with 410.
//! The log also lets a paged list continue at the revision it started from: it is undone backwards.
//! Durability is `durable`'s work, and a write is acknowledged only after it.

mod durable;
mod watch;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use serde_json::Value;

use crate::object;
pub use durable::Error;
use durable::{Durable, Op};
pub use watch::{Subscription, WatchScope};

/// How many changes a collection remembers; older ones are compacted.
const LOG_LENGTH: usize = 10_000;
/// And how much memory their objects may hold, per collection.
const LOG_BYTES: usize = 16 << 20;

/// An object as it is kept.
#[derive(Debug)]
pub struct Stored {
    pub revision: u64,
    /// `namespace/name`, or `name` when cluster-scoped: the order of a list is the order of these keys.
    pub key: Box<str>,
    /// `{"kind":…,"apiVersion":…,` and then the other fields, sorted.
    pub json: Bytes,
    /// Where in `json` the other fields begin: lists of builtin kinds leave kind and version out of their items.
    untyped: u32,
    pub uid: Box<str>,
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the fields this kind's field selectors may name.
    pub fields: Box<[(Box<str>, Box<str>)]>,
    /// Uids in `ownerReferences`.
    pub owners: Box<[Box<str>]>,
    pub deleting: bool,
}

impl Stored {
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("what the store holds was serialised by it")
    }

    /// What follows the `{` when kind and version are left out.
    pub fn untyped_json(&self) -> &[u8] {
        &self.json[self.untyped as usize..]
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, value)| &**value)
    }

    pub fn field(&self, key: &str) -> Option<&str> {
        match key {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            key => self.fields.iter().find(|(k, _)| &**k == key).map(|(_, value)| &**value),
        }
    }

    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl ChangeKind {
    pub fn name(self) -> &'static str {
        match self {
            ChangeKind::Added => "ADDED",
            ChangeKind::Modified => "MODIFIED",
            ChangeKind::Deleted => "DELETED",
        }
    }
}

/// One write, as watchers see it.
#[derive(Debug)]
pub struct Change {
    pub kind: ChangeKind,
    pub object: Arc<Stored>,
    pub previous: Option<Arc<Stored>>,
    line: OnceLock<Bytes>,
}

impl Change {
    pub fn revision(&self) -> u64 {
        self.object.revision
    }

    /// The watch event for clients that see the object as it is kept; made once, shared by all.
    pub fn line(&self) -> Bytes {
        self.line.get_or_init(|| event_line(self.kind.name(), &self.object.json)).clone()
    }
}

/// `{"type":…,"object":…}` and a newline.
pub fn event_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + kind.len() + 26);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("it exists already")]
    Exists,
    #[error("it is not there")]
    Missing,
    #[error("it changed meanwhile")]
    Raced,
    #[error("the write could not be made durable")]
    Durable(#[from] Error),
}

/// The revision asked for is no longer (or not yet) there.
#[derive(Debug, PartialEq, Eq)]
pub enum RevisionError {
    Compacted { oldest: u64 },
    Future { current: u64 },
}

/// The name of the place objects of one kind are kept in, such as `deployments.apps`.
pub type Place = Arc<str>;

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<Box<str>, Arc<Stored>>,
    log: VecDeque<Arc<Change>>,
    log_bytes: usize,
    /// Changes up to here are gone from the log.
    compacted: u64,
    watchers: watch::Watchers,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    /// What a collection that appears now counts as compacted: nothing older was ever in its log.
    floor: u64,
    collections: HashMap<Place, Collection>,
    dependents: HashMap<Box<str>, Vec<(Place, Box<str>)>>,
}

#[derive(Debug)]
pub struct Store {
    state: RwLock<State>,
    durable: Option<Durable>,
}

impl Store {
    pub fn in_memory() -> Store {
        Store { state: RwLock::new(State { revision: 1, ..State::default() }), durable: None }
    }

    /// Opens (or makes) the store in `folder`. `fields` tells which selector fields an object of a place has.
    pub fn open(
        folder: &std::path::Path,
        fields: impl Fn(&str, &Value) -> Vec<(Box<str>, Box<str>)>,
    ) -> Result<Store, Error> {
        let (durable, loaded) = Durable::open(folder)?;
        let mut state = State { revision: loaded.revision, floor: loaded.revision, ..State::default() };
        for (place, key, json) in loaded.objects {
            let Ok(value) = serde_json::from_slice::<Value>(&json) else { continue };
            let revision = object::meta_str(&value, "resourceVersion").parse().unwrap_or(loaded.revision);
            let stored = Arc::new(describe(&value, &key, fields(&place, &value), revision, json.into()));
            state.insert(&Place::from(place), stored);
        }
        Ok(Store { state: RwLock::new(state), durable: Some(durable) })
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn revision(&self) -> u64 {
        self.read().revision
    }

    pub fn get(&self, place: &str, key: &str) -> Option<Arc<Stored>> {
        self.read().collections.get(place)?.objects.get(key).cloned()
    }

    /// All objects whose key starts with `prefix`, in order, and the revision that is true for.
    pub fn list(&self, place: &str, prefix: &str) -> (u64, Vec<Arc<Stored>>) {
        let state = self.read();
        let objects =
            state.collections.get(place).map(|collection| collection.with_prefix(prefix)).unwrap_or_default();
        (state.revision, objects)
    }

    /// The list as it was at `revision`.
    pub fn list_at(
        &self,
        place: &str,
        prefix: &str,
        revision: u64,
    ) -> Result<Vec<Arc<Stored>>, RevisionError> {
        let state = self.read();
        if revision > state.revision {
            return Err(RevisionError::Future { current: state.revision });
        }
        let Some(collection) = state.collections.get(place) else { return Ok(Vec::new()) };
        if revision < collection.compacted.max(state.floor) {
            return Err(RevisionError::Compacted { oldest: collection.compacted.max(state.floor) });
        }
        Ok(collection.undone_to(revision, prefix))
    }

    pub fn count(&self, place: &str) -> usize {
        self.read().collections.get(place).map_or(0, |collection| collection.objects.len())
    }

    /// Objects that name `uid` as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<(Place, Box<str>)> {
        self.read().dependents.get(uid).cloned().unwrap_or_default()
    }

    pub async fn create(
        &self,
        place: &Place,
        key: &str,
        value: Value,
        fields: Vec<(Box<str>, Box<str>)>,
    ) -> Result<Arc<Stored>, WriteError> {
        let (stored, done) = {
            let mut state = self.write();
            if state.has(place, key) {
                return Err(WriteError::Exists);
            }
            self.put(&mut state, place, key, value, fields, None)
        };
        wait(done).await?;
        Ok(stored)
    }

    /// Replaces the object when it still is at `expected`.
    pub async fn update(
        &self,
        place: &Place,
        key: &str,
        expected: u64,
        value: Value,
        fields: Vec<(Box<str>, Box<str>)>,
    ) -> Result<Arc<Stored>, WriteError> {
        let (stored, done) = {
            let mut state = self.write();
            let previous = state.current(place, key, expected)?;
            self.put(&mut state, place, key, value, fields, Some(previous))
        };
        wait(done).await?;
        Ok(stored)
    }

    /// Removes the object when it still is at `expected`; answers with its last state.
    pub async fn delete(&self, place: &Place, key: &str, expected: u64) -> Result<Arc<Stored>, WriteError> {
        let (stored, done) = {
            let mut state = self.write();
            let previous = state.current(place, key, expected)?;
            state.revision += 1;
            let revision = state.revision;
            let last = Arc::new(last_state(&previous, revision));
            let done = self.submit(place, key, revision, None);
            state.remove(place, &previous);
            state.publish(place, ChangeKind::Deleted, last.clone(), Some(previous));
            (last, done)
        };
        wait(done).await?;
        Ok(stored)
    }

    fn put(
        &self,
        state: &mut State,
        place: &Place,
        key: &str,
        mut value: Value,
        fields: Vec<(Box<str>, Box<str>)>,
        previous: Option<Arc<Stored>>,
    ) -> (Arc<Stored>, Option<durable::Done>) {
        state.revision += 1;
        let revision = state.revision;
        object::set_meta(&mut value, "resourceVersion", Some(revision.to_string().into()));
        let json = lay_out(&value);
        let stored = Arc::new(describe(&value, key, fields, revision, json));
        let done = self.submit(place, key, revision, Some(stored.json.clone()));
        if let Some(previous) = &previous {
            state.forget_owners(place, previous);
        }
        state.insert(place, stored.clone());
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        state.publish(place, kind, stored.clone(), previous);
        (stored, done)
    }

    fn submit(&self, place: &str, key: &str, revision: u64, json: Option<Bytes>) -> Option<durable::Done> {
        let durable = self.durable.as_ref()?;
        Some(durable.submit(Op { place: place.into(), key: key.into(), revision, json }))
    }

    /// Changes after `since` (all current objects when `None`) and from then on, in order.
    pub fn watch(
        &self,
        place: &Place,
        scope: WatchScope,
        since: Option<u64>,
    ) -> Result<Subscription, RevisionError> {
        let mut state = self.write();
        let (revision, floor) = (state.revision, state.floor);
        let collection = state.collections.entry(place.clone()).or_default();
        let oldest = collection.compacted.max(floor);
        let backlog = match since {
            None => collection.with_prefix(scope.prefix()).into_iter().map(as_added).collect(),
            Some(since) if since < oldest => return Err(RevisionError::Compacted { oldest }),
            Some(since) => collection.changes_after(since, &scope),
        };
        Ok(collection.watchers.subscribe(scope, backlog, revision))
    }

    /// Forgets changes up to the current revision, so that older watches and lists get 410.
    pub fn compact(&self) {
        let mut state = self.write();
        let revision = state.revision;
        state.floor = revision;
        for collection in state.collections.values_mut() {
            collection.log.clear();
            collection.log_bytes = 0;
            collection.compacted = revision;
        }
    }

    /// Forgets changes up to `revision`, which lies in the past.
    pub fn compact_to(&self, revision: u64) {
        let mut state = self.write();
        let revision = revision.min(state.revision);
        state.floor = state.floor.max(revision);
        for collection in state.collections.values_mut() {
            while collection.log.front().is_some_and(|change| change.revision() <= revision) {
                if let Some(change) = collection.log.pop_front() {
                    collection.log_bytes = collection.log_bytes.saturating_sub(change.object.json.len());
                }
            }
            collection.compacted = collection.compacted.max(revision);
        }
    }

    /// Ends all watches (their clients reconnect), as a shutdown does.
    pub fn close_watches(&self) {
        for collection in self.write().collections.values_mut() {
            collection.watchers = watch::Watchers::default();
        }
    }

    /// Ends the watches of one place, as when its CRD goes.
    pub fn close_watches_of(&self, place: &str) {
        if let Some(collection) = self.write().collections.get_mut(place) {
            collection.watchers = watch::Watchers::default();
        }
    }
}

async fn wait(done: Option<durable::Done>) -> Result<(), Error> {
    match done {
        Some(done) => done.await.unwrap_or(Err(Error::Stopped)),
        None => Ok(()),
    }
}

impl State {
    fn has(&self, place: &str, key: &str) -> bool {
        self.collections.get(place).is_some_and(|collection| collection.objects.contains_key(key))
    }

    fn current(&self, place: &str, key: &str, expected: u64) -> Result<Arc<Stored>, WriteError> {
        let current = self.collections.get(place).and_then(|collection| collection.objects.get(key));
        match current {
            None => Err(WriteError::Missing),
            Some(stored) if stored.revision != expected => Err(WriteError::Raced),
            Some(stored) => Ok(stored.clone()),
        }
    }

    fn insert(&mut self, place: &Place, stored: Arc<Stored>) {
        for owner in &stored.owners {
            self.dependents.entry(owner.clone()).or_default().push((place.clone(), stored.key.clone()));
        }
        self.collections.entry(place.clone()).or_default().objects.insert(stored.key.clone(), stored);
    }

    fn remove(&mut self, place: &Place, stored: &Stored) {
        self.forget_owners(place, stored);
        if let Some(collection) = self.collections.get_mut(place) {
            collection.objects.remove(&stored.key);
        }
    }

    fn forget_owners(&mut self, place: &Place, stored: &Stored) {
        for owner in &stored.owners {
            if let Some(list) = self.dependents.get_mut(owner) {
                list.retain(|(p, key)| p != place || *key != stored.key);
                if list.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    fn publish(
        &mut self,
        place: &Place,
        kind: ChangeKind,
        object: Arc<Stored>,
        previous: Option<Arc<Stored>>,
    ) {
        let change = Arc::new(Change { kind, object, previous, line: OnceLock::new() });
        let collection = self.collections.entry(place.clone()).or_default();
        collection.log_bytes += change.object.json.len();
        collection.log.push_back(change.clone());
        while collection.log.len() > LOG_LENGTH
            || (collection.log_bytes > LOG_BYTES && collection.log.len() > 1)
        {
            if let Some(old) = collection.log.pop_front() {
                collection.log_bytes -= old.object.json.len();
                collection.compacted = old.revision();
            }
        }
        collection.watchers.send(&change);
    }
}

impl Collection {
    fn with_prefix(&self, prefix: &str) -> Vec<Arc<Stored>> {
        let from =
            self.objects.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        from.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, stored)| stored.clone()).collect()
    }

    fn changes_after(&self, since: u64, scope: &WatchScope) -> Vec<Arc<Change>> {
        let start = self.log.partition_point(|change| change.revision() <= since);
        self.log.range(start..).filter(|change| scope.covers(&change.object.key)).cloned().collect()
    }

    fn undone_to(&self, revision: u64, prefix: &str) -> Vec<Arc<Stored>> {
        let mut objects: BTreeMap<Box<str>, Arc<Stored>> =
            self.with_prefix(prefix).into_iter().map(|stored| (stored.key.clone(), stored)).collect();
        for change in self.log.iter().rev().take_while(|change| change.revision() > revision) {
            if !change.object.key.starts_with(prefix) {
                continue;
            }
            match &change.previous {
                Some(previous) => drop(objects.insert(previous.key.clone(), previous.clone())),
                None => drop(objects.remove(&change.object.key)),
            }
        }
        objects.into_values().collect()
    }
}

fn as_added(stored: Arc<Stored>) -> Arc<Change> {
    Arc::new(Change { kind: ChangeKind::Added, object: stored, previous: None, line: OnceLock::new() })
}

fn describe(
    value: &Value,
    key: &str,
    fields: Vec<(Box<str>, Box<str>)>,
    revision: u64,
    json: Bytes,
) -> Stored {
    let labels = object::meta(value).get("labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let owners = object::meta(value).get("ownerReferences").and_then(Value::as_array);
    Stored {
        revision,
        key: key.into(),
        untyped: untyped_from(value),
        json,
        uid: object::uid(value).into(),
        labels: labels.map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into())).collect(),
        fields: fields.into(),
        owners: owners.into_iter().flatten().map(|owner| object::text(owner, "/uid").into()).collect(),
        deleting: object::is_deleting(value),
    }
}

/// Writes an object with its kind and version in front.
pub fn lay_out(value: &Value) -> Bytes {
    let mut json = head(value).into_bytes();
    let fields = value.as_object().into_iter().flatten();
    for (at, (key, field)) in
        fields.filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion")).enumerate()
    {
        if at > 0 {
            json.push(b',');
        }
        serde_json::to_writer(&mut json, key).expect("memory can be written to");
        json.push(b':');
        serde_json::to_writer(&mut json, field).expect("memory can be written to");
    }
    json.push(b'}');
    json.into()
}

fn head(value: &Value) -> String {
    // An object always has metadata, so a field follows the comma.
    format!("{{\"kind\":{},\"apiVersion\":{},", value["kind"], value["apiVersion"])
}

fn untyped_from(value: &Value) -> u32 {
    u32::try_from(head(value).len()).expect("a kind and a version are short")
}

/// A deleted object is shown as it last was, at the revision of its deletion.
pub fn last_state(previous: &Stored, revision: u64) -> Stored {
    let mut value = previous.value();
    object::set_meta(&mut value, "resourceVersion", Some(revision.to_string().into()));
    Stored {
        revision,
        key: previous.key.clone(),
        json: lay_out(&value),
        untyped: previous.untyped,
        uid: previous.uid.clone(),
        labels: previous.labels.clone(),
        fields: previous.fields.clone(),
        owners: previous.owners.clone(),
        deleting: previous.deleting,
    }
}
