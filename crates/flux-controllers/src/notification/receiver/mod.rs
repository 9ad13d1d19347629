//! Webhooks in: who may call, whether this call is theirs, and which objects it makes reconcile.
//!
//! `check`, `cdevents`, `token`, `claims` and `filter` decide over values; `keys` fetches what issuers sign with, `webhook`
//! answers, `reconciler` looks after the kind.

mod cdevents;
mod check;
mod claims;
mod filter;
mod keys;
pub mod reconciler;
mod token;
pub mod webhook;

pub use keys::Keys;

use sha2::{Digest, Sha256};

/// Where every webhook's path begins.
pub const PATH: &str = "/hook/";

/// The path of a Receiver. Its token is part of it, so that only who knows the token can tell the path.
pub fn webhook_path(token: &[u8], name: &str, namespace: &str) -> String {
    let digest = Sha256::new().chain_update(token).chain_update(name).chain_update(namespace).finalize();
    digest.iter().fold(PATH.to_owned(), |path, byte| path + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_made_as_upstream_makes_it() {
        // printf 'tokennamenamespace' | sha256sum
        let expected = Sha256::digest(b"tokennamenamespace")
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        assert_eq!(webhook_path(b"token", "name", "namespace"), format!("/hook/{expected}"));
        assert_ne!(webhook_path(b"", "n", "m"), webhook_path(b"x", "n", "m"));
    }
}
