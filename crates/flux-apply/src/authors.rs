//! Who changed which field: from the difference between what is there and what an apply makes of it, and the managed
//! fields of what is there. Names only, never values. Pure.

use json_patch::PatchOperation;
use serde_json::{Map, Value};

/// Fields that are named for each object; more are counted.
const MOST: usize = 5;

/// A field that is not as applied, and who set it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignField {
    /// A JSON pointer; empty where only the manager is known.
    pub path: String,
    pub author: Option<Author>,
}

/// From an entry of the managed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    pub manager: String,
    pub operation: String,
    pub time: String,
    /// It scales things, and will do so again.
    pub is_autoscaler: bool,
}

impl std::fmt::Display for ForeignField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let field = if self.path.is_empty() { "fields" } else { &self.path };
        let Some(author) = &self.author else { return write!(f, "{field}") };
        write!(f, "{field} set by {} ({}) at {}", author.manager, author.operation, author.time)
    }
}

/// The fields in which `live` differs from `wanted`, with whoever set them last; a few of them and how many more.
pub fn foreign_fields(live: &Value, wanted: &Value, manager: &str) -> (Vec<ForeignField>, usize) {
    let mut paths: Vec<String> = json_patch::diff(&marks(live), &marks(wanted))
        .0
        .iter()
        .chain(json_patch::diff(&body(live), &body(wanted)).0.iter())
        .map(|operation: &PatchOperation| operation.path().to_string())
        .collect();
    paths.sort();
    paths.dedup();
    let more = paths.len().saturating_sub(MOST);
    paths.truncate(MOST);
    let named = |path: String| ForeignField { author: author(live, &path, manager), path };
    (paths.into_iter().map(named).collect(), more)
}

/// The managers whose fields are about to be taken over.
pub fn taken_over(live: &Value, is_taken_over: impl Fn(&str, &str) -> bool) -> Vec<ForeignField> {
    entries(live)
        .filter(|entry| {
            text(entry, "subresource").is_empty()
                && is_taken_over(text(entry, "manager"), text(entry, "operation"))
        })
        .map(|entry| ForeignField { path: String::new(), author: Some(read(entry)) })
        .take(MOST)
        .collect()
}

fn marks(object: &Value) -> Value {
    let mut metadata = Map::new();
    for place in ["labels", "annotations"] {
        let map = object.pointer(&format!("/metadata/{place}")).cloned();
        metadata.insert(place.to_owned(), map.unwrap_or_else(|| Value::Object(Map::new())));
    }
    Value::Object(Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]))
}

/// What an object is beside its metadata and status.
pub fn body(object: &Value) -> Value {
    let mut rest = object.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.remove("metadata");
        fields.remove("status");
    }
    rest
}

fn entries(live: &Value) -> impl Iterator<Item = &Value> {
    live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn read(entry: &Value) -> Author {
    let manager = text(entry, "manager").to_owned();
    let scales = text(entry, "subresource") == "scale"
        || ["keda", "vpa-", "horizontal-pod-autoscaler"].iter().any(|prefix| manager.starts_with(prefix));
    Author {
        is_autoscaler: scales && !manager.starts_with("kubectl"),
        manager,
        operation: text(entry, "operation").to_owned(),
        time: text(entry, "time").to_owned(),
    }
}

/// The manager, other than ours, that owns a field or something around or in it; the latest of several.
pub fn author(live: &Value, path: &str, manager: &str) -> Option<Author> {
    let steps: Vec<String> =
        path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let others = entries(live).filter(|entry| text(entry, "manager") != manager);
    let owners = others.filter(|entry| entry.get("fieldsV1").is_some_and(|fields| owns(fields, &steps)));
    owners.max_by_key(|entry| text(entry, "time")).map(read)
}

fn owns(fields: &Value, steps: &[String]) -> bool {
    let Some((step, rest)) = steps.split_first() else { return true };
    let Some(fields) = fields.as_object() else { return false };
    if let Some(inner) = fields.get(&format!("f:{step}")) {
        return inner.as_object().is_some_and(Map::is_empty) || owns(inner, rest);
    }
    // Into a list: its elements are named by key or value, not by where they stand.
    step.parse::<usize>().is_ok()
        && fields.iter().any(|(key, inner)| {
            key.starts_with("v:") || (key.starts_with("k:") && (rest.is_empty() || owns(inner, rest)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_named_with_their_authors_and_without_their_values() {
        let live = json!({
            "metadata": {"labels": {"a": "x"}, "managedFields": [
                {"manager": "kc", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {
                    "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}},
                {"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale", "time": "2026-01-03T00:00:00Z",
                    "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            ]},
            "spec": {"replicas": 3, "containers": [{"name": "c", "image": "s3cret"}], "other": 1},
        });
        let mut wanted = live.clone();
        wanted["spec"] = json!({"replicas": 1, "containers": [{"name": "c", "image": "git"}], "other": 2});
        let (fields, more) = foreign_fields(&live, &wanted, "kc");
        let shown: Vec<String> = fields.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "/spec/containers/0/image set by kubectl-edit (Update) at 2026-01-02T00:00:00Z",
                "/spec/other",
                "/spec/replicas set by kube-controller-manager (Update) at 2026-01-03T00:00:00Z",
            ]
        );
        assert_eq!(more, 0);
        assert!(fields[2].author.as_ref().unwrap().is_autoscaler);
        assert!(!fields[0].author.as_ref().unwrap().is_autoscaler);
        let many: Map<String, Value> = (0..9).map(|n| (format!("k{n}"), json!(n))).collect();
        let (fields, more) = foreign_fields(&json!({}), &json!({"data": many}), "kc");
        assert_eq!((fields.len(), more), (1, 0), "a whole field that is missing is one difference");
    }
}
