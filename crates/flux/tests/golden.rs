//! What the real `flux` printed, against what ours prints: the cases that need no cluster.
//!
//! The corpus lies outside the repository. `MUST_PASS` names the case files that have to pass whole; the others are counted and listed,
//! so that the list can grow. A case that this runner cannot play (a webhook, a registry, a cluster) is counted as skipped.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::Value;

/// Case files of which every playable case must pass.
const MUST_PASS: &[&str] = &[
    "TestCreateGitSecret",
    "TestCreateHelmRelease",
    "TestCreateHelmSecret",
    "TestCreateImageUpdate",
    "TestCreateKustomization",
    "TestCreateNotationSecret",
    "TestCreateProxySecret",
    "TestCreateReceiverSecret",
    "TestCreateSecretOCI",
    "TestCreateSourceChart",
    "TestCreateSourceGit",
    "TestCreateSourceGitExport",
    "TestCreateSourceHelm",
    "TestCreateSourceOCI",
    "TestCreateTenant",
    "TestEnvsubst",
    "TestEnvsubst_Strinct",
    "TestVersion",
    "TestVersionCmd",
    "Test_GetCmdSuccess",
    "Test_validateObjectName",
];

const DEAD: &str = r#"apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"#;

#[test]
fn golden_cases_without_a_cluster() {
    let shared = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let corpus = shared.join("cli");
    if !corpus.join("cases").is_dir() {
        println!("corpus cli: skipped: no corpus at {}", corpus.display());
        return;
    }
    let unpacked = tempfile::tempdir().unwrap();
    let template = testdata(&corpus, unpacked.path());
    let mut files: Vec<PathBuf> =
        fs::read_dir(corpus.join("cases")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    let mut broken = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let cases: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for case in &cases {
            let id = case["id"].as_str().unwrap_or_default().to_owned();
            if !playable(case) {
                skipped += 1;
                continue;
            }
            match play(&template, case) {
                problems if problems.is_empty() => passed += 1,
                problems => {
                    if MUST_PASS.contains(&name.as_str()) {
                        broken.push(id.clone());
                    }
                    failed.push(format!("{id}: {}", problems.join("; ")));
                }
            }
        }
    }
    println!("corpus cli: {passed} passed, {} failed, {skipped} skipped", failed.len());
    for line in &failed {
        println!("  failed {line}");
    }
    assert!(broken.is_empty(), "cases that must pass: {broken:#?}");
}

fn playable(case: &Value) -> bool {
    let is = |field: &str| case[field].as_bool().unwrap_or(false);
    let outside = is("needs_controllers") || is("needs_network");
    let steps = case["setup"].as_array().cloned().unwrap_or_default();
    let alone = steps
        .iter()
        .all(|step| !matches!(step["do"].as_str(), Some("webhook" | "fake_log_api" | "start_registry")));
    case["level"] == "cli"
        && alone
        && !is("skip_replay")
        && !is("needs_cluster")
        && !is("needs_registry")
        && (!outside || is("replay_with_standin"))
        && case["expect"].get("tar").is_none()
}

/// The corpus' files together with those that are kept packed.
fn testdata(corpus: &Path, to: &Path) -> PathBuf {
    let folder = to.join("testdata");
    copy(&corpus.join("testdata"), &folder);
    let archive = corpus.join("fixtures.tar.gz");
    if archive.exists() {
        let mut tar = Command::new("tar");
        tar.arg("xzf")
            .arg(archive)
            .arg("-C")
            .arg(to)
            .args(["--wildcards", "./testdata/*"])
            .stderr(Stdio::null());
        assert!(tar.status().is_ok_and(|status| status.success()), "fixtures.tar.gz cannot be unpacked");
    }
    folder
}

struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

fn play(template: &Path, case: &Value) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    let (cwd, tmp, home) = (root.join("work"), root.join("t"), root.join("home"));
    for path in [&cwd, &tmp, &home] {
        fs::create_dir_all(path).unwrap();
    }
    copy(template, &cwd.join("testdata"));
    let kubeconfig = root.join("kubeconfig");
    fs::write(&kubeconfig, DEAD).unwrap();
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in [("cwd", &cwd), ("tmp", &tmp), ("home", &home)] {
        values.insert(key.to_owned(), value.to_string_lossy().into_owned());
    }
    values.insert("version".to_owned(), "2.9.4".to_owned());
    values.insert("bin".to_owned(), env!("CARGO_BIN_EXE_flux").to_owned());
    for (number, name) in ["fluxns", "ns", "ns2", "targetns", "emptyns"].into_iter().enumerate() {
        values.insert(name.to_owned(), format!("{name}-{number}"));
    }
    write_files(case, &values);
    let mut environment: BTreeMap<String, String> = BTreeMap::from([
        ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
        ("HOME".to_owned(), values["home"].clone()),
        ("TZ".to_owned(), "UTC".to_owned()),
        ("KUBECONFIG".to_owned(), kubeconfig.to_string_lossy().into_owned()),
        ("HTTPS_PROXY".to_owned(), "http://127.0.0.1:1".to_owned()),
        ("HTTP_PROXY".to_owned(), "http://127.0.0.1:1".to_owned()),
        ("NO_PROXY".to_owned(), "127.0.0.1,localhost".to_owned()),
    ]);
    for (key, value) in case["env"].as_object().into_iter().flatten() {
        environment.insert(key.clone(), fill(value.as_str().unwrap_or_default(), &values));
    }
    let args: Vec<String> = case["args"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|word| fill(word.as_str().unwrap_or_default(), &values))
        .collect();
    let place = case["cwd"].as_str().map_or_else(|| cwd.clone(), |path| PathBuf::from(fill(path, &values)));
    let input = match (case["stdin_file"].as_str(), case["stdin"].as_str()) {
        (Some(file), _) => fs::read(cwd.join(file)).unwrap(),
        (None, text) => text.unwrap_or_default().as_bytes().to_vec(),
    };
    let run = |merged: bool| {
        fs::write(root.join("stdin"), &input).unwrap();
        let out = File::create(root.join("stdout")).unwrap();
        let err = if merged { out.try_clone().unwrap() } else { File::create(root.join("stderr")).unwrap() };
        let status = Command::new(env!("CARGO_BIN_EXE_flux"))
            .args(&args)
            .current_dir(&place)
            .env_clear()
            .envs(&environment)
            .stdin(File::open(root.join("stdin")).unwrap())
            .stdout(out)
            .stderr(err)
            .status()
            .unwrap();
        let read =
            |name: &str| String::from_utf8_lossy(&fs::read(root.join(name)).unwrap_or_default()).into_owned();
        Outcome {
            code: status.code().unwrap_or(-1),
            stdout: read("stdout"),
            stderr: if merged { String::new() } else { read("stderr") },
        }
    };
    let outcome = run(false);
    let expect = &case["expect"];
    let both = !outcome.stdout.is_empty() && !outcome.stderr.is_empty();
    let merged = if expect["type"] == "golden" && both {
        run(true).stdout
    } else {
        format!("{}{}", outcome.stdout, outcome.stderr)
    };
    judge(case, &outcome, &merged, &values, &place)
}

fn judge(
    case: &Value,
    got: &Outcome,
    merged: &str,
    values: &BTreeMap<String, String>,
    place: &Path,
) -> Vec<String> {
    let expect = &case["expect"];
    let kind = expect["type"].as_str().unwrap_or_default();
    let mut problems = Vec::new();
    match kind {
        "golden" => {
            let golden = expect["golden_real"].as_str().or(expect["golden"].as_str()).unwrap_or_default();
            let want = dotted(&fill(golden, values), case, values);
            if merged != want {
                problems.push(format!("output differs from golden{}", first_difference(merged, &want)));
            }
        }
        "observed" => {
            let unstable: Vec<&str> =
                case["unstable"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if !unstable.contains(&"rc") && expect["rc"].as_i64() != Some(got.code.into()) {
                problems.push(format!("rc {} instead of {}", got.code, expect["rc"]));
            }
            for (name, text) in [("stdout", &got.stdout), ("stderr", &got.stderr)] {
                let want = fill(expect[name].as_str().unwrap_or_default(), values);
                if !unstable.contains(&name) && *text != want {
                    problems.push(format!("{name} differs{}", first_difference(text, &want)));
                }
            }
        }
        "error" | "error_contains" => {
            let text = fill(expect["error"].as_str().unwrap_or_default(), values);
            let said = got.stderr.trim_end_matches('\n');
            let fits = if kind == "error" {
                said.ends_with(&format!("✗ {text}")) || said.ends_with(&format!("⚠️ {text}"))
            } else {
                got.stderr.contains(&text)
            };
            if !fits {
                problems.push(format!("error text differs: {said:?} instead of {text:?}"));
            }
            if got.code == 0 {
                problems.push("rc 0".to_owned());
            }
        }
        "success" if got.code != 0 => problems.push(format!("rc {}: {}", got.code, got.stderr.trim_end())),
        _ => {}
    }
    if kind != "observed" && expect["rc"].as_i64().is_some_and(|code| code != i64::from(got.code)) {
        problems.push(format!("rc {} instead of {}", got.code, expect["rc"]));
    }
    for (field, text) in [("stdout_contains", &got.stdout), ("stderr_contains", &got.stderr)] {
        for wanted in expect[field].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !text.contains(&fill(wanted, values)) {
                problems.push(format!("{field}: {wanted}"));
            }
        }
    }
    for wanted in expect["stdout_lacks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if got.stdout.contains(&fill(wanted, values)) {
            problems.push(format!("stdout has {wanted}"));
        }
    }
    for (path, want) in expect["files"].as_object().into_iter().flatten() {
        let text = fs::read_to_string(place.join(fill(path, values))).ok();
        if text.as_deref() != want.as_str() {
            problems.push(format!("file differs {path}"));
        }
    }
    problems
}

fn first_difference(got: &str, want: &str) -> String {
    let at = got.lines().zip(want.lines()).position(|(got, want)| got != want);
    match at {
        Some(at) => format!(
            " in line {}: {:?} instead of {:?}",
            at + 1,
            got.lines().nth(at).unwrap_or_default(),
            want.lines().nth(at).unwrap_or_default()
        ),
        None => format!(": {} lines instead of {}", got.lines().count(), want.lines().count()),
    }
}

/// `{{name}}`
fn fill(text: &str, values: &BTreeMap<String, String>) -> String {
    let placeholder = Regex::new(r"\{\{(\w+)\}\}").unwrap();
    placeholder
        .replace_all(text, |found: &regex::Captures<'_>| {
            values.get(&found[1]).cloned().unwrap_or_else(|| found[0].to_owned())
        })
        .into_owned()
}

/// `{{ .name }}`, the template syntax of upstream's golden files.
fn dotted(text: &str, case: &Value, values: &BTreeMap<String, String>) -> String {
    let placeholder = Regex::new(r"\{\{\s*\.(\w+)\s*\}\}").unwrap();
    placeholder
        .replace_all(text, |found: &regex::Captures<'_>| {
            case["template_values"][&found[1]]
                .as_str()
                .map_or_else(|| found[0].to_owned(), |value| fill(value, values))
        })
        .into_owned()
}

fn write_files(case: &Value, values: &BTreeMap<String, String>) {
    for (path, content) in case["files"].as_object().into_iter().flatten() {
        let path = fill(path, values);
        if path.ends_with('/') || content.is_null() {
            fs::create_dir_all(&path).unwrap();
            continue;
        }
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        match (content["symlink"].as_str(), content["text"].as_str(), content.as_str()) {
            (Some(target), _, _) => std::os::unix::fs::symlink(fill(target, values), &path).unwrap(),
            (None, Some(text), _) => {
                use std::os::unix::fs::PermissionsExt as _;
                fs::write(&path, fill(text, values)).unwrap();
                let mode = u32::from_str_radix(content["mode"].as_str().unwrap_or("644"), 8).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            (None, None, text) => fs::write(&path, fill(text.unwrap_or_default(), values)).unwrap(),
        }
    }
}

/// Copies a folder; the corpus is read-only, the copy must not be.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source).unwrap(), &target).unwrap();
        } else if kind.is_dir() {
            copy(&source, &target);
        } else {
            fs::write(&target, fs::read(&source).unwrap()).unwrap();
        }
    }
}
