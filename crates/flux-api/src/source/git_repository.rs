//! GitRepository: a revision of a Git repository as an artifact.

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

object!(GitRepository, kinds::GIT_REPOSITORY, GitRepositorySpec, GitRepositoryStatus);
standard_object!(GitRepository, kinds::GIT_REPOSITORY);

/// What to fetch, how often, and how to log in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"!has(self.serviceAccountName) || (has(self.provider) && (self.provider == 'azure' || self.provider == 'aws'))", "message": "serviceAccountName can only be set when provider is 'azure' or 'aws'" },
    ]))]
pub struct GitRepositorySpec {
    /// Where the repository is: an http, https or ssh address. The short form git@host:path is written
    /// ssh://git@host/path.
    #[schemars(regex(pattern = r"^(http|https|ssh)://.*$"))]
    pub url: String,
    /// Secret with the credentials. Over HTTP: username and password, bearerToken, or the keys of a GitHub App, and
    /// ca.crt, tls.crt, tls.key. Over SSH: identity, known_hosts and, for an encrypted key, password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Who to ask for credentials besides the Secret; generic if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<GitProvider>,
    /// ServiceAccount in the same namespace whose cloud identity is used. Only for the providers azure and aws.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub service_account_name: Option<String>,
    /// How often to look for a new revision.
    pub interval: GoDuration,
    /// How long one fetch may take, 60s unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = duration::PATTERN_WITHOUT_HOURS), extend("x-default" = "60s"))]
    pub timeout: Option<GoDuration>,
    /// What to check out. Left out, the branch master.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// Check the signature of the commit, the tag, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitVerification>,
    /// Secret with the address of an HTTP or SOCKS5 proxy and, if it wants them, username and password. Only for http and
    /// https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalReference>,
    /// Patterns, in the syntax of .gitignore, of files to leave out of the artifact. They replace the default patterns
    /// and come after those of .sourceignore files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Stops looking for new revisions. The last artifact stays available.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
    /// Whether to fetch submodules too, with the same credentials.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub recurse_submodules: bool,
    /// Other GitRepositories whose artifacts are copied into this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitRepositoryInclude>,
    /// Folders to check out; everything if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
}

/// A branch, tag, range, ref or commit. Where several are set, commit wins, then name, semver, tag, branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitReference {
    /// A branch. With commit set, only this branch is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub branch: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub tag: Option<String>,
    /// A range of versions, such as ~1.4 or >=2.0.0 <3; the highest tag in it is taken.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub semver: Option<String>,
    /// A full ref name, such as refs/heads/main or refs/pull/420/head.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub name: Option<String>,
    /// The full SHA of a commit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub commit: Option<String>,
}

/// Whose signatures to require.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitVerification {
    /// What must be signed: HEAD, the commit; Tag, the tag that was checked out; TagAndHEAD, both. head means HEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "HEAD"))]
    pub mode: Option<GitVerificationMode>,
    /// Secret whose values are the public keys, in PGP or SSH format, that are trusted.
    pub secret_ref: LocalReference,
}

/// Another repository's artifact, copied into this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryInclude {
    /// The GitRepository to copy from.
    pub repository: LocalReference,
    /// The folder to copy; all of it if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub from_path: Option<String>,
    /// The folder to copy to; the name of the repository if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub to_path: Option<String>,
}

/// What was fetched last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryStatus {
    /// The metadata.generation that was last reconciled.
    #[serde(default, skip_serializing_if = "absent::zero")]
    pub observed_generation: i64,
    /// What was observed about the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The artifact of the last good fetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The artifacts that were copied in, in the order of spec.include.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,
    /// The ignore patterns the artifact was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// Whether the artifact was made with submodules.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub observed_recurse_submodules: bool,
    /// The includes the artifact was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitRepositoryInclude>,
    /// The folders the artifact was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,
    /// Which signatures of the artifact's revision were checked.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub source_verification_mode: Option<String>,
    /// The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub last_handled_reconcile_at: Option<String>,
}

impl GitRepositorySpec {
    /// How long one fetch may take.
    pub fn timeout(&self) -> GoDuration {
        self.timeout.unwrap_or(GoDuration::from_secs(60))
    }

    /// Who to ask for credentials.
    pub fn provider(&self) -> GitProvider {
        self.provider.unwrap_or(GitProvider::Generic)
    }
}

impl GitVerification {
    /// What must be signed; the old spelling `head` is `HEAD`.
    pub fn mode(&self) -> GitVerificationMode {
        match self.mode {
            None | Some(GitVerificationMode::LowerHead | GitVerificationMode::Head) => {
                GitVerificationMode::Head
            }
            Some(mode @ (GitVerificationMode::Tag | GitVerificationMode::TagAndHead)) => mode,
        }
    }

    /// Whether the commit must be signed.
    pub fn verifies_head(&self) -> bool {
        self.mode() != GitVerificationMode::Tag
    }

    /// Whether the tag must be signed.
    pub fn verifies_tag(&self) -> bool {
        self.mode() != GitVerificationMode::Head
    }
}

impl GitRepositoryInclude {
    /// Where the other repository's files go.
    pub fn to_path(&self) -> &str {
        self.to_path.as_deref().unwrap_or(&self.repository.name)
    }
}

closed_set! {
    /// Who gives out credentials for a Git host.
    pub enum GitProvider {
        /// Nobody: only the Secret counts.
        Generic = "generic",
        /// AWS CodeCommit.
        Aws = "aws",
        /// Azure DevOps.
        Azure = "azure",
        /// A GitHub App.
        Github = "github",
    }
}

closed_set! {
    /// Which signatures are checked.
    pub enum GitVerificationMode {
        /// An older spelling of HEAD.
        LowerHead = "head",
        /// The commit's.
        Head = "HEAD",
        /// The tag's.
        Tag = "Tag",
        /// Both.
        TagAndHead = "TagAndHEAD",
    }
}
