//! Why a run ended without a new artifact, in the words and with the reasons users know.

use flux_remote::git;
use flux_remote::git::github_app;

use super::super::skeleton::{self, Retry};
use super::super::{
    FETCH_FAILED, INCLUDE_UNAVAILABLE, SOURCE_VERIFIED, STORAGE_OPERATION_FAILED, credentials,
};

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{}", git_message(url, *listing, cause))]
    Git { url: String, listing: bool, cause: git::Error },
    #[error(
        "failed to checkout and determine revision: unable to clone '{url}': context deadline exceeded: no answer within {seconds} s"
    )]
    TimedOut { url: String, seconds: u64 },
    #[error("{0}")]
    Secret(credentials::Error),
    #[error("failed to configure authentication options: {0}")]
    Login(String),
    #[error("failed to checkout and determine revision: unable to construct auth method with options: {0}")]
    AuthMethod(String),
    #[error("failed to configure authentication options: {0}")]
    Cloud(String),
    #[error(
        "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    GateDisabled,
    #[error("failed to configure authentication options: {0}")]
    App(#[from] github_app::Error),
    #[error("failed to configure proxy options: {0}")]
    Proxy(String),
    #[error("failed to parse url '{url}': {cause}")]
    Url { url: String, cause: String },
    #[error("{0}")]
    Provider(String),
    #[error("secretRef with github app data must be specified when provider is set to github")]
    NoAppSecret,
    #[error("secretRef with github app data must be specified when provider is set to github")]
    NoAppData,
    #[error("failed to sparse checkout directories : {0}")]
    Sparse(String),
    #[error(
        "could not get resource for include '{0}': GitRepository.source.toolkit.fluxcd.io \"{0}\" not found"
    )]
    IncludeMissing(String),
    #[error("no artifact available for include '{0}'")]
    IncludeEmpty(String),
    #[error("path calculation for include '{name}' failed: {cause}")]
    IncludePath { name: String, cause: String },
    #[error("failed to copy '{name}' include from {from} to {to}: {cause}")]
    IncludeCopy { name: String, from: String, to: String, cause: String },
    #[error("public keys secret error: {0}")]
    PublicKeys(String),
    #[error("cannot verify tag object's signature if a tag reference is not specified")]
    NoTag,
    #[error("cannot verify signature of tag '{0}' since it is not signed")]
    TagNotSigned(String),
    #[error("signature verification of tag '{tag}' failed: {cause}")]
    TagSignature { tag: String, cause: git::Unverified },
    #[error("signature verification of commit '{commit}' failed: {cause}")]
    CommitSignature { commit: String, cause: git::Unverified },
    #[error("{0}")]
    Folder(String),
    #[error("unable to archive artifact to storage: {0}")]
    Storage(String),
}

impl Failure {
    fn condition(&self) -> &'static str {
        match self {
            Failure::Git { .. }
            | Failure::TimedOut { .. }
            | Failure::Secret(_)
            | Failure::Login(_)
            | Failure::AuthMethod(_)
            | Failure::App(_)
            | Failure::Cloud(_)
            | Failure::GateDisabled
            | Failure::Proxy(_)
            | Failure::Url { .. }
            | Failure::Provider(_)
            | Failure::NoAppSecret
            | Failure::NoAppData
            | Failure::Folder(_)
            | Failure::Sparse(_) => FETCH_FAILED,
            Failure::IncludeMissing(_) | Failure::IncludeEmpty(_) => INCLUDE_UNAVAILABLE,
            Failure::IncludePath { .. } | Failure::IncludeCopy { .. } | Failure::Storage(_) => {
                STORAGE_OPERATION_FAILED
            }
            Failure::PublicKeys(_)
            | Failure::NoTag
            | Failure::TagNotSigned(_)
            | Failure::TagSignature { .. }
            | Failure::CommitSignature { .. } => SOURCE_VERIFIED,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Failure::Git { cause: git::Error::Empty, .. } => "EmptyGitRepository",
            Failure::Git { .. }
            | Failure::TimedOut { .. }
            | Failure::AuthMethod(_)
            | Failure::Folder(_)
            | Failure::Sparse(_) => "GitOperationFailed",
            Failure::Secret(_)
            | Failure::Login(_)
            | Failure::App(_)
            | Failure::Cloud(_)
            | Failure::Proxy(_) => "AuthenticationFailed",
            Failure::GateDisabled => "FeatureGateDisabled",
            Failure::Provider(_) | Failure::NoAppSecret | Failure::NoAppData => {
                "InvalidProviderConfiguration"
            }
            Failure::Url { .. } => "URLInvalid",
            Failure::IncludeMissing(_) => "NotFound",
            Failure::IncludeEmpty(_) => "NoArtifact",
            Failure::IncludePath { .. } => "IllegalPath",
            Failure::IncludeCopy { .. } => "CopyFailure",
            Failure::PublicKeys(_) => "VerificationError",
            Failure::NoTag => "InvalidVerificationMode",
            Failure::TagNotSigned(_) => "InvalidGitObject",
            Failure::TagSignature { .. } => "InvalidTagSignature",
            Failure::CommitSignature { .. } => "InvalidCommitSignature",
            Failure::Storage(_) => "ArchiveOperationFailed",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            // Only a change of the object can help.
            Failure::Url { .. } | Failure::NoTag | Failure::NoAppSecret | Failure::GateDisabled => {
                Retry::Stalled
            }
            // A change of the other object wakes this one.
            Failure::IncludeMissing(_) | Failure::IncludeEmpty(_) => Retry::Waiting(None),
            _ => Retry::Backoff,
        }
    }
}

impl From<Failure> for skeleton::Failure {
    fn from(failure: Failure) -> Self {
        let told = skeleton::Failure::new(failure.condition(), failure.reason(), failure.to_string());
        let unverified = failure.condition() == SOURCE_VERIFIED;
        skeleton::Failure { retry: failure.retry(), unverified, ..told }
    }
}

fn git_message(url: &str, listing: bool, cause: &git::Error) -> String {
    const PREFIX: &str = "failed to checkout and determine revision";
    match cause {
        git::Error::Empty => "git repository is empty".to_owned(),
        git::Error::RepositoryNotFound if !listing => {
            format!("{PREFIX}: unable to clone: {cause}: git repository: '{url}'")
        }
        git::Error::NoSemverMatch(_)
        | git::Error::InvalidRange(_)
        | git::Error::UnresolvedRef(_)
        | git::Error::InvalidRef(_)
        | git::Error::NoSuchCommit(_) => format!("{PREFIX}: {cause}"),
        _ if listing => format!("{PREFIX}: unable to list remote for '{url}': {cause}"),
        _ => format!("{PREFIX}: unable to clone '{url}': {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_users_search_for() {
        let say = |listing, cause| Failure::Git { url: "https://h/r".to_owned(), listing, cause }.to_string();
        assert_eq!(
            say(false, git::Error::RepositoryNotFound),
            "failed to checkout and determine revision: unable to clone: repository not found: git repository: 'https://h/r'"
        );
        assert_eq!(
            say(true, git::Error::AuthenticationRequired),
            "failed to checkout and determine revision: unable to list remote for 'https://h/r': authentication required"
        );
        assert_eq!(say(false, git::Error::Empty), "git repository is empty");
    }
}
