//! Runs cargo in the repository, and knows where the repository is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// A cargo command in the root.
pub fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs it with its output shown.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs it and returns what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("start {shown}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}\n{}", output.status, error.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// What `cargo metadata` says about the packages of the workspace.
pub fn metadata() -> Result<Value> {
    let arguments = ["metadata", "--format-version=1", "--no-deps"];
    Ok(serde_json::from_str(&output(&mut cargo(&arguments))?)?)
}

/// Where cargo puts what it builds.
pub fn target_folder() -> Result<PathBuf> {
    let metadata = metadata()?;
    let folder = metadata["target_directory"].as_str();
    Ok(PathBuf::from(folder.context("no target directory")?))
}

/// The folder with the shared corpora, if this machine has it.
pub fn shared() -> Option<PathBuf> {
    let folder = match std::env::var_os("FLUX_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => root().parent()?.join("shared"),
    };
    folder.join("corpus").is_dir().then_some(folder)
}

/// All files below a folder of the repository that Git does not ignore, relative to the root.
pub fn files(below: &str) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).arg(below).current_dir(root());
    let mut files: Vec<String> = output(&mut git)?.lines().map(str::to_owned).collect();
    // A file that was deleted but not yet staged is still listed.
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
