//! `flux build`: what a Kustomization or an artifact would be, from local files.

mod artifact;
mod disk;
mod kustomization;
mod mask;

pub(super) use artifact::{Contents, pack, unpack};
pub(super) use kustomization::{Build, arguments, is_kustomization};
pub(super) use mask::MASK;

use crate::error::CliError;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    if run.row.path == "build artifact" { artifact::run(run) } else { kustomization::run(run).await }
}
