//! `flux serve`: the controllers against the cluster of the kubeconfig, until the process is told to end.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use flux_api::kinds::Controller;
use flux_controllers::manager::{Manager, ManagerOptions};

use crate::error::{CliError, fail};
use crate::session::Session;
use crate::tree::Invocation;

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    let options = options(run)?;
    let client = Session::open(run).await?.client;
    let names: Vec<&str> = options.controllers.iter().map(|controller| controller.as_str()).collect();
    tracing::info!(controllers = names.join(","), "starting");
    let manager = Manager::start(client, options).await.map_err(|error| fail!("cannot listen: {error}"))?;
    tokio::signal::ctrl_c().await.map_err(|error| fail!("cannot wait for a signal: {error}"))?;
    manager.stop().await;
    Ok(())
}

fn options(run: &Invocation) -> Result<ManagerOptions, CliError> {
    let mut controllers = BTreeSet::new();
    for name in run.list("controllers") {
        controllers.insert(controller(&name)?);
    }
    let address: SocketAddr = run
        .text("storage-addr")
        .parse()
        .map_err(|_| fail!("--storage-addr '{}' is not host:port", run.text("storage-addr")))?;
    let mut options = ManagerOptions::new(controllers, run.text("storage-path").into(), address);
    options.storage_adv_addr = run.some("storage-adv-addr").map(str::to_owned);
    options.events_addr = run.some("events-addr").map(str::to_owned);
    options.concurrent = number(run, "concurrent")?.filter(|concurrent| *concurrent > 0);
    options.http_retry = number(run, "http-retry")?.and_then(|tries| u32::try_from(tries).ok()).unwrap_or(9);
    if !run.is("watch-all-namespaces") {
        let namespace = std::env::var("RUNTIME_NAMESPACE");
        options.namespace =
            Some(namespace.map_err(|_| fail!("RUNTIME_NAMESPACE must be set to watch one namespace"))?);
    }
    options.kustomize.no_cross_namespace_refs = run.is("no-cross-namespace-refs");
    options.kustomize.default_service_account = run.some("default-service-account").map(str::to_owned);
    options.kustomize.requeue_dependency = run.duration("requeue-dependency").to_std();
    Ok(options)
}

/// `source` or `source-controller`. What cannot run yet is refused by name.
fn controller(name: &str) -> Result<Controller, CliError> {
    match name.trim_end_matches("-controller") {
        "source" => Ok(Controller::Source),
        "kustomize" => Ok(Controller::Kustomize),
        _ => Err(fail!("--controllers: '{name}' is not available; choose from source, kustomize")),
    }
}

fn number(run: &Invocation, flag: &str) -> Result<Option<usize>, CliError> {
    let text = run.text(flag);
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| fail!("--{flag} '{text}' is not a number"))
}
