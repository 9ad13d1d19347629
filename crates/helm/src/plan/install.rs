//! Installing a release.

use std::collections::BTreeMap;

use super::apply::{Method, update};
use super::object::{Kinds, Live, adopted, objects_of, own};
use super::{Applying, Operation, Plan, PlanError, Record, Step, Waiting, failure, hooks};
use crate::manifest::HookEvent;
use crate::release::{History, Release, Status, has_system_label};
use crate::render::Crd;

/// What a user may ask of an installation.
#[derive(Clone, Debug)]
pub struct Install {
    pub create_namespace: bool,
    pub skip_crds: bool,
    /// Whether a name may be used again whose last release failed or was uninstalled.
    pub replace: bool,
    pub take_ownership: bool,
    pub server_side: bool,
    pub force_conflicts: bool,
    pub force_replace: bool,
    pub waiting: Waiting,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    /// How many revisions to keep, 0 for all.
    pub max_history: usize,
}

/// Plans the installation of a release that was rendered but not stored.
pub fn install(
    mut release: Release,
    crds: &[Crd],
    history: &History,
    live: &Live,
    kinds: &dyn Kinds,
    options: &Install,
) -> Result<Plan, PlanError> {
    let superseded = reuse_name(&mut release, history, options)?;
    if has_system_label(&options.labels) {
        return Err(PlanError::SystemLabel);
    }
    release.labels = options.labels.clone();
    release.set_status(Status::PendingInstall, "Initial install underway");
    let mut objects = objects_of(&release.manifest, &release.namespace, kinds)
        .map_err(|cause| PlanError::Objects { from: "release manifest", cause })?;
    for object in &mut objects {
        own(&mut object.json, &release.name, &release.namespace);
    }
    let owner = (release.name.as_str(), release.namespace.as_str());
    let existing = adopted(objects.iter(), live, owner, options.take_ownership)
        .map_err(|cause| PlanError::Conflict { operation: "install", cause })?;
    let created = objects.iter().filter(|o| !live.contains_key(&o.key)).map(|o| o.key.clone()).collect();
    let method = Method {
        server_side: options.server_side,
        force_conflicts: options.force_conflicts,
        force_replace: options.force_replace,
        adopt_client_side: true,
        three_way_for_others: options.take_ownership && !options.server_side,
    };
    let applying = if existing.is_empty() {
        let how = Method { force_conflicts: false, ..method }.create();
        objects
            .iter()
            .map(|object| Step::Apply(Applying { object: object.clone(), how: how.clone() }))
            .collect()
    } else {
        let existing: Vec<_> = existing.into_iter().cloned().collect();
        update(&existing, &objects, live, method)?
    };
    let mut steps = Vec::new();
    if !options.skip_crds && !crds.is_empty() {
        steps.push(Step::CreateCrds(crds.to_vec()));
    }
    if options.create_namespace {
        steps.push(Step::CreateNamespace(release.namespace.clone()));
    }
    steps.extend(superseded.map(|revision| Step::Record(Record::Supersede(revision))));
    steps.extend(prune(history, options.max_history));
    steps.push(Step::Record(Record::Create));
    let server_side = options.server_side;
    let hook =
        |release: &mut Release, event| hooks::wanted(release, event, server_side, options.waiting, kinds);
    steps.extend(hook(&mut release, HookEvent::PreInstall)?);
    steps.extend(applying);
    steps.extend(options.waiting.step(&objects));
    steps.extend(hook(&mut release, HookEvent::PostInstall)?);
    let description = if options.description.is_empty() {
        "Install complete".to_owned()
    } else {
        options.description.clone()
    };
    steps.push(Step::Record(Record::Mark { status: Status::Deployed, description: Some(description) }));
    steps.push(Step::Record(Record::Update));
    Ok(Plan { operation: Operation::Install, release, steps, created, failure: failure::Policy::default() })
}

/// The revision a new release gets, and the one it supersedes, when the name was used before.
fn reuse_name(release: &mut Release, history: &History, options: &Install) -> Result<Option<i64>, PlanError> {
    let Some(last) = history.last() else { return Ok(None) };
    let status = last.info.status;
    if !options.replace || !matches!(status, Status::Uninstalled | Status::Failed) {
        return Err(PlanError::NameInUse);
    }
    release.version = last.version + 1;
    Ok((status != Status::Failed).then_some(last.version))
}

pub(super) fn prune(history: &History, keep: usize) -> Option<Step> {
    let surplus = history.surplus(keep);
    (!surplus.is_empty()).then_some(Step::Record(Record::Delete(surplus)))
}
