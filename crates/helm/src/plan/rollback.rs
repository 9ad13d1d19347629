//! Rolling a release back to an earlier revision.

use serde_json::Map;

use super::apply::{Method, update};
use super::install::prune;
use super::object::{Kinds, Live, objects_of, own};
use super::{Operation, Plan, PlanError, Record, Step, Waiting, failure, hooks};
use crate::manifest::HookEvent;
use crate::release::{ApplyMethod, History, Info, Release, Status};

/// What a user may ask of a rollback.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// 0: the revision before the last.
    pub to: i64,
    /// `None`: as that revision was applied.
    pub server_side: Option<bool>,
    pub force_conflicts: bool,
    pub force_replace: bool,
    pub cleanup_on_fail: bool,
    pub waiting: Waiting,
    pub description: String,
    pub max_history: usize,
}

/// Plans a new revision that is what an old one was.
pub fn rollback(
    history: &History,
    live: &Live,
    kinds: &dyn Kinds,
    options: &Rollback,
    now: jiff::Timestamp,
) -> Result<Plan, PlanError> {
    let current = history.last().ok_or(PlanError::NoRelease)?;
    let revision = if options.to == 0 { current.version - 1 } else { options.to };
    let target = history.get(revision).ok_or(PlanError::NoSuchRevision(revision))?;
    let server_side = options.server_side.unwrap_or_else(|| target.is_server_side());
    let mut release = record(current, target, options, server_side, now);
    let old = objects_of(&current.manifest, &current.namespace, kinds)
        .map_err(|cause| PlanError::Objects { from: "current release manifest", cause })?;
    let mut new = objects_of(&release.manifest, &release.namespace, kinds)
        .map_err(|cause| PlanError::Objects { from: "new release manifest", cause })?;
    for object in &mut new {
        own(&mut object.json, &release.name, &release.namespace);
    }
    let created = new.iter().filter(|o| !live.contains_key(&o.key)).map(|o| o.key.clone()).collect();
    let method = Method {
        server_side,
        force_conflicts: options.force_conflicts,
        force_replace: options.force_replace,
        adopt_client_side: true,
        three_way_for_others: false,
    };
    let applying = update(&old, &new, live, method)?;
    let mut steps: Vec<Step> = prune(history, options.max_history).into_iter().collect();
    steps.push(Step::Record(Record::Create));
    let hook =
        |release: &mut Release, event| hooks::wanted(release, event, server_side, options.waiting, kinds);
    steps.extend(hook(&mut release, HookEvent::PreRollback)?);
    steps.extend(applying);
    steps.extend(options.waiting.step(&new));
    steps.extend(hook(&mut release, HookEvent::PostRollback)?);
    steps.extend(history.all_deployed().map(|deployed| Step::Record(Record::Supersede(deployed.version))));
    steps.push(Step::Record(Record::Mark { status: Status::Deployed, description: None }));
    steps.push(Step::Record(Record::Update));
    // Helm also marks a failed current revision as superseded. Then it looks as if it once had worked, and the next
    // rollback would go to it.
    let supersede = (current.info.status != Status::Failed).then_some(current.version);
    let failure = failure::Policy { cleanup: options.cleanup_on_fail, refresh: None, supersede };
    Ok(Plan { operation: Operation::Rollback, release, steps, created, failure })
}

fn record(
    current: &Release,
    target: &Release,
    options: &Rollback,
    server_side: bool,
    now: jiff::Timestamp,
) -> Release {
    let description = if options.description.is_empty() {
        format!("Rollback to {}", target.version)
    } else {
        options.description.clone()
    };
    let mut labels = target.labels.clone();
    labels.remove("createdAt");
    Release {
        name: current.name.clone(),
        info: Info {
            first_deployed: current.info.first_deployed.clone(),
            last_deployed: now.to_string(),
            description,
            status: Status::PendingRollback,
            rollback_revision: target.version,
            notes: target.info.notes.clone(),
            ..Info::default()
        },
        chart: target.chart.clone(),
        config: target.config.clone(),
        manifest: target.manifest.clone(),
        hooks: target.hooks.clone(),
        version: current.version + 1,
        namespace: current.namespace.clone(),
        apply_method: Some(if server_side { ApplyMethod::ServerSide } else { ApplyMethod::ClientSide }),
        labels,
        other: Map::new(),
    }
}
