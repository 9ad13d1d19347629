//! ArtifactGenerator: new artifacts from the files of sources.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::kinds::{self, Kind};
use crate::meta::CommonMetadata;
use crate::names;
use crate::object::{Object, object};

object!(ArtifactGenerator, kinds::ARTIFACT_GENERATOR, ArtifactGeneratorSpec, ArtifactGeneratorStatus);

impl Object for ArtifactGenerator {
    const KIND: &'static Kind = &kinds::ARTIFACT_GENERATOR;

    /// There is no `spec.suspend`; an annotation does it.
    fn suspended(&self) -> bool {
        let annotation =
            self.metadata.annotations.as_ref().and_then(|all| all.get(names::ARTIFACT_GENERATOR_RECONCILE));
        annotation.is_some_and(|value| value.eq_ignore_ascii_case(names::DISABLED))
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    fn observed_generation(&self) -> Option<i64> {
        None
    }

    fn last_handled_reconcile_at(&self) -> Option<&str> {
        self.status.as_ref()?.last_handled_reconcile_at.as_deref()
    }
}

/// Sources to take files from, and artifacts to make of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"has(self.pathPattern) && size(self.pathPattern) > 0 || self.artifacts.all(a, a.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))", "message": "artifact names must be valid Kubernetes object names when pathPattern is not set" },
    ]))]
pub struct ArtifactGeneratorSpec {
    /// The sources, each with a name for this object.
    #[schemars(length(min = 1, max = 1000))]
    pub sources: Vec<GeneratorSource>,
    /// The artifacts to make, each published as an ExternalArtifact.
    #[schemars(length(min = 1, max = 1000))]
    pub artifacts: Vec<OutputArtifact>,
    /// Labels and annotations to add to every ExternalArtifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// A pattern of folders in a source, as @alias/glob. One set of artifacts is made for each folder that matches, and
    /// names may refer to it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 1024), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"))]
    pub path_pattern: Option<String>,
}

/// A source, and what it is called here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeneratorSource {
    /// Name of the source in this object.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$"))]
    pub alias: String,
    /// Kind of the source.
    pub kind: GeneratorSourceKind,
    /// Name of the source.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// Namespace of the source; the one of the generator if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}

/// An artifact to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputArtifact {
    /// Name of the ExternalArtifact.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Use the revision of this source, as @alias. Left out, the revision is made from the content.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 64), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"))]
    pub revision: Option<String>,
    /// Use the origin revision of this source, as @alias.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 64), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"))]
    pub origin_revision: Option<String>,
    /// Which files to copy where, in order.
    #[schemars(length(min = 1))]
    pub copy: Vec<CopyOperation>,
}

/// Files to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyOperation {
    /// Files of a source, as @alias/glob.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"))]
    pub from: String,
    /// Where they go, as @artifact/path. A path that ends in a slash is a folder.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^@(artifact)/(.*)$"))]
    pub to: String,
    /// Globs of files to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub exclude: Vec<String>,
    /// What to do with a file that is there already: Overwrite it (the default), Merge YAML documents, or Extract a
    /// tarball.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<CopyStrategy>,
}

/// What was made last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorStatus {
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The ExternalArtifacts that were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<ExternalArtifactReference>,
    /// Checksum of the sources of the last good run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub observed_sources_digest: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

/// An ExternalArtifact that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Checksum of its file.
    pub digest: String,
    /// Name of its file in the storage.
    pub filename: String,
}

closed_set! {
    /// Kinds of sources to take files from.
    pub enum GeneratorSourceKind {
        /// A Bucket.
        Bucket = "Bucket",
        /// A GitRepository.
        GitRepository = "GitRepository",
        /// An OCIRepository.
        OCIRepository = "OCIRepository",
        /// A HelmChart.
        HelmChart = "HelmChart",
        /// An ExternalArtifact.
        ExternalArtifact = "ExternalArtifact",
    }
}

closed_set! {
    /// What to do with a file that is there already.
    #[derive(Default)]
    pub enum CopyStrategy {
        /// Replace it.
        #[default]
        Overwrite = "Overwrite",
        /// Merge the two YAML documents.
        Merge = "Merge",
        /// Unpack the tarball.
        Extract = "Extract",
    }
}
