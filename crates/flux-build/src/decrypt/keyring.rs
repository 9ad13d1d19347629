//! The keys at hand, and what key services answered.

use std::collections::BTreeMap;

use sops::{AgeIdentities, Decrypted, Encrypted, KeyPart, PgpKeys, Recipient};

/// Everything a build may open files with. It cannot be printed.
#[derive(Default)]
pub struct Keyring {
    pub age: AgeIdentities,
    pub pgp: PgpKeys,
    /// By wrapped key: what the service gave, or why it did not.
    answers: BTreeMap<String, Result<KeyPart, String>>,
    /// Names of identities that services were asked with.
    names: Vec<String>,
}

/// Why a file stays closed.
pub(crate) enum Unopened {
    /// These have to be asked first.
    Wanted(Vec<Recipient>),
    Failed(sops::Error),
}

impl From<sops::Error> for Unopened {
    fn from(error: sops::Error) -> Self {
        Unopened::Failed(error)
    }
}

impl Keyring {
    /// Hands in what a key service said about a wrapped key.
    pub fn answer(&mut self, recipient: &Recipient, answer: Result<KeyPart, String>) {
        self.answers.insert(recipient.wrapped().to_owned(), answer);
    }

    /// Names an identity that services are asked with, for the error.
    pub fn note_identity(&mut self, name: impl Into<String>) {
        self.names.push(name.into());
    }

    pub(crate) fn open(&self, encrypted: &Encrypted) -> Result<Decrypted, Unopened> {
        let mut unwrapping = encrypted.unwrapping();
        unwrapping.unwrap_age(&self.age);
        unwrapping.unwrap_pgp(&self.pgp);
        for name in &self.names {
            unwrapping.note_identity(name.clone());
        }
        let mut wanted = Vec::new();
        for (group, at, recipient) in unwrapping.wanted() {
            match self.answers.get(recipient.wrapped()) {
                Some(Ok(part)) => unwrapping.supply(group, part.clone()),
                Some(Err(why)) => unwrapping.refuse(group, at, why.clone()),
                None if recipient.is_kept_by_a_service() => wanted.push(recipient.clone()),
                None => {}
            }
        }
        if !unwrapping.is_complete() && !wanted.is_empty() {
            return Err(Unopened::Wanted(wanted));
        }
        let key = unwrapping.data_key()?;
        Ok(encrypted.open(&key)?)
    }
}
