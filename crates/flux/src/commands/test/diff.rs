//! What two revisions of a fleet make of a cluster, object by object. Values of Secrets are not shown.

use std::collections::BTreeMap;

use anyhow::Result;
use flux_apply::discovery::Mapper;
use kube::Client;
use serde_json::Value;
use sha2::{Digest, Sha256};
use similar::TextDiff;

use crate::fleet::Seen;

/// `Kind/namespace/name` → the object as YAML, without what the server adds.
pub(super) type Objects = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Changed,
    Deleted,
}

impl Change {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Changed => "changed",
            Change::Deleted => "deleted",
        }
    }
}

pub(super) struct ObjectChange {
    pub(super) id: String,
    pub(super) change: Change,
    /// A unified diff.
    pub(super) text: String,
}

/// Reads everything that stands in an inventory.
pub(super) async fn collect(client: &Client, objects: &[Seen]) -> Result<Objects> {
    let mapper = Mapper::new(client.clone());
    let mut found = Objects::new();
    for owner in objects {
        let entries = owner.object.pointer("/status/inventory/entries").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let (Some(id), Some(version)) = (entry["id"].as_str(), entry["v"].as_str()) else { continue };
            let Some(id) = flux_apply::ObjectId::from_inventory(id, version) else { continue };
            // What was applied and is gone again, with its kind or without, is no part of the outcome.
            let Ok(api) = mapper.api(client, &id).await else { continue };
            let live = match api.get(&id.name).await {
                Ok(live) => live,
                Err(kube::Error::Api(answer)) if answer.code == 404 => continue,
                Err(error) => return Err(error.into()),
            };
            let mut live = serde_json::to_value(&live)?;
            live["apiVersion"] = id.api_version().into();
            live["kind"] = id.kind.clone().into();
            let name = match id.namespace.as_str() {
                "" => format!("{}/{}", id.kind, id.name),
                namespace => format!("{}/{namespace}/{}", id.kind, id.name),
            };
            found.insert(name, yaml::to_yaml_sigs(&plain(live))?);
        }
    }
    Ok(found)
}

/// Without status and what the server writes; Secrets with digests in place of values.
fn plain(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in ["managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"]
        {
            metadata.remove(key);
        }
    }
    if object["kind"] == "Service" {
        allocated(&mut object["spec"]);
    }
    if object["kind"] == "Secret" {
        for key in ["data", "stringData"] {
            for value in object[key].as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
                *value = masked(value.as_str().unwrap_or_default()).into();
            }
        }
    }
    object
}

/// Addresses and ports that a server picks, another one each time.
fn allocated(spec: &mut Value) {
    // A headless Service is so on purpose.
    if spec["clusterIP"] != "None"
        && let Some(spec) = spec.as_object_mut()
    {
        for key in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(key);
        }
    }
    for port in spec["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

/// Equal values look equal, and nothing else can be told from it: the digest is of something with a secret in it, cut
/// to 32 bits.
fn masked(value: &str) -> String {
    let digest = Sha256::digest(value);
    let short: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("*** ({short})")
}

/// What happens to each object on the way from `before` to `after`.
pub(super) fn changes(before: &Objects, after: &Objects) -> Vec<ObjectChange> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut changes = Vec::new();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        let change = match (old, new) {
            (None, _) => Change::Created,
            (_, None) => Change::Deleted,
            (Some(old), Some(new)) if old != new => Change::Changed,
            (Some(_), Some(_)) => continue,
        };
        let (old, new) = (old.map_or("", String::as_str), new.map_or("", String::as_str));
        let text = TextDiff::from_lines(old, new).unified_diff().context_radius(3).to_string();
        changes.push(ObjectChange { id: name.clone(), change, text });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_changes_without_being_shown() {
        let secret = |value: &str| {
            let object =
                json!({ "kind": "Secret", "metadata": { "name": "a", "uid": "1" }, "data": { "k": value } });
            yaml::to_yaml_sigs(&plain(object)).unwrap()
        };
        let before = Objects::from([("Secret/n/a".to_owned(), secret("aHVudGVyMg=="))]);
        let after = Objects::from([("Secret/n/a".to_owned(), secret("c2VjcmV0"))]);
        let changes = changes(&before, &after);
        assert_eq!(changes[0].change, Change::Changed);
        let text = &changes[0].text;
        assert!(!text.contains("aHVudGVyMg") && !text.contains("c2VjcmV0") && text.contains("***"), "{text}");
        assert!(!text.contains("uid"));
    }

    #[test]
    fn what_is_new_gone_or_other_is_told_and_nothing_else() {
        let objects = |pairs: &[(&str, &str)]| -> Objects {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let before = objects(&[("a", "x: 1\n"), ("b", "x: 1\n"), ("c", "x: 1\n")]);
        let after = objects(&[("a", "x: 1\n"), ("b", "x: 2\n"), ("d", "x: 1\n")]);
        let found: Vec<(String, &str)> =
            changes(&before, &after).into_iter().map(|change| (change.id, change.change.as_str())).collect();
        let expected = [("b", "changed"), ("c", "deleted"), ("d", "created")];
        assert_eq!(found, expected.map(|(id, change)| (id.to_owned(), change)));
    }
}
