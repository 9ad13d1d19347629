//! Whether a command did what the case expects.

use std::fs;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use crate::play::Outcome;
use crate::values::Values;

/// Upstream tells of a difference by an error value, which its own tests do not print.
const CHANGED: &str = "⚠️ identified at least one change, exiting with non-zero exit code\n";

pub fn judge(case: &Value, got: &Outcome, values: &Values, place: &Path) -> Vec<String> {
    let expect = &case["expect"];
    let mut problems = match expect["type"].as_str().unwrap_or_default() {
        "golden" => golden(case, got, values),
        "observed" => observed(case, got, values),
        kind @ ("error" | "error_contains") => error(expect, kind == "error", got, values),
        "success" if got.code != 0 => vec![format!("rc {}: {}", got.code, got.stderr.trim_end())],
        _ => Vec::new(),
    };
    if expect["type"] != "observed" && expect["rc"].as_i64().is_some_and(|code| code != i64::from(got.code)) {
        problems.push(format!("rc {} instead of {}", got.code, expect["rc"]));
    }
    let listed = |field: &str| expect[field].as_array().cloned().unwrap_or_default();
    for (field, text) in [("stdout_contains", &got.stdout), ("stderr_contains", &got.stderr)] {
        for wanted in listed(field) {
            if !text.contains(&values.fill(wanted.as_str().unwrap_or_default())) {
                problems.push(format!("{field}: {wanted}, got {text:?}"));
            }
        }
    }
    for wanted in listed("stdout_lacks") {
        if got.stdout.contains(&values.fill(wanted.as_str().unwrap_or_default())) {
            problems.push(format!("stdout has {wanted}"));
        }
    }
    if got.other.as_ref().is_some_and(|other| *other != got.stdout) {
        problems.push("stdout differs from the unfiltered command".to_owned());
    }
    if expect["not_empty"] == true && got.stdout.trim().is_empty() {
        problems.push("stdout is empty".to_owned());
    }
    if expect["rows"].is_array() {
        problems.extend(rows(&expect["rows"], got, values));
    }
    for (path, want) in expect["files"].as_object().into_iter().flatten() {
        let text = fs::read_to_string(place.join(values.fill(path))).ok();
        // The recorder read files with line ends of one kind.
        let text = text.map(|text| text.replace("\r\n", "\n"));
        if text.as_deref() != want.as_str() {
            problems.push(format!("file differs {path}: {text:?}"));
        }
    }
    if expect["tar"].is_array() {
        problems.extend(tar(case, values, place));
    }
    if expect["requests"].is_array() {
        problems.extend(requests(&expect["requests"], got, values));
    }
    problems
}

fn golden(case: &Value, got: &Outcome, values: &Values) -> Vec<String> {
    let expect = &case["expect"];
    let golden = expect["golden_real"].as_str().or(expect["golden"].as_str()).unwrap_or_default();
    let want = values.template(golden, case);
    let merged = got.merged.strip_suffix(CHANGED).unwrap_or(&got.merged);
    differs("output", merged, &want).into_iter().collect()
}

fn observed(case: &Value, got: &Outcome, values: &Values) -> Vec<String> {
    let expect = &case["expect"];
    let unstable: Vec<&str> =
        case["unstable"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut problems = Vec::new();
    if !unstable.contains(&"rc") && expect["rc"].as_i64() != Some(got.code.into()) {
        problems.push(format!("rc {} instead of {}", got.code, expect["rc"]));
    }
    for (name, text) in [("stdout", &got.stdout), ("stderr", &got.stderr)] {
        if unstable.contains(&name) {
            continue;
        }
        let want = values.fill(expect[name].as_str().unwrap_or_default());
        if name == "stdout" && is_installation(case) {
            problems.extend(installation(text, &want));
            continue;
        }
        // A digest of gzipped bytes is a matter of who wrote them.
        let (text, want) =
            if case["needs_registry"] == true { (masked(text), masked(&want)) } else { (text.clone(), want) };
        problems.extend(differs(name, &text, &want));
    }
    problems
}

fn is_installation(case: &Value) -> bool {
    case["args"][0] == "install"
        && case["args"].as_array().is_some_and(|args| args.contains(&Value::from("--export")))
}

/// Objects one by one: of definitions only what is not their schema, of images only the name.
fn installation(got: &str, want: &str) -> Option<String> {
    let header = |text: &str| {
        text.lines().take_while(|line| !line.starts_with("apiVersion")).map(str::to_owned).collect::<Vec<_>>()
    };
    if header(got) != header(want) {
        return Some(format!("header {:?} instead of {:?}", header(got), header(want)));
    }
    let (got, want) = (comparable(got), comparable(want));
    for (at, wanted) in want.iter().enumerate() {
        match got.get(at) {
            Some(got) if got == wanted => {}
            Some(got) => {
                return differs(&format!("object {at}"), &format!("{got:#}"), &format!("{wanted:#}"));
            }
            None => return Some(format!("{} objects instead of {}", got.len(), want.len())),
        }
    }
    (got.len() > want.len()).then(|| format!("{} objects instead of {}", got.len(), want.len()))
}

fn comparable(text: &str) -> Vec<Value> {
    let documents = yaml::parse_stream(text.as_bytes(), &yaml::Options::new(yaml::Schema::V2)).unwrap();
    let objects =
        documents.iter().map(|document| yaml::node_to_json(&document.root, yaml::Schema::V2).unwrap());
    objects
        .map(|mut object| {
            if object["kind"] == "CustomResourceDefinition" {
                object.as_object_mut().unwrap().remove("spec");
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove("controller-gen.kubebuilder.io/version");
                }
            }
            for container in object
                .pointer_mut("/spec/template/spec/containers")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                let image = container["image"].as_str().unwrap_or_default().to_owned();
                container["image"] = image.rsplit_once(':').map_or(image.as_str(), |(name, _)| name).into();
            }
            object
        })
        .collect()
}

fn masked(text: &str) -> String {
    let text = Regex::new("sha256:[0-9a-f]{64}").unwrap().replace_all(text, "sha256:…").into_owned();
    // So are the words after the code of a registry's error.
    Regex::new("MANIFEST_UNKNOWN: [A-Za-z ]+").unwrap().replace_all(&text, "MANIFEST_UNKNOWN: …").into_owned()
}

fn error(expect: &Value, exact: bool, got: &Outcome, values: &Values) -> Vec<String> {
    let text = values.fill(expect["error"].as_str().unwrap_or_default());
    let said = got.stderr.trim_end_matches('\n');
    let fits = if exact {
        said.ends_with(&format!("✗ {text}")) || said.ends_with(&format!("⚠️ {text}"))
    } else {
        got.stderr.contains(&text)
    };
    let mut problems = Vec::new();
    if !fits {
        problems.push(format!("error text differs: {said:?} instead of {text:?}"));
    }
    if got.code == 0 {
        problems.push("rc 0".to_owned());
    }
    problems
}

fn rows(want: &Value, got: &Outcome, values: &Values) -> Vec<String> {
    let tabs = Regex::new(r"\s*\t\s*").unwrap();
    let lines = got.stdout.lines().skip(1).filter(|line| !line.trim().is_empty());
    let mut seen: Vec<String> = lines.map(|line| tabs.replace_all(line, "\t").trim().to_owned()).collect();
    let cells = |row: &Value| -> Vec<String> {
        row.as_array()
            .into_iter()
            .flatten()
            .map(|cell| values.fill(cell.as_str().unwrap_or_default()))
            .collect()
    };
    let mut want: Vec<String> = want.as_array().unwrap().iter().map(|row| cells(row).join("\t")).collect();
    seen.sort();
    want.sort();
    if seen == want { Vec::new() } else { vec![format!("rows {seen:?} instead of {want:?}")] }
}

fn tar(case: &Value, values: &Values, place: &Path) -> Vec<String> {
    let file = place.join(values.fill(case["after_tar"].as_str().unwrap_or_default()));
    let mut seen = Vec::new();
    if let Ok(file) = fs::File::open(file) {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let letter = match entry.header().entry_type() {
                tar::EntryType::Directory => "d",
                tar::EntryType::Symlink => "l",
                _ => "-",
            };
            let mut name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if let Some(link) = entry.link_name_bytes() {
                name = format!("{name} -> {}", String::from_utf8_lossy(&link));
            }
            seen.push(format!("{letter} {name}"));
        }
    }
    seen.sort();
    let want: Vec<String> = case["expect"]["tar"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|line| line.as_str().unwrap_or_default().to_owned())
        .collect();
    if seen == want { Vec::new() } else { vec![format!("archive {seen:?} instead of {want:?}")] }
}

fn requests(want: &Value, got: &Outcome, values: &Values) -> Vec<String> {
    let seen = got.webhook.as_ref().map(|webhook| webhook.seen()).unwrap_or_default();
    let want = want.as_array().unwrap();
    let mut problems = Vec::new();
    if seen.len() != want.len() {
        problems.push(format!("{} requests instead of {}", seen.len(), want.len()));
    }
    for (seen, want) in seen.iter().zip(want) {
        for (field, _) in want.as_object().into_iter().flatten() {
            let value = |text: &Value| values.fill(text.as_str().unwrap_or_default());
            let want = want[field].clone();
            match field.as_str() {
                "headers" => {
                    for (name, pattern) in want.as_object().into_iter().flatten() {
                        let header = seen.headers.get(name).cloned().unwrap_or_default();
                        let whole = Regex::new(&format!("^(?:{})$", value(pattern))).unwrap();
                        if !whole.is_match(&header) {
                            problems.push(format!("header {name} is {header:?}"));
                        }
                    }
                }
                "path" if seen.path != value(&want) => problems.push(format!("path {}", seen.path)),
                "body" if seen.body != value(&want) => problems.push(format!("body {}", seen.body)),
                _ => {}
            }
        }
    }
    problems
}

/// The first line that is not the same.
pub fn differs(what: &str, got: &str, want: &str) -> Option<String> {
    if got == want {
        return None;
    }
    if std::env::var_os("FLUX_CASES").is_some() {
        println!("--- {what} got\n{got}\n--- {what} want\n{want}\n---");
    }
    let at = got.lines().zip(want.lines()).position(|(got, want)| got != want);
    Some(match at {
        Some(at) => format!(
            "{what} differs in line {}: {:?} instead of {:?}",
            at + 1,
            got.lines().nth(at).unwrap_or_default(),
            want.lines().nth(at).unwrap_or_default()
        ),
        None => format!(
            "{what} differs: {} lines instead of {}: {:?}",
            got.lines().count(),
            want.lines().count(),
            got.lines().chain(want.lines()).last().unwrap_or_default()
        ),
    })
}
