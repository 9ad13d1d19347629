//! ExternalArtifact: an artifact that another controller made and stores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;
use crate::kinds::{self, Kind};
use crate::meta::ObjectReference;
use crate::object::{Object, object};

object!(ExternalArtifact, kinds::EXTERNAL_ARTIFACT, ExternalArtifactSpec, ExternalArtifactStatus);

impl Object for ExternalArtifact {
    const KIND: &'static Kind = &kinds::EXTERNAL_ARTIFACT;

    fn suspended(&self) -> bool {
        false
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    fn observed_generation(&self) -> Option<i64> {
        None
    }

    fn last_handled_reconcile_at(&self) -> Option<&str> {
        None
    }
}

/// Who makes the artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactSpec {
    /// The object that the artifact was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<ObjectReference>,
}

/// The artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactStatus {
    /// The artifact, as its maker published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// What its maker observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
