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

use super::{
    Bench, Implementation, Kind, LIMIT, NAMESPACE, Step, budgets, install_crds, is_ready, measure_each,
    ratios,
};

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

/// One fleet, and whether only the first implementation is measured: upstream takes too long for a thousand.
struct Size {
    fleet: Fleet,
    first_only: bool,
}

pub(in super::super) fn run(arguments: &[&str]) -> Result<()> {
    let [crds, sizes, names @ ..] = arguments else {
        bail!("usage: testbed bench-kustomizations CRDS COUNT:FILES[:first],… IMPLEMENTATION…");
    };
    let sizes: Vec<Size> = sizes.split(',').map(size).collect::<Result<_>>()?;
    let implementations: Vec<Implementation> = names
        .iter()
        .map(|name| Implementation::named(name, "source,kustomize", &UPSTREAM))
        .collect::<Result<_>>()?;
    if implementations.is_empty() {
        bail!("name at least one implementation: ours=PATH, upstream, or NAME=COMMAND LINE");
    }
    let mut alone: Vec<(Fleet, Vec<Step>)> = Vec::new();
    for Size { fleet, first_only } in sizes {
        println!("{} Kustomizations, {} other files", fleet.kustomizations, fleet.other_files);
        let chosen = if first_only { &implementations[..1] } else { &implementations[..] };
        let (rows, all) = measure_each(chosen, async |one| measure(one, Path::new(crds), fleet).await)?;
        if let [ours, theirs] = all.as_slice() {
            ratios(ours, theirs).iter().for_each(|line| println!("{line}"));
            budgets::held(fleet.kustomizations, ours, theirs).iter().for_each(|line| println!("{line}"));
        }
        println!(
            "{}",
            json!({"bench": "kustomizations", "kustomizations": fleet.kustomizations,
            "other_files": fleet.other_files, "steps": rows})
        );
        alone.extend(all.into_iter().next().map(|steps| (fleet, steps)));
    }
    flatness(&alone).iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn size(text: &str) -> Result<Size> {
    let mut parts = text.split(':');
    let (Some(count), Some(files), only, None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        bail!("'{text}' is not COUNT:FILES or COUNT:FILES:first");
    };
    if only.is_some_and(|only| only != "first") {
        bail!("'{text}' is not COUNT:FILES or COUNT:FILES:first");
    }
    let fleet = Fleet { kustomizations: count.parse()?, other_files: files.parse()? };
    Ok(Size { fleet, first_only: only.is_some() })
}

/// What one Kustomization costs in the smallest and in the largest fleet that has no other files.
fn flatness(alone: &[(Fleet, Vec<Step>)]) -> Vec<String> {
    let bare = alone.iter().filter(|(fleet, _)| fleet.other_files == 0);
    let Some((small, first)) = bare.clone().min_by_key(|(fleet, _)| fleet.kustomizations) else {
        return Vec::new();
    };
    let Some((large, last)) = bare.max_by_key(|(fleet, _)| fleet.kustomizations) else { return Vec::new() };
    if small.kustomizations == large.kustomizations {
        return Vec::new();
    }
    let each = |cost: f64, fleet: &Fleet| cost * 1000.0 / fleet.kustomizations as f64;
    let line = |(a, b): (&Step, &Step)| {
        format!(
            "{:<8} for each Kustomization of {} and of {}: CPU {:.1} and {:.1} ms, API server {:.1} and {:.1} ms, requests {:.1} and {:.1}",
            a.name,
            small.kustomizations,
            large.kustomizations,
            each(a.controllers, small),
            each(b.controllers, large),
            each(a.api_server, small),
            each(b.api_server, large),
            a.requests.values().sum::<usize>() as f64 / small.kustomizations as f64,
            b.requests.values().sum::<usize>() as f64 / large.kustomizations as f64,
        )
    };
    first.iter().zip(last).map(line).collect()
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
    steps.push(bench.end("install", started, None).await?);

    let started = bench.begin()?;
    revision = format!(
        "main@sha1:{}",
        repository.commit("second", &[("apps/app-0/c0.yaml", &map(0, 0, "changed"))])?
    );
    bench.request(REPOSITORY, &["fleet".to_owned()], "bench").await?;
    let live = until_changed(&cluster).await?;
    bench.until_all(KUSTOMIZATION, fleet.kustomizations, |object| applied(object) == Some(&revision)).await?;
    steps.push(bench.end("commit", started, Some(live)).await?);

    let started = bench.begin()?;
    let names: Vec<String> = (0..fleet.kustomizations).map(|app| format!("app-{app}")).collect();
    bench.request(KUSTOMIZATION, &names, "bench").await?;
    bench
        .until_all(KUSTOMIZATION, fleet.kustomizations, |object| {
            object["status"]["lastHandledReconcileAt"] == "bench" && is_ready(object)
        })
        .await?;
    steps.push(bench.end("no-op", started, None).await?);
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
