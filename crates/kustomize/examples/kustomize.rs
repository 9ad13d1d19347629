//! `kustomize build DIR` on top of the crate, to be compared with the real one: the same output, errors and exit
//! code. The whole file system is the tree of files.
#![allow(clippy::disallowed_methods, reason = "the example is where files come from")]

mod disk;

use std::io::Write as _;
use std::process::ExitCode;

use disk::Disk;
use file_tree::TreePath;
use kustomize::{LoadRestrictions, Options, Reorder};

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    match args.next().as_deref() {
        Some("build") => {}
        other => return Err(format!("unknown command {:?} for \"kustomize\"", other.unwrap_or_default())),
    }
    let (folder, options) = parse(args)?;
    let absolute = std::path::absolute(&folder).map_err(|error| error.to_string())?;
    let path = absolute.to_str().ok_or("the path is no UTF-8")?;
    let root = TreePath::parse(path).map_err(|error| error.to_string())?;
    let mut warnings = Vec::new();
    let built = kustomize::build_reporting(&Disk, &root, None, &options, &mut warnings);
    for warning in warnings {
        eprintln!("{warning}");
    }
    let manifests = built.map_err(|error| {
        error.to_string().replacen(&format!("'{path}'"), &format!("'{folder}'"), shown_as_given(&error))
    })?;
    let yaml = manifests.to_yaml().map_err(|error| error.to_string())?;
    std::io::stdout().write_all(yaml.as_bytes()).map_err(|error| error.to_string())
}

/// Only the folder on the command line is shown as it was given there.
fn shown_as_given(error: &kustomize::Error) -> usize {
    usize::from(
        matches!(error, kustomize::Error::Context { context, .. } if context == "must build at directory"),
    )
}

fn parse(args: impl Iterator<Item = String>) -> Result<(String, Options), String> {
    let mut options = Options::COMMAND;
    let mut folder = None;
    let mut args = args.flat_map(|arg| match arg.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => vec![flag.to_owned(), value.to_owned()],
        _ => vec![arg],
    });
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--load-restrictor" => {
                options.load_restrictions = match args.next().as_deref() {
                    Some("LoadRestrictionsNone") => LoadRestrictions::None,
                    Some("LoadRestrictionsRootOnly" | "") => LoadRestrictions::RootOnly,
                    other => {
                        return Err(format!(
                            "illegal flag value --load-restrictor {}; legal values: [LoadRestrictionsRootOnly LoadRestrictionsNone]",
                            other.unwrap_or_default()
                        ));
                    }
                };
            }
            "--reorder" => {
                eprintln!(
                    "Flag --reorder has been deprecated, use the new 'sortOptions' field in kustomization.yaml instead."
                );
                options.reorder = match args.next().as_deref() {
                    Some("none") => Reorder::None,
                    Some("legacy") => Reorder::Legacy,
                    other => {
                        return Err(format!(
                            "illegal flag value --reorder {}; legal values: [legacy none]",
                            other.unwrap_or_default()
                        ));
                    }
                };
            }
            "--enable-managedby-label" => {
                eprintln!(
                    "Flag --enable-managedby-label has been deprecated, The flag `enable-managedby-label` has been deprecated. Use the `managedByLabel` option in the `buildMetadata` field instead."
                );
                options.add_managed_by_label = true;
            }
            flag if flag.starts_with('-') && flag.len() > 1 => return Err(format!("unknown flag: {flag}")),
            _ if folder.is_some() => return Err("specify one path to kustomization.yaml".to_owned()),
            _ => folder = Some(arg),
        }
    }
    Ok((folder.unwrap_or_else(|| ".".to_owned()), options))
}
