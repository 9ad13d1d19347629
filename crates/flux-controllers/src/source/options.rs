//! source-controller's own flags.

use std::time::Duration;

/// What source-controller is told besides what every controller is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// How soon an object is looked at again that waits for another one.
    pub requeue_dependency: Duration,
    pub helm_index_max_size: u64,
    pub helm_chart_max_size: u64,
    pub helm_chart_file_max_size: u64,
    /// Indexes kept in memory; none when zero.
    pub helm_cache_max_size: usize,
    pub helm_cache_ttl: Duration,
    pub helm_cache_purge_interval: Duration,
    /// Key exchanges for ssh, the preferred first; the library's own choice when empty.
    pub ssh_kex_algos: Vec<String>,
    pub ssh_hostkey_algos: Vec<String>,
    /// Whose identity is used at clouds where an object names nobody.
    pub default_service_account: Option<String>,
    /// Tokens kept in memory; none when zero.
    pub token_cache_max_size: usize,
    pub token_cache_max_duration: Duration,
}

impl Options {
    /// As upstream ships them.
    pub fn upstream() -> Self {
        Self {
            requeue_dependency: Duration::from_secs(30),
            helm_index_max_size: 50 << 20,
            helm_chart_max_size: 10 << 20,
            helm_chart_file_max_size: 5 << 20,
            helm_cache_max_size: 0,
            helm_cache_ttl: Duration::from_secs(15 * 60),
            helm_cache_purge_interval: Duration::from_secs(60),
            ssh_kex_algos: Vec::new(),
            ssh_hostkey_algos: Vec::new(),
            default_service_account: None,
            token_cache_max_size: 100,
            token_cache_max_duration: Duration::from_secs(3600),
        }
    }
}
