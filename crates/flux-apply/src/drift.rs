//! Whether what is in the cluster differs from what an apply would make of it. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

/// Compares a live object with the result of a dry-run apply: labels, annotations, and everything outside of
/// metadata and status.
pub fn has_drifted(live: &Value, dry_run: &Value) -> bool {
    without_bookkeeping(live) != without_bookkeeping(dry_run)
}

/// A short mark of all that a comparison looks at: objects with the same one have not drifted from each other.
pub fn content(object: &Value) -> u64 {
    let mut hash = DefaultHasher::new();
    without_bookkeeping(object).to_string().hash(&mut hash);
    hash.finish()
}

fn without_bookkeeping(object: &Value) -> Value {
    let metadata = |field: &str| match object.pointer(&format!("/metadata/{field}")) {
        Some(Value::Object(map)) if map.is_empty() => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    };
    let mut rest = object.clone();
    if let Some(fields) = rest.as_object_mut() {
        let told = json!({ "labels": metadata("labels"), "annotations": metadata("annotations") });
        fields.insert("metadata".to_owned(), told);
        fields.remove("status");
    }
    if rest.get("kind").and_then(Value::as_str) == Some("HorizontalPodAutoscaler") {
        forget_repeated_metrics(&mut rest);
    }
    rest
}

/// The API server answers a dry-run of an autoscaler with some metrics twice.
fn forget_repeated_metrics(autoscaler: &mut Value) {
    let Some(Value::Array(metrics)) = autoscaler.pointer_mut("/spec/metrics") else {
        return;
    };
    let mut seen: Vec<Value> = Vec::new();
    metrics.retain(|metric| {
        let is_new = !seen.contains(metric);
        if is_new {
            seen.push(metric.clone());
        }
        is_new
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bookkeeping_is_no_drift() {
        let live = json!({"kind": "X", "metadata": {"resourceVersion": "1", "labels": {"a": "b"}, "annotations": {}}, "spec": {"a": 1}, "status": {"x": 1}});
        let same = json!({"kind": "X", "metadata": {"resourceVersion": "2", "labels": {"a": "b"}}, "spec": {"a": 1}});
        assert!(!has_drifted(&live, &same));
        assert_eq!(content(&live), content(&same));
    }

    #[test]
    fn labels_annotations_and_fields_are() {
        let live = json!({"kind": "X", "metadata": {"labels": {"a": "b"}}, "data": {"k": "v"}});
        for other in [
            json!({"kind": "X", "metadata": {"labels": {"a": "c"}}, "data": {"k": "v"}}),
            json!({"kind": "X", "metadata": {"labels": {"a": "b"}, "annotations": {"n": "1"}}, "data": {"k": "v"}}),
            json!({"kind": "X", "metadata": {"labels": {"a": "b"}}, "data": {"k": "w"}}),
        ] {
            assert!(has_drifted(&live, &other), "{other}");
            assert_ne!(content(&live), content(&other), "{other}");
        }
    }

    #[test]
    fn an_autoscaler_may_repeat_itself() {
        let with = |metrics: Value| json!({"kind": "HorizontalPodAutoscaler", "metadata": {}, "spec": {"metrics": metrics}});
        assert!(!has_drifted(&with(json!([1])), &with(json!([1, 1]))));
    }
}
