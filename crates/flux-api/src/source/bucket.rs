//! Bucket: the objects of an object store as an artifact.

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

object!(Bucket, kinds::BUCKET, BucketSpec, BucketStatus);
standard_object!(Bucket, kinds::BUCKET);

/// What to fetch, how often, and how to log in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"self.provider == 'aws' || self.provider == 'generic' || !has(self.sts)", "message": "STS configuration is only supported for the 'aws' and 'generic' Bucket providers" },
        { "rule": r"self.provider != 'aws' || !has(self.sts) || self.sts.provider == 'aws'", "message": "'aws' is the only supported STS provider for the 'aws' Bucket provider" },
        { "rule": r"self.provider != 'generic' || !has(self.sts) || self.sts.provider == 'ldap'", "message": "'ldap' is the only supported STS provider for the 'generic' Bucket provider" },
        { "rule": r"!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.secretRef)", "message": "spec.sts.secretRef is not required for the 'aws' STS provider" },
        { "rule": r"!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.certSecretRef)", "message": "spec.sts.certSecretRef is not required for the 'aws' STS provider" },
        { "rule": r"self.provider != 'generic' || !has(self.serviceAccountName)", "message": "ServiceAccountName is not supported for the 'generic' Bucket provider" },
        { "rule": r"!has(self.secretRef) || !has(self.serviceAccountName)", "message": "cannot set both .spec.secretRef and .spec.serviceAccountName" },
    ]))]
pub struct BucketSpec {
    /// Which kind of object store it is. generic speaks S3 with keys from the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "generic"))]
    pub provider: Option<BucketProvider>,
    /// Name of the bucket.
    pub bucket_name: String,
    /// Host, or host and port, of the object store; for Azure the address of the account.
    pub endpoint: String,
    /// Get temporary credentials from a security token service. For the providers aws and generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts: Option<BucketSTS>,
    /// Whether to talk to the store without TLS.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub insecure: bool,
    /// Region of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub region: Option<String>,
    /// Only fetch objects whose key starts with this.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub prefix: Option<String>,
    /// Secret with accesskey and secretkey, or what the provider wants instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// ServiceAccount in the same namespace whose cloud identity is used. Not for the provider generic.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub service_account_name: Option<String>,
    /// Secret with ca.crt and, for mutual TLS, tls.crt and tls.key. For the provider generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalReference>,
    /// Secret with the address of a proxy and, if it wants them, username and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalReference>,
    /// How often to look for changes.
    pub interval: GoDuration,
    /// How long one fetch may take, 60s unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = duration::PATTERN_WITHOUT_HOURS), extend("x-default" = "60s"))]
    pub timeout: Option<GoDuration>,
    /// Patterns, in the syntax of .gitignore, of objects to leave out of the artifact. They replace the default patterns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Stops looking for changes. The last artifact stays available.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
}

/// A service that gives out temporary credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketSTS {
    /// Which protocol: aws for AWS STS, ldap for MinIO's LDAP.
    pub provider: STSProvider,
    /// Address of the service, http or https.
    #[schemars(regex(pattern = r"^(http|https)://.*$"))]
    pub endpoint: String,
    /// Secret with username and password for LDAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Secret with ca.crt and, for mutual TLS, tls.crt and tls.key. For LDAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalReference>,
}

/// What was fetched last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where the latest artifact can be downloaded. Kept for older consumers, which should read artifact.url.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub url: Option<String>,
    /// The artifact of the last good fetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The ignore patterns the artifact was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

impl BucketSpec {
    /// How long one fetch may take.
    pub fn timeout(&self) -> GoDuration {
        self.timeout.unwrap_or(GoDuration::from_secs(60))
    }

    /// Which kind of object store it is.
    pub fn provider(&self) -> BucketProvider {
        self.provider.unwrap_or(BucketProvider::Generic)
    }
}

closed_set! {
    /// Kinds of object stores.
    pub enum BucketProvider {
        /// Anything that speaks S3.
        Generic = "generic",
        /// Amazon S3.
        Aws = "aws",
        /// Google Cloud Storage.
        Gcp = "gcp",
        /// Azure Blob Storage.
        Azure = "azure",
    }
}

closed_set! {
    /// Protocols of security token services.
    pub enum STSProvider {
        /// AWS STS.
        Aws = "aws",
        /// MinIO's LDAP.
        Ldap = "ldap",
    }
}
