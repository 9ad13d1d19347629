//! `flux up` as a person starts it: the built program, a terminal's worth of output, commands beside it, mistakes, an end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use testbed::git_server::GitServer;
use testbed::reference::{self, Tool};

/// Debug builds on a busy machine; nothing here waits longer than it has to.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running `flux up`, and everything it has said.
struct Up {
    child: Child,
    said: Arc<(Mutex<String>, Condvar)>,
    kubeconfig: PathBuf,
    _state: tempfile::TempDir,
}

impl Up {
    fn start(arguments: &[&str]) -> Up {
        let state = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_flux"))
            .arg("up")
            .args(arguments)
            .args(["--state", state.path().to_str().unwrap()])
            .env("KUBECONFIG", "/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new((Mutex::new(String::new()), Condvar::new()));
        listen(child.stdout.take().unwrap(), said.clone());
        listen(child.stderr.take().unwrap(), said.clone());
        Up { child, said, kubeconfig: state.path().join("kubeconfig"), _state: state }
    }

    /// What was said so far.
    fn text(&self) -> String {
        self.said.0.lock().unwrap().clone()
    }

    /// Waits until it has said all of this, after the first `from` bytes.
    fn says(&self, from: usize, wanted: &[&str]) -> Duration {
        let started = Instant::now();
        let said = self.said.0.lock().unwrap();
        let missing = |text: &String| wanted.iter().any(|wanted| !text[from..].contains(wanted));
        let (said, waited) = self.said.1.wait_timeout_while(said, PATIENCE, |text| missing(text)).unwrap();
        assert!(!waited.timed_out(), "it never said all of {wanted:?}:\n{}", &said[from..]);
        started.elapsed()
    }

    /// Does something to the files; it is explained or applied as `wanted` says.
    fn after(&self, change: impl FnOnce(), wanted: &[&str]) -> Duration {
        let from = self.text().len();
        change();
        self.says(from, wanted)
    }

    fn types(&self, program: &Path, line: &str, wanted: &[&str]) {
        let output = Command::new(program)
            .args(line.split(' ').skip(1))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("TZ", "UTC")
            .output()
            .unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let who = program.display();
        assert!(output.status.success(), "{who}: {line}: {said}");
        for text in wanted {
            assert!(said.contains(text), "{who}: {line}: no {text:?} in {said}");
        }
    }

    /// Ctrl-C: it ends by itself, in order.
    fn interrupt(mut self) -> String {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        let status = self.child.wait().unwrap();
        self.says(0, &["stopped; everything is kept in "]);
        let text = self.text();
        assert!(status.success() && !text.contains("panicked"), "{status}: {text}");
        text
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stream: impl Read + Send + 'static, said: Arc<(Mutex<String>, Condvar)>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut text = said.0.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
            said.1.notify_all();
        }
    });
}

/// A copy of the example fleet to break.
fn example() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fleet/.");
    assert!(Command::new("cp").args(["-r", from]).arg(copy.path()).status().unwrap().success());
    copy
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn edit(folder: &Path, file: &str, from: &str, to: &str) {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}:\n{text}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn commands_about_an_installation_work_beside_it() {
    let up = Up::start(&[]);
    up.says(
        0,
        &["everything is ready after ", "Deployment/apps/api ", "Deployment/payments-production/ledger "],
    );
    let text = up.text();
    assert!(text.contains("export KUBECONFIG="), "{text}");
    let real = reference::binary(Tool::Flux, "flux").unwrap();
    for program in [Path::new(env!("CARGO_BIN_EXE_flux")), &real] {
        up.types(
            program,
            "flux check",
            &["source-controller: deployment ready", "kustomizations.kustomize", "all checks passed"],
        );
        up.types(program, "flux version", &["distribution: flux-v2.9.4", "source-controller: v1.9.4"]);
        up.types(
            program,
            "flux get all -A",
            &[
                "gitrepository/flux-system",
                "kustomization/apps",
                "helmrelease/api",
                "helmchart/issuer-issuer",
            ],
        );
        up.types(program, "flux get kustomization apps", &["Applied revision: main@sha1:"]);
        up.types(
            program,
            "flux tree kustomization flux-system",
            &["HelmRelease/apps/api", "Deployment/apps/web"],
        );
        up.types(program, "flux events --for Kustomization/apps", &["ReconciliationSucceeded"]);
        up.types(program, "flux stats", &["HelmRelease", "Kustomization"]);
        up.types(program, "flux logs -A", &["GitRepository/flux-system.flux-system", "HelmRelease/api.apps"]);
        up.types(program, "flux logs --kind=Kustomization --name=apps", &["Kustomization/apps.flux-system"]);
        up.types(program, "flux logs --all-namespaces --level=error", &[]);
        up.types(
            program,
            "flux reconcile kustomization apps --with-source",
            &["✔ fetched revision main@sha1:", "✔ applied revision main@sha1:"],
        );
    }
    up.interrupt();
}

#[test]
fn a_save_is_applied_and_mistakes_are_explained_with_file_and_fix() {
    let fleet = example();
    let folder = fleet.path();
    let up = Up::start(&[folder.to_str().unwrap(), "--dirty", "--path", "clusters/staging"]);
    up.says(0, &["everything is ready after "]);
    let took = up.after(
        || edit(folder, "apps/staging/kustomization.yaml", "value: 1", "value: 5"),
        &["Deployment is available. Replicas: 5", "the change is applied, "],
    );
    // Two seconds on an idle machine; `--release` takes less than one.
    assert!(took < Duration::from_secs(20), "{took:?}");

    let mut errors = Command::new(env!("CARGO_BIN_EXE_flux"))
        .args(["logs", "--all-namespaces", "--level=error", "--follow"])
        .env("KUBECONFIG", &up.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bad = ("apps/base/web/service.yaml", "metadata:", "metadata: [");
    up.after(
        || edit(folder, bad.0, bad.1, bad.2),
        &[
            "apps/base/web/service.yaml: line 2: this is not YAML",
            "fix: mend the YAML of apps/base/web/service.yaml",
        ],
    );
    // The controller's log tells of it to whoever follows.
    let mut lines = BufReader::new(errors.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("error Kustomization/apps.flux-system - ")));
    Command::new("kill").args(["-INT", &errors.id().to_string()]).status().unwrap();
    errors.wait().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_flux"));
    up.types(
        program,
        "flux logs --kind=Kustomization --name=apps --level=error",
        &["Kustomization/apps.flux-system"],
    );
    up.after(|| edit(folder, bad.0, bad.2, bad.1), &["the change is applied, "]);

    let path = ("clusters/staging/apps.yaml", "./apps/staging", "./apps/stagin");
    up.after(
        || edit(folder, path.0, path.1, path.2),
        &["clusters/staging/apps.yaml: spec.path leads to apps/stagin", "for example ./apps/staging"],
    );
    up.after(|| edit(folder, path.0, path.2, path.1), &["the change is applied, "]);

    let circle = ("clusters/staging/infrastructure.yaml", "spec:\n", "spec:\n  dependsOn: [{name: apps}]\n");
    up.after(
        || edit(folder, circle.0, circle.1, circle.2),
        &[
            "Kustomization/flux-system/apps → Kustomization/flux-system/infra-configs",
            "clusters/staging/apps.yaml: these wait for each other",
            "fix: take one of them out of the spec.dependsOn",
        ],
    );
    up.after(|| edit(folder, circle.0, circle.2, circle.1), &["the change is applied, "]);

    let chart =
        ("charts/api/templates/service.yaml", "targetPort: http", "targetPort: {{ .Values.nothing.here }}");
    up.after(
        || edit(folder, chart.0, chart.1, chart.2),
        &[
            "charts/api/templates/service.yaml: the chart's template fails at line 13",
            "fix: mend charts/api/templates/service.yaml",
        ],
    );
    up.after(|| edit(folder, chart.0, chart.2, chart.1), &["the change is applied, "]);
    up.interrupt();
}

#[test]
fn a_bare_repository_a_url_and_a_commit_are_fleets_too() {
    let fleet = example();
    git(fleet.path(), &["init", "-q", "-b", "trunk"]);
    git(fleet.path(), &["add", "."]);
    git(fleet.path(), &["commit", "-q", "-m", "one"]);
    let server = GitServer::start().unwrap();
    let served = server.create("fleet").unwrap();
    git(fleet.path(), &["push", "-q", served.folder().to_str().unwrap(), "trunk"]);
    served.git(&["symbolic-ref", "HEAD", "refs/heads/trunk"], b"").unwrap();

    // What is not committed does not count.
    edit(fleet.path(), "apps/base/web/service.yaml", "metadata:", "metadata: [");
    let up = Up::start(&[fleet.path().to_str().unwrap(), "--path", "clusters/staging"]);
    up.says(0, &["at HEAD becomes a cluster", "everything is ready after "]);
    up.interrupt();

    let bare = served.folder().to_str().unwrap();
    let up = Up::start(&[bare, "--path", "clusters/staging"]);
    up.says(0, &["everything is ready after ", "trunk@sha1:"]);
    let output =
        Command::new(env!("CARGO_BIN_EXE_flux")).args(["up", bare, "--dirty", "--once"]).output().unwrap();
    let refused = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && refused.contains("leave --dirty out"), "{refused}");
    up.interrupt();

    let up = Up::start(&[&server.http_url("fleet"), "--path", "clusters/staging", "--once"]);
    up.says(
        0,
        &["fleet.git at trunk becomes a cluster", "everything is ready after ", "trunk@sha1:", "stopped"],
    );
}

#[test]
fn what_cannot_be_a_fleet_is_refused_in_one_line() {
    for (arguments, wanted) in [
        (vec!["/nonexistent"], "/nonexistent"),
        (vec!["ssh://git@example.com/fleet"], "clone it yourself and give the folder"),
        (vec!["https://user:password@example.com/fleet"], "the address holds a login"),
        (vec!["--path", "clusters/nowhere"], "there is clusters/production, clusters/staging"),
        (vec!["--ephemeral", "--state", "/tmp/x"], "give one of them"),
        (vec!["--port", "70000"], "is not a port"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
        let output = command.arg("up").args(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(last.starts_with("✗ ") && last.contains(wanted), "{arguments:?}: {said}");
        assert!(!said.contains("password"), "{said}");
    }
}
