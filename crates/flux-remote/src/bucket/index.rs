//! Keys and ETags of a bucket, and the one digest that stands for all of them.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// What is in a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    entries: BTreeMap<String, String>,
}

impl Index {
    pub fn add(&mut self, key: impl Into<String>, etag: impl Into<String>) {
        self.entries.insert(key.into(), etag.into());
    }

    pub fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, etag)| (key.as_str(), etag.as_str()))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// SHA-256, in hexadecimal, of a line for each object: its key, a space, its ETag.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (key, etag) in &self.entries {
            hash.update(format!("{key} {etag}\n"));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_arrival() {
        let mut one = Index::default();
        one.add("b", "2");
        one.add("a", "1");
        let mut two = Index::default();
        two.add("a", "1");
        two.add("b", "2");
        assert_eq!(one.sha256(), two.sha256());
        // What `printf 'a 1\nb 2\n' | sha256sum` says.
        assert_eq!(one.sha256(), "2951835de33689a441bfa61bc7af99b1f0305ca8ec0ab4dd508f14f57b27ca23");
        two.add("a", "3");
        assert_ne!(one.sha256(), two.sha256());
    }
}
