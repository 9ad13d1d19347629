//! Small charts of our own with the answers of helm 4.3.1.
//!
//! A case is a folder: `chart/`, `arguments.json` (further flags), and `expected.yaml` or `expected.err`. With `HELM` naming a real
//! helm 4 the answers are recorded anew.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

#[path = "../examples/helm.rs"]
#[allow(dead_code)]
mod cli;

const FIXED: [&str; 4] = ["-n", "ns", "--kube-version", "1.34"];

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn arguments(case: &Path) -> Vec<String> {
    serde_json::from_str(&std::fs::read_to_string(case.join("arguments.json")).unwrap()).unwrap()
}

#[test]
fn our_cases_have_helms_answers() {
    let mut failures = Vec::new();
    let folders = folders();
    for case in &folders {
        if let Some(binary) = std::env::var_os("HELM") {
            record(case, Path::new(&binary));
        }
        let chart = case.join("chart").display().to_string();
        let arguments = arguments(case);
        let mut words = vec!["rel", chart.as_str()];
        words.extend(FIXED);
        words.extend(arguments.iter().map(String::as_str));
        let (got, file) = match cli::template(&words) {
            Ok(output) => (output, "expected.yaml"),
            Err(error) => (format!("Error: {error}\n"), "expected.err"),
        };
        let wanted = std::fs::read_to_string(case.join(file)).unwrap_or_default();
        if wanted.trim_end() != got.trim_end() {
            failures.push(format!("{}:\n{got}\nwanted\n{wanted}", case.display()));
        }
    }
    println!("{} cases passed, {} failed", folders.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Asks the real helm.
fn record(case: &Path, binary: &Path) {
    let mut command = std::process::Command::new(binary);
    command
        .args(["template", "rel", "chart"])
        .args(FIXED)
        .args(arguments(case))
        .current_dir(case)
        .env_clear()
        .env("HOME", std::env::temp_dir());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for old in ["expected.yaml", "expected.err"] {
        let _ = std::fs::remove_file(case.join(old));
    }
    if output.status.success() {
        std::fs::write(case.join("expected.yaml"), text(&output.stdout)).unwrap();
    } else {
        let error = text(&output.stderr);
        std::fs::write(case.join("expected.err"), &error[error.find("Error: ").unwrap_or(0)..]).unwrap();
    }
}
