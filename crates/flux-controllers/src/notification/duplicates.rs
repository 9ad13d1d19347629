//! Remembers which events were told lately, so that one that is sent again and again is told once an interval.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Beyond that everything is forgotten at once: to tell something twice is better than to remember without end.
const REMEMBERED: usize = 100_000;

pub struct Duplicates {
    interval: Duration,
    told: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Duplicates {
    pub fn new(interval: Duration) -> Self {
        // The limiter of upstream takes nothing for a second.
        let interval = if interval.is_zero() { Duration::from_secs(1) } else { interval };
        Self { interval, told: Mutex::default() }
    }

    /// Whether it is new, from when on it is not for an interval. Being sent again does not prolong that.
    pub fn is_new(&self, identity: [u8; 32], now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |at: &Instant| now.saturating_duration_since(*at) < self.interval;
        if told.get(&identity).is_some_and(fresh) {
            return false;
        }
        if told.len() >= REMEMBERED {
            told.retain(|_, at| fresh(at));
            if told.len() >= REMEMBERED {
                told.clear();
            }
        }
        told.insert(identity, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_once_an_interval() {
        let duplicates = Duplicates::new(Duration::from_secs(300));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(duplicates.is_new([1; 32], at(0)));
        assert!(!duplicates.is_new([1; 32], at(1)));
        assert!(duplicates.is_new([2; 32], at(1)));
        assert!(!duplicates.is_new([1; 32], at(299)));
        assert!(duplicates.is_new([1; 32], at(300)), "being refused did not prolong the interval");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let duplicates = Duplicates::new(Duration::from_secs(300));
        let now = Instant::now();
        for index in 0..(REMEMBERED + 10) as u64 {
            let mut identity = [0; 32];
            identity[..8].copy_from_slice(&index.to_le_bytes());
            assert!(duplicates.is_new(identity, now));
        }
        assert!(duplicates.told.lock().unwrap().len() <= REMEMBERED);
    }
}
