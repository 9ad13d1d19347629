//! ImageUpdateAutomation: commits picked images to a Git repository.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::image::ImageReference;
use crate::kinds;
use crate::meta::LocalReference;
use crate::object::{object, standard_object};
use crate::source::GitReference;
use crate::time::Time;

object!(
    ImageUpdateAutomation,
    kinds::IMAGE_UPDATE_AUTOMATION,
    ImageUpdateAutomationSpec,
    ImageUpdateAutomationStatus
);
standard_object!(ImageUpdateAutomation, kinds::IMAGE_UPDATE_AUTOMATION);

/// Which repository to change, how, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdateAutomationSpec {
    /// The GitRepository to change, whose credentials are used to push.
    pub source_ref: AutomationSourceReference,
    /// What to check out, commit and push. Left out, nothing can be pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSpec>,
    /// How often to look for new images.
    pub interval: GoDuration,
    /// Which ImagePolicies of the namespace to use; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub policy_selector: Option<LabelSelector>,
    /// How the files are changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = { "strategy": "Setters" }))]
    pub update: Option<UpdateStrategy>,
    /// Stops committing.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
}

/// A Git repository, perhaps in another namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutomationSourceReference {
    /// apiVersion of the source.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the source.
    #[serde(default)]
    #[schemars(extend("x-required" = true), extend("x-default" = "GitRepository"))]
    pub kind: AutomationSourceKind,
    /// Name of the source.
    pub name: String,
    /// Namespace of the source; the one of the automation if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub namespace: Option<String>,
}

/// How to use Git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSpec {
    /// What to check out; the ref of the GitRepository if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkout: Option<GitCheckoutSpec>,
    /// How to commit.
    pub commit: CommitSpec,
    /// Where to push; the branch that was checked out if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushSpec>,
}

/// What to check out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitCheckoutSpec {
    /// The branch, or other ref, to check out.
    #[serde(rename = "ref")]
    pub reference: GitReference,
}

/// How to commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitSpec {
    /// Who the commit is from.
    pub author: CommitUser,
    /// Sign commits with this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key: Option<SigningKey>,
    /// A Go template for the message. Left out, a short standard message.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub message_template: Option<String>,
    /// More values for the template, as .Values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub message_template_values: BTreeMap<String, String>,
}

/// Who a commit is from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitUser {
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub name: Option<String>,
    /// E-mail address.
    pub email: String,
}

/// A key to sign commits with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SigningKey {
    /// gpg (the default) or ssh.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub key_type: Option<SigningKeyType>,
    /// Secret with the private key in git.asc and, where it has one, its passphrase in passphrase; for ssh the keys
    /// identity and password.
    pub secret_ref: LocalReference,
}

/// Where to push.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushSpec {
    /// The branch to push to; made from the one checked out if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub branch: Option<String>,
    /// A refspec to push, beside or instead of branch.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub refspec: Option<String>,
    /// Options for the server, as git push --push-option.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// How files are changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// Setters changes the fields that a comment marks with the name of a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "Setters"))]
    pub strategy: Option<UpdateStrategyName>,
    /// The folder to change; the whole repository if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub path: Option<String>,
}

/// Objects by their labels. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelectorRequirement {
    /// The label.
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    pub operator: String,
    /// Values for In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// What was committed last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdateAutomationStatus {
    /// When the automation last ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_automation_run_time: Option<Time>,
    /// The last commit that was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_push_commit: Option<String>,
    /// When it was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_push_time: Option<Time>,
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The images of the policies in the last good run, by the policy's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_policies: Option<BTreeMap<String, ImageReference>>,
    /// The revision of the source in the last good run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub observed_source_revision: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

closed_set! {
    /// Kinds that can be changed.
    #[derive(Default)]
    pub enum AutomationSourceKind {
        /// A GitRepository.
        #[default]
        GitRepository = "GitRepository",
    }
}

closed_set! {
    /// Kinds of signing keys.
    #[derive(Default)]
    pub enum SigningKeyType {
        /// An OpenPGP key.
        #[default]
        Gpg = "gpg",
        /// An SSH key.
        Ssh = "ssh",
    }
}

closed_set! {
    /// Ways to change files.
    #[derive(Default)]
    pub enum UpdateStrategyName {
        /// By comments that name a policy.
        #[default]
        Setters = "Setters",
    }
}
