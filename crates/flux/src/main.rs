//! The `flux` command.
//!
//! `tree` holds every command and flag as data, `commands` a file per verb, `kinds` a row per kind. stdout carries data, stderr talk.

mod commands;
mod error;
mod fleet;
mod kinds;
mod output;
mod readiness;
mod session;
mod ssh;
mod tree;

use std::process::ExitCode;

use crate::error::{CliError, fail};
use crate::tree::Parsed;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    match start(&tree::serve::by_own_name(words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(error.code())
        }
    }
}

fn start(words: &[String]) -> Result<(), CliError> {
    commands::plugin::exec(words)?;
    match tree::parse(words)? {
        Parsed::Help(row) => output::data(&tree::help_text(row, &commands::plugin::installed())),
        Parsed::Version => output::data(&format!("flux version {}\n", commands::version::CLIENT)),
        Parsed::Run(run) => {
            for flag in &run.notices {
                output::data(&format!("Flag --{flag} has been deprecated, {}\n", tree::deprecation(flag)))?;
            }
            if run.row.path.split(' ').next() == Some("serve") {
                commands::serve::memory::settle();
            }
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .map_err(|error| fail!("cannot start: {error}"))?;
            runtime.block_on(until_interrupted(&run))
        }
    }
}

/// Ends on Ctrl-C with the code that shells expect. `up` and `serve` end by themselves, after they have tidied up.
async fn until_interrupted(run: &tree::Invocation) -> Result<(), CliError> {
    if matches!(run.row.path.split(' ').next(), Some("up" | "serve" | "test")) {
        return commands::run(run).await;
    }
    tokio::select! {
        ended = commands::run(run) => ended,
        _ = tokio::signal::ctrl_c() => Err(fail!("interrupted").with_code(130)),
    }
}
