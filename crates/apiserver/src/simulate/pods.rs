//! Making pods from templates, and counting them.

use serde_json::{Value, json};

use super::{controlled_by, holds};
use crate::object::{self, text};

/// A pod as `owner`'s template describes it. An empty name is generated.
pub(super) fn from_template(owner: &Value, template: &Value, name: &str) -> Value {
    let mut meta = json!({
        "namespace": object::namespace(owner), "ownerReferences": controlled_by(owner),
    });
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key) {
            meta[key] = value.clone();
        }
    }
    if name.is_empty() {
        meta["generateName"] = format!("{}-", object::name(owner)).into();
    } else {
        meta["name"] = name.into();
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"] })
}

pub(super) fn is_ready(pod: &Value) -> bool {
    holds(pod, "Ready")
}

pub(super) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Pods that count: not finished, not going.
pub(super) fn active(pods: Vec<Value>) -> Vec<Value> {
    pods.into_iter().filter(|pod| !object::is_deleting(pod) && !is_finished(pod)).collect()
}

pub(super) fn ready_count(pods: &[Value]) -> usize {
    pods.iter().filter(|pod| is_ready(pod)).count()
}
