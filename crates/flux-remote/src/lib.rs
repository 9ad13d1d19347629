//! The world outside the cluster: Git, registries, repositories, buckets, clouds.
//!
//! Everything here can be used without Kubernetes. Nothing here starts a process.

pub mod archive;
pub mod bucket;
pub mod cloud;
pub mod cosign;
pub mod git;
pub mod helm_repository;
pub mod ignore;
pub mod local;
pub mod notation;
pub mod oci;
pub mod transport;
