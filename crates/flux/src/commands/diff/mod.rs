//! `flux diff`: what would change on the cluster, or against an artifact in a registry.

mod artifact;
mod dry_run;
mod dyff;
mod helmrelease;
mod kustomization;
mod told;

use crate::error::CliError;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    match run.row.path {
        "diff artifact" => artifact::run(run).await,
        "diff helmrelease" => helmrelease::run(run).await,
        _ => kustomization::run(run).await,
    }
}
