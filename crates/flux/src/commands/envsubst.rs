//! `flux envsubst`: variables of the environment into the lines of stdin.

use std::collections::BTreeMap;
use std::io::BufRead as _;

use crate::error::{CliError, fail};
use crate::output;
use crate::tree::Invocation;

pub(crate) fn run(run: &Invocation) -> Result<(), CliError> {
    let variables: BTreeMap<String, String> = std::env::vars().collect();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| fail!("cannot read stdin: {error}"))?;
        let line = flux_build::substitute::substitute(&line, &variables, run.is("strict"))
            .map_err(|error| fail!("{error}"))?;
        output::data(&format!("{line}\n"))?;
    }
    Ok(())
}
