//! Upgrading a release, and which values an upgrade starts from.

use std::collections::BTreeMap;

use gotemplate::Value;
use serde_json::Value as Json;

use super::apply::{Method, update};
use super::install::prune;
use super::object::{Kinds, Live, adopted, objects_of, own};
use super::{Operation, Plan, PlanError, Record, Step, Waiting, failure, hooks};
use crate::Values;
use crate::manifest::HookEvent;
use crate::release::{ApplyMethod, History, Release, Status, has_system_label};
use crate::values::{Coalescing, coalesce_tables, table, to_json};

/// What a user may ask of an upgrade.
#[derive(Clone, Debug)]
pub struct Upgrade {
    pub take_ownership: bool,
    /// `None`: as the release was applied before.
    pub server_side: Option<bool>,
    pub force_conflicts: bool,
    pub force_replace: bool,
    pub cleanup_on_fail: bool,
    pub waiting: Waiting,
    pub description: String,
    /// Labels to set; the value `null` takes one away.
    pub labels: BTreeMap<String, String>,
    pub max_history: usize,
}

/// Where an upgrade's values come from besides what the user gives now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseValues {
    /// The old ones, but only if none are given.
    #[default]
    IfNoneGiven,
    /// None: the chart's defaults and what is given.
    Reset,
    /// What is given over what was set before.
    ResetThenReuse,
    /// The same, and the old chart's defaults instead of the new one's.
    Reuse,
}

/// The revision an upgrade builds on: the last if it is deployed, else the deployed one, else a failed or superseded last one.
pub fn current_release<'h>(name: &str, history: &'h History) -> Result<&'h Release, PlanError> {
    let none = || PlanError::NoDeployedRelease(name.to_owned());
    let last = history.last().ok_or_else(none)?;
    if last.info.status.is_pending() {
        return Err(PlanError::Pending);
    }
    if last.info.status == Status::Deployed {
        return Ok(last);
    }
    match history.deployed() {
        Some(deployed) => Ok(deployed),
        None if matches!(last.info.status, Status::Failed | Status::Superseded) => Ok(last),
        None => Err(none()),
    }
}

/// The values of an upgrade. With [`ReuseValues::Reuse`] the caller also renders with the defaults of the old chart's record.
pub fn reuse_values(given: Values, current: &Release, reuse: ReuseValues) -> Values {
    let old = || current.values();
    match reuse {
        ReuseValues::Reset => given,
        ReuseValues::IfNoneGiven if given.is_empty() => old(),
        ReuseValues::IfNoneGiven => given,
        ReuseValues::ResetThenReuse | ReuseValues::Reuse => {
            let over = table(given.as_map());
            coalesce_tables(&over, &table(old().as_map()), Coalescing::Coalesce, &mut Vec::new());
            match to_json(&Value::Map(over)) {
                Json::Object(entries) => Values::from_map(entries),
                _ => Values::new(),
            }
        }
    }
}

/// Plans an upgrade to a release that was rendered but not stored; its revision, dates, labels and status are set here.
pub fn upgrade(
    mut release: Release,
    history: &History,
    live: &Live,
    kinds: &dyn Kinds,
    options: &Upgrade,
) -> Result<Plan, PlanError> {
    let current = current_release(&release.name, history)?;
    let last = history.last().unwrap_or(current);
    if has_system_label(&options.labels) {
        return Err(PlanError::SystemLabel);
    }
    let server_side = options.server_side.unwrap_or_else(|| last.is_server_side());
    release.version = last.version + 1;
    release.namespace = current.namespace.clone();
    release.info.first_deployed = current.info.first_deployed.clone();
    release.apply_method = Some(if server_side { ApplyMethod::ServerSide } else { ApplyMethod::ClientSide });
    release.labels = merged_labels(&last.labels, &options.labels);
    release.set_status(Status::PendingUpgrade, "Preparing upgrade");
    let old = objects_of(&current.manifest, &current.namespace, kinds)
        .map_err(|cause| PlanError::Objects { from: "current release manifest", cause })?;
    let mut new = objects_of(&release.manifest, &release.namespace, kinds)
        .map_err(|cause| PlanError::Objects { from: "new release manifest", cause })?;
    for object in &mut new {
        own(&mut object.json, &release.name, &release.namespace);
    }
    let added = new.iter().filter(|n| !old.iter().any(|o| o.key == n.key && o.api_version == n.api_version));
    let owner = (release.name.as_str(), release.namespace.as_str());
    let taken_over = adopted(added, live, owner, options.take_ownership)
        .map_err(|cause| PlanError::Conflict { operation: "update", cause })?;
    let mut originals = old;
    let taken_over: Vec<_> =
        taken_over.into_iter().filter(|t| !originals.iter().any(|o| o.key == t.key)).cloned().collect();
    originals.extend(taken_over);
    let created = new.iter().filter(|o| !live.contains_key(&o.key)).map(|o| o.key.clone()).collect();
    let method = Method {
        server_side,
        force_conflicts: options.force_conflicts,
        force_replace: options.force_replace,
        adopt_client_side: server_side && !current.is_server_side(),
        three_way_for_others: false,
    };
    let applying = update(&originals, &new, live, method)?;
    let mut steps: Vec<Step> = prune(history, options.max_history).into_iter().collect();
    steps.push(Step::Record(Record::Create));
    let hook =
        |release: &mut Release, event| hooks::wanted(release, event, server_side, options.waiting, kinds);
    steps.extend(hook(&mut release, HookEvent::PreUpgrade)?);
    steps.extend(applying);
    steps.extend(options.waiting.step(&new));
    steps.extend(hook(&mut release, HookEvent::PostUpgrade)?);
    steps.push(Step::Record(Record::Supersede(current.version)));
    let description = if options.description.is_empty() {
        "Upgrade complete".to_owned()
    } else {
        options.description.clone()
    };
    steps.push(Step::Record(Record::Mark { status: Status::Deployed, description: Some(description) }));
    steps.push(Step::Record(Record::Update));
    let failure =
        failure::Policy { cleanup: options.cleanup_on_fail, refresh: Some(current.version), supersede: None };
    Ok(Plan { operation: Operation::Upgrade, release, steps, created, failure })
}

fn merged_labels(
    current: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> =
        current.iter().filter(|(key, _)| *key != "createdAt").map(|(k, v)| (k.clone(), v.clone())).collect();
    labels.extend(wanted.iter().map(|(k, v)| (k.clone(), v.clone())));
    labels.retain(|_, value| value != "null");
    labels
}
