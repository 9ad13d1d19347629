//! `testbed bench-kustomizations`: the same fleet under ours and under upstream's controllers, each on a real control
//! plane of its own, one after the other. Only ratios mean anything.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube::api::Api;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::control_plane::Options;
use testbed::git_server::GitServer;
use testbed::process::Scratch;
use testbed::reference::Controller;

use super::{Bench, Implementation, Kind, LIMIT, NAMESPACE, Step, install_crds, is_ready, side_by_side};

const UPSTREAM: [(Controller, &str); 2] =
    [(Controller::Source, "source-controller"), (Controller::Kustomize, "kustomize-controller")];
const REPOSITORY: Kind = Kind {
    group: "source.toolkit.fluxcd.io",
    version: "v1",
    kind: "GitRepository",
    plural: "gitrepositories",
};
const KUSTOMIZATION: Kind = Kind {
    group: "kustomize.toolkit.fluxcd.io",
    version: "v1",
    kind: "Kustomization",
    plural: "kustomizations",
};

/// What is measured: how many Kustomizations of five objects each, beside how many other files.
#[derive(Clone, Copy)]
struct Fleet {
    kustomizations: usize,
    other_files: usize,
}

pub(in super::super) fn run(arguments: &[&str]) -> Result<()> {
    let [ours, crds, kustomizations, other_files, peers @ ..] = arguments else {
        bail!("usage: testbed bench-kustomizations FLUX CRDS COUNT OTHER-FILES [--without-upstream]");
    };
    let fleet = Fleet { kustomizations: kustomizations.parse()?, other_files: other_files.parse()? };
    eprintln!("{} Kustomizations, {} other files", fleet.kustomizations, fleet.other_files);
    let mut implementations = vec![Implementation::Ours(ours.into(), "source,kustomize")];
    if !peers.contains(&"--without-upstream") {
        implementations.push(Implementation::Upstream(&UPSTREAM));
    }
    let rows = side_by_side(&implementations, async |one| measure(one, Path::new(crds), fleet).await)?;
    println!(
        "{}",
        json!({"bench": "kustomizations", "kustomizations": fleet.kustomizations,
        "other_files": fleet.other_files, "steps": rows})
    );
    Ok(())
}

async fn measure(implementation: &Implementation, crds: &Path, fleet: Fleet) -> Result<Vec<Step>> {
    let cluster = Cluster::start(Options::default()).await?;
    install_crds(&cluster, crds).await?;
    let server = GitServer::start()?;
    let repository = server.create("fleet")?;
    let files = files(fleet);
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut revision = format!("main@sha1:{}", repository.commit("first", &files)?);
    cluster.apply_yaml(NAMESPACE, &objects(fleet, &server.http_url("fleet"))).await?;
    let scratch = Scratch::new()?;
    let mut steps = Vec::new();
    let mut bench = Bench::new(&cluster);

    let started = bench.begin()?;
    let _controllers = implementation.start(&cluster, scratch.path())?;
    bench.until_all(KUSTOMIZATION, fleet.kustomizations, |object| applied(object) == Some(&revision)).await?;
    steps.push(bench.end("install", started, None)?);

    let started = bench.begin()?;
    revision = format!(
        "main@sha1:{}",
        repository.commit("second", &[("apps/app-0/c0.yaml", &map(0, 0, "changed"))])?
    );
    bench.request(REPOSITORY, &["fleet".to_owned()], "bench").await?;
    let live = until_changed(&cluster).await?;
    bench.until_all(KUSTOMIZATION, fleet.kustomizations, |object| applied(object) == Some(&revision)).await?;
    steps.push(bench.end("commit", started, Some(live))?);

    let started = bench.begin()?;
    let names: Vec<String> = (0..fleet.kustomizations).map(|app| format!("app-{app}")).collect();
    bench.request(KUSTOMIZATION, &names, "bench").await?;
    bench
        .until_all(KUSTOMIZATION, fleet.kustomizations, |object| {
            object["status"]["lastHandledReconcileAt"] == "bench" && is_ready(object)
        })
        .await?;
    steps.push(bench.end("no-op", started, None)?);
    Ok(steps)
}

fn map(app: usize, number: usize, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: app-{app}-{number}, namespace: {NAMESPACE}}}\ndata: {{key: {value}}}\n"
    )
}

fn files(fleet: Fleet) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for app in 0..fleet.kustomizations {
        for number in 0..5 {
            files.push((format!("apps/app-{app}/c{number}.yaml"), map(app, number, "first")));
        }
    }
    for other in 0..fleet.other_files {
        files.push((
            format!("other/folder-{}/file-{other}.txt", other % 50),
            format!("nothing of interest {other}\n"),
        ));
    }
    files
}

fn objects(fleet: Fleet, url: &str) -> String {
    let mut text = format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: fleet}}\n\
         spec: {{url: '{url}', interval: 1h, ref: {{branch: main}}}}\n"
    );
    for app in 0..fleet.kustomizations {
        text.push_str(&format!(
            "---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: app-{app}}}\n\
             spec: {{interval: 1h, prune: true, path: ./apps/app-{app}, sourceRef: {{kind: GitRepository, name: fleet}}}}\n"
        ));
    }
    text
}

fn applied(object: &Value) -> Option<&str> {
    object["status"]["lastAppliedRevision"].as_str().filter(|_| is_ready(object))
}

/// Waits until the changed value is in the cluster.
async fn until_changed(cluster: &Cluster) -> Result<Duration> {
    let started = Instant::now();
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.client(), NAMESPACE);
    let is_changed = |map: &k8s_openapi::api::core::v1::ConfigMap| {
        map.data.as_ref().is_some_and(|data| data.get("key").is_some_and(|value| value == "changed"))
    };
    testbed::wait::until(&maps, "app-0-0", LIMIT, "has changed", is_changed).await?;
    Ok(started.elapsed())
}
