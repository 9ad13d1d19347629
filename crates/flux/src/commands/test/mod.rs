//! `flux test [DIR]`: runs a fleet in memory until it has settled, and says whether it would work.
//!
//! Each cluster of the fleet gets an API server of its own. Exit codes: 0 fine, 1 something is wrong, 2 could not judge.

mod diff;
pub(super) mod report;
mod settle;
pub(super) mod warnings;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::report::{ClusterReport, Outcome, Report};
use crate::error::{CliError, fail};
use crate::fleet::{Cluster, EntryPoint, Fleet, Settings, files, seen};
use crate::output;
use crate::tree::Invocation;

/// What stands behind a verdict of one cluster.
struct Tested {
    report: ClusterReport,
    /// Everything the fleet applied, for a comparison.
    objects: diff::Objects,
}

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let format = run.text("output").parse::<report::Format>().map_err(|error| fail!("{error}"))?;
    let limit = run.duration("timeout").to_std();
    let folder = run.name().map_or_else(files::example, PathBuf::from);
    let revision = match run.is("dirty") || run.name().is_none() {
        true => None,
        false => Some("HEAD"),
    };
    let unjudged = |error: anyhow::Error| CliError::unjudged(format!("{error:#}"));
    let fleet = Fleet::open(&folder, revision).map_err(unjudged)?;
    let asked = run.some("path");
    let mut report = test(&fleet, asked, limit, run.some("diff")).await.map_err(unjudged)?;
    report.fleet = fleet.describe();
    output::data(&report.write(format))?;
    match report.outcome() {
        Outcome::Fine => Ok(()),
        Outcome::Wrong => Err(CliError::quiet(1)),
        Outcome::Unjudged => Err(CliError::quiet(2)),
    }
}

async fn test(fleet: &Fleet, asked: Option<&str>, limit: Duration, base: Option<&str>) -> Result<Report> {
    let all = fleet.place.open()?;
    let entries = files::entry_points(&all, asked)?;
    let mut report = Report { warnings: warnings::old_versions(&all), ..Report::default() };
    for entry in &entries {
        let after = test_one(fleet, entry, limit).await?;
        let mut cluster = after.report;
        if let Some(base) = base {
            let base = fleet.at(base);
            let before = match files::entry_points(&base.place.open()?, Some(&entry.path)) {
                Ok(_) => test_one(&base, entry, limit).await?.objects,
                // A cluster that is new has nothing to be compared with.
                Err(_) => diff::Objects::default(),
            };
            cluster.changes = Some(diff::changes(&before, &after.objects));
        }
        report.clusters.push(cluster);
    }
    Ok(report)
}

async fn test_one(fleet: &Fleet, entry: &EntryPoint, limit: Duration) -> Result<Tested> {
    let started = Instant::now();
    let state = tempfile::tempdir()?;
    let cluster = Cluster::start(&Settings {
        fleet: fleet.clone(),
        entry: entry.clone(),
        state: state.path().to_owned(),
        durable: false,
        workloads_ready_after: Duration::ZERO,
        port: None,
        shown: None,
    })
    .await?;
    let settled = settle::wait(&cluster.client, limit).await;
    let result = async {
        let (objects, settled) = settled?;
        let warnings = warnings::all(&objects, &fleet.place.open()?);
        let workloads = seen::workloads(&cluster.client).await?;
        let applied = diff::collect(&cluster.client, &objects).await?;
        let report =
            ClusterReport::new(&entry.path, started.elapsed(), objects, workloads, settled, warnings);
        Ok(Tested { report, objects: applied })
    }
    .await;
    cluster.stop().await;
    result
}
