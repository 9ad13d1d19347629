//! Runs the shared Helm corpus, recorded from helm 4.3.1 and 3.22.0, when it is there.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// The example is the program the corpus compares with.
#[path = "../examples/helm.rs"]
#[allow(dead_code)]
mod cli;

fn corpus() -> Option<PathBuf> {
    let root = std::env::var("FLUX_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let path = PathBuf::from(root).join("corpus/helm");
    if !path.is_dir() {
        println!("skipped: no corpus at {}", path.display());
        return None;
    }
    Some(path)
}

struct Case {
    name: String,
    folder: PathBuf,
    about: Json,
}

/// Folders that hold a case.json, below each chart of a part.
fn cases(corpus: &Path, part: &str) -> Vec<Case> {
    let folders = |path: &Path| {
        let mut found: Vec<PathBuf> =
            std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
        found.sort();
        found
    };
    let mut cases = Vec::new();
    for chart in folders(&corpus.join(part)) {
        for folder in folders(&chart) {
            let Ok(text) = std::fs::read_to_string(folder.join("case.json")) else { continue };
            let name = folder.strip_prefix(corpus).unwrap().display().to_string();
            cases.push(Case { name, about: serde_json::from_str(&text).unwrap(), folder });
        }
    }
    cases
}

impl Case {
    /// The command line, with files named by their whole paths.
    fn words(&self) -> Vec<String> {
        let text = |key: &str| self.about[key].as_str().unwrap().to_owned();
        let texts = |key: &str| -> Vec<String> {
            self.about[key].as_array().into_iter().flatten().map(|v| v.as_str().unwrap().to_owned()).collect()
        };
        if self.about["command"].is_array() {
            let rename = |word: String| match word.as_str() {
                "chart" => self.folder.join("../chart").display().to_string(),
                word if word.starts_with("chart/") => self.folder.join("..").join(word).display().to_string(),
                word if word.ends_with(".yaml") && self.folder.join(word).is_file() => {
                    self.folder.join(word).display().to_string()
                }
                _ => word,
            };
            return texts("command").into_iter().skip(2).map(rename).collect();
        }
        let mut words = vec![
            text("release"),
            self.folder.join("../chart.tgz").display().to_string(),
            "-n".to_owned(),
            text("namespace"),
        ];
        for file in texts("values_files") {
            words.extend(["-f".to_owned(), self.folder.join(file).display().to_string()]);
        }
        words.extend(texts("flags"));
        words
    }

    fn file(&self, name: &str) -> Option<String> {
        std::fs::read(self.folder.join(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `error.txt` without the log lines before it, paths made short again.
    fn wanted_error(&self, file: &str) -> Option<String> {
        let text = self.file(file)?;
        text.find("Error: ").map(|at| text[at + "Error: ".len()..].trim().to_owned())
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Verdict {
    Bytes,
    Documents,
    Error,
    Failed,
}

fn judge(case: &Case) -> (Verdict, String) {
    let words = case.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = cli::template(&words);
    if case.about["outcome"] == "error" {
        let wanted = case.wanted_error("error.txt").unwrap_or_default();
        return match result {
            Ok(_) => (Verdict::Failed, "no error".to_owned()),
            Err(error) => {
                let error = error.replace(&format!("{}/", case.folder.display()), "");
                let same = error.trim() == wanted
                    || (case.about["error_lines_unordered"] == true && same_lines(&error, &wanted));
                (if same { Verdict::Error } else { Verdict::Failed }, error)
            }
        };
    }
    let output = match result {
        Ok(output) => output,
        Err(error) => return (Verdict::Failed, error),
    };
    let wanted = case.file("expected.yaml").unwrap_or_default();
    if masked_equal(&wanted, &output) || (wanted.trim().is_empty() && output.trim().is_empty()) {
        return (Verdict::Bytes, String::new());
    }
    let same = !wanted.contains("{{RANDOM}}") && documents(&wanted) == documents(&output);
    (if same { Verdict::Documents } else { Verdict::Failed }, "output differs".to_owned())
}

fn same_lines(a: &str, b: &str) -> bool {
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.trim().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    lines(a) == lines(b)
}

/// Equal line by line; where the recording masks chance, what stands before the mask must be equal.
fn masked_equal(wanted: &str, got: &str) -> bool {
    let (wanted, got): (Vec<&str>, Vec<&str>) = (wanted.split('\n').collect(), got.split('\n').collect());
    let same = |(wanted, got): (&&str, &&str)| {
        wanted == got
            || wanted.contains("{{DATE}}")
            || wanted.split_once("{{RANDOM}}").is_some_and(|(before, _)| got.starts_with(before))
    };
    wanted.len() == got.len() && wanted.iter().zip(&got).all(same)
}

fn documents(text: &str) -> Vec<Json> {
    let parse = |document: &&str| yaml::to_json(document.as_bytes()).unwrap_or(Json::Null);
    helm::split_manifests(text, helm::Dialect::Helm4).iter().map(parse).filter(|d| !d.is_null()).collect()
}

fn run(part: &str) {
    let Some(corpus) = corpus() else { return };
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for case in cases(&corpus, part) {
        let (verdict, why) = judge(&case);
        *counts.entry(verdict).or_default() += 1;
        if verdict == Verdict::Failed {
            failures.push(format!("{}: {}", case.name, why.chars().take(300).collect::<String>()));
        }
    }
    println!("{part}: {counts:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let (bytes, documents) = (
        counts.get(&Verdict::Bytes).copied().unwrap_or(0),
        counts.get(&Verdict::Documents).copied().unwrap_or(0),
    );
    assert!(bytes * 100 >= (bytes + documents) * 97, "only {bytes} of {} byte for byte", bytes + documents);
}

#[test]
fn charts_of_the_corpus() {
    run("charts");
}

#[test]
fn small_charts_of_the_corpus() {
    run("micro");
}

#[test]
fn notes_of_the_corpus() {
    let Some(corpus) = corpus() else { return };
    let (mut passed, mut failures) = (0, Vec::new());
    for case in cases(&corpus, "charts") {
        let (Some(wanted), false) = (case.file("notes.txt"), case.about["random"] == true) else { continue };
        let mut words = case.words();
        words.push("--only-notes".to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match cli::template(&words) {
            Ok(notes) if masked_equal(wanted.trim_end(), notes.trim_end()) => passed += 1,
            Ok(notes) => failures.push(format!("{}: {notes}", case.name)),
            Err(error) => failures.push(format!("{}: {error}", case.name)),
        }
    }
    println!("notes: {passed} passed, {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn one_liners_of_the_corpus() {
    let Some(corpus) = corpus() else { return };
    let file = corpus.join("functions.json");
    let suite: Json = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let answers = cli::functions(&file.display().to_string()).unwrap();
    let answers: Vec<Json> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wanted = suite["cases"].as_array().unwrap();
    assert_eq!(answers.len(), wanted.len());
    let differs =
        |(wanted, got): &(&Json, &Json)| wanted["output"] != got["output"] || wanted["error"] != got["error"];
    let failures: Vec<String> = wanted
        .iter()
        .zip(&answers)
        .filter(differs)
        .map(|(w, g)| format!("{}: wanted {} got {g}", w["name"], w))
        .collect();
    println!("functions: {} passed, {} failed", wanted.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Helm 3's rules: byte for byte where its output was recorded and holds no chance.
#[test]
fn helm_3_renders_the_corpus_as_helm_3() {
    let Some(corpus) = corpus() else { return };
    let (mut passed, mut failures) = (0, Vec::new());
    for case in cases(&corpus, "charts") {
        let Some(wanted) = case.about["sha256"]["helm3.22.0"].as_str() else { continue };
        if case.about["random"] == true || case.about["outcome"] != "ok" {
            continue;
        }
        let mut words = case.words();
        words.push("--helm3".to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match cli::template(&words) {
            Ok(output) if sha256(&output) == wanted => passed += 1,
            Ok(_) => failures.push(format!("{}: output differs", case.name)),
            Err(error) => failures.push(format!("{}: {error}", case.name)),
        }
    }
    println!("helm 3: {passed} passed, {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
