//! A Kubernetes-compatible API server as an in-process tower service.

pub mod apply;
pub mod structural;
