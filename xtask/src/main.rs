//! Work on this repository: `cargo xtask <task>`.
//!
//! Compiles in seconds: anything heavy is a binary or an example of another crate that is started with cargo.

mod baseline;
mod bench;
mod cargo;
mod checklist;
mod corpus;
mod crds;
mod docs;
mod measure;
mod test;
mod test_output;
mod testbed;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask <task>

  test [--peers]            everything: format, tidy, checklists, clippy, unit, case, corpus and end-to-end tests
                            (--peers adds what needs upstream's controllers, and long runs)
  testbed up|down|status    a real control plane and a Git server that stay
  corpus [CRATE]            the sets in ../shared (or $FLUX_SHARED): passed, failed, skipped, and each failure
  baseline TOOL             ask the real tool for the expected answers of crates/*/tests/cases again
  bench NAME                ours beside the real tool, in one run (kustomize, helm, kustomizations,
                            helmreleases, sources [--small] [--without-upstream]
                            [git oci charts large index]),
                            or under load (apiserver, images, notifications)
  bench kustomizations [COUNT:FILES[:first],…] [ours|ours=PATH|upstream|NAME=COMMAND LINE]…
  crds                      write manifests/crds from flux-api
  checklist [--write]       every line of docs/compatibility/*.md has an id and names tests that run
  docs                      write docs/reference from the code; links in Markdown and rustdoc are whole
  tidy                      the rules of ARCHITECTURE.md that a program can check";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["test"] => test::run(test::Scope::Usual),
        ["test", "--peers"] => test::run(test::Scope::WithPeers),
        ["testbed", command @ ("up" | "down" | "status")] => testbed::run(command),
        ["corpus"] => corpus::run(None),
        ["corpus", package] => corpus::run(Some(package)),
        ["baseline", tool] => baseline::run(tool),
        ["bench", name, rest @ ..] => bench::run(name, rest),
        ["crds"] => crds::run(),
        ["checklist"] => checklist::run(checklist::Ids::Check),
        ["checklist", "--write"] => checklist::run(checklist::Ids::Assign),
        ["docs"] => docs::run(),
        ["tidy"] => tidy::run(),
        // Not for people: the bench starts it to learn what one process used.
        ["measure", report, program, rest @ ..] => measure::child(report, program, rest),
        _ => bail!("{USAGE}"),
    }
}
