//! Built objects made ready for the API server: whose they are, what everyone wants on them, nothing the server
//! owns. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::meta::CommonMetadata;
use flux_apply::Owner;
use serde_json::{Map, Value};

/// Labels, commonMetadata and clean-up, in upstream's order.
pub fn prepare(objects: &mut [Value], owner: &Owner, common: Option<&CommonMetadata>) {
    for object in objects {
        for (key, value) in owner.labels() {
            set(object, "labels", &key, &value);
        }
        normalize(object);
        if let Some(common) = common {
            for (key, value) in &common.labels {
                set(object, "labels", key, value);
            }
            for (key, value) in &common.annotations {
                set(object, "annotations", key, value);
            }
        }
    }
}

/// Takes `List`s apart and drops what is no object of a cluster.
pub fn flatten(objects: Vec<Value>) -> Vec<Value> {
    let mut flat = Vec::new();
    for object in objects {
        let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        match object.get("items").and_then(Value::as_array) {
            Some(items) if is_list => flat.extend(flatten(items.clone())),
            _ if is_object(&object) => flat.push(object),
            _ => {}
        }
    }
    flat
}

fn is_object(object: &Value) -> bool {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kustomization =
        text("/kind") == "Kustomization" && text("/apiVersion").starts_with("kustomize.config.k8s.io");
    !kustomization
        && !text("/apiVersion").is_empty()
        && !text("/kind").is_empty()
        && !text("/metadata/name").is_empty()
}

fn set(object: &mut Value, place: &str, key: &str, value: &str) {
    let Some(metadata) = entry(object, "metadata") else { return };
    if !metadata.get(place).is_some_and(Value::is_object) {
        metadata.insert(place.to_owned(), Value::Object(Map::new()));
    }
    if let Some(Value::Object(map)) = metadata.get_mut(place) {
        map.insert(key.to_owned(), Value::String(value.to_owned()));
    }
}

fn entry<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    object.as_object_mut()?.entry(key).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

fn normalize(object: &mut Value) {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(metadata) = entry(object, "metadata") {
        metadata.remove("creationTimestamp");
    }
    // A CRD's status is kept as upstream keeps it; anybody else's is the cluster's business.
    if kind != "CustomResourceDefinition"
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    if kind == "Secret" && object.get("apiVersion").and_then(Value::as_str) == Some("v1") {
        merge_string_data(object);
    }
}

/// The server does this on write; doing it here keeps dry-run and live comparable.
fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.as_object_mut().and_then(|fields| fields.remove("stringData"))
    else {
        return;
    };
    if let Some(data) = entry(secret, "data") {
        for (key, value) in texts {
            let text = value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
            data.insert(key, Value::String(STANDARD.encode(text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owner() -> Owner {
        Owner {
            prefix: "kustomize.toolkit.fluxcd.io",
            name: "apps".to_owned(),
            namespace: "flux-system".to_owned(),
        }
    }

    #[test]
    fn objects_carry_their_owner_and_no_status() {
        let mut objects = [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "creationTimestamp": null}, "status": {}}),
        ];
        prepare(&mut objects, &owner(), None);
        assert_eq!(
            objects[0],
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {
                "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}}})
        );
    }

    #[test]
    fn string_data_becomes_data() {
        let mut objects = [
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}, "data": {"k": "b2xk", "o": "eA=="}}),
        ];
        prepare(&mut objects, &owner(), None);
        assert_eq!(objects[0]["data"], json!({"k": "dg==", "o": "eA=="}));
        assert!(objects[0].get("stringData").is_none());
    }

    #[test]
    fn lists_are_taken_apart() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
            {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "metadata": {"name": "k"}},
        ]});
        assert_eq!(flatten(vec![list]).len(), 1);
    }
}
