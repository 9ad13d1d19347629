//! HelmChart: one packaged chart as an artifact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::artifact::Artifact;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::kinds;
use crate::meta::LocalReference;
use crate::object::{object, standard_object};
use crate::source::{OIDCIdentityMatch, VerificationProvider};

object!(HelmChart, kinds::HELM_CHART, HelmChartSpec, HelmChartStatus);
standard_object!(HelmChart, kinds::HELM_CHART);

/// Which chart, from where, and how often to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"!has(self.verify) || self.sourceRef.kind == 'HelmRepository'", "message": "spec.verify is only supported when spec.sourceRef.kind is 'HelmRepository'" },
    ]))]
pub struct HelmChartSpec {
    /// Name of the chart in a HelmRepository, or path to it in a GitRepository or Bucket.
    pub chart: String,
    /// A version or a range of versions. For charts in a GitRepository or Bucket it is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(extend("x-default" = "*"))]
    pub version: Option<String>,
    /// The source the chart is in.
    pub source_ref: LocalHelmChartSourceReference,
    /// How often to look for a new version.
    pub interval: GoDuration,
    /// When to make a new artifact: ChartVersion, on a new version; Revision, on any new revision of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "ChartVersion"))]
    pub reconcile_strategy: Option<ReconcileStrategy>,
    /// Files to merge into the chart's values.yaml, later ones winning, as paths in the source. The chart's own
    /// values.yaml counts only if listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// Whether files of valuesFiles that do not exist are skipped; otherwise they are an error.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub ignore_missing_values_files: bool,
    /// Stops looking for new versions. The last artifact stays available.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
    /// Check the signature of the chart. Only for a HelmRepository of type oci.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<HelmChartVerification>,
}

/// Whose signatures to require.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartVerification {
    /// The tool that signed.
    #[serde(default)]
    #[schemars(extend("x-required" = true), extend("x-default" = "cosign"))]
    pub provider: VerificationProvider,
    /// Secret with the trusted public keys (cosign) or certificates and trust policy (notation). Without it, cosign
    /// verifies keyless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Identities whose keyless signatures are trusted; one match is enough.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OIDCIdentityMatch>,
}

/// A source in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalHelmChartSourceReference {
    /// apiVersion of the source.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: HelmChartSourceKind,
    /// Name of the source.
    pub name: String,
}

/// What was packaged last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// The revision of the source that the chart was made from.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub observed_source_artifact_revision: Option<String>,
    /// The chart's name, as its Chart.yaml says.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub observed_chart_name: Option<String>,
    /// The values files that were merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_values_files: Vec<String>,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where the latest chart can be downloaded. Kept for older consumers, which should read artifact.url.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub url: Option<String>,
    /// The last good chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

impl HelmChartSpec {
    /// The version or range; any version if left out.
    pub fn version(&self) -> &str {
        self.version.as_deref().unwrap_or("*")
    }

    /// When to make a new artifact.
    pub fn reconcile_strategy(&self) -> ReconcileStrategy {
        self.reconcile_strategy.unwrap_or(ReconcileStrategy::ChartVersion)
    }
}

closed_set! {
    /// When a chart counts as new.
    pub enum ReconcileStrategy {
        /// When its version changes.
        ChartVersion = "ChartVersion",
        /// When its source's revision changes.
        Revision = "Revision",
    }
}

closed_set! {
    /// Kinds that hold charts.
    pub enum HelmChartSourceKind {
        /// A HelmRepository.
        HelmRepository = "HelmRepository",
        /// A GitRepository.
        GitRepository = "GitRepository",
        /// A Bucket.
        Bucket = "Bucket",
    }
}

impl HelmChartSpec {
    /// What every HelmChart says; the rest is left out.
    pub fn new(chart: String, source_ref: LocalHelmChartSourceReference, interval: GoDuration) -> Self {
        HelmChartSpec {
            chart,
            version: None,
            source_ref,
            interval,
            reconcile_strategy: None,
            values_files: Vec::new(),
            ignore_missing_values_files: false,
            suspend: false,
            verify: None,
        }
    }
}
