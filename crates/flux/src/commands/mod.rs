//! One file per verb, and where each command line goes.

mod artifact;
mod bootstrap;
mod build;
mod check;
mod completion;
mod create;
mod debug;
mod delete;
mod diff;
mod envsubst;
mod events;
mod explain;
mod export;
mod get;
mod image;
pub(crate) mod install;
mod logs;
mod migrate;
pub(crate) mod plugin;
mod pruned;
mod reconcile;
mod reference;
mod resume;
pub(crate) mod serve;
mod stats;
mod suspend;
mod test;
mod trace;
mod tree;
mod trigger;
mod uninstall;
mod up;
pub(crate) mod version;
mod wait;
mod why;

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind};
use crate::session;
use crate::tree::Invocation;

/// Runs the command.
pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    if !run.row.path.starts_with("create ") && !run.row.path.starts_with("plugin ") {
        session::namespace(run)?;
    }
    let path = run.row.path;
    match path.split(' ').next().unwrap_or_default() {
        "up" => up::run(run).await,
        "test" => test::run(run).await,
        "serve" => serve::run(run).await,
        "wait" => wait::run(run).await,
        "why" => why::run(run).await,
        "explain" => explain::run(run).await,
        "create" => create::run(run).await,
        "get" => get::run(run).await,
        "reconcile" => reconcile::run(run, kind(run)?).await,
        "suspend" => suspend::run(run, kind(run)?).await,
        "resume" => resume::run(run, kind(run)?).await,
        "delete" => delete::run(run, kind(run)?).await,
        "export" => export::run(run, kind(run)?).await,
        "image" => image::run(run).await,
        "stats" => stats::run(run).await,
        "check" => check::run(run).await,
        "events" => events::run(run).await,
        "logs" => logs::run(run).await,
        "debug" => debug::run(run, kind(run)?).await,
        "version" => version::run(run).await,
        "envsubst" => envsubst::run(run),
        "completion" => completion::run(run),
        "reference" => reference::run(run),
        "build" => build::run(run).await,
        "diff" => diff::run(run).await,
        "push" | "pull" | "list" | "tag" => artifact::run(run).await,
        "tree" => tree::run(run).await,
        "trace" => trace::run(run).await,
        "trigger" => trigger::run(run).await,
        "migrate" => migrate::run(run).await,
        "plugin" => plugin::run(run).await,
        "install" => install::run(run).await,
        "bootstrap" => bootstrap::run(run).await,
        "uninstall" => uninstall::run(run).await,
        _ => Err(fail!("`flux {path}` is not available yet")),
    }
}

fn kind(run: &Invocation) -> Result<&'static Kind, CliError> {
    kinds::of_path(run.row.path).ok_or_else(|| fail!("`flux {}` is not available", run.row.path))
}

/// The first argument, or `<what> name is required`.
fn required_name<'a>(run: &'a Invocation, what: &str) -> Result<&'a str, CliError> {
    run.name().ok_or_else(|| fail!("{what} name is required"))
}
