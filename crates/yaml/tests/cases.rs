//! Texts of our own with the answers of the Go libraries beside them, recorded by `baseline/main.go`.
//!
//! A case is a `.yaml` file anywhere below `tests/cases`; `cargo xtask baseline yaml` writes its answers.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

mod answers;

#[test]
fn every_case_is_answered_as_go_answers_it() {
    let mut files = Vec::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")), &mut files);
    assert!(files.len() > 50, "only {} cases found", files.len());
    let mut failed = Vec::new();
    for file in &files {
        let text = std::fs::read(file).expect("a case can be read");
        let recorded = std::fs::read(file.with_extension("answers.json")).expect("a case has its answers");
        let recorded: serde_json::Value = serde_json::from_slice(&recorded).expect("answers are JSON");
        for question in answers::QUESTIONS {
            let expected = recorded[question].as_str().expect("every question is answered");
            let found = answers::answer(question, &text);
            if found != expected {
                failed
                    .push(format!("{} {question}\n--- Go:\n{expected}\n--- here:\n{found}", file.display()));
            }
        }
    }
    println!("{} cases, {} answers differ", files.len(), failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the cases can be listed") {
        let path = entry.expect("the cases can be listed").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
}
