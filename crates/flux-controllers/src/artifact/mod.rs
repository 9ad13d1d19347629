//! Artifacts: what a source fetched, kept once and read by everybody.
//!
//! An artifact is stored once, as the tarball that anyone may download. An index beside it lets consumers in this
//! process read single files in place, and lets the next artifact of the same object copy what did not change.

pub mod digest;
pub mod fetch;
pub mod index;
pub mod pack;
pub mod serve;
pub mod storage;
pub mod tree;

pub use fetch::Fetcher;
pub use storage::{Storage, StorageOptions};
pub use tree::ArtifactTree;
