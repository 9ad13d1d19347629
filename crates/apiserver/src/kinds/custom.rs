//! Kinds that come from a CustomResourceDefinition.
//!
//! Reads what a (validated) CRD says into [`Resource`]s. Schemas are carried along; applying them to objects is
//! `structural`'s work.

use std::cmp::Ordering;
use std::sync::Arc;

use base64::Engine as _;
use kube_schema::Schemas;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Resource, Scope, Subresource, Verb, storage_name};
use crate::object::{self, text};
use crate::structural::{Rules, Structural};

impl std::fmt::Debug for CustomKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomKind").field("crd", &self.crd).finish_non_exhaustive()
    }
}

/// In the order discovery lists them for custom kinds, which is not the builtin kinds' order.
const VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

/// What a CRD says about one version of its kind.
pub struct CustomKind {
    /// Name of the CRD: `plural.group`.
    pub crd: String,
    pub crd_uid: String,
    pub storage_version: Arc<str>,
    pub status: bool,
    pub scale: Option<ScalePaths>,
    pub columns: Vec<Column>,
    /// JSON paths (`.spec.color`) that field selectors may name.
    pub selectable: Vec<String>,
    /// `openAPIV3Schema`.
    pub schema: Value,
    /// The same, for those who walk objects by it.
    pub schemas: Option<Schemas>,
    pub structural: Option<Arc<Structural>>,
    pub rules: Option<Rules>,
    /// Tells whether the CRD still says the same.
    pub source: u64,
    pub preserve_unknown_fields: bool,
    pub deprecation_warning: Option<String>,
    /// Objects may be kept that were written under another schema: they are pruned and defaulted when they are read.
    pub reread: bool,
}

#[derive(Debug, Clone)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// One `additionalPrinterColumns` entry.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

/// Everything of a CRD that decides how its kind is served.
pub fn source(crd: &Value) -> u64 {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    object::uid(crd).hash(&mut hasher);
    crd["spec"].to_string().hash(&mut hasher);
    crd["status"]["acceptedNames"].to_string().hash(&mut hasher);
    hasher.finish()
}

/// One resource for each served version of an accepted CRD, of which `kept` objects are there already.
pub fn resources(crd: &Value, kept: usize) -> Vec<Arc<Resource>> {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let versions: Vec<&Value> = versions.into_iter().flatten().collect();
    let storage =
        versions.iter().find(|version| version["storage"] == true).map(|version| text(version, "/name"));
    let storage: Arc<str> = storage.unwrap_or_default().into();
    versions
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| Arc::new(resource(crd, version, storage.clone(), kept > 0 || versions.len() > 1)))
        .collect()
}

fn resource(crd: &Value, version: &Value, storage_version: Arc<str>, reread: bool) -> Resource {
    let group = text(crd, "/spec/group");
    let names = crd.pointer("/status/acceptedNames").filter(|names| !text(names, "/plural").is_empty());
    let names = names.unwrap_or(&crd["spec"]["names"]);
    let kind = text(names, "/kind");
    let plural = text(names, "/plural");
    let custom = custom_kind(crd, version, storage_version.clone(), reread);
    Resource {
        group: group.into(),
        version: text(version, "/name").into(),
        plural: plural.into(),
        singular: text(names, "/singular").into(),
        kind: kind.into(),
        list_kind: match text(names, "/listKind") {
            "" => format!("{kind}List").into(),
            list => list.into(),
        },
        scope: if text(crd, "/spec/scope") == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        verbs: VERBS.to_vec(),
        short_names: strings(&names["shortNames"]),
        categories: strings(&names["categories"]),
        storage_version_hash: storage_hash(group, &storage_version, kind),
        subresources: subresources(&custom, kind),
        storage: storage_name(group, plural),
        custom: Some(Arc::new(custom)),
    }
}

fn custom_kind(crd: &Value, version: &Value, storage_version: Arc<str>, reread: bool) -> CustomKind {
    let scale = version.pointer("/subresources/scale").map(|scale| ScalePaths {
        spec_replicas: text(scale, "/specReplicasPath").to_owned(),
        status_replicas: text(scale, "/statusReplicasPath").to_owned(),
        label_selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
    });
    let columns = version["additionalPrinterColumns"].as_array();
    let structural =
        version.pointer("/schema/openAPIV3Schema").and_then(|schema| Structural::parse(schema).ok());
    let structural = structural.map(Arc::new);
    let selectable = version["selectableFields"].as_array();
    CustomKind {
        crd: object::name(crd).to_owned(),
        crd_uid: object::uid(crd).to_owned(),
        storage_version,
        status: version.pointer("/subresources/status").is_some(),
        scale,
        columns: columns.into_iter().flatten().map(column).collect(),
        selectable: selectable
            .into_iter()
            .flatten()
            .map(|field| text(field, "/jsonPath").to_owned())
            .collect(),
        schema: version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default(),
        schemas: version
            .pointer("/schema/openAPIV3Schema")
            .and_then(|schema| Schemas::from_schema(schema).ok()),
        rules: structural.clone().map(Rules::new),
        structural,
        source: source(crd),
        preserve_unknown_fields: crd["spec"]["preserveUnknownFields"] == true,
        deprecation_warning: (version["deprecated"] == true).then(|| deprecation(crd, version)),
        reread,
    }
}

fn deprecation(crd: &Value, version: &Value) -> String {
    match version["deprecationWarning"].as_str() {
        Some(warning) => warning.to_owned(),
        None => {
            let (group, name) = (text(crd, "/spec/group"), text(version, "/name"));
            format!("{group}/{name} {} is deprecated", text(crd, "/spec/names/kind"))
        }
    }
}

fn column(column: &Value) -> Column {
    Column {
        name: text(column, "/name").to_owned(),
        kind: text(column, "/type").to_owned(),
        format: text(column, "/format").to_owned(),
        description: text(column, "/description").to_owned(),
        priority: column["priority"].as_i64().unwrap_or(0),
        json_path: text(column, "/jsonPath").to_owned(),
    }
}

fn subresources(custom: &CustomKind, kind: &str) -> Vec<Subresource> {
    let verbs = vec![Verb::Get, Verb::Patch, Verb::Update];
    let mut list = Vec::new();
    if custom.status {
        list.push(Subresource {
            name: "status".into(),
            api_version: String::new(),
            kind: kind.into(),
            verbs: verbs.clone(),
        });
    }
    if custom.scale.is_some() {
        list.push(Subresource {
            name: "scale".into(),
            api_version: "autoscaling/v1".into(),
            kind: "Scale".into(),
            verbs,
        });
    }
    list
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Tells clients that two versions are kept in one place; only equality matters to them, but e2e checks the value.
fn storage_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

/// Kubernetes' order of versions: `v10 > v2 > v1 > v2beta1 > v1beta2 > v1alpha1 > other`, others by name.
pub fn version_order(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Reversed: among names that are no versions the alphabetically first comes first.
        (None, None) => b.cmp(a),
    }
}

fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let (stability, minor) = match &rest[digits..] {
        "" => (2, "0"),
        tail if tail.starts_with("beta") => (1, &tail[4..]),
        tail if tail.starts_with("alpha") => (0, &tail[5..]),
        _ => return None,
    };
    Some((stability, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions =
            vec!["foo1", "v1", "v11alpha2", "v10", "v3beta1", "v12alpha1", "v2", "v11beta2", "foo10"];
        versions.sort_by(|a, b| version_order(b, a));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
        );
    }

    #[test]
    fn the_storage_hash_is_kubernetes_own() {
        assert_eq!(storage_hash("apps", "v1", "ControllerRevision"), "85nkx63pcBU=");
    }
}
