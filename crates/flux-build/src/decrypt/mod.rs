//! Opening what SOPS encrypted: files that a kustomization names, and built objects. Pure: keys that only a key
//! service can unwrap are named as [`Unopened::Wanted`], and the caller comes back with the answers.

mod keyring;
mod macs;
mod objects;
mod sources;

pub use keyring::Keyring;
pub use macs::FileMac;

pub(crate) use keyring::Unopened;
pub(crate) use macs::look_at_macs;
pub(crate) use objects::object;
pub(crate) use sources::{Overlay, sources};

use sops::Format;

/// Larger encrypted files are refused, as upstream refuses them.
const LARGEST: usize = 5 << 20;

/// What a file is taken for by its name. A key of a Secret may be one, too.
fn format_of(name: &str) -> Format {
    if name.ends_with(".dockerconfigjson") { Format::Json } else { Format::of_path(name) }
}

/// How an encrypted file of this format is recognised without reading it as such.
fn marker(format: Format) -> &'static [u8] {
    match format {
        Format::Binary | Format::Json => b"\"mac\": \"ENC[",
        Format::Dotenv => b"sops_mac=ENC[",
        Format::Ini => b"[sops]",
        Format::Yaml => b"mac: ENC[",
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn is_encrypted(bytes: &[u8], format: Format) -> bool {
    contains(bytes, marker(format))
}
