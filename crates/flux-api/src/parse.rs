//! From any JSON to a typed object, or to an error that names the field.
//!
//! Objects from the API server were checked against the CRD; those from files and from clusters with other CRDs were not. Reading a list
//! as one typed value would let a single malformed object hide all others: read objects one by one through here.

use serde_json::Value;

use crate::kinds::{self, Kind};
use crate::object::Object;

/// How deep an object may be nested. Kubernetes itself stops far earlier, at what its decoder takes.
pub const MAX_DEPTH: usize = 256;

/// Why a value is not the wanted object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No `apiVersion` or `kind`, or not a text.
    #[error("{0} is missing or not a string")]
    NoType(&'static str),
    /// Another kind or group, or a version that is not served.
    #[error("expected {expected}, got {api_version} {kind}")]
    OtherType {
        /// What was asked for, with every version it is served in.
        expected: String,
        /// What was found.
        api_version: String,
        /// What was found.
        kind: String,
    },
    /// A field that cannot be read.
    #[error("{kind} {namespace}/{name}: {path}: {message}")]
    Field {
        /// The kind.
        kind: &'static str,
        /// The object's namespace, or nothing.
        namespace: String,
        /// The object's name, or nothing.
        name: String,
        /// The field, such as `spec.dependsOn[0].name`.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// Nested too deep to be read safely.
    #[error("{0}: nested more than {MAX_DEPTH} levels deep")]
    TooDeep(&'static str),
}

/// Reads one object in any version its kind is served in. `null` counts as absent, as the API server has it, except in free-form values.
pub fn object<K: Object>(value: Value) -> Result<K, Error> {
    let kind = K::KIND;
    check_type(&value, kind)?;
    if is_deeper_than(&value, MAX_DEPTH) {
        return Err(Error::TooDeep(kind.kind));
    }
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let mut value = value;
    drop_nulls(&mut value, kind);
    serde_path_to_error::deserialize(value).map_err(|error| Error::Field {
        kind: kind.kind,
        namespace,
        name,
        path: error.path().to_string(),
        message: error.inner().to_string(),
    })
}

/// The row of the kind that the value says it is.
pub fn kind_of(value: &Value) -> Option<&'static Kind> {
    kinds::by_api_version(value.get("apiVersion")?.as_str()?, value.get("kind")?.as_str()?)
}

fn check_type(value: &Value, wanted: &Kind) -> Result<(), Error> {
    let text = |field: &'static str| value.get(field).and_then(Value::as_str).ok_or(Error::NoType(field));
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    if kinds::by_api_version(api_version, kind) == Some(wanted) {
        return Ok(());
    }
    let versions: Vec<_> = wanted.versions().map(|version| format!("{}/{version}", wanted.group)).collect();
    Err(Error::OtherType {
        expected: format!("{} {}", versions.join(" or "), wanted.kind),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })
}

/// Walks with a list of its own, so that depth costs memory and not stack.
fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let mut todo = vec![(value, 0)];
    while let Some((value, depth)) = todo.pop() {
        if depth > limit {
            return true;
        }
        match value {
            Value::Object(entries) => todo.extend(entries.values().map(|inner| (inner, depth + 1))),
            Value::Array(entries) => todo.extend(entries.iter().map(|inner| (inner, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

/// Free-form values keep their nulls: Helm deletes a key that is set to null.
fn drop_nulls(value: &mut Value, kind: &Kind) {
    let kept = match *kind {
        kinds::HELM_RELEASE => value.pointer_mut("/spec/values").map(Value::take),
        _ => None,
    };
    drop_nulls_below(value);
    if let Some(kept) = kept.filter(|kept| !kept.is_null())
        && let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("values".into(), kept);
    }
}

/// Not deeper than [`MAX_DEPTH`]: the caller has looked.
fn drop_nulls_below(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, entry| !entry.is_null());
            entries.values_mut().for_each(drop_nulls_below);
        }
        Value::Array(entries) => entries.iter_mut().for_each(drop_nulls_below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::helm::HelmRelease;
    use crate::kustomize::Kustomization;

    fn kustomization(spec: Value) -> Value {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": { "name": "apps", "namespace": "flux-system" },
            "spec": spec,
        })
    }

    fn refused(spec: Value) -> String {
        object::<Kustomization>(kustomization(spec)).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_object_and_field() {
        assert_eq!(
            refused(json!({ "interval": "1d", "prune": true })),
            "Kustomization flux-system/apps: spec.interval: unknown unit \"d\" in duration \"1d\": use h, m, s or ms"
        );
        assert_eq!(
            refused(
                json!({ "interval": "1m", "prune": true, "dependsOn": [{ "name": "a" }, { "name": 3 }] })
            ),
            "Kustomization flux-system/apps: spec.dependsOn[1].name: invalid type: integer `3`, expected a string"
        );
        assert_eq!(
            refused(json!({ "interval": "1m", "prune": true, "deletionPolicy": "Keep" })),
            "Kustomization flux-system/apps: spec.deletionPolicy: \"Keep\" is not one of MirrorPrune, Delete, WaitForTermination, Orphan"
        );
    }

    #[test]
    fn another_kind_is_not_taken_for_this_one() {
        let other = json!({ "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization" });
        assert_eq!(
            object::<Kustomization>(other).unwrap_err().to_string(),
            "expected kustomize.toolkit.fluxcd.io/v1 or kustomize.toolkit.fluxcd.io/v1beta2 Kustomization, \
             got kustomize.config.k8s.io/v1beta1 Kustomization"
        );
        assert!(matches!(object::<Kustomization>(json!([])), Err(Error::NoType("apiVersion"))));
    }

    #[test]
    fn nulls_are_absent_but_not_in_values() {
        let read: Kustomization = object(kustomization(
            json!({ "interval": "1m", "prune": true, "dependsOn": null, "suspend": null }),
        ))
        .unwrap();
        assert!(read.spec.depends_on.is_empty() && !read.spec.suspend);
        let release: HelmRelease = object(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2beta2",
            "kind": "HelmRelease",
            "metadata": { "name": "a" },
            "spec": { "interval": "1m", "values": { "image": null, "list": [null] }, "chart": null },
        }))
        .unwrap();
        assert_eq!(release.spec.values, Some(json!({ "image": null, "list": [null] })));
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let mut deep = json!(1);
        for _ in 0..1_000 {
            deep = json!([deep]);
        }
        let value = kustomization(json!({ "interval": "1m", "prune": true, "postBuild": deep }));
        let error = object::<Kustomization>(value).unwrap_err();
        assert_eq!(error.to_string(), "Kustomization: nested more than 256 levels deep");
    }
}
