//! Fields of ours that a cluster's definitions do not know: the API server would drop them without a word. Pure.

use serde_json::Value;

/// Schemas nest no deeper than this.
const DEEPEST: usize = 32;

/// `spec.sourceRefs` and the like: what `ours` has and `theirs` has not, topmost fields only.
pub(super) fn dropped(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in ours.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
        let served = theirs.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let same = served.into_iter().find(|other| other.get("name") == version.get("name"));
        // A version that is not there at all is another matter.
        let (Some(own), Some(other)) = (schema(version), same.and_then(schema)) else { continue };
        walk("spec", own, other, 0, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn schema(version: &Value) -> Option<&Value> {
    version.pointer("/schema/openAPIV3Schema/properties/spec")
}

fn walk(path: &str, own: &Value, other: &Value, depth: usize, found: &mut Vec<String>) {
    let keeps_all = other.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool) == Some(true);
    if depth > DEEPEST || keeps_all || other.get("additionalProperties").is_some() {
        return;
    }
    if let (Some(own), Some(other)) = (own.get("items"), other.get("items")) {
        walk(&format!("{path}[]"), own, other, depth + 1, found);
    }
    for (name, field) in own.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let below = format!("{path}.{name}");
        match other.pointer(&format!("/properties/{name}")) {
            Some(other) => walk(&below, field, other, depth + 1, found),
            None => found.push(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_api::{crds, kinds};

    #[test]
    fn a_field_that_the_cluster_does_not_know_is_named() {
        let ours = crds::definition(&kinds::KUSTOMIZATION);
        assert_eq!(dropped(&ours, &ours), Vec::<String>::new());
        let mut theirs = ours.clone();
        for version in theirs["spec"]["versions"].as_array_mut().expect("versions") {
            let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
            spec["properties"].as_object_mut().expect("fields").remove("wait");
            spec["properties"]["sourceRef"]["properties"]
                .as_object_mut()
                .expect("fields")
                .remove("namespace");
        }
        assert_eq!(dropped(&ours, &theirs), ["spec.sourceRef.namespace", "spec.wait"]);
    }
}
