//! Manners towards registries: few conversations at once with each, and silence for a while after one said that it is
//! being asked too much. One host that is slow or angry holds up nobody else's scans.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flux_remote::oci;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Hosts remembered; beyond that those that nobody speaks to are forgotten.
const KEPT: usize = 1024;

pub struct Hosts {
    at_once: usize,
    known: Mutex<HashMap<String, Arc<Host>>>,
}

struct Host {
    turns: Arc<Semaphore>,
    pause: Mutex<Pause>,
}

#[derive(Default)]
struct Pause {
    until: Option<Instant>,
    next: Duration,
}

/// A turn to speak to a host.
pub struct Turn {
    host: Arc<Host>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Hosts {
    pub fn new(at_once: usize) -> Self {
        Self { at_once: at_once.max(1), known: Mutex::default() }
    }

    /// Waits for a turn, however long that takes: callers have a deadline and no worker's time.
    pub async fn turn(&self, host: &str) -> Turn {
        let host = self.host(host);
        loop {
            let permit = host.turns.clone().acquire_owned().await.ok();
            let Some(until) = host.quiet_until() else { return Turn { host, _permit: permit } };
            drop(permit);
            tokio::time::sleep_until(until).await;
        }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let fresh =
            || Arc::new(Host { turns: Arc::new(Semaphore::new(self.at_once)), pause: Mutex::default() });
        known.entry(name.to_owned()).or_insert_with(fresh).clone()
    }
}

impl Host {
    fn quiet_until(&self) -> Option<Instant> {
        let pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.until.filter(|until| *until > Instant::now())
    }
}

impl Turn {
    /// Draws the lesson from how it went.
    pub fn learn<T>(&self, result: &Result<T, oci::Error>) {
        let mut pause = self.host.pause.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            // The client has asked again with growing waits; what is still refused now is meant.
            Err(oci::Error::Refused { status: 429 | 503, .. }) => {
                pause.next = (pause.next * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                let share = 0.75 + 0.5 * rand::random::<f64>();
                pause.until = Some(Instant::now() + pause.next.mul_f64(share));
            }
            Ok(_) => *pause = Pause::default(),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> Result<(), oci::Error> {
        Err(oci::Error::Refused { method: "GET", url: String::new(), status, problem: String::new() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_has_enough_is_left_alone_and_the_others_are_not() {
        let hosts = Hosts::new(2);
        hosts.turn("angry").await.learn(&refused(429));
        let begun = Instant::now();
        drop(hosts.turn("friendly").await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let turn = hosts.turn("angry").await;
        assert!(begun.elapsed() >= Duration::from_secs(7) && begun.elapsed() < Duration::from_secs(13));
        turn.learn(&refused(503));
        drop(turn);
        let begun = Instant::now();
        let turn = hosts.turn("angry").await;
        assert!(begun.elapsed() >= Duration::from_secs(15), "the pause grows");
        turn.learn(&Ok::<(), _>(()));
        drop(turn);
        let begun = Instant::now();
        drop(hosts.turn("angry").await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_speak_to_a_host_at_once() {
        let hosts = Hosts::new(2);
        let (first, _second) = (hosts.turn("one").await, hosts.turn("one").await);
        let third = tokio::time::timeout(Duration::from_secs(60), hosts.turn("one")).await;
        assert!(third.is_err());
        drop(first);
        assert!(tokio::time::timeout(Duration::from_secs(1), hosts.turn("one")).await.is_ok());
    }
}
