//! `flux build`: what a Kustomization, a HelmRelease or an artifact would be.

mod artifact;
mod chart;
mod disk;
mod helmrelease;
mod kustomization;
mod mask;

pub(super) use artifact::{Contents, pack, unpack};
pub(super) use helmrelease::{Asked, Made};
pub(super) use kustomization::{Build, arguments, is_kustomization};
pub(super) use mask::MASK;

use crate::error::CliError;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    match run.row.path {
        "build artifact" => artifact::run(run),
        "build helmrelease" => helmrelease::run(run).await,
        _ => kustomization::run(run).await,
    }
}
