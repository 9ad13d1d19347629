//! The binary of the crate `testbed`: standing servers, and reference tools by name.

use std::path::PathBuf;

use anyhow::Result;

use crate::cargo;

pub fn run(command: &str) -> Result<()> {
    cargo::run(&mut cargo::cargo(&[
        "run",
        "--quiet",
        "--package",
        "testbed",
        "--bin",
        "testbed",
        "--",
        command,
    ]))
}

/// The path of a real tool's binary, built first if it is not in the cache.
pub fn tool(name: &str) -> Result<PathBuf> {
    path(&["tool", name])
}

/// The path of a Go toolchain that is new enough, installed first if the machine has none.
pub fn go() -> Result<PathBuf> {
    path(&["go"])
}

fn path(arguments: &[&str]) -> Result<PathBuf> {
    let mut command = cargo::cargo(&["run", "--quiet", "--package", "testbed", "--bin", "testbed", "--"]);
    // Its progress goes to stderr and should be seen.
    command.args(arguments).stderr(std::process::Stdio::inherit());
    Ok(PathBuf::from(cargo::output(&mut command)?.trim()))
}
