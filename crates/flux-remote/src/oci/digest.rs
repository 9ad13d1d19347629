//! `sha256:…`: what content is known by. Only SHA-256 and SHA-512 are checked, and only those are accepted.

use std::fmt;
use std::str::FromStr;

use sha2::{Sha256, Sha512};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid digest '{0}': expected sha256:<64 hexadecimal digits>")]
pub struct DigestError(pub String);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Hasher::sha256().update(bytes).finish()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digits.
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, hex)| hex)
    }

    /// Counts the bytes that this digest should be of.
    pub(super) fn hasher(&self) -> Hasher {
        if self.0.starts_with("sha512:") {
            Hasher::Sha512(<Sha512 as sha2::Digest>::new())
        } else {
            Hasher::sha256()
        }
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let length = match text.split_once(':') {
            Some(("sha256", hex)) => (hex, 64),
            Some(("sha512", hex)) => (hex, 128),
            _ => return Err(DigestError(text.to_owned())),
        };
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if length.0.len() != length.1 || !length.0.bytes().all(lower_hex) {
            return Err(DigestError(text.to_owned()));
        }
        Ok(Digest(text.to_owned()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    fn sha256() -> Self {
        Hasher::Sha256(<Sha256 as sha2::Digest>::new())
    }

    pub(super) fn update(mut self, bytes: &[u8]) -> Self {
        match &mut self {
            Hasher::Sha256(hash) => sha2::Digest::update(hash, bytes),
            Hasher::Sha512(hash) => sha2::Digest::update(hash, bytes),
        }
        self
    }

    pub(super) fn finish(self) -> Digest {
        let (name, bytes) = match self {
            Hasher::Sha256(hash) => ("sha256", sha2::Digest::finalize(hash).to_vec()),
            Hasher::Sha512(hash) => ("sha512", sha2::Digest::finalize(hash).to_vec()),
        };
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Digest(format!("{name}:{hex}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_digests_are_digests() {
        let digest = Digest::of(b"");
        assert_eq!(
            digest.as_str(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(digest.as_str().parse(), Ok(digest.clone()));
        for text in ["", "sha256:", "sha256:abc", "md5:d41d8cd98f00b204e9800998ecf8427e", "sha256:../../etc"]
        {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
