//! The artifact: what a source publishes and the appliers consume.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::revision::{ORIGIN_REVISION_METADATA, Revision};
use crate::time::Time;

/// A file with the content of a source at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Where the file is in the storage, relative to its root.
    pub path: String,
    /// Where to download it inside the cluster.
    pub url: String,
    /// What the content is, such as main@sha1:<commit>.
    pub revision: Revision,
    /// Checksum of the file, as <algorithm>:<hex>.
    pub digest: Digest,
    /// When this artifact was made.
    pub last_update_time: Time,
    /// Length of the file in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// What the maker knows about the content, such as the annotations of an image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl Artifact {
    /// The revision that this content was made from, where its maker wrote it down.
    pub fn origin_revision(&self) -> Option<Revision> {
        self.metadata.get(ORIGIN_REVISION_METADATA).map(|text| Revision::from(text.as_str()))
    }

    /// Whether the content is the same, whatever its path and age.
    pub fn has_revision(&self, revision: &Revision) -> bool {
        self.revision == *revision
    }

    /// Whether it was made under the same revision and has the same bytes.
    pub fn has_same_content(&self, other: &Artifact) -> bool {
        self.revision == other.revision && self.digest == other.digest
    }
}
