//! Servers to test against: a real control plane, Git, registries, buckets, sinks.
