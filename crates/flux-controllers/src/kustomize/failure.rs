//! Why a reconcile stopped, one variant for each thing users can tell apart, and the reason they see.

use flux_api::duration::GoDuration;

use super::dependencies::NotReady;
use super::observe::SourceKey;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{}.{} \"{}\" not found", .0.kind.as_str(), .0.kind_row().group, .0.key.name)]
    SourceMissing(SourceKey),
    #[error("Source artifact not found, retrying in {0}")]
    NoArtifact(GoDuration),
    #[error("Source is not ready, artifact not found, retrying in {0}")]
    ArtifactGone(GoDuration),
    #[error("{0}")]
    Fetch(String),
    #[error("{0}")]
    PathNotFound(String),
    #[error("can't access '{0}', cross-namespace references have been blocked")]
    AccessDenied(String),
    #[error("can't access '{0}', ExternalArtifact feature gate is disabled")]
    ExternalArtifactDenied(String),
    #[error("Reconciliation failed terminally due to configuration error: {0}")]
    InvalidExpression(String),
    #[error(
        "to use spec.decryption.serviceAccountName for decryption authentication please enable the \
         ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    FeatureGateDisabled,
    #[error("{0}")]
    Dependency(NotReady),
    #[error("dependencies go round in a circle: {0}; remove one of these dependencies")]
    DependencyCycle(String),
    #[error("{0}")]
    Build(String),
    #[error("{0}")]
    Apply(String),
    #[error("{0}")]
    Prune(String),
    #[error("{0}")]
    Unhealthy(String),
    /// The controllers that a set of this system itself brought.
    #[error("the controllers of this set are not ready: {0}")]
    Controllers(String),
    /// A set of this system itself did not come up, and the last good one is back.
    #[error("{0}")]
    RolledBack(String),
    /// The source has another artifact by now, which goes before the one that could not be had yet.
    #[error("the source has changed")]
    Superseded,
    /// Something newer arrived while this run was waiting: what it was.
    #[error("New reconciliation triggered by {0}")]
    Preempted(String),
}

impl Failure {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Failure::SourceMissing(_)
            | Failure::NoArtifact(_)
            | Failure::ArtifactGone(_)
            | Failure::Fetch(_)
            | Failure::PathNotFound(_)
            | Failure::Superseded => "ArtifactFailed",
            Failure::AccessDenied(_) | Failure::ExternalArtifactDenied(_) => "AccessDenied",
            Failure::InvalidExpression(_) => "InvalidCELExpression",
            Failure::FeatureGateDisabled => "FeatureGateDisabled",
            Failure::Dependency(_) => "DependencyNotReady",
            Failure::DependencyCycle(_) => "DependencyCycle",
            Failure::Build(_) => "BuildFailed",
            Failure::Apply(_) => "ReconciliationFailed",
            Failure::Prune(_) => "PruneFailed",
            Failure::Unhealthy(_) | Failure::Controllers(_) => "HealthCheckFailed",
            Failure::RolledBack(_) => "RolledBack",
            Failure::Preempted(_) => "HealthCheckCanceled",
        }
    }

    /// Trying again is of no use until somebody changes something.
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self,
            Failure::AccessDenied(_)
                | Failure::ExternalArtifactDenied(_)
                | Failure::InvalidExpression(_)
                | Failure::FeatureGateDisabled
                | Failure::DependencyCycle(_)
        )
    }

    /// The same files and the same spec fail again.
    pub(super) fn is_of_the_files(&self) -> bool {
        self.is_final() || matches!(self, Failure::Build(_) | Failure::PathNotFound(_))
    }

    /// The results that `.status.history` keeps.
    pub(super) fn is_remembered(&self) -> bool {
        matches!(
            self,
            Failure::Apply(_)
                | Failure::Prune(_)
                | Failure::Unhealthy(_)
                | Failure::Controllers(_)
                | Failure::RolledBack(_)
        )
    }

    /// Known to come and go with sources: the log says it, events do not.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self, Failure::SourceMissing(_) | Failure::NoArtifact(_) | Failure::ArtifactGone(_))
    }
}
