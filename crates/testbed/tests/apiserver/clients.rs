//! Clients written by others: the real helm, and controllers in Go that elect a leader and watch.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::core::TypeMeta;
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::git_server::GitServer;
use testbed::process::Supervised;
use testbed::reference::{self, Controller, Kubernetes, Tool};
use testbed::upstream::Upstream;

fn helm(tool: Tool, kubeconfig: &Path, home: &Path, arguments: &[&str]) -> Result<Output> {
    let binary = reference::binary(tool, "helm")?;
    let output = Command::new(binary)
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("KUBECONFIG", kubeconfig)
        .output()?;
    if !output.status.success() {
        bail!("helm {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output)
}

fn chart(version: &str) -> Chart {
    Chart::new("web", version)
        .file("values.yaml", "colour: blue\nreplicas: 1\n")
        .file(
            "templates/config.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-config\ndata:\n  colour: {{ .Values.colour }}\n  \
             version: {{ .Chart.Version | quote }}\n",
        )
        .file(
            "templates/deployment.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  replicas: {{ .Values.replicas }}\n  \
             selector:\n    matchLabels: {app: web}\n  template:\n    metadata:\n      labels: {app: web}\n    spec:\n      \
             containers:\n      - name: web\n        image: web:1\n",
        )
}

/// Installs, upgrades, rolls back and uninstalls, and waits for the workloads each time.
async fn a_release_lives_and_ends(tool: Tool) -> Result<()> {
    let cluster = Cluster::embedded().await?;
    let namespace = cluster.namespace("helm").await?;
    let home = tempfile::tempdir()?;
    for version in ["1.0.0", "1.1.0"] {
        let chart = chart(version);
        std::fs::write(home.path().join(chart.file_name()), chart.package()?)?;
    }
    let first = home.path().join("web-1.0.0.tgz").display().to_string();
    let second = home.path().join("web-1.1.0.tgz").display().to_string();
    let configs: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace.name());
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace.name());
    let colour = async || -> Result<(String, String)> {
        let data = configs.get("site-config").await?.data.context("data")?;
        Ok((data["colour"].clone(), data["version"].clone()))
    };
    let run = async |arguments: Vec<String>| -> Result<String> {
        let (kubeconfig, home) = (cluster.kubeconfig_path().to_owned(), home.path().to_owned());
        let output = tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            helm(tool, &kubeconfig, &home, &arguments)
        });
        Ok(String::from_utf8(output.await??.stdout)?)
    };
    let command = |words: &[&str]| -> Vec<String> {
        let place = ["--namespace", namespace.name()];
        words.iter().chain(&place).map(|word| (*word).to_owned()).collect()
    };
    run(command(&["install", "site", &first, "--wait", "--timeout", "60s"])).await?;
    assert_eq!(colour().await?, ("blue".to_owned(), "1.0.0".to_owned()));
    let set = ["upgrade", "site", &second, "--set", "colour=green,replicas=2", "--wait", "--timeout", "60s"];
    run(command(&set)).await?;
    assert_eq!(colour().await?, ("green".to_owned(), "1.1.0".to_owned()));
    let deployment = deployments.get("site").await?;
    assert_eq!(deployment.status.and_then(|status| status.ready_replicas), Some(2));
    run(command(&["rollback", "site", "1", "--wait", "--timeout", "60s"])).await?;
    assert_eq!(colour().await?, ("blue".to_owned(), "1.0.0".to_owned()));
    let history = run(command(&["history", "site", "--output", "json"])).await?;
    let history: serde_json::Value = serde_json::from_str(&history)?;
    assert_eq!(history.as_array().map(Vec::len), Some(3));
    run(command(&["uninstall", "site", "--wait", "--timeout", "60s"])).await?;
    assert!(configs.get_opt("site-config").await?.is_none() && deployments.get_opt("site").await?.is_none());
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace.name());
    assert_eq!(secrets.list(&ListParams::default().labels("owner=helm")).await?.items.len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_helm_installs_upgrades_rolls_back_and_uninstalls() -> Result<()> {
    a_release_lives_and_ends(Tool::Helm4).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: helm 3 beside helm 4"]
async fn the_real_helm_3_does_too() -> Result<()> {
    a_release_lives_and_ends(Tool::Helm3).await
}

/// A Go controller that elects a leader: the deployments of Kubernetes' own controller manager.
#[tokio::test(flavor = "multi_thread")]
async fn the_real_controller_manager_elects_itself_and_makes_replica_sets() -> Result<()> {
    let cluster = Cluster::start_embedded_without_workloads().await?;
    let kubernetes = Tool::Kubernetes(Kubernetes::default());
    let binary =
        tokio::task::spawn_blocking(move || reference::binary(kubernetes, "kube-controller-manager"))
            .await??;
    let folder = tempfile::tempdir()?;
    let arguments = [
        format!("--kubeconfig={}", cluster.kubeconfig_path().display()),
        "--leader-elect=true".to_owned(),
        "--controllers=deployment-controller,replicaset-controller".to_owned(),
        "--secure-port=0".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
    ];
    let mut manager = Supervised::start(&binary, arguments, &folder.path().join("log"))?;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-system");
    let elected = cluster.await_condition(&leases, "kube-controller-manager", "has a holder", |lease| {
        lease.spec.as_ref().is_some_and(|spec| spec.holder_identity.is_some())
    });
    tokio::select! {
        lease = elected => { lease?; }
        failure = ended(|| manager.failure()) => bail!(failure),
    }
    let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  \
                template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: \"web:1\"}]}\n";
    cluster.apply_yaml("default", text).await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    let watched = cluster.await_condition(&deployments, "web", "has replicas", |deployment| {
        deployment.status.as_ref().is_some_and(|status| status.replicas == Some(2))
    });
    tokio::select! {
        deployment = watched => { deployment?; }
        failure = ended(|| manager.failure()) => bail!(failure),
    }
    Ok(())
}

/// Upstream's source-controller makes an artifact of a commit. It elects no leader: it would only do so in a pod.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: upstream's source-controller"]
async fn upstreams_source_controller_reconciles() -> Result<()> {
    let cluster = Cluster::start_embedded().await?;
    for (_, text) in flux_api::crds::yaml() {
        cluster.apply_crds(&text).await?;
    }
    let namespace = cluster.namespace("peer").await?;
    let source = [Controller::Source];
    let mut upstream = tokio::task::block_in_place(|| Upstream::start(&cluster, namespace.name(), &source))?;
    let git = GitServer::start()?;
    let repository = git.create("fleet")?;
    let commit = repository.commit("first", &[("a.yaml", "a: 1\n")])?;
    let text = format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: fleet}}\nspec:\n  interval: 1m\n  url: {}\n  \
         ref: {{branch: main}}\n",
        git.http_url("fleet")
    );
    cluster.apply_yaml(namespace.name(), &text).await?;
    let types = TypeMeta { api_version: "source.toolkit.fluxcd.io/v1".into(), kind: "GitRepository".into() };
    let api: Api<DynamicObject> = cluster.dynamic(&types, namespace.name()).await?;
    let wanted = format!("main@sha1:{commit}");
    let stored = cluster.await_condition(&api, "fleet", "has an artifact", |object| {
        object.data.pointer("/status/artifact/revision").and_then(|revision| revision.as_str())
            == Some(&wanted)
    });
    tokio::select! {
        object = stored => { object?; }
        failure = ended(|| upstream.failure()) => bail!(failure),
    }
    Ok(())
}

/// Resolves when a process ends, with its last lines.
async fn ended(mut failure: impl FnMut() -> std::io::Result<Option<String>>) -> String {
    loop {
        match failure() {
            Ok(None) => tokio::time::sleep(Duration::from_millis(200)).await,
            Ok(Some(failure)) => return failure,
            Err(error) => return error.to_string(),
        }
    }
}
