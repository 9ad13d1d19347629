//! ConfigMaps, Secrets, claims and bindings.

use base64::Engine as _;
use serde_json::Value;

use super::names;
use crate::object::text;
use crate::status::Cause;

/// All data together may not be larger than this.
const DATA_LIMIT: usize = 1 << 20;

pub(super) fn config_map(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in new[field].as_object().into_iter().flatten() {
            if let Some(problem) = names::config_key(key) {
                causes.push(Cause::invalid(format!("{field}[{key}]"), &Value::from(key.as_str()), &problem));
            }
            if field == "binaryData" && new["data"].get(key).is_some() {
                let detail = format!("duplicate of key present in data: {key}");
                causes.push(Cause::invalid(format!("data[{key}]"), &Value::from(key.as_str()), &detail));
            }
            size += value
                .as_str()
                .map_or(0, |text| if field == "data" { text.len() } else { text.len() / 4 * 3 });
        }
    }
    if size > DATA_LIMIT {
        causes.push(Cause::too_long("", DATA_LIMIT));
    }
    immutable(old, new, &["data", "binaryData"], causes);
}

/// Once immutable, neither the data nor the mark can change.
fn immutable(old: Option<&Value>, new: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    let detail = "field is immutable when `immutable` is set";
    if new["immutable"] != true {
        causes.push(Cause::forbidden("immutable", detail));
    }
    let changed = fields.iter().filter(|field| old.get(**field) != new.get(**field));
    causes.extend(changed.map(|field| Cause::forbidden(*field, detail)));
}

pub(super) fn secret(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in new["data"].as_object().into_iter().flatten() {
        if let Some(problem) = names::config_key(key) {
            causes.push(Cause::invalid(format!("data[{key}]"), &Value::from(key.as_str()), &problem));
        }
        size += value.as_str().map_or(0, |text| text.len() / 4 * 3);
    }
    if size > DATA_LIMIT {
        causes.push(Cause::too_long("data", DATA_LIMIT));
    }
    secret_type(new, causes);
    if let Some(old) = old
        && old["type"] != new["type"]
    {
        causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
    }
    immutable(old, new, &["data"], causes);
}

fn secret_type(secret: &Value, causes: &mut Vec<Cause>) {
    let mut needs = |key: &str| {
        if secret["data"].get(key).is_none() {
            causes.push(Cause::required(format!("data[{key}]"), ""));
        }
    };
    match text(secret, "/type") {
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().for_each(needs),
        "kubernetes.io/ssh-auth" => needs("ssh-privatekey"),
        "kubernetes.io/basic-auth"
            if ["username", "password"].iter().all(|key| secret["data"].get(key).is_none()) =>
        {
            ["username", "password"].into_iter().for_each(needs);
        }
        kind @ ("kubernetes.io/dockerconfigjson" | "kubernetes.io/dockercfg") => {
            let key = if kind.ends_with("json") { ".dockerconfigjson" } else { ".dockercfg" };
            needs(key);
            // What is wrong is told without the value.
            let bytes = secret["data"][key]
                .as_str()
                .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
            if let Some(bytes) = bytes
                && serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).is_err()
            {
                let detail = "invalid character in JSON";
                causes.push(Cause::invalid(
                    format!("data[{key}]"),
                    &Value::from("<secret contents redacted>"),
                    detail,
                ));
            }
        }
        "kubernetes.io/service-account-token" => {
            let annotation = "kubernetes.io/service-account.name";
            if crate::object::annotation(secret, annotation).unwrap_or_default().is_empty() {
                causes.push(Cause::required(format!("metadata.annotations[{annotation}]"), ""));
            }
        }
        _ => {}
    }
}

pub(super) fn claim(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    if new["spec"]["accessModes"].as_array().is_none_or(Vec::is_empty) {
        causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if text(new, "/spec/resources/requests/storage").is_empty() {
        causes.push(Cause::required("spec.resources[storage]", ""));
    }
    let Some(old) = old else { return };
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            for free in ["resources", "volumeName", "volumeAttributesClassName"] {
                fields.remove(free);
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", detail));
    }
}

pub(super) fn binding(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    if let Some(old) = old
        && old["roleRef"] != new["roleRef"]
    {
        // Shown with the names of Go's fields.
        let shown = serde_json::json!({
            "APIGroup": new["roleRef"]["apiGroup"], "Kind": new["roleRef"]["kind"], "Name": new["roleRef"]["name"],
        });
        causes.push(Cause::invalid("roleRef", &shown, "cannot change roleRef"));
        return;
    }
    let kind = text(new, "/roleRef/kind");
    let kinds: &[&str] =
        if text(new, "/kind") == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&kind) {
        causes.push(Cause::not_supported("roleRef.kind", &Value::from(kind), kinds));
    }
    if text(new, "/roleRef/name").is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (at, subject) in new["subjects"].as_array().into_iter().flatten().enumerate() {
        let field = |name: &str| format!("subjects[{at}].{name}");
        if text(subject, "/name").is_empty() {
            causes.push(Cause::required(field("name"), ""));
        }
        match text(subject, "/kind") {
            "ServiceAccount" if text(subject, "/namespace").is_empty() => {
                causes.push(Cause::required(field("namespace"), ""))
            }
            "ServiceAccount" | "User" | "Group" => {}
            other => causes.push(Cause::not_supported(
                field("kind"),
                &Value::from(other),
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
}
