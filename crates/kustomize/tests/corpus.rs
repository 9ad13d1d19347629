//! Every case of the shared corpus: what the real kustomize printed, or that it failed.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test that reads the corpus in place")]

#[path = "../examples/disk/mod.rs"]
mod disk;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use disk::Disk;
use file_tree::TreePath;
use kustomize::{LoadRestrictions, Options, Reorder};
use serde_json::Value;

#[derive(Default)]
struct Score {
    bytes: usize,
    objects: usize,
    error_exact: usize,
    error_other: usize,
    failures: Vec<String>,
}

#[test]
fn the_corpus_comes_out_as_recorded() {
    let shared = std::env::var("FLUX_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let Ok(folder) = fs::canonicalize(Path::new(&shared).join("corpus/kustomize")) else {
        println!("skipped: no corpus");
        return;
    };
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("case.json").exists())
        .collect();
    cases.sort();
    let mut score = Score::default();
    for case in &cases {
        check(case, &mut score);
    }
    let Score { bytes, objects, error_exact, error_other, failures } = &score;
    println!(
        "corpus: {bytes} identical, {objects} with equal objects only, {} failed; errors: {error_exact} with the same text, {error_other} with another",
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(*bytes * 100 >= (bytes + objects) * 95, "fewer than 95% are identical");
}

fn check(case: &Path, score: &mut Score) {
    let name = case.file_name().unwrap().to_string_lossy().into_owned();
    let about: Value = serde_json::from_str(&fs::read_to_string(case.join("case.json")).unwrap()).unwrap();
    let target = about["target"].as_str().unwrap();
    let flags: Vec<&str> =
        about["flags"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap()).collect();
    let copy = tempfile::tempdir().unwrap();
    let empty: Vec<&str> =
        about["empty_dirs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let input = if empty.is_empty() && case.join("input").exists() {
        case.join("input")
    } else {
        let input = fs::canonicalize(copy.path()).unwrap();
        copy_all(&case.join("input"), &input);
        empty.iter().for_each(|folder| fs::create_dir_all(input.join(folder)).unwrap());
        input
    };
    let built = build(&input, target, &options(&flags, Reorder::None));
    match about["outcome"].as_str().unwrap() {
        "ok" => {
            compare(&name, built, &fs::read_to_string(case.join("expected.yaml")).unwrap(), score);
            if let Ok(legacy) = fs::read_to_string(case.join("expected.legacy.yaml")) {
                let options = Options { reorder: Reorder::Unspecified, ..options(&flags, Reorder::None) };
                let built = build(&input, target, &options);
                compare(&format!("{name} (by kind)"), built, &legacy, score);
            }
        }
        _ => match built {
            Ok(_) => score.failures.push(format!("{name}: should fail")),
            Err(text) => {
                let recorded = fs::read_to_string(case.join("error.txt")).unwrap();
                let shown = text.replace(input.to_str().unwrap(), "{{ROOT}}").replace("&{0x0", "&{{{PTR}}");
                // Behind kustomize's words we may say which object they are about.
                let shown = shown.trim_end();
                let located = shown.ends_with(')').then(|| shown.rsplit_once("\n(in ")).flatten();
                if located.map_or(shown, |(text, _)| text).trim_end() == recorded.trim_end() {
                    score.error_exact += 1;
                } else {
                    score.error_other += 1;
                    if std::env::var("KUSTOMIZE_SHOW_ERRORS").is_ok() {
                        println!("{name}\n  ours: {shown}\n  real: {recorded}");
                    }
                }
            }
        },
    }
}

fn options(flags: &[&str], reorder: Reorder) -> Options {
    let mut options = Options { reorder, ..Options::COMMAND };
    for pair in flags.windows(2) {
        match pair {
            ["--load-restrictor", "LoadRestrictionsNone"] => {
                options.load_restrictions = LoadRestrictions::None
            }
            ["--reorder", "legacy"] => options.reorder = Reorder::Legacy,
            _ => {}
        }
    }
    if flags.is_empty() {
        options.reorder = Reorder::Unspecified;
    }
    options.add_managed_by_label = flags.contains(&"--enable-managedby-label");
    options
}

/// Output, or stderr as the command would print it.
fn build(input: &Path, target: &str, options: &Options) -> Result<String, String> {
    let path = input.join(target);
    let root = TreePath::parse(path.to_str().unwrap()).unwrap();
    let mut warnings = Vec::new();
    let built = kustomize::build_reporting(&Disk, &root, None, options, &mut warnings)
        .and_then(|manifests| manifests.to_yaml());
    built.map_err(|error| {
        let mut text = String::new();
        for warning in &warnings {
            let _ = writeln!(text, "{warning}");
        }
        // The folder on the command line is shown as it was given there.
        let error = error.to_string();
        let given = if error.starts_with("must build at directory") {
            error.replacen(&format!("'{}'", path.display()), &format!("'{target}'"), 1)
        } else {
            error
        };
        format!("{text}Error: {given}")
    })
}

fn compare(name: &str, built: Result<String, String>, expected: &str, score: &mut Score) {
    match built {
        Ok(output) if output == expected => score.bytes += 1,
        Ok(output) if documents(&output) == documents(expected) => score.objects += 1,
        Ok(_) => score.failures.push(format!("{name}: another result")),
        Err(error) => score.failures.push(format!("{name}: {error}")),
    }
}

fn documents(text: &str) -> Vec<Value> {
    let documents = yaml::parse_stream(text.as_bytes(), &yaml::Options::new(yaml::Schema::V2)).unwrap();
    documents.iter().map(|document| yaml::node_to_json(&document.root, yaml::Schema::V2).unwrap()).collect()
}

fn copy_all(from: &Path, to: &Path) {
    let Ok(entries) = fs::read_dir(from) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
