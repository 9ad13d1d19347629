//! `flux test` on the example fleet, whole and with faults: the right verdict, the right cause, the right exit code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// One cluster of the fleet, where what is broken is broken in both.
const PRODUCTION: &[&str] = &["--path", "clusters/production"];

/// Runs `flux test` and returns its exit code and JSON report.
fn test(folder: &Path, arguments: &[&str]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
    command.arg("test").arg(folder).args(["-o", "json"]).args(arguments).env("KUBECONFIG", "/nonexistent");
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    (output.status.code().unwrap(), report)
}

/// A copy of the example fleet to break.
fn example() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fleet")), copy.path());
    copy
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn edit(folder: &Path, file: &str, from: &str, to: &str) {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}:\n{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

fn causes(report: &Value) -> String {
    let failures = report["clusters"][0]["failures"].as_array().unwrap();
    let causes = failures.iter().filter(|failure| failure["why"] == "cause");
    causes.map(|failure| format!("{}: {}\n", failure["object"], failure["message"])).collect()
}

fn warnings(report: &Value) -> String {
    let of_cluster = report["clusters"][0]["warnings"].as_array().unwrap().iter();
    let all = of_cluster.chain(report["warnings"].as_array().unwrap());
    all.map(|warning| format!("{}: {}\n", warning["reason"], warning["message"])).collect()
}

#[test]
fn the_example_fleet_is_fine() {
    let folder = example();
    let (code, report) = test(folder.path(), &[]);
    assert_eq!((code, &report["outcome"]), (0, &Value::from("fine")), "{report:#}");
    for (at, path) in ["clusters/production", "clusters/staging"].into_iter().enumerate() {
        let cluster = &report["clusters"][at];
        assert_eq!(cluster["path"], path);
        let ready: Vec<String> = cluster["objects"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|object| object["verdict"] == "ready")
            .map(|object| {
                format!("{}/{}", object["kind"].as_str().unwrap(), object["name"].as_str().unwrap())
            })
            .collect();
        // A chart of the repository, a Secret that had to be decrypted, a tenant with an account of its own.
        for wanted in ["Deployment/web", "Deployment/api", "Deployment/ledger", "HelmRelease/issuer"] {
            assert!(ready.iter().any(|one| one == wanted), "{wanted} is not among {ready:?}");
        }
    }
    assert_eq!(warnings(&report), "");
}

#[test]
fn bad_yaml_is_blamed_on_its_file() {
    let folder = example();
    edit(folder.path(), "apps/base/web/service.yaml", "metadata:", "metadata: [");
    let (code, report) = test(folder.path(), PRODUCTION);
    let causes = causes(&report);
    assert!(
        code == 1 && causes.contains("Kustomization/flux-system/apps") && causes.contains("service.yaml"),
        "{causes}"
    );
}

#[test]
fn a_missing_path_is_named() {
    let folder = example();
    edit(folder.path(), "clusters/production/apps.yaml", "path: ./apps/production", "path: ./apps/nowhere");
    let (code, report) = test(folder.path(), PRODUCTION);
    assert!(code == 1 && causes(&report).contains("apps/nowhere"), "{report:#}");
}

#[test]
fn a_cycle_is_found_and_its_members_are_named() {
    let folder = example();
    edit(
        folder.path(),
        "clusters/production/infrastructure.yaml",
        "spec:\n  interval",
        "spec:\n  dependsOn: [{name: apps}]\n  interval",
    );
    let (code, report) = test(folder.path(), PRODUCTION);
    let found = warnings(&report);
    let named = found.contains("Kustomization/flux-system/apps → Kustomization/flux-system/infra-configs → Kustomization/flux-system/infra-controllers");
    assert!(code == 1 && named, "{found}\n{report:#}");
}

#[test]
fn a_dangling_dependency_says_what_exists() {
    let folder = example();
    edit(folder.path(), "clusters/production/apps.yaml", "- name: infra-configs", "- name: infra-config\n");
    let (code, report) = test(folder.path(), PRODUCTION);
    let found = warnings(&report);
    assert!(
        code == 1 && found.contains("infra-config, which does not exist; there is"),
        "{found}\n{report:#}"
    );
}

#[test]
fn an_object_with_two_owners_is_named_with_both() {
    let folder = example();
    let apps = std::fs::read_to_string(folder.path().join("clusters/production/apps.yaml")).unwrap();
    let again = apps.replacen("name: apps", "name: apps-again", 1);
    std::fs::write(folder.path().join("clusters/production/apps-again.yaml"), again).unwrap();
    let (_, report) = test(folder.path(), PRODUCTION);
    let found = warnings(&report);
    let both = found.contains("Kustomization/flux-system/apps and by Kustomization/flux-system/apps-again");
    assert!(found.contains("TwoOwners") && both, "{found}");
}

#[test]
fn what_is_not_a_fleet_cannot_be_judged() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
    let output = command.args(["test", "/nonexistent"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("✗ /nonexistent"), "{said}");
}

#[test]
fn two_commits_are_compared_object_by_object() {
    let folder = example();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(arguments)
            .current_dir(folder.path());
        assert!(command.output().unwrap().status.success());
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "one"]);
    edit(folder.path(), "apps/base/web/deployment.yaml", "web:1.4.0", "web:1.5.0");
    git(&["commit", "-q", "-a", "-m", "a new image"]);
    // Not committed, so not part of it.
    edit(folder.path(), "apps/base/api/release.yaml", "kind: HelmRelease", "kind: Broken");
    let (code, report) = test(folder.path(), &["--diff", "HEAD~1", "--path", "clusters/production"]);
    assert_eq!(code, 0, "{report:#}");
    let changes = report["clusters"][0]["changes"].as_array().unwrap();
    let changed: Vec<&str> = changes.iter().map(|change| change["object"].as_str().unwrap()).collect();
    assert_eq!(changed, ["Deployment/apps/web"], "{report:#}");
    assert!(
        changes[0]["diff"].as_str().unwrap().contains("+        image: ghcr.io/example/web:1.5.0"),
        "{report:#}"
    );
}

#[test]
fn a_tenant_can_do_no_more_than_its_account() {
    let folder = example();
    let greedy = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: taken-over\n  namespace: apps\n";
    std::fs::write(folder.path().join("tenants/payments/greedy.yaml"), greedy).unwrap();
    // Without a target namespace, which would move it home.
    edit(folder.path(), "clusters/production/tenants.yaml", "  targetNamespace: payments-production\n", "");
    edit(
        folder.path(),
        "tenants/payments/ledger.yaml",
        "name: ledger\nspec",
        "name: ledger\n  namespace: payments-production\nspec",
    );
    let (code, report) = test(folder.path(), PRODUCTION);
    let causes = causes(&report);
    assert!(
        code == 1
            && causes.contains("payments-team")
            && causes.contains("forbidden")
            && causes.contains("payments-reconciler"),
        "{causes}"
    );
}

#[test]
fn a_secret_that_cannot_be_decrypted_is_named() {
    let folder = example();
    edit(
        folder.path(),
        "clusters/production/throw-away-age-key.yaml",
        "  name: sops-age-key",
        "  name: another-key",
    );
    let (code, report) = test(folder.path(), PRODUCTION);
    let causes = causes(&report);
    assert!(code == 1 && causes.contains("flux-system/apps") && causes.contains("sops-age-key"), "{causes}");
}
