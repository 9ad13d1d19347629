//! helm-controller's gate OOMWatch: shortly before the kernel would end the process without a word, it ends in order, and releases
//! under way are finished or left in a state that the next process knows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{CliError, fail};

const CGROUP: &str = "/sys/fs/cgroup";
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// The flags of the watch.
pub(super) struct Flags {
    pub(super) max_path: String,
    pub(super) current_path: String,
    pub(super) threshold_percent: u8,
    pub(super) interval: Duration,
}

/// What is looked at, and when it is too much.
#[derive(Debug)]
pub(super) struct OomWatch {
    limit: u64,
    current: PathBuf,
    threshold_percent: u8,
    interval: Duration,
}

impl OomWatch {
    pub(super) fn new(flags: &Flags) -> Result<Self, CliError> {
        if !(1..=100).contains(&flags.threshold_percent) {
            return Err(fail!(
                "--oom-watch-memory-threshold '{}' must be from 1 to 100",
                flags.threshold_percent
            ));
        }
        if flags.interval < SHORTEST_INTERVAL {
            return Err(fail!("--oom-watch-interval must be at least {}ms", SHORTEST_INTERVAL.as_millis()));
        }
        // The second version of control groups has its files at the root, the first has a folder for memory.
        let max = place(
            "oom-watch-max-memory-path",
            &flags.max_path,
            "memory.max",
            "memory/memory.limit_in_bytes",
        )?;
        let current = place(
            "oom-watch-current-memory-path",
            &flags.current_path,
            "memory.current",
            "memory/memory.usage_in_bytes",
        )?;
        let limit = number(&max).map_err(|error| {
            fail!("the gate OOMWatch needs a limit of memory, and {} has none: {error}", max.display())
        })?;
        number(&current).map_err(|error| fail!("cannot read {}: {error}", current.display()))?;
        Ok(Self { limit, current, threshold_percent: flags.threshold_percent, interval: flags.interval })
    }

    /// Ends when so much memory is in use that the process should.
    pub(super) async fn near(&self) {
        loop {
            tokio::time::sleep(self.interval).await;
            match number(&self.current) {
                Ok(current) if is_near(current, self.limit, self.threshold_percent) => {
                    tracing::info!(current, limit = self.limit, "memory is nearly used up, shutting down");
                    return;
                }
                Ok(_) => {}
                Err(error) => tracing::error!(error, "memory in use could not be read"),
            }
        }
    }
}

fn place(flag: &str, given: &str, second: &str, first: &str) -> Result<PathBuf, CliError> {
    if !given.is_empty() {
        return Ok(PathBuf::from(given));
    }
    let candidates = [second, first].map(|name| Path::new(CGROUP).join(name));
    let found = candidates.into_iter().find(|path| path.exists());
    found.ok_or_else(|| {
        fail!("no control group for memory is below {CGROUP}: set --{flag} or leave the gate OOMWatch off")
    })
}

fn number(path: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.trim().parse().map_err(|_| format!("'{}' is no number", text.trim()))
}

fn is_near(current: u64, limit: u64, threshold_percent: u8) -> bool {
    u128::from(current) * 100 >= u128::from(limit) * u128::from(threshold_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(folder: &Path) -> Flags {
        let path = |name: &str| folder.join(name).display().to_string();
        Flags {
            max_path: path("max"),
            current_path: path("current"),
            threshold_percent: 95,
            interval: SHORTEST_INTERVAL,
        }
    }

    #[tokio::test]
    async fn it_ends_when_the_threshold_is_reached_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("max"), "1000\n").unwrap();
        std::fs::write(folder.path().join("current"), "949\n").unwrap();
        let watch = OomWatch::new(&flags(folder.path())).unwrap();
        tokio::time::timeout(SHORTEST_INTERVAL * 4, watch.near()).await.expect_err("there is room");
        std::fs::write(folder.path().join("current"), "950\n").unwrap();
        watch.near().await;
    }

    #[test]
    fn a_watch_that_cannot_work_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = |flags: &Flags| OomWatch::new(flags).unwrap_err().to_string();
        assert!(error(&flags(folder.path())).contains("max"), "{}", error(&flags(folder.path())));
        std::fs::write(folder.path().join("max"), "max\n").unwrap();
        assert!(error(&flags(folder.path())).contains("'max' is no number"));
        assert!(error(&Flags { threshold_percent: 0, ..flags(folder.path()) }).contains("from 1 to 100"));
        assert!(
            error(&Flags { interval: Duration::from_millis(9), ..flags(folder.path()) }).contains("50ms")
        );
    }
}
