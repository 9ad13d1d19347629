//! `cargo xtask test`: what a contributor runs, and what CI runs.
//!
//! One profile and one target folder. The workspace is compiled once for clippy (metadata only) and once for
//! the tests; nothing is built with another set of features on the way.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::test_output::{self, Counts};
use crate::{cargo, checklist, tidy};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Usual,
    /// Also the tests that are marked `#[ignore = "peers: …"]`.
    WithPeers,
}

/// What the tests start. They would build it themselves, but without showing any progress.
const TOOLS: [&str; 7] = [
    "etcd-3.6.8",
    "kubernetes-1.36.3",
    "kubernetes-1.35.4",
    "kustomize-5.8.1",
    "helm-4.3.1",
    "helm-3.22.0",
    "flux-2.9.4",
];

/// What clippy and the build of all tests leave there, without what serves to compile again.
const TARGET_GIBIBYTES: u64 = 8;

pub fn run(scope: Scope) -> Result<()> {
    let started = Instant::now();
    let mut counts = Counts::default();
    let mut failed = Vec::new();
    let tools = match scope {
        Scope::Usual => tools as fn() -> Result<()>,
        Scope::WithPeers => tools_and_peers,
    };
    for (title, step) in [
        ("programs the tests need", programs as fn() -> Result<()>),
        ("room on the disk", room),
        ("format", format),
        ("tidy", tidy::run),
        ("checklists", || checklist::run(checklist::Ids::Check)),
        ("clippy", clippy),
        ("build of all tests", build),
        ("reference tools", tools),
    ] {
        check(title, step, &mut counts, &mut failed);
    }
    // Tests say nothing when they do not compile or when their servers cannot be had.
    if failed.is_empty() || !failed.contains(&"build of all tests") {
        tests(scope, &mut counts, &mut failed)?;
    }
    println!("\n{} s", started.elapsed().as_secs());
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    if counts.failed > 0 {
        // The last line has said it all.
        std::process::exit(1);
    }
    Ok(())
}

fn check(title: &'static str, step: fn() -> Result<()>, counts: &mut Counts, failed: &mut Vec<&'static str>) {
    println!("── {title}");
    let started = Instant::now();
    match step() {
        Ok(()) => {
            counts.passed += 1;
            println!("   ok, {} s", started.elapsed().as_secs());
        }
        Err(error) => {
            counts.failed += 1;
            failed.push(title);
            println!("   FAILED: {error:#}");
        }
    }
}

/// What cannot be built by ourselves must be on the machine.
fn programs() -> Result<()> {
    for (program, argument, why) in [
        ("git", "--version", "the Git server speaks through it: install git"),
        ("ssh", "-V", "the Git server is tested with it: install openssh-client"),
        ("sh", "-c", "servers are supervised by it"),
    ] {
        let mut command = Command::new(program);
        command.arg(argument);
        if program == "sh" {
            command.arg("true");
        }
        let output = command.output().with_context(|| format!("{program} is missing; {why}"))?;
        if !output.status.success() {
            bail!("{program} does not work; {why}");
        }
    }
    Ok(())
}

/// A linker that finds the disk full dies of a bus error and says nothing of disks.
fn room() -> Result<()> {
    let target = cargo::target_folder()?;
    let place = target.ancestors().find(|folder| folder.exists()).unwrap_or(cargo::root());
    let answer = cargo::output(Command::new("df").arg("-Pk").arg(place))?;
    let free = free_gibibytes(&answer).with_context(|| format!("df says nothing of room: {answer}"))?;
    // This program lies there as well; testbed comes with the tests only.
    let needed = if target.join("debug/testbed").exists() { 1 } else { TARGET_GIBIBYTES };
    if free < needed {
        bail!("{free} GiB are free at {}, {needed} are needed: make room", place.display());
    }
    Ok(())
}

/// Reads the fourth column of `df -Pk`.
fn free_gibibytes(answer: &str) -> Option<u64> {
    let kibibytes: u64 = answer.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kibibytes >> 20)
}

fn format() -> Result<()> {
    cargo::run(&mut cargo::cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    cargo::run(&mut cargo::cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))
}

fn build() -> Result<()> {
    cargo::run(&mut cargo::cargo(&["test", "--workspace", "--locked", "--no-run", "--quiet"]))
}

fn tools() -> Result<()> {
    build_tools(&TOOLS)
}

fn tools_and_peers() -> Result<()> {
    tools()?;
    build_tools(&["peers"])
}

/// Runs the binary that the build of the tests has made: `cargo run -p testbed` would compile half of the
/// dependencies again, with the features that only testbed asks for.
fn build_tools(names: &[&str]) -> Result<()> {
    let testbed = cargo::target_folder()?.join("debug/testbed");
    let mut command = Command::new(testbed);
    command.arg("tools").args(names);
    command.stdout(std::process::Stdio::null());
    cargo::run(&mut command)
}

fn tests(scope: Scope, counts: &mut Counts, failed: &mut Vec<&'static str>) -> Result<()> {
    println!("── tests");
    if cargo::shared().is_none() {
        println!("   no ../shared here (FLUX_SHARED names another place): the corpora are skipped");
    }
    let mut command = cargo::cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    // --show-output: what passing tests print is where the corpora say how much they compared.
    command.args(["--", "--show-output"]);
    if scope == Scope::WithPeers {
        command.arg("--include-ignored");
    }
    // The servers of the real control plane are Go programs that live for minutes: memory is cheaper for them than the CPU
    // time of collecting it.
    if std::env::var_os("GOGC").is_none() {
        command.env("GOGC", "400");
    }
    // Most stories wait most of the time.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        command.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    let ran = test_output::follow(&mut command)?;
    if ran.failed > 0 {
        failed.push("tests");
    }
    counts.add(ran);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_read_from_df() {
        let answer =
            "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 264000000 1 9961472 90% /\n";
        assert_eq!(free_gibibytes(answer), Some(9));
        assert_eq!(free_gibibytes("df: no such file\n"), None);
    }
}
