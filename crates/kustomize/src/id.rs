//! What identifies a resource: group, version, kind, name and namespace, as kustomize compares and prints them.

use std::cmp::Ordering;
use std::fmt;

use yaml::Text;

/// The namespace that stands for "has none and cannot have one".
pub(crate) const NOT_A_NAMESPACE: &str = "_non_namespaceable_";

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gvk {
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    /// Known to have no namespace; kinds nobody knows count as namespaced.
    pub cluster_scoped: bool,
}

impl Gvk {
    /// Without knowledge of the scope, as in selectors and earlier ids.
    pub(crate) fn plain(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into(), cluster_scoped: false }
    }

    pub(crate) fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Self::plain(group, version, kind)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        self.group == other.group && self.version == other.version && self.kind == other.kind
    }

    /// Empty fields of the selector accept anything.
    pub(crate) fn selected_by(&self, selector: &Self) -> bool {
        accepts(&selector.group, &self.group)
            && accepts(&selector.version, &self.version)
            && accepts(&selector.kind, &self.kind)
    }

    /// kustomize's order of kinds, used for field specs.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let rank = |gvk: &Self| kind_rank(&gvk.kind, &ORDER_FIRST, &ORDER_LAST);
        rank(self).cmp(&rank(other)).then_with(|| self.sort_text().cmp(&other.sort_text()))
    }

    /// `~G_v1_Pod`
    pub(crate) fn sort_text(&self) -> String {
        let or = |text: &Text, other: &'static str| if text.is_empty() { other.into() } else { text.clone() };
        format!("{}_{}_{}", or(&self.group, "~G"), or(&self.version, "~V"), or(&self.kind, "~K"))
    }
}

fn accepts(selector: &Text, value: &Text) -> bool {
    selector.is_empty() || selector == value
}

pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &Text, other: &'static str| if text.is_empty() { other.into() } else { text.clone() };
        write!(
            f,
            "{}.{}.{}",
            or(&self.kind, "[noKind]"),
            or(&self.version, "[noVer]"),
            or(&self.group, "[noGrp]")
        )
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ResId {
    pub gvk: Gvk,
    pub name: Text,
    pub namespace: Text,
}

impl ResId {
    pub(crate) fn plain(gvk: Gvk, name: &str, namespace: &str) -> Self {
        Self { gvk, name: name.into(), namespace: namespace.into() }
    }

    /// The namespace to compare: never empty, so that "unset" and `default` are the same.
    pub(crate) fn effective_namespace(&self) -> Text {
        if self.gvk.cluster_scoped {
            Text::new_static(NOT_A_NAMESPACE)
        } else if self.namespace.is_empty() {
            Text::new_static("default")
        } else {
            self.namespace.clone()
        }
    }

    /// What makes two ids equal.
    pub(crate) fn key(&self) -> IdKey {
        IdKey {
            namespace: self.effective_namespace(),
            group: self.gvk.group.clone(),
            version: self.gvk.version.clone(),
            kind: self.gvk.kind.clone(),
            name: self.name.clone(),
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        self.same_object(other) && self.effective_namespace() == other.effective_namespace()
    }

    /// Equal but for the namespace.
    pub(crate) fn same_object(&self, other: &Self) -> bool {
        self.name == other.name && self.gvk.same(&other.gvk)
    }

    /// Empty fields of the selector accept anything.
    pub(crate) fn selected_by(&self, selector: &Self) -> bool {
        accepts(&selector.name, &self.name)
            && (selector.namespace.is_empty() || selector.effective_namespace() == self.effective_namespace())
            && self.gvk.selected_by(&selector.gvk)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As Go prints the struct with `%#v`.
    pub(crate) fn go_syntax(&self) -> String {
        let quote = crate::go_text::quote;
        format!(
            "resid.ResId{{Gvk:resid.Gvk{{Group:{}, Version:{}, Kind:{}, isClusterScoped:{}}}, Name:{}, Namespace:{}}}",
            quote(&self.gvk.group),
            quote(&self.gvk.version),
            quote(&self.gvk.kind),
            self.gvk.cluster_scoped,
            quote(&self.name),
            quote(&self.namespace)
        )
    }
}

impl fmt::Display for ResId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &Text, other: &'static str| if text.is_empty() { other.into() } else { text.clone() };
        write!(f, "{}/{}.{}", self.gvk, or(&self.name, "[noName]"), or(&self.namespace, "[noNs]"))
    }
}

/// An id in the form that is equal exactly when kustomize calls two ids equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IdKey {
    pub namespace: Text,
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub name: Text,
}

/// Kinds that come first, because others refer to them.
pub(crate) const ORDER_FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// Kinds that come last, because they watch the others.
pub(crate) const ORDER_LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Negative for kinds that come first, positive for those that come last, zero between.
pub(crate) fn kind_rank<S: AsRef<str>>(kind: &str, first: &[S], last: &[S]) -> i64 {
    // As in a Go map literal filled in this order, a later entry replaces an earlier one.
    let place = |list: &[S]| list.iter().rposition(|name| name.as_ref() == kind).map(|at| at as i64);
    match (place(first), place(last)) {
        (_, Some(at)) => at + 1,
        (Some(at), None) => at - first.len() as i64,
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_kustomize_prints_them() {
        let id = ResId::plain(Gvk::plain("apps", "v1", "Deployment"), "web", "");
        assert_eq!(id.to_string(), "Deployment.v1.apps/web.[noNs]");
        assert_eq!(ResId::default().to_string(), "[noKind].[noVer].[noGrp]/[noName].[noNs]");
    }

    #[test]
    fn no_namespace_is_the_default_one() {
        let id = |namespace| ResId::plain(Gvk::plain("", "v1", "Pod"), "web", namespace);
        assert!(id("").same(&id("default")));
        assert!(!id("").same(&id("other")));
    }

    #[test]
    fn ranks_put_namespaces_before_and_webhooks_after() {
        let rank = |kind| kind_rank(kind, &ORDER_FIRST, &ORDER_LAST);
        assert!(rank("Namespace") < rank("Service") && rank("Service") < rank("Pod"));
        assert!(rank("Pod") < rank("MutatingWebhookConfiguration"));
    }
}
