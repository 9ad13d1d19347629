//! What is known of the objects of one kind: how they were verified, and how they were seen last. Pure but for the clock.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use flux_apply::{Fingerprint, Known};
use tokio::sync::Notify;

use super::CALM;
use crate::reconcile::ObjectKey;

/// What was verified longer ago is verified again: a webhook or a default may have changed.
const LONGEST: Duration = Duration::from_secs(3600);
/// The first repeated change of an object is looked at after this, the next after twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// A watched kind.
#[derive(Default)]
pub(super) struct Kind {
    /// Everything was listed, and nothing was missed since.
    pub(super) synced: bool,
    /// Changes with every list: before and after it, something may have been missed.
    pub(super) epoch: u64,
    objects: HashMap<ObjectKey, Record>,
}

/// About 200 bytes with its key.
#[derive(Default)]
pub(super) struct Record {
    seen: Option<Fingerprint>,
    verified: Option<Box<Verified>>,
    /// Those who wait for it to change.
    waiting: Vec<Weak<Notify>>,
}

struct Verified {
    owner: ObjectKey,
    known: Known,
    manifest: u64,
    /// The generation of the CRD it was checked against.
    definition: Option<i64>,
    epoch: u64,
    at: Instant,
    /// It was told of already.
    told: bool,
    wakes: u32,
    last_wake: Option<Instant>,
    /// Not in the cluster, as far as the watch can tell.
    missing: bool,
}

impl Record {
    /// Whose it is, when it is no longer as it was verified.
    pub(super) fn mismatch(&self) -> Option<&ObjectKey> {
        let verified = self.verified.as_ref()?;
        let differs = match self.seen {
            Some(seen) => {
                let known = verified.known.fingerprint;
                seen.version > known.version && seen.print != known.print
            }
            None => verified.missing,
        };
        differs.then_some(&verified.owner)
    }

    fn tell(&mut self) {
        self.waiting.retain(|waiting| match waiting.upgrade() {
            Some(waiting) => {
                waiting.notify_one();
                true
            }
            None => false,
        });
    }

    fn is_of_use(&self) -> bool {
        self.seen.is_some() || self.verified.is_some() || !self.waiting.is_empty()
    }
}

impl Kind {
    pub(super) fn verify(
        &mut self,
        place: &ObjectKey,
        owner: &ObjectKey,
        known: Known,
        manifest: u64,
        definition: Option<Option<i64>>,
    ) -> &Record {
        let record = self.objects.entry(place.clone()).or_default();
        let (wakes, last_wake) = record.verified.as_ref().map_or((0, None), |old| (old.wakes, old.last_wake));
        record.verified = Some(Box::new(Verified {
            owner: owner.clone(),
            known,
            // What the definition is cannot be told: whatever comes next is another.
            manifest: if definition.is_some() { manifest } else { manifest.wrapping_add(1) },
            definition: definition.flatten(),
            epoch: self.epoch,
            at: Instant::now(),
            told: false,
            wakes,
            last_wake,
            missing: false,
        }));
        record
    }

    pub(super) fn verified(
        &self,
        place: &ObjectKey,
        owner: &ObjectKey,
        manifest: u64,
        definition: Option<Option<i64>>,
    ) -> Option<Known> {
        let record = self.objects.get(place)?;
        let verified = record.verified.as_ref()?;
        let holds = self.synced
            && verified.epoch == self.epoch
            && verified.owner == *owner
            && verified.manifest == manifest
            && definition == Some(verified.definition)
            && verified.at.elapsed() < LONGEST
            && record.mismatch().is_none();
        let seen = record.seen.filter(|_| holds)?;
        // Whatever changed up to the version that was seen last is nothing of ours.
        let mut known = verified.known;
        known.fingerprint.version = known.fingerprint.version.max(seen.version);
        Some(known)
    }

    pub(super) fn forget(&mut self, place: &ObjectKey) {
        if let Some(record) = self.objects.get_mut(place) {
            record.verified = None;
            self.drop_if_useless(place);
        }
    }

    /// Whether the watch knows of the object.
    pub(super) fn sees(&self, place: &ObjectKey) -> bool {
        self.synced && self.objects.get(place).is_some_and(|record| record.seen.is_some())
    }

    /// `notify` hears of the object's changes.
    pub(super) fn subscribe(&mut self, place: &ObjectKey, notify: &Arc<Notify>) {
        let record = self.objects.entry(place.clone()).or_default();
        record.waiting.retain(|waiting| waiting.strong_count() > 0);
        record.waiting.push(Arc::downgrade(notify));
    }

    /// The watch tells of an object; `true` when it is not as verified.
    pub(super) fn see(&mut self, place: &ObjectKey, seen: Option<Fingerprint>) -> bool {
        if seen.is_none() && !self.objects.contains_key(place) {
            return false;
        }
        let record = self.objects.entry(place.clone()).or_default();
        record.seen = seen;
        if let Some(verified) = &mut record.verified {
            verified.missing = seen.is_none();
        }
        record.tell();
        let suspect = record.mismatch().is_some();
        self.drop_if_useless(place);
        suspect
    }

    /// After a list: everything is as listed, and what is not in it is gone. Which of it is not as verified.
    pub(super) fn replace(&mut self, listed: HashMap<ObjectKey, Fingerprint>) -> Vec<ObjectKey> {
        let mut suspects = Vec::new();
        let known: Vec<ObjectKey> = self.objects.keys().cloned().collect();
        for place in known.iter().filter(|place| !listed.contains_key(place)) {
            if self.see(place, None) {
                suspects.push(place.clone());
            }
        }
        for (place, fingerprint) in listed {
            if self.see(&place, Some(fingerprint)) {
                suspects.push(place);
            }
        }
        self.synced = true;
        self.epoch += 1;
        // The list is the truth of this moment, so what agrees with it is as good as just verified.
        let epoch = self.epoch;
        for record in self.objects.values_mut() {
            let agrees = record.mismatch().is_none() && record.seen.is_some();
            if let Some(verified) = record.verified.as_mut().filter(|verified| agrees && verified.epoch == 0)
            {
                verified.epoch = epoch;
            }
        }
        suspects
    }

    /// Whose object it is, if it still is not as verified and nobody was told.
    pub(super) fn suspect(&self, place: &ObjectKey) -> Option<ObjectKey> {
        let record = self.objects.get(place)?;
        let owner = record.mismatch()?;
        record.verified.as_ref().filter(|verified| !verified.told).map(|_| owner.clone())
    }

    /// Its owner is to be told: now, or after a wait where it changes again and again.
    pub(super) fn note_wake(&mut self, place: &ObjectKey) -> Option<Duration> {
        let verified = self.objects.get_mut(place)?.verified.as_mut()?;
        let quiet = verified.last_wake.is_none_or(|last| last.elapsed() > CALM);
        if quiet {
            verified.wakes = 0;
        }
        let wait = match verified.wakes {
            0 => Duration::ZERO,
            n => FIRST_WAIT.saturating_mul(2_u32.saturating_pow(n - 1)).min(CALM),
        };
        let left = verified.last_wake.map_or(Duration::ZERO, |last| wait.saturating_sub(last.elapsed()));
        if !quiet && !left.is_zero() {
            return Some(left);
        }
        verified.wakes = verified.wakes.saturating_add(1);
        verified.last_wake = Some(Instant::now());
        verified.told = true;
        None
    }

    fn drop_if_useless(&mut self, place: &ObjectKey) {
        if self.objects.get(place).is_some_and(|record| !record.is_of_use()) {
            self.objects.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(version: u64, print: u64) -> Fingerprint {
        Fingerprint { version, print }
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("n", name)
    }

    fn known(fingerprint: Fingerprint) -> Known {
        Known { fingerprint, content: 3 }
    }

    fn kind(verified: Fingerprint) -> Kind {
        let mut kind = Kind::default();
        kind.replace(HashMap::new());
        kind.verify(&key("a"), &key("apps"), known(verified), 7, Some(None));
        kind
    }

    #[test]
    fn what_comes_late_is_no_news_and_what_is_newer_and_other_is() {
        let mut kind = kind(print(5, 1));
        assert!(!kind.see(&key("a"), Some(print(4, 9))), "it was written over");
        assert!(!kind.see(&key("a"), Some(print(6, 1))), "the status changed");
        let verified = kind.verified(&key("a"), &key("apps"), 7, Some(None));
        assert_eq!(verified, Some(known(print(6, 1))), "as of the version that was seen last");
        assert!(kind.see(&key("a"), Some(print(7, 2))));
        assert_eq!(kind.suspect(&key("a")), Some(key("apps")));
        assert!(kind.verified(&key("a"), &key("apps"), 7, Some(None)).is_none());
        kind.verify(&key("a"), &key("apps"), known(print(8, 1)), 7, Some(None));
        assert_eq!(kind.suspect(&key("a")), None);
    }

    #[test]
    fn an_object_that_goes_or_is_not_in_a_list_is_missed() {
        let mut kind = kind(print(5, 1));
        assert_eq!(kind.suspect(&key("a")), None, "nobody has seen it yet, and it was just made");
        kind.see(&key("a"), Some(print(5, 1)));
        assert!(kind.see(&key("a"), None));
        let mut kind = self::kind(print(5, 1));
        assert_eq!(kind.replace(HashMap::new()), [key("a")]);
    }

    #[test]
    fn only_the_same_manifest_of_the_same_owner_and_definition_in_one_watch_is_verified() {
        let mut kind = kind(print(5, 1));
        kind.see(&key("a"), Some(print(5, 1)));
        assert!(kind.verified(&key("a"), &key("apps"), 7, Some(None)).is_some());
        for (owner, manifest, definition) in
            [("other", 7, Some(None)), ("apps", 8, Some(None)), ("apps", 7, Some(Some(2))), ("apps", 7, None)]
        {
            assert!(kind.verified(&key("a"), &key(owner), manifest, definition).is_none());
        }
        kind.replace(HashMap::from([(key("a"), print(5, 1))]));
        assert!(kind.verified(&key("a"), &key("apps"), 7, Some(None)).is_none(), "there was a gap");
    }

    #[test]
    fn an_object_that_changes_for_ever_is_told_of_less_and_less() {
        let mut kind = kind(print(5, 1));
        kind.see(&key("a"), Some(print(6, 2)));
        assert_eq!(kind.note_wake(&key("a")), None);
        assert_eq!(kind.suspect(&key("a")), None, "it was told");
        kind.verify(&key("a"), &key("apps"), known(print(7, 1)), 7, Some(None));
        kind.see(&key("a"), Some(print(8, 2)));
        let wait = kind.note_wake(&key("a")).unwrap();
        assert!(wait > Duration::ZERO && wait <= FIRST_WAIT);
    }
}
