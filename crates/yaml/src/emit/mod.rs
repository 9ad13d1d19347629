//! Writing YAML as Go writes it.
//!
//! [`Emitter`] knows how go-yaml v2 and v3 lay out a document, [`scalar`](self) how they quote. On top of it:
//! JSON values as sigs.k8s.io/yaml writes them, nodes as kyaml and as `kustomize build` write them.

mod analysis;
mod emitter;
mod kustomize;
mod node;
mod scalar;
mod sigs;
mod writer;

pub use emitter::{CollectionStyle, Emitter};
pub use kustomize::{kustomize_yaml, kustomize_yaml_into};
pub use node::{format_document, format_node};
pub(crate) use scalar::quoted_scalar;
pub use sigs::to_yaml_sigs;

/// Whose layout is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// go-yaml v2: lines folded after 80 columns, sequences at the indentation of their key.
    V2,
    /// go-yaml v3 as kyaml sets it up: no folding, comments, compact sequences.
    V3,
}

/// A value that Go's libraries refuse to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    #[error("yaml: control characters are not allowed")]
    ControlCharacter,
    #[error("yaml: {0}")]
    Refused(&'static str),
    #[error(transparent)]
    Value(#[from] crate::Error),
}
