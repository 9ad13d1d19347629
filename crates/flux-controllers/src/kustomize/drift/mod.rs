//! What others do to applied objects, noticed within a second: one watch of metadata for each kind in use, of objects
//! that carry an owner's label. Whoever applied an object that was changed, lost its label or went is worked on again;
//! what nobody touched since it was verified needs no dry-run; and waits for health are told to look.
//!
//! Only this cluster is watched, with the controller's own rights. Where these are missing, and on other clusters,
//! everything is as it was: looked at when the interval is over. `record` is what is known, `watch` how it is kept up.

mod record;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use flux_apply::{Change, Cluster, Known, ObjectId};
use serde_json::Value;
use tokio::sync::Notify;

use self::record::{Kind, Record};
use crate::reconcile::{Cache, Cause, ObjectKey, Queue};

/// So that a burst of changes is one, and our own writes are known before they are seen.
const SETTLE: Duration = Duration::from_millis(200);
/// A status is written and seen within this time.
const LATER: Duration = Duration::from_secs(3);
/// Objects that change for ever are looked at no more often than this.
const CALM: Duration = Duration::from_secs(600);

/// Group and kind.
type KindName = (String, String);

pub struct Drift {
    enabled: bool,
    /// Fields of these managers are taken over, too.
    override_managers: Vec<String>,
    queue: OnceLock<Arc<Queue>>,
    cache: OnceLock<Weak<Cache>>,
    state: Mutex<State>,
    /// What is watched from the moment it is used; told when a kind is new.
    own: Weak<Drift>,
}

#[derive(Default)]
struct State {
    kinds: HashMap<KindName, Kind>,
    /// Those that apply something just now: their own writes are no drift.
    applying: BTreeSet<ObjectKey>,
    /// Those whose objects were changed: they may not take it for granted that nothing did.
    due: BTreeSet<ObjectKey>,
}

impl Drift {
    pub fn new(enabled: bool, override_managers: Vec<String>) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            enabled,
            override_managers,
            queue: OnceLock::new(),
            cache: OnceLock::new(),
            state: Mutex::default(),
            own: own.clone(),
        })
    }

    /// Whom to wake.
    pub fn connect(&self, cache: &Arc<Cache>, queue: &Arc<Queue>) {
        // The first word counts: there is one queue of Kustomizations.
        let _ = self.queue.set(queue.clone());
        let _ = self.cache.set(Arc::downgrade(cache));
    }

    /// Has a Kustomization look at everything again, soon.
    pub(super) fn look_again(&self, key: &ObjectKey) {
        self.lock().due.insert(key.clone());
        if let Some(queue) = self.queue.get() {
            queue.add(key.clone(), Cause::Change);
        }
    }

    /// The same when a status that is about to be written can be seen.
    pub(super) fn look_again_later(&self, key: ObjectKey) {
        let Some(own) = self.own.upgrade() else { return };
        tokio::spawn(async move {
            tokio::time::sleep(LATER).await;
            own.look_again(&key);
        });
    }

    /// Whether something of `key` was changed since it was last asked.
    pub(super) fn take_due(&self, key: &ObjectKey) -> bool {
        self.lock().due.remove(key)
    }

    /// From now until the guard goes, what happens to objects of `key` is its own doing.
    pub(super) fn applying(self: &Arc<Self>, key: &ObjectKey) -> Applying {
        self.lock().applying.insert(key.clone());
        Applying { drift: self.clone(), key: key.clone() }
    }

    /// Notes what an apply left behind, and watches kinds that are new.
    pub(super) fn verified(
        &self,
        cluster: &Cluster,
        key: &ObjectKey,
        changes: &[Change],
        manifests: &Manifests,
    ) {
        if !self.enabled {
            return;
        }
        for change in changes {
            let Some(known) = change.known else { continue };
            let Some(manifest) = manifests.of(&change.id) else { continue };
            if !self.is_watched_at(&change.id) {
                continue;
            }
            self.watch(cluster, &change.id);
            let definition = self.definition(&change.id);
            let mut state = self.lock();
            let Some(kind) = state.kinds.get_mut(&kind_name(&change.id)) else { continue };
            let place = ObjectKey::new(change.id.namespace.clone(), change.id.name.clone());
            if kind.verify(&place, key, known, manifest, definition).is_suspect() {
                drop(state);
                self.suspect(kind_name(&change.id), place, SETTLE);
            }
        }
    }

    /// Where only one namespace is watched, the others are not.
    fn is_watched_at(&self, id: &ObjectId) -> bool {
        let only = self.cache.get().and_then(Weak::upgrade).and_then(|cache| cache.namespace());
        id.namespace.is_empty() || only.is_none_or(|only| only == id.namespace)
    }

    /// These objects are no longer `key`'s business.
    pub(super) fn forget<'a>(&self, ids: impl IntoIterator<Item = &'a ObjectId>) {
        let mut state = self.lock();
        for id in ids {
            if let Some(kind) = state.kinds.get_mut(&kind_name(id)) {
                kind.forget(&ObjectKey::new(id.namespace.clone(), id.name.clone()));
            }
        }
    }

    /// What is known of the object, if that is just what `manifest` makes of it.
    pub(super) fn is_verified(&self, key: &ObjectKey, id: &ObjectId, manifest: u64) -> Option<Known> {
        if !self.enabled {
            return None;
        }
        let definition = self.definition(id);
        let state = self.lock();
        let kind = state.kinds.get(&kind_name(id))?;
        kind.verified(&ObjectKey::new(id.namespace.clone(), id.name.clone()), key, manifest, definition)
    }

    /// Tells `notify` whenever one of `ids` changes, where that can be seen.
    pub(super) fn subscribe<'a>(&self, ids: impl IntoIterator<Item = &'a ObjectId>, notify: &Arc<Notify>) {
        let mut state = self.lock();
        for id in ids {
            if let Some(kind) = state.kinds.get_mut(&kind_name(id)) {
                kind.subscribe(&ObjectKey::new(id.namespace.clone(), id.name.clone()), notify);
            }
        }
    }

    /// Whether changes of all of `ids` are seen.
    pub(super) fn sees_all<'a>(&self, ids: impl IntoIterator<Item = &'a ObjectId>) -> bool {
        let state = self.lock();
        let sees = |id: &ObjectId| {
            let place = ObjectKey::new(id.namespace.clone(), id.name.clone());
            state.kinds.get(&kind_name(id)).is_some_and(|kind| kind.sees(&place))
        };
        ids.into_iter().all(sees)
    }

    /// A change that may be somebody else's: looked at when it has settled.
    fn suspect(&self, kind: KindName, place: ObjectKey, after: Duration) {
        let Some(own) = self.own.upgrade() else { return };
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            own.judge(&kind, &place);
        });
    }

    fn judge(&self, kind: &KindName, place: &ObjectKey) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(found) = state.kinds.get_mut(kind) else { return };
        let Some(owner) = found.suspect(place) else { return };
        // At its end it compares with what it saw itself.
        if state.applying.contains(&owner) {
            return;
        }
        if let Some(wait) = found.note_wake(place) {
            self.suspect(kind.clone(), place.clone(), wait);
            return;
        }
        tracing::info!(kind = kind.1, object = %place, kustomization = %owner, "changed by somebody else");
        state.due.insert(owner.clone());
        if let Some(queue) = self.queue.get() {
            queue.add(owner, Cause::Change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Applying {
    drift: Arc<Drift>,
    key: ObjectKey,
}

impl Drop for Applying {
    fn drop(&mut self) {
        self.drift.lock().applying.remove(&self.key);
    }
}

fn kind_name(id: &ObjectId) -> KindName {
    (id.group.clone(), id.kind.clone())
}

/// What is applied, as short marks by object.
pub(super) struct Manifests(HashMap<(KindName, String, String), u64>);

impl Manifests {
    pub(super) fn new(objects: &[Value], seed: u64) -> Self {
        let mark = |object: &Value| {
            let id = ObjectId::of(object)?;
            Some(((kind_name(&id), id.namespace, id.name), mark(object, seed)))
        };
        Self(objects.iter().filter_map(mark).collect())
    }

    /// An object of the whole cluster may have had a namespace in its manifest.
    fn of(&self, id: &ObjectId) -> Option<u64> {
        let exact = self.0.get(&(kind_name(id), id.namespace.clone(), id.name.clone())).copied();
        exact.or_else(|| {
            let same = |key: &&(KindName, String, String)| {
                id.namespace.is_empty() && key.0 == kind_name(id) && key.2 == id.name
            };
            self.0.keys().find(same).and_then(|key| self.0.get(key)).copied()
        })
    }
}

/// A short mark of a manifest and of how it is applied.
pub(super) fn mark(manifest: &Value, seed: u64) -> u64 {
    let mut hash = DefaultHasher::new();
    seed.hash(&mut hash);
    manifest.to_string().hash(&mut hash);
    hash.finish()
}

impl Record {
    fn is_suspect(&self) -> bool {
        self.mismatch().is_some()
    }
}
