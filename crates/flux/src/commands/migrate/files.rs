//! Manifests in files: `apiVersion` lines are rewritten in place, everything else stays as it was typed.
//!
//! Lines are scanned, not parsed, so that templates can be migrated too: `kind` must be the line after `apiVersion`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use flux_api::kinds::{self as api, Kind};

use crate::commands::delete::confirmed;
use crate::error::{CliError, fail, go_cause};
use crate::output;
use crate::tree::Invocation;

const SUPPORTED: [&str; 4] = ["2.9", "2.8", "2.7", "2.6"];
/// A file that is longer is no manifest.
const MOST_BYTES: u64 = 64 << 20;
/// Folders deeper than this are refused.
const DEEPEST: usize = 256;

pub(super) fn run(run: &Invocation) -> Result<(), CliError> {
    let target = run.some("version").unwrap_or(SUPPORTED[0]);
    if !SUPPORTED.contains(&target) {
        return Err(fail!(
            "version {target} is not supported, supported versions are: {}",
            SUPPORTED.join(", ")
        ));
    }
    output::action("starting migration of custom resources");
    let extensions = run.list("extensions");
    let path = clean(Path::new(run.text("path")));
    let files = list(&path, &extensions)?;
    let mut upgrades = Vec::new();
    for file in files {
        let text = read(&file)?;
        let found = detect(&file, &text, target == "2.6");
        if !found.is_empty() {
            for upgrade in &found {
                let Upgrade { line, kind, from, to } = upgrade;
                output::generating(&format!("{}:{}: {kind} {from} -> {to}", file.display(), line + 1));
            }
            upgrades.push((file, found));
        }
    }
    if upgrades.is_empty() {
        output::success("no custom resources found that require migration");
        return Ok(());
    }
    if run.is("dry-run") {
        output::success("dry-run mode enabled, no changes will be made");
        return Ok(());
    }
    if !run.is("yes") && !confirmed("Are you sure you want to proceed with the above upgrades") {
        return Err(CliError::new(""));
    }
    for (file, found) in &upgrades {
        rewrite(file, found)?;
        output::success(&format!("file {} migrated successfully", file.display()));
    }
    output::success("custom resources migrated successfully");
    Ok(())
}

/// As Go cleans a path: `a/../b/` becomes `b`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(clean.components().next_back(), Some(Component::Normal(_))) => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    if clean.as_os_str().is_empty() { PathBuf::from(".") } else { clean }
}

/// Only what lies below the working folder is touched.
fn list(path: &Path, extensions: &[String]) -> Result<Vec<PathBuf>, CliError> {
    let shown = path.display();
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(fail!("failed to stat path {shown}: open {shown}: invalid argument"));
    }
    let metadata = fs::metadata(path)
        .map_err(|error| fail!("failed to stat path {shown}: openat {shown}: {}", go_cause(&error)))?;
    let fits = |path: &Path| extensions.iter().any(|end| path.to_string_lossy().ends_with(end.as_str()));
    if metadata.is_dir() {
        let mut files = Vec::new();
        walk(path, &fits, 0, &mut files)?;
        return Ok(files);
    }
    if !fits(path) {
        return Err(fail!("file {shown} does not match the specified extensions: {}", extensions.join(", ")));
    }
    if fs::symlink_metadata(path).is_ok_and(|at| !at.is_file()) {
        return Err(fail!("file {shown} is irregular"));
    }
    Ok(vec![path.to_owned()])
}

fn walk(
    folder: &Path,
    fits: &dyn Fn(&Path) -> bool,
    depth: usize,
    files: &mut Vec<PathBuf>,
) -> Result<(), CliError> {
    let failed =
        |error: std::io::Error| fail!("failed to walk directory {}: {}", folder.display(), go_cause(&error));
    if depth > DEEPEST {
        return Err(fail!(
            "failed to walk directory {}: folders are more than {DEEPEST} deep",
            folder.display()
        ));
    }
    let mut entries: Vec<_> =
        fs::read_dir(folder).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = PathBuf::from(entry.file_name());
        let path = if folder == Path::new(".") { name } else { folder.join(name) };
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            walk(&path, fits, depth + 1, files)?;
        } else if fits(&path) {
            if kind.is_file() {
                files.push(path);
            } else {
                output::warning(&format!("skipping irregular file {}", path.display()));
            }
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, CliError> {
    let failed = |cause: String| fail!("failed to read file {}: {cause}", file.display());
    let length = fs::metadata(file).map_err(|error| failed(go_cause(&error)))?.len();
    if length > MOST_BYTES {
        return Err(failed(format!("longer than {MOST_BYTES} bytes")));
    }
    fs::read_to_string(file).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => failed("it is not text".to_owned()),
        _ => failed(go_cause(&error)),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Upgrade {
    line: usize,
    kind: String,
    from: String,
    to: &'static str,
}

fn detect(file: &Path, text: &str, flux_2_6: bool) -> Vec<Upgrade> {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut found = Vec::new();
    for (line, pair) in lines.windows(2).enumerate() {
        let Some(version) = value(pair[0], "apiVersion: ") else { continue };
        if version.matches('/').count() > 1 {
            output::warning(&format!(
                "{}:{}: unexpected GroupVersion string: {version}",
                file.display(),
                line + 1
            ));
            continue;
        }
        let (group, from) = version.split_once('/').unwrap_or(("", version));
        let Some(kind) = value(pair[1], "kind: ") else { continue };
        let known = api::ALL.iter().find(|known| known.group == group && known.kind == kind);
        let Some(to) = known.and_then(|known| newest(known, flux_2_6)).filter(|to| *to != from) else {
            continue;
        };
        found.push(Upgrade { line, kind: kind.to_owned(), from: from.to_owned(), to });
    }
    found
}

/// The word after `key`, wherever in the line it stands.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line[line.find(key)? + key.len()..].trim();
    Some(rest.split(' ').next().unwrap_or_default())
}

/// The newest version of a kind; Flux 2.6 had older ones of the image kinds, and no generator.
fn newest(kind: &Kind, flux_2_6: bool) -> Option<&'static str> {
    let of_2_9 = match kind.kind {
        "Alert" | "Provider" => "v1beta3",
        "ArtifactGenerator" => "v1beta1",
        "HelmRelease" => "v2",
        _ => "v1",
    };
    match kind.kind {
        "ArtifactGenerator" if flux_2_6 => None,
        "ImageRepository" | "ImagePolicy" | "ImageUpdateAutomation" if flux_2_6 => Some("v1beta2"),
        _ => Some(of_2_9),
    }
}

fn rewrite(file: &Path, upgrades: &[Upgrade]) -> Result<(), CliError> {
    let text = read(file)?;
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for Upgrade { line, from, to, .. } in upgrades {
        lines[*line] = lines[*line].replacen(from.as_str(), to, 1);
    }
    fs::write(file, lines.join("\n"))
        .map_err(|error| fail!("failed to write file {}: {}", file.display(), go_cause(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_of_known_kinds_is_an_upgrade() {
        let text = "apiVersion: image.toolkit.fluxcd.io/v1beta2 # old\nkind: ImagePolicy\n---\napiVersion: v1\nkind: Secret\n";
        let found = detect(Path::new("x"), text, false);
        let want = Upgrade { line: 0, kind: "ImagePolicy".to_owned(), from: "v1beta2".to_owned(), to: "v1" };
        assert_eq!(found, [want]);
        assert_eq!(detect(Path::new("x"), text, true), []);
    }

    #[test]
    fn paths_are_cleaned() {
        assert_eq!(clean(Path::new("./a/../b/")), Path::new("b"));
        assert_eq!(clean(Path::new("../x")), Path::new("../x"));
    }
}
