//! Servers to test against: a real control plane, Git, registries, buckets, sinks.
//!
//! ```text
//! Cluster::real() ────── control_plane ── etcd, kube-apiserver, kube-controller-manager ── reference (built once, cached)
//! Cluster::embedded() ── embedded ─────── the crate apiserver, in this process
//!        └─ a story runs on either: apply_yaml, await_condition, namespace, audit_log
//!
//! git_server, registry, chart_repository, bucket, webhook_sink ── http_server ── fault
//! ```
//!
//! Everything listens on loopback and a free port, starts without Docker, and ends with the process
//! that started it, also when that is killed. Tests wait for conditions and do not sleep.

pub mod bucket;
pub mod chart;
pub mod chart_repository;
pub mod cluster;
pub mod control_plane;
pub mod embedded;
pub mod fault;
pub mod git_server;
pub mod http_server;
pub mod notation;
pub mod otlp_collector;
pub mod process;
pub mod reference;
pub mod registry;
pub mod sigstore;
pub mod story;
pub mod tls;
pub mod trouble;
pub mod upstream;
pub mod wait;
pub mod webhook_sink;
pub mod workloads;

pub use cluster::{Cluster, TemporaryNamespace};
