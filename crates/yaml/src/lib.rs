//! Go-compatible YAML: what go-yaml v2, v3 and sigs.k8s.io/yaml make of a text, and how they write one.
//!
//! Kubernetes tools agree on a YAML that no specification describes: the one of two Go libraries. This crate
//! reads and writes that one, so that a manifest keeps its meaning and its bytes.
//!
//! - [`parse_stream`] turns a text into [`Document`]s of [`Node`]s: styles, tags, anchors, comments, positions.
//! - [`resolve`] tells what a plain scalar means to go-yaml v2 (YAML 1.1) or v3.
//! - [`to_json`] is sigs.k8s.io/yaml's `YAMLToJSON`, [`to_yaml_sigs`] its `JSONToYAML` (Helm's `toYaml`).
//! - [`kustomize_yaml`] writes a node as `kustomize build` does, [`format_node`] as kyaml's `RNode.String()` does.
//! - [`Emitter`] writes either dialect step by step, without any tree.
//! - [`replace_scalar`] changes one scalar of a text and leaves every other byte as it is.
//!
//! Deliberately absent: serde data binding, YAML 1.2 schemas, and any input or output of its own.

mod binary;
mod decode;
mod edit;
mod emit;
mod error;
mod events;
mod go_value;
mod input;
mod json;
mod limits;
mod node;
mod number;
mod parse;
pub mod resolve;
mod scan;
mod sort;
mod timestamp;

pub use decode::{Decoder, go_syntax, node_to_json, to_json, to_json_strict};
pub use edit::{replace_scalar, scalar_source, string_edit};
pub use emit::{
    CollectionStyle, Dialect, EmitError, Emitter, Layout, format_document, format_document_with, format_node,
    format_node_with, kustomize_json, kustomize_yaml, kustomize_yaml_into, to_yaml_sigs,
};
pub use error::{Error, ErrorKind};
pub use go_value::go_quote;
pub use json::json_text;
pub use limits::Limits;
pub use node::{Comments, Flow, Mapping, Node, Position, Scalar, ScalarStyle, Sequence, Tag, Text, Value};
pub use number::{format_float_g, format_float_g32, format_float_v, json_float};
pub use parse::{Aliases, Document, DuplicateKeys, Options, parse_one, parse_stream};
pub use resolve::{Resolved, Schema};
pub use sort::{key_order, sort_keys};
