//! OCIRepository: a layer of an image in a container registry as an artifact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::artifact::Artifact;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::{self, GoDuration};
use crate::kinds;
use crate::meta::LocalReference;
use crate::object::{object, standard_object};

object!(OCIRepository, kinds::OCI_REPOSITORY, OCIRepositorySpec, OCIRepositoryStatus);
standard_object!(OCIRepository, kinds::OCI_REPOSITORY);

/// What to pull, how often, and how to log in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIRepositorySpec {
    /// Address of the image without tag, such as oci://ghcr.io/org/manifests.
    #[schemars(regex(pattern = r"^oci://.*$"))]
    pub url: String,
    /// Which tag or digest to pull; the tag latest if left out.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<OCIReference>,
    /// Which layer holds the files. The first one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_selector: Option<OCILayerSelector>,
    /// Who to ask for registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "generic"))]
    pub provider: Option<CloudProvider>,
    /// Secret of type kubernetes.io/dockerconfigjson with registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Check the signature of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<OCIVerification>,
    /// ServiceAccount in the same namespace. Its image pull secrets are used, and with a cloud provider its identity.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub service_account_name: Option<String>,
    /// Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalReference>,
    /// Secret with the address of a proxy and, if it wants them, username and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalReference>,
    /// How often to look for a new image.
    pub interval: GoDuration,
    /// How long one pull may take, 60s unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = duration::PATTERN_WITHOUT_HOURS), extend("x-default" = "60s"))]
    pub timeout: Option<GoDuration>,
    /// Patterns, in the syntax of .gitignore, of files to leave out of the artifact. They replace the default patterns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Whether to talk to the registry without TLS.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub insecure: bool,
    /// Stops looking for new images. The last artifact stays available.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
}

/// A tag, range or digest. Where several are set, digest wins, then semver, tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIReference {
    /// The digest of an image, as sha256:<hex>.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub digest: Option<String>,
    /// A range of versions; the highest tag in it is taken.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub semver: Option<String>,
    /// A regular expression; only tags that match it are candidates for semver.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub semver_filter: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub tag: Option<String>,
}

/// One layer of an image, and what to do with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCILayerSelector {
    /// Take the first layer of this media type.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub media_type: Option<String>,
    /// extract unpacks the layer, the default; copy keeps it as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<LayerOperation>,
}

/// Whose signatures to require.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIVerification {
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
    /// Secret with a trusted_root.json, for a Sigstore instance of your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<LocalReference>,
}

/// A signer, by regular expressions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OIDCIdentityMatch {
    /// Matches the issuer in the signer's certificate.
    pub issuer: String,
    /// Matches the subject in the signer's certificate.
    pub subject: String,
}

/// What was pulled last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIRepositoryStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where the latest artifact can be downloaded. Kept for older consumers, which should read artifact.url.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub url: Option<String>,
    /// The artifact of the last good pull.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The ignore patterns the artifact was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// The layer selector the artifact was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_layer_selector: Option<OCILayerSelector>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

impl OCIRepositorySpec {
    /// How long one pull may take.
    pub fn timeout(&self) -> GoDuration {
        self.timeout.unwrap_or(GoDuration::from_secs(60))
    }

    /// Who to ask for registry credentials.
    pub fn provider(&self) -> CloudProvider {
        self.provider.unwrap_or(CloudProvider::Generic)
    }

    /// Which layer to take; nothing means the first.
    pub fn layer_media_type(&self) -> Option<&str> {
        self.layer_selector.as_ref()?.media_type.as_deref()
    }

    /// What to do with the layer.
    pub fn layer_operation(&self) -> LayerOperation {
        self.layer_selector.as_ref().and_then(|layer| layer.operation).unwrap_or(LayerOperation::Extract)
    }
}

closed_set! {
    /// Who gives out credentials for a registry.
    #[derive(Default)]
    pub enum CloudProvider {
        /// Nobody: only Secrets count.
        #[default]
        Generic = "generic",
        /// Amazon.
        Aws = "aws",
        /// Microsoft.
        Azure = "azure",
        /// Google.
        Gcp = "gcp",
    }
}

closed_set! {
    /// What to do with a layer.
    pub enum LayerOperation {
        /// Unpack it.
        Extract = "extract",
        /// Keep it as a file.
        Copy = "copy",
    }
}

closed_set! {
    /// Tools that sign images and charts.
    #[derive(Default)]
    pub enum VerificationProvider {
        /// Sigstore's cosign.
        #[default]
        Cosign = "cosign",
        /// The Notary Project's notation.
        Notation = "notation",
    }
}
