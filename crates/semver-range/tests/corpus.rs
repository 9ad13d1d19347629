//! Runs the shared semver corpus, recorded from Masterminds/semver v3.5.0, when it is there.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::path::PathBuf;

use semver_range::{Constraint, Version};
use serde_json::Value;

fn load(file: &str) -> Option<Value> {
    let root = std::env::var("FLUX_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let path = PathBuf::from(root).join("corpus/semver").join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: no corpus at {}", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

fn report(what: &str, total: usize, failures: &[String]) {
    println!("{what}: {} passed, {} failed", total - failures.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn constraints_of_the_corpus() {
    let Some(corpus) = load("cases.json") else { return };
    let cases = corpus["constraints"].as_array().unwrap();
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| constraint_failure(case).map(|f| format!("{}: {f}", text(case, "name"))))
        .collect();
    report("constraints", cases.len(), &failures);
}

fn constraint_failure(case: &Value) -> Option<String> {
    let constraint = Constraint::parse(text(case, "constraint"));
    let version = Version::parse(text(case, "version"));
    let constraint_error = constraint.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let version_error = version.as_ref().err().map(ToString::to_string).unwrap_or_default();
    if constraint_error != text(case, "constraint_error") || version_error != text(case, "version_error") {
        return Some(format!("constraint error {constraint_error:?}, version error {version_error:?}"));
    }
    let (Ok(constraint), Ok(version)) = (constraint, version) else { return None };
    let reasons = constraint.validate(&version).err().unwrap_or_default();
    let wanted: Vec<&str> =
        case["why_not"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let matches = constraint.check(&version);
    (Some(matches) != case["match"].as_bool()
        || reasons != wanted
        || constraint.to_string() != text(case, "constraint_string")
        || version.to_string() != text(case, "version_string"))
    .then(|| format!("match {matches}, reasons {reasons:?}, constraint {constraint}, version {version}"))
}

#[test]
fn verdicts_of_the_corpus() {
    let Some(corpus) = load("verdicts.json") else { return };
    let cases = corpus.as_array().unwrap();
    let mut failures = Vec::new();
    for case in cases {
        let verdict =
            match (Constraint::parse(text(case, "constraint")), Version::parse(text(case, "version"))) {
                (Err(_), _) => "CERR",
                (Ok(_), Err(_)) => "VERR",
                (Ok(c), Ok(v)) => {
                    assert_eq!(c.check(&v), c.validate(&v).is_ok(), "check and validate agree on {case}");
                    if c.check(&v) { "T" } else { "F" }
                }
            };
        if verdict != text(case, "verdict") {
            failures.push(format!("{case}: {verdict}"));
        }
    }
    report("verdicts", cases.len(), &failures);
}

#[test]
fn versions_of_the_corpus() {
    let Some(corpus) = load("cases.json") else { return };
    let cases = corpus["versions"].as_array().unwrap();
    let failures: Vec<String> = cases.iter().filter_map(version_failure).collect();
    report("versions", cases.len(), &failures);
}

fn version_failure(case: &Value) -> Option<String> {
    let input = text(case, "input");
    let shown = |result: Result<Version, _>, ok: &str, err: &str| match result {
        Ok(v) => v.to_string() == text(case, ok),
        Err::<Version, semver_range::VersionError>(e) => e.to_string() == text(case, err),
    };
    let loose = Version::parse(input);
    let rest = loose.as_ref().map_or(true, |v| {
        let next = |v: Option<Version>| v.unwrap().to_string();
        v.prerelease() == text(case, "prerelease")
            && v.metadata() == text(case, "metadata")
            && next(v.next_patch()) == text(case, "inc_patch")
            && next(v.next_minor()) == text(case, "inc_minor")
            && next(v.next_major()) == text(case, "inc_major")
    });
    let good = shown(Version::strict(input), "strict", "strict_error")
        && shown(loose, "loose", "loose_error")
        && rest;
    (!good).then(|| format!("{input}: {:?} {:?}", Version::strict(input), Version::parse(input)))
}

#[test]
fn sorted_lists_of_the_corpus() {
    let Some(corpus) = load("cases.json") else { return };
    let cases = corpus["sort"].as_array().unwrap();
    let mut failures = Vec::new();
    for case in cases {
        let strings = |key: &str| -> Vec<String> {
            case[key].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
        };
        let mut versions: Vec<Version> =
            strings("input").iter().filter_map(|v| Version::parse(v).ok()).collect();
        versions.sort();
        if versions.iter().map(Version::original).collect::<Vec<_>>() != strings("ascending") {
            failures.push(format!("{versions:?}"));
        }
    }
    report("sort", cases.len(), &failures);
}
