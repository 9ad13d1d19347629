//! How the allocator keeps memory. Controllers work in bursts: hundreds of fetches, then an hour of nothing.
//!
//! glibc keeps what a burst needed, apart for each of up to eight arenas a processor, and takes larger pieces into them
//! the longer it runs. Told otherwise it gives them back: 300 GitRepositories that are fetched and fetched again took
//! 82 MiB at the peak without these settings and about 50 with them, for the same CPU.
//!
//! It reads them from the environment before `main`, so the process replaces itself once, under the same id. Whoever
//! sets one of the variables keeps what they set; other C libraries know none of them.

use std::os::unix::process::CommandExt;
use std::process::Command;

const SETTINGS: &[(&str, &str)] = &[
    ("MALLOC_ARENA_MAX", "2"),
    // Fixed: by itself it grows with the pieces that are freed.
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "262144"),
];

/// Does not return where it replaces the process; without, only more memory is used.
pub(crate) fn settle() {
    let missing = missing(|name| std::env::var_os(name).is_some());
    if !cfg!(target_env = "gnu") || missing.is_empty() {
        return;
    }
    let Ok(own) = std::env::current_exe() else { return };
    let mut words = std::env::args_os();
    let mut command = Command::new(own);
    // The name it was called by says which controller it is.
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    let _ = command.args(words).envs(missing).exec();
}

fn missing(is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
    SETTINGS.iter().copied().filter(|(name, _)| !is_set(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_set_is_kept_and_nothing_is_set_twice() {
        assert_eq!(missing(|_| true), []);
        assert_eq!(missing(|_| false), SETTINGS);
        assert!(
            missing(|name| name == "MALLOC_ARENA_MAX").iter().all(|(name, _)| *name != "MALLOC_ARENA_MAX")
        );
    }
}
