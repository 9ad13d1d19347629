//! The conditions of an object, as a reconciler sets them.

use std::time::Duration;

use flux_api::condition::{self, Condition, ConditionStatus, Observation};
use flux_api::time::Time;
use k8s_openapi::jiff::Timestamp;

/// A list of conditions that belongs to one generation of an object.
pub struct Conditions<'a> {
    pub list: &'a mut Vec<Condition>,
    pub generation: i64,
}

impl Conditions<'_> {
    pub fn set(&mut self, kind: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) {
        let now = Time::new(Timestamp::now());
        condition::set(self.list, Observation::new(kind, status, reason, message), self.generation, now);
    }

    pub fn delete(&mut self, kind: &str) {
        condition::delete(self.list, kind);
    }
}

/// `interval`, a few percent earlier or later, so that objects made together do not stay together.
pub fn jittered(interval: Duration, percent: u8) -> Duration {
    if percent == 0 {
        return interval;
    }
    let share = f64::from(percent.min(99)) / 100.0;
    interval.mul_f64(1.0 + share * (2.0 * rand::random::<f64>() - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_spread_by_a_few_percent_to_both_sides() {
        let hour = Duration::from_secs(3600);
        assert_eq!(jittered(hour, 0), hour);
        let seen: Vec<f64> = (0..1000).map(|_| jittered(hour, 5).as_secs_f64()).collect();
        assert!(seen.iter().all(|seconds| (3420.0..=3780.0).contains(seconds)), "{seen:?}");
        let early = seen.iter().filter(|seconds| **seconds < 3600.0).count();
        assert!((100..900).contains(&early), "{early} of 1000 are early");
    }
}
