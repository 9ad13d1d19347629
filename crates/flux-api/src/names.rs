//! Names that Flux writes into other people's objects, and users into ours: finalizers, annotations, labels, event metadata.

/// Finalizer of every kind that is cleaned up after.
pub const FINALIZER: &str = "finalizers.fluxcd.io";
/// Finalizer of ArtifactGenerator, which came from outside.
pub const ARTIFACT_GENERATOR_FINALIZER: &str = "source.extensions.fluxcd.io/finalizer";

/// Annotation: reconcile now. Any new value counts.
pub const RECONCILE_REQUEST: &str = "reconcile.fluxcd.io/requestedAt";
/// Annotation: upgrade a HelmRelease even if nothing changed.
pub const FORCE_REQUEST: &str = "reconcile.fluxcd.io/forceAt";
/// Annotation: forget a HelmRelease's failures.
pub const RESET_REQUEST: &str = "reconcile.fluxcd.io/resetAt";
/// Label on ConfigMaps and Secrets: reconcile those who refer to it when it changes.
pub const WATCH_LABEL: &str = "reconcile.fluxcd.io/watch";
/// Value of [`WATCH_LABEL`].
pub const WATCH_ENABLED: &str = "Enabled";
/// Label: which shard's controllers look after the object.
pub const SHARD_LABEL: &str = "sharding.fluxcd.io/shard";
/// Annotation on a suspended object: why. Nobody but people reads it.
pub const SUSPEND_REASON: &str = "fluxcd.rs/suspend-reason";
/// Annotation on a suspended object: when the suspension ends by itself (RFC 3339).
pub const SUSPEND_UNTIL: &str = "fluxcd.rs/suspend-until";
/// Annotations with this prefix are copied into the object's events.
pub const EVENT_ANNOTATION_PREFIX: &str = "event.toolkit.fluxcd.io/";

/// Label on applied objects: the name of their Kustomization.
pub const KUSTOMIZATION_NAME_LABEL: &str = "kustomize.toolkit.fluxcd.io/name";
/// Label on applied objects: the namespace of their Kustomization.
pub const KUSTOMIZATION_NAMESPACE_LABEL: &str = "kustomize.toolkit.fluxcd.io/namespace";
/// Label on released objects: the name of their HelmRelease.
pub const HELM_RELEASE_NAME_LABEL: &str = "helm.toolkit.fluxcd.io/name";
/// Label on released objects: the namespace of their HelmRelease.
pub const HELM_RELEASE_NAMESPACE_LABEL: &str = "helm.toolkit.fluxcd.io/namespace";

/// Annotation or label: `disabled` leaves the object alone.
pub const KUSTOMIZE_RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
/// Annotation or label: `disabled` keeps the object when it leaves the source.
pub const KUSTOMIZE_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
/// Annotation or label: how the object is applied: `Override`, `Merge`, `IfNotPresent`, `Ignore`.
pub const KUSTOMIZE_SSA: &str = "kustomize.toolkit.fluxcd.io/ssa";
/// Annotation or label: `enabled` creates the object again when it cannot be changed.
pub const KUSTOMIZE_FORCE: &str = "kustomize.toolkit.fluxcd.io/force";
/// Annotation or label: `disabled` leaves variables in the object as they are.
pub const KUSTOMIZE_SUBSTITUTE: &str = "kustomize.toolkit.fluxcd.io/substitute";
/// Annotation or label: `disabled` leaves encrypted values in the object as they are.
pub const KUSTOMIZE_DECRYPT: &str = "kustomize.toolkit.fluxcd.io/decrypt";
/// Annotation or label: `disabled` leaves the object out of drift detection.
pub const HELM_DRIFT_DETECTION: &str = "helm.toolkit.fluxcd.io/driftDetection";
/// Annotation: `disabled` leaves an ArtifactGenerator alone.
pub const ARTIFACT_GENERATOR_RECONCILE: &str = "source.extensions.fluxcd.io/reconcile";
/// Label on an ExternalArtifact: the UID of the ArtifactGenerator that made it.
pub const ARTIFACT_GENERATOR_LABEL: &str = "source.extensions.fluxcd.io/generator";

/// What such an annotation says to switch something off.
pub const DISABLED: &str = "disabled";
/// What such an annotation says to switch something on.
pub const ENABLED: &str = "enabled";

crate::closed_set::closed_set! {
    /// What an event says about its object beside message and reason. On the wire each is prefixed with the object's API group.
    pub enum EventMetadata {
        /// The revision it is about.
        Revision = "revision",
        /// The revision that one was made from.
        OriginRevision = "originRevision",
        /// Checksum of what was done; written by older versions.
        Checksum = "checksum",
        /// Checksum of what was done.
        Digest = "digest",
        /// Makes otherwise equal events distinct.
        Token = "token",
        /// The commit it is about.
        Commit = "commit",
        /// `update` asks for a commit status even without a change.
        CommitStatus = "commit_status",
        /// The pull or merge request it is about.
        ChangeRequest = "change_request",
        /// The application's version, as its chart says.
        AppVersion = "app-version",
        /// The digest of a chart that came as an image.
        OciDigest = "oci-digest",
    }
}

impl EventMetadata {
    /// The key on the wire: `<group>/<key>`.
    pub fn key(self, group: &str) -> String {
        format!("{group}/{self}")
    }
}

/// `commit_status` that asks for a status even without a change.
pub const COMMIT_STATUS_UPDATE: &str = "update";
