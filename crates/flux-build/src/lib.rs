//! A Kustomization, its files, variables and keys in; manifests out.
