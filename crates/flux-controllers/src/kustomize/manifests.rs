//! Built objects made ready for the API server: whose they are, what everyone wants on them, nothing the server
//! owns. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::meta::CommonMetadata;
use flux_api::names::{DISABLED, KUSTOMIZE_DECRYPT};
use flux_apply::{ObjectId, Owner};
use serde_json::{Map, Value};

use super::typed;

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

/// Upstream reads labels and annotations as texts, and finds none when one of them is something else: a number that a
/// variable put there costs the object all it had. With it the server would refuse the object.
pub fn set(object: &mut Value, place: &str, key: &str, value: &str) {
    let Some(metadata) = entry(object, "metadata") else { return };
    let is_text = |known: &Value| known.as_object().is_some_and(|map| map.values().all(Value::is_string));
    if !metadata.get(place).is_some_and(is_text) {
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
    typed::drop_unknown(object);
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if let Some(metadata) = entry(object, "metadata") {
        metadata.remove("creationTimestamp");
    }
    if kind == "CustomResourceDefinition" {
        drop_invalid_bundle(object);
        // A CRD's status is kept as upstream keeps it; anybody else's is the cluster's business.
        return;
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    match (api_version.as_str(), kind.as_str()) {
        ("v1", "Secret") => merge_string_data(object),
        ("v1", "Service") => default_protocols(object.pointer_mut("/spec/ports")),
        ("v1", "Pod") => container_protocols(object, "/spec"),
        ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet") | ("batch/v1", "Job") => {
            container_protocols(object, "/spec/template/spec");
        }
        ("batch/v1", "CronJob") => container_protocols(object, "/spec/jobTemplate/spec/template/spec"),
        _ => {}
    }
}

/// The protocol is part of a port's key, and older servers do not fill it in for an apply.
fn default_protocols(ports: Option<&mut Value>) {
    let Some(Value::Array(ports)) = ports else { return };
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        let missing = port.get("protocol").and_then(Value::as_str).is_none_or(str::is_empty);
        if missing {
            port.insert("protocol".to_owned(), Value::String("TCP".to_owned()));
        }
    }
}

fn container_protocols(object: &mut Value, pod: &str) {
    let Some(Value::Array(containers)) = object.pointer_mut(&format!("{pod}/containers")) else { return };
    for container in containers {
        default_protocols(container.get_mut("ports"));
    }
}

/// Generators leave placeholders there, which the server refuses; whoever fills the bundle in does so later.
fn drop_invalid_bundle(definition: &mut Value) {
    let Some(Value::Object(client)) = definition.pointer_mut("/spec/conversion/webhook/clientConfig") else {
        return;
    };
    let Some(bundle) = client.get("caBundle").and_then(Value::as_str) else { return };
    let valid = STANDARD
        .decode(bundle)
        .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----"));
    if !valid {
        client.remove("caBundle");
    }
}

/// Secrets that are still encrypted, as one message. Applied, they would be useless and look as if they worked.
pub fn refuse_encrypted(objects: &[Value]) -> Result<(), String> {
    let is_encrypted = |object: &&Value| {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let mark = annotations.and_then(|map| map.get(KUSTOMIZE_DECRYPT)).and_then(Value::as_str);
        text("kind") == "Secret"
            && text("apiVersion") == "v1"
            && object.get("sops").is_some()
            && !mark.is_some_and(|mark| mark.eq_ignore_ascii_case(DISABLED))
    };
    let refused: Vec<String> = objects
        .iter()
        .filter(is_encrypted)
        .filter_map(ObjectId::of)
        .map(|id| {
            format!(
                "{id} is SOPS encrypted, configuring decryption is required for this secret to be reconciled"
            )
        })
        .collect();
    if refused.is_empty() { Ok(()) } else { Err(refused.join("\n")) }
}

/// The server does this on write; doing it here keeps dry-run and live comparable. A value that is no text is left for
/// the server to refuse.
fn merge_string_data(secret: &mut Value) {
    let is_text = |texts: &Value| texts.as_object().is_some_and(|texts| texts.values().all(Value::is_string));
    if !secret.get("stringData").is_some_and(is_text) {
        return;
    }
    let Some(Value::Object(texts)) = secret.as_object_mut().and_then(|fields| fields.remove("stringData"))
    else {
        return;
    };
    if let Some(data) = entry(secret, "data") {
        for (key, value) in texts {
            data.insert(key, Value::String(STANDARD.encode(value.as_str().unwrap_or_default())));
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
    fn labels_that_are_no_texts_are_lost_as_upstream_loses_them() {
        let mut objects = [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"app": 1, "b": "c"}, "annotations": {"n": 1}}}),
        ];
        prepare(&mut objects, &owner(), None);
        let labels = objects[0]["metadata"]["labels"].as_object().unwrap();
        assert!(
            labels.len() == 2 && labels.keys().all(|key| key.starts_with("kustomize.toolkit.fluxcd.io/"))
        );
        assert_eq!(objects[0]["metadata"]["annotations"], json!({"n": 1}), "nobody wants to add one");
    }

    #[test]
    fn ports_get_their_protocol_and_a_definition_keeps_its_status() {
        let mut objects = [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a"}, "status": {},
                "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Cg==", "url": "x"}}}}}),
        ];
        prepare(&mut objects, &owner(), None);
        assert_eq!(
            objects[0]["spec"]["ports"],
            json!([{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}])
        );
        assert_eq!(objects[1].pointer("/spec/template/spec/containers/0/ports/0/protocol").unwrap(), "TCP");
        assert_eq!(objects[2]["status"], json!({}));
        assert_eq!(
            objects[2].pointer("/spec/conversion/webhook/clientConfig").unwrap(),
            &json!({"url": "x"})
        );
    }

    #[test]
    fn a_secret_that_is_still_encrypted_is_refused_unless_it_asked_for_it() {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}, "sops": {}});
        let error = refuse_encrypted(&[secret.clone()]).unwrap_err();
        assert_eq!(
            error,
            "Secret/n/a is SOPS encrypted, configuring decryption is required for this secret to be reconciled"
        );
        secret["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/decrypt": "Disabled"});
        assert_eq!(refuse_encrypted(&[secret]), Ok(()));
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "sops": {}});
        assert_eq!(refuse_encrypted(&[other]), Ok(()));
    }

    #[test]
    fn string_data_becomes_data() {
        let mut objects = [
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}, "data": {"k": "b2xk", "o": "eA=="}}),
        ];
        prepare(&mut objects, &owner(), None);
        assert_eq!(objects[0]["data"], json!({"k": "dg==", "o": "eA=="}));
        assert!(objects[0].get("stringData").is_none());
        let mut objects = [
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": null}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}, "stringData": {"k": 1}}),
        ];
        prepare(&mut objects, &owner(), None);
        assert_eq!(objects[0]["data"], json!({"k": ""}));
        assert_eq!(objects[1]["stringData"], json!({"k": 1}), "the server says what is wrong with it");
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
