//! ImageRepository: the tags an image has in its registry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::condition::Condition;
use crate::duration::{self, GoDuration};
use crate::kinds;
use crate::meta::{AccessFrom, LocalReference};
use crate::object::{object, standard_object};
use crate::source::CloudProvider;
use crate::time::Time;

object!(ImageRepository, kinds::IMAGE_REPOSITORY, ImageRepositorySpec, ImageRepositoryStatus);
standard_object!(ImageRepository, kinds::IMAGE_REPOSITORY);

/// Which image to scan, how often, and how to log in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageRepositorySpec {
    /// Name of the image without tag, such as ghcr.io/org/app.
    pub image: String,
    /// How often to scan.
    pub interval: GoDuration,
    /// How long one scan may take; interval if left out, and at least 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = duration::PATTERN_WITHOUT_HOURS))]
    pub timeout: Option<GoDuration>,
    /// Secret of type kubernetes.io/dockerconfigjson with registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Secret with the address of a proxy and, if it wants them, username and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalReference>,
    /// ServiceAccount in the same namespace. Its image pull secrets are used, and with a cloud provider its identity.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalReference>,
    /// Stops scanning. The tags that were found stay.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
    /// ImagePolicies of which other namespaces may use the tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,
    /// Regular expressions; tags that match one of them are left out. Signatures unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 25), extend("x-default" = [r"^.*\.sig$"]))]
    pub exclusion_list: Option<Vec<String>>,
    /// Who to ask for registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "generic"))]
    pub provider: Option<CloudProvider>,
    /// Whether to talk to the registry without TLS.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub insecure: bool,
}

/// What was found last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageRepositoryStatus {
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// The image's full name, with the registry and folder that the short name stands for.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub canonical_image_name: Option<String>,
    /// What the last good scan found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scan_result: Option<ScanResult>,
    /// The exclusion list of the last good scan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_exclusion_list: Vec<String>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanResult {
    /// Checksum of the list of tags.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub revision: Option<String>,
    /// How many tags there are, without the excluded ones.
    #[schemars(extend("x-no-format" = true))]
    pub tag_count: i64,
    /// When the scan was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_time: Option<Time>,
    /// Up to ten tags, highest first in the order of text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latest_tags: Vec<String>,
}

impl ImageRepositorySpec {
    /// How long one scan may take.
    pub fn timeout(&self) -> GoDuration {
        self.timeout.unwrap_or(self.interval)
    }

    /// Who to ask for registry credentials.
    pub fn provider(&self) -> CloudProvider {
        self.provider.unwrap_or(CloudProvider::Generic)
    }

    /// Patterns of tags to leave out.
    pub fn exclusion_list(&self) -> Vec<String> {
        self.exclusion_list.clone().unwrap_or_else(|| vec![r"^.*\.sig$".to_owned()])
    }
}
