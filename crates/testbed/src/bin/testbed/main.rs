//! The testbed by hand: reference tools on request, and one control plane with a Git server that stays.
//!
//! `cargo xtask testbed up|down|status` is the usual way in. Not for production, and not for two people:
//! one machine account has one testbed.

mod bench;
mod standing;

use std::process::ExitCode;

use anyhow::{Result, bail};
use testbed::reference::{self, Tool};

const USAGE: &str = "usage:
  testbed tools [TOOL…]      build the reference tools (all if none is named; `peers`: upstream's
                             controllers) and print where they are
  testbed tool TOOL [BINARY] build one tool and print the path of its binary
  testbed go                 print the path of a Go that is new enough, installed if need be
  testbed up                 start a control plane and a Git server that stay, and print how to reach them
  testbed status             say whether they run
  testbed down               end them
  testbed run                like up, in the foreground
  testbed bench-kustomizations CRDS COUNT:FILES[:first],… IMPLEMENTATION…
                             fleets under each implementation in turn: ours=PATH, upstream, or NAME=COMMAND LINE
                             with {kubeconfig}, {storage} and {address}; a size with `first` only under the first
  testbed bench-helmreleases FLUX CRDS CHART|- COUNT OTHER-CRDS [--without-upstream]
                             the same with releases of one chart, beside so many definitions of others
  testbed bench-sources FLUX CRDS [--small] [--without-upstream] [git|oci|charts|large|index …]
                             sources under this flux and under upstream's source-controller";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["tools", names @ ..] => tools(names),
        ["tool", name] => {
            let tool = find(name)?;
            let first = tool.binaries().next().unwrap_or(name);
            println!("{}", reference::binary(tool, first)?.display());
            Ok(())
        }
        ["tool", name, binary] => {
            println!("{}", reference::binary(find(name)?, binary)?.display());
            Ok(())
        }
        ["go"] => {
            println!("{}", reference::go()?.display());
            Ok(())
        }
        ["up"] => standing::up(),
        ["status"] => standing::status(),
        ["down"] => standing::down(),
        ["run"] => standing::run(),
        ["bench-kustomizations", rest @ ..] => bench::kustomizations::run(rest),
        ["bench-helmreleases", rest @ ..] => bench::helm_releases::run(rest),
        ["bench-sources", rest @ ..] => bench::sources::run(rest),
        _ => bail!("{USAGE}"),
    }
}

/// Builds everything asked for before it reports what could not be had.
fn tools(names: &[&str]) -> Result<()> {
    let wanted: Vec<Tool> = if names.is_empty() {
        Tool::ALL.to_vec()
    } else if names == ["peers"] {
        Tool::PEERS.to_vec()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<_>>()?
    };
    let mut missing = Vec::new();
    for tool in wanted {
        for binary in tool.binaries() {
            match reference::binary(tool, binary) {
                Ok(path) => println!("{}", path.display()),
                Err(error) => {
                    eprintln!("testbed: {binary} of {}: {error:#}", tool.name());
                    missing.push(format!("{binary} ({})", tool.name()));
                }
            }
        }
    }
    if !missing.is_empty() {
        bail!("cannot be had: {}", missing.join(", "));
    }
    Ok(())
}

fn find(name: &str) -> Result<Tool> {
    let Some(tool) = Tool::named(name) else {
        let known: Vec<String> = Tool::ALL.into_iter().chain(Tool::PEERS).map(Tool::name).collect();
        bail!("no tool is called {name}; known are {}", known.join(", "));
    };
    Ok(tool)
}
