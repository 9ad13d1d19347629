//! `flux plugin`, and plugins themselves: programs called `flux-…` in a folder become commands.
//!
//! A plugin replaces this process, so its exit code and its signals are its own.

mod catalog;

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{CliError, fail, go_cause};
use crate::output;
use crate::tree::{self, Invocation};

use catalog::Catalog;

const PREFIX: &str = "flux-";

/// A program that is a command.
pub(crate) struct Plugin {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Plugins that no command of our own hides, by name.
pub(crate) fn installed() -> Vec<Plugin> {
    let Some(folder) = folder() else { return Vec::new() };
    let mut plugins: Vec<Plugin> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?.strip_prefix(PREFIX)?.to_owned();
            let path = entry.path();
            let program = std::fs::metadata(&path).ok()?;
            let runs = program.is_file() && program.permissions().mode() & 0o111 != 0;
            let free = !name.is_empty()
                && !matches!(name.as_str(), "plugin" | "help")
                && tree::by_path(&name).is_none();
            (runs && free).then_some(Plugin { name, path })
        })
        .collect();
    plugins.sort_by(|one, other| one.name.cmp(&other.name));
    plugins
}

/// Becomes the plugin that the first word names; only returns if there is none, or if it cannot be run.
pub(crate) fn exec(words: &[String]) -> Result<(), CliError> {
    let Some((name, rest)) = words.split_first() else { return Ok(()) };
    if name.starts_with('-') {
        return Ok(());
    }
    let Some(plugin) = installed().into_iter().find(|plugin| plugin.name == *name) else { return Ok(()) };
    let error = std::process::Command::new(&plugin.path).args(rest).exec();
    Err(fail!("{}: {}", plugin.path.display(), go_cause(&error)))
}

/// `$FLUXCD_PLUGINS`, else `~/.fluxcd/plugins`.
fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("FLUXCD_PLUGINS")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".fluxcd/plugins")))
}

/// The folder to write to. One that the user chose is not made for them.
fn folder_to_write() -> Result<PathBuf, CliError> {
    let folder = folder().ok_or_else(|| fail!("no folder for plugins: set FLUXCD_PLUGINS or HOME"))?;
    if std::env::var_os("FLUXCD_PLUGINS").is_none_or(|value| value.is_empty()) {
        // What is wrong with it will be told when something is written there.
        let _ = std::fs::create_dir_all(&folder);
    }
    Ok(folder)
}

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    match run.row.path {
        "plugin list" => list(),
        "plugin uninstall" => uninstall(run.name().unwrap_or_default()),
        "plugin install" => install(run.name().unwrap_or_default()).await,
        "plugin update" => update(run.name()).await,
        _ => search(run.name()).await,
    }
}

fn receipt_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{name}.yaml"))
}

/// The version a receipt tells of; programs put there by hand have none.
fn installed_version(name: &str) -> Option<String> {
    let bytes = std::fs::read(receipt_path(&folder()?, name)).ok()?;
    let receipt = yaml::to_json(&bytes).ok()?;
    receipt.get("version").and_then(Value::as_str).map(str::to_owned)
}

fn list() -> Result<(), CliError> {
    let plugins = installed();
    if plugins.is_empty() {
        return output::data("No plugins found\n");
    }
    let row = |plugin: &Plugin| {
        let version = installed_version(&plugin.name).unwrap_or_else(|| "manual".to_owned());
        vec![plugin.name.clone(), version, plugin.path.display().to_string()]
    };
    let rows: Vec<Vec<String>> = plugins.iter().map(row).collect();
    output::data(&output::table(&["NAME", "VERSION", "PATH"].map(str::to_owned), &rows))
}

fn uninstall(name: &str) -> Result<(), CliError> {
    let folder = folder().unwrap_or_default();
    let program = folder.join(format!("{PREFIX}{name}"));
    if name.contains('/') || std::fs::symlink_metadata(&program).is_err() {
        return Err(fail!("plugin {name:?} is not installed"));
    }
    std::fs::remove_file(&program).map_err(|error| {
        fail!("failed to remove plugin binary: {}: {}", program.display(), go_cause(&error))
    })?;
    let receipt = receipt_path(&folder, name);
    if receipt.exists() {
        std::fs::remove_file(&receipt).map_err(|error| {
            fail!("failed to remove plugin receipt: {}: {}", receipt.display(), go_cause(&error))
        })?;
    }
    output::success(&format!("uninstalled {name}"));
    Ok(())
}

/// `name`, `name@version` or `name@sha256:…`
async fn install(wanted: &str) -> Result<(), CliError> {
    let (name, reference) = wanted.split_once('@').unwrap_or((wanted, ""));
    let catalog = Catalog::open()?;
    let manifest = catalog.manifest(name).await?;
    let release = manifest.release(reference)?;
    let folder = folder_to_write()?;
    catalog.install(&folder, &manifest, &release).await?;
    output::success(&format!("installed {name} v{}", release.version));
    Ok(())
}

async fn update(only: Option<&str>) -> Result<(), CliError> {
    let mut plugins = installed();
    if plugins.is_empty() {
        return output::data("No plugins found\n");
    }
    if let Some(name) = only {
        plugins.retain(|plugin| plugin.name == name);
        if plugins.is_empty() {
            return Err(fail!("plugin {name:?} is not installed"));
        }
    }
    let catalog = Catalog::open()?;
    let folder = folder_to_write()?;
    for plugin in plugins {
        update_one(&catalog, &folder, &plugin.name).await;
    }
    Ok(())
}

/// What goes wrong with one plugin does not stop the others.
async fn update_one(catalog: &Catalog, folder: &Path, name: &str) {
    let Some(version) = installed_version(name) else {
        return output::warning(&format!("skipping {name} (manually installed)"));
    };
    let newest = async {
        let manifest = catalog.manifest(name).await?;
        let release = manifest.release("")?;
        Ok::<_, CliError>((manifest, release))
    };
    let (manifest, release) = match newest.await {
        Ok(newest) => newest,
        Err(error) => return output::failure(&format!("error checking {name}: {error}")),
    };
    if release.version == version {
        return output::success(&format!("{name} already up to date (v{version})"));
    }
    match catalog.install(folder, &manifest, &release).await {
        Ok(()) => output::success(&format!("updated {name} v{version} → v{}", release.version)),
        Err(error) => output::failure(&format!("error updating {name}: {error}")),
    }
}

async fn search(query: Option<&str>) -> Result<(), CliError> {
    let wanted = query.unwrap_or_default().to_lowercase();
    let mut rows = Vec::new();
    for (name, description) in Catalog::open()?.all().await? {
        if name.to_lowercase().contains(&wanted) || description.to_lowercase().contains(&wanted) {
            let installed = installed_version(&name).unwrap_or_default();
            rows.push(vec![name, description, installed]);
        }
    }
    match (rows.is_empty(), query) {
        (true, Some(query)) => output::data(&format!("No plugins matching {query:?} found in catalog\n")),
        (true, None) => output::data("No plugins found in catalog\n"),
        (false, _) => {
            output::data(&output::table(&["NAME", "DESCRIPTION", "INSTALLED"].map(str::to_owned), &rows))
        }
    }
}
