//! `flux test [DIR]`: runs a fleet in memory until it has settled, and says whether it would work.
//!
//! Each cluster of the fleet gets an API server of its own. Exit codes: 0 fine, 1 something is wrong, 2 could not judge.

mod builds;
mod diff;
pub(super) mod report;
mod settle;
pub(super) mod warnings;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use flux_controllers::source::depot::{Depot, Network};
use futures::StreamExt as _;

use self::report::{ClusterReport, Outcome, Report};
use crate::error::{CliError, fail};
use crate::fleet::{Cluster, EntryPoint, Fleet, Settings, depot, files, seen};
use crate::output;
use crate::tree::Invocation;

/// Clusters that are tested at the same time.
const AT_ONCE: usize = 8;

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
    let network = if run.is("refresh") { Network::First } else { Network::IfMissing };
    let depot = depot::from_flags(run, network).map_err(unjudged)?;
    let how = How { asked: run.some("path"), limit, base: run.some("diff"), depot };
    let mut report = test(&fleet, &how).await.map_err(unjudged)?;
    report.fleet = fleet.describe();
    output::data(&report.write(format))?;
    match report.outcome() {
        Outcome::Fine => Ok(()),
        Outcome::Wrong => Err(CliError::quiet(1)),
        Outcome::Unjudged => Err(CliError::quiet(2)),
    }
}

/// What is asked for.
struct How<'a> {
    /// One cluster of the fleet.
    asked: Option<&'a str>,
    limit: Duration,
    /// The revision to compare with.
    base: Option<&'a str>,
    depot: Depot,
}

async fn test(fleet: &Fleet, how: &How<'_>) -> Result<Report> {
    let all = fleet.place.open()?;
    let entries = files::entry_points(&all, how.asked)?;
    let mut report = Report { warnings: warnings::old_versions(&all), ..Report::default() };
    // Clusters have nothing to do with each other; most of the time is spent waiting for silence.
    let tests = entries.iter().map(|entry| test_cluster(fleet, entry, how));
    let mut tests = futures::stream::iter(tests).buffered(AT_ONCE);
    while let Some(cluster) = tests.next().await {
        report.clusters.push(cluster?);
    }
    Ok(report)
}

/// One cluster, and what changes in it since the revision it is compared with.
async fn test_cluster(fleet: &Fleet, entry: &EntryPoint, how: &How<'_>) -> Result<ClusterReport> {
    let Some(base) = how.base else {
        return Ok(test_one(fleet, entry, how).await?.report);
    };
    let base = fleet.at(base);
    let before = async {
        match files::entry_points(&base.place.open()?, Some(&entry.path)) {
            Ok(_) => Ok(test_one(&base, entry, how).await?.objects),
            // A cluster that is new has nothing to be compared with.
            Err(_) => Ok(diff::Objects::default()),
        }
    };
    let (after, before) = futures::try_join!(test_one(fleet, entry, how), before)?;
    let mut report = after.report;
    report.warnings.extend(warnings::held(&before, &after.objects));
    report.changes = Some(diff::changes(&before, &after.objects));
    Ok(report)
}

async fn test_one(fleet: &Fleet, entry: &EntryPoint, how: &How<'_>) -> Result<Tested> {
    let started = Instant::now();
    let state = tempfile::tempdir()?;
    let cluster = Cluster::start(&Settings {
        fleet: fleet.clone(),
        entry: entry.clone(),
        depot: how.depot.clone(),
        state: state.path().to_owned(),
        durable: false,
        workloads_ready_after: Duration::ZERO,
        port: None,
        shown: None,
    })
    .await?;
    let settled = settle::wait(&cluster.client, how.limit).await;
    let result = async {
        let (objects, settled) = settled?;
        let mut warnings = warnings::all(&objects, &fleet.place.open()?);
        warnings.extend(warnings::overheard(&cluster.said));
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
