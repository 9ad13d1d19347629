//! `cargo xtask docs`: the reference pages written again, rustdoc without warnings, and Markdown whose links lead somewhere.

use std::path::Path;

use anyhow::{Result, bail};

use crate::cargo;

pub fn run() -> Result<()> {
    let pages = cargo::root().join("docs/reference");
    let mut command = cargo::cargo(&["run", "--quiet", "--package", "flux", "--", "reference", "markdown"]);
    cargo::run(command.arg(pages))?;
    let broken = broken_links()?;
    if !broken.is_empty() {
        bail!("links that lead nowhere:\n  {}", broken.join("\n  "));
    }
    let mut command = cargo::cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    cargo::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Links to files of the repository that are not there. Links to the web are not followed.
pub fn broken_links() -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in cargo::files(".")? {
        if !file.ends_with(".md") || file.contains("/tests/cases/") {
            continue;
        }
        let path = cargo::root().join(&file);
        let folder = path.parent().unwrap_or(Path::new("."));
        for (number, line) in std::fs::read_to_string(&path)?.lines().enumerate() {
            for target in targets(line) {
                if !folder.join(target).exists() {
                    broken.push(format!("{file}:{}: {target}", number + 1));
                }
            }
        }
    }
    Ok(broken)
}

/// The files that a line of Markdown links to, without their `#section`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find("](") {
        rest = &rest[start + 2..];
        let Some(end) = rest.find(')') else { break };
        let target = rest[..end].split('#').next().unwrap_or_default();
        let elsewhere = target.contains("://") || target.starts_with("mailto:");
        if !target.is_empty() && !elsewhere && !target.contains(' ') {
            found.push(target);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_files_are_followed() {
        let line = "[a](docs/a.md#b) and [w](https://example.com) and [s](#here) [c](../c)";
        assert_eq!(targets(line), ["docs/a.md", "../c"]);
    }
}
