//! `flux up [DIR]`: an API server, the controllers and a fleet, in one process and without a cluster.
//!
//! Plays bootstrap for the folder, bare repository or URL and then follows it: a commit, or with `--dirty` a save, is
//! applied within a second or two. State is kept in `--state`, or thrown away at the end.

mod explain;
mod screen;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use flux_api::kinds;
use flux_controllers::source::depot::{Depot, Network};
use flux_remote::local::LocalFolder;

use self::screen::Screen;
use super::serve;
use crate::error::{CliError, fail};
use crate::fleet::{Cluster, Fleet, IntoBook, LogBook, Seen, Settings, Verdict, cluster, depot, files, seen};
use crate::output;
use crate::tree::Invocation;

/// There are no nodes here: Pods pretend to have started after this long.
const WORKLOADS_READY_AFTER: Duration = Duration::from_millis(500);
/// How often the files and the objects are looked at.
const LOOK: Duration = Duration::from_millis(300);

struct Options {
    /// A folder or a URL; the example when `None`.
    what: Option<String>,
    /// The entry point below the folder; found by itself when `None`.
    path: Option<String>,
    /// Where the kubeconfig, the artifacts and the objects are kept; thrown away when `None`.
    state: Option<PathBuf>,
    port: u16,
    /// The files as they are, not as HEAD has them.
    dirty: bool,
    /// Ends as soon as everything is ready instead of following the files.
    once: bool,
    depot: Depot,
}

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let port = run.text("port");
    if run.is("ephemeral") && run.some("state").is_some() {
        return Err(fail!("--ephemeral throws away what --state would keep: give one of them"));
    }
    let options = Options {
        what: run.name().map(str::to_owned),
        path: run.some("path").map(str::to_owned),
        state: run.some("state").map(PathBuf::from),
        port: port.parse().map_err(|_| fail!("--port '{port}' is not a port"))?,
        dirty: run.is("dirty"),
        once: run.is("once"),
        // What changes far away is part of what is followed.
        depot: depot::from_flags(run, Network::First).map_err(|error| fail!("{error:#}"))?,
    };
    let book = Arc::new(LogBook::new(cluster::controllers()));
    serve::log::start_into("info", IntoBook(book.clone()))?;
    up(options, book).await.map_err(|error| fail!("{error:#}"))
}

async fn up(options: Options, book: Arc<LogBook>) -> Result<()> {
    let started = Instant::now();
    output::action(&format!("starting an API server for {}", named(&options)));
    let fleet = open(&options).await?;
    let mut entries = files::entry_points(&fleet.place.open()?, options.path.as_deref())?;
    if entries.len() > 1 {
        // One machine is one cluster: several would fight over the same names.
        let names: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        output::waiting(&format!("found {}; taking {} (choose with --path)", names.join(", "), names[0]));
    }
    let entry = entries.swap_remove(0);
    let thrown_away = tempfile::tempdir()?;
    let path = entry.path.clone();
    let cluster = Cluster::start(&Settings {
        depot: options.depot.clone(),
        fleet: fleet.clone(),
        entry,
        state: options.state.clone().unwrap_or_else(|| thrown_away.path().to_owned()),
        durable: options.state.is_some(),
        workloads_ready_after: WORKLOADS_READY_AFTER,
        port: Some(options.port),
        shown: Some(book),
    })
    .await?;
    let (url, kubeconfig) = cluster.listening.clone().unwrap_or_default();
    output::success(&format!("{url} answers after {} ms", started.elapsed().as_millis()));
    let names: Vec<&str> = cluster::controllers().into_iter().map(|controller| controller.as_str()).collect();
    output::success(&format!("controllers are at work: {}", names.join(", ")));
    output::action(&format!(
        "{path} of {} becomes a cluster; beside it, in another terminal:",
        fleet.describe()
    ));
    output::plain(&format!("    export KUBECONFIG={}\n", kubeconfig.display()));

    let mut screen = Screen::new(started);
    let result = tokio::select! {
        result = follow(&cluster, &fleet, &path, options.once, &mut screen) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    output::waiting("stopping");
    cluster.stop().await;
    match &options.state {
        Some(state) => output::success(&format!("stopped; everything is kept in {}", state.display())),
        None => output::success("stopped; nothing is kept"),
    }
    result
}

/// What is started for, at once and before anything is read; without a login that an address may hold.
fn named(options: &Options) -> String {
    let Some(what) = &options.what else { return "the example fleet".to_owned() };
    match what.split_once("://") {
        Some((scheme, rest)) => {
            format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, place)| place))
        }
        None => what.clone(),
    }
}

async fn open(options: &Options) -> Result<Fleet> {
    let Some(what) = &options.what else { return Fleet::open(&files::example(), None) };
    if files::is_url(what) {
        anyhow::ensure!(!options.dirty, "{what}: --dirty is for a folder of this machine");
        return Fleet::clone_of(what).await;
    }
    let fleet = Fleet::open(what.as_ref(), (!options.dirty).then_some("HEAD"))?;
    anyhow::ensure!(
        !(options.dirty && fleet.is_bare),
        "{what}: a bare repository has no files that could be changed; leave --dirty out"
    );
    Ok(fleet)
}

/// Shows what changes, and has the source look again when there is something new.
async fn follow(cluster: &Cluster, fleet: &Fleet, home: &str, once: bool, screen: &mut Screen) -> Result<()> {
    let client = &cluster.client;
    let mut files = fleet.place.open()?;
    let mut revision = revision(fleet, &files);
    let mut announced = false;
    loop {
        let mut objects = seen::flux_objects(client).await?;
        let settled = objects.len() > 1 && objects.iter().all(is_done) && arrived(&objects, &revision);
        objects.extend(seen::workloads(client).await?);
        let problems = explain::problems(&objects, &files, home);
        screen.show(&objects, &problems);
        if settled && !announced {
            announced = true;
            screen.settled(&objects);
            if once {
                return Ok(());
            }
            output::waiting(&format!("following {}, Ctrl-C ends", fleet.describe()));
        }
        tokio::time::sleep(LOOK).await;
        // A file that is just being saved may be gone for a moment; the next look sees it.
        let Ok(now) = fleet.place.open() else { continue };
        if !now.looks_like(&files) {
            announced = false;
            screen.changed();
            files = now;
            revision = self::revision(fleet, &files);
            seen::request(client, &kinds::GIT_REPOSITORY, cluster::NAMESPACE, cluster::NAMESPACE).await?;
        }
    }
}

fn is_done(object: &Seen) -> bool {
    matches!(object.verdict, Verdict::Ready | Verdict::Suspended)
}

/// What the source will call these files; nothing is known of a repository elsewhere.
fn revision(fleet: &Fleet, files: &LocalFolder) -> String {
    let digest = files.digest().ok().filter(|_| fleet.clone.is_none());
    digest.map(|digest| format!("{}@sha1:{digest}", fleet.branch)).unwrap_or_default()
}

/// Whether the files have reached everything that begins with them: what is ready may be so for the files before.
fn arrived(objects: &[Seen], revision: &str) -> bool {
    let root = format!("GitRepository/{0}/{0}", cluster::NAMESPACE);
    let text = |object: &Seen, path: &str| {
        object.object.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let chart = |name: &str| {
        let chart = objects.iter().find(|one| one.id() == format!("HelmChart/{name}"));
        chart.map(|chart| text(chart, "/status/artifact/revision"))
    };
    objects.iter().filter(|object| object.verdict != Verdict::Suspended).all(|object| {
        match object.kind.as_str() {
            _ if revision.is_empty() => true,
            "GitRepository" if object.id() == root => text(object, "/status/artifact/revision") == revision,
            "Kustomization" if object.source().as_ref() == Some(&root) => {
                text(object, "/status/lastAppliedRevision") == revision
            }
            "HelmChart" if object.source().as_ref() == Some(&root) => {
                text(object, "/status/observedSourceArtifactRevision") == revision
            }
            "HelmRelease" => {
                let wanted = chart(&text(object, "/status/helmChart"));
                wanted.is_none_or(|wanted| text(object, "/status/lastAttemptedRevision") == wanted)
            }
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(kind: &str, name: &str, status: Value) -> Seen {
        Seen {
            kind: kind.to_owned(),
            namespace: "flux-system".to_owned(),
            name: name.to_owned(),
            verdict: Verdict::Ready,
            reason: String::new(),
            message: String::new(),
            object: json!({
                "spec": { "sourceRef": { "kind": "GitRepository", "name": "flux-system" } }, "status": status,
            }),
        }
    }

    #[test]
    fn what_is_ready_for_the_files_before_has_not_arrived() {
        let source = |revision: &str| {
            seen("GitRepository", "flux-system", json!({ "artifact": { "revision": revision } }))
        };
        let applied =
            |revision: &str| seen("Kustomization", "apps", json!({ "lastAppliedRevision": revision }));
        assert!(!arrived(&[source("a"), applied("a")], "b"), "the source has not looked yet");
        assert!(!arrived(&[source("b"), applied("a")], "b"), "it was not applied yet");
        assert!(arrived(&[source("b"), applied("b")], "b"));
        assert!(arrived(&[source("a"), applied("b")], ""), "nothing is known of a repository elsewhere");
        let chart = seen(
            "HelmChart",
            "api",
            json!({ "artifact": { "revision": "1+b" }, "observedSourceArtifactRevision": "b" }),
        );
        let release = |revision: &str| {
            let status = json!({ "helmChart": "flux-system/api", "lastAttemptedRevision": revision });
            seen("HelmRelease", "api", status)
        };
        assert!(!arrived(&[source("b"), chart.clone(), release("1+a")], "b"));
        assert!(arrived(&[source("b"), chart, release("1+b")], "b"));
    }
}
