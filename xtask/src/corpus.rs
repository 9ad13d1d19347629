//! `cargo xtask corpus`: the large sets beside the repository, per set.
//!
//! Each engine has `tests/corpus.rs`, which prints `corpus <set>: N passed, N failed, N skipped` and lists what
//! failed; a set that is not there prints `skipped: no corpus at …`. A failing set fails its test.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::test_output::{self, Counts};

pub fn run(package: Option<&str>) -> Result<()> {
    if cargo::shared().is_none() {
        bail!("there is no corpus in ../shared; FLUX_SHARED may name another place");
    }
    let mut command = cargo::cargo(&["test", "--test", "corpus", "--no-fail-fast", "--quiet"]);
    match package {
        Some(package) => command.args(["--package", package]),
        None => command.arg("--workspace"),
    };
    // One thread: the lines of two sets must not mix.
    command.args(["--", "--nocapture", "--test-threads=1"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("no stdout")?;
    let mut sets = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        // A quiet libtest writes a dot for each test, and no line end.
        if let Some((set, counts)) = test_output::corpus(line.trim_start_matches('.').trim()) {
            sets.push((set.to_owned(), counts));
        }
        // All of it: between the counts stand the failures.
        println!("{line}");
    }
    let status = child.wait()?;
    let total = summary(&sets);
    if !status.success() || total.failed > 0 {
        bail!("{} cases differ", total.failed);
    }
    Ok(())
}

fn summary(sets: &[(String, Counts)]) -> Counts {
    let mut total = Counts::default();
    let width = sets.iter().map(|(set, _)| set.len()).max().unwrap_or(0);
    println!("\n{:width$}  {:>7} {:>7} {:>7}", "set", "passed", "failed", "skipped");
    for (set, counts) in sets {
        total.add(*counts);
        println!("{set:width$}  {:>7} {:>7} {:>7}", counts.passed, counts.failed, counts.skipped);
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    total
}
