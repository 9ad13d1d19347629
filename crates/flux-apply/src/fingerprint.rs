//! A short mark of everything about an object that an apply of ours would put back: the fields we own, what tools that
//! we take over from have set, and whose it is. What others keep in fields of their own changes nothing here. Pure.
//!
//! A field that somebody else changes leaves our set of managed fields, so the set alone tells, for every kind.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use crate::managers;

/// What an object was like at a version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Later states of an object have greater ones.
    pub version: u64,
    pub print: u64,
}

/// Whose fields a fingerprint is about.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a> {
    pub manager: &'a str,
    /// Prefixes of managers whose fields are taken over besides kubectl's.
    pub override_managers: &'a [String],
    /// The prefix of the labels that name the owner.
    pub labels: &'a str,
}

impl Fingerprint {
    pub fn of(metadata: &ObjectMeta, ours: &Ours<'_>) -> Self {
        let version = metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut hash = DefaultHasher::new();
        metadata.uid.hash(&mut hash);
        for label in ["name", "namespace"] {
            let key = format!("{}/{label}", ours.labels);
            metadata.labels.as_ref().and_then(|labels| labels.get(&key)).hash(&mut hash);
        }
        for entry in metadata.managed_fields.iter().flatten() {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            let (manager, operation) = (text(&entry.manager), text(&entry.operation));
            let subresource = text(&entry.subresource);
            if !subresource.is_empty() {
                continue;
            }
            if manager == ours.manager && operation == "Apply" {
                fields(entry).hash(&mut hash);
            } else if managers::takes_over_from(&manager, &operation, ours.manager, ours.override_managers) {
                (manager, operation, fields(entry)).hash(&mut hash);
                entry.time.as_ref().map(|time| time.0.as_second()).hash(&mut hash);
            }
        }
        Self { version, print: hash.finish() }
    }

    /// Of an object as JSON; `None` when it has no metadata.
    pub fn of_value(object: &Value, ours: &Ours<'_>) -> Option<Self> {
        let metadata: ObjectMeta = serde_json::from_value(object.get("metadata")?.clone()).ok()?;
        Some(Self::of(&metadata, ours))
    }
}

fn fields(entry: &ManagedFieldsEntry) -> String {
    entry.fields_v1.as_ref().map(|fields| fields.0.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn print(version: &str, owner: &str, entries: Value) -> Fingerprint {
        let object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version,
            "labels": {"kustomize.toolkit.fluxcd.io/name": owner}, "managedFields": entries}});
        let ours = Ours { manager: "kc", override_managers: &[], labels: "kustomize.toolkit.fluxcd.io" };
        Fingerprint::of_value(&object, &ours).unwrap()
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn only_what_an_apply_would_put_back_leaves_a_trace() {
        let ours = || entry("kc", "Apply", "", json!({"f:spec": {"f:replicas": {}}}));
        let before = print("1", "apps", json!([ours()]));
        let status = entry("kube-controller-manager", "Update", "status", json!({"f:status": {}}));
        let elsewhere = entry("webhook", "Update", "", json!({"f:metadata": {"f:annotations": {}}}));
        let same = print("2", "apps", json!([ours(), status, elsewhere]));
        assert_eq!((before.print, before.version, same.version), (same.print, 1, 2));
        let lost = entry("kc", "Apply", "", json!({"f:spec": {}}));
        let added = entry("kubectl-edit", "Update", "", json!({"f:data": {"f:more": {}}}));
        for other in [
            print("2", "apps", json!([lost])),
            print("2", "apps", json!([ours(), added])),
            print("2", "other", json!([ours()])),
            print("2", "apps", json!([])),
        ] {
            assert_ne!(other.print, before.print);
        }
    }
}
