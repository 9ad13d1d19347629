//! The world outside the cluster: Git, registries, repositories, buckets, clouds.
