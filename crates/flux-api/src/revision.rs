//! What a source stands at: `main@sha1:5394cb7…`, `v1.2.3@sha256:…`, `sha1:…`, or a chart's version.
//!
//! Upstream treats these as text; splitting one is needed to name a commit in an event or a pull request.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The revision of an artifact. Any text is one; [`Revision::digest`] and [`Revision::reference`] read those that have the usual form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

/// Artifact metadata that says which revision the content was made from, written by `flux push artifact --revision`.
pub const ORIGIN_REVISION_METADATA: &str = "org.opencontainers.image.revision";

impl Revision {
    /// `<reference>@<digest>`: a branch, tag or ref name and what it pointed to.
    pub fn named(reference: &str, digest: &Digest) -> Self {
        Revision(format!("{reference}@{digest}"))
    }

    /// Only a digest: a commit or an image asked for by digest, an index, a bucket.
    pub fn of(digest: &Digest) -> Self {
        Revision(digest.to_string())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The branch, tag or ref before the `@`. A branch may contain `@` itself, so the last one counts.
    pub fn reference(&self) -> Option<&str> {
        self.split().map(|(reference, _)| reference).filter(|reference| !reference.is_empty())
    }

    /// The digest, where the revision has one.
    pub fn digest(&self) -> Option<Digest> {
        match self.split() {
            Some((_, digest)) => digest.parse().ok(),
            None => self.0.parse().ok(),
        }
    }

    /// The hexadecimal digits alone: a commit's name.
    pub fn hash(&self) -> Option<String> {
        self.digest().map(|digest| digest.encoded().to_owned())
    }

    /// As the command line shows it: `main@sha1:5394cb7f`, the digest cut to eight digits. Other texts stay whole.
    pub fn short(&self) -> String {
        let Some(digest) = self.digest() else {
            return self.0.clone();
        };
        let cut = digest.encoded().get(..8).unwrap_or(digest.encoded());
        match self.reference() {
            Some(reference) => format!("{reference}@{}:{cut}", digest.algorithm_name()),
            None => format!("{}:{cut}", digest.algorithm_name()),
        }
    }

    fn split(&self) -> Option<(&str, &str)> {
        self.0.rsplit_once('@').filter(|(_, digest)| digest.contains(':'))
    }
}

impl From<String> for Revision {
    fn from(text: String) -> Self {
        Revision(text)
    }
}

impl From<&str> for Revision {
    fn from(text: &str) -> Self {
        Revision(text.to_owned())
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl JsonSchema for Revision {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Revision".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "5394cb7f48332b2de7c17dd8b8384bbc84b7e738";

    #[test]
    fn a_branch_may_contain_slashes_and_at_signs() {
        let revision = Revision::from(format!("feature/a@b@sha1:{HASH}"));
        assert_eq!(revision.reference(), Some("feature/a@b"));
        assert_eq!(revision.hash().as_deref(), Some(HASH));
        assert_eq!(revision.short(), "feature/a@b@sha1:5394cb7f");
    }

    #[test]
    fn a_digest_alone_has_no_reference() {
        let revision = Revision::from(format!("sha1:{HASH}"));
        assert_eq!((revision.reference(), revision.short().as_str()), (None, "sha1:5394cb7f"));
    }

    #[test]
    fn a_chart_version_is_a_revision_without_digest() {
        let revision = Revision::from("6.5.4+5394cb7f4833");
        assert_eq!(
            (revision.reference(), revision.digest(), revision.short().as_str()),
            (None, None, "6.5.4+5394cb7f4833")
        );
    }
}
