//! The recorded answers of go-yaml v2, v3 and sigs.k8s.io/yaml in the shared corpus.
#![allow(clippy::disallowed_methods)]

use std::path::PathBuf;

mod answers;

fn corpus(path: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let path = shared.join("corpus").join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no corpus at {}", path.display());
    None
}

#[test]
fn scalars_and_documents_mean_what_they_mean_in_go() {
    let Some(path) = corpus("yaml/resolve.json") else { return };
    let cases: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (mut passed, mut failed) = (0, Vec::new());
    for case in cases.as_array().unwrap() {
        let text = case["In"].as_str().unwrap();
        for (column, question) in [("V2", "v2"), ("V3", "v3"), ("Sigs", "toJson")] {
            // The corpus writes `ERR`, the baseline program `error:`.
            let expected = case[column].as_str().unwrap().replacen("ERR ", "error: ", 1);
            let found = answers::answer(question, text.as_bytes());
            if found == expected {
                passed += 1;
            } else {
                failed.push(format!("{column} of {text:?}:\n  Go:   {expected}\n  here: {found}"));
            }
        }
    }
    println!("resolve.json: {passed} passed, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Every output of the real kustomize, read and written again, is the same text.
#[test]
fn kustomize_output_comes_back_byte_for_byte() {
    let Some(folder) = corpus("kustomize") else { return };
    let mut files = Vec::new();
    collect(&folder, &mut files);
    let (mut passed, mut failed) = (0, Vec::new());
    for file in files {
        let expected = std::fs::read_to_string(&file).unwrap();
        let options = yaml::Options::new(yaml::Schema::V3);
        let written = yaml::parse_stream(expected.as_bytes(), &options).map(|documents| {
            let texts: Result<Vec<_>, _> =
                documents.iter().map(|document| yaml::kustomize_yaml(&document.root)).collect();
            texts.map(|texts| texts.join("---\n"))
        });
        match written {
            Ok(Ok(written)) if written == expected => passed += 1,
            Ok(Ok(_)) => failed.push(format!("{}: other bytes", file.display())),
            Ok(Err(error)) => failed.push(format!("{}: {error}", file.display())),
            Err(error) => failed.push(format!("{}: {error}", file.display())),
        }
    }
    println!("kustomize outputs: {passed} passed, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn collect(folder: &std::path::Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the corpus can be listed") {
        let path = entry.expect("the corpus can be listed").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.file_name().is_some_and(|name| name == "expected.yaml") {
            files.push(path);
        }
    }
}
