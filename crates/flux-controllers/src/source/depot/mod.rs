//! What a fleet that is tried on one machine has instead of the network: folders that stand for addresses, and a cache
//! of what was fetched before.
//!
//! Used by `flux up` and `flux test` only; a controller in a cluster has none. What is private stays so: the cache holds
//! what the person who runs the command could fetch, in a folder that nobody else may read.

mod cache;
mod charts;
mod files;
mod remote;

pub use cache::{About, Cache, Entry};
pub use charts::LocalChart;
pub use files::KeptFiles;
pub use remote::{Remote, fetch};

use std::path::PathBuf;

use flux_remote::local::Place;

/// Whether what is far away may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Always, so that news is seen.
    First,
    /// Only for what the cache does not have, so that the same fleet gives the same result.
    IfMissing,
    Never,
}

/// Where sources are taken from besides the network.
#[derive(Clone, Debug)]
pub struct Depot {
    pub stand_ins: Vec<StandIn>,
    pub cache: Option<Cache>,
    pub network: Network,
}

/// A folder, or a packaged chart, that is used in place of what is at some addresses.
#[derive(Clone, Debug)]
pub struct StandIn {
    pub place: Place,
    pub urls: Vec<String>,
}

impl StandIn {
    /// Whether this is what is at `url`, however the address is written.
    pub fn serves(&self, url: &str) -> bool {
        self.urls.iter().any(|known| plain(known) == plain(url))
    }
}

impl Depot {
    /// The files that stand for what is at `url`.
    pub fn files(&self, url: &str) -> Option<&Place> {
        self.stand_ins.iter().find(|one| one.serves(url)).map(|one| &one.place)
    }

    /// The charts that stand for what is at `url`; an error when somebody named a place that cannot be read.
    pub fn charts(&self, url: &str) -> Option<Result<Vec<LocalChart>, String>> {
        let folder = &self.files(url)?.folder;
        Some(
            charts::read(folder).map_err(|error| format!("{}, in place of {url}: {error}", folder.display())),
        )
    }

    /// What to say when something is needed and may not be fetched.
    pub fn missing(&self, what: &str, url: &str) -> String {
        let kept: Option<PathBuf> = self.cache.as_ref().map(|cache| cache.folder().to_owned());
        let cache =
            kept.map_or("there is no cache".to_owned(), |kept| format!("it is not in {}", kept.display()));
        format!(
            "offline: {what} is needed, and {cache}; fetch it once by a run without --offline, or name a copy of it \
             with --local {url}=PATH"
        )
    }
}

/// An address without what does not change its meaning: scheme, user, `.git`, case.
fn plain(url: &str) -> String {
    let url = url.trim_end_matches('/').trim_end_matches(".git");
    let host_and_path = url.split_once("://").map_or(url, |(_, rest)| rest);
    host_and_path.rsplit_once('@').map_or(host_and_path, |(_, rest)| rest).replace(':', "/").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_recognised_however_it_is_written() {
        let place = Place { folder: ".".into(), revision: None };
        let local = StandIn { place, urls: vec!["git@github.com:org/fleet.git".to_owned()] };
        assert!(local.serves("ssh://git@github.com/org/fleet"));
        assert!(local.serves("https://github.com/Org/fleet.git"));
        assert!(!local.serves("https://github.com/org/other"));
    }

    #[test]
    fn what_is_missing_is_named_with_both_ways_out() {
        let depot = Depot { stand_ins: Vec::new(), cache: None, network: Network::Never };
        let text = depot.missing("chart podinfo", "oci://ghcr.io/org/podinfo");
        assert!(text.starts_with("offline: chart podinfo is needed"), "{text}");
        assert!(text.ends_with("--local oci://ghcr.io/org/podinfo=PATH"), "{text}");
    }
}
