//! The builtin transformers: each changes resources in one way.
//!
//! Deliberately absent: where their settings come from. `plugins` reads them from a kustomization or from a
//! plugin configuration.

pub(crate) mod entries;
pub(crate) mod hash;
pub(crate) mod images;
pub(crate) mod json_patch;
pub(crate) mod name_references;
pub(crate) mod names;
pub(crate) mod namespace;
pub(crate) mod patches;
pub(crate) mod replacements;
pub(crate) mod replicas;
pub(crate) mod sort;
pub(crate) mod value_add;
pub(crate) mod vars;
