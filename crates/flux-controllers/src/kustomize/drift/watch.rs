//! One watch of metadata for each kind in use.

use std::collections::HashMap;
use std::time::Duration;

use flux_apply::fingerprint::Ours;
use flux_apply::{Cluster, Fingerprint, ObjectId};
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};

use super::record::Kind;
use super::{Drift, KindName, SETTLE, kind_name};
use crate::kustomize::apply::MANAGER;
use crate::reconcile::{ObjectKey, Watched};

const LEAST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// After a list, what was just made may not be in it yet.
const AFTER_LIST: Duration = Duration::from_secs(2);
/// Only what some Kustomization applied.
const SELECTOR: &str = "kustomize.toolkit.fluxcd.io/name";

type Partial = PartialObjectMeta<DynamicObject>;

impl Drift {
    /// Starts to watch the kind of `id`, once.
    pub(super) fn watch(&self, cluster: &Cluster, id: &ObjectId) {
        let name = kind_name(id);
        {
            let mut state = self.lock();
            if state.kinds.contains_key(&name) {
                return;
            }
            state.kinds.insert(name.clone(), Kind::default());
        }
        let Some(own) = self.own.upgrade() else { return };
        let (cluster, id, weak) = (cluster.clone(), id.clone(), std::sync::Arc::downgrade(&own));
        let namespace =
            self.cache.get().and_then(|cache| cache.upgrade()).and_then(|cache| cache.namespace());
        let closed = self.queue.get().cloned();
        tokio::spawn(async move {
            let follow = async {
                let Ok((resource, namespaced)) = cluster.mapper.resource(&id).await else { return };
                let api: Api<Partial> = match namespace.filter(|_| namespaced) {
                    Some(namespace) => Api::namespaced_with(cluster.client.clone(), &namespace, &resource),
                    None => Api::all_with(cluster.client.clone(), &resource),
                };
                follow(&weak, &name, api).await;
            };
            match closed {
                Some(queue) => tokio::select! { () = follow => {}, () = queue.closed() => {} },
                None => follow.await,
            }
        });
    }

    /// The generation of the CRD behind a kind, `Some(None)` for a builtin kind, and `None` when it cannot be told.
    pub(super) fn definition(&self, id: &ObjectId) -> Option<Option<i64>> {
        if !id.group.contains('.') || id.group.ends_with(".k8s.io") {
            return Some(None);
        }
        let cache = self.cache.get()?.upgrade()?;
        let definitions = cache.watch(&Watched::metadata(definitions(), false, ""));
        if !definitions.is_synced() {
            return None;
        }
        let suffix = format!(".{}", id.group);
        // Its plural is not known here; the latest of a group is a good enough mark for any of its kinds.
        let latest = definitions
            .list()
            .iter()
            .filter(|definition| {
                definition.metadata.name.as_deref().is_some_and(|name| name.ends_with(&suffix))
            })
            .filter_map(|definition| definition.metadata.generation)
            .sum::<i64>();
        Some(Some(latest))
    }

    fn fingerprint(&self, metadata: &ObjectMeta) -> Fingerprint {
        let ours = Ours {
            manager: MANAGER,
            override_managers: &self.override_managers,
            labels: flux_api::kinds::KUSTOMIZE_GROUP,
        };
        Fingerprint::of(metadata, &ours)
    }

    fn see(&self, name: &KindName, place: ObjectKey, seen: Option<Fingerprint>) {
        let suspect = self.lock().kinds.get_mut(name).is_some_and(|kind| kind.see(&place, seen));
        if suspect {
            self.suspect(name.clone(), place, SETTLE);
        }
    }
}

fn definitions() -> ApiResource {
    ApiResource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
    }
}

async fn follow(drift: &std::sync::Weak<Drift>, name: &KindName, api: Api<Partial>) {
    let config = watcher::Config::default().labels(SELECTOR);
    let mut events = watcher(api, config).boxed();
    let mut listed: HashMap<ObjectKey, Fingerprint> = HashMap::new();
    let mut delay = LEAST_WAIT;
    while let Some(event) = events.next().await {
        let Some(drift) = drift.upgrade() else { return };
        let place = |metadata: &ObjectMeta| {
            ObjectKey::new(
                metadata.namespace.clone().unwrap_or_default(),
                metadata.name.clone().unwrap_or_default(),
            )
        };
        match event {
            Ok(Event::Init) => {
                listed.clear();
                if let Some(kind) = drift.lock().kinds.get_mut(name) {
                    kind.synced = false;
                }
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(place(&object.metadata), drift.fingerprint(&object.metadata));
            }
            Ok(Event::InitDone) => {
                delay = LEAST_WAIT;
                let listed = std::mem::take(&mut listed);
                let suspects =
                    drift.lock().kinds.get_mut(name).map(|kind| kind.replace(listed)).unwrap_or_default();
                for place in suspects {
                    drift.suspect(name.clone(), place, AFTER_LIST);
                }
            }
            Ok(Event::Apply(object)) => {
                let fingerprint = drift.fingerprint(&object.metadata);
                drift.see(name, place(&object.metadata), Some(fingerprint));
            }
            Ok(Event::Delete(object)) => drift.see(name, place(&object.metadata), None),
            Err(error) => {
                tracing::debug!(kind = name.1, %error, "applied objects cannot be watched; they are looked at each interval");
                drop(drift);
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LONGEST_WAIT);
            }
        }
    }
}
