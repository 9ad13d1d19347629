//! Tokens in memory, for as long as they are good.

use std::collections::HashMap;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// How often a cache had what was asked for, and what is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    pub hits: u64,
    pub misses: u64,
    /// What had to go for something newer, or because its time was over.
    pub evictions: u64,
    pub items: u64,
}

/// Whether a token was at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheEvent {
    Hit,
    Miss,
}

impl Add for CacheCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            items: self.items + other.items,
        }
    }
}

pub(super) struct TokenCache<T> {
    entries: Mutex<HashMap<String, (Timestamp, T)>>,
    most: usize,
    longest: Duration,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

impl<T: Clone> TokenCache<T> {
    /// Keeps at most `most` entries, none of them longer than `longest`.
    pub(super) fn new(most: usize, longest: Duration) -> Self {
        Self {
            entries: Mutex::default(),
            most,
            longest,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self, key: &str, now: Timestamp) -> Option<T> {
        let found = self.entries().get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone());
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Keeps `value` for four fifths of the time it is good, as upstream does.
    pub(super) fn put(&self, key: String, value: T, expires: Timestamp, now: Timestamp) {
        let left = expires.duration_since(now).as_secs_f64() * 0.8;
        if self.most == 0 || left <= 0.0 {
            return;
        }
        let keep = Duration::from_secs_f64(left).min(self.longest);
        let until = now + keep;
        let mut entries = self.entries();
        let before = entries.len();
        entries.retain(|_, (until, _)| now < *until);
        if entries.len() >= self.most
            && let Some(first) =
                entries.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone())
        {
            entries.remove(&first);
        }
        self.evictions.fetch_add((before - entries.len()) as u64, Ordering::Relaxed);
        entries.insert(key, (until, value));
    }

    pub(super) fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            items: self.entries().len() as u64,
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, (Timestamp, T)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_for_most_of_its_life_and_there_is_a_limit() {
        let cache = TokenCache::new(2, Duration::from_secs(3600));
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds| start + Duration::from_secs(seconds);
        cache.put("a".to_owned(), 1, at(100), start);
        assert_eq!((cache.get("a", at(79)), cache.get("a", at(81))), (Some(1), None));
        cache.put("long".to_owned(), 2, at(1_000_000), start);
        assert_eq!((cache.get("long", at(3599)), cache.get("long", at(3601))), (Some(2), None));
        cache.put("c".to_owned(), 3, at(1_000_000), start);
        assert_eq!(cache.get("a", start), None);
        cache.put("gone".to_owned(), 4, start, at(5));
        assert_eq!(cache.get("gone", start), None);
        assert_eq!(cache.counts(), CacheCounts { hits: 2, misses: 4, evictions: 1, items: 2 });
    }
}
