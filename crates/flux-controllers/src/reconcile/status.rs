//! Writing what was found: only what changed, only what is ours.

use std::sync::Arc;

use flux_api::kinds::Kind;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{ObjectKey, resource};

/// Brings the status on the server from `before` to `after` with one merge patch; nothing when they agree.
/// An object that vanished meanwhile has no status to write.
pub async fn write<S: Serialize>(
    client: &Client,
    kind: &Kind,
    key: &ObjectKey,
    manager: &str,
    before: &S,
    after: &S,
) -> Result<bool, kube::Error> {
    let (before, after) = (to_value(before), to_value(after));
    let Some(difference) = difference(&before, &after) else {
        return Ok(false);
    };
    let patch = json!({ "status": difference });
    let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let written = api(client, kind, key).patch_status(&key.name, &parameters, &Patch::Merge(&patch)).await;
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// The object with `finalizer`, which is added where it is missing; `None` when the object is gone.
pub async fn with_finalizer(
    client: &Client,
    kind: &Kind,
    object: Arc<DynamicObject>,
    manager: &str,
    finalizer: &str,
) -> Result<Option<Arc<DynamicObject>>, kube::Error> {
    if object.finalizers().iter().any(|known| known == finalizer) {
        return Ok(Some(object));
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(finalizer.to_owned());
    Ok(write_finalizers(client, kind, &object, manager, &finalizers).await?.map(Arc::new))
}

/// Takes `finalizer` away; one that is not there costs nothing.
pub async fn remove_finalizer(
    client: &Client,
    kind: &Kind,
    object: &DynamicObject,
    manager: &str,
    finalizer: &str,
) -> Result<(), kube::Error> {
    let left: Vec<String> = object.finalizers().iter().filter(|known| *known != finalizer).cloned().collect();
    if left.len() < object.finalizers().len() {
        write_finalizers(client, kind, object, manager, &left).await?;
    }
    Ok(())
}

/// Refused by the server when the object changed since it was read, so nobody else's finalizer is lost. The caller tries
/// again: a mere change of status would not wake it.
async fn write_finalizers(
    client: &Client,
    kind: &Kind,
    object: &DynamicObject,
    manager: &str,
    finalizers: &[String],
) -> Result<Option<DynamicObject>, kube::Error> {
    let key = ObjectKey::of(object);
    let patch = json!({
        "metadata": { "finalizers": finalizers, "resourceVersion": object.metadata.resource_version },
    });
    let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    match api(client, kind, &key).patch(&key.name, &parameters, &Patch::Merge(&patch)).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

fn api(client: &Client, kind: &Kind, key: &ObjectKey) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &key.namespace, &resource(kind))
}

fn to_value<S: Serialize>(status: &S) -> Value {
    // Our statuses are plain structs with string keys; nothing in them can fail to serialize.
    serde_json::to_value(status).unwrap_or_default()
}

/// The merge patch that turns `before` into `after`, or `None` when there is nothing to do.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(earlier) => difference(earlier, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_in_the_patch() {
        let before = json!({"a": 1, "b": {"c": 2, "d": 3}, "list": [1], "gone": true});
        let after = json!({"a": 1, "b": {"c": 2, "d": 4}, "list": [1, 2], "new": {"x": 1}});
        assert_eq!(
            difference(&before, &after),
            Some(json!({"b": {"d": 4}, "list": [1, 2], "new": {"x": 1}, "gone": null}))
        );
        assert_eq!(difference(&before, &before), None);
    }
}
