//! ImagePolicy: the newest of an image's tags, by a rule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::kinds;
use crate::meta::NamespacedReference;
use crate::object::{object, standard_object};

object!(ImagePolicy, kinds::IMAGE_POLICY, ImagePolicySpec, ImagePolicyStatus);
standard_object!(ImagePolicy, kinds::IMAGE_POLICY);

/// How to pick a tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"!has(self.interval) || (has(self.digestReflectionPolicy) && self.digestReflectionPolicy == 'Always')", "message": "spec.interval is only accepted when spec.digestReflectionPolicy is set to 'Always'" },
        { "rule": r"has(self.interval) || !has(self.digestReflectionPolicy) || self.digestReflectionPolicy != 'Always'", "message": "spec.interval must be set when spec.digestReflectionPolicy is set to 'Always'" },
    ]))]
pub struct ImagePolicySpec {
    /// The ImageRepository whose tags to pick from.
    pub image_repository_ref: NamespacedReference,
    /// The rule by which the newest tag is picked.
    pub policy: ImagePolicyChoice,
    /// Which tags to consider; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_tags: Option<TagFilter>,
    /// When to look up the digest of the picked tag: Always, IfNotPresent or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "Never"))]
    pub digest_reflection_policy: Option<ReflectionPolicy>,
    /// How often to look up the digest again. Needed with, and only with, digestReflectionPolicy Always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Stops picking. The last pick stays.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicyChoice {
    /// Order by semantic version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<SemVerPolicy>,
    /// Order as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alphabetical: Option<AlphabeticalPolicy>,
    /// Order as numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numerical: Option<NumericalPolicy>,
}

/// Order by semantic version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SemVerPolicy {
    /// The range of versions to pick from; the highest is taken.
    pub range: String,
}

/// Order as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlphabeticalPolicy {
    /// asc takes the last in the order of text, desc the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "asc"))]
    pub order: Option<PolicyOrder>,
}

/// Order as numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumericalPolicy {
    /// asc takes the highest number, desc the lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "asc"))]
    pub order: Option<PolicyOrder>,
}

/// A choice of tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TagFilter {
    /// A regular expression that tags must match.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub pattern: Option<String>,
    /// What to order by, made of the pattern's groups, such as $1. The whole tag if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub extract: Option<String>,
}

/// What was picked last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicyStatus {
    /// The image that was picked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ref: Option<ImageReference>,
    /// The image that was picked before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_previous_ref: Option<ImageReference>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageReference {
    /// Name of the image without tag.
    pub name: String,
    /// The tag.
    pub tag: String,
    /// The digest, if it was looked up.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub digest: Option<String>,
}

impl ImagePolicySpec {
    /// When to look up the digest.
    pub fn digest_reflection_policy(&self) -> ReflectionPolicy {
        self.digest_reflection_policy.unwrap_or(ReflectionPolicy::Never)
    }
}

impl std::fmt::Display for ImageReference {
    /// `name:tag`, with `@digest` where it is known.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)?;
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

closed_set! {
    /// When the digest of a picked tag is looked up.
    pub enum ReflectionPolicy {
        /// At every interval.
        Always = "Always",
        /// Once for each tag.
        IfNotPresent = "IfNotPresent",
        /// Never.
        Never = "Never",
    }
}

closed_set! {
    /// Which end is the newest.
    #[derive(Default)]
    pub enum PolicyOrder {
        /// The last.
        #[default]
        Ascending = "asc",
        /// The first.
        Descending = "desc",
    }
}
