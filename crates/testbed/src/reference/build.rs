//! Builds one binary of a reference tool in a scratch module, with progress on stderr.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::go;
use super::tools::Recipe;

/// How often a long build says that it is still at work.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Forks that the proxy does not hand out, and the release each is a fork of.
const UNPUBLISHED: [(&str, &str); 1] =
    [("github.com/fluxcd/helm/v4 v4.2.4-flux.1", "helm.sh/helm/v4 v4.2.4")];

/// A folder that is not there: etcd's way to say that nobody may require a module.
const FORBIDDEN: &str = "./FORBIDDEN_DEPENDENCY";

/// Builds `package` and moves the binary to `destination` in one step, so that nobody sees half of it.
pub(super) fn build(
    recipe: &Recipe,
    name: &str,
    package: &str,
    destination: &Path,
    cache: &Path,
) -> Result<()> {
    let go = go::toolchain(cache)?;
    let module = cache.join("build").join(recipe.folder());
    std::fs::create_dir_all(&module)?;
    let title = format!("{name} {}", recipe.version);
    eprintln!("testbed: building {title} from {} (once)", recipe.module);
    write_module(&go, recipe, &module)
        .with_context(|| format!("resolve {}@v{}", recipe.module, recipe.version))?;

    let unfinished = module.join(format!("{name}.new"));
    let started = Instant::now();
    let mut command = command(&go, &module);
    // A package of tests becomes a binary of tests, which takes the same flags.
    match name.ends_with(".test") {
        true => command.args(["test", "-c", "-vet=off"]),
        false => command.arg("build"),
    };
    command
        .args(["-v", "-mod=mod", "-ldflags", &linker_flags(recipe)])
        .arg("-o")
        .arg(&unfinished)
        .arg(package);
    run_with_progress(&mut command, &title).with_context(|| format!("build {title}"))?;
    std::fs::rename(&unfinished, destination).with_context(|| format!("move {title} into the cache"))?;
    eprintln!("testbed: built {title} in {} s", started.elapsed().as_secs());
    Ok(())
}

/// Whether an unstamped binary is complete and of the right version. It is when it says so itself.
pub(super) fn answers_to_its_version(path: &Path, recipe: &Recipe) -> bool {
    let mut command = Command::new(path);
    // kubectl has no `--version` flag, and `version` alone would ask a server.
    if recipe.version_command.is_empty() {
        return false;
    }
    if path.ends_with("kubectl") {
        command.args(["version", "--client"]);
    } else {
        command.args(recipe.version_command);
    }
    command.output().is_ok_and(|output| {
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains(recipe.version)
    })
}

fn linker_flags(recipe: &Recipe) -> String {
    match recipe.version_variable {
        Some(variable) => format!("-s -w -X {variable}{}", recipe.version),
        None => "-s -w".to_owned(),
    }
}

/// A module that requires the tool and replaces what the tool's own go.mod replaces: Go heeds replacements in the
/// main module only. Written anew each time, so that what an interrupted attempt left behind does not matter.
fn write_module(go: &Path, recipe: &Recipe, module: &Path) -> Result<()> {
    let start = "module reference\n\ngo 1.26\n";
    std::fs::write(module.join("go.mod"), start)?;
    let requirement = format!("{}@v{}", recipe.module, recipe.version);
    let output = run(command(go, module).args(["mod", "download", "-json", &requirement]))?;
    let answer: serde_json::Value = serde_json::from_str(&output)?;
    let path = answer["GoMod"].as_str().context("go named no go.mod")?;
    let published = answer["Dir"].as_str().context("go named no folder")?;
    let upstream = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let mut text = format!("{start}\nrequire {} v{}\n\n", recipe.module, recipe.version);
    for replacement in replacements(&upstream, &recipe.version_of_folders()) {
        text.push_str(&format!("replace {replacement}\n"));
    }
    std::fs::write(module.join("go.mod"), text)?;
    if recipe.added_files.is_empty() {
        return Ok(());
    }
    complete(go, recipe, module, Path::new(published))
}

/// Puts a copy of the module beside go.mod, adds the files that the published one lacks, and builds from the copy.
fn complete(go: &Path, recipe: &Recipe, module: &Path, published: &Path) -> Result<()> {
    let copy = module.join("source");
    if copy.exists() {
        std::fs::remove_dir_all(&copy)?;
    }
    copy_folder(published, &copy)?;
    for (name, content) in recipe.added_files {
        let path = copy.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    let replacement = format!("{}=./source", recipe.module);
    run(command(go, module).args(["mod", "edit", "-replace", &replacement]))?;
    Ok(())
}

/// Files of the module cache are read-only; copies of their content are not.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::write(target, std::fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let (out, error) = (&output.stdout, &output.stderr);
        let (out, error) = (String::from_utf8_lossy(out), String::from_utf8_lossy(error));
        bail!("{} {}", error.trim(), out.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The replacements of a go.mod, with modules in folders of the same repository named by their published version.
fn replacements(upstream: &str, version_of_folders: &str) -> Vec<String> {
    upstream
        .lines()
        .filter_map(|line| {
            let line = line.split("//").next()?.trim();
            let line = line.strip_prefix("replace ").unwrap_or(line);
            let (name, target) = line.split_once(" => ")?;
            let (name, target) = (name.trim(), target.trim());
            let published = UNPUBLISHED.iter().find(|(fork, _)| *fork == target);
            let target = published.map_or(target, |(_, release)| release);
            if target == FORBIDDEN {
                return None;
            }
            Some(if target.starts_with("./") || target.starts_with("../") {
                format!("{name} => {name} {version_of_folders}")
            } else {
                format!("{name} => {target}")
            })
        })
        .collect()
}

fn command(go: &Path, module: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .current_dir(module)
        .env("GOTOOLCHAIN", "local")
        // A workspace or vendor setting of the person who runs the tests is not ours.
        .env("GOWORK", "off")
        .env("GOFLAGS", "-buildvcs=false")
        .stdin(Stdio::null());
    command
}

fn run_with_progress(command: &mut Command, title: &str) -> Result<()> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().context("no stderr")?;
    let (started, mut said) = (Instant::now(), Instant::now());
    let (mut modules, mut packages) = (0, 0);
    let mut tail = VecDeque::new();
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        if line.starts_with("go: downloading") {
            modules += 1;
        } else {
            packages += 1;
        }
        tail.push_back(line);
        if tail.len() > 20 {
            tail.pop_front();
        }
        if said.elapsed() > PROGRESS_EVERY {
            said = Instant::now();
            eprintln!(
                "testbed: … {title}: {modules} modules fetched, {packages} packages compiled, {} s",
                started.elapsed().as_secs()
            );
        }
    }
    if !child.wait()?.success() {
        bail!("{}", Vec::from(tail).join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_taken_over_and_folders_become_versions() {
        let text = "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tx v1.0.0 => y v2.0.0 // why\n)\nreplace k8s.io/kms => ./kms\n";
        let expected =
            ["k8s.io/api => k8s.io/api v0.36.3", "x v1.0.0 => y v2.0.0", "k8s.io/kms => k8s.io/kms v0.36.3"];
        assert_eq!(replacements(text, "v0.36.3"), expected);
        let text = "replace (\n\tx/api/v3 => ../api\n)\nreplace x => ./FORBIDDEN_DEPENDENCY\n";
        assert_eq!(replacements(text, "v3.6.8"), ["x/api/v3 => x/api/v3 v3.6.8"]);
    }

    #[test]
    fn a_missing_binary_does_not_answer() {
        let recipe = super::super::Tool::Kustomize.recipe();
        assert!(!answers_to_its_version(Path::new("/nowhere"), &recipe));
    }
}
