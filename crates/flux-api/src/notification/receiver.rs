//! Receiver: a webhook that makes objects reconcile at once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::kinds;
use crate::meta::LocalReference;
use crate::object::{object, standard_object};

object!(Receiver, kinds::RECEIVER, ReceiverSpec, ReceiverStatus);
standard_object!(Receiver, kinds::RECEIVER);

/// Who calls, and what is reconciled then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"self.type != 'generic-oidc' || (has(self.oidcProviders) && size(self.oidcProviders) > 0)", "message": "generic-oidc receivers must define at least one oidcProvider" },
        { "rule": r"self.type == 'generic-oidc' || !has(self.oidcProviders) || size(self.oidcProviders) == 0", "message": "oidcProviders can only be set when type is generic-oidc" },
        { "rule": r"self.type != 'generic-oidc' || !has(self.secretRef)", "message": "secretRef cannot be set when type is generic-oidc" },
        { "rule": r"self.type == 'generic-oidc' || has(self.secretRef)", "message": "secretRef is required when type is not generic-oidc" },
    ]))]
pub struct ReceiverSpec {
    /// Who calls, which decides how the call is checked.
    #[serde(rename = "type")]
    pub receiver_type: ReceiverType,
    /// How often to check the Receiver itself; 10m unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "10m"))]
    pub interval: Option<GoDuration>,
    /// Kinds of events to react to, such as push for GitHub. Not looked at where the caller has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The objects to reconcile.
    pub resources: Vec<ReceiverResource>,
    /// Which of resources to reconcile for a call, in CEL: res is the object without spec and status, req the body of the call, claims those of an identity token.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub resource_filter: Option<String>,
    /// Secret whose token is shared with the caller and is part of the webhook's path. Not for the type generic-oidc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Whose identity tokens are accepted. Only for the type generic-oidc.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-map-keys" = ["issuerURL"]), extend("x-kubernetes-list-type" = "map"))]
    pub oidc_providers: Vec<OIDCProvider>,
    /// Stops accepting calls.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
}

/// Objects by kind, name and labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverResource {
    /// apiVersion of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the objects.
    pub kind: FluxKind,
    /// Name of the object, or * for all.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the objects; the one of the Receiver if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// Labels the objects must have. Only with the name *.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Which of these objects to reconcile for a call, in CEL; in addition to resourceFilter.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub filter: Option<String>,
}

/// An issuer of identity tokens, and which of its tokens are good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OIDCProvider {
    /// Address of the issuer; its signing keys are found from there.
    #[serde(rename = "issuerURL")]
    #[schemars(regex(pattern = r"^https?://"))]
    pub issuer_url: String,
    /// The audience tokens must have; notification-controller if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub audience: Option<String>,
    /// Names for parts of the claims, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<OIDCVariable>,
    /// What must hold for a token to be accepted; all of them.
    #[schemars(length(min = 1))]
    pub validations: Vec<OIDCValidation>,
}

/// A name for something in the claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OIDCVariable {
    /// The name, used as vars.<name>.
    pub name: String,
    /// Its value, in CEL over claims and earlier vars.
    pub expression: String,
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OIDCValidation {
    /// True when it holds, in CEL over claims and vars.
    pub expression: String,
    /// What to say when it does not.
    pub message: String,
}

/// Where the webhook is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Path of the webhook, to be put behind the address of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub webhook_path: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

impl ReceiverSpec {
    /// How often to check the Receiver itself.
    pub fn interval(&self) -> GoDuration {
        self.interval.unwrap_or(GoDuration::from_secs(600))
    }
}

closed_set! {
    /// Who calls a webhook.
    pub enum ReceiverType {
        /// Anybody who knows the path.
        Generic = "generic",
        /// Anybody who signs with the token.
        GenericHmac = "generic-hmac",
        /// Anybody with an accepted identity token.
        GenericOidc = "generic-oidc",
        /// GitHub.
        GitHub = "github",
        /// GitLab.
        GitLab = "gitlab",
        /// Bitbucket Server.
        Bitbucket = "bitbucket",
        /// Harbor.
        Harbor = "harbor",
        /// Docker Hub.
        DockerHub = "dockerhub",
        /// Quay.
        Quay = "quay",
        /// Google Container Registry.
        Gcr = "gcr",
        /// Nexus.
        Nexus = "nexus",
        /// Azure Container Registry.
        Acr = "acr",
        /// Anybody who sends CDEvents.
        CDEvents = "cdevents",
    }
}

closed_set! {
    /// Kinds that send events and can be told to reconcile.
    pub enum FluxKind {
        /// A Bucket.
        Bucket = "Bucket",
        /// A GitRepository.
        GitRepository = "GitRepository",
        /// A Kustomization.
        Kustomization = "Kustomization",
        /// A HelmRelease.
        HelmRelease = "HelmRelease",
        /// A HelmChart.
        HelmChart = "HelmChart",
        /// A HelmRepository.
        HelmRepository = "HelmRepository",
        /// An ImageRepository.
        ImageRepository = "ImageRepository",
        /// An ImagePolicy.
        ImagePolicy = "ImagePolicy",
        /// An ImageUpdateAutomation.
        ImageUpdateAutomation = "ImageUpdateAutomation",
        /// An OCIRepository.
        OCIRepository = "OCIRepository",
        /// An ArtifactGenerator.
        ArtifactGenerator = "ArtifactGenerator",
        /// An ExternalArtifact.
        ExternalArtifact = "ExternalArtifact",
    }
}

impl ReceiverSpec {
    /// What every Receiver says; the rest is left out.
    pub fn new(receiver_type: ReceiverType, resources: Vec<ReceiverResource>) -> Self {
        ReceiverSpec {
            receiver_type,
            interval: None,
            events: Vec::new(),
            resources,
            resource_filter: None,
            secret_ref: None,
            oidc_providers: Vec::new(),
            suspend: false,
        }
    }
}
