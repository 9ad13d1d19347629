//! The chart of a HelmRelease: from files here, or the one that its source holds in the cluster.
//!
//! Charts are never fetched from a repository by the command itself: the cluster has the logins, and what it has fetched is what
//! it will release. A chart that the cluster does not have yet is given with `--chart` or `--local-sources`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use flux_api::Object as _;
use flux_api::artifact::Artifact;
use flux_api::digest::Algorithm;
use flux_api::helm::{HelmChartTemplateSpec, HelmRelease};
use flux_controllers::artifact::digest;
use flux_controllers::helm::source::{SourceKey, ready_artifact, revised};
use flux_controllers::helm::{Loaded, chart_object};
use flux_controllers::source::chart_build::{self, Local, Wishes};
use flux_controllers::source::depot::Network;
use flux_controllers::source::{Depot, StandIn};
use flux_remote::local::Place;
use helm::{Chart, Dialect, Limits};
use http_body_util::{BodyExt as _, Limited};

use super::disk::Disk;
use crate::error::{CliError, fail};
use crate::session::Session;

/// Nobody's chart is larger, and its unpacked size has a limit of its own.
const LARGEST: usize = 100 << 20;
/// As source-controller has it without flags.
const LARGEST_FILE: u64 = 5 << 20;

/// Where to look before the cluster is asked.
#[derive(Clone, Default)]
pub(super) struct Places {
    /// `--chart`
    pub(super) chart: Option<PathBuf>,
    /// `--local-sources`: `Kind/namespace/name` → folder
    pub(super) sources: BTreeMap<String, String>,
}

impl Places {
    /// The chart as the controller would be handed it.
    pub(super) async fn find(
        &self,
        object: &HelmRelease,
        session: Option<&Session>,
    ) -> Result<Loaded, CliError> {
        let here = match &self.chart {
            Some(path) => Some(given(object, path)?),
            None => self.in_sources(object)?,
        };
        if let Some(chart) = here {
            return Ok(Loaded { chart: Arc::new(chart), oci_digest: None });
        }
        let session = session.ok_or_else(|| {
            let source = source_name(object);
            fail!(
                "the chart of {} is needed, and no cluster is asked: name it with --chart PATH or --local-sources {source}=PATH",
                object.name()
            )
        })?;
        from_cluster(object, session).await
    }

    fn in_sources(&self, object: &HelmRelease) -> Result<Option<Chart>, CliError> {
        let name = source_name(object);
        let Some(folder) = self.sources.get(&name) else { return Ok(None) };
        let root = Path::new(folder);
        if !root.exists() {
            return Err(fail!("--local-sources {name}={folder}: there is no such file or folder"));
        }
        match &object.spec.chart {
            // The source of a chartRef is the chart.
            None => given(object, root).map(Some),
            Some(template) if name.starts_with("HelmRepository/") => {
                of_repository(root, &template.spec).map(Some)
            }
            Some(template) => of_files(root, &template.spec.chart, &wishes(&template.spec)).map(Some),
        }
    }
}

/// `Kind/namespace/name` of what holds the chart.
fn source_name(object: &HelmRelease) -> String {
    if let Some(template) = &object.spec.chart {
        let source = &template.spec.source_ref;
        let namespace = source.namespace.as_deref().unwrap_or(object.namespace());
        return format!("{}/{namespace}/{}", source.kind, source.name);
    }
    SourceKey::of(object).map(|source| source.to_string()).unwrap_or_default()
}

fn wishes(spec: &HelmChartTemplateSpec) -> Wishes {
    Wishes {
        version_metadata: String::new(),
        values_files: spec.values_files.clone(),
        ignore_missing_values_files: spec.ignore_missing_values_files,
        largest_file: LARGEST_FILE,
    }
}

/// The chart that somebody pointed to.
fn given(object: &HelmRelease, path: &Path) -> Result<Chart, CliError> {
    let shown = path.display();
    let real = std::fs::canonicalize(path).map_err(|error| fail!("{}", crate::error::go_io(path, &error)))?;
    let spec = object.spec.chart.as_ref().map(|template| &template.spec);
    let wanted = spec.map(wishes).unwrap_or_default();
    let lies_in_files = spec.is_some_and(|spec| spec.source_ref.kind.to_string() != "HelmRepository");
    if let (true, Some(spec)) = (lies_in_files && !wanted.files().is_empty(), spec) {
        // Values files are named from the root of the source, which is where the chart's own path begins.
        let root = before(&real, &spec.chart).ok_or_else(|| {
            fail!(
                "spec.chart.spec.valuesFiles are paths in the source, and {shown} does not end in {}: name the source's folder with --local-sources {}=PATH",
                spec.chart, source_name(object)
            )
        })?;
        return of_files(&root, &spec.chart, &wanted);
    }
    let (root, name) = match (real.parent(), real.file_name().and_then(|name| name.to_str())) {
        (Some(root), Some(name)) => (root, name),
        _ => return Err(fail!("{shown} is no chart")),
    };
    let largest = Wishes { largest_file: LARGEST_FILE, ..Wishes::default() };
    let chart = of_files(root, name, &largest)?;
    if wanted.files().is_empty() {
        return Ok(chart);
    }
    let failed = |problem: String| fail!("{shown}: {problem}");
    let archive = chart.package().map_err(|error| failed(error.to_string()))?;
    repacked(archive, chart.metadata.version.clone(), &wanted).map_err(failed)
}

/// `path` without `end`, where it ends so.
fn before(path: &Path, end: &str) -> Option<PathBuf> {
    let mut rest = path.to_owned();
    let parts: Vec<Component<'_>> = Path::new(end).components().collect();
    for part in parts.iter().rev().filter(|part| !matches!(part, Component::CurDir | Component::RootDir)) {
        if rest.file_name() != Some(part.as_os_str()) {
            return None;
        }
        rest.pop();
    }
    Some(rest)
}

/// A chart among the files of a source.
fn of_files(root: &Path, path: &str, wishes: &Wishes) -> Result<Chart, CliError> {
    let failed = |problem: String| fail!("chart {path} in {}: {problem}", root.display());
    let disk = Disk::below(root).map_err(|error| failed(crate::error::go_cause(&error)))?;
    let path = path.trim_start_matches('/');
    let local = Local::find(&disk, path, wishes.largest_file).map_err(|error| failed(error.to_string()))?;
    let (mut chart, values) = local.load(wishes).map_err(|error| failed(error.to_string()))?;
    let missing = chart_build::missing_dependencies(&chart).map_err(|error| failed(error.to_string()))?;
    for dependency in missing.iter().filter(|_| local.is_folder) {
        let found = match chart_build::is_local(dependency) {
            true => chart_build::local_dependency(&disk, &local.path, dependency),
            false => Err(format!(
                "it is to come from {}, and is not in charts/: run `helm dependency build` first",
                dependency.repository
            )),
        };
        let found = found.map_err(|cause| failed(format!("dependency {}: {cause}", dependency.name)))?;
        chart_build::add_dependency(&mut chart, found, dependency);
    }
    let version = chart.metadata.version.clone();
    let packed =
        chart_build::package(&mut chart, version, values).map_err(|error| failed(error.to_string()))?;
    load(&packed.archive.unwrap_or_default()).map_err(failed)
}

/// A chart of a folder that stands for a repository.
fn of_repository(root: &Path, spec: &HelmChartTemplateSpec) -> Result<Chart, CliError> {
    let url = root.display().to_string();
    let place = Place { folder: root.to_owned(), revision: None };
    let stand_ins = vec![StandIn { place, urls: vec![url.clone()] }];
    let depot = Depot { stand_ins, cache: None, network: Network::Never };
    let charts = depot.charts(&url).unwrap_or_else(|| Ok(Vec::new())).map_err(|error| fail!("{error}"))?;
    let versions = flux_controllers::source::depot::LocalChart::versions(&charts, &spec.chart);
    let wanted = spec.version.as_deref().unwrap_or_default();
    let picked = flux_remote::helm_repository::pick(&versions, &spec.chart, wanted)
        .map_err(|error| fail!("{}: chart {}: {error}", root.display(), spec.chart))?;
    let is_it = |chart: &&flux_controllers::source::depot::LocalChart| {
        chart.name == picked.name && chart.version == picked.version
    };
    let archive = charts.iter().find(is_it).map(|chart| chart.archive.clone()).unwrap_or_default();
    repacked(archive, picked.version.clone(), &wishes(spec))
        .map_err(|problem| fail!("{}: chart {}: {problem}", root.display(), spec.chart))
}

/// The archive with the values files that are wished for.
fn repacked(archive: Vec<u8>, version: String, wishes: &Wishes) -> Result<Chart, String> {
    let built = chart_build::from_archive(archive, version, wishes).map_err(|error| error.to_string())?;
    load(&built.archive.unwrap_or_default())
}

fn load(archive: &[u8]) -> Result<Chart, String> {
    Chart::from_archive(archive, Limits::default(), Dialect::Helm4).map_err(|error| error.to_string())
}

/// The chart that the source of the release holds.
async fn from_cluster(object: &HelmRelease, session: &Session) -> Result<Loaded, CliError> {
    let source = SourceKey::of(object)
        .ok_or_else(|| fail!("{} has neither spec.chart nor spec.chartRef", object.name()))?;
    let api = session.in_namespace(&source.key.namespace).objects(source.row());
    let found = api.get_opt(&source.key.name).await;
    let hint = format!("name the chart with --chart PATH or --local-sources {}=PATH", source_name(object));
    let Some(found) = found.map_err(|error| session.failed(error, Some(source.row())))? else {
        return Err(fail!("{source} does not exist, so the cluster has no chart yet: {hint}"));
    };
    if object.spec.chart.is_some() && !chart_object::serves(&found, object) {
        return Err(fail!(
            "{source} holds the chart of an older spec.chart, not the one that is asked for now: {hint}"
        ));
    }
    let artifact = ready_artifact(&source, &found).map_err(|error| fail!("{error}; {hint}"))?;
    let bytes = download(session, &artifact).await.map_err(|problem| {
        fail!("the artifact of {source} cannot be fetched from {}: {problem}; {hint}", artifact.url)
    })?;
    let mut chart = load(&bytes).map_err(|error| fail!("the artifact of {source} is no chart: {error}"))?;
    let revised = revised(&source, &artifact, &chart.metadata.version, true);
    let revised = revised.map_err(|error| fail!("{source}: {error}"))?;
    chart.metadata.version = revised.version;
    Ok(Loaded { chart: Arc::new(chart), oci_digest: revised.oci_digest })
}

async fn download(session: &Session, artifact: &Artifact) -> Result<Vec<u8>, String> {
    let size = usize::try_from(artifact.size.unwrap_or_default()).unwrap_or_default();
    if size > LARGEST {
        return Err(format!("it has {size} bytes, and {LARGEST} is the most"));
    }
    let bytes = match service_path(&artifact.url) {
        Some(path) => through_api_server(session, &path).await?,
        None => directly(session, &artifact.url).await?,
    };
    let algorithm = artifact.digest.algorithm().unwrap_or(Algorithm::Sha256);
    let found = digest::of(algorithm, &bytes[..]).map_err(|error| error.to_string())?;
    if found != artifact.digest {
        return Err(format!("its digest is {}, not {}", found.as_str(), artifact.digest.as_str()));
    }
    Ok(bytes)
}

/// Services have no address out here: the API server passes requests on to those who may ask for it.
async fn through_api_server(session: &Session, path: &str) -> Result<Vec<u8>, String> {
    let request = http::Request::get(path).body(kube::client::Body::empty());
    let answer = session.client.send(request.map_err(|error| error.to_string())?).await;
    let answer = answer.map_err(|error| crate::session::innermost(&error))?;
    if !answer.status().is_success() {
        return Err(format!("the API server's proxy answered {}", answer.status()));
    }
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    Ok(body.map_err(|error| error.to_string())?.to_bytes().to_vec())
}

async fn directly(session: &Session, url: &str) -> Result<Vec<u8>, String> {
    let told = |error: reqwest::Error| crate::session::innermost(&error.without_url());
    let client = reqwest::Client::builder().timeout(session.timeout).build().map_err(told)?;
    let answer = client.get(url).send().await.map_err(told)?;
    let body = reqwest::Body::from(answer.error_for_status().map_err(told)?);
    let body = Limited::new(body, LARGEST).collect().await;
    Ok(body.map_err(|error| error.to_string())?.to_bytes().to_vec())
}

/// `http://name.namespace.svc.cluster.local./a` as a path of the API server; `None` for addresses of anything else.
fn service_path(address: &str) -> Option<String> {
    let url = url::Url::parse(address).ok()?;
    let mut parts = url.host_str()?.trim_end_matches('.').split('.');
    let (name, namespace) = (parts.next()?, parts.next()?);
    if parts.next()? != "svc" {
        return None;
    }
    let port = url.port_or_known_default()?;
    let scheme = url.scheme();
    Some(format!("/api/v1/namespaces/{namespace}/services/{scheme}:{name}:{port}/proxy{}", url.path()))
}

#[cfg(test)]
mod tests {
    use file_tree::Files as _;
    use serde_json::json;

    use super::*;

    fn release(spec: serde_json::Value) -> HelmRelease {
        let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "apps"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn in_git(chart: &str, values_files: &[&str]) -> HelmRelease {
        release(json!({"interval": "1m", "chart": {"spec": {"chart": chart, "valuesFiles": values_files,
            "sourceRef": {"kind": "GitRepository", "name": "fleet", "namespace": "flux-system"}}}}))
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    fn repository() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                (
                    "charts/web/Chart.yaml",
                    "apiVersion: v2\nname: web\nversion: 1.2.0\ndependencies: [{name: base, version: 1.x, repository: 'file://../base'}]\n",
                ),
                ("charts/web/values.yaml", "a: chart\nb: chart\n"),
                ("charts/web/templates/a.yaml", "kind: A\n"),
                ("charts/base/Chart.yaml", "apiVersion: v2\nname: base\nversion: 1.0.0\n"),
                ("values/prod.yaml", "a: prod\n"),
            ],
        );
        root
    }

    #[tokio::test]
    async fn a_chart_in_a_source_comes_with_its_neighbours_and_the_values_files_of_the_source() {
        let root = repository();
        let sources = BTreeMap::from([(
            "GitRepository/flux-system/fleet".to_owned(),
            root.path().display().to_string(),
        )]);
        let places = Places { chart: None, sources };
        let found = places.find(&in_git("./charts/web", &["values/prod.yaml"]), None).await.unwrap();
        assert_eq!(found.chart.subcharts.len(), 1);
        assert_eq!(found.chart.values.as_ref().unwrap()["a"], "prod");
        let missing = places.find(&in_git("./charts/other", &[]), None).await.unwrap_err().to_string();
        assert!(missing.contains("./charts/other") && missing.contains("no such file"), "{missing}");
        let unnamed =
            Places::default().find(&in_git("./charts/web", &[]), None).await.unwrap_err().to_string();
        assert!(unnamed.ends_with("--local-sources GitRepository/flux-system/fleet=PATH"), "{unnamed}");
    }

    #[tokio::test]
    async fn a_chart_that_is_pointed_to_finds_its_source_by_its_own_path() {
        let root = repository();
        let chart = Some(root.path().join("charts/web"));
        let places = Places { chart: chart.clone(), sources: BTreeMap::new() };
        let found = places.find(&in_git("./charts/web", &["values/prod.yaml"]), None).await.unwrap();
        assert_eq!(found.chart.values.as_ref().unwrap()["a"], "prod");
        let other = places.find(&in_git("./elsewhere", &["values/prod.yaml"]), None).await;
        assert!(other.unwrap_err().to_string().contains("does not end in ./elsewhere"));
    }

    #[tokio::test]
    async fn a_folder_of_charts_stands_for_a_repository_and_ranges_hold() {
        let root = tempfile::tempdir().unwrap();
        for version in ["1.0.0", "1.4.0", "2.0.0"] {
            let chart = format!("apiVersion: v2\nname: web\nversion: {version}\n");
            write(root.path(), &[(&format!("web-{version}/Chart.yaml"), &chart)]);
        }
        let object = release(json!({"interval": "1m", "chart": {"spec": {"chart": "web", "version": "1.x",
            "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}));
        let sources =
            BTreeMap::from([("HelmRepository/apps/charts".to_owned(), root.path().display().to_string())]);
        let found = Places { chart: None, sources }.find(&object, None).await.unwrap();
        assert_eq!(found.version(), "1.4.0");
    }

    #[test]
    fn services_are_reached_through_the_api_server_and_others_directly() {
        let inside =
            "http://source-controller.flux-system.svc.cluster.local./helmchart/apps/web/web-1.0.0.tgz";
        assert_eq!(
            service_path(inside).as_deref(),
            Some(
                "/api/v1/namespaces/flux-system/services/http:source-controller:80/proxy/helmchart/apps/web/web-1.0.0.tgz"
            )
        );
        assert_eq!(service_path("http://127.0.0.1:9090/helmchart/a.tgz"), None);
        assert_eq!(service_path("http://artifacts.example.com/a.tgz"), None);
    }

    #[test]
    fn only_what_lies_below_the_root_is_there() {
        let root = repository();
        let disk = Disk::below(&root.path().join("charts")).unwrap();
        let kind = |path: &str| disk.kind(&file_tree::TreePath::parse(path).unwrap());
        assert!(kind("web/Chart.yaml").is_some() && kind("values/prod.yaml").is_none());
    }
}
