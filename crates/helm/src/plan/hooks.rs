//! The hooks of an event, in the order and with the deletions Helm gives them.

use super::object::{Kinds, ObjectError, objects_of};
use super::{HookRun, HookStep, PlanError, Step, Waiting};
use crate::manifest::{DeletePolicy, Hook, HookEvent, OutputLogPolicy};
use crate::release::Release;

/// The run of an event's hooks, unless nobody wants it.
pub(super) fn wanted(
    release: &mut Release,
    event: HookEvent,
    server_side: bool,
    waiting: Waiting,
    kinds: &dyn Kinds,
) -> Result<Option<Step>, PlanError> {
    if waiting.disable_hooks {
        return Ok(None);
    }
    run(release, event, server_side, kinds).map_err(|cause| PlanError::Objects { from: "hooks", cause })
}

/// The run of an event's hooks, `None` when there are none. A hook without a policy gets "before-hook-creation", also in the
/// record.
pub(super) fn run(
    release: &mut Release,
    event: HookEvent,
    server_side: bool,
    kinds: &dyn Kinds,
) -> Result<Option<Step>, ObjectError> {
    let mut order: Vec<usize> =
        (0..release.hooks.len()).filter(|at| release.hooks[*at].events.contains(&event)).collect();
    order.sort_by(|a, b| {
        let key = |at: &usize| (release.hooks[*at].weight, release.hooks[*at].name.clone());
        key(a).cmp(&key(b))
    });
    let mut hooks = Vec::new();
    for at in order {
        let namespace = release.namespace.clone();
        let hook = &mut release.hooks[at];
        if hook.delete_policies.is_empty() {
            hook.delete_policies.push(DeletePolicy::BeforeHookCreation);
        }
        hooks.push(step(at, hook, &namespace, kinds)?);
    }
    Ok((!hooks.is_empty()).then_some(Step::Hooks(HookRun { event, hooks, server_side })))
}

fn step(at: usize, hook: &Hook, namespace: &str, kinds: &dyn Kinds) -> Result<HookStep, ObjectError> {
    // Deleting a CRD would take every object of its kind along.
    let may_delete = hook.kind != "CustomResourceDefinition";
    let deletes = |policy: &DeletePolicy| may_delete && hook.delete_policies.contains(policy);
    Ok(HookStep {
        hook: at,
        objects: objects_of(&hook.manifest, namespace, kinds)?,
        delete_before: deletes(&DeletePolicy::BeforeHookCreation),
        delete_on_success: deletes(&DeletePolicy::HookSucceeded),
        delete_on_failure: deletes(&DeletePolicy::HookFailed),
        logs_on_success: hook.output_log_policies.contains(&OutputLogPolicy::HookSucceeded),
        logs_on_failure: hook.output_log_policies.contains(&OutputLogPolicy::HookFailed),
    })
}
