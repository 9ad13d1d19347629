//! `cargo xtask bench kustomizations`: a fleet under our controllers and under upstream's, each on a real control plane.
//!
//! `FLUX_BENCH_FLUX` names another binary of ours, `FLUX_BENCH_SIZES` other sizes than the budgets', as `count:files,…`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cargo;

/// Kustomizations and other files in the repository, as the budgets have them.
const SIZES: &str = "100:2000,300:0";

pub fn run() -> Result<()> {
    let (flux, crds) = (flux()?, crds()?);
    let sizes = std::env::var("FLUX_BENCH_SIZES").unwrap_or_else(|_| SIZES.to_owned());
    for size in sizes.split(',') {
        let (count, files) = size.split_once(':').with_context(|| format!("'{size}' is not count:files"))?;
        let mut command = cargo::cargo(&["run", "--quiet", "--package", "testbed", "--bin", "testbed", "--"]);
        command.args(["bench-kustomizations", &flux, &crds, count, files]);
        cargo::run(&mut command)?;
    }
    Ok(())
}

/// The binary that is measured: a release build, unless another is named.
pub(super) fn flux() -> Result<String> {
    let flux = match std::env::var_os("FLUX_BENCH_FLUX") {
        Some(path) => PathBuf::from(path),
        None => {
            cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "flux", "--bin", "flux"]))?;
            cargo::target_folder()?.join("release/flux")
        }
    };
    Ok(flux.to_str().context("the path of flux is text")?.to_owned())
}

pub(super) fn crds() -> Result<String> {
    let crds = cargo::root().join("manifests/crds");
    Ok(crds.to_str().context("the path of the CRDs is text")?.to_owned())
}
