//! `flux serve`: the controllers against the cluster of the kubeconfig, until the process is told to end.
//!
//! `flux serve source-controller`, or the same binary under that name, takes upstream's flags of that controller.

mod address;
pub(super) mod log;
pub(crate) mod memory;
mod oom_watch;
mod options;

use flux_controllers::manager::Manager;

use crate::error::{CliError, fail};
use crate::session::Session;
use crate::tree::Invocation;

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    log::start(run.text("log-level"), run.text("log-encoding"))?;
    let options = options::options(run)?;
    let memory = options::oom_watch(run, &options.controllers)?;
    let client = Session::open(run).await?.client;
    let names: Vec<&str> = options.controllers.iter().map(|controller| controller.as_str()).collect();
    tracing::info!(controllers = names.join(","), "starting manager");
    let mut told = std::pin::pin!(end());
    let manager = tokio::select! {
        started = Manager::start(client, options) => started.map_err(|error| fail!("cannot start: {error}"))?,
        ended = &mut told => return ended,
    };
    let result = tokio::select! {
        ended = &mut told => ended,
        // Another process works now; whatever this one still does would be done twice.
        () = manager.lost() => return Err(fail!("leader election lost")),
        () = near(memory.as_ref()) => Ok(()),
    };
    tracing::info!("stopping");
    // Told twice, it ends at once.
    tokio::select! {
        () = manager.stop() => result,
        ended = end() => ended.and(Err(fail!("ended while something was under way"))),
    }
}

async fn near(memory: Option<&oom_watch::OomWatch>) {
    match memory {
        Some(memory) => memory.near().await,
        None => std::future::pending().await,
    }
}

/// The process was told to end, as Kubernetes (TERM) or a person (INT) does.
async fn end() -> Result<(), CliError> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: std::io::Error| fail!("cannot wait for a signal: {error}");
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut int = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}
