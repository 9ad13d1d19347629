//! What Kubernetes knows about its builtin kinds: scope, merge keys, list types; strategic merge.
