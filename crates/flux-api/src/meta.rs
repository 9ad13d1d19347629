//! What every kind shares beside conditions: references to other objects, access rules, metadata to add, the kubeconfig of
//! another cluster. Names of annotations and labels stand in `names`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;

/// The name of something in the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// Name of the object, in the namespace of the one that refers to it.
    pub name: String,
}

/// The name of something, perhaps in another namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedReference {
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; the one of the referring object if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub namespace: Option<String>,
}

/// An object of any kind, perhaps in another namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// apiVersion of the object.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; the one of the referring object if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub namespace: Option<String>,
}

/// An object that must be ready first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependencyReference {
    /// apiVersion of the object. Needed when kind is not one of Flux's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the object; this object's own kind if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub kind: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; the one of the referring object if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub namespace: Option<String>,
    /// When the dependency counts as ready, in CEL: self is this object, dep the other one. Replaces the usual check.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub ready_expr: Option<String>,
}

/// A Secret in the same namespace, and one key in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyReference {
    /// Name of the Secret.
    pub name: String,
    /// Which key to read; the reader's usual one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub key: Option<String>,
}

/// How to reach another cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"has(self.configMapRef) || has(self.secretRef)", "message": "exactly one of spec.kubeConfig.configMapRef or spec.kubeConfig.secretRef must be specified" },
        { "rule": r"!has(self.configMapRef) || !has(self.secretRef)", "message": "exactly one of spec.kubeConfig.configMapRef or spec.kubeConfig.secretRef must be specified" },
    ]))]
pub struct KubeConfigReference {
    /// A ConfigMap that says how to log in to the cluster with a cloud identity. Its keys are provider, cluster, address,
    /// ca.crt, audiences and serviceAccountName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalReference>,
    /// A Secret with a kubeconfig file. Without a key, value and then value.yaml are read. Programs, file paths and
    /// skipped certificate checks in the file are ignored unless the controller allows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyReference>,
}

/// Labels and annotations to add to objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonMetadata {
    /// Annotations to add; they win over those an object has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add; they win over those an object has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Which namespaces may use an object from outside its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessFrom {
    /// Namespaces that may use the object; one match is enough. An entry without labels means every namespace.
    pub namespace_selectors: Vec<NamespaceSelector>,
}

/// Namespaces by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels the namespace must have, all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// A ConfigMap or Secret in the same namespace that holds Helm values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesReference {
    /// ConfigMap or Secret.
    pub kind: ConfigKind,
    /// Name of the ConfigMap or Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key to read; values.yaml if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 253), regex(pattern = r"^[\-._a-zA-Z0-9]+$"))]
    pub values_key: Option<String>,
    /// Where to put the value: a path such as a.b[0].c, as for helm --set. Left out, the value is a YAML document that is
    /// merged.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 250), regex(pattern = r"^([a-zA-Z0-9_\-.\\\/]|\[[0-9]{1,5}\])+$"))]
    pub target_path: Option<String>,
    /// Whether to take the value at targetPath as it is, without giving commas, braces and dots a meaning.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub literal: bool,
    /// Whether a missing object, key or value is fine. Other errors still fail.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub optional: bool,
}

closed_set! {
    /// Kinds that hold configuration.
    pub enum ConfigKind {
        /// A Secret.
        Secret = "Secret",
        /// A ConfigMap.
        ConfigMap = "ConfigMap",
    }
}

/// How to tell the health of a kind that has its own idea of it, in CEL over the object's fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomHealthCheck {
    /// apiVersion of the kind.
    pub api_version: String,
    /// The kind. Left out, the expressions hold for every kind of that apiVersion.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub kind: Option<String>,
    /// True while the object is on its way. Looked at first.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub in_progress: Option<String>,
    /// True when the object has failed. Looked at second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub failed: Option<String>,
    /// True when the object is healthy. Looked at last.
    pub current: String,
}

/// The objects that were applied and are removed when they leave the source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// One entry for each object.
    pub entries: Vec<InventoryEntry>,
}

/// One applied object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntry {
    /// Namespace, name, group and kind, joined by underscores.
    pub id: String,
    /// The version of the object's API that was applied, such as v1.
    #[serde(rename = "v")]
    pub version: String,
}

/// Another name, tag or digest for an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The image name to look for, without tag.
    pub name: String,
    /// What to call it instead.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub new_name: Option<String>,
    /// The tag to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub new_tag: Option<String>,
    /// The digest to use instead; wins over newTag.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub digest: Option<String>,
}

/// A change to objects after they are built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// A strategic merge patch or a list of JSON 6902 operations, written as YAML.
    pub patch: String,
    /// Which objects to change. A strategic merge patch without target changes the object it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// A choice of objects. What is left out matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// API group.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub group: Option<String>,
    /// API version.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub version: Option<String>,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub kind: Option<String>,
    /// Name; a regular expression that must match the whole name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub name: Option<String>,
    /// Namespace; a regular expression that must match the whole name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub namespace: Option<String>,
    /// Annotations, in the syntax of a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub annotation_selector: Option<String>,
    /// Labels, in the syntax of a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub label_selector: Option<String>,
}

/// Fields of objects that somebody else looks after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoreRule {
    /// JSON pointers to the fields, such as /spec/replicas.
    pub paths: Vec<String>,
    /// Which objects; all of them if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}
