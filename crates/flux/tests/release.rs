//! `flux build helmrelease` and `flux diff helmrelease` beside a release that our controllers made, on both kinds of cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;

use flux_api::kinds::{Controller, GIT_REPOSITORY, HELM_RELEASE};
use flux_controllers::manager::{Manager, ManagerOptions};
use kube::Api;
use kube::api::{DynamicObject, Patch};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::GitServer;

#[path = "at_work/flux.rs"]
mod flux;

use flux::{Flux, NAMESPACE, api, apply, ready};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn releases_are_built_and_compared_on_the_embedded_server() {
    releases(&Cluster::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn releases_are_built_and_compared_on_a_real_control_plane() {
    releases(&Cluster::real().await.unwrap()).await;
}

const CHART: &[(&str, &str)] = &[
    ("charts/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
    ("charts/web/values.yaml", "colour: red\npassword: none\nextra: true\n"),
    (
        "charts/web/templates/all.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {colour: {{ .Values.colour }}, at: 'revision {{ .Release.IsUpgrade }}'}\n\
         ---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: {{ .Values.password }}}\n\
         {{- if .Values.extra }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\ndata: {a: b}\n{{- end }}\n",
    ),
    (
        "charts/web/templates/hook.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-upgrade}}\ndata: {colour: {{ .Values.colour }}}\n",
    ),
];

async fn releases(cluster: &Cluster) {
    cluster.provide_crds(flux_api::crds::yaml).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.apply_yaml("default", &namespace.to_string()).await.unwrap();
    let server = GitServer::start().unwrap();
    let repository = server.create("fleet").unwrap();
    repository.commit("first", CHART).unwrap();
    let storage = tempfile::tempdir().unwrap();
    let controllers = BTreeSet::from([Controller::Source, Controller::Helm]);
    let options = ManagerOptions {
        namespace: Some(NAMESPACE.to_owned()),
        ..ManagerOptions::new(controllers, storage.path().to_owned(), ([127, 0, 0, 1], 0).into())
    };
    let manager = Manager::start(cluster.client(), options).await.unwrap();
    let source = json!({"url": server.http_url("fleet"), "interval": "1h", "ref": {"branch": "main"}});
    apply(cluster, &GIT_REPOSITORY, "fleet", source).await;
    let login = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"},
        "stringData": {"values.yaml": "password: canary\n"}});
    cluster.apply_yaml(NAMESPACE, &login.to_string()).await.unwrap();
    apply(cluster, &HELM_RELEASE, "web", spec(json!({}))).await;

    let folder = tempfile::tempdir().unwrap();
    for (name, text) in CHART {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_flux"));
    let flux = Flux { program: &program, kubeconfig: cluster.kubeconfig_path(), folder: folder.path() };
    ready(cluster, &HELM_RELEASE, "web").await;
    builds(&flux);
    differences(cluster, &flux).await;
    mistakes(&flux);
    manager.stop().await;
}

fn spec(more: Value) -> Value {
    let mut spec = json!({
        "interval": "1h",
        "chart": {"spec": {"chart": "./charts/web", "interval": "1h", "sourceRef": {"kind": "GitRepository", "name": "fleet"}}},
        "valuesFrom": [{"kind": "Secret", "name": "password"}],
        "postRenderers": [{"kustomize": {"patches": [{
            "target": {"kind": "ConfigMap", "name": "web"},
            "patch": "- op: add\n  path: /data/patched\n  value: 'yes'\n",
        }]}}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// The HelmRelease with something else in it, as a file.
fn write(flux: &Flux<'_>, name: &str, more: Value) {
    let object = json!({
        "apiVersion": HELM_RELEASE.api_version(), "kind": "HelmRelease",
        "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec(more),
    });
    std::fs::write(flux.folder.join(name), object.to_string()).unwrap();
}

fn builds(flux: &Flux<'_>) {
    let built = flux.run("flux build hr web");
    let text = String::from_utf8_lossy(&built.stdout).into_owned();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for wanted in [
        "colour: red",
        "at: revision true",
        "patched: \"yes\"",
        "name: hook",
        "helm.toolkit.fluxcd.io/name: web",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(text.contains("password: '***'") && !text.contains("canary"), "{text}");
    flux.types("flux build helmrelease web --show-secrets", &["password: canary"]);

    // The same without a cluster, from files alone.
    write(flux, "release.yaml", json!({"values": {"colour": "green"}}));
    let values = "\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {values.yaml: 'password: here'}\n";
    let text = std::fs::read_to_string(flux.folder.join("release.yaml")).unwrap();
    std::fs::write(flux.folder.join("all.yaml"), text + values).unwrap();
    flux.types(
        "flux build hr -f all.yaml --dry-run --local-sources GitRepository/flux-system/fleet=. --show-secrets",
        &["colour: green", "at: revision false", "password: here", "patched: \"yes\""],
    );
    flux.types("flux build hr web -f all.yaml --dry-run --chart charts/web", &["colour: green"]);
}

async fn differences(cluster: &Cluster, flux: &Flux<'_>) {
    let same = flux.run("flux diff hr web");
    // An upgrade says so in its objects: this chart is not the same as it was when it was installed.
    let text = differs(&same);
    assert!(text.contains("► ConfigMap/flux-system/web changed") && text.contains("revision true"), "{text}");

    // Released once more, it is.
    apply(cluster, &HELM_RELEASE, "web", spec(json!({"values": {"colour": "blue"}}))).await;
    let upgraded = |object: &DynamicObject| {
        testbed::cluster::has_condition(object, "Ready", "True")
            && object.data.pointer("/status/history/0/version").and_then(Value::as_i64) == Some(2)
    };
    let limit = std::time::Duration::from_secs(30);
    testbed::wait::until(&api(cluster, &HELM_RELEASE), "web", limit, "is upgraded", upgraded).await.unwrap();
    let same = flux.run("flux diff hr web");
    assert!(same.status.success() && same.stdout.is_empty(), "{same:?}");

    // Somebody changes an object by hand: nothing of the release, but the cluster is another.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.client(), NAMESPACE);
    let patch = json!({"data": {"colour": "by hand"}});
    maps.patch("web", &Default::default(), &Patch::Merge(patch)).await.unwrap();
    let text = differs(&flux.run("flux diff helmrelease web"));
    assert!(text.contains("release flux-system/web: revision 2 (deployed) of web 1.0.0"), "{text}");
    assert!(
        text.contains("drifted since revision 2, and stays so: spec.driftDetection.mode is not enabled"),
        "{text}"
    );
    assert!(text.contains("- by hand") && text.contains("+ blue"), "{text}");

    // A file with other values: a change, an object less, a Secret that nobody sees, a hook.
    write(flux, "other.yaml", json!({"values": {"colour": "white", "extra": false, "password": "hunter2"}}));
    let text = differs(&flux.run("flux diff hr web -f other.yaml"));
    for wanted in [
        "with other values",
        "► ConfigMap/flux-system/web changed",
        "+ white",
        "► ConfigMap/flux-system/extra deleted",
        "► Secret/flux-system/login changed",
        "*** (after)",
        "► hook ConfigMap/flux-system/hook changed",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(!text.contains("hunter2") && !text.contains("canary") && !text.contains("aHVudGVyMg"), "{text}");
    let live = maps.get("web").await.unwrap();
    assert_eq!(live.data.unwrap()["colour"], "by hand", "nothing was written");
}

/// What was told of a difference, which exit code 1 means.
fn differs(output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("identified at least one change"), "{text}");
    text
}

fn mistakes(flux: &Flux<'_>) {
    write(
        flux,
        "newer.yaml",
        json!({"chart": {"spec": {"chart": "./charts/newer", "interval": "1h",
        "sourceRef": {"kind": "GitRepository", "name": "fleet"}}}}),
    );
    for (line, code, wanted) in [
        ("flux build hr", 1, "helmrelease name is required"),
        ("flux build hr nobody", 1, "\"nobody\" not found"),
        ("flux build hr web --dry-run", 1, "--file PATH"),
        ("flux build hr web -f nowhere.yaml", 1, "open nowhere.yaml: no such file or directory"),
        ("flux build hr web --chart nowhere", 1, "nowhere"),
        ("flux build hr other -f release.yaml", 1, "release.yaml holds no HelmRelease other"),
        ("flux diff hr nobody", 2, "\"nobody\" not found"),
        (
            "flux diff hr web -f newer.yaml",
            2,
            "holds the chart of an older spec.chart, not the one that is asked for now: name the chart with --chart PATH",
        ),
    ] {
        let output = flux.run(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(
            said.starts_with("✗ ") && said.lines().count() == 1 && said.contains(wanted),
            "{line}: {said}"
        );
    }
}
