//! age identities: X25519 keys, post-quantum keys, and SSH keys without a passphrase. Plugins and passphrases are
//! not for machines.

use std::io::Read;

use ::age::armor::ArmoredReader;
use ::age::{DecryptError, Decryptor, Identity};

use crate::recipient::shortened;
use crate::unwrapping::KeyPart;
use crate::{IdentityError, post_quantum};

/// A data key has 32 bytes, a share of one 33.
const MAX_PART: u64 = 4096;

/// The age and SSH identities at hand. They cannot be printed; [`AgeIdentities::names`] are public.
#[derive(Default)]
pub struct AgeIdentities {
    identities: Vec<Named>,
}

struct Named {
    identity: Box<dyn Identity + Send + Sync>,
    name: String,
}

impl AgeIdentities {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the identities of a key file: one per line, with empty lines and `#` comments between them.
    pub fn add_key_file(&mut self, text: &str) -> Result<(), IdentityError> {
        let mut found = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            found.push(
                parse_identity(line).map_err(|problem| IdentityError::Age { line: index + 1, problem })?,
            );
        }
        if found.is_empty() {
            return Err(IdentityError::NoAgeIdentity);
        }
        self.identities.extend(found);
        Ok(())
    }

    /// Adds an SSH private key (Ed25519 or RSA), OpenSSH or PEM.
    pub fn add_ssh_key(&mut self, text: &str) -> Result<(), IdentityError> {
        let identity = ::age::ssh::Identity::from_buffer(text.as_bytes(), None)
            .map_err(|_| IdentityError::Ssh("not a private key of OpenSSH or PEM"))?;
        match &identity {
            ::age::ssh::Identity::Unencrypted(_) => {}
            ::age::ssh::Identity::Encrypted(_) => {
                return Err(IdentityError::Ssh("it has a passphrase; use one without"));
            }
            ::age::ssh::Identity::Unsupported(_) => {
                return Err(IdentityError::Ssh("its type is not supported; use Ed25519 or RSA"));
            }
        }
        let name = ::age::ssh::Recipient::try_from(identity.clone())
            .map_or_else(|_| "SSH key".to_owned(), |recipient| recipient.to_string());
        self.identities.push(Named { identity: Box::new(identity), name });
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// The recipients that belong to the identities, long ones shortened.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.identities.iter().map(|named| shortened(&named.name))
    }

    /// Opens an armored age file with whichever identity fits.
    pub(crate) fn unwrap(&self, wrapped: &str) -> Result<KeyPart, String> {
        if self.identities.is_empty() {
            return Err("no age identity at hand".to_owned());
        }
        let decryptor = Decryptor::new(ArmoredReader::new(wrapped.as_bytes())).map_err(explain)?;
        let identities = self.identities.iter().map(|named| &*named.identity as &dyn Identity);
        let reader = decryptor.decrypt(identities).map_err(explain)?;
        let mut part = Vec::new();
        reader.take(MAX_PART).read_to_end(&mut part).map_err(|_| "the wrapped key is damaged".to_owned())?;
        Ok(KeyPart::new(part))
    }
}

fn parse_identity(line: &str) -> Result<Named, &'static str> {
    if line.starts_with("AGE-PLUGIN-") {
        return Err("plugins are not supported");
    }
    if line.starts_with("AGE-SECRET-KEY-PQ-") {
        let identity =
            post_quantum::Identity::parse(line).ok_or("not an identity like AGE-SECRET-KEY-PQ-1…")?;
        let name = identity.recipient();
        return Ok(Named { identity: Box::new(identity), name });
    }
    let identity: ::age::x25519::Identity =
        line.parse().map_err(|_| "not an identity like AGE-SECRET-KEY-1…")?;
    let name = identity.to_public().to_string();
    Ok(Named { identity: Box::new(identity), name })
}

fn explain(error: DecryptError) -> String {
    match error {
        DecryptError::NoMatchingKeys => "no identity at hand fits",
        DecryptError::InvalidHeader | DecryptError::UnknownFormat | DecryptError::Io(_) => {
            "the wrapped key is not an age file"
        }
        DecryptError::InvalidMac => "the wrapped key is damaged",
        DecryptError::DecryptionFailed
        | DecryptError::KeyDecryptionFailed
        | DecryptError::ExcessiveWork { .. } => "unwrapping failed",
    }
    .to_owned()
}
