//! The commands that handbooks tell people to type, verbatim, on both kinds of cluster and with both command lines: ours, and the real
//! flux 2.9.4 against our controllers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use flux_api::kinds::{Controller, GIT_REPOSITORY, HELM_RELEASE, KUSTOMIZATION};
use flux_controllers::manager::{Manager, ManagerOptions};
use kube::api::DynamicObject;
use serde_json::json;
use testbed::Cluster;
use testbed::git_server::GitServer;
use testbed::reference::{self, Tool};

#[path = "at_work/flux.rs"]
mod flux;

use flux::{Flux, NAMESPACE, api, apply, ready};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handbook_commands_on_the_embedded_server() {
    handbook(&Cluster::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handbook_commands_on_a_real_control_plane() {
    handbook(&Cluster::real().await.unwrap()).await;
}

async fn handbook(cluster: &Cluster) {
    cluster.provide_crds(flux_api::crds::yaml).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.apply_yaml("default", &namespace.to_string()).await.unwrap();
    let server = GitServer::start().unwrap();
    let fleet = server.create("fleet").unwrap();
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n  namespace: default\ndata:\n  key: value\n";
    fleet.commit("first", &[("apps/production/app.yaml", file)]).unwrap();
    let storage = tempfile::tempdir().unwrap();
    let controllers = BTreeSet::from([Controller::Source, Controller::Kustomize]);
    let options = ManagerOptions {
        namespace: Some(NAMESPACE.to_owned()),
        ..ManagerOptions::new(controllers, storage.path().to_owned(), ([127, 0, 0, 1], 0).into())
    };
    let manager = Manager::start(cluster.client(), options).await.unwrap();
    let source = json!({"url": server.http_url("fleet"), "interval": "1h", "ref": {"branch": "main"}});
    apply(cluster, &GIT_REPOSITORY, NAMESPACE, source).await;
    let apps = json!({
        "interval": "1h", "prune": true, "path": "./apps/production", "sourceRef": {"kind": "GitRepository", "name": NAMESPACE},
    });
    apply(cluster, &KUSTOMIZATION, "apps", apps).await;
    ready(cluster, &KUSTOMIZATION, "apps").await;

    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("apps/production")).unwrap();
    std::fs::write(folder.path().join("apps/production/app.yaml"), file).unwrap();
    let real = tokio::task::spawn_blocking(|| reference::binary(Tool::Flux, "flux")).await.unwrap().unwrap();
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_flux"));
    for program in [&ours, &real] {
        let flux = Flux { program, kubeconfig: cluster.kubeconfig_path(), folder: folder.path() };
        flux.types("flux get all -A", &["gitrepository/flux-system", "kustomization/apps"]);
        flux.types("flux get kustomization apps", &["Applied revision: main@sha1:"]);
        flux.types("flux get source git flux-system", &["stored artifact for revision 'main@sha1:"]);
        flux.types(
            "flux reconcile source git flux-system",
            &["► annotating GitRepository", "✔ fetched revision main@sha1:"],
        );
        flux.types("flux reconcile kustomization apps", &["✔ applied revision main@sha1:"]);
        flux.types(
            "flux reconcile kustomization apps --with-source",
            &["✔ fetched revision", "✔ applied revision"],
        );
        flux.types("flux suspend kustomization apps", &["✔ kustomization suspended"]);
        flux.types("flux get kustomization apps", &["True     \tTrue"]);
        flux.types("flux resume kustomization apps", &["✔ applied revision main@sha1:"]);
        flux.types("flux diff kustomization apps --path ./apps/production --progress-bar=false", &[]);
        flux.types("flux tree kustomization apps", &["└── ConfigMap/default/app"]);
        flux.types(
            "flux trace configmap app -n default",
            &["Kustomization:   apps", "GitRepository:   flux-system"],
        );
        flux.types("flux stats", &["Kustomization        \t1"]);
        flux.types("flux events --for Kustomization/apps", &["ReconciliationSucceeded"]);
        flux.types("flux export kustomization apps", &["path: ./apps/production"]);
    }
    let flux = Flux { program: &ours, kubeconfig: cluster.kubeconfig_path(), folder: folder.path() };
    flux.types("flux reconcile source git flux-system --with-source", &["✔ fetched revision main@sha1:"]);
    let watched = flux.run("flux get all -A --watch --timeout=3s");
    let seen = String::from_utf8_lossy(&watched.stdout).into_owned();
    assert!(seen.contains("gitrepository/flux-system") && seen.contains("kustomization/apps"), "{seen}");
    new_commands(cluster, &flux).await;
    manager.stop().await;
}

/// Commands that only ours has.
async fn new_commands(cluster: &Cluster, flux: &Flux<'_>) {
    flux.types(
        "flux wait ks/apps --revision main --timeout=30s",
        &["apps in flux-system namespace is ready at revision main@sha1:"],
    );
    flux.fails(
        "flux wait ks/apps --revision 0000000 --timeout=1s",
        &["timed out after 1 s", "is at revision main@sha1:"],
    );
    flux.fails("flux wait deployment/web", &["'deployment' is not a kind of Flux"]);

    flux.fails(
        "flux reconcile ks apps --release-prune 12ab34cd",
        &["no prune of Kustomization apps is held"],
    );
    flux.types("flux suspend ks apps --reason ticket-4711", &["✔ kustomization suspended"]);
    flux.types("flux get ks apps", &["True (ticket-4711)"]);
    flux.fails("flux why configmap/app -n default", &["Kustomization/flux-system/apps is suspended"]);
    flux.types("flux resume ks apps", &["✔ applied revision main@sha1:"]);
    let said = flux.run("flux get ks apps");
    assert!(!String::from_utf8_lossy(&said.stdout).contains("4711"), "resuming takes the reason away");

    flux.types("flux suspend ks apps --for 2h --reason ticket-4711", &["✔ kustomization suspended until 20"]);
    flux.types("flux get ks apps", &["True (until 20", "Z: ticket-4711)"]);
    flux.fails("flux suspend ks apps --for 0s", &["--for must be longer than nothing"]);
    flux.types("flux suspend ks apps --for 1s", &["✔ kustomization suspended until 20"]);
    let resumed = |object: &DynamicObject| {
        object.data.pointer("/spec/suspend").is_none()
            && object.metadata.annotations.iter().flatten().all(|(name, _)| !name.starts_with("fluxcd.rs/"))
            && object.data.pointer("/status/observedGeneration") == Some(&json!(object.metadata.generation))
            && testbed::cluster::has_condition(object, "Ready", "True")
    };
    let (apps, limit) = (api(cluster, &KUSTOMIZATION), Duration::from_secs(30));
    testbed::wait::until(&apps, "apps", limit, "was resumed by its controller and is ready", resumed)
        .await
        .unwrap();

    flux.types(
        "flux why configmap/app -n default",
        &["✔ ConfigMap/default/app", "is applied by ✔ Kustomization/flux-system/apps", "✔ nothing is broken"],
    );
    let broken = json!({
        "interval": "1h", "prune": true, "path": "./nowhere", "sourceRef": {"kind": "GitRepository", "name": NAMESPACE},
    });
    apply(cluster, &KUSTOMIZATION, "broken", broken.clone()).await;
    let mut later = broken;
    later["dependsOn"] = json!([{"name": "broken"}]);
    apply(cluster, &KUSTOMIZATION, "later", later).await;
    let failed = |object: &DynamicObject| testbed::cluster::has_condition(object, "Ready", "False");
    for name in ["broken", "later"] {
        testbed::wait::until(&api(cluster, &KUSTOMIZATION), name, Duration::from_secs(30), "failed", failed)
            .await
            .unwrap();
    }
    let evidence =
        ["the first broken link is Kustomization/flux-system/broken", "condition Ready=False", "nowhere"];
    flux.fails("flux why broken", &evidence);
    flux.fails("flux why ks/later", &evidence);
    flux.fails("flux why nobody", &["✗ nothing is called 'nobody'"]);
    flux.fails("flux why flux-system/", &["✗"]);

    let defaults = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "defaults"},
        "data": {"values.yaml": "image: {tag: one, pull: always}\n"},
    });
    cluster.apply_yaml(NAMESPACE, &defaults.to_string()).await.unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"password": "canary"},
    });
    cluster.apply_yaml(NAMESPACE, &secret.to_string()).await.unwrap();
    let release = json!({
        "interval": "1h", "values": {"image": {"tag": "two"}},
        "chart": {"spec": {"chart": "web", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}},
        "valuesFrom": [
            {"kind": "ConfigMap", "name": "defaults"},
            {"kind": "Secret", "name": "login", "valuesKey": "password", "targetPath": "auth.password"},
        ],
    });
    apply(cluster, &HELM_RELEASE, "web", release).await;
    flux.types(
        "flux explain values hr/web --key image.tag",
        &[
            "image.tag: \"two\"",
            "set by spec.values\n",
            "also in spec.valuesFrom[0] (ConfigMap 'defaults', key 'values.yaml')",
        ],
    );
    let all = flux.run("flux explain values hr/web");
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(all.contains("image.pull") && all.contains("Secret 'login'") && !all.contains("canary"), "{all}");
    flux.fails("flux explain values hr/web --key nothing", &["the chart's own default counts"]);
    flux.types("flux debug hr web --show-values", &["tag: two", "pull: always", "password: canary"]);
    flux.fails("flux why hr/web", &["HelmRelease/flux-system/web is fetched from HelmRepository/flux-system/charts, which does not exist"]);
}
