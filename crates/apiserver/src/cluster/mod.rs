//! What a control plane does on its own: establish CRDs, empty namespaces, collect garbage, aggregate roles, give
//! service accounts to namespaces.
//!
//! Each controller has a queue of keys that writes fill, and one task that drains it. A key waits at most once.

mod accounts;
pub mod addresses;
mod aggregation;
mod bootstrap;
mod compaction;
pub mod crds;
mod flows;
mod garbage;
mod namespaces;
mod policies;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};

use crate::auth::{flow, rbac};
use crate::kinds::Resource;
use crate::server::{Error, Inner};
use crate::storage::{Place, Stored};

/// Keys to look at, each once.
pub struct Queue<T> {
    waiting: Mutex<(VecDeque<T>, HashSet<T>)>,
    more: Notify,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { waiting: Mutex::default(), more: Notify::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Queue<T> {
    pub fn add(&self, key: T) {
        let mut waiting = self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if waiting.1.insert(key.clone()) {
            waiting.0.push_back(key);
            self.more.notify_one();
        }
    }

    fn take(&self) -> Option<T> {
        let mut waiting = self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = waiting.0.pop_front()?;
        waiting.1.remove(&key);
        Some(key)
    }

    pub async fn next(&self) -> T {
        loop {
            if let Some(key) = self.take() {
                return key;
            }
            self.more.notified().await;
        }
    }
}

/// A place and a key in it.
pub type ObjectKey = (Place, Box<str>);

#[derive(Default)]
pub struct Controllers {
    pub crds: Queue<String>,
    pub namespaces: Queue<String>,
    pub garbage: Queue<ObjectKey>,
    pub aggregation: Queue<()>,
    pub flows: Queue<()>,
    pub policies: Queue<String>,
    pub workloads: Queue<ObjectKey>,
    pub simulating: bool,
}

impl Controllers {
    pub fn written(&self, resource: &Resource, stored: &Arc<Stored>) {
        match &*resource.storage {
            crds::PLACE => self.crds.add(stored.key.to_string()),
            "namespaces" => self.namespaces.add(stored.key.to_string()),
            policies::PLACE => self.policies.add(stored.key.to_string()),
            _ => self.furniture(resource, stored),
        }
        if &*resource.group == rbac::GROUP && &*resource.plural == "clusterroles" {
            self.aggregation.add(());
        }
        if &*resource.group == flow::GROUP {
            self.flows.add(());
        }
        if stored.deleting || !stored.owners.is_empty() {
            self.garbage.add((resource.storage.clone(), stored.key.clone()));
        }
        self.workload(resource, stored);
    }

    pub fn removed(&self, server: &Inner, resource: &Resource, stored: &Arc<Stored>) {
        match &*resource.storage {
            crds::PLACE => self.crds.add(stored.key.to_string()),
            storage if storage.ends_with(rbac::GROUP) => self.aggregation.add(()),
            storage if storage.ends_with(flow::GROUP) => self.flows.add(()),
            _ => self.furniture(resource, stored),
        }
        for dependent in server.store.dependents(&stored.uid) {
            self.garbage.add(dependent);
        }
        if !stored.owners.is_empty() {
            garbage::requeue_owners(server, stored);
        }
        // A CRD that is going waits for the last of its objects.
        if let Some(custom) = &resource.custom
            && server.store.get(crds::PLACE, &custom.crd).is_some_and(|crd| crd.deleting)
        {
            self.crds.add(custom.crd.clone());
        }
        if !stored.namespace().is_empty() {
            let namespace = server.store.get("namespaces", stored.namespace());
            if namespace.is_some_and(|namespace| namespace.deleting) {
                self.namespaces.add(stored.namespace().to_owned());
            }
        }
        self.workload(resource, stored);
    }

    /// What every namespace has is put back when someone changes or deletes it.
    fn furniture(&self, resource: &Resource, stored: &Stored) {
        let watched = match &*resource.storage {
            "configmaps" => stored.name() == accounts::ROOT_CA,
            "serviceaccounts" => stored.name() == "default",
            _ => false,
        };
        if watched {
            self.namespaces.add(stored.namespace().to_owned());
        }
    }

    /// Whoever made a pod wants to know what became of it.
    fn owners_of_pod(&self, pod: &Stored) {
        let value = pod.value();
        let owners = crate::object::meta(&value).get("ownerReferences").and_then(serde_json::Value::as_array);
        for owner in owners.into_iter().flatten() {
            let place = match crate::object::text(owner, "/kind") {
                "ReplicaSet" => "replicasets.apps",
                "StatefulSet" => "statefulsets.apps",
                "DaemonSet" => "daemonsets.apps",
                "Job" => "jobs.batch",
                _ => continue,
            };
            let key = format!("{}/{}", pod.namespace(), crate::object::text(owner, "/name"));
            self.workloads.add((place.into(), key.into()));
        }
    }

    fn workload(&self, resource: &Resource, stored: &Stored) {
        if self.simulating && crate::simulate::PLACES.contains(&&*resource.storage) {
            self.workloads.add((resource.storage.clone(), stored.key.clone()));
            if &*resource.storage == "pods" {
                self.owners_of_pod(stored);
            }
        }
    }
}

/// Writes what every cluster starts with, then starts the controllers.
pub async fn start(server: &Arc<Inner>, stopped: watch::Receiver<bool>) -> Result<(), Error> {
    bootstrap::run(server).await?;
    crds::load(server);
    aggregation::run(server).await;
    spawn(server, &stopped, crds::run);
    spawn(server, &stopped, namespaces::run);
    spawn(server, &stopped, garbage::run);
    spawn(server, &stopped, flows::run);
    spawn(server, &stopped, policies::run);
    spawn(server, &stopped, compaction::run);
    spawn(server, &stopped, aggregation::run_on_change);
    crate::simulate::start(server, &stopped);
    Ok(())
}

/// Runs a controller until the server stops.
pub fn spawn<F>(server: &Arc<Inner>, stopped: &watch::Receiver<bool>, run: impl FnOnce(Arc<Inner>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = run(server.clone());
    let mut stopped = stopped.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = task => {}
            // An error means that the last handle is gone.
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    });
}
