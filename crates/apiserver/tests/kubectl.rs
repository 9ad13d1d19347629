//! The real kubectl, run by a script against this server, prints what it printed against the real one.
//!
//! `tests/kubectl/script.txt` holds a command a line (`$ kubectl …`) and below it the recorded output. The binary is the
//! reference tool of the testbed's cache; without it the test says so and passes, unless `CI` is set. To record:
//! `KUBECTL_RECORD=<kubeconfig of a fresh real server> cargo test -p apiserver --test kubectl`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use apiserver::Server;

fn kubectl() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("flux-testbed/kubernetes-1.36.3/kubectl")).filter(|path| path.exists())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl")
}

fn run(kubectl: &Path, kubeconfig: &Path, home: &Path, command: &str) -> String {
    let arguments = words(command.trim_start_matches("$ kubectl "));
    let output = Command::new(kubectl)
        .args(&arguments)
        .current_dir(folder())
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .env("KUBECONFIG", kubeconfig)
        // `kubectl edit` hands the object to this.
        .env("KUBE_EDITOR", "sed -i -e s/blue/violet/")
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    mask(&text)
}

/// Splits at spaces, single quotes respected.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in text.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn mask(text: &str) -> String {
    let rules = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
        (r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?( \+0000|Z)", "<time>"),
        (r#"resourceVersion: "\d+""#, "resourceVersion: <rv>"),
        (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
        (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
        (r"/tmp/(LIVE|MERGED)-\d+", "/tmp/$1"),
        (r"\b\d+(s|m|m\d+s)\b", "<age>"),
        (r" +\n", "\n"),
        (r" {2,}", "  "),
    ];
    rules.iter().fold(text.to_owned(), |text, (pattern, shown)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *shown).into_owned()
    })
}

/// Commands and the output recorded below each.
fn parse(text: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.starts_with("$ "), steps.last_mut()) {
            (true, _) => steps.push((line.to_owned(), String::new())),
            (false, Some((_, output))) => *output += &format!("{line}\n"),
            (false, None) => {}
        }
    }
    steps
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_prints_what_it_prints_on_a_real_cluster() {
    let Some(kubectl) = kubectl() else {
        assert!(std::env::var_os("CI").is_none(), "kubectl 1.36.3 is not in the testbed's cache");
        println!("skipped: no kubectl 1.36.3 in the testbed's cache");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let script = folder().join("script.txt");
    let steps = parse(&std::fs::read_to_string(&script).unwrap());
    if let Some(kubeconfig) = std::env::var_os("KUBECTL_RECORD") {
        let recorded = steps.iter().map(|(command, _)| {
            let output = run(&kubectl, Path::new(&kubeconfig), home.path(), command);
            format!("{command}\n{}\n", output.trim_end())
        });
        std::fs::write(&script, recorded.collect::<Vec<_>>().join("")).unwrap();
        return;
    }
    let server = Server::builder().publish_ca(false).start().await.unwrap();
    let listening = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    listening.write_kubeconfig(&kubeconfig).unwrap();
    let mut failures = Vec::new();
    let count = steps.len();
    for (command, expected) in steps {
        let (kubectl, kubeconfig, home, asked) =
            (kubectl.clone(), kubeconfig.clone(), home.path().to_owned(), command.clone());
        let got =
            tokio::task::spawn_blocking(move || run(&kubectl, &kubeconfig, &home, &asked)).await.unwrap();
        if got.trim_end() != expected.trim_end() {
            failures.push(format!("{command}\n--- real\n{expected}--- ours\n{got}"));
        }
    }
    println!("kubectl: {} of {count} commands printed the same", count - failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
