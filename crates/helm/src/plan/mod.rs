//! What install, upgrade, rollback, uninstall and test do, decided before anything is done.
//!
//! A plan is a list of steps over objects, made from a release history, rendered manifests and the live objects. Whoever executes
//! it makes no choices: it runs the steps in order and, when one fails, asks [`Plan::failed`] what to record and clean up.

mod apply;
mod failure;
mod hand_over;
mod hooks;
mod install;
mod object;
mod patch;
mod rollback;
mod test;
mod uninstall;
mod upgrade;

pub use apply::{Applying, How};
pub use failure::Failure;
pub use hand_over::hand_over;
pub use install::{Install, install};
pub use object::{Builtin, Kinds, Live, Object, ObjectError, ObjectKey, check_ownership, objects_of, own};
pub use patch::{Patch, PatchError, PatchType, create_patch};
pub use rollback::{Rollback, rollback};
pub use test::{TestFilter, test};
pub use uninstall::{Uninstall, Uninstalling, uninstall};
pub use upgrade::{ReuseValues, Upgrade, current_release, reuse_values, upgrade};

use crate::manifest::HookEvent;
use crate::release::{Release, Status};
use crate::render::Crd;

/// Steps and the record they are about.
#[derive(Clone, Debug)]
pub struct Plan {
    pub operation: Operation,
    /// The revision this plan makes or changes. The executor notes hook runs in it.
    pub release: Release,
    pub steps: Vec<Step>,
    /// Objects that did not exist before.
    created: Vec<ObjectKey>,
    /// What happens when a step fails.
    failure: failure::Policy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
    Test,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A namespace that may exist already.
    CreateNamespace(String),
    /// CRDs one file at a time; those that exist stay as they are. Then wait until they are established.
    CreateCrds(Vec<Crd>),
    /// A change to the stored records.
    Record(Record),
    /// Run the hooks of an event: see [`HookRun`].
    Hooks(HookRun),
    /// Create or change an object.
    Apply(Applying),
    /// Delete an object that is there.
    Delete {
        object: ObjectKey,
        propagation: Propagation,
    },
    /// Wait until objects are ready; for Jobs, until they complete when `jobs` is set.
    Wait {
        objects: Vec<ObjectKey>,
        jobs: bool,
    },
    WaitForDeletion(Vec<ObjectKey>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Store the plan's release for the first time.
    Create,
    /// Store it again, as it is by then.
    Update,
    /// Set its status and description, without storing it.
    Mark { status: Status, description: Option<String> },
    /// Mark an older revision as superseded, and store it.
    Supersede(i64),
    /// Store an older revision again, unchanged.
    Refresh(i64),
    /// Delete revisions.
    Delete(Vec<i64>),
}

/// The hooks of one event in the order to run them. For each: delete what is left of it if it says so, create it, wait until it has
/// completed; note start, end and phase in the release and store that. Afterwards, delete those whose policy says so.
#[derive(Clone, Debug, PartialEq)]
pub struct HookRun {
    pub event: HookEvent,
    /// Positions in the release's hooks.
    pub hooks: Vec<HookStep>,
    pub server_side: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HookStep {
    pub hook: usize,
    pub objects: Vec<Object>,
    pub delete_before: bool,
    pub delete_on_success: bool,
    pub delete_on_failure: bool,
    pub logs_on_success: bool,
    pub logs_on_failure: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("cannot reuse a name that is still in use")]
    NameInUse,
    #[error("{} has no deployed releases", crate::quote::go_quote(.0))]
    NoDeployedRelease(String),
    #[error("another operation (install/upgrade/rollback) is in progress")]
    Pending,
    #[error("release has no {0} version")]
    NoSuchRevision(i64),
    #[error("no release provided")]
    NoRelease,
    #[error("the release named {} is already deleted", crate::quote::go_quote(.0))]
    AlreadyDeleted(String),
    #[error(
        "user supplied labels contains system reserved label name. System labels: [name owner status version createdAt modifiedAt]"
    )]
    SystemLabel,
    #[error("unable to continue with {operation}: {cause}")]
    Conflict { operation: &'static str, cause: ObjectError },
    #[error("unable to build kubernetes objects from {from}: {cause}")]
    Objects { from: &'static str, cause: ObjectError },
    #[error("failed to create patch: {0}")]
    Patch(PatchError),
    #[error("corrupted release record. You must manually delete the resources: {0}")]
    Corrupted(String),
}

/// How waiting and hooks are done; the same for every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub wait: bool,
    pub wait_for_jobs: bool,
    pub disable_hooks: bool,
}

impl Waiting {
    /// The step that waits for objects, unless nobody wants it.
    fn step(self, objects: &[Object]) -> Option<Step> {
        let objects: Vec<ObjectKey> = objects.iter().map(|object| object.key.clone()).collect();
        (self.wait && !objects.is_empty()).then_some(Step::Wait { objects, jobs: self.wait_for_jobs })
    }
}
