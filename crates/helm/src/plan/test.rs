//! Running a release's test hooks.

use super::object::Kinds;
use super::{Operation, Plan, PlanError, Record, Step, failure, hooks};
use crate::manifest::HookEvent;
use crate::release::History;

/// Which tests run, by name. Both empty: all.
#[derive(Clone, Debug, Default)]
pub struct TestFilter {
    pub only: Vec<String>,
    pub except: Vec<String>,
}

/// Plans the tests of the last revision. Their outcome is noted in its record; the release's status stays.
pub fn test(history: &History, kinds: &dyn Kinds, filter: &TestFilter) -> Result<Plan, PlanError> {
    let mut release = history.last().ok_or(PlanError::NoRelease)?.clone();
    let server_side = release.is_server_side();
    let run = hooks::run(&mut release, HookEvent::Test, server_side, kinds)
        .map_err(|cause| PlanError::Objects { from: "hooks", cause })?;
    let mut steps = Vec::new();
    if let Some(Step::Hooks(mut run)) = run {
        run.hooks.retain(|step| {
            let name = &release.hooks[step.hook].name;
            !filter.except.contains(name) && (filter.only.is_empty() || filter.only.contains(name))
        });
        steps.push(Step::Hooks(run));
    }
    steps.push(Step::Record(Record::Update));
    Ok(Plan {
        operation: Operation::Test,
        release,
        steps,
        created: Vec::new(),
        failure: failure::Policy::default(),
    })
}
