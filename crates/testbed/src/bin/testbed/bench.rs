//! `testbed bench-kustomizations`: the same fleet under ours and under upstream's controllers, each on a real control
//! plane of its own, one after the other. Only ratios mean anything.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::control_plane::Options;
use testbed::git_server::GitServer;
use testbed::process::{Scratch, Supervised};
use testbed::reference::{self, Controller, Tool};

const NAMESPACE: &str = "default";
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// What is measured: how many Kustomizations of five objects each, beside how many other files.
#[derive(Clone, Copy)]
struct Fleet {
    kustomizations: usize,
    other_files: usize,
}

pub(super) fn run(arguments: &[&str]) -> Result<()> {
    let [ours, crds, kustomizations, other_files, peers @ ..] = arguments else {
        bail!("usage: testbed bench-kustomizations FLUX CRDS COUNT OTHER-FILES [--without-upstream]");
    };
    let fleet = Fleet { kustomizations: kustomizations.parse()?, other_files: other_files.parse()? };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows = Vec::new();
    let mut implementations = vec![Implementation::Ours(PathBuf::from(ours))];
    if !peers.contains(&"--without-upstream") {
        implementations.push(Implementation::Upstream);
    }
    for implementation in implementations {
        let name = implementation.name();
        eprintln!("{name}: {} Kustomizations, {} other files", fleet.kustomizations, fleet.other_files);
        let steps = runtime.block_on(measure(&implementation, Path::new(crds), fleet))?;
        for step in steps {
            println!("{}", step.line(&name));
            rows.push(step.json(&name));
        }
    }
    println!(
        "{}",
        json!({"bench": "kustomizations", "kustomizations": fleet.kustomizations,
        "other_files": fleet.other_files, "steps": rows})
    );
    Ok(())
}

enum Implementation {
    Ours(PathBuf),
    Upstream,
}

impl Implementation {
    fn name(&self) -> String {
        match self {
            Implementation::Ours(_) => "ours".to_owned(),
            Implementation::Upstream => format!(
                "{} and {}",
                Tool::Controller(Controller::Source).name(),
                Tool::Controller(Controller::Kustomize).name()
            ),
        }
    }

    fn start(&self, cluster: &Cluster, scratch: &Path) -> Result<Vec<Supervised>> {
        let port = || -> Result<u16> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
        let storage = format!("127.0.0.1:{}", port()?);
        let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig_path().display());
        let store = [
            format!("--storage-path={}", scratch.display()),
            format!("--storage-addr={storage}"),
            format!("--storage-adv-addr={storage}"),
        ];
        let mut started = Vec::new();
        match self {
            Implementation::Ours(flux) => {
                let mut arguments =
                    vec!["serve".to_owned(), "--controllers=source,kustomize".to_owned(), kubeconfig];
                arguments.extend(store);
                started.push(Supervised::start(flux, arguments, &scratch.join("ours.log"))?);
            }
            Implementation::Upstream => {
                for (controller, name) in [
                    (Controller::Source, "source-controller"),
                    (Controller::Kustomize, "kustomize-controller"),
                ] {
                    let binary = reference::binary(Tool::Controller(controller), name)?;
                    // They know no flag for the kubeconfig.
                    let mut arguments = vec![
                        format!("KUBECONFIG={}", cluster.kubeconfig_path().display()),
                        binary.display().to_string(),
                        format!("--metrics-addr=127.0.0.1:{}", port()?),
                        format!("--health-addr=127.0.0.1:{}", port()?),
                    ];
                    if controller == Controller::Source {
                        arguments.extend(store.clone());
                    }
                    let log = scratch.join(format!("{name}.log"));
                    started.push(Supervised::start(Path::new("/usr/bin/env"), arguments, &log)?);
                }
            }
        }
        Ok(started)
    }
}

/// What one step cost.
struct Step {
    name: &'static str,
    wall: Duration,
    /// When the change was there, where there was one.
    live: Option<Duration>,
    controllers: f64,
    api_server: f64,
    peak: f64,
    requests: BTreeMap<String, usize>,
}

impl Step {
    fn line(&self, implementation: &str) -> String {
        let requests: Vec<String> =
            self.requests.iter().map(|(verb, count)| format!("{verb} {count}")).collect();
        let live =
            self.live.map(|live| format!(", change live {:.1} s", live.as_secs_f64())).unwrap_or_default();
        format!(
            "{:<8} {implementation:<48} wall {:>7.1} s{live}, CPU {:>7.1} s, API server {:>6.1} s, peak {:>6.1} MiB, {}",
            self.name,
            self.wall.as_secs_f64(),
            self.controllers,
            self.api_server,
            self.peak,
            requests.join(", ")
        )
    }

    fn json(&self, implementation: &str) -> Value {
        json!({
            "step": self.name, "implementation": implementation, "wall_seconds": self.wall.as_secs_f64(),
            "change_live_seconds": self.live.map(|live| live.as_secs_f64()),
            "controller_cpu_seconds": self.controllers, "api_server_cpu_seconds": self.api_server,
            "peak_mebibytes": self.peak, "requests": self.requests,
        })
    }
}

async fn measure(implementation: &Implementation, crds: &Path, fleet: Fleet) -> Result<Vec<Step>> {
    let cluster = Cluster::start(Options::default()).await?;
    for entry in std::fs::read_dir(crds)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            cluster.apply_crds(&std::fs::read_to_string(path)?).await?;
        }
    }
    let server = GitServer::start()?;
    let repository = server.create("fleet")?;
    let files = files(fleet);
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut revision = format!("main@sha1:{}", repository.commit("first", &files)?);
    cluster.apply_yaml(NAMESPACE, &objects(fleet, &server.http_url("fleet"))).await?;
    let scratch = Scratch::new()?;
    let mut steps = Vec::new();
    let mut bench =
        Bench { cluster: cluster.clone(), folder: cluster.kubeconfig_path().to_owned(), mark: None };

    let started = bench.begin()?;
    let _controllers = implementation.start(&cluster, scratch.path())?;
    bench.until_all(fleet, |object| applied(object) == Some(&revision)).await?;
    steps.push(bench.end("install", started, None)?);

    let started = bench.begin()?;
    revision = format!(
        "main@sha1:{}",
        repository.commit("second", &[("apps/app-0/c0.yaml", &map(0, 0, "changed"))])?
    );
    bench
        .request("gitrepositories", "GitRepository", "source.toolkit.fluxcd.io", &["fleet".to_owned()])
        .await?;
    let live = bench.until_changed().await?;
    bench.until_all(fleet, |object| applied(object) == Some(&revision)).await?;
    steps.push(bench.end("commit", started, Some(live))?);

    let started = bench.begin()?;
    let names: Vec<String> = (0..fleet.kustomizations).map(|app| format!("app-{app}")).collect();
    bench.request("kustomizations", "Kustomization", "kustomize.toolkit.fluxcd.io", &names).await?;
    bench
        .until_all(fleet, |object| object["status"]["lastHandledReconcileAt"] == "bench" && is_ready(object))
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

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

struct Bench {
    cluster: Cluster,
    /// What tells our servers from those of others.
    folder: PathBuf,
    mark: Option<(testbed::control_plane::audit::Mark, Cost, Cost)>,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    cpu: f64,
    peak: f64,
}

impl Bench {
    fn begin(&mut self) -> Result<Instant> {
        let mark = self.cluster.audit_log().mark()?;
        self.mark = Some((mark, self.controllers()?, self.api_server()?));
        Ok(Instant::now())
    }

    fn end(&mut self, name: &'static str, started: Instant, live: Option<Duration>) -> Result<Step> {
        let wall = started.elapsed();
        let (mark, controllers, api_server) = self.mark.take().context("a step begins before it ends")?;
        let mut requests = BTreeMap::new();
        for entry in self.cluster.audit_log().since(mark)? {
            let agent = entry.user_agent.unwrap_or_default();
            // Our own requests, and those of Kubernetes to itself, are not the controllers'.
            if !agent.starts_with("kube-") && !entry.request_uri.contains("fieldManager=testbed") {
                *requests.entry(entry.verb).or_insert(0) += 1;
            }
        }
        let now = self.controllers()?;
        Ok(Step {
            name,
            wall,
            live,
            controllers: now.cpu - controllers.cpu,
            api_server: self.api_server()?.cpu - api_server.cpu,
            peak: now.peak,
            requests,
        })
    }

    fn controllers(&self) -> Result<Cost> {
        let kubeconfig = self.folder.display().to_string();
        cost(|command| {
            command.contains(&kubeconfig)
                && !command.contains("kube-controller-manager")
                && !command.contains("supervisor")
        })
    }

    fn api_server(&self) -> Result<Cost> {
        let folder = self.folder.parent().context("a kubeconfig is in a folder")?.display().to_string();
        cost(|command| {
            command.contains("kube-apiserver") && command.contains(&folder) && !command.contains("supervisor")
        })
    }

    fn api(&self, plural: &str, kind: &str, group: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        Api::namespaced_with(self.cluster.client(), NAMESPACE, &resource)
    }

    async fn request(&self, plural: &str, kind: &str, group: &str, names: &[String]) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "bench"}}});
        let parameters = PatchParams { field_manager: Some("testbed".to_owned()), ..PatchParams::default() };
        for name in names {
            self.api(plural, kind, group).patch(name, &parameters, &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    async fn until_all(&self, fleet: Fleet, done: impl Fn(&Value) -> bool) -> Result<()> {
        let api = self.api("kustomizations", "Kustomization", "kustomize.toolkit.fluxcd.io");
        let all = |objects: &[&DynamicObject]| {
            let values = objects.iter().filter_map(|object| serde_json::to_value(object).ok());
            values.filter(|object| done(object)).count() >= fleet.kustomizations
        };
        testbed::wait::until_all(&api, LIMIT, "are done", all).await.map(|_| ())
    }

    async fn until_changed(&self) -> Result<Duration> {
        let started = Instant::now();
        let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
            Api::namespaced(self.cluster.client(), NAMESPACE);
        let is_changed = |map: &k8s_openapi::api::core::v1::ConfigMap| {
            map.data.as_ref().is_some_and(|data| data.get("key").is_some_and(|value| value == "changed"))
        };
        testbed::wait::until(&maps, "app-0-0", LIMIT, "has changed", is_changed).await?;
        Ok(started.elapsed())
    }
}

/// CPU and peak memory of all processes whose command line, with their environment, is wanted.
fn cost(wanted: impl Fn(&str) -> bool) -> Result<Cost> {
    let mut sum = Cost::default();
    for entry in std::fs::read_dir("/proc")? {
        let folder = entry?.path();
        let Ok(command) = std::fs::read(folder.join("cmdline")) else { continue };
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        let command = [command, environment].concat();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if !wanted(&command) {
            continue;
        }
        let Ok(stat) = std::fs::read_to_string(folder.join("stat")) else { continue };
        // The name in parentheses may hold spaces; the numbers follow it. 100 ticks are a second on Linux.
        let Some((_, numbers)) = stat.rsplit_once(')') else { continue };
        let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        // The first word is the state, which is no number, so utime and stime are the 10th and 11th number.
        sum.cpu += (numbers.get(10).unwrap_or(&0.0) + numbers.get(11).unwrap_or(&0.0)) / 100.0;
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak: f64 =
            peak.and_then(|text| text.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0.0);
        sum.peak += peak / 1024.0;
    }
    Ok(sum)
}
