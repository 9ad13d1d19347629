//! `cargo xtask bench kustomizations [SIZES] [IMPLEMENTATION…]`: fleets under our controllers and under upstream's, each on
//! a real control plane of its own.
//!
//! SIZES are `count:files,…`, the Kustomizations and the other files of the repository; `count:files:first` leaves out all
//! implementations but the first. An IMPLEMENTATION is `ours` (a release build), `ours=PATH`, `upstream`, or `NAME=COMMAND
//! LINE`. `FLUX_BENCH_FLUX` names the binary of `ours`, too.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cargo;

/// As the budgets have them, and what shows that the cost of each stays the same. Upstream takes too long for a thousand.
const SIZES: &str = "100:2000,300:0,100:0:first,1000:0:first";

pub fn run(arguments: &[&str]) -> Result<()> {
    let (sizes, implementations) = match arguments {
        [sizes, rest @ ..] if sizes.starts_with(|first: char| first.is_ascii_digit()) => (*sizes, rest),
        rest => (SIZES, rest),
    };
    let implementations =
        if implementations.is_empty() { &["ours", "upstream"][..] } else { implementations };
    let crds = crds()?;
    let mut command = cargo::cargo(&["run", "--quiet", "--package", "testbed", "--bin", "testbed", "--"]);
    command.args(["bench-kustomizations", &crds, sizes]);
    for implementation in implementations {
        match *implementation {
            "ours" => command.arg(format!("ours={}", flux()?)),
            other => command.arg(other),
        };
    }
    cargo::run(&mut command)
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
