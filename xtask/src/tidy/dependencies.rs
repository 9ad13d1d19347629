//! Dependencies that nobody uses, and those that must not come in at all.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use super::{Kind, packages};
use crate::cargo;

/// One provider of cryptography, and no C library that must be installed.
const BANNED: [(&str, &str); 4] = [
    ("ring", "aws-lc-rs is the one provider of cryptography"),
    ("openssl", "rustls does TLS"),
    ("openssl-sys", "rustls does TLS"),
    ("native-tls", "rustls does TLS"),
];

pub(super) fn problems(metadata: &Value) -> Result<Vec<String>> {
    let mut problems = unused(metadata)?;
    problems.extend(unclaimed(metadata)?);
    problems.extend(banned()?);
    Ok(problems)
}

fn banned() -> Result<Vec<String>> {
    let arguments = ["tree", "--workspace", "--prefix=none", "--format={p}", "--locked"];
    let tree = cargo::output(&mut cargo::cargo(&arguments))?;
    let present: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let found = BANNED.iter().filter(|(name, _)| present.contains(name));
    Ok(found
        .map(|(name, why)| format!("{name} is in the dependency tree: {why} (cargo tree -i {name})"))
        .collect())
}

/// Packages whose crate has another name than the package; cargo tells only about packages of ours.
const CRATE_NAMES: [(&str, &str); 1] = [("md_5", "md5")];

/// Dependencies whose name occurs nowhere in the crate's sources.
fn unused(metadata: &Value) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (package, dependencies) in packages(metadata) {
        let folder = match package.as_str() {
            "xtask" => "xtask".to_owned(),
            _ => format!("crates/{package}"),
        };
        let (mut sources, mut tests) = (String::new(), String::new());
        for file in cargo::files(&folder)? {
            if !file.ends_with(".rs") {
                continue;
            }
            let text = std::fs::read_to_string(cargo::root().join(&file))?;
            let product = file.starts_with(&format!("{folder}/src/")) || file.ends_with("build.rs");
            if product {
                sources.push_str(&text);
            } else {
                tests.push_str(&text);
            }
        }
        // A crate that has just been laid out has no content yet; it says so by having one short file.
        if sources.lines().count() < 5 {
            continue;
        }
        for dependency in dependencies {
            let name = dependency.crate_name.as_str();
            let other = CRATE_NAMES.iter().find(|(package, _)| *package == name);
            let name = other.map_or(name, |(_, crate_name)| crate_name);
            if mentions(&sources, name) {
                continue;
            }
            if !mentions(&tests, name) {
                problems.push(format!("{folder}/Cargo.toml: {name} is not used"));
            } else if dependency.kind == Kind::Normal {
                problems.push(format!("{folder}/Cargo.toml: {name} is used by tests only: dev-dependencies"));
            }
        }
    }
    Ok(problems)
}

/// Versions in the workspace's Cargo.toml that no package asks for.
fn unclaimed(metadata: &Value) -> Result<Vec<String>> {
    let claimed: BTreeSet<String> = packages(metadata)
        .into_iter()
        .flat_map(|(name, dependencies)| {
            let used = dependencies.into_iter().map(|dependency| dependency.package);
            used.chain([name]).collect::<Vec<_>>()
        })
        .collect();
    let manifest = std::fs::read_to_string(cargo::root().join("Cargo.toml"))?;
    let stated = versions(&manifest);
    let problems = stated.filter(|name| !claimed.contains(*name));
    Ok(problems.map(|name| format!("Cargo.toml: no package uses {name}")).collect())
}

/// The names in the section `[workspace.dependencies]`.
fn versions(manifest: &str) -> impl Iterator<Item = &str> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
}

/// Whether the name stands in the text as a word of its own.
fn mentions(text: &str, name: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + name.len()..].chars().next();
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_their_section_only() {
        let text = "[package]\nname = \"x\"\n[workspace.dependencies]\n# kube = \"1\"\nserde = \"1\"\ntokio = { version = \"1\" }\n\n[profile.dev]\ndebug = 1\n";
        assert_eq!(versions(text).collect::<Vec<_>>(), ["serde", "tokio"]);
    }

    #[test]
    fn a_name_inside_another_is_no_mention() {
        assert!(mentions("use http::Uri;", "http"));
        assert!(!mentions("use http_body::Body;", "http"));
        assert!(!mentions("let x = my_http;", "http"));
        assert!(mentions("#[derive(serde::Serialize)]", "serde"));
    }
}
