//! Artifacts: what a source fetched, kept once and read by everybody.
//!
//! Beside each tarball, which anyone may download, stands the same tree as a pack that consumers in this
//! process read in place: unpacked once, whoever asks.

pub mod fetch;
pub mod serve;
pub mod storage;
pub mod tree;

pub use fetch::Fetcher;
pub use storage::{Storage, StorageOptions};
pub use tree::ArtifactTree;
