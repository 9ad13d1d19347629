//! `cargo xtask bench notifications`: a thousand events a second to our controller, for half a minute, first to a chat that
//! takes them and then to one that does not answer.
//!
//! `FLUX_BENCH_FLUX` names another binary of ours, `FLUX_BENCH_EVENTS` another load, as `events-a-second:seconds`.

use anyhow::{Context, Result};

use super::kustomizations::flux;
use crate::cargo;

const LOAD: &str = "1000:30";

pub fn run() -> Result<()> {
    let flux = flux()?;
    let load = std::env::var("FLUX_BENCH_EVENTS").unwrap_or_else(|_| LOAD.to_owned());
    let (rate, seconds) =
        load.split_once(':').with_context(|| format!("'{load}' is not events-a-second:seconds"))?;
    // The chat and the senders share the machine: they had better not be the slow part.
    let arguments =
        ["run", "--quiet", "--release", "--package", "testbed", "--example", "notifications", "--"];
    let mut command = cargo::cargo(&arguments);
    command.args([flux.as_str(), rate, seconds]);
    cargo::run(&mut command)
}
