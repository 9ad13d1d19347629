//! Uninstalling a release.

use super::object::{Kinds, Live, Object, ObjectKey, check_ownership, objects_of};
use super::{Operation, Plan, PlanError, Propagation, Record, Step, Waiting, failure, hooks};
use crate::Dialect;
use crate::manifest::{HookEvent, KindOrder, is_kept, sort_manifests, split_manifests};
use crate::release::{History, Status};

/// What a user may ask of an uninstallation.
#[derive(Clone, Debug)]
pub struct Uninstall {
    pub keep_history: bool,
    pub propagation: Propagation,
    pub waiting: Waiting,
    pub description: String,
}

/// A plan, or word that only records are left to delete.
#[derive(Clone, Debug)]
pub struct Uninstalling {
    pub plan: Plan,
    /// What stays because of its policy, or because it belongs to somebody else; as Helm reports it.
    pub kept: String,
}

pub fn uninstall(
    history: &History,
    live: &Live,
    kinds: &dyn Kinds,
    options: &Uninstall,
    now: jiff::Timestamp,
) -> Result<Uninstalling, PlanError> {
    let last = history.last().ok_or(PlanError::NoRelease)?;
    let mut release = last.clone();
    let all: Vec<i64> = history.revisions().iter().map(|r| r.version).collect();
    if last.info.status == Status::Uninstalled {
        if options.keep_history {
            return Err(PlanError::AlreadyDeleted(last.name.clone()));
        }
        let plan = Plan {
            operation: Operation::Uninstall,
            release,
            steps: vec![Step::Record(Record::Delete(all))],
            created: Vec::new(),
            failure: failure::Policy::default(),
        };
        return Ok(Uninstalling { plan, kept: String::new() });
    }
    release.set_status(Status::Uninstalling, "Deletion in progress (or silently failed)");
    release.info.deleted = now.to_string();
    let (objects, mut kept) = to_delete(&release.manifest, &release.namespace, kinds)?;
    let owned = ours(objects, live, (&release.name, &release.namespace), &mut kept);
    let hook = |release: &mut crate::release::Release, event| {
        hooks::wanted(release, event, true, options.waiting, kinds)
    };
    let mut steps: Vec<Step> = hook(&mut release, HookEvent::PreDelete)?.into_iter().collect();
    steps.push(Step::Record(Record::Update));
    steps.extend(
        owned.iter().map(|key| Step::Delete { object: key.clone(), propagation: options.propagation }),
    );
    if options.waiting.wait && !owned.is_empty() {
        steps.push(Step::WaitForDeletion(owned));
    }
    steps.extend(hook(&mut release, HookEvent::PostDelete)?);
    let description = if options.description.is_empty() {
        "Uninstallation complete".to_owned()
    } else {
        options.description.clone()
    };
    steps.push(Step::Record(Record::Mark { status: Status::Uninstalled, description: Some(description) }));
    if options.keep_history {
        steps.push(Step::Record(Record::Update));
        let deployed = history.all_deployed().filter(|r| r.version != last.version);
        steps.extend(deployed.map(|r| Step::Record(Record::Supersede(r.version))));
    } else {
        steps.push(Step::Record(Record::Delete(all)));
    }
    let plan = Plan {
        operation: Operation::Uninstall,
        release,
        steps,
        created: Vec::new(),
        failure: failure::Policy::default(),
    };
    Ok(Uninstalling { plan, kept })
}

/// The objects of a manifest in uninstall order, those to keep left out and named.
fn to_delete(manifest: &str, namespace: &str, kinds: &dyn Kinds) -> Result<(Vec<Object>, String), PlanError> {
    let documents = split_manifests(manifest, Dialect::Helm4);
    let names: Vec<String> = (0..documents.len()).map(|at| format!("manifest-{at:09}")).collect();
    let files = names.iter().map(String::as_str).zip(documents.iter().copied());
    let sorted = sort_manifests(files, KindOrder::Uninstall, Dialect::Helm4, &mut Vec::new())
        .map_err(PlanError::Corrupted)?;
    let (keep, delete): (Vec<_>, Vec<_>) =
        sorted.manifests.into_iter().partition(|m| is_kept(m.head.annotations.as_ref()));
    let mut kept = String::new();
    if !keep.is_empty() {
        kept.push_str("These resources were kept due to the resource policy:\n");
        kept.extend(keep.iter().map(|m| format!("[{}] {}\n", m.head.kind, m.head.name)));
    }
    let mut objects = Vec::new();
    for manifest in delete {
        let found = objects_of(&manifest.content, namespace, kinds);
        objects.extend(
            found.map_err(|cause| PlanError::Objects { from: "release manifest for delete", cause })?,
        );
    }
    Ok((objects, kept))
}

/// Those that exist and belong to the release; the others that exist are named.
fn ours(objects: Vec<Object>, live: &Live, release: (&str, &str), kept: &mut String) -> Vec<ObjectKey> {
    let existing = objects.into_iter().filter(|object| live.contains_key(&object.key));
    let (owned, foreign): (Vec<_>, Vec<_>) =
        existing.partition(|object| check_ownership(&live[&object.key], release.0, release.1).is_ok());
    if !foreign.is_empty() {
        if !kept.is_empty() {
            kept.push('\n');
        }
        kept.push_str(&format!(
            "{} resource(s) were not deleted because they are not owned by this release:\n",
            foreign.len()
        ));
        kept.extend(foreign.iter().map(|object| format!("[{}] {}\n", object.key.kind, object.key.name)));
    }
    owned.into_iter().map(|object| object.key).collect()
}
