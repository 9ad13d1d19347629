//! `flux up [DIR]`: an API server, the controllers and a fleet, in one process and without a cluster.
//!
//! Plays bootstrap for the folder and then follows it: a commit, or with `--dirty` a save, is applied within a second or
//! two. State is kept in `--state`, or thrown away at the end.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use flux_api::kinds;
use kube::Client;

use crate::error::{CliError, fail};
use crate::fleet::{Cluster, Fleet, Seen, Settings, Verdict, cluster, draw, files, seen};
use crate::output;
use crate::tree::Invocation;

/// There are no nodes here: Pods pretend to have started after this long.
const WORKLOADS_READY_AFTER: Duration = Duration::from_millis(500);
/// How often the files and the objects are looked at.
const LOOK: Duration = Duration::from_millis(300);

struct Options {
    folder: Option<PathBuf>,
    /// The entry point below the folder; found by itself when `None`.
    path: Option<String>,
    /// Where the kubeconfig, the artifacts and the objects are kept; thrown away when `None`.
    state: Option<PathBuf>,
    port: u16,
    /// The files as they are, not as HEAD has them.
    dirty: bool,
    /// Ends as soon as everything is ready instead of following the files.
    once: bool,
}

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let port = run.text("port");
    if run.is("ephemeral") && run.some("state").is_some() {
        return Err(fail!("--ephemeral throws away what --state would keep: give one of them"));
    }
    let options = Options {
        folder: run.name().map(PathBuf::from),
        path: run.some("path").map(str::to_owned),
        state: run.some("state").map(PathBuf::from),
        port: port.parse().map_err(|_| fail!("--port '{port}' is not a port"))?,
        dirty: run.is("dirty"),
        once: run.is("once"),
    };
    up(options).await.map_err(|error| fail!("{error:#}"))
}

async fn up(options: Options) -> Result<()> {
    let started = Instant::now();
    // The example is there to be edited, whatever it is part of.
    let as_they_are = options.dirty || options.folder.is_none();
    let folder = options.folder.clone().unwrap_or_else(files::example);
    let fleet = Fleet::open(&folder, (!as_they_are).then_some("HEAD"))?;
    output::action(&format!("starting an API server for {}", fleet.describe()));
    let mut entries = files::entry_points(&fleet.place.open()?, options.path.as_deref())?;
    if entries.len() > 1 {
        // One machine is one cluster: several would fight over the same names.
        let names: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        output::waiting(&format!("found {}; taking {} (choose with --path)", names.join(", "), names[0]));
    }
    let thrown_away = tempfile::tempdir()?;
    let cluster = Cluster::start(&Settings {
        fleet: fleet.clone(),
        entry: entries.swap_remove(0),
        state: options.state.clone().unwrap_or_else(|| thrown_away.path().to_owned()),
        durable: options.state.is_some(),
        workloads_ready_after: WORKLOADS_READY_AFTER,
        port: Some(options.port),
    })
    .await?;
    let kubeconfig = match &cluster.listening {
        Some((url, kubeconfig)) => {
            output::success(&format!("{url} answers after {} ms", started.elapsed().as_millis()));
            kubeconfig.clone()
        }
        None => PathBuf::new(),
    };
    let names: Vec<&str> = cluster::controllers().into_iter().map(|controller| controller.as_str()).collect();
    output::success(&format!("controllers are at work: {}", names.join(", ")));

    let mut screen = Screen::default();
    let result = tokio::select! {
        result = follow(&cluster.client, &fleet, started, &kubeconfig, options.once, &mut screen) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    output::waiting("stopping");
    cluster.stop().await;
    result
}

/// Shows what changes, and has the source look again when there is something new.
async fn follow(
    client: &Client,
    fleet: &Fleet,
    started: Instant,
    kubeconfig: &std::path::Path,
    once: bool,
    screen: &mut Screen,
) -> Result<()> {
    let mut files = fleet.place.open()?;
    let mut announced = false;
    loop {
        let mut objects = seen::flux_objects(client).await?;
        let settled = objects.len() > 1 && objects.iter().all(is_done);
        objects.extend(seen::workloads(client).await?);
        screen.show(&objects);
        if settled && !announced {
            announced = true;
            let seconds = started.elapsed().as_secs_f64();
            output::success(&format!("everything is ready after {seconds:.1} s"));
            output::action(&format!("kubectl --kubeconfig {} get all -A", kubeconfig.display()));
            if once {
                return Ok(());
            }
            output::waiting(&format!("following {}, Ctrl-C ends", fleet.describe()));
            screen.start_anew();
        }
        tokio::time::sleep(LOOK).await;
        // A file that is just being saved may be gone for a moment; the next look sees it.
        let Ok(now) = fleet.place.open() else { continue };
        if !now.looks_like(&files) {
            announced = false;
            files = now;
            seen::request(client, &kinds::GIT_REPOSITORY, cluster::NAMESPACE, cluster::NAMESPACE).await?;
        }
    }
}

fn is_done(object: &Seen) -> bool {
    matches!(object.verdict, Verdict::Ready | Verdict::Suspended)
}

/// A tree that is drawn over itself on a terminal; elsewhere a line for each change.
#[derive(Default)]
struct Screen {
    drawn: Vec<String>,
    said: BTreeMap<String, String>,
}

impl Screen {
    fn show(&mut self, objects: &[Seen]) {
        let mut out = std::io::stdout();
        if out.is_terminal() {
            let colour = std::env::var_os("NO_COLOR").is_none();
            self.redraw(&mut out, draw::tree(objects, colour));
        } else {
            self.tell_changes(&mut out, objects);
        }
    }

    /// What is said next stands below the tree as it is now.
    fn start_anew(&mut self) {
        self.drawn.clear();
    }

    fn redraw(&mut self, out: &mut impl Write, lines: Vec<String>) {
        if lines == self.drawn {
            return;
        }
        let up = self.drawn.len();
        let back = if up == 0 { String::new() } else { format!("\x1b[{up}A\x1b[J") };
        // A closed pipe is no reason to stop the cluster.
        let _ = writeln!(out, "{back}{}", lines.join("\n"));
        let _ = out.flush();
        self.drawn = lines;
    }

    fn tell_changes(&mut self, out: &mut impl Write, objects: &[Seen]) {
        for object in objects {
            let state = format!("{} {}", object.verdict.mark(), state(object));
            if self.said.get(&object.id()) != Some(&state) {
                let _ = writeln!(out, "{:<44} {state}", object.id());
                self.said.insert(object.id(), state);
            }
        }
    }
}

fn state(object: &Seen) -> String {
    match object.verdict {
        Verdict::Waiting => "at work".to_owned(),
        Verdict::Suspended => "suspended".to_owned(),
        Verdict::Ready => object.message.clone(),
        Verdict::Failed => format!("{}: {}", object.reason, object.message),
    }
}
