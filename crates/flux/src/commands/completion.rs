//! `flux completion`: a script that teaches a shell the commands and flags.

use clap_complete::{Shell, generate};

use crate::error::{CliError, fail};
use crate::output;
use crate::tree::{self, Invocation};

pub(crate) fn run(run: &Invocation) -> Result<(), CliError> {
    let shell = match run.row.name() {
        "bash" => Shell::Bash,
        "fish" => Shell::Fish,
        "powershell" => Shell::PowerShell,
        "zsh" => Shell::Zsh,
        other => return Err(fail!("no completion for {other}")),
    };
    let mut script = Vec::new();
    generate(shell, &mut tree::clap_command(), "flux", &mut script);
    output::data(&String::from_utf8_lossy(&script))
}
