//! Deleting what Git no longer holds, and only what is ours.

use std::time::Duration;

use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;

use crate::apply::{Action, Cause, Change, Cluster};
use crate::object::{ObjectId, is_marked};
use crate::order::apply_order;

/// Whose objects these are: `<prefix>/name` and `<prefix>/namespace` labels.
#[derive(Clone, Debug)]
pub struct Owner {
    pub prefix: &'static str,
    pub name: String,
    pub namespace: String,
}

impl Owner {
    /// The labels every applied object carries.
    pub fn labels(&self) -> [(String, String); 2] {
        [
            (format!("{}/name", self.prefix), self.name.clone()),
            (format!("{}/namespace", self.prefix), self.namespace.clone()),
        ]
    }

    /// Whether `object` carries them.
    pub fn owns(&self, object: &Value) -> bool {
        self.labels().iter().all(|(key, value)| {
            object
                .get("metadata")
                .and_then(|metadata| metadata.get("labels"))
                .and_then(|labels| labels.get(key))
                .and_then(Value::as_str)
                == Some(value)
        })
    }
}

/// Some objects would not go; they stay in the inventory.
#[derive(Debug, thiserror::Error)]
#[error("delete failed, errors: {};", .errors.join(";"))]
pub struct Error {
    pub errors: Vec<String>,
    pub survivors: Vec<ObjectId>,
    pub changes: Vec<Change>,
}

/// Deletes `objects`, last applied first. What carries another owner's labels, or a mark to keep it, is left and
/// told as skipped; what is gone already counts as deleted.
pub async fn prune(
    cluster: &Cluster,
    mut objects: Vec<ObjectId>,
    owner: &Owner,
) -> Result<Vec<Change>, Error> {
    objects.sort_by(|a, b| apply_order(b, a));
    let (mut changes, mut errors, mut survivors) = (Vec::new(), Vec::new(), Vec::new());
    for id in objects {
        match remove(cluster, &id, owner).await {
            Ok(action) => changes.push(Change::new(id, action)),
            Err(cause) => {
                errors.push(format!("{id} {cause}"));
                survivors.push(id);
            }
        }
    }
    if errors.is_empty() { Ok(changes) } else { Err(Error { errors, survivors, changes }) }
}

/// An object that changes just then is looked at again this often before giving up.
const LOOKS: usize = 5;

async fn remove(cluster: &Cluster, id: &ObjectId, owner: &Owner) -> Result<Action, String> {
    for _ in 0..LOOKS {
        if let Some(action) = look_and_remove(cluster, id, owner).await? {
            return Ok(action);
        }
    }
    Err("delete failed: the object keeps changing".to_owned())
}

/// `None` when the object changed between the look and the delete.
async fn look_and_remove(cluster: &Cluster, id: &ObjectId, owner: &Owner) -> Result<Option<Action>, String> {
    let live = match cluster.get(id).await {
        Ok(Some(live)) => live,
        Ok(None) => return Ok(Some(Action::Deleted)),
        // Without its kind the object cannot be there. Upstream fails here for ever.
        Err(Cause::NoSuchKind(_)) => return Ok(Some(Action::Deleted)),
        Err(cause) => return Err(format!("query failed: {cause}")),
    };
    if !owner.owns(&live) {
        return Ok(Some(Action::Skipped));
    }
    let keeps = |key: &str, value: &str| is_marked(&live, &format!("{}/{key}", owner.prefix), value);
    if keeps("prune", "disabled") || keeps("reconcile", "disabled") || keeps("ssa", "Ignore") {
        return Ok(Some(Action::Skipped));
    }
    // Only this very object, as it was seen: one that was made again or changed hands meanwhile is somebody else's.
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let preconditions =
        Preconditions { uid: text("/metadata/uid"), resource_version: text("/metadata/resourceVersion") };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    let api = cluster.api(id).await.map_err(|cause| format!("delete failed: {cause}"))?;
    match api.delete(&id.name, &parameters).await {
        Ok(_) => Ok(Some(Action::Deleted)),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Some(Action::Deleted)),
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(None),
        Err(error) => Err(format!("delete failed: {}", Cause::from(error))),
    }
}

/// Waits until `objects` are gone; what is left when the time is up.
pub async fn wait_until_gone(cluster: &Cluster, objects: &[ObjectId], limit: Duration) -> Vec<ObjectId> {
    let deadline = tokio::time::Instant::now() + limit;
    let mut left: Vec<ObjectId> = objects.to_vec();
    loop {
        let mut still = Vec::new();
        for id in left {
            if !matches!(cluster.get(&id).await, Ok(None)) {
                still.push(id);
            }
        }
        left = still;
        if left.is_empty() || tokio::time::Instant::now() >= deadline {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
