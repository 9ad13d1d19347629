//! `--cache`, `--offline`, `--local`: what a fleet on this machine has instead of the network.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flux_controllers::source::depot::{Cache, Depot, Network, StandIn};
use flux_remote::local::Place;

use crate::tree::Invocation;

/// What the flags say. `network` is what holds without `--offline`.
pub(crate) fn from_flags(run: &Invocation, network: Network) -> Result<Depot> {
    let cache = run.some("cache").map_or_else(default_cache, |folder| Some(PathBuf::from(folder)));
    let cache = match cache {
        Some(folder) => Some(Cache::open(&folder).with_context(|| format!("--cache {}", folder.display()))?),
        None => None,
    };
    let network = if run.is("offline") { Network::Never } else { network };
    Ok(Depot { stand_ins: stand_ins(&run.list("local"))?, cache, network })
}

/// Below the folder where programs of this person keep what they can do without.
fn default_cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("flux/sources"))
}

/// `URL=PATH` each, or the name of a file that holds one such line for each address.
fn stand_ins(given: &[String]) -> Result<Vec<StandIn>> {
    let mut all = Vec::new();
    for text in given {
        if is_mapping(text) {
            all.push(stand_in(text, Path::new(""))?);
            continue;
        }
        let file = Path::new(text);
        let lines = std::fs::read_to_string(file).with_context(|| {
            format!("--local {text}: neither URL=PATH nor a file of such lines that can be read")
        })?;
        let folder = file.parent().unwrap_or(Path::new(""));
        for (number, line) in lines.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                all.push(stand_in(line, folder).with_context(|| format!("{text}:{}", number + 1))?);
            }
        }
    }
    Ok(all)
}

/// An address has slashes before the sign; a file name with a sign in it rarely.
fn is_mapping(text: &str) -> bool {
    text.split_once('=')
        .is_some_and(|(url, _)| url.contains("://") || url.contains('@') || !Path::new(text).exists())
}

fn stand_in(text: &str, beside: &Path) -> Result<StandIn> {
    let Some((url, path)) = text.split_once('=').filter(|(url, path)| !url.is_empty() && !path.is_empty())
    else {
        bail!("'{text}' is not of the form URL=PATH");
    };
    let path = beside.join(path.trim());
    if !path.exists() {
        bail!("{url}: {} does not exist", path.display());
    }
    let place = Place { folder: path, revision: None };
    Ok(StandIn { place, urls: vec![url.trim().to_owned()] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_mapped_one_by_one_or_by_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("charts")).unwrap();
        let list = folder.path().join("local.txt");
        std::fs::write(&list, "# ours\n\noci://r.example.com/web = charts\n").unwrap();
        let direct = format!("https://charts.example.com={}", folder.path().display());
        let found = stand_ins(&[direct, list.display().to_string()]).unwrap();
        assert!(found[0].serves("https://charts.example.com/"));
        assert!(found[1].serves("oci://r.example.com/web"));
        assert_eq!(found[1].place.folder, folder.path().join("charts"));
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("local.txt");
        std::fs::write(&list, "\nhttps://a.example.com=nowhere\n").unwrap();
        let text = |given: &str| format!("{:#}", stand_ins(&[given.to_owned()]).unwrap_err());
        let error = text(&list.display().to_string());
        assert!(error.contains("local.txt:2") && error.contains("nowhere does not exist"), "{error}");
        let error = text("missing.txt");
        assert!(error.contains("neither URL=PATH nor a file"), "{error}");
    }
}
