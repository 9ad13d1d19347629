//! Garbage collection by owner references: dependents of what is gone go too, unless the deleter wanted otherwise.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ObjectKey;
use crate::object::{self, text};
use crate::rest::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation, delete};
use crate::rest::update::{Managers, change};
use crate::rest::{self, Call};
use crate::server::Inner;
use crate::storage::Stored;

const PROTECTIONS: [&str; 2] = ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"];
const MANAGER: &str = "kube-controller-manager";

pub async fn run(server: Arc<Inner>) {
    loop {
        let (place, key) = server.controllers.garbage.next().await;
        look(&server, &(place, key)).await;
    }
}

async fn look(server: &Arc<Inner>, (place, key): &ObjectKey) {
    let Some(stored) = server.store.get(place, key) else { return };
    let object = stored.value();
    if stored.deleting {
        let held = object::finalizers(&object);
        if held.contains(&ORPHAN) {
            return orphan(server, place, &stored).await;
        }
        // Nothing here uses a volume, so what protects it in use lets go at once.
        for protection in PROTECTIONS {
            if held.contains(&protection) {
                return remove_finalizer(server, place, &stored, protection).await;
            }
        }
        if held.contains(&FOREGROUND) {
            return foreground(server, place, &stored).await;
        }
        return;
    }
    if !stored.owners.is_empty() {
        owned(server, place, &stored, &object).await;
    }
}

fn call(server: &Arc<Inner>, place: &str, stored: &Stored) -> Option<Call> {
    let registry = server.registry();
    let resource = registry.stored(place)?;
    Some(Call::internal(server, resource, stored.namespace(), stored.name(), MANAGER))
}

/// What an owner reference points at.
enum Owner {
    Present { foreground: bool },
    Gone,
}

fn owner_of(server: &Inner, reference: &Value, namespace: &str) -> Owner {
    let registry = server.registry();
    // An owner of a kind that is not served may come back with its CRD: leave its dependents.
    let Some(resource) = registry.by_kind(text(reference, "/apiVersion"), text(reference, "/kind")) else {
        return Owner::Present { foreground: false };
    };
    let key = rest::key(resource, namespace, text(reference, "/name"));
    match server.store.get(&resource.storage, &key) {
        Some(owner) if *owner.uid == *text(reference, "/uid") => Owner::Present {
            foreground: owner.deleting && object::finalizers(&owner.value()).contains(&FOREGROUND),
        },
        _ => Owner::Gone,
    }
}

/// Deletes an object whose owners are all gone, or lets go of those that are.
async fn owned(server: &Arc<Inner>, place: &str, stored: &Stored, object: &Value) {
    let references = object::meta(object).get("ownerReferences").and_then(Value::as_array);
    let references: Vec<Value> = references.cloned().unwrap_or_default();
    let (mut present, mut gone, mut waiting) = (0, Vec::new(), 0);
    for reference in &references {
        match owner_of(server, reference, stored.namespace()) {
            Owner::Present { foreground } => {
                present += 1;
                waiting += usize::from(foreground);
            }
            Owner::Gone => gone.push(text(reference, "/uid").to_owned()),
        }
    }
    let Some(call) = call(server, place, stored) else { return };
    let precondition = DeleteOptions { uid: Some(stored.uid.to_string()), ..DeleteOptions::default() };
    if present == 0 {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..precondition };
        // Gone already, or another writer's turn: either way it is looked at again.
        let _ = delete(&call, &options).await;
    } else if present == waiting {
        let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..precondition };
        let _ = delete(&call, &options).await;
    } else if !gone.is_empty() {
        drop_owners(&call, &gone).await;
    }
}

async fn drop_owners(call: &Call, uids: &[String]) {
    let outcome = change(call, Managers::Update, |old| {
        let mut new = old.clone();
        let left: Vec<Value> = object::meta(old)
            .get("ownerReferences")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|reference| !uids.iter().any(|uid| uid == text(reference, "/uid")))
            .cloned()
            .collect();
        object::set_meta(&mut new, "ownerReferences", (!left.is_empty()).then(|| json!(left)));
        Ok(new)
    });
    if let Err(status) = outcome.await {
        tracing::debug!(reason = status.reason, "owner references not removed");
    }
}

async fn orphan(server: &Arc<Inner>, place: &str, stored: &Stored) {
    for (place, key) in server.store.dependents(&stored.uid) {
        let Some(dependent) = server.store.get(&place, &key) else { continue };
        let Some(call) = call(server, &place, &dependent) else { continue };
        drop_owners(&call, &[stored.uid.to_string()]).await;
    }
    remove_finalizer(server, place, stored, ORPHAN).await;
}

/// Deletes dependents first; the owner goes when none that blocks it is left.
async fn foreground(server: &Arc<Inner>, place: &str, stored: &Stored) {
    let mut blocked = false;
    for (place, key) in server.store.dependents(&stored.uid) {
        let Some(dependent) = server.store.get(&place, &key) else { continue };
        let value = dependent.value();
        let references = object::meta(&value).get("ownerReferences").and_then(Value::as_array);
        let mut references = references.into_iter().flatten();
        let blocks = references.any(|reference| {
            text(reference, "/uid") == &*stored.uid && reference["blockOwnerDeletion"] == true
        });
        blocked |= blocks;
        if !dependent.deleting {
            server.controllers.garbage.add((place, key));
        }
    }
    if !blocked {
        remove_finalizer(server, place, stored, FOREGROUND).await;
    }
}

async fn remove_finalizer(server: &Arc<Inner>, place: &str, stored: &Stored, finalizer: &str) {
    let Some(call) = call(server, place, stored) else { return };
    let outcome = change(&call, Managers::Update, |old| {
        let mut new = old.clone();
        let left: Vec<&str> = object::finalizers(old).into_iter().filter(|held| *held != finalizer).collect();
        object::set_meta(&mut new, "finalizers", (!left.is_empty()).then(|| json!(left)));
        Ok(new)
    });
    if let Err(status) = outcome.await {
        tracing::debug!(reason = status.reason, "finalizer not removed");
    }
}

/// The dependents of an owner that waits became fewer: look at the owner again.
pub fn requeue_owners(server: &Inner, stored: &Stored) {
    let registry = server.registry();
    let value = stored.value();
    for reference in
        object::meta(&value).get("ownerReferences").and_then(Value::as_array).into_iter().flatten()
    {
        let Some(resource) = registry.by_kind(text(reference, "/apiVersion"), text(reference, "/kind"))
        else {
            continue;
        };
        let key = rest::key(resource, stored.namespace(), text(reference, "/name"));
        server.controllers.garbage.add((resource.storage.clone(), key.into()));
    }
}
