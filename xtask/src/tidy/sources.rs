//! Rules about files: their size, their names, and what code that runs in a cluster may not do.

use anyhow::Result;

use super::layers;
use crate::cargo;

const LONGEST: usize = 1000;
/// Stands in the first lines of a file that is longer, followed by the reason.
const REASON: &str = "Long file:";

/// Says nothing about what is inside.
const EMPTY_NAMES: [&str; 11] =
    ["utils", "util", "common", "commons", "helpers", "helper", "misc", "core", "base", "shared", "types"];

/// Runs in a cluster, where there is no `git`, no `kubectl` and no shell.
const CLUSTER_CODE: [&str; 4] = ["flux-controllers", "flux-apply", "flux-remote", "apiserver"];

pub(super) fn problems() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut files = cargo::files("crates")?;
    files.extend(cargo::files("xtask")?);
    for file in files {
        // The cases and the Go programs are data here.
        if file.contains("/tests/cases/") || file.contains("/baseline/") || !file.ends_with(".rs") {
            continue;
        }
        let text = std::fs::read_to_string(cargo::root().join(&file))?;
        problems.extend(empty_name(&file));
        problems.extend(too_long(&file, &text));
        problems.extend(subprocess(&file, &text));
        problems.extend(no_introduction(&file, &text));
    }
    for name in layers::pure_crates() {
        problems.extend(unguarded(name));
    }
    Ok(problems)
}

fn empty_name(file: &str) -> Option<String> {
    let parts = file.trim_end_matches(".rs").split('/');
    // Below `crates/<name>`: that name is cargo's business.
    let part = parts.skip(2).find(|part| EMPTY_NAMES.contains(part))?;
    Some(format!("{file}: `{part}` says nothing; name it after what is inside"))
}

fn too_long(file: &str, text: &str) -> Option<String> {
    let count = text.lines().count();
    let reasoned = text.lines().take(30).any(|line| line.contains(REASON));
    (count > LONGEST && !reasoned)
        .then(|| format!("{file}: {count} lines; split it, or give a reason in a line with `{REASON} …`"))
}

fn subprocess(file: &str, text: &str) -> Option<String> {
    let package = file.strip_prefix("crates/")?.split('/').next()?;
    let watched = CLUSTER_CODE.contains(&package) || layers::pure_crates().any(|pure| pure == package);
    if !watched || !file.starts_with(&format!("crates/{package}/src/")) {
        return None;
    }
    let product = text.split("#[cfg(test)]").next().unwrap_or(text);
    let starts = product.contains("Command::new") || product.contains("process::Command");
    starts.then(|| format!("{file}: starts a process, but it runs in a cluster that has no such program"))
}

fn no_introduction(file: &str, text: &str) -> Option<String> {
    let begins = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    let introduced = begins.is_none_or(|line| line.starts_with("//!") || line.contains("@generated"));
    (!introduced).then(|| format!("{file}: does not begin with `//!` saying what it is"))
}

/// Clippy only watches a pure crate that has the list of what it may not call.
fn unguarded(package: &str) -> Option<String> {
    let folder = cargo::root().join("crates").join(package);
    if !folder.is_dir() {
        return None;
    }
    let rules = std::fs::read_to_string(folder.join("clippy.toml")).unwrap_or_default();
    (!rules.contains("disallowed-methods"))
        .then(|| format!("crates/{package}: is pure, but has no clippy.toml with disallowed-methods"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_says_nothing_is_a_problem_wherever_it_stands() {
        assert!(empty_name("crates/helm/src/utils.rs").is_some());
        assert!(empty_name("crates/helm/tests/common/mod.rs").is_some());
        assert!(empty_name("crates/helm/src/values.rs").is_none());
        assert!(empty_name("crates/core/src/values.rs").is_none());
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = "//! x\n".repeat(1001);
        assert!(too_long("a.rs", &long).is_some());
        assert!(too_long("a.rs", &format!("// Long file: a table.\n{long}")).is_none());
    }

    #[test]
    fn cluster_code_starts_no_process_but_its_tests_may() {
        let product = "use std::process::Command;";
        let test = "#[cfg(test)]\nmod tests { use std::process::Command; }";
        assert!(subprocess("crates/flux-remote/src/git.rs", product).is_some());
        assert!(subprocess("crates/flux-remote/src/git.rs", test).is_none());
        assert!(subprocess("crates/flux-remote/tests/git.rs", product).is_none());
        assert!(subprocess("crates/testbed/src/git.rs", product).is_none());
    }
}
