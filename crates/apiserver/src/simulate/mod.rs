//! Workloads, played: what a cluster's controllers and nodes would do with Deployments, Jobs and the like.
//!
//! One simulated node runs every pod at once and makes it ready after a delay. What a pod does otherwise is told by an
//! annotation on it (that is, on its owner's template): `testbed/pod: ready` (the default), `pending`, `crash`,
//! `image-pull`; for the pod of a Job `fail`. HorizontalPodAutoscalers and CronJobs are left alone.

mod claims;
mod daemon_set;
mod deployment;
mod job;
mod node;
mod pod;
mod pods;
mod replica_set;
mod stateful_set;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use crate::cluster::{ObjectKey, spawn};
use crate::object::{self, text};
use crate::rest::delete::{DeleteOptions, delete};
use crate::rest::update::{Managers, change};
use crate::rest::{Call, create};
use crate::server::{Inner, Simulation};
use crate::status::Status;

/// Kinds whose changes the simulation looks at.
pub const PLACES: [&str; 8] = [
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "pods",
    "jobs.batch",
    "persistentvolumeclaims",
    "services",
];

/// Looks after what a crash may have left half done.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

pub fn start(server: &Arc<Inner>, stopped: &watch::Receiver<bool>) {
    let Simulation::On { delay } = server.simulation else { return };
    for place in PLACES {
        for stored in server.store.list(place, "").1 {
            server.controllers.workloads.add((place.into(), stored.key.clone()));
        }
    }
    spawn(server, stopped, |server| run(Player { server, delay }));
}

async fn run(player: Player) {
    node::ensure(&player).await;
    loop {
        let key = player.server.controllers.workloads.next().await;
        look(&player, &key).await;
    }
}

async fn look(player: &Player, (place, key): &ObjectKey) {
    let Some(stored) = player.server.store.get(place, key) else { return };
    let object = stored.value();
    let outcome = match &**place {
        "deployments.apps" => deployment::reconcile(player, &object).await,
        "replicasets.apps" => replica_set::reconcile(player, &object).await,
        "statefulsets.apps" => stateful_set::reconcile(player, &object).await,
        "daemonsets.apps" => daemon_set::reconcile(player, &object).await,
        "jobs.batch" => job::reconcile(player, &object).await,
        "pods" => pod::reconcile(player, &object).await,
        "persistentvolumeclaims" => claims::claim(player, &object).await,
        "services" => claims::load_balancer(player, &object).await,
        _ => Ok(()),
    };
    if let Err(status) = outcome {
        // Mostly a namespace that is going away, or someone who was faster.
        tracing::debug!(place = &**place, key = &**key, reason = status.reason, "simulation tries again");
        if status.code != http::StatusCode::NOT_FOUND && status.code != http::StatusCode::FORBIDDEN {
            player.again((place.clone(), key.clone()), LOOK_AGAIN);
        }
    }
}

/// The simulation's hands: everything it does goes through the API like anybody's request.
pub(crate) struct Player {
    pub(crate) server: Arc<Inner>,
    pub(crate) delay: Duration,
}

impl Player {
    fn call(&self, place: &str, namespace: &str, name: &str) -> Option<Call> {
        let registry = self.server.registry();
        Some(Call::internal(
            &self.server,
            registry.stored(place)?,
            namespace,
            name,
            "kube-controller-manager",
        ))
    }

    /// Looks at an object again later.
    pub(crate) fn again(&self, key: ObjectKey, after: Duration) {
        let server = self.server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            server.controllers.workloads.add(key);
        });
    }

    pub(crate) async fn create(&self, place: &str, object: Value) -> Result<(), Status> {
        let Some(call) = self.call(place, object::namespace(&object), object::name(&object)) else {
            return Ok(());
        };
        match create::create(&call, object).await {
            Err(status) if status.reason == "AlreadyExists" => Ok(()),
            other => other.map(drop),
        }
    }

    /// Changes an object through `subresource` ("" for the object itself).
    pub(crate) async fn change(
        &self,
        place: &str,
        object: &Value,
        subresource: &str,
        edit: impl Fn(&mut Value) + Send,
    ) -> Result<(), Status> {
        let Some(call) = self.call(place, object::namespace(object), object::name(object)) else {
            return Ok(());
        };
        let call = call.on(subresource);
        let outcome = change(&call, Managers::Update, |old| {
            let mut new = old.clone();
            edit(&mut new);
            Ok(new)
        });
        match outcome.await {
            Err(status) if status.code == http::StatusCode::NOT_FOUND => Ok(()),
            other => other.map(drop),
        }
    }

    pub(crate) async fn delete(&self, place: &str, object: &Value, grace: Option<i64>) -> Result<(), Status> {
        let Some(call) = self.call(place, object::namespace(object), object::name(object)) else {
            return Ok(());
        };
        let options = DeleteOptions {
            uid: Some(object::uid(object).to_owned()),
            grace_period: grace,
            propagation: Some(crate::rest::delete::Propagation::Background),
            ..DeleteOptions::default()
        };
        match delete(&call, &options).await {
            Err(status) if status.code == http::StatusCode::NOT_FOUND => Ok(()),
            other => other.map(drop),
        }
    }

    /// Objects of `place` that `owner` controls.
    pub(crate) fn owned(&self, place: &str, owner: &Value) -> Vec<Value> {
        let dependents = self.server.store.dependents(object::uid(owner));
        let mut owned: Vec<Value> = dependents
            .into_iter()
            .filter(|(at, _)| &**at == place)
            .filter_map(|(at, key)| self.server.store.get(&at, &key))
            .map(|stored| stored.value())
            .collect();
        owned.sort_by(|a, b| object::name(a).cmp(object::name(b)));
        owned
    }
}

/// A reference that makes `owner` the controller.
pub(crate) fn controlled_by(owner: &Value) -> Value {
    serde_json::json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": object::name(owner), "uid": object::uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

pub(crate) fn wanted_replicas(object: &Value) -> usize {
    object::integer(object, "/spec/replicas").and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// A short name for a template's content, such as `6b7f8c9d5`.
pub(crate) fn template_hash(template: &Value) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in template.to_string().bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    // Digits become letters without vowels, as in the names users know.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    hash.to_string().bytes().map(|digit| ALPHABET[usize::from(digit) % ALPHABET.len()] as char).collect()
}

pub(crate) fn holds(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| text(c, "/type") == condition && text(c, "/status") == "True")
}
