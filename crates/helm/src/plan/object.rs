//! Objects of a release: what identifies them, who owns them, and which kinds live in a namespace.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::Dialect;
use crate::manifest::split_manifests;
use crate::quote::go_quote;

/// What Helm compares objects by. The version is not part of it: one CRD serves several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub group: String,
    pub kind: String,
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub key: ObjectKey,
    pub api_version: String,
    pub json: Json,
}

/// Live objects by key. What is not in it does not exist.
pub type Live = BTreeMap<ObjectKey, Json>;

/// Knows which kinds live in namespaces.
pub trait Kinds {
    /// `None` for a kind nobody knows.
    fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool>;
}

/// The kinds of Kubernetes itself.
pub struct Builtin;

impl Kinds for Builtin {
    fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        kube_schema::Schemas::kubernetes().kind_of(api_version, kind)?.namespaced()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    #[error("{0}")]
    Yaml(String),
    #[error("Object '{0}' is missing in its manifest")]
    Missing(&'static str),
    #[error("metadata.name and metadata.generateName cannot both be set")]
    TwoNames,
    #[error("{kind} {} in namespace {} exists and cannot be imported into the current release: {cause}", go_quote(.name), go_quote(.namespace))]
    NotOurs { kind: String, name: String, namespace: String, cause: String },
}

/// The objects of a release manifest, lists opened up, in the order they stand.
pub fn objects_of(manifest: &str, namespace: &str, kinds: &dyn Kinds) -> Result<Vec<Object>, ObjectError> {
    let mut found = Vec::new();
    for document in split_manifests(manifest, Dialect::Helm4) {
        let json = crate::document::parse(document.as_bytes()).map_err(ObjectError::Yaml)?;
        collect(json, namespace, kinds, &mut found)?;
    }
    Ok(found)
}

fn collect(
    json: Json,
    namespace: &str,
    kinds: &dyn Kinds,
    found: &mut Vec<Object>,
) -> Result<(), ObjectError> {
    let Json::Object(mut fields) = json else { return Ok(()) };
    if fields.is_empty() {
        return Ok(());
    }
    let is_list = fields.get("kind").and_then(Json::as_str).is_some_and(|kind| kind.ends_with("List"));
    if is_list && fields.get("items").is_some_and(Json::is_array) {
        let Some(Json::Array(items)) = fields.remove("items") else { return Ok(()) };
        return items.into_iter().try_for_each(|item| collect(item, namespace, kinds, found));
    }
    found.push(Object::new(Json::Object(fields), namespace, kinds)?);
    Ok(())
}

impl Object {
    /// An object of a release; without a namespace of its own it lives in the release's.
    pub fn new(json: Json, namespace: &str, kinds: &dyn Kinds) -> Result<Object, ObjectError> {
        let text =
            |pointer: &str| json.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        if kind.is_empty() {
            return Err(ObjectError::Missing("Kind"));
        }
        if api_version.is_empty() {
            return Err(ObjectError::Missing("apiVersion"));
        }
        let namespace = match (kinds.is_namespaced(&api_version, &kind), text("/metadata/namespace")) {
            (Some(false), _) => String::new(),
            (_, own) if own.is_empty() => namespace.to_owned(),
            (_, own) => own,
        };
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        let key = ObjectKey { group, kind, namespace, name: text("/metadata/name") };
        Ok(Object { key, api_version, json })
    }

    /// Whether the server makes up the name.
    pub(super) fn is_generated(&self) -> Result<bool, ObjectError> {
        let generate =
            self.json.pointer("/metadata/generateName").and_then(Json::as_str).is_some_and(|g| !g.is_empty());
        match (self.key.name.is_empty(), generate) {
            (true, true) => Ok(true),
            (false, true) => Err(ObjectError::TwoNames),
            (_, false) => Ok(false),
        }
    }
}

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// Marks an object as belonging to a release.
pub fn own(object: &mut Json, release: &str, namespace: &str) {
    put(object, "labels", MANAGED_BY, "Helm");
    put(object, "annotations", RELEASE_NAME, release);
    put(object, "annotations", RELEASE_NAMESPACE, namespace);
}

fn put(object: &mut Json, map: &str, key: &str, value: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let Some(metadata) = metadata.as_object_mut() else { return };
    let entries = metadata.entry(map).or_insert_with(|| json!({}));
    if !entries.is_object() {
        *entries = json!({});
    }
    if let Some(entries) = entries.as_object_mut() {
        entries.insert(key.to_owned(), Json::String(value.to_owned()));
    }
}

/// Whether a live object belongs to a release, or why not.
pub fn check_ownership(live: &Json, release: &str, namespace: &str) -> Result<(), String> {
    let wanted = [
        ("label", "labels", MANAGED_BY, "Helm"),
        ("annotation", "annotations", RELEASE_NAME, release),
        ("annotation", "annotations", RELEASE_NAMESPACE, namespace),
    ];
    let mut wrong = Vec::new();
    for (what, map, key, value) in wanted {
        let found = live
            .pointer("/metadata")
            .and_then(|m| m.get(map))
            .and_then(|m| m.get(key))
            .and_then(Json::as_str);
        let (key, value) = (go_quote(key), go_quote(value));
        match found {
            None => wrong.push(format!("{what} validation error: missing key {key}: must be set to {value}")),
            Some(found) if go_quote(found) != value => {
                wrong.push(format!(
                    "{what} validation error: key {key} must equal {value}: current value is {}",
                    go_quote(found)
                ));
            }
            Some(_) => {}
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("invalid ownership metadata; {}", wrong.join("; "))) }
}

/// Those of `objects` that exist already and may be taken over; the first that may not is an error.
pub(super) fn adopted<'o>(
    objects: impl Iterator<Item = &'o Object>,
    live: &Live,
    release: (&str, &str),
    take_ownership: bool,
) -> Result<Vec<&'o Object>, ObjectError> {
    let mut found = Vec::new();
    for object in objects {
        if object.is_generated()? {
            continue;
        }
        let Some(existing) = live.get(&object.key) else { continue };
        if !take_ownership {
            check_ownership(existing, release.0, release.1).map_err(|cause| ObjectError::NotOurs {
                kind: object.key.kind.clone(),
                name: object.key.name.clone(),
                namespace: object.key.namespace.clone(),
                cause,
            })?;
        }
        found.push(object);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_opened_and_namespaces_filled_in() {
        let manifest = "---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: a}}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: b, namespace: x}\n---\n# nothing\n";
        let found = objects_of(manifest, "ns", &Builtin).unwrap();
        let keys: Vec<_> = found
            .iter()
            .map(|o| (o.key.kind.as_str(), o.key.namespace.as_str(), o.key.name.as_str()))
            .collect();
        assert_eq!(keys, [("Service", "ns", "a"), ("ClusterRole", "", "b")]);
    }

    #[test]
    fn ownership_names_everything_that_is_missing() {
        let mut object = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "other"}}});
        let why = check_ownership(&object, "rel", "ns").unwrap_err();
        assert_eq!(
            why,
            "invalid ownership metadata; label validation error: missing key \"app.kubernetes.io/managed-by\": must be set to \"Helm\"; annotation validation error: key \"meta.helm.sh/release-name\" must equal \"rel\": current value is \"other\"; annotation validation error: missing key \"meta.helm.sh/release-namespace\": must be set to \"ns\""
        );
        own(&mut object, "rel", "ns");
        assert_eq!(check_ownership(&object, "rel", "ns"), Ok(()));
    }
}
