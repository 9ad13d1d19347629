//! Fleets under ours and under upstream's controllers, each on a real control plane of its own, one after the other.
//! What one step costs is measured here; what the steps are stands with each fleet. Only ratios mean anything.

mod budgets;
pub(super) mod helm_releases;
pub(super) mod kustomizations;
pub(super) mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::process::Supervised;
use testbed::reference::{self, Controller, Tool};

const NAMESPACE: &str = "default";
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// A step is over when nothing was asked for so long.
const SETTLED: Duration = Duration::from_millis(500);
/// Marks the requests of the bench itself: field manager of its writes, and label that nothing it watches has.
const OWN: &str = "testbed";

/// Whose controllers.
#[derive(Clone)]
enum Implementation {
    /// The binary, and which controllers it runs.
    Ours(PathBuf, &'static str),
    Upstream(&'static [(Controller, &'static str)]),
    /// Any other: what it is called, and its command line, where `{kubeconfig}`, `{storage}` and `{address}` are filled in.
    Other(String, String),
}

impl Implementation {
    /// `ours=PATH`, `upstream`, or `NAME=COMMAND LINE`.
    fn named(
        text: &str,
        controllers: &'static str,
        upstream: &'static [(Controller, &'static str)],
    ) -> Result<Self> {
        Ok(match text.split_once('=') {
            Some(("ours", path)) => Implementation::Ours(path.into(), controllers),
            Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
                Implementation::Other(name.to_owned(), command.to_owned())
            }
            None if text == "upstream" => Implementation::Upstream(upstream),
            _ => bail!("'{text}' is no implementation: ours=PATH, upstream, or NAME=COMMAND LINE"),
        })
    }

    fn name(&self) -> String {
        match self {
            Implementation::Ours(flux, _) => format!("ours {}", version(flux)),
            Implementation::Other(name, _) => name.clone(),
            Implementation::Upstream(controllers) => {
                let names: Vec<String> =
                    controllers.iter().map(|(one, _)| Tool::Controller(*one).name()).collect();
                names.join(" and ")
            }
        }
    }

    fn start(&self, cluster: &Cluster, scratch: &Path) -> Result<Vec<Supervised>> {
        let port = || -> Result<u16> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
        let storage = format!("127.0.0.1:{}", port()?);
        let kubeconfig = cluster.kubeconfig_path().display();
        let store = [
            format!("--storage-path={}", scratch.display()),
            format!("--storage-addr={storage}"),
            format!("--storage-adv-addr={storage}"),
        ];
        let mut started = Vec::new();
        match self {
            Implementation::Ours(flux, controllers) => {
                let mut arguments = vec![
                    "serve".to_owned(),
                    format!("--controllers={controllers}"),
                    format!("--kubeconfig={kubeconfig}"),
                ];
                arguments.extend(store);
                started.push(Supervised::start(flux, arguments, &scratch.join("ours.log"))?);
            }
            Implementation::Other(name, command) => {
                let command = command
                    .replace("{kubeconfig}", &kubeconfig.to_string())
                    .replace("{storage}", &scratch.display().to_string())
                    .replace("{address}", &storage);
                let mut arguments = vec![format!("KUBECONFIG={kubeconfig}")];
                arguments.extend(command.split_whitespace().map(str::to_owned));
                let log = scratch.join(format!("{name}.log"));
                started.push(Supervised::start(Path::new("/usr/bin/env"), arguments, &log)?);
            }
            Implementation::Upstream(controllers) => {
                for (controller, name) in *controllers {
                    let binary = reference::binary(Tool::Controller(*controller), name)?;
                    // They know no flag for the kubeconfig.
                    let mut arguments = vec![
                        format!("KUBECONFIG={kubeconfig}"),
                        binary.display().to_string(),
                        format!("--metrics-addr=127.0.0.1:{}", port()?),
                        format!("--health-addr=127.0.0.1:{}", port()?),
                    ];
                    if *controller == Controller::Source {
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

/// What the program says its version is; nothing where it does not.
fn version(program: &Path) -> String {
    let output = std::process::Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().and_then(|line| line.split_whitespace().last()).unwrap_or_default().to_owned()
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

/// Measures each implementation in turn; the rows of the report.
fn side_by_side(
    implementations: &[Implementation],
    measure: impl AsyncFn(&Implementation) -> Result<Vec<Step>>,
) -> Result<Vec<Value>> {
    let (rows, all) = measure_each(implementations, measure)?;
    if let [ours, theirs] = all.as_slice() {
        ratios(ours, theirs).iter().for_each(|line| println!("{line}"));
    }
    Ok(rows)
}

/// The rows of the report, and the steps of each implementation.
fn measure_each(
    implementations: &[Implementation],
    measure: impl AsyncFn(&Implementation) -> Result<Vec<Step>>,
) -> Result<(Vec<Value>, Vec<Vec<Step>>)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for implementation in implementations {
        let name = implementation.name();
        let steps = runtime.block_on(measure(implementation))?;
        for step in &steps {
            println!("{}", step.line(&name));
            rows.push(step.json(&name));
        }
        all.push(steps);
    }
    Ok((rows, all))
}

/// How the steps of one implementation compare to the same steps of another.
fn ratios(ours: &[Step], theirs: &[Step]) -> Vec<String> {
    let ratio = |ours: f64, theirs: f64| format!("1/{:.1}", theirs / ours.max(0.01));
    let line = |(ours, theirs): (&Step, &Step)| {
        format!(
            "{:<8} ratios: CPU {}, API server {}, memory {}, wall {}",
            ours.name,
            ratio(ours.controllers, theirs.controllers),
            ratio(ours.api_server, theirs.api_server),
            ratio(ours.peak, theirs.peak),
            ratio(ours.wall.as_secs_f64(), theirs.wall.as_secs_f64()),
        )
    };
    ours.iter().zip(theirs).map(line).collect()
}

/// A kind that is asked to reconcile, or waited for.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
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
    fn new(cluster: &Cluster) -> Self {
        Self { cluster: cluster.clone(), folder: cluster.kubeconfig_path().to_owned(), mark: None }
    }

    fn begin(&mut self) -> Result<Instant> {
        let mark = self.cluster.audit_log().mark()?;
        self.mark = Some((mark, self.controllers()?, self.api_server()?));
        Ok(Instant::now())
    }

    async fn end(&mut self, name: &'static str, started: Instant, live: Option<Duration>) -> Result<Step> {
        let wall = started.elapsed();
        let (mark, controllers, api_server) = self.mark.take().context("a step begins before it ends")?;
        // Events are still sent when all statuses are written; they belong to the step that they are about.
        let mut requests = self.requests(mark)?;
        let settling = async {
            loop {
                tokio::time::sleep(SETTLED).await;
                let now = self.requests(mark)?;
                if std::mem::replace(&mut requests, now) == requests {
                    return Ok::<_, anyhow::Error>(());
                }
            }
        };
        match tokio::time::timeout(LIMIT, settling).await {
            Ok(settled) => settled?,
            Err(_) => bail!("after {LIMIT:?} requests of the step '{name}' still come"),
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

    /// By verb, what the controllers asked for since `mark`.
    fn requests(&self, mark: testbed::control_plane::audit::Mark) -> Result<BTreeMap<String, usize>> {
        let mut requests = BTreeMap::new();
        for entry in self.cluster.audit_log().since(mark)? {
            let agent = entry.user_agent.unwrap_or_default();
            // Our own requests, and those of Kubernetes to itself, are not the controllers'.
            if !agent.starts_with("kube-") && !entry.request_uri.contains(OWN) {
                *requests.entry(entry.verb).or_insert(0) += 1;
            }
        }
        Ok(requests)
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

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            api_version: format!("{}/{}", kind.group, kind.version),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
        };
        Api::namespaced_with(self.cluster.client(), NAMESPACE, &resource)
    }

    /// Asks for a reconcile of each, with a token to know the answer by.
    async fn request(&self, kind: Kind, names: &[String], token: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}});
        let parameters = PatchParams { field_manager: Some(OWN.to_owned()), ..PatchParams::default() };
        for name in names {
            self.api(kind).patch(name, &parameters, &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    /// Waits until `count` objects of the kind are done. Each object is looked at when it changes and not again: with a
    /// thousand of them, looking at all after each change would cost more than what is measured.
    async fn until_all(&self, kind: Kind, count: usize, done: impl Fn(&Value) -> bool) -> Result<()> {
        let api = self.api(kind);
        let mut events =
            std::pin::pin!(watcher::watcher(api, watcher::Config::default().labels(&format!("!{OWN}"))));
        let mut finished = BTreeSet::new();
        let all = async {
            while let Some(event) = events.next().await {
                let object = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => object,
                    Ok(Event::Init | Event::InitDone | Event::Delete(_)) | Err(_) => continue,
                };
                let name = object.metadata.name.clone().unwrap_or_default();
                let object = serde_json::to_value(object)?;
                if done(&object) {
                    finished.insert(name)
                } else {
                    finished.remove(&name)
                };
                if finished.len() >= count {
                    return Ok(());
                }
            }
            bail!("the watch ended")
        };
        let ended = tokio::time::timeout(LIMIT, all).await;
        match ended {
            Ok(result) => result,
            Err(_) => bail!("after {LIMIT:?} only {} of {count} {} are done", finished.len(), kind.plural),
        }
    }
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

async fn install_crds(cluster: &Cluster, folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            cluster.apply_crds(&std::fs::read_to_string(path)?).await?;
        }
    }
    Ok(())
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
