//! Our own cases: inputs written here, answers recorded from the real kustomize (`cargo xtask baseline kustomize`).
//!
//! A case is a folder: `input/`, optionally `arguments` (what follows `kustomize build`; `.` if there is none),
//! and `expected.yaml` or `expected.err`. Where we differ on purpose, `ours.err` says what we answer instead.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test that reads its cases")]

#[path = "../examples/disk/mod.rs"]
mod disk;

use std::fs;
use std::path::{Path, PathBuf};

use disk::Disk;
use file_tree::TreePath;
use kustomize::{LoadRestrictions, Options, Reorder};

#[test]
fn every_case_comes_out_as_recorded() {
    let mut cases = Vec::new();
    find(&fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")).unwrap(), &mut cases);
    cases.sort();
    assert!(cases.len() > 150, "only {} cases found", cases.len());
    let failures: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    println!("cases: {} passed, {} failed", cases.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn find(folder: &Path, cases: &mut Vec<PathBuf>) {
    if folder.join("input").is_dir() {
        cases.push(folder.to_owned());
        return;
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, cases);
        }
    }
}

fn check(case: &Path) -> Result<(), String> {
    let arguments = fs::read_to_string(case.join("arguments")).unwrap_or_else(|_| ".".to_owned());
    let (folder, options) = parse(&arguments);
    let input = case.join("input");
    let root = TreePath::parse(input.join(&folder).to_str().unwrap()).unwrap();
    let mut warnings = Vec::new();
    let built = kustomize::build_reporting(&Disk, &root, None, &options, &mut warnings)
        .and_then(|manifests| manifests.to_yaml());
    let name = case.display();
    let expected = |file: &str| fs::read_to_string(case.join(file)).ok();
    match (built, expected("expected.yaml"), expected("ours.err").or_else(|| expected("expected.err"))) {
        (Ok(output), Some(yaml), _) if output == yaml => Ok(()),
        (Ok(output), Some(yaml), _) => Err(format!("{name}\n--- expected\n{yaml}--- ours\n{output}")),
        (Ok(output), None, _) => Err(format!("{name}: should fail, but gives\n{output}")),
        (Err(error), None, Some(recorded)) => {
            warnings.push(format!("Error: {error}"));
            let ours = warnings
                .join("\n")
                .replace(input.to_str().unwrap(), "{{ROOT}}")
                .replace("&{0x0 <nil>}", "&{…}");
            let recorded = without_pointers(&recorded);
            // Behind kustomize's words we may say which object they are about.
            let ours = ours.trim_end();
            let located = ours.ends_with(')').then(|| ours.rsplit_once("\n(in ")).flatten();
            let without = located.map_or(ours, |(text, _)| text).trim_end();
            if [ours, without].contains(&recorded.trim_end()) {
                return Ok(());
            }
            Err(format!("{name}\n--- expected\n{recorded}\n--- ours\n{ours}"))
        }
        (Err(error), _, _) => Err(format!("{name}: {error}")),
    }
}

/// Addresses of Go values change with every run.
fn without_pointers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("&{0x") {
        out.push_str(&rest[..at]);
        out.push_str("&{…}");
        rest = rest[at..].split_once('}').map_or("", |(_, after)| after);
    }
    out + rest
}

fn parse(arguments: &str) -> (String, Options) {
    let mut options = Options::COMMAND;
    let mut folder = ".".to_owned();
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--load-restrictor" => {
                assert_eq!(words.next(), Some("LoadRestrictionsNone"));
                options.load_restrictions = LoadRestrictions::None;
            }
            "--reorder" => {
                options.reorder = if words.next() == Some("none") { Reorder::None } else { Reorder::Legacy };
            }
            "--enable-managedby-label" => options.add_managed_by_label = true,
            other => other.clone_into(&mut folder),
        }
    }
    (folder, options)
}
