//! The revisions of a release, and what they say about it.

use super::{Release, Status};

/// All stored revisions of one release, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    revisions: Vec<Release>,
}

impl History {
    pub fn new(mut revisions: Vec<Release>) -> History {
        revisions.sort_by_key(|release| release.version);
        History { revisions }
    }

    pub fn revisions(&self) -> &[Release] {
        &self.revisions
    }

    pub fn is_empty(&self) -> bool {
        self.revisions.is_empty()
    }

    pub fn last(&self) -> Option<&Release> {
        self.revisions.last()
    }

    pub fn get(&self, revision: i64) -> Option<&Release> {
        self.revisions.iter().find(|release| release.version == revision)
    }

    /// The newest revision that is marked deployed. Concurrent clients may leave several.
    pub fn deployed(&self) -> Option<&Release> {
        self.revisions.iter().rev().find(|release| release.info.status == Status::Deployed)
    }

    pub fn all_deployed(&self) -> impl Iterator<Item = &Release> {
        self.revisions.iter().filter(|release| release.info.status == Status::Deployed)
    }

    /// The newest revision that once worked: superseded or deployed.
    pub fn last_successful(&self) -> Option<&Release> {
        self.revisions
            .iter()
            .rev()
            .find(|release| matches!(release.info.status, Status::Superseded | Status::Deployed))
    }

    /// The revisions to delete so that, with one more, at most `keep` stay. The deployed one is never among them; 0 keeps all.
    pub fn surplus(&self, keep: usize) -> Vec<i64> {
        if keep == 0 || self.revisions.len() < keep {
            return Vec::new();
        }
        let deployed = self.deployed().map(|release| release.version);
        let too_many = self.revisions.len() - (keep - 1);
        self.revisions
            .iter()
            .map(|release| release.version)
            .filter(|version| Some(*version) != deployed)
            .take(too_many)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(statuses: &[Status]) -> History {
        let release = |(at, status): (usize, &Status)| {
            let mut release: Release =
                serde_json::from_value(serde_json::json!({"name": "a", "version": at + 1})).unwrap();
            release.info.status = *status;
            release
        };
        History::new(statuses.iter().enumerate().map(release).rev().collect())
    }

    #[test]
    fn pruning_spares_the_deployed_revision() {
        let history = history(&[Status::Deployed, Status::Failed, Status::Failed, Status::Failed]);
        assert_eq!(history.surplus(3), [2, 3]);
        assert_eq!(history.surplus(0), Vec::<i64>::new());
        assert_eq!(history.surplus(10), Vec::<i64>::new());
        assert_eq!(history.surplus(1), [2, 3, 4]);
    }

    #[test]
    fn the_newest_deployed_revision_counts() {
        let history = history(&[Status::Deployed, Status::Deployed, Status::Failed]);
        assert_eq!(history.deployed().map(|r| r.version), Some(2));
        assert_eq!(history.last().map(|r| r.version), Some(3));
        assert_eq!(history.last_successful().map(|r| r.version), Some(2));
    }
}
