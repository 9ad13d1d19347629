//! `algorithm:encoded`: what an artifact's bytes are known by. Names a digest; does not compute one.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the API accepts for a digest.
pub const PATTERN: &str = r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$";

/// A checksum with the name of its algorithm, such as `sha256:9f86d0…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    text: String,
    colon: usize,
}

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No `algorithm:encoded`.
    #[error("invalid digest {0:?}: expected <algorithm>:<hex>, such as sha256:9f86…")]
    Invalid(String),
    /// The algorithm is known and its digests have another length or alphabet.
    #[error("invalid {algorithm} digest: expected {expected} lower-case hexadecimal digits")]
    WrongForm {
        /// Which algorithm.
        algorithm: Algorithm,
        /// How many digits it has.
        expected: usize,
    },
}

crate::closed_set::closed_set! {
    /// The algorithms whose digests Flux writes and checks.
    pub enum Algorithm {
        /// Git's object names.
        Sha1 = "sha1",
        /// The default.
        Sha256 = "sha256",
        /// SHA-384.
        Sha384 = "sha384",
        /// SHA-512.
        Sha512 = "sha512",
        /// BLAKE3.
        Blake3 = "blake3",
    }
}

impl Algorithm {
    /// How many hexadecimal digits its digests have.
    pub const fn hex_length(self) -> usize {
        match self {
            Algorithm::Sha1 => 40,
            Algorithm::Sha256 | Algorithm::Blake3 => 64,
            Algorithm::Sha384 => 96,
            Algorithm::Sha512 => 128,
        }
    }
}

impl Digest {
    /// From an algorithm and hexadecimal digits.
    pub fn new(algorithm: Algorithm, hex: &str) -> Result<Self, Error> {
        let digest: Digest = format!("{algorithm}:{hex}").parse()?;
        digest.check_form()?;
        Ok(digest)
    }

    /// The name before the colon, known to us or not.
    pub fn algorithm_name(&self) -> &str {
        &self.text[..self.colon]
    }

    /// The algorithm, when it is one we can check.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm_name().parse().ok()
    }

    /// What follows the colon.
    pub fn encoded(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    /// Whether it can be the digest of anything: a known algorithm's digests have one length. Not part of reading an object,
    /// since the API accepts any length and one odd status must not make its object unreadable.
    pub fn check_form(&self) -> Result<(), Error> {
        let Some(algorithm) = self.algorithm() else {
            return Ok(());
        };
        let expected = algorithm.hex_length();
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if self.encoded().len() != expected || !self.encoded().bytes().all(is_hex) {
            return Err(Error::WrongForm { algorithm, expected });
        }
        Ok(())
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::Invalid(text.to_owned());
        let (name, encoded) = text.split_once(':').ok_or_else(invalid)?;
        let is_word = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        if !name.split(['.', '+', '_', '-']).all(is_word) {
            return Err(invalid());
        }
        if encoded.is_empty() || !encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"=_-".contains(&b)) {
            return Err(invalid());
        }
        Ok(Digest { colon: name.len(), text: text.to_owned() })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Digest {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_splits_at_its_colon() {
        let text = format!("sha256:{}", "ab".repeat(32));
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.algorithm(), Some(Algorithm::Sha256));
        assert_eq!(digest.encoded().len(), 64);
        assert_eq!(digest.to_string(), text);
        let other: Digest = "sha512_256+b64:QmFzZTY0_-=".parse().unwrap();
        assert_eq!((other.algorithm(), other.algorithm_name()), (None, "sha512_256+b64"));
    }

    #[test]
    fn a_malformed_digest_is_refused() {
        for text in ["", ":", "sha256", "sha256:", ":abc", "SHA256:abc", "a..b:c", "-a:b", "a:b c", "a:b:c"] {
            assert!(matches!(text.parse::<Digest>(), Err(Error::Invalid(_))), "{text}");
        }
        for text in ["sha256:abcd", &format!("sha1:{}", "A".repeat(40))] {
            let digest: Digest = text.parse().unwrap();
            assert!(matches!(digest.check_form(), Err(Error::WrongForm { .. })), "{text}");
        }
    }
}
