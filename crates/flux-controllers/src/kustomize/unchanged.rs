//! A commit that changes nothing for a Kustomization costs it nothing: when everything its last build depended on is the
//! same, there is no build and no apply, only the new revision is noted.
//!
//! Never after a failure or a restart, on request, at the interval, with another spec, or with a base from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use file_tree::{Files, Kind, Question};
use flux_api::Object;
use flux_api::condition::{self, ConditionStatus, READY};
use flux_api::names::RECONCILE_REQUEST;
use flux_apply::ObjectId;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::build::Inputs;
use super::failure::Failure;
use super::run::Run;
use super::{health, identity};
use crate::artifact::ArtifactTree;
use crate::reconcile::{Cause, ObjectKey};

/// Builds that are remembered.
const MOST: usize = 20_000;

/// What the last successful run of each Kustomization was made of.
#[derive(Default)]
pub struct Builds(Mutex<BTreeMap<ObjectKey, Arc<Remembered>>>);

/// A build, and what came of it.
pub(super) struct Remembered {
    /// Spec, variables, keys, flags and our version.
    pub(super) seed: [u8; 32],
    /// What was asked of the artifact, and a digest of the answers.
    pub(super) questions: BTreeSet<Question>,
    pub(super) answers: [u8; 32],
    /// Of the manifests.
    pub(super) digest: String,
    pub(super) applied: Vec<ObjectId>,
    pub(super) jobs: Vec<ObjectId>,
}

impl Builds {
    pub(super) fn remember(&self, key: ObjectKey, build: Remembered) {
        let mut builds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if builds.len() >= MOST {
            builds.clear();
        }
        builds.insert(key, Arc::new(build));
    }

    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn get(&self, key: &ObjectKey) -> Option<Arc<Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

/// Does what is left to do when nothing changed; `false` when something did.
pub(super) async fn conclude(run: &mut Run<'_>, inputs: &Inputs) -> Result<bool, Failure> {
    let Some(build) = candidate(run) else { return Ok(false) };
    let Some(tree) = inputs.only_tree() else { return Ok(false) };
    if build.seed != inputs.seed || build.answers != answers(tree, &build.questions) {
        return Ok(false);
    }
    run.digest = Some(build.digest.clone());
    run.status.last_attempted_revision = run.artifact.as_ref().map(|artifact| artifact.revision.clone());
    let spec = &run.object.spec;
    if spec.wait || !spec.health_checks.is_empty() {
        let cluster =
            identity::cluster(run).await.map_err(|error| Failure::Apply(error.message().to_owned()))?;
        let checked =
            health::Checked { applied: build.applied.clone(), jobs: build.jobs.clone(), changed: false };
        health::check(run, &cluster, checked).await?;
    }
    Ok(true)
}

fn candidate(run: &Run<'_>) -> Option<Arc<Remembered>> {
    let key = ObjectKey::of(run.raw);
    if run.ctx.memory.drift.take_due(&key) {
        // Git is the same, but the cluster is not.
        run.ctx.memory.builds.forget(&key);
        return None;
    }
    let requested = run.raw.annotations().get(RECONCILE_REQUEST);
    let is_settled = run.object.observed_generation() == Some(run.object.generation())
        && condition::is(&run.status.conditions, READY, ConditionStatus::True)
        && (requested.is_none() || requested == run.status.last_handled_reconcile_at.as_ref());
    let may = is_settled && run.worker.cause == Cause::Change && !run.ctx.options.upstream_only;
    run.ctx.memory.builds.get(&key).filter(|_| may)
}

/// A digest of what the artifact answers.
pub(super) fn answers(tree: &ArtifactTree, questions: &BTreeSet<Question>) -> [u8; 32] {
    let kind = |kind: Option<Kind>| match kind {
        None => [0],
        Some(Kind::File) => [1],
        Some(Kind::Folder) => [2],
    };
    let mut digest = Sha256::new();
    for question in questions {
        match question {
            Question::Read(path) => {
                digest.update(kind(tree.kind(path)));
                digest.update(tree.hash(path).unwrap_or_default());
            }
            Question::Kind(path) => digest.update(kind(tree.kind(path))),
            Question::List(path) => {
                for entry in tree.list(path).unwrap_or_default() {
                    digest.update(kind(Some(entry.kind)));
                    digest.update((entry.name.len() as u64).to_le_bytes());
                    digest.update(entry.name);
                }
            }
        }
        digest.update([0xff]);
    }
    digest.finalize().into()
}
