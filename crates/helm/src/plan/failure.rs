//! What is recorded and cleaned up when a step of a plan fails.

use super::{Applying, ObjectKey, Operation, Plan, Propagation, Record, Step};
use crate::plan::apply::How;
use crate::release::Status;

/// What a plan does about its own failure.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Policy {
    /// Delete what this operation created.
    pub(super) cleanup: bool,
    /// A revision to store again: the one that stays current.
    pub(super) refresh: Option<i64>,
    /// A revision to mark as superseded even so.
    pub(super) supersede: Option<i64>,
}

/// A failed plan: what to store, and what to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub description: String,
    pub steps: Vec<Step>,
}

impl Plan {
    /// What to do after step `at` failed with `error`. The release's status and description are part of it.
    pub fn failed(&self, at: usize, error: &str) -> Failure {
        let name = crate::quote::go_quote(&self.release.name);
        let failed_step = self.steps.get(at);
        let in_hooks = |prefix: &str| match failed_step {
            Some(Step::Hooks(run)) => format!("{}{error}", prefix.replace("{}", run.event.name())),
            _ => error.to_owned(),
        };
        let description = match self.operation {
            Operation::Install => format!("Release {name} failed: {}", in_hooks("failed {}: ")),
            Operation::Upgrade => format!("Upgrade {name} failed: {}", in_hooks("{} hooks failed: ")),
            Operation::Rollback if matches!(failed_step, Some(Step::Wait { .. })) => {
                format!("Release {name} failed: {error}")
            }
            Operation::Rollback => format!("Rollback {name} failed: {error}"),
            Operation::Uninstall | Operation::Test => error.to_owned(),
        };
        let in_objects = matches!(failed_step, Some(Step::Apply(_) | Step::Delete { .. }));
        let mut steps = Vec::new();
        match self.operation {
            // A failed deletion stays "uninstalling", and a failed test says nothing about the release.
            Operation::Uninstall | Operation::Test => steps.push(Step::Record(Record::Update)),
            Operation::Install | Operation::Upgrade | Operation::Rollback => {
                let changing = self.steps[..=at.min(self.steps.len().saturating_sub(1))]
                    .iter()
                    .any(|s| matches!(s, Step::Apply(_)));
                if changing {
                    steps
                        .extend(self.failure.refresh.map(|revision| Step::Record(Record::Refresh(revision))));
                }
                if in_objects {
                    steps.extend(
                        self.failure.supersede.map(|revision| Step::Record(Record::Supersede(revision))),
                    );
                }
                steps.push(Step::Record(Record::Mark {
                    status: Status::Failed,
                    description: Some(description.clone()),
                }));
                steps.push(Step::Record(Record::Update));
            }
        }
        // A rollback cleans up when an object could not be changed, not when it was waited for in vain.
        if self.failure.cleanup && (in_objects || self.operation != Operation::Rollback) {
            steps.extend(
                self.created_before(at)
                    .map(|object| Step::Delete { object, propagation: Propagation::Background }),
            );
        }
        Failure { description, steps }
    }

    /// Objects that the steps up to and including `at` were to create.
    fn created_before(&self, at: usize) -> impl Iterator<Item = ObjectKey> + '_ {
        self.steps.iter().take(at + 1).filter_map(|step| match step {
            Step::Apply(Applying { object, how: How::Create }) => Some(object.key.clone()),
            Step::Apply(Applying { object, how: How::ServerSide { adopt_client_side: false, .. } })
                if self.creates(&object.key) =>
            {
                Some(object.key.clone())
            }
            _ => None,
        })
    }

    fn creates(&self, key: &ObjectKey) -> bool {
        self.created.contains(key)
    }
}
