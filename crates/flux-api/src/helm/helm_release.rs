//! HelmRelease: a Helm chart, installed with values and kept at the wanted version.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::duration::GoDuration;
use crate::helm::{HelmReleaseStatus, Install, Rollback, Test, Uninstall, Upgrade};
use crate::kinds;
use crate::meta::{
    CommonMetadata, CustomHealthCheck, DependencyReference, IgnoreRule, Image, KubeConfigReference,
    LocalReference, Patch, ValuesReference,
};
use crate::object::{object, standard_object};
use crate::source::{HelmChartSourceKind, ReconcileStrategy, VerificationProvider};

object!(HelmRelease, kinds::HELM_RELEASE, HelmReleaseSpec, HelmReleaseStatus);
standard_object!(HelmRelease, kinds::HELM_RELEASE);

/// Which chart, with which values, and what to do when something fails.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"(has(self.chart) && !has(self.chartRef)) || (!has(self.chart) && has(self.chartRef))", "message": "either chart or chartRef must be set" },
    ]))]
pub struct HelmReleaseSpec {
    /// Make a HelmChart for this release. Either this or chartRef is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<HelmChartTemplate>,
    /// Use a chart that is there already. Either this or chart is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart_ref: Option<ChartReference>,
    /// How often to reconcile when nothing has changed.
    pub interval: GoDuration,
    /// Release to another cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Stops reconciling. The release stays as it is.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
    /// Name of the release; targetNamespace and the object's name, joined by a dash, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 53))]
    pub release_name: Option<String>,
    /// Namespace to install into; the object's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// Namespace that keeps the release's records; the object's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Objects that must be ready before this one is released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// How long one Kubernetes operation, such as a hook, may take; 5m if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// How many revisions of the release to keep; 5 if left out, 0 for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-no-format" = true))]
    pub max_history: Option<i64>,
    /// ServiceAccount in the same namespace to act as.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Whether to reuse one Kubernetes client for a whole run; true if left out. Turn off for charts that change how the
    /// API is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_client: Option<bool>,
    /// Notice, and correct, changes made in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_detection: Option<DriftDetection>,
    /// How to install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// How to upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// How to run the chart's tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Test>,
    /// How to roll back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// How to uninstall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<Uninstall>,
    /// ConfigMaps and Secrets with values, merged in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_from: Vec<ValuesReference>,
    /// Values for the chart. They win over those of valuesFrom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::crds::any_value")]
    pub values: Option<serde_json::Value>,
    /// Changes to the rendered manifests, applied in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_renderers: Vec<PostRenderer>,
    /// What post-renderers get to see: nohooks, the manifests without hooks; combined, both together, which is the default; separate, one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_render_strategy: Option<PostRenderStrategy>,
    /// Labels and annotations to add to every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// How to tell the health of custom kinds, in CEL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// How to wait for objects to become healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_strategy: Option<WaitStrategy>,
}

/// The HelmChart to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplate {
    /// Labels and annotations of the HelmChart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<HelmChartTemplateMetadata>,
    /// What the HelmChart says.
    pub spec: HelmChartTemplateSpec,
}

/// Labels and annotations of the HelmChart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Which chart, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateSpec {
    /// Name of the chart in a HelmRepository, or path to it in a GitRepository or Bucket.
    #[schemars(length(min = 1, max = 2048))]
    pub chart: String,
    /// A version or a range of versions. For charts in a GitRepository or Bucket it is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(extend("x-default" = "*"))]
    pub version: Option<String>,
    /// The source the chart is in.
    pub source_ref: HelmChartTemplateSourceReference,
    /// How often to look for a new version; the release's interval if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// When to make a new chart: ChartVersion, on a new version; Revision, on any new revision of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "ChartVersion"))]
    pub reconcile_strategy: Option<ReconcileStrategy>,
    /// Files to merge into the chart's values.yaml, later ones winning, as paths in the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// Whether files of valuesFiles that do not exist are skipped; otherwise they are an error.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub ignore_missing_values_files: bool,
    /// Check the signature of the chart. Only for a HelmRepository of type oci.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<HelmChartTemplateVerification>,
}

/// A source of charts, perhaps in another namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateSourceReference {
    /// apiVersion of the source.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: HelmChartSourceKind,
    /// Name of the source.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the source; the one of the HelmRelease if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Whose signatures to require.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateVerification {
    /// The tool that signed.
    #[serde(default)]
    #[schemars(extend("x-required" = true), extend("x-default" = "cosign"))]
    pub provider: VerificationProvider,
    /// Secret with the trusted public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
}

/// A chart that is there already, perhaps in another namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartReference {
    /// apiVersion of the source.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: ChartReferenceKind,
    /// Name of the source.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the source; the one of the HelmRelease if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// What to do about changes made in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftDetection {
    /// enabled corrects drift, warn only reports it, disabled does not look. disabled if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DriftDetectionMode>,
    /// Fields that somebody else looks after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
}

/// One change to the rendered manifests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostRenderer {
    /// A change made by kustomize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<KustomizePostRenderer>,
}

/// Patches and images, as in a kustomization.yaml.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizePostRenderer {
    /// Changes to the objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Other names, tags or digests for images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// How to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitStrategy {
    /// poller, the default, looks at the health of all kinds, as Kustomizations do; legacy waits as Helm 3 did.
    pub name: WaitStrategyName,
}

closed_set! {
    /// Kinds that hold one chart.
    pub enum ChartReferenceKind {
        /// An OCIRepository.
        OCIRepository = "OCIRepository",
        /// A HelmChart.
        HelmChart = "HelmChart",
        /// An ExternalArtifact.
        ExternalArtifact = "ExternalArtifact",
    }
}

closed_set! {
    /// What to do about changes made in the cluster.
    #[derive(Default)]
    pub enum DriftDetectionMode {
        /// Correct them.
        Enabled = "enabled",
        /// Report them.
        Warn = "warn",
        /// Do not look.
        #[default]
        Disabled = "disabled",
    }
}

closed_set! {
    /// What post-renderers get to see.
    pub enum PostRenderStrategy {
        /// The manifests without hooks.
        Nohooks = "nohooks",
        /// Manifests and hooks together.
        Combined = "combined",
        /// Manifests, then hooks.
        Separate = "separate",
    }
}

closed_set! {
    /// How to wait for health.
    pub enum WaitStrategyName {
        /// By the health of every kind.
        Poller = "poller",
        /// As Helm 3 did.
        Legacy = "legacy",
    }
}
