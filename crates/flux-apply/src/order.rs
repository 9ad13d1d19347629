//! Which objects come first: stages that wait for each other, and an order within each. Pure.

use serde_json::Value;

use crate::object::ObjectId;

/// Kinds in the order they are applied in; what is not listed stands between the two halves.
const FIRST: &[&str] = &[
    "CustomResourceDefinition",
    "Namespace",
    "ClusterRole",
    "ClusterClass",
    "RuntimeClass",
    "PriorityClass",
    "StorageClass",
    "VolumeSnapshotClass",
    "IngressClass",
    "GatewayClass",
    "ClusterRoleBinding",
    "ResourceQuota",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Secret",
    "Service",
    "LimitRange",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// A set of objects that is dry-run as a whole, then applied. Later stages wait until `ready_first` ones are ready.
pub struct Stage {
    pub objects: Vec<(ObjectId, Value)>,
    pub wait: bool,
}

/// Splits into CRDs, Namespaces and ClusterRoles; kinds named `…Class`; kinds the user asked for; the rest.
pub fn stages(objects: Vec<(ObjectId, Value)>, custom: &[(String, String)]) -> Vec<Stage> {
    let mut stages: [Vec<(ObjectId, Value)>; 4] = Default::default();
    for (id, object) in objects {
        stages[stage_of(&id, custom)].push((id, object));
    }
    stages
        .into_iter()
        .enumerate()
        .filter(|(_, objects)| !objects.is_empty())
        .map(|(index, mut objects)| {
            objects.sort_by(|(a, _), (b, _)| apply_order(a, b));
            Stage { objects, wait: index < 2 }
        })
        .collect()
}

fn stage_of(id: &ObjectId, custom: &[(String, String)]) -> usize {
    let definition = matches!(
        (id.group.as_str(), id.kind.as_str()),
        ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("", "Namespace")
            | ("rbac.authorization.k8s.io", "ClusterRole")
    );
    if definition {
        return 0;
    }
    if id.kind.ends_with("Class") {
        return 1;
    }
    if custom.iter().any(|(group, kind)| *group == id.group && *kind == id.kind) {
        return 2;
    }
    3
}

/// The order objects are applied in; deletion goes the other way.
pub fn apply_order(a: &ObjectId, b: &ObjectId) -> std::cmp::Ordering {
    let key = |id: &ObjectId| {
        (rank(&id.kind), id.group.clone(), id.kind.clone(), id.namespace.clone(), id.name.clone())
    };
    key(a).cmp(&key(b))
}

fn rank(kind: &str) -> usize {
    let first = FIRST.iter().position(|known| *known == kind);
    let last = LAST.iter().position(|known| *known == kind).map(|at| FIRST.len() + 1 + at);
    first.or(last).unwrap_or(FIRST.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(group: &str, kind: &str, name: &str) -> (ObjectId, Value) {
        let id = ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        };
        (id, Value::Null)
    }

    #[test]
    fn definitions_and_classes_stand_in_stages_of_their_own() {
        let stages = stages(
            vec![
                object("apps", "Deployment", "web"),
                object("storage.k8s.io", "StorageClass", "fast"),
                object("", "Namespace", "apps"),
                object("example.org", "Widget", "w"),
                object("", "ConfigMap", "c"),
                object("apiextensions.k8s.io", "CustomResourceDefinition", "widgets"),
                object("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "hook"),
            ],
            &[("example.org".to_owned(), "Widget".to_owned())],
        );
        let kinds: Vec<Vec<&str>> = stages
            .iter()
            .map(|stage| stage.objects.iter().map(|(id, _)| id.kind.as_str()).collect())
            .collect();
        assert_eq!(
            kinds,
            [
                vec!["CustomResourceDefinition", "Namespace"],
                vec!["StorageClass"],
                vec!["Widget"],
                vec!["ConfigMap", "Deployment", "ValidatingWebhookConfiguration"]
            ]
        );
        assert_eq!(stages.iter().map(|stage| stage.wait).collect::<Vec<_>>(), [true, true, false, false]);
    }
}
