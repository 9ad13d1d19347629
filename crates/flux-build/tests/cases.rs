//! Kustomizations as the real `flux build kustomization` builds them (`cargo xtask baseline flux`).
//!
//! Compared as documents in order: the real command adds the owner's labels and reprints the YAML, which is the
//! command's work and not this crate's.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test reads files and fails by panicking"
)]

use std::path::{Path, PathBuf};

use file_tree::{MemoryTree, TreePath};
use serde_json::Value;

const OWNER: [&str; 2] = ["kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace"];

#[test]
fn builds_agree_with_flux() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"));
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    let mut failures = Vec::new();
    for case in &cases {
        let name = case.file_name().unwrap().to_string_lossy();
        if let Err(difference) = compare(case) {
            failures.push(format!("{name}: {difference}"));
        }
    }
    println!(
        "cases flux-build: {} passed, {} failed, 0 skipped",
        cases.len() - failures.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn compare(case: &Path) -> Result<(), String> {
    let arguments = std::fs::read_to_string(case.join("arguments")).unwrap_or_default();
    let built = build(&case.join("input"), arguments.contains("--strict-substitute"));
    let expected = std::fs::read_to_string(case.join("expected.yaml"));
    match (built, expected) {
        (Ok(found), Ok(expected)) => {
            let expected = documents(&expected);
            if found == expected {
                return Ok(());
            }
            Err(format!("built\n{}\nexpected\n{}", shown(&found), shown(&expected)))
        }
        (Err(_), Err(_)) => Ok(()),
        (Ok(found), Err(_)) => Err(format!("flux refuses it, we built\n{}", shown(&found))),
        (Err(error), Ok(_)) => Err(error),
    }
}

fn build(input: &Path, strict: bool) -> Result<Vec<Value>, String> {
    // As `kubectl` and `flux` read it: the key `n` is a boolean there.
    let object = yaml::to_json(&std::fs::read(input.join("kustomization.yaml")).unwrap()).unwrap();
    let object: flux_api::kustomize::Kustomization = serde_json::from_value(object).unwrap();
    let mut files = MemoryTree::default();
    add(&mut files, &input.join("files"), &TreePath::root());
    let variables = object.spec.post_build.as_ref().map(|post_build| post_build.substitute.clone());
    let input = flux_build::Input {
        variables: variables.as_ref(),
        strict,
        ..flux_build::Input::new(&object.spec, &files)
    };
    let built = flux_build::kustomization(&input).map_err(|error| error.to_string())?;
    Ok(built.objects)
}

fn add(files: &mut MemoryTree, folder: &Path, at: &TreePath) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let inside = at.child(path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            add(files, &path, &inside);
        } else {
            files.insert(inside, std::fs::read(&path).unwrap());
        }
    }
}

/// Without the labels that name the owner.
fn documents(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
        let mut value: Value = serde_saphyr::from_str(document).unwrap();
        let metadata = value["metadata"].as_object_mut().unwrap();
        let labels = metadata["labels"].as_object_mut().unwrap();
        for label in OWNER {
            assert!(labels.remove(label).is_some(), "flux did not label {document}");
        }
        if labels.is_empty() {
            metadata.remove("labels");
        }
        found.push(value);
    }
    found
}

fn shown(values: &[Value]) -> String {
    values.iter().map(|value| serde_json::to_string_pretty(value).unwrap()).collect::<Vec<_>>().join("\n")
}
