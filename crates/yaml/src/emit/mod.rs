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
pub use kustomize::{kustomize_json, kustomize_yaml, kustomize_yaml_into};
pub use node::{format_document, format_document_with, format_node, format_node_with};
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

/// How far things are indented. v2 always takes [`Layout::KYAML`]'s two columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Columns per level, from 2 to 9.
    pub indent: u8,
    /// Whether the dashes of a sequence stand two columns to the left, at their key for an indent of two.
    pub compact_sequences: bool,
}

impl Layout {
    /// kyaml and kustomize.
    pub const KYAML: Self = Self { indent: 2, compact_sequences: true };
    /// go-yaml v3 when nobody asks for anything else, as in sops.
    pub const GO_YAML: Self = Self { indent: 4, compact_sequences: false };
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
