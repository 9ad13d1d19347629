//! `testbed bench-helmreleases`: releases of one chart from a chart repository, first installed, then upgraded to a newer
//! version of the chart, then looked at again with nothing changed.
//!
//! Releases do not wait for their objects: there is no kubelet, and waiting would measure the one who plays it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;
use testbed::control_plane::Options;
use testbed::process::Scratch;
use testbed::reference::Controller;

use super::{Bench, Implementation, Kind, NAMESPACE, Step, install_crds, is_ready, side_by_side};

const UPSTREAM: [(Controller, &str); 2] =
    [(Controller::Source, "source-controller"), (Controller::Helm, "helm-controller")];
const REPOSITORY: Kind = Kind {
    group: "source.toolkit.fluxcd.io",
    version: "v1",
    kind: "HelmRepository",
    plural: "helmrepositories",
};
const RELEASE: Kind =
    Kind { group: "helm.toolkit.fluxcd.io", version: "v2", kind: "HelmRelease", plural: "helmreleases" };

/// Versions that follow each other whatever the chart's own is.
const FIRST: &str = "1.0.0";
const SECOND: &str = "1.0.1";

#[derive(Clone, Copy)]
struct Fleet<'a> {
    chart: &'a Chart,
    releases: usize,
    /// Definitions that none of the releases has to do with.
    other_crds: usize,
}

pub(in super::super) fn run(arguments: &[&str]) -> Result<()> {
    let [ours, crds, chart, releases, other_crds, peers @ ..] = arguments else {
        bail!("usage: testbed bench-helmreleases FLUX CRDS CHART|- COUNT OTHER-CRDS [--without-upstream]");
    };
    let chart = match *chart {
        "-" => made(),
        path => {
            let bytes = std::fs::read(path).with_context(|| format!("read {path}"))?;
            Chart::from_archive(&bytes).with_context(|| format!("unpack {path}"))?
        }
    };
    let fleet = Fleet { chart: &chart, releases: releases.parse()?, other_crds: other_crds.parse()? };
    eprintln!("{} releases of {}, {} other CRDs", fleet.releases, chart.name, fleet.other_crds);
    let mut implementations = vec![Implementation::Ours(ours.into(), "source,helm")];
    if !peers.contains(&"--without-upstream") {
        implementations.push(Implementation::Upstream(&UPSTREAM));
    }
    let rows = side_by_side(&implementations, async |one| measure(one, Path::new(crds), fleet).await)?;
    println!(
        "{}",
        json!({"bench": "helmreleases", "chart": chart.name, "releases": fleet.releases,
        "other_crds": fleet.other_crds, "steps": rows})
    );
    Ok(())
}

async fn measure(implementation: &Implementation, crds: &Path, fleet: Fleet<'_>) -> Result<Vec<Step>> {
    let cluster = Cluster::start(Options::default()).await?;
    install_crds(&cluster, crds).await?;
    other_crds(&cluster, fleet.other_crds).await?;
    let repository = ChartRepository::start()?;
    repository.add(&fleet.chart.clone().with_version(FIRST))?;
    cluster.apply_yaml(NAMESPACE, &objects(fleet, &repository.url())).await?;
    let scratch = Scratch::new()?;
    let mut steps = Vec::new();
    let mut bench = Bench::new(&cluster);
    let names: Vec<String> = (0..fleet.releases).map(|app| format!("app-{app}")).collect();

    let started = bench.begin()?;
    let _controllers = implementation.start(&cluster, scratch.path())?;
    let released = |version: i64| {
        move |object: &serde_json::Value| {
            object["status"]["history"][0]["version"] == version && is_ready(object)
        }
    };
    bench.until_all(RELEASE, fleet.releases, released(1)).await?;
    steps.push(bench.end("install", started, None).await?);

    let started = bench.begin()?;
    repository.add(&fleet.chart.clone().with_version(SECOND))?;
    bench.request(REPOSITORY, &["charts".to_owned()], "bench").await?;
    // A new index wakes the charts of upstream's source-controller; asking for each is the same work for both.
    bench.until_all(REPOSITORY, 1, |object| object["status"]["lastHandledReconcileAt"] == "bench").await?;
    bench.until_all(RELEASE, fleet.releases, released(2)).await?;
    steps.push(bench.end("upgrade", started, None).await?);

    let started = bench.begin()?;
    bench.request(RELEASE, &names, "bench").await?;
    let handled = |object: &serde_json::Value| {
        object["status"]["lastHandledReconcileAt"] == "bench" && is_ready(object)
    };
    bench.until_all(RELEASE, fleet.releases, handled).await?;
    steps.push(bench.end("no-op", started, None).await?);
    Ok(steps)
}

/// As real ones look: a few fields, some with rules.
async fn other_crds(cluster: &Cluster, count: usize) -> Result<()> {
    let mut text = String::new();
    for number in 0..count {
        let fields: String = (0..20)
            .map(|field| {
                format!(
                    "              field{field}:\n                description: What field {field} of kind {number} is for.\n                type: object\n                properties:\n                  name: {{type: string, minLength: 1}}\n                  count: {{type: integer, format: int32, minimum: 0}}\n"
                )
            })
            .collect();
        text.push_str(&format!(
            "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: things{number}.group{}.example.org\nspec:\n  group: group{}.example.org\n  names: {{kind: Thing{number}, listKind: Thing{number}List, plural: things{number}, singular: thing{number}}}\n  scope: Namespaced\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          spec:\n            type: object\n            properties:\n{fields}",
            number % 50,
            number % 50
        ));
    }
    if count > 0 {
        cluster.apply_crds(&text).await?;
    }
    Ok(())
}

fn objects(fleet: Fleet<'_>, url: &str) -> String {
    let mut text = format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {{name: charts}}\n\
         spec: {{url: '{url}', interval: 1h}}\n"
    );
    for app in 0..fleet.releases {
        text.push_str(&format!(
            "---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {{name: app-{app}}}\n\
             spec:\n  interval: 1h\n  chart: {{spec: {{chart: {}, version: '1.x', sourceRef: {{kind: HelmRepository, name: charts}}}}}}\n  \
             install: {{disableWait: true}}\n  upgrade: {{disableWait: true}}\n  values: {{replicaCount: 1}}\n",
            fleet.chart.name
        ));
    }
    text
}

/// Where podinfo cannot be had: a chart with the same objects.
fn made() -> Chart {
    let labels = "  labels:\n    {{- include \"labels\" . | nindent 4 }}\n";
    Chart::new("web", FIRST)
        .file("values.yaml", "replicaCount: 1\nimage: {repository: example.com/web, tag: ''}\nport: 9898\n")
        .file(
            "templates/_names.tpl",
            "{{- define \"labels\" -}}\napp.kubernetes.io/name: {{ .Release.Name }}\nhelm.sh/chart: {{ printf \"%s-%s\" .Chart.Name .Chart.Version }}\napp.kubernetes.io/version: {{ .Chart.AppVersion | quote }}\n{{- end -}}\n",
        )
        .file(
            "templates/service.yaml",
            &format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{{{ .Release.Name }}}}\n{labels}spec:\n  selector: {{app.kubernetes.io/name: {{{{ .Release.Name }}}}}}\n  ports: [{{port: {{{{ .Values.port }}}}, targetPort: http}}]\n"
            ),
        )
        .file(
            "templates/deployment.yaml",
            &format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{{{ .Release.Name }}}}\n{labels}spec:\n  replicas: {{{{ .Values.replicaCount }}}}\n  selector:\n    matchLabels: {{app.kubernetes.io/name: {{{{ .Release.Name }}}}}}\n  template:\n    metadata:\n      labels: {{app.kubernetes.io/name: {{{{ .Release.Name }}}}}}\n    spec:\n      containers:\n      - name: web\n        image: \"{{{{ .Values.image.repository }}}}:{{{{ .Values.image.tag | default .Chart.AppVersion }}}}\"\n        ports: [{{name: http, containerPort: {{{{ .Values.port }}}}}}]\n"
            ),
        )
}
