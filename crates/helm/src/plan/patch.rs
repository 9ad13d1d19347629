//! The patch that takes a live object from what the old release wanted to what the new one wants.

use kube_schema::Schemas;
use kube_schema::strategic_merge;
use serde_json::{Map, Value as Json};

use super::Object;

#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    pub kind: PatchType,
    pub body: Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/merge-patch+json`
    Merge,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("{kind} {name}: {cause}")]
    Strategic { kind: String, name: String, cause: String },
    #[error("{kind} {name}: at least one field was changed: apiVersion, kind or name")]
    Precondition { kind: String, name: String },
}

/// Builtin kinds are merged strategically and three ways; others, and CRDs, by a JSON merge patch. That one looks at old and new
/// only, as Helm does, unless `three_way_for_others` (taking ownership of an object that is not ours yet). `None`: nothing to do.
pub fn create_patch(
    old: &Json,
    new: &Object,
    live: &Json,
    three_way_for_others: bool,
) -> Result<Option<Patch>, PatchError> {
    let is_crd =
        new.key.kind == "CustomResourceDefinition" && new.api_version == "apiextensions.k8s.io/v1beta1";
    let schema = Schemas::kubernetes()
        .kind_of(&new.api_version, &new.key.kind)
        .and_then(|kind| kind.schema())
        .filter(|_| !is_crd);
    let (kind, body) = match schema {
        Some(schema) => {
            let patch = strategic_merge::three_way(old, &new.json, live, schema).map_err(|cause| {
                PatchError::Strategic {
                    kind: new.key.kind.clone(),
                    name: new.key.name.clone(),
                    cause: cause.to_string(),
                }
            })?;
            (PatchType::Strategic, patch)
        }
        None if three_way_for_others => (PatchType::Merge, three_way(old, new, live)?),
        None => (PatchType::Merge, two_way(old, &new.json)),
    };
    let empty = body.as_object().is_some_and(Map::is_empty);
    Ok((!empty).then_some(Patch { kind, body }))
}

/// The JSON merge patch (RFC 7386) from one document to another.
fn two_way(from: &Json, to: &Json) -> Json {
    match (from, to) {
        (Json::Object(from), Json::Object(to)) => Json::Object(object_diff(from, to, true)),
        (_, to) => to.clone(),
    }
}

fn object_diff(from: &Map<String, Json>, to: &Map<String, Json>, deletions: bool) -> Map<String, Json> {
    let mut patch = Map::new();
    for (key, after) in to {
        match (from.get(key), after) {
            (Some(Json::Object(before)), Json::Object(after)) => {
                let inner = object_diff(before, after, deletions);
                if !inner.is_empty() {
                    patch.insert(key.clone(), Json::Object(inner));
                }
            }
            (Some(before), after) if before == after => {}
            (_, after) => {
                patch.insert(key.clone(), after.clone());
            }
        }
    }
    if deletions {
        patch.extend(from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Json::Null)));
    }
    patch
}

/// Additions and changes against the live object, deletions against the old manifest.
fn three_way(old: &Json, new: &Object, live: &Json) -> Result<Json, PatchError> {
    let empty = Map::new();
    let fields = |json: &Json| json.as_object().cloned().unwrap_or_default();
    let (old, live) = (fields(old), fields(live));
    let target = new.json.as_object().unwrap_or(&empty);
    let mut patch = object_diff(&live, target, false);
    let deletions = only_nulls(object_diff(&old, target, true));
    merge_into(&mut patch, deletions);
    let touches = |path: &[&str]| {
        let mut at = Some(&patch);
        for part in &path[..path.len() - 1] {
            at = at.and_then(|fields| fields.get(*part)).and_then(Json::as_object);
        }
        at.is_some_and(|fields| fields.contains_key(path[path.len() - 1]))
    };
    if touches(&["apiVersion"]) || touches(&["kind"]) || touches(&["metadata", "name"]) {
        return Err(PatchError::Precondition { kind: new.key.kind.clone(), name: new.key.name.clone() });
    }
    Ok(Json::Object(patch))
}

fn only_nulls(patch: Map<String, Json>) -> Map<String, Json> {
    patch
        .into_iter()
        .filter_map(|(key, value)| match value {
            Json::Null => Some((key, Json::Null)),
            Json::Object(inner) => {
                let inner = only_nulls(inner);
                (!inner.is_empty()).then_some((key, Json::Object(inner)))
            }
            _ => None,
        })
        .collect()
}

fn merge_into(base: &mut Map<String, Json>, over: Map<String, Json>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Json::Object(base)), Json::Object(over)) => merge_into(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::object::{Builtin, Object};
    use super::*;

    fn object(json: Json) -> Object {
        Object::new(json, "ns", &Builtin).unwrap()
    }

    #[test]
    fn a_builtin_kind_is_merged_three_ways() {
        let base = |image: &str| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
        };
        let mut live = base("v1");
        live["spec"]["template"]["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "injected", "image": "x"}));
        let patch = create_patch(&base("v1"), &object(base("v2")), &live, false).unwrap().unwrap();
        assert_eq!(patch.kind, PatchType::Strategic);
        assert_eq!(
            patch.body["spec"]["template"]["spec"]["containers"],
            json!([{"image": "v2", "name": "c"}])
        );
        assert_eq!(create_patch(&base("v1"), &object(base("v1")), &base("v1"), false), Ok(None));
    }

    #[test]
    fn a_custom_resource_is_patched_by_what_changed_in_the_chart() {
        let old =
            json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"a": 1, "b": 2}});
        let new = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"a": 3}});
        let live = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"a": 1, "b": 2, "c": 4}});
        let patch = create_patch(&old, &object(new.clone()), &live, false).unwrap().unwrap();
        assert_eq!((patch.kind, patch.body), (PatchType::Merge, json!({"spec": {"a": 3, "b": null}})));
        let patch = create_patch(&new, &object(new.clone()), &live, true).unwrap().unwrap();
        assert_eq!(patch.body, json!({"spec": {"a": 3}}));
    }
}
