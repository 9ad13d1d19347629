//! `flux migrate`: moves objects of a cluster, or manifests in files, to the newest API versions.

mod cluster;
mod files;

use crate::error::CliError;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    if run.some("path").is_some() { files::run(run) } else { cluster::run(run).await }
}
