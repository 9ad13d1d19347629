//! What one process used: wall time, CPU time and peak memory, as the kernel counted them.
//!
//! The kernel sums up the children of a process, so each run gets a process of its own that has one child.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub peak_mebibytes: f64,
}

/// Runs the command and says what it used. Its output is thrown away; failing is an error.
pub fn run(program: &Path, arguments: &[&str], folder: &Path) -> Result<Usage> {
    let report = folder.join("usage.json");
    let output = Command::new(std::env::current_exe()?)
        .arg("measure")
        .arg(&report)
        .arg(program)
        .args(arguments)
        .current_dir(folder)
        .output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{} {}: {}", program.display(), arguments.join(" "), error.trim());
    }
    let usage: Value = serde_json::from_slice(&std::fs::read(&report)?)?;
    let number = |name: &str| usage[name].as_f64().with_context(|| format!("no {name}"));
    Ok(Usage {
        wall_seconds: number("wall_seconds")?,
        cpu_seconds: number("cpu_seconds")?,
        peak_mebibytes: number("peak_mebibytes")?,
    })
}

/// The process in between.
pub fn child(report: &str, program: &str, arguments: &[&str]) -> Result<()> {
    let started = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("start {program}"))?;
    let wall = started.elapsed();
    if !status.success() {
        bail!("{status}");
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu = usage.user_time() + usage.system_time();
    let report_text = json!({
        "wall_seconds": wall.as_secs_f64(),
        "cpu_seconds": cpu.num_microseconds() as f64 / 1e6,
        // Linux counts in KiB.
        "peak_mebibytes": usage.max_rss() as f64 / 1024.0,
    });
    Ok(std::fs::write(report, report_text.to_string())?)
}
