//! `flux diff`: what would change on the cluster, or against an artifact in a registry.

mod artifact;
mod dyff;
mod kustomization;

use crate::error::CliError;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    if run.row.path == "diff artifact" { artifact::run(run).await } else { kustomization::run(run).await }
}
