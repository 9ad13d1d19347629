//! `cargo xtask baseline <tool>`: asks the real tool what is right and writes the answers beside the cases.
//!
//! kustomize cases are folders, and the real binary answers them here. Libraries without a command line
//! (yaml, gotemplate, …) have a small Go program in `crates/<crate>/baseline` that records its own cases.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, testbed};

pub fn run(tool: &str) -> Result<()> {
    let program = cargo::root().join("crates").join(tool).join("baseline");
    if program.is_dir() {
        return record_with_go(tool, &program);
    }
    match tool {
        "kustomize" => record_folders(tool, &kustomize),
        _ => bail!("nothing to ask for {tool}: it has no crates/{tool}/baseline, and is not kustomize"),
    }
}

fn record_with_go(tool: &str, program: &Path) -> Result<()> {
    let argument = match tool {
        "yaml" => "../tests/cases",
        _ => "record",
    };
    let mut command = Command::new(testbed::go()?);
    command.args(["run", ".", argument]).current_dir(program).env("GOWORK", "off");
    cargo::run(&mut command)
}

/// What a tool answered: the manifests, or why there are none.
struct Answer {
    success: bool,
    text: String,
}

/// Answers every case (a folder with `input/`) of a crate.
fn record_folders(package: &str, ask: &dyn Fn(&Path, &Path) -> Result<Answer>) -> Result<()> {
    let binary = testbed::tool(package)?;
    let cases = cases(&cargo::root().join("crates").join(package).join("tests/cases"))?;
    let mut changed = 0;
    for case in &cases {
        let answer = ask(&binary, case).with_context(|| format!("ask about {}", case.display()))?;
        let (file, other) = if answer.success {
            ("expected.yaml", "expected.err")
        } else {
            ("expected.err", "expected.yaml")
        };
        let before = std::fs::read_to_string(case.join(file)).ok();
        if before.as_deref() != Some(&answer.text) {
            changed += 1;
            println!("{}", case.display());
        }
        std::fs::write(case.join(file), answer.text)?;
        // A case that used to succeed and now fails, or the other way round, has one answer only.
        if case.join(other).exists() {
            std::fs::remove_file(case.join(other))?;
        }
    }
    println!("{} cases, {changed} answers changed", cases.len());
    Ok(())
}

fn kustomize(binary: &Path, case: &Path) -> Result<Answer> {
    // Further arguments for this case, such as `--load-restrictor LoadRestrictionsNone`, and the folder to build.
    let arguments = std::fs::read_to_string(case.join("arguments")).unwrap_or_else(|_| ".".to_owned());
    let input = case.join("input");
    let output = Command::new(binary)
        .arg("build")
        .args(arguments.split_whitespace())
        .current_dir(&input)
        .env_clear()
        .output()?;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    let folder = input.display().to_string();
    Ok(Answer {
        success: output.status.success(),
        // Where the repository lies is nobody's business.
        text: String::from_utf8(text)?.replace(&folder, "{{ROOT}}"),
    })
}

/// All folders below `folder` that hold an `input`.
fn cases(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.join("input").is_dir() {
            found.push(path);
        } else if path.is_dir() {
            found.extend(cases(&path)?);
        }
    }
    found.sort();
    Ok(found)
}
