//! Defaults of storage, limits, and definitions.

use serde_json::{Value, json};

use super::{child, child_of, each, fields, set, set_all};

/// `stringData` is for writing only: it becomes `data`.
pub(super) fn secret(value: &mut Value) {
    use base64::Engine as _;
    let fields = fields(value);
    set(fields, "type", json!("Opaque"));
    let Some(Value::Object(plain)) = fields.remove("stringData") else { return };
    let data = child_of(fields, "data");
    for (key, value) in plain {
        let text = value.as_str().unwrap_or_default();
        data.insert(key, base64::engine::general_purpose::STANDARD.encode(text).into());
    }
    if data.is_empty() {
        fields.remove("data");
    }
}

pub(super) fn claim(value: &mut Value) {
    set(fields(child(value, "spec")), "volumeMode", json!("Filesystem"));
    set(fields(child(value, "status")), "phase", json!("Pending"));
}

pub(super) fn volume(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    set_all(spec, [("persistentVolumeReclaimPolicy", json!("Retain")), ("volumeMode", json!("Filesystem"))]);
    if let Some(path) = super::get(spec, "hostPath") {
        set(path, "type", json!(""));
    }
    set(fields(child(value, "status")), "phase", json!("Pending"));
}

pub(super) fn storage_class(value: &mut Value) {
    set_all(fields(value), [("reclaimPolicy", json!("Delete")), ("volumeBindingMode", json!("Immediate"))]);
}

pub(super) fn csi_driver(value: &mut Value) {
    set_all(
        fields(child(value, "spec")),
        [
            ("attachRequired", json!(true)),
            ("podInfoOnMount", json!(false)),
            ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
            ("storageCapacity", json!(false)),
            ("requiresRepublish", json!(false)),
            ("seLinuxMount", json!(false)),
            ("volumeLifecycleModes", json!(["Persistent"])),
        ],
    );
}

/// A container's limit is its default, and its default limit the default request.
pub(super) fn limit_range(value: &mut Value) {
    for item in each(fields(child(value, "spec")), "limits") {
        if item.get("type") != Some(&json!("Container")) {
            continue;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(source) = item.get(from).and_then(Value::as_object).cloned() else { continue };
            let target = child_of(item, to);
            for (name, amount) in source {
                target.entry(name).or_insert(amount);
            }
        }
    }
}

pub(super) fn definition(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    let names = child_of(spec, "names");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (key, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            names.insert(key.into(), value.into());
        }
    }
    set(child_of(spec, "conversion"), "strategy", json!("None"));
    // False is "not said" in v1.
    if spec.get("preserveUnknownFields") == Some(&json!(false)) {
        spec.remove("preserveUnknownFields");
    }
}

pub(super) fn api_service(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    if let Some(service) = super::get(spec, "service") {
        set(service, "port", json!(443));
    }
}
