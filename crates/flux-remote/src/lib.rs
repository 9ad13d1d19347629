//! The world outside the cluster: Git, registries, repositories, buckets, clouds.
//!
//! Everything here can be used without Kubernetes. Nothing here starts a process.

pub mod archive;
pub mod git;
pub mod ignore;
pub mod local;
