//! In which order kinds are created and deleted.

use crate::Dialect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindOrder {
    Install,
    Uninstall,
}

impl KindOrder {
    /// Where a kind stands; kinds nobody knows come last, by name.
    pub(super) fn position(self, kind: &str, dialect: Dialect) -> (usize, &str) {
        let webhook = matches!(kind, "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration");
        if webhook && dialect == Dialect::Helm3 {
            return (usize::MAX, kind);
        }
        match INSTALL.iter().position(|known| *known == kind) {
            None => (usize::MAX, kind),
            Some(at) => match self {
                KindOrder::Install => (at, ""),
                KindOrder::Uninstall => {
                    (UNINSTALL.iter().position(|known| *known == kind).unwrap_or(usize::MAX), "")
                }
            },
        }
    }
}

const INSTALL: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Nearly the reverse, except that Services go before the workloads behind them.
const UNINSTALL: [&str; 38] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
    "Ingress",
    "IngressClass",
    "Service",
    "CronJob",
    "Job",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "DaemonSet",
    "RoleBindingList",
    "RoleBinding",
    "RoleList",
    "Role",
    "ClusterRoleBindingList",
    "ClusterRoleBinding",
    "ClusterRoleList",
    "ClusterRole",
    "CustomResourceDefinition",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ConfigMap",
    "SecretList",
    "Secret",
    "ServiceAccount",
    "PodDisruptionBudget",
    "PodSecurityPolicy",
    "LimitRange",
    "ResourceQuota",
    "NetworkPolicy",
    "Namespace",
    "PriorityClass",
];
