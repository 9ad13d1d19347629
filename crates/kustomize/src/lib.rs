//! `kustomize build` as a function: files in, manifests out.
