//! `spec.verify`: whose signature the commit or the tag must carry.

use std::time::SystemTime;

use flux_api::Object;
use flux_api::condition::ConditionStatus;
use flux_api::source::{GitRepository, GitRepositoryStatus, GitVerificationMode};
use flux_remote::git::TrustedKeys;

use super::super::skeleton::Job;
use super::super::{SOURCE_VERIFIED, credentials};
use super::failure::Failure;
use super::{Found, GitRepositories};

impl GitRepositories {
    /// Checks what `spec.verify` asks for, in the objects that were fetched.
    pub(super) async fn verify(&self, job: &mut Job<'_, Self>, found: &Found) -> Result<(), Failure> {
        let Some(verification) = &job.object.spec.verify else {
            return Ok(());
        };
        let keys = self.trusted_keys(job.object, &verification.secret_ref.name).await?;
        let now = SystemTime::now();
        let mut verified = Vec::new();
        if verification.verifies_tag() {
            verified.push(verify_tag(found, &keys, now)?);
        }
        if verification.verifies_head() {
            let commit = found.commit.id.to_string();
            let key = keys
                .verify(found.commit.signature().as_ref(), "commit", now)
                .map_err(|cause| Failure::CommitSignature { commit: commit.clone(), cause })?;
            verified.push(format!("commit '{commit}' with key '{key}'"));
        }
        let message = format!("verified signature of\n\t- {}", verified.join("\n\t- "));
        job.status.source_verification_mode = Some(verification.mode().as_str().to_owned());
        job.conditions().set(SOURCE_VERIFIED, ConditionStatus::True, "Succeeded", message.clone());
        job.trace("Succeeded", message);
        Ok(())
    }

    async fn trusted_keys(&self, object: &GitRepository, name: &str) -> Result<TrustedKeys, Failure> {
        let secret = credentials::secret(&self.ctx.client, Object::namespace(object), name)
            .await
            .map_err(|error| Failure::PublicKeys(error.cause()))?;
        let mut keys = TrustedKeys::default();
        for (key, value) in secret.data.iter().flatten() {
            keys.add(key, &value.0);
        }
        Ok(keys)
    }
}

fn verify_tag(found: &Found, keys: &TrustedKeys, now: SystemTime) -> Result<String, Failure> {
    let name = found.pick.tag_name.as_ref().ok_or(Failure::NoTag)?;
    let broken = |cause| Failure::Git { url: name.clone(), listing: false, cause };
    let tag = match found.pick.tag {
        Some(id) => found.store.tag(id).map_err(broken)?,
        None => None,
    };
    let Some(tag) = tag else {
        return Err(Failure::TagNotSigned(name.clone()));
    };
    // A tag object can be handed out under another name, or lead to another commit, than the one it was signed for.
    if tag.name != *name || tag.target != found.pick.commit {
        return Err(Failure::TagNotSigned(format!("{name}@{}", tag.id)));
    }
    let shown = format!("{name}@{}", tag.id);
    let signature = tag.signature().ok_or_else(|| Failure::TagNotSigned(shown.clone()))?;
    let key = keys
        .verify(Some(&signature), "tag", now)
        .map_err(|cause| Failure::TagSignature { tag: shown.clone(), cause })?;
    Ok(format!("tag '{shown}' with key '{key}'"))
}

/// Whether the artifact was made without the check that is asked for now.
pub(super) fn is_due(object: &GitRepository, status: &GitRepositoryStatus) -> bool {
    let Some(verification) = &object.spec.verify else {
        return false;
    };
    let (tag, head) = (GitVerificationMode::Tag.as_str(), GitVerificationMode::Head.as_str());
    match status.source_verification_mode.as_deref() {
        None => true,
        Some(done) if done == tag => verification.verifies_head(),
        Some(done) if done == head => verification.verifies_tag(),
        Some(_) => false,
    }
}
