//! The kinds as CustomResourceDefinitions, made from the Rust types: a field's doc comment is what `kubectl explain` shows.
//!
//! ```text
//! types ── schemars ──► JSON schema ── schema.rs ──► structural schema ─┬─ stored version
//!                                                                       └─ old_versions.rs ──► older served versions
//! ```
//!
//! Knows nothing of installing them. The texts stand in `manifests/crds/`, and a test compares.

mod columns;
mod old_versions;
mod schema;
mod yaml;

use serde_json::{Map, Value, json};

use crate::kinds::{self, Kind};
use crate::{extensions, helm, image, kustomize, names, notification, source};

pub(crate) use schema::any_value;

/// Every CustomResourceDefinition.
pub fn all() -> Vec<Value> {
    kinds::ALL.iter().map(definition).collect()
}

/// Every CustomResourceDefinition as a file: its name, such as `source.toolkit.fluxcd.io_buckets.yaml`, and its text.
pub fn yaml() -> Vec<(String, String)> {
    kinds::ALL.iter().map(|kind| (file_name(kind), yaml::document(&definition(kind)))).collect()
}

fn file_name(kind: &Kind) -> String {
    format!("{}_{}.yaml", kind.group, kind.plural)
}

/// The CustomResourceDefinition of one kind.
pub fn definition(kind: &Kind) -> Value {
    let mut names = json!({
        "categories": ["all", "fluxcd", kind.category],
        "kind": kind.kind,
        "listKind": format!("{}List", kind.kind),
        "plural": kind.plural,
        "singular": kind.singular,
    });
    if !kind.short_names.is_empty() {
        names["shortNames"] = json!(kind.short_names);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            // A pattern such as ^v${x}$ in a schema is not a variable.
            "annotations": { names::KUSTOMIZE_SUBSTITUTE: names::DISABLED },
            "name": kind.crd_name(),
        },
        "spec": { "group": kind.group, "names": names, "scope": "Namespaced", "versions": versions(kind) },
    })
}

fn versions(kind: &Kind) -> Vec<Value> {
    let stored = object_schema(kind);
    let mut versions = vec![version(kind, kind.version, stored.clone())];
    for old in kind.old_versions {
        let mut served = version(kind, old, old_versions::schema(kind, stored.clone()));
        served["storage"] = json!(false);
        served["deprecated"] = json!(true);
        served["deprecationWarning"] =
            json!(format!("{}/{old} {} is deprecated: write {}", kind.group, kind.kind, kind.api_version()));
        if old_versions::had_status(kind) {
            served["subresources"] = json!({ "status": {} });
        }
        versions.push(served);
    }
    versions
}

fn version(kind: &Kind, name: &str, schema: Value) -> Value {
    let subresources = if kind.has_status { json!({ "status": {} }) } else { json!({}) };
    json!({
        "additionalPrinterColumns": columns::of(kind),
        "name": name,
        "schema": { "openAPIV3Schema": schema },
        "served": true,
        "storage": true,
        "subresources": subresources,
    })
}

/// The schema of a whole object in the stored version.
pub fn object_schema(kind: &Kind) -> Value {
    let (spec, status) = parts(kind);
    let mut properties = Map::new();
    properties.insert(
        "apiVersion".into(),
        json!({ "description": "Group and version of the API that this object is written for.", "type": "string" }),
    );
    properties
        .insert("kind".into(), json!({ "description": "What kind of object this is.", "type": "string" }));
    properties.insert("metadata".into(), json!({ "type": "object" }));
    properties.insert("spec".into(), spec);
    if let Some(mut status) = status {
        if status["properties"].get("observedGeneration").is_some() {
            // Tells an object that no controller has seen from one that is up to date.
            status["default"] = json!({ "observedGeneration": -1 });
        }
        properties.insert("status".into(), status);
    }
    json!({ "description": kind.summary, "properties": properties, "type": "object" })
}

fn parts(kind: &Kind) -> (Value, Option<Value>) {
    use schema::of;
    match *kind {
        kinds::GIT_REPOSITORY => {
            (of::<source::GitRepositorySpec>(), Some(of::<source::GitRepositoryStatus>()))
        }
        kinds::OCI_REPOSITORY => {
            (of::<source::OCIRepositorySpec>(), Some(of::<source::OCIRepositoryStatus>()))
        }
        kinds::BUCKET => (of::<source::BucketSpec>(), Some(of::<source::BucketStatus>())),
        kinds::HELM_REPOSITORY => {
            (of::<source::HelmRepositorySpec>(), Some(of::<source::HelmRepositoryStatus>()))
        }
        kinds::HELM_CHART => (of::<source::HelmChartSpec>(), Some(of::<source::HelmChartStatus>())),
        kinds::EXTERNAL_ARTIFACT => {
            (of::<source::ExternalArtifactSpec>(), Some(of::<source::ExternalArtifactStatus>()))
        }
        kinds::KUSTOMIZATION => {
            (of::<kustomize::KustomizationSpec>(), Some(of::<kustomize::KustomizationStatus>()))
        }
        kinds::HELM_RELEASE => (of::<helm::HelmReleaseSpec>(), Some(of::<helm::HelmReleaseStatus>())),
        kinds::PROVIDER => (of::<notification::ProviderSpec>(), None),
        kinds::ALERT => (of::<notification::AlertSpec>(), None),
        kinds::RECEIVER => (of::<notification::ReceiverSpec>(), Some(of::<notification::ReceiverStatus>())),
        kinds::IMAGE_REPOSITORY => {
            (of::<image::ImageRepositorySpec>(), Some(of::<image::ImageRepositoryStatus>()))
        }
        kinds::IMAGE_POLICY => (of::<image::ImagePolicySpec>(), Some(of::<image::ImagePolicyStatus>())),
        kinds::IMAGE_UPDATE_AUTOMATION => {
            (of::<image::ImageUpdateAutomationSpec>(), Some(of::<image::ImageUpdateAutomationStatus>()))
        }
        kinds::ARTIFACT_GENERATOR => {
            (of::<extensions::ArtifactGeneratorSpec>(), Some(of::<extensions::ArtifactGeneratorStatus>()))
        }
        // The table of kinds is closed; a test makes the definition of each row.
        _ => (json!({ "type": "object" }), None),
    }
}
