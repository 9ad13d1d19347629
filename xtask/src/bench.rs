//! `cargo xtask bench <name>`: ours beside the real tool on the same generated input, in one run.
//!
//! Only ratios mean anything: absolute numbers change with the machine. Runs alternate, so that a busy moment
//! hits both, and the median counts.

mod helm;
mod helmreleases;
mod images;
mod kustomizations;
mod kustomize;
mod notifications;
mod sources;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::measure::{self, Usage};
use crate::{cargo, testbed};

const RUNS: usize = 5;

/// One comparison: the same arguments to both programs.
pub struct Input {
    name: String,
    folder: PathBuf,
    arguments: Vec<&'static str>,
}

pub fn run(name: &str, rest: &[&str]) -> Result<()> {
    match (name, rest) {
        ("sources", rest) => return sources::run(rest),
        ("kustomizations", rest) => return kustomizations::run(rest),
        ("helmreleases", []) => return helmreleases::run(),
        ("images", []) => return images::run(),
        ("notifications", []) => return notifications::run(),
        (_, []) => {}
        (_, rest) => bail!("bench {name} takes no {}", rest.join(" ")),
    }
    let folder = cargo::target_folder()?.join("bench").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    if name == "apiserver" {
        return load();
    }
    let inputs = match name {
        "kustomize" => kustomize::inputs(&folder)?,
        "helm" => helm::inputs(&folder)?,
        _ => bail!(
            "no bench is called {name}; there are apiserver, kustomize, helm, kustomizations, helmreleases, images, notifications and sources"
        ),
    };
    let ours = our_example(name)?;
    let theirs = testbed::tool(name)?;
    let mut rows = Vec::new();
    for input in &inputs {
        let (our_usage, their_usage) = compare(&ours, &theirs, input)?;
        println!("{}", table(&input.name, our_usage, their_usage));
        rows.push(report(&input.name, our_usage, their_usage));
    }
    println!("{}", json!({"bench": name, "runs": RUNS, "inputs": rows}));
    Ok(())
}

/// The embedded API server has no peer to be compared with on one machine: its load is held against fixed bounds, and
/// the example fails when one is passed.
fn load() -> Result<()> {
    let mut command = cargo::cargo(&["run", "--release", "--package", "apiserver", "--example", "load"]);
    cargo::run(&mut command)
}

/// Engines have no binary, only an example of the real tool's name that takes the real tool's arguments.
fn our_example(name: &str) -> Result<PathBuf> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", name, "--example", name]))?;
    Ok(cargo::target_folder()?.join("release/examples").join(name))
}

fn compare(ours: &Path, theirs: &Path, input: &Input) -> Result<(Usage, Usage)> {
    let (mut our_runs, mut their_runs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        our_runs.push(measure::run(ours, &input.arguments, &input.folder)?);
        their_runs.push(measure::run(theirs, &input.arguments, &input.folder)?);
    }
    let median = |runs: &[Usage]| median(runs).context("at least one run");
    Ok((median(&our_runs)?, median(&their_runs)?))
}

/// Each number for itself: the run with the median time need not be the one with the median memory.
fn median(runs: &[Usage]) -> Option<Usage> {
    let middle = |of: fn(&Usage) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Some(Usage {
        wall_seconds: middle(|usage| usage.wall_seconds)?,
        cpu_seconds: middle(|usage| usage.cpu_seconds)?,
        peak_mebibytes: middle(|usage| usage.peak_mebibytes)?,
    })
}

fn table(name: &str, ours: Usage, theirs: Usage) -> String {
    let row = |what: &str, unit: &str, ours: f64, theirs: f64| {
        format!(
            "  {what:<6} ours {ours:>9.3} {unit:<3}  real {theirs:>9.3} {unit:<3}  ratio 1/{:.1}\n",
            theirs / ours
        )
    };
    format!("{name}\n")
        + &row("wall", "s", ours.wall_seconds, theirs.wall_seconds)
        + &row("cpu", "s", ours.cpu_seconds, theirs.cpu_seconds)
        + &row("peak", "MiB", ours.peak_mebibytes, theirs.peak_mebibytes)
}

fn report(name: &str, ours: Usage, theirs: Usage) -> Value {
    let usage = |usage: Usage| {
        json!({
            "wall_seconds": usage.wall_seconds,
            "cpu_seconds": usage.cpu_seconds,
            "peak_mebibytes": usage.peak_mebibytes,
        })
    };
    json!({
        "input": name,
        "ours": usage(ours),
        "real": usage(theirs),
        "times_faster": theirs.wall_seconds / ours.wall_seconds,
        "times_less_cpu": theirs.cpu_seconds / ours.cpu_seconds,
        "times_less_memory": theirs.peak_mebibytes / ours.peak_mebibytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_taken_of_each_number_for_itself() {
        let usage =
            |wall: f64, peak: f64| Usage { wall_seconds: wall, cpu_seconds: 0.0, peak_mebibytes: peak };
        let median = median(&[usage(3.0, 1.0), usage(1.0, 2.0), usage(2.0, 3.0)]);
        assert_eq!(median, Some(usage(2.0, 2.0)));
    }
}
