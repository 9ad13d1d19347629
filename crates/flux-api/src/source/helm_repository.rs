//! HelmRepository: a place that Helm charts come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::artifact::Artifact;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::{self, GoDuration};
use crate::kinds;
use crate::meta::{AccessFrom, LocalReference};
use crate::object::{object, standard_object};
use crate::source::CloudProvider;

object!(HelmRepository, kinds::HELM_REPOSITORY, HelmRepositorySpec, HelmRepositoryStatus);
standard_object!(HelmRepository, kinds::HELM_REPOSITORY);

/// Where charts come from, how often to look, and how to log in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmRepositorySpec {
    /// Address of the folder that holds index.yaml (http or https), or of a registry (oci).
    #[schemars(regex(pattern = r"^(http|https|oci)://.*$"))]
    pub url: String,
    /// Secret with username and password; for a registry also of type kubernetes.io/dockerconfigjson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalReference>,
    /// Whether to send the credentials also to other hosts that the index points to. They could then be stolen by whoever
    /// writes the index.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub pass_credentials: bool,
    /// How often to fetch the index; 1m if left out. Not needed for a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Whether to talk to a registry without TLS.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub insecure: bool,
    /// How long one fetch may take; 60s if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = duration::PATTERN_WITHOUT_HOURS))]
    pub timeout: Option<GoDuration>,
    /// Stops fetching the index.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
    /// Reserved for rules on who may use the repository from other namespaces; not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,
    /// default for an index over HTTP, oci for a registry.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub repository_type: Option<HelmRepositoryType>,
    /// Who to ask for registry credentials. Only for type oci.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "generic"))]
    pub provider: Option<CloudProvider>,
}

/// What was fetched last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmRepositoryStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where the latest index can be downloaded. Kept for older consumers, which should read artifact.url.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub url: Option<String>,
    /// The index of the last good fetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

impl HelmRepositorySpec {
    /// How often to fetch the index.
    pub fn interval(&self) -> GoDuration {
        self.interval.unwrap_or(GoDuration::from_secs(60))
    }

    /// How long one fetch may take.
    pub fn timeout(&self) -> GoDuration {
        self.timeout.unwrap_or(GoDuration::from_secs(60))
    }

    /// An index or a registry.
    pub fn repository_type(&self) -> HelmRepositoryType {
        self.repository_type.unwrap_or(HelmRepositoryType::Default)
    }

    /// Who to ask for registry credentials.
    pub fn provider(&self) -> CloudProvider {
        self.provider.unwrap_or(CloudProvider::Generic)
    }
}

closed_set! {
    /// How charts are published.
    pub enum HelmRepositoryType {
        /// An index.yaml over HTTP.
        Default = "default",
        /// Images in a container registry.
        Oci = "oci",
    }
}
