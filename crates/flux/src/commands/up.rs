//! `flux up [DIR]`: an API server, the controllers and a fleet, in one process and without a cluster.
//!
//! Plays bootstrap for the folder: a GitRepository that means the files as they are now, and one Kustomization for
//! each cluster entry point. Then follows the files: a save is applied within a second or two.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flux_api::kinds::{self, Controller};
use flux_controllers::manager::{Manager, ManagerOptions};
use flux_controllers::source::LocalFleet;
use flux_remote::local::LocalFolder;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::tree::Invocation;

const NAMESPACE: &str = "flux-system";
const MANAGER: &str = "flux-up";
/// There are no nodes here: Pods pretend to have started after this long.
const WORKLOADS_READY_AFTER: Duration = Duration::from_millis(500);
/// How often the files and the objects are looked at.
const LOOK: Duration = Duration::from_millis(300);

struct Options {
    folder: Option<PathBuf>,
    /// The entry point below the folder; found by itself when `None`.
    path: Option<String>,
    /// Where the kubeconfig and the artifacts are kept; thrown away when `None`.
    state: Option<PathBuf>,
    port: u16,
    /// Ends as soon as everything is ready instead of following the files.
    once: bool,
}

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let port = run.text("port");
    let options = Options {
        folder: run.name().map(PathBuf::from),
        path: run.some("path").map(str::to_owned),
        state: run.some("state").map(PathBuf::from),
        port: port.parse().map_err(|_| fail!("--port '{port}' is not a port"))?,
        once: run.is("once"),
    };
    up(options).await.map_err(|error| fail!("{error:#}"))
}

async fn up(options: Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let folder = options.folder.clone().unwrap_or_else(example_fleet);
    let folder = folder.canonicalize().map_err(|error| anyhow::anyhow!("{}: {error}", folder.display()))?;
    let entry_points = entry_points(&folder, options.path.as_deref())?;
    say("►", &format!("starting an API server for {}", folder.display()));

    let thrown_away = tempfile::tempdir()?;
    let state = options.state.clone().unwrap_or_else(|| thrown_away.path().to_owned());
    std::fs::create_dir_all(&state)?;
    let workloads = apiserver::Simulation::On { delay: WORKLOADS_READY_AFTER };
    let server = apiserver::Server::builder().simulation(workloads).start().await?;
    let listening = server.serve(([127, 0, 0, 1], options.port).into()).await?;
    let kubeconfig = state.join("kubeconfig");
    listening.write_kubeconfig(&kubeconfig)?;
    let client = Client::new(server.service(), NAMESPACE);
    say("✔", &format!("{} answers after {} ms", listening.url(), started.elapsed().as_millis()));

    install(&client).await?;
    let url = local_url(&folder);
    let controllers = BTreeSet::from([Controller::Source, Controller::Kustomize]);
    let storage = state.join("artifacts");
    let mut manager_options = ManagerOptions::new(controllers, storage, ([127, 0, 0, 1], 0).into());
    manager_options.local = Some(LocalFleet {
        place: flux_remote::local::Place { folder: folder.clone(), revision: None },
        urls: local_urls(&folder, &url),
    });
    manager_options.most_retry = Duration::from_secs(10);
    let manager = Manager::start(client.clone(), manager_options).await?;
    bootstrap(&client, &url, &entry_points).await?;
    say("✔", "controllers are at work: source, kustomize");

    let result = tokio::select! {
        result = follow(&client, &folder, started, &kubeconfig, options.once) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    say("◎", "stopping");
    manager.stop().await;
    server.shutdown();
    result
}

fn say(mark: &str, text: &str) {
    eprintln!("{mark} {text}");
}

/// The fleet that comes with the sources; a binary elsewhere asks for a folder.
fn example_fleet() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fleet"))
}

/// The folders that are clusters: the one asked for, those in `clusters/`, or the whole folder.
fn entry_points(folder: &Path, asked: Option<&str>) -> anyhow::Result<Vec<String>> {
    if let Some(path) = asked {
        anyhow::ensure!(folder.join(path).is_dir(), "{path}: no such folder in {}", folder.display());
        return Ok(vec![path.trim_start_matches("./").to_owned()]);
    }
    let mut found = Vec::new();
    if let Ok(entries) = std::fs::read_dir(folder.join("clusters")) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            found.push(format!("clusters/{}", entry.file_name().to_string_lossy()));
        }
    }
    found.sort();
    match found.len() {
        0 => Ok(vec![".".to_owned()]),
        1 => Ok(found),
        // One machine is one cluster: several would fight over the same names.
        _ => {
            let first = found[0].clone();
            say("◎", &format!("found {}; taking {first} (choose with --path)", found.join(", ")));
            Ok(vec![first])
        }
    }
}

fn local_url(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("http://localhost/{}.git", if name.is_empty() { "fleet" } else { &name })
}

/// Our own address and those of the repository's remotes, which gotk-sync.yaml names.
fn local_urls(folder: &Path, own: &str) -> Vec<String> {
    let mut urls = vec![own.to_owned()];
    let config = folder.ancestors().map(|at| at.join(".git/config")).find(|config| config.is_file());
    if let Some(text) = config.and_then(|config| std::fs::read_to_string(config).ok()) {
        let remotes = text.lines().filter_map(|line| line.trim().strip_prefix("url"));
        urls.extend(
            remotes.filter_map(|rest| rest.trim().strip_prefix('=')).map(|url| url.trim().to_owned()),
        );
    }
    urls
}

fn api(client: &Client, kind: &kinds::Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = flux_controllers::reconcile::resource(kind);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn apply(api: &Api<DynamicObject>, object: &Value) -> anyhow::Result<()> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let parameters = PatchParams::apply(MANAGER).force();
    api.patch(name, &parameters, &Patch::Apply(object)).await?;
    Ok(())
}

/// The kinds of Flux and the namespace they live in.
async fn install(client: &Client) -> anyhow::Result<()> {
    let resource = |group: &str, version: &str, kind: &str, plural: &str| ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let crd = resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &crd);
    for definition in flux_api::crds::all() {
        apply(&crds, &definition).await?;
    }
    let namespaces: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("", "v1", "Namespace", "namespaces"));
    apply(&namespaces, &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }))
        .await
}

async fn bootstrap(client: &Client, url: &str, entry_points: &[String]) -> anyhow::Result<()> {
    let source = json!({
        "apiVersion": kinds::GIT_REPOSITORY.api_version(), "kind": "GitRepository",
        "metadata": { "name": NAMESPACE, "namespace": NAMESPACE },
        "spec": { "url": url, "interval": "1m", "ref": { "branch": "main" } },
    });
    apply(&api(client, &kinds::GIT_REPOSITORY, Some(NAMESPACE)), &source).await?;
    for path in entry_points {
        let sync = json!({
            "apiVersion": kinds::KUSTOMIZATION.api_version(), "kind": "Kustomization",
            "metadata": { "name": NAMESPACE, "namespace": NAMESPACE },
            "spec": {
                "interval": "10m", "retryInterval": "5s", "prune": true, "path": format!("./{path}"),
                "sourceRef": { "kind": "GitRepository", "name": NAMESPACE },
            },
        });
        apply(&api(client, &kinds::KUSTOMIZATION, Some(NAMESPACE)), &sync).await?;
    }
    Ok(())
}

/// Shows what changes and has the source look again when a file was saved.
async fn follow(
    client: &Client,
    folder: &Path,
    started: Instant,
    kubeconfig: &Path,
    once: bool,
) -> anyhow::Result<()> {
    let mut files = LocalFolder::list(folder)?;
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    let mut announced = false;
    loop {
        let lines = states(client).await?;
        for (object, state) in &lines {
            if shown.get(object) != Some(state) {
                show(object, state);
            }
        }
        shown = lines;
        let all_ready = shown.len() > 1 && shown.values().all(|state| state.starts_with('✔'));
        if all_ready && !announced {
            let seconds = started.elapsed().as_secs_f64();
            say("✔", &format!("everything is ready after {seconds:.1} s"));
            say("►", &format!("kubectl --kubeconfig {} get all -A", kubeconfig.display()));
            announced = true;
            if once {
                return Ok(());
            }
            say("◎", &format!("following {}, Ctrl-C ends", folder.display()));
        }
        tokio::time::sleep(LOOK).await;
        let now = LocalFolder::list(folder)?;
        if !now.looks_like(&files) {
            announced = false;
            files = now;
            let token = json!({ "metadata": { "annotations": { flux_api::names::RECONCILE_REQUEST: format!("{:?}", std::time::SystemTime::now()) } } });
            let sources = api(client, &kinds::GIT_REPOSITORY, Some(NAMESPACE));
            sources.patch(NAMESPACE, &PatchParams::default(), &Patch::Merge(token)).await?;
        }
    }
}

fn show(object: &str, state: &str) {
    let mut out = std::io::stdout();
    let line = match (out.is_terminal() && std::env::var_os("NO_COLOR").is_none(), state.chars().next()) {
        (true, Some('✔')) => format!("\x1b[32m{state}\x1b[0m"),
        (true, Some('✗')) => format!("\x1b[31m{state}\x1b[0m"),
        _ => state.to_owned(),
    };
    // A closed pipe is no reason to stop the cluster.
    let _ = writeln!(out, "{object:<44} {line}");
}

/// `Kind/namespace/name` → `✔ message`, `✗ message` or `◎ message`, for every source and Kustomization.
async fn states(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let mut states = BTreeMap::new();
    for kind in [&kinds::GIT_REPOSITORY, &kinds::KUSTOMIZATION] {
        for object in api(client, kind, None).list(&Default::default()).await? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let namespace = object.metadata.namespace.clone().unwrap_or_default();
            states.insert(format!("{}/{namespace}/{name}", kind.kind), state(&object));
        }
    }
    Ok(states)
}

fn state(object: &DynamicObject) -> String {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let ready =
        conditions.into_iter().flatten().find(|one| one.get("type").and_then(Value::as_str) == Some("Ready"));
    let text = |key: &str| ready.and_then(|ready| ready.get(key)).and_then(Value::as_str).unwrap_or_default();
    let current = object.data.pointer("/status/observedGeneration").and_then(Value::as_i64)
        == object.metadata.generation;
    match text("status") {
        "True" if current => format!("✔ {}", text("message")),
        "False" => format!("✗ {}: {}", text("reason"), text("message")),
        _ => "◎ at work".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_are_found_or_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(entry_points(folder.path(), None).unwrap(), ["."]);
        for cluster in ["clusters/staging", "clusters/production"] {
            std::fs::create_dir_all(folder.path().join(cluster)).unwrap();
        }
        assert_eq!(entry_points(folder.path(), None).unwrap(), ["clusters/production"]);
        assert_eq!(entry_points(folder.path(), Some("./clusters/staging")).unwrap(), ["clusters/staging"]);
        assert!(entry_points(folder.path(), Some("clusters/nowhere")).is_err());
    }
}
