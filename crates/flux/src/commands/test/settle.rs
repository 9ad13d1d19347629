//! When a fleet has settled: every object has said how it is, and nothing moves any more.

use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;

use crate::fleet::{Seen, Verdict, seen};

const LOOK: Duration = Duration::from_millis(50);
/// Nothing has changed for this long, and everybody has a verdict. A dependency that becomes ready wakes its dependents
/// at once, so a longer silence brings no news.
const QUIET: Duration = Duration::from_millis(400);
/// Nothing has changed for this long although somebody still waits: for something that will not come.
const STUCK: Duration = Duration::from_millis(2_500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Yes,
    /// Somebody still waited when the time was up.
    No,
}

/// The objects of Flux as they are when they have settled, or when `limit` is over.
pub(super) async fn wait(client: &Client, limit: Duration) -> Result<(Vec<Seen>, Settled)> {
    let started = Instant::now();
    let mut versions = Vec::new();
    let mut changed = Instant::now();
    loop {
        let objects = seen::flux_objects(client).await?;
        let now: Vec<String> = objects.iter().map(|object| object.resource_version().to_owned()).collect();
        if now != versions {
            versions = now;
            changed = Instant::now();
        }
        let waiting = objects.iter().any(|object| object.verdict == Verdict::Waiting);
        let silence = changed.elapsed();
        match waiting {
            false if silence >= QUIET && !objects.is_empty() => return Ok((objects, Settled::Yes)),
            true if silence >= STUCK => return Ok((objects, Settled::No)),
            _ if started.elapsed() >= limit => {
                return Ok((objects, if waiting { Settled::No } else { Settled::Yes }));
            }
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}
