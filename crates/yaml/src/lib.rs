//! Go-compatible YAML: what go-yaml v2, v3 and sigs.k8s.io/yaml make of a text, and how they write one.
