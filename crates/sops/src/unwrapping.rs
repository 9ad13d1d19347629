//! Collecting the parts of a data key: identities at hand first, what is missing by the caller.

use ::age::secrecy::zeroize::Zeroizing;

use crate::cipher::DataKey;
use crate::{AgeIdentities, Error, GroupReport, KeyGroup, KeyReport, PgpKeys, Recipient, shamir};

/// What one recipient gave: the data key, or its share of it. Wiped when dropped; it cannot be printed.
#[derive(Clone)]
pub struct KeyPart(Zeroizing<Vec<u8>>);

impl KeyPart {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

/// The parts of a data key as far as they are known.
pub struct Unwrapping<'a> {
    groups: Vec<Group<'a>>,
    threshold: usize,
    identities: Vec<String>,
}

struct Group<'a> {
    recipients: &'a [Recipient],
    part: Option<KeyPart>,
    /// Per recipient: why it did not give the part.
    problems: Vec<Option<String>>,
}

impl<'a> Unwrapping<'a> {
    pub(crate) fn new(groups: &'a [KeyGroup], threshold: usize) -> Self {
        let groups = groups
            .iter()
            .map(|group| Group {
                recipients: &group.recipients,
                part: None,
                problems: vec![None; group.recipients.len()],
            })
            .collect();
        Self { groups, threshold, identities: Vec::new() }
    }

    /// Tries age and SSH identities on every group that has no part yet.
    pub fn unwrap_age(&mut self, identities: &AgeIdentities) {
        self.identities.extend(identities.names());
        self.attempt(|recipient| match recipient {
            Recipient::Age { wrapped, .. } => Some(identities.unwrap(wrapped)),
            _ => None,
        });
    }

    /// Tries OpenPGP keys on every group that has no part yet.
    pub fn unwrap_pgp(&mut self, keys: &PgpKeys) {
        self.identities.extend(keys.names());
        self.attempt(|recipient| match recipient {
            Recipient::Pgp { wrapped, .. } => Some(keys.unwrap(wrapped)),
            _ => None,
        });
    }

    fn attempt(&mut self, mut unwrap: impl FnMut(&Recipient) -> Option<Result<KeyPart, String>>) {
        for group in &mut self.groups {
            for (recipient, problem) in group.recipients.iter().zip(&mut group.problems) {
                if group.part.is_some() {
                    break;
                }
                match unwrap(recipient) {
                    Some(Ok(part)) => group.part = Some(part),
                    Some(Err(why)) => *problem = Some(why),
                    None => {}
                }
            }
        }
    }

    /// Whether enough is known.
    pub fn is_complete(&self) -> bool {
        self.groups.iter().filter(|group| group.part.is_some()).count() >= self.threshold
    }

    /// What a client of a key service may still try, in sops' order: the number of the group and of the recipient
    /// in it. Nothing once enough is known.
    pub fn wanted(&self) -> Vec<(usize, usize, &'a Recipient)> {
        if self.is_complete() {
            return Vec::new();
        }
        let mut wanted = Vec::new();
        for (index, group) in self.groups.iter().enumerate().filter(|(_, group)| group.part.is_none()) {
            let mut recipients: Vec<_> = group.recipients.iter().enumerate().collect();
            recipients.sort_by_key(|(_, recipient)| recipient.rank());
            wanted.extend(recipients.into_iter().map(|(at, recipient)| (index, at, recipient)));
        }
        wanted
    }

    /// Hands in what a recipient of this group gave.
    pub fn supply(&mut self, group: usize, part: KeyPart) {
        if let Some(group) = self.groups.get_mut(group) {
            group.part.get_or_insert(part);
        }
    }

    /// Notes why a recipient gave nothing, for the error.
    pub fn refuse(&mut self, group: usize, recipient: usize, why: impl Into<String>) {
        let place = self.groups.get_mut(group).and_then(|group| group.problems.get_mut(recipient));
        if let Some(place) = place {
            *place = Some(why.into());
        }
    }

    /// Names something that was tried, for the error: "AWS profile prod".
    pub fn note_identity(&mut self, name: impl Into<String>) {
        self.identities.push(name.into());
    }

    /// The data key, put together from its parts.
    pub fn data_key(self) -> Result<DataKey, Error> {
        let parts: Vec<&KeyPart> = self.groups.iter().filter_map(|group| group.part.as_ref()).collect();
        if parts.len() < self.threshold {
            return Err(self.locked());
        }
        if let ([part], 1) = (&parts[..], self.groups.len()) {
            return DataKey::new(part.0.to_vec());
        }
        let shares: Vec<&[u8]> = parts.iter().map(|part| part.0.as_slice()).collect();
        DataKey::new(shamir::combine(&shares)?)
    }

    fn locked(self) -> Error {
        let groups = self
            .groups
            .iter()
            .map(|group| GroupReport {
                unwrapped: group.part.is_some(),
                keys: group
                    .recipients
                    .iter()
                    .zip(&group.problems)
                    .map(|(recipient, problem)| KeyReport {
                        recipient: recipient.to_string(),
                        problem: problem.clone(),
                    })
                    .collect(),
            })
            .collect();
        Error::Locked { groups, threshold: self.threshold, identities: self.identities }
    }
}
