//! OpenPGP private keys, used in this process: no gpg, no agent, no keyring on disk.

use std::io::Read;

use ::pgp::composed::{DecryptionOptions, Deserializable, Message, SignedSecretKey, TheRing};
use ::pgp::types::{KeyDetails, Password};

use crate::IdentityError;
use crate::unwrapping::KeyPart;

const MAX_PART: u64 = 4096;

/// The OpenPGP private keys at hand. They cannot be printed; their fingerprints are public.
#[derive(Default)]
pub struct PgpKeys {
    keys: Vec<SignedSecretKey>,
}

impl PgpKeys {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the private keys of an export, armored (`gpg --export-secret-keys --armor`) or not.
    pub fn add_keys(&mut self, bytes: &[u8]) -> Result<(), IdentityError> {
        let refuse = |error: ::pgp::errors::Error| IdentityError::Pgp(first_line(&error.to_string()));
        let armored = bytes.trim_ascii_start().starts_with(b"-----BEGIN");
        let mut found = Vec::new();
        if armored {
            let (keys, _) = SignedSecretKey::from_armor_many(bytes).map_err(refuse)?;
            for key in keys {
                found.push(key.map_err(refuse)?);
            }
        } else {
            for key in SignedSecretKey::from_bytes_many(bytes).map_err(refuse)? {
                found.push(key.map_err(refuse)?);
            }
        }
        if found.is_empty() {
            return Err(IdentityError::Pgp("no private key found".to_owned()));
        }
        self.keys.extend(found);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The fingerprints of the primary keys.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.keys.iter().map(|key| format!("PGP {:X}", key.fingerprint()))
    }

    pub(crate) fn unwrap(&self, wrapped: &str) -> Result<KeyPart, String> {
        if self.keys.is_empty() {
            return Err("no OpenPGP key at hand".to_owned());
        }
        let (message, _) = Message::from_armor(wrapped.as_bytes())
            .map_err(|_| "the wrapped key is not an OpenPGP message".to_owned())?;
        let password = Password::empty();
        let ring = TheRing {
            secret_keys: self.keys.iter().collect(),
            key_passwords: vec![&password],
            // GnuPG from 2.3 on writes its own form of authenticated encryption for keys it made itself.
            decrypt_options: DecryptionOptions::new().enable_gnupg_aead(),
            ..Default::default()
        };
        let (opened, _) = message
            .decrypt_the_ring(ring, true)
            .map_err(|_| "no key at hand fits, or it has a passphrase".to_owned())?;
        // gpg compresses by default; sops' own OpenPGP does not.
        let opened = if opened.is_compressed() {
            opened.decompress().map_err(|_| "the wrapped key is damaged".to_owned())?
        } else {
            opened
        };
        let mut part = Vec::new();
        opened.take(MAX_PART).read_to_end(&mut part).map_err(|_| "the wrapped key is damaged".to_owned())?;
        Ok(KeyPart::new(part))
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
