//! `cargo xtask bench helmreleases`: releases of podinfo under our controllers and under upstream's, each on a real
//! control plane; of a made chart where the corpus is not at hand.
//!
//! `FLUX_BENCH_FLUX` names another binary of ours, `FLUX_BENCH_SIZES` other sizes than the budgets', as
//! `releases:definitions` or `releases:definitions:ours`, with commas between.

use anyhow::{Context, Result};

use super::kustomizations::{crds, flux};
use crate::cargo;

/// Releases and other definitions, as the budgets have them. Upstream takes too long for a thousand.
const SIZES: &str = "100:0,100:500,1000:0:ours";

pub fn run() -> Result<()> {
    let (flux, crds) = (flux()?, crds()?);
    let chart = cargo::shared().map(|shared| shared.join("corpus/helm/charts/podinfo/chart.tgz"));
    let chart = match chart.filter(|path| path.exists()) {
        Some(path) => path.to_str().context("the path of the corpus is text")?.to_owned(),
        None => {
            println!("skipped: no corpus, so a made chart instead of podinfo");
            "-".to_owned()
        }
    };
    let sizes = std::env::var("FLUX_BENCH_SIZES").unwrap_or_else(|_| SIZES.to_owned());
    for size in sizes.split(',') {
        let mut parts = size.split(':');
        let (Some(count), Some(definitions)) = (parts.next(), parts.next()) else {
            anyhow::bail!("'{size}' is not releases:definitions");
        };
        let mut command = cargo::cargo(&["run", "--quiet", "--package", "testbed", "--bin", "testbed", "--"]);
        command.args(["bench-helmreleases", &flux, &crds, &chart, count, definitions]);
        if parts.next() == Some("ours") {
            command.arg("--without-upstream");
        }
        cargo::run(&mut command)?;
    }
    Ok(())
}
