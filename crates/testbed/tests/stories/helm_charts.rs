//! Charts that people install, as releases. They come from the shared corpus; without it there is nothing to do, and
//! `helm_options` has charts of its own for every option.

use std::path::PathBuf;

use flux_api::kinds::HELM_RELEASE;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::reference::Tool;

use crate::helm_release::{helm_task, publish, records, released, start};

crate::stories!(charts_that_people_install_are_released_upgraded_and_removed);

/// Small and large, with CRDs, sub-charts, hooks, StatefulSets and DaemonSets; none that changes how the API server
/// works (webhooks, aggregated APIs), since other stories use the same server.
const CHARTS: [&str; 10] = [
    "podinfo",
    "reloader",
    "sealed-secrets",
    "kube-state-metrics",
    "prometheus-pushgateway",
    "prometheus-node-exporter",
    "coredns",
    "bitnami-redis",
    "bitnami-postgresql",
    "fluent-bit",
];

fn corpus() -> Option<PathBuf> {
    let shared = match std::env::var_os("FLUX_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let folder = shared.join("corpus/helm/charts");
    folder.is_dir().then_some(folder)
}

/// The same chart, one patch version later.
fn next(chart: &Chart) -> Chart {
    let (rest, patch) = chart.version.rsplit_once('.').unwrap();
    let digits: String = patch.chars().take_while(char::is_ascii_digit).collect();
    let version = format!("{rest}.{}", digits.parse::<u64>().unwrap() + 1);
    chart.clone().with_version(&version)
}

async fn charts_that_people_install_are_released_upgraded_and_removed(cluster: &Cluster) {
    let Some(folder) = corpus() else {
        println!("skipped: no corpus, so no charts that people install");
        return;
    };
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let _workloads = cluster.simulate_workloads().await.unwrap();
    let charts: Vec<(&str, Chart)> = CHARTS
        .iter()
        .map(|name| {
            let bytes = std::fs::read(folder.join(name).join("chart.tgz")).unwrap();
            (*name, Chart::from_archive(&bytes).unwrap())
        })
        .collect();
    for (name, chart) in &charts {
        publish(&flux, name, chart).await;
        // Cluster roles and the like are named after the release, and other runs use the same server: the end of the
        // namespace tells them apart.
        let spec = json!({
            "interval": "1h", "timeout": "1m30s", "chartRef": { "kind": "HelmChart", "name": name },
            "releaseName": format!("{}-{name}", &namespace[namespace.len() - 5..]),
            "upgrade": { "crds": "CreateReplace" },
        });
        flux.apply(&HELM_RELEASE, name, spec).await;
    }
    for (name, chart) in &charts {
        let object = released(&flux, name, 1).await;
        assert_eq!(object["status"]["history"][0]["chartVersion"], chart.version.as_str());
        let entries = object["status"]["inventory"]["entries"].as_array().map_or(0, Vec::len);
        assert!(entries > 0, "{name} has an empty inventory");
    }
    for (name, chart) in &charts {
        publish(&flux, name, &next(chart)).await;
    }
    for (name, _) in &charts {
        let object = released(&flux, name, 2).await;
        assert_eq!(object["status"]["history"][1]["status"], "superseded", "{name}");
    }
    for tool in [Tool::Helm3, Tool::Helm4] {
        let listed = helm_task(cluster, &flux, tool, &["list", "-o", "json"]).await;
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let deployed = listed.as_array().unwrap().iter().filter(|one| one["status"] == "deployed").count();
        assert_eq!(deployed, CHARTS.len(), "{listed}");
    }
    for (name, _) in &charts {
        flux.api(&HELM_RELEASE).delete(name, &DeleteParams::default()).await.unwrap();
    }
    for (name, _) in &charts {
        cluster.await_gone(&flux.api(&HELM_RELEASE), name).await.unwrap();
    }
    assert!(records(cluster, &flux).await.is_empty());
    let (deployments, sets, daemons): (Api<Deployment>, Api<StatefulSet>, Api<DaemonSet>) = (
        Api::namespaced(cluster.client(), &namespace),
        Api::namespaced(cluster.client(), &namespace),
        Api::namespaced(cluster.client(), &namespace),
    );
    let all = ListParams::default();
    assert_eq!(deployments.list(&all).await.unwrap().items.len(), 0);
    assert_eq!(sets.list(&all).await.unwrap().items.len(), 0);
    assert_eq!(daemons.list(&all).await.unwrap().items.len(), 0);
}
