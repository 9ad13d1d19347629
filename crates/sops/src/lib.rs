//! SOPS as a function: names the wrapped keys, is handed data keys, opens the file.
//!
//! Two phases, without callbacks, so that whoever asks a key service does it on its own terms:
//!
//! 1. [`Encrypted::parse`] reads a file, [`Encrypted::recipients`] names the wrapped keys of each group,
//!    [`Encrypted::unwrapping`] collects what could be unwrapped: age and OpenPGP here, the rest by the caller.
//! 2. [`Encrypted::open`] takes the data key and gives a [`Decrypted`], whose [`Decrypted::to_bytes`] are those of
//!    `sops decrypt`, and whose [`Decrypted::mac`] says whether anybody changed the file; the caller decides
//!    what to do then.
//!
//! Deliberately absent: encryption, creation rules (`.sops.yaml`), the network, and any file or environment.
//! Values and keys have neither `Debug` nor `Display`, and no error shows one.

mod age;
mod cipher;
mod document;
mod error;
mod flatten;
mod formats;
mod metadata;
mod open;
mod pgp;
mod post_quantum;
mod recipient;
mod regex;
mod rules;
mod shamir;
mod time;
mod tree;
mod unwrapping;

pub use age::AgeIdentities;
pub use cipher::DataKey;
pub use document::{Decrypted, Encrypted, MAX_BYTES, Mac};
pub use error::{Error, GroupReport, IdentityError, KeyReport};
pub use formats::Format;
pub use pgp::PgpKeys;
pub use recipient::{KeyGroup, Recipient};
pub use unwrapping::{KeyPart, Unwrapping};
