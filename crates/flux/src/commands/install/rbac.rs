//! Who may do what in an installation: roles, bindings, quota and network policies. Pure.

use serde_json::{Value, json};

use super::component::Component;
use super::manifests::Options;

const RBAC: &str = "rbac.authorization.k8s.io";
const GROUPS: [&str; 6] = [
    "notification.toolkit.fluxcd.io",
    "source.toolkit.fluxcd.io",
    "source.extensions.fluxcd.io",
    "helm.toolkit.fluxcd.io",
    "image.toolkit.fluxcd.io",
    "kustomize.toolkit.fluxcd.io",
];

pub(super) fn network_policies(options: &Options) -> Vec<Value> {
    let policy = |name: &str, spec: Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": options.namespace, "labels": options.labels(None)},
            "spec": spec,
        })
    };
    let from_anywhere = |port: u16, pods: Value| {
        json!({
            "podSelector": pods,
            "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": port, "protocol": "TCP"}]}],
            "policyTypes": ["Ingress"],
        })
    };
    let receiver = if options.single { "flux" } else { Component::Notification.name() };
    vec![
        policy(
            "allow-egress",
            json!({
                "podSelector": {}, "egress": [{}], "ingress": [{"from": [{"podSelector": {}}]}],
                "policyTypes": ["Ingress", "Egress"],
            }),
        ),
        policy("allow-scraping", from_anywhere(8080, json!({}))),
        policy("allow-webhooks", from_anywhere(9292, json!({"matchLabels": {"app": receiver}}))),
    ]
}

/// Quota, cluster roles and bindings; their names end with the namespace.
pub(super) fn roles(options: &Options) -> Vec<Value> {
    let namespace = &options.namespace;
    vec![
        quota(options),
        role(options, "crd-controller", &[], controller_rules()),
        role(
            options,
            "flux-edit",
            &["admin", "edit"],
            json!([{
                "apiGroups": GROUPS, "resources": ["*"],
                "verbs": ["create", "delete", "deletecollection", "patch", "update"],
            }]),
        ),
        role(
            options,
            "flux-view",
            &["admin", "edit", "view"],
            json!([{
                "apiGroups": GROUPS, "resources": ["*"], "verbs": ["get", "list", "watch"],
            }]),
        ),
        binding(options, "cluster-reconciler", "cluster-admin", &[Component::Kustomize, Component::Helm]),
        binding(
            options,
            "crd-controller",
            &format!("crd-controller-{namespace}"),
            &[
                Component::Kustomize,
                Component::Helm,
                Component::Source,
                Component::Notification,
                Component::ImageReflector,
                Component::ImageAutomation,
                Component::Watcher,
            ],
        ),
    ]
}

fn quota(options: &Options) -> Value {
    let namespace = &options.namespace;
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {
            "name": format!("critical-pods-{namespace}"), "namespace": namespace, "labels": options.labels(None),
        },
        "spec": {
            "hard": {"pods": "1000"},
            "scopeSelector": {"matchExpressions": [{
                "scopeName": "PriorityClass", "operator": "In",
                "values": ["system-node-critical", "system-cluster-critical"],
            }]},
        },
    })
}

fn role(options: &Options, name: &str, aggregated: &[&str], rules: Value) -> Value {
    let mut labels = options.labels(None);
    for to in aggregated {
        labels[format!("{RBAC}/aggregate-to-{to}")] = "true".into();
    }
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {"name": format!("{name}-{}", options.namespace), "labels": labels},
        "rules": rules,
    })
}

fn binding(options: &Options, name: &str, role: &str, to: &[Component]) -> Value {
    let subjects = to.iter().map(|component| {
        json!({"kind": "ServiceAccount", "name": component.name(), "namespace": options.namespace})
    });
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{name}-{}", options.namespace), "labels": options.labels(None)},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects.collect::<Vec<_>>(),
    })
}

/// What every controller may do: its own kinds, references, events, leases, tokens of service accounts.
fn controller_rules() -> Value {
    let mut rules: Vec<Value> = [
        "source.toolkit",
        "kustomize.toolkit",
        "helm.toolkit",
        "notification.toolkit",
        "image.toolkit",
        "source.extensions",
    ]
    .iter()
    .map(|group| json!({"apiGroups": [format!("{group}.fluxcd.io")], "resources": ["*"], "verbs": ["*"]}))
    .collect();
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    rules.extend([
        rule("", &["namespaces", "secrets", "configmaps", "serviceaccounts"], &["get", "list", "watch"]),
        rule("", &["events"], &["create", "patch"]),
        rule("", &["configmaps"], &all),
        rule("", &["configmaps/status"], &["get", "update", "patch"]),
        rule("coordination.k8s.io", &["leases"], &all),
        rule("", &["serviceaccounts/token"], &["create"]),
        json!({"nonResourceURLs": ["/livez/ping"], "verbs": ["head"]}),
    ]);
    rules.into()
}
