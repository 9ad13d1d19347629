//! Objects of a kind, decoded once and kept fresh, for those who look at all of them many times a second.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use flux_api::kinds::Kind;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;

use crate::reconcile::{Cache, ObjectKey, decode};

pub struct Known<T> {
    objects: RwLock<BTreeMap<ObjectKey, Arc<Object<T>>>>,
}

/// An object as its kind and as the server has it.
pub struct Object<T> {
    pub raw: Arc<DynamicObject>,
    pub object: T,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Known<T> {
    pub fn follow(cache: &Cache, kind: &'static Kind) -> Arc<Self> {
        let known = Arc::new(Self { objects: RwLock::default() });
        let follower = known.clone();
        cache.listen(kind, move |change| {
            let fresh = change.new.clone().and_then(|raw| match decode::<T>(&raw) {
                Ok(object) => Some(Arc::new(Object { raw, object })),
                Err(error) => {
                    tracing::error!(kind = kind.kind, object = %change.key, %error, "the object cannot be read");
                    None
                }
            });
            let mut objects = follower.objects.write().unwrap_or_else(PoisonError::into_inner);
            match fresh {
                Some(object) => objects.insert(change.key.clone(), object),
                None => objects.remove(&change.key),
            };
        });
        known
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object<T>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
