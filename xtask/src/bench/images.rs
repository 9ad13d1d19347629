//! `cargo xtask bench images`: a thousand ImageRepositories of a thousand tags under our controller.
//!
//! `FLUX_BENCH_FLUX` names another binary of ours, `FLUX_BENCH_IMAGES` another size, as `repositories:tags`.

use anyhow::{Context, Result};

use super::kustomizations::flux;
use crate::cargo;

const SIZE: &str = "1000:1000";

pub fn run() -> Result<()> {
    let flux = flux()?;
    let size = std::env::var("FLUX_BENCH_IMAGES").unwrap_or_else(|_| SIZE.to_owned());
    let (repositories, tags) =
        size.split_once(':').with_context(|| format!("'{size}' is not repositories:tags"))?;
    let mut command = cargo::cargo(&["run", "--quiet", "--package", "testbed", "--example", "images", "--"]);
    command.args([flux.as_str(), repositories, tags]);
    cargo::run(&mut command)
}
