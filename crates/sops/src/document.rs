//! A file before and after it is opened.

use crate::cipher::DataKey;
use crate::metadata::Metadata;
use crate::tree::Branch;
use crate::unwrapping::Unwrapping;
use crate::{Error, Format, KeyGroup, formats, open};

/// Larger files are refused.
pub const MAX_BYTES: usize = 64 << 20;

/// A file whose values are encrypted.
pub struct Encrypted {
    format: Format,
    branches: Vec<Branch>,
    metadata: Metadata,
}

impl Encrypted {
    /// Reads a file of this format. [`Error::NotEncrypted`] says that it is one, but not from sops.
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, Error> {
        if bytes.len() > MAX_BYTES {
            return Err(Error::TooLarge { found: bytes.len(), limit: MAX_BYTES });
        }
        let (branches, metadata) = formats::read(bytes, format)?;
        Ok(Self { format, branches, metadata: Metadata::from_branch(&metadata)? })
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// For whom the data key was wrapped: one group that has all of it, or several that have a part each.
    pub fn recipients(&self) -> &[KeyGroup] {
        &self.metadata.groups
    }

    /// How many groups are needed.
    pub fn threshold(&self) -> usize {
        self.metadata.threshold
    }

    /// The version of sops that wrote the file.
    pub fn version(&self) -> &str {
        &self.metadata.version
    }

    /// Starts collecting the parts of the data key.
    pub fn unwrapping(&self) -> Unwrapping<'_> {
        Unwrapping::new(&self.metadata.groups, self.metadata.threshold)
    }

    /// Opens all values. A MAC that does not agree is no error here: see [`Decrypted::mac`].
    pub fn open(&self, key: &DataKey) -> Result<Decrypted, Error> {
        let (branches, mac) = open::open(&self.branches, &self.metadata, key)?;
        Ok(Decrypted { branches, mac })
    }
}

/// A file whose values are readable. It cannot be printed by accident.
pub struct Decrypted {
    branches: Vec<Branch>,
    mac: Mac,
}

/// Whether the values of a file are those it was closed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mac {
    Verified,
    Mismatch,
    Missing,
    /// The MAC itself did not open.
    Unreadable(&'static str),
}

impl Decrypted {
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Itself, unless its MAC disagrees; what `sops decrypt` insists on, and Flux does not.
    pub fn verified(self) -> Result<Self, Error> {
        match self.mac {
            Mac::Verified => Ok(self),
            Mac::Mismatch => Err(Error::MacMismatch),
            Mac::Missing => Err(Error::MacMissing),
            Mac::Unreadable(problem) => Err(Error::MacUnreadable(problem)),
        }
    }

    /// The file without encryption, byte by byte as `sops decrypt --output-type` writes it.
    pub fn to_bytes(&self, format: Format) -> Result<Vec<u8>, Error> {
        formats::write(&self.branches, format)
    }
}
