//! Kustomization: manifests in a folder of a source, built and applied.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::kinds;
use crate::meta::{
    CommonMetadata, ConfigKind, CustomHealthCheck, DependencyReference, IgnoreRule, Image, Inventory,
    KubeConfigReference, LocalReference, ObjectReference, Patch,
};
use crate::object::{object, standard_object};
use crate::revision::Revision;
use crate::time::Time;

object!(Kustomization, kinds::KUSTOMIZATION, KustomizationSpec, KustomizationStatus);
standard_object!(Kustomization, kinds::KUSTOMIZATION);

/// What to build, where to apply it, and what to do when it changes or goes away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.sourceRef) != has(self.sourceRefs)", "message": "exactly one of sourceRef or sourceRefs must be set" },
]))]
pub struct KustomizationSpec {
    /// Labels and annotations to add to every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Objects that must be ready before this one is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// How to decrypt Secrets and other files that SOPS encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,
    /// How often to reconcile when nothing has changed, so that changes made in the cluster are undone.
    pub interval: GoDuration,
    /// How soon to try again after a failure; interval if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
    /// Apply to another cluster. Its namespaces must exist there. With serviceAccountName set, that account is
    /// impersonated in the other cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// The folder in the source to build; the root if left out. Without a kustomization.yaml, one is made that takes
    /// every manifest below.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub path: Option<String>,
    /// What to do with the manifests after they are built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_build: Option<PostBuild>,
    /// Whether to delete objects that are no longer in the source.
    pub prune: bool,
    /// What becomes of the applied objects when this Kustomization is deleted. MirrorPrune, which is meant when left out,
    /// does as prune says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Objects whose health decides whether this Kustomization is ready; an apiVersion left out means apps/v1. Not looked at when wait is true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<ObjectReference>,
    /// Put before the name of every object.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 200))]
    pub name_prefix: Option<String>,
    /// Put after the name of every object.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 200))]
    pub name_suffix: Option<String>,
    /// Changes to the objects, as in a kustomization.yaml.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Other names, tags or digests for images, as in a kustomization.yaml.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// ServiceAccount in the same namespace to act as when applying and deleting.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub service_account_name: Option<String>,
    /// The source that holds the folder. Either this or sourceRefs is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<SourceReference>,
    /// Several sources as one tree. The first is the main one, whose revision is reported. Each other one is mounted at
    /// the folder it names in as; no two may supply the same path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-validations" = [
        {
            "rule": "self.filter(s, !has(s.__as__)).size() <= (has(self[0].__as__) ? 0 : 1)",
            "message": "as is required on every source but the first",
        },
        {
            "rule": "self.all(a, !has(a.__as__) || self.exists_one(b, has(b.__as__) && b.__as__ == a.__as__))",
            "message": "no two sources can be mounted at the same folder",
        },
    ]))]
    pub source_refs: Vec<SourceRefsEntry>,
    /// Stops reconciling. What is applied stays.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
    /// Namespace to put every namespaced object in. It must exist or be among the objects.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// How long waiting for health, or for deleted objects to be gone, may take; interval less 30s if left out. Never less than 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Whether to delete and create again objects that cannot be changed in place.
    #[serde(default, skip_serializing_if = "absent::no")]
    #[schemars(extend("x-default" = false))]
    pub force: bool,
    /// Whether to wait until every applied object is healthy. healthChecks is not looked at then.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub wait: bool,
    /// Kustomize components to use, as paths relative to path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Whether components that do not exist are skipped; otherwise they are an error.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub ignore_missing_components: bool,
    /// Annotations that kustomize adds about where an object comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub build_metadata: Vec<BuildMetadata>,
    /// How to tell the health of custom kinds, in CEL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Fields that somebody else looks after: they are not compared and not overwritten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
}

/// How to decrypt files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decryption {
    /// The tool the files were encrypted with.
    pub provider: DecryptionProvider,
    /// ServiceAccount in the same namespace whose cloud identity may use the key management service.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub service_account_name: Option<String>,
    /// Secret with the keys: age keys in *.agekey, PGP keys in *.asc, a Vault token in sops.vault-token, cloud credentials in sops.aws-kms, sops.azure-kv and sops.gcp-kms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
}

/// What to do with the manifests after they are built.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostBuild {
    /// Values for variables written as ${name} in the manifests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub substitute: BTreeMap<String, String>,
    /// ConfigMaps and Secrets whose keys are variables. Later ones win over earlier ones, substitute over all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substitute_from: Vec<SubstituteReference>,
    /// When to substitute: WithVariables, only if there is a variable; Always, also without, so that defaults in the
    /// manifests apply. WithVariables if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitute_strategy: Option<SubstituteStrategy>,
}

/// A ConfigMap or Secret in the same namespace that holds variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubstituteReference {
    /// ConfigMap or Secret.
    pub kind: ConfigKind,
    /// Name of the ConfigMap or Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether it may be missing.
    #[serde(default, skip_serializing_if = "absent::no")]
    #[schemars(extend("x-default" = false))]
    pub optional: bool,
}

/// A source, perhaps in another namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceReference {
    /// apiVersion of the source.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: SourceKind,
    /// Name of the source.
    pub name: String,
    /// Namespace of the source; the one of the Kustomization if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub namespace: Option<String>,
}

/// One of several sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceRefsEntry {
    /// Kind of the source.
    pub kind: SourceKind,
    /// Name of the source.
    pub name: String,
    /// Namespace of the source; the one of the Kustomization if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub namespace: Option<String>,
    /// Folder the source is mounted at. Needed on all but the first entry, whose files are the root unless it is set.
    #[serde(
        rename = "as",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "absent::empty"
    )]
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$")
    )]
    pub mount: Option<String>,
}

/// What was applied last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The revision that was last applied with success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<Revision>,
    /// The revision that the applied artifact says it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_origin_revision: Option<Revision>,
    /// The revision that was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<Revision>,
    /// The objects that were applied with success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<Inventory>,
    /// The last results, newest first, one entry for each digest and outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Snapshot>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

/// One result, and how often it came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Checksum of what was applied.
    pub digest: String,
    /// When this result came out first.
    pub first_reconciled: Time,
    /// When this result came out last.
    pub last_reconciled: Time,
    /// How long the last run took.
    #[schemars(extend("x-no-pattern" = true))]
    pub last_reconciled_duration: GoDuration,
    /// The reason of the Ready condition after the last run.
    pub last_reconciled_status: String,
    /// How many runs had this result.
    pub total_reconciliations: i64,
    /// More about the result, such as the revision.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

closed_set! {
    /// Kinds of sources that hold manifests.
    pub enum SourceKind {
        /// An OCIRepository.
        OCIRepository = "OCIRepository",
        /// A GitRepository.
        GitRepository = "GitRepository",
        /// A Bucket.
        Bucket = "Bucket",
        /// An ExternalArtifact.
        ExternalArtifact = "ExternalArtifact",
    }
}

closed_set! {
    /// Tools that encrypt manifests.
    pub enum DecryptionProvider {
        /// SOPS.
        Sops = "sops",
    }
}

closed_set! {
    /// What becomes of the applied objects when their Kustomization is deleted.
    #[derive(Default)]
    pub enum DeletionPolicy {
        /// They are deleted if prune is true.
        #[default]
        MirrorPrune = "MirrorPrune",
        /// They are deleted.
        Delete = "Delete",
        /// They are deleted, and the Kustomization goes when they are gone.
        WaitForTermination = "WaitForTermination",
        /// They stay.
        Orphan = "Orphan",
    }
}

closed_set! {
    /// When variables are substituted.
    #[derive(Default)]
    pub enum SubstituteStrategy {
        /// If there is at least one variable.
        #[default]
        WithVariables = "WithVariables",
        /// Always.
        Always = "Always",
    }
}

closed_set! {
    /// Annotations that kustomize can add.
    pub enum BuildMetadata {
        /// Where an object comes from.
        OriginAnnotations = "originAnnotations",
        /// Which transformers changed it.
        TransformerAnnotations = "transformerAnnotations",
    }
}

impl KustomizationSpec {
    /// How soon to try again after a failure.
    pub fn retry_interval(&self) -> GoDuration {
        self.retry_interval.unwrap_or(self.interval)
    }

    /// How long to wait for health. Upstream leaves 30 seconds of the interval for the rest and never waits less.
    pub fn timeout(&self) -> GoDuration {
        const LEAST: i64 = 30_000_000_000;
        let wanted =
            self.timeout.unwrap_or(GoDuration::from_nanos(self.interval.as_nanos().saturating_sub(LEAST)));
        GoDuration::from_nanos(wanted.as_nanos().max(LEAST))
    }

    /// What becomes of the applied objects when the Kustomization is deleted.
    pub fn deletion_policy(&self) -> DeletionPolicy {
        self.deletion_policy.unwrap_or_default()
    }

    /// Every source, the main one first: `sourceRef` alone, or `sourceRefs`. The API sees to it that there is one.
    pub fn sources(&self) -> Vec<SourceRefsEntry> {
        match &self.source_ref {
            Some(source) => vec![SourceRefsEntry {
                kind: source.kind,
                name: source.name.clone(),
                namespace: source.namespace.clone(),
                mount: None,
            }],
            None => self.source_refs.clone(),
        }
    }
}
