//! The objects of one watch: as they are now, who wants to hear of changes, and ways to find them.
//!
//! Objects are kept as the server sends them, except for `managedFields`, which nobody here reads and which are
//! often larger than the rest. They are decoded one by one by whoever reads them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use kube::ResourceExt;
use kube::api::DynamicObject;
use tokio::sync::watch;

use super::ObjectKey;

/// What a controller hears about an object.
pub struct Change {
    pub key: ObjectKey,
    pub old: Option<Arc<DynamicObject>>,
    pub new: Option<Arc<DynamicObject>>,
}

type Listener = Box<dyn Fn(&Change) + Send + Sync>;
type Terms = Box<dyn Fn(&DynamicObject) -> Vec<String> + Send + Sync>;

#[derive(Default)]
pub struct Store {
    objects: RwLock<BTreeMap<ObjectKey, Arc<DynamicObject>>>,
    listeners: RwLock<Vec<Listener>>,
    indexes: RwLock<Vec<Arc<Index>>>,
    synced: watch::Sender<bool>,
}

/// Finds objects by what they mention: "who refers to this source?" without looking at all of them.
pub struct Index {
    terms: Terms,
    entries: RwLock<HashMap<String, BTreeSet<ObjectKey>>>,
}

impl Store {
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<DynamicObject>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub fn list(&self) -> Vec<Arc<DynamicObject>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Calls `listener` for every change from now on. Listeners only put keys into queues.
    pub fn listen(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    /// Keeps an index of the words that `terms` finds in an object. It is up to date before listeners hear.
    pub fn index(&self, terms: impl Fn(&DynamicObject) -> Vec<String> + Send + Sync + 'static) -> Arc<Index> {
        let index = Arc::new(Index { terms: Box::new(terms), entries: RwLock::default() });
        self.indexes.write().unwrap_or_else(PoisonError::into_inner).push(index.clone());
        for object in self.list() {
            index.update(&ObjectKey::of(&object), None, Some(&object));
        }
        index
    }

    /// Waits until the objects were listed once.
    pub async fn synced(&self) {
        // The sender lives as long as the store, so this only ends when the list arrived.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(super) fn set_synced(&self) {
        self.synced.send_replace(true);
    }

    pub(super) fn put(&self, object: Arc<DynamicObject>) {
        let key = ObjectKey::of(&object);
        let old =
            self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), object.clone());
        if old.as_ref().is_some_and(|old| old.resource_version() == object.resource_version()) {
            return;
        }
        self.tell(&Change { key, old, new: Some(object) });
    }

    pub(super) fn remove(&self, key: &ObjectKey) {
        let old = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        if old.is_some() {
            self.tell(&Change { key: key.clone(), old, new: None });
        }
    }

    /// After a list: what is missing from it was deleted while nobody was looking.
    pub(super) fn replace(&self, listed: BTreeMap<ObjectKey, Arc<DynamicObject>>) {
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
        for index in self.indexes.read().unwrap_or_else(PoisonError::into_inner).iter() {
            index.update(&change.key, change.old.as_deref(), change.new.as_deref());
        }
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(change);
        }
    }
}

impl Index {
    /// The objects that mention `term`.
    pub fn find(&self, term: &str) -> Vec<ObjectKey> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(term).into_iter().flatten().cloned().collect()
    }

    fn update(&self, key: &ObjectKey, old: Option<&DynamicObject>, new: Option<&DynamicObject>) {
        let terms = |object: Option<&DynamicObject>| -> BTreeSet<String> {
            object.map(|object| (self.terms)(object)).unwrap_or_default().into_iter().collect()
        };
        let (before, after) = (terms(old), terms(new));
        if before == after {
            return;
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for gone in before.difference(&after) {
            if let Some(keys) = entries.get_mut(gone) {
                keys.remove(key);
                if keys.is_empty() {
                    entries.remove(gone);
                }
            }
        }
        for added in after.difference(&before) {
            entries.entry(added.clone()).or_default().insert(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, version: &str, source: &str) -> Arc<DynamicObject> {
        let value = json!({
            "apiVersion": "v1", "kind": "Any",
            "metadata": { "name": name, "namespace": "apps", "resourceVersion": version },
            "spec": { "source": source },
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn an_index_follows_every_change_and_a_relist() {
        let store = Store::default();
        store.put(object("early", "1", "fleet"));
        let index = store.index(|object| {
            object
                .data
                .pointer("/spec/source")
                .and_then(|value| value.as_str())
                .map(str::to_owned)
                .into_iter()
                .collect()
        });
        let names = |term: &str| index.find(term).into_iter().map(|key| key.name).collect::<Vec<_>>();
        store.put(object("late", "2", "fleet"));
        assert_eq!(names("fleet"), ["early", "late"]);
        store.put(object("late", "3", "other"));
        assert_eq!((names("fleet"), names("other")), (vec!["early".to_owned()], vec!["late".to_owned()]));
        let only = object("late", "4", "fleet");
        store.replace(BTreeMap::from([(ObjectKey::of(&only), only)]));
        assert_eq!((names("fleet"), names("other").len()), (vec!["late".to_owned()], 0));
        store.remove(&ObjectKey::new("apps", "late"));
        assert!(names("fleet").is_empty());
    }

    #[test]
    fn listeners_hear_of_what_a_list_no_longer_holds_and_not_of_what_it_repeats() {
        let store = Store::default();
        let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
        let notes = heard.clone();
        store.listen(move |change| {
            notes.lock().unwrap().push((change.key.name.clone(), change.old.is_some(), change.new.is_some()));
        });
        store.put(object("a", "1", ""));
        store.put(object("a", "1", ""));
        let b = object("b", "2", "");
        store.replace(BTreeMap::from([(ObjectKey::of(&b), b)]));
        assert_eq!(
            *heard.lock().unwrap(),
            [("a".to_owned(), false, true), ("b".to_owned(), false, true), ("a".to_owned(), true, false)]
        );
    }
}
