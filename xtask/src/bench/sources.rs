//! `cargo xtask bench sources`: hundreds of sources under ours and under upstream's source-controller, a large repository
//! and a large index.
//!
//! `FLUX_BENCH_FLUX` names another binary of ours. `--small` is for trying the bench; words choose parts of it.

use anyhow::Result;

use super::kustomizations::{crds, flux};
use crate::cargo;

pub fn run(rest: &[&str]) -> Result<()> {
    let (flux, crds) = (flux()?, crds()?);
    let mut command = cargo::cargo(&["run", "--quiet", "--package", "testbed", "--bin", "testbed", "--"]);
    command.args(["bench-sources", &flux, &crds]).args(rest);
    cargo::run(&mut command)
}
