//! `.status.history`: the last five results, newest first. Pure.

use std::collections::BTreeMap;

use flux_api::duration::GoDuration;
use flux_api::kustomize::Snapshot;
use flux_api::time::Time;

const MOST: usize = 5;

/// A result worth remembering.
pub struct Outcome<'a> {
    pub digest: &'a str,
    pub status: &'a str,
    pub took: GoDuration,
    pub metadata: BTreeMap<String, String>,
}

/// Adds `outcome`: the same digest with the same status moves to the front and counts one more.
pub fn add(history: &mut Vec<Snapshot>, outcome: Outcome<'_>, now: Time) {
    let same =
        |entry: &Snapshot| entry.digest == outcome.digest && entry.last_reconciled_status == outcome.status;
    let earlier = history.iter().position(same).map(|at| history.remove(at));
    let entry = Snapshot {
        digest: outcome.digest.to_owned(),
        first_reconciled: earlier.as_ref().map_or(now, |entry| entry.first_reconciled),
        last_reconciled: now,
        last_reconciled_duration: outcome.took,
        last_reconciled_status: outcome.status.to_owned(),
        total_reconciliations: earlier.as_ref().map_or(0, |entry| entry.total_reconciliations) + 1,
        metadata: outcome.metadata,
    };
    history.insert(0, entry);
    history.truncate(MOST);
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn note(history: &mut Vec<Snapshot>, digest: &str, status: &str, second: i64) {
        let outcome = Outcome { digest, status, took: GoDuration::from_secs(1), metadata: BTreeMap::new() };
        add(history, outcome, Time::new(Timestamp::from_second(second).unwrap()));
    }

    #[test]
    fn the_same_result_counts_and_moves_to_the_front() {
        let mut history = Vec::new();
        note(&mut history, "a", "ReconciliationSucceeded", 1);
        note(&mut history, "b", "ReconciliationSucceeded", 2);
        note(&mut history, "a", "ReconciliationSucceeded", 3);
        note(&mut history, "a", "HealthCheckFailed", 4);
        let seen: Vec<_> =
            history.iter().map(|entry| (entry.digest.as_str(), entry.total_reconciliations)).collect();
        assert_eq!(seen, [("a", 1), ("a", 2), ("b", 1)]);
        assert_ne!(history[1].first_reconciled, history[1].last_reconciled);
    }

    #[test]
    fn five_are_kept() {
        let mut history = Vec::new();
        for (second, digest) in ["a", "b", "c", "d", "e", "f"].iter().enumerate() {
            note(&mut history, digest, "ReconciliationSucceeded", second as i64);
        }
        assert_eq!(history.len(), 5);
        assert_eq!(history[0].digest, "f");
    }
}
