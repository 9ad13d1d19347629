//! Nodes as `kustomize build` writes them.
//!
//! kustomize prints a resource by way of JSON: go-yaml v3 decides what each scalar means, encoding/json and
//! go-yaml v2 write it. Comments, styles, anchors and the order of keys are lost on that way. Here the tree is
//! walked once, and only a tree that would not come through unchanged takes the same detour.

use super::analysis::{analyze, is_blank, is_break};
use super::emitter::{CollectionStyle, Emitter};
use super::node::format_node;
use super::sigs::{write_json_key, write_json_number, write_json_string};
use super::{Dialect, EmitError};
use crate::decode::Decoder;
use crate::node::{Flow, Mapping, Node, Scalar, ScalarStyle, Tag, Value};
use crate::number::json_float;
use crate::resolve::{Resolved, resolve_scalar};
use crate::sort::sort_keys;
use crate::{Error, ErrorKind, Options, Schema, parse_one, to_yaml_sigs};

/// One resource as `kustomize build` prints it.
pub fn kustomize_yaml(node: &Node) -> Result<String, EmitError> {
    let mut out = String::new();
    kustomize_yaml_into(node, &mut out)?;
    Ok(out)
}

/// The same behind what `out` holds already, without the `---` between resources.
pub fn kustomize_yaml_into(node: &Node, out: &mut String) -> Result<(), EmitError> {
    if !is_straight(node, false) || matches!(node.value, Value::Scalar(_)) {
        if has_alias(node) {
            // What is too deep or too much is refused before it is printed.
            Decoder::new(Schema::V3).json(node)?;
        }
        out.push_str(&to_yaml_sigs(&through_text(node)?)?);
        return Ok(());
    }
    let length = out.len();
    let mut emitter = Emitter::append_to(Dialect::V2, std::mem::take(out));
    let written = write_node(&mut emitter, node);
    *out = emitter.finish();
    if written.is_err() {
        out.truncate(length);
    }
    written
}

/// The JSON by way of which one resource is printed.
pub fn kustomize_json(node: &Node) -> Result<serde_json::Value, EmitError> {
    if is_straight(node, false) && !has_folded(node) {
        Ok(Decoder::new(Schema::V3).json(node)?)
    } else {
        through_text(node)
    }
}

/// The long way kustomize always goes: the tree is printed, read again and decoded.
fn through_text(node: &Node) -> Result<serde_json::Value, EmitError> {
    let text = format_node(node)?;
    let document = parse_one(text.as_bytes(), &Options::new(Schema::V3))?;
    Ok(document.map_or(Ok(serde_json::Value::Object(Default::default())), |document| {
        Decoder::new(Schema::V3).json(&document.root)
    })?)
}

fn has_folded(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(scalar) => scalar.style == ScalarStyle::Folded,
        Value::Alias(_) => false,
        Value::Sequence(sequence) => sequence.items.iter().any(has_folded),
        Value::Mapping(mapping) => mapping.iter().any(|(key, value)| has_folded(key) || has_folded(value)),
    }
}

fn has_alias(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(_) => false,
        Value::Alias(_) => true,
        Value::Sequence(sequence) => sequence.items.iter().any(has_alias),
        Value::Mapping(mapping) => mapping.iter().any(|(key, value)| has_alias(key) || has_alias(value)),
    }
}

/// Whether the tree can be written as it stands: string keys, each of them once, no aliases, and only scalars
/// that go-yaml v3 prints in a way that it reads back unchanged.
fn is_straight(node: &Node, in_flow: bool) -> bool {
    match &node.value {
        Value::Scalar(scalar) => survives_text(node, scalar, in_flow),
        Value::Alias(_) => false,
        Value::Sequence(sequence) => {
            let in_flow = in_flow || sequence.flow == Flow::Flow;
            sequence.items.iter().all(|item| is_straight(item, in_flow))
        }
        Value::Mapping(mapping) => {
            let in_flow = in_flow || mapping.flow == Flow::Flow;
            mapping.iter().all(|(key, value)| {
                is_string_key(key) && is_straight(key, in_flow) && is_straight(value, in_flow)
            }) && has_unique_keys(mapping)
        }
    }
}

fn survives_text(node: &Node, scalar: &Scalar, in_flow: bool) -> bool {
    let text = scalar.text.as_str();
    match scalar.style {
        ScalarStyle::DoubleQuoted => true,
        ScalarStyle::SingleQuoted => !text.contains(is_break),
        // go-yaml gets the indentation of block text wrong that starts with a blank. See also `refolded`.
        ScalarStyle::Literal | ScalarStyle::Folded => survives_as_literal(text),
        ScalarStyle::Plain if text.contains('\n') => survives_as_literal(text),
        ScalarStyle::Plain if text.is_empty() => !in_flow,
        // Quotes would turn a number or a time into a string.
        ScalarStyle::Plain => {
            let analysis = analyze(text, Dialect::V3);
            let plain = if in_flow { analysis.flow_plain_allowed } else { analysis.block_plain_allowed };
            plain || node.short_tag() == "!!str"
        }
    }
}

/// A comment below text that keeps its last empty lines would add one more.
fn survives_as_literal(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c| is_blank(c) || is_break(c)) && !text.ends_with("\n\n")
}

fn is_string_key(key: &Node) -> bool {
    key.tag != Tag::Merge && key.as_str().is_some()
}

fn has_unique_keys(mapping: &Mapping) -> bool {
    let entries = &mapping.entries;
    if entries.len() <= 16 {
        return entries
            .iter()
            .enumerate()
            .all(|(index, (key, _))| entries[..index].iter().all(|(before, _)| before.text() != key.text()));
    }
    let mut keys: Vec<_> = entries.iter().map(|(key, _)| key.text()).collect();
    keys.sort_unstable();
    keys.windows(2).all(|pair| pair[0] != pair[1])
}

fn write_node(emitter: &mut Emitter, node: &Node) -> Result<(), EmitError> {
    match &node.value {
        Value::Scalar(scalar) => {
            let resolved = resolve_scalar(&scalar.text, scalar.style, node.tag, Schema::V3)?;
            if scalar.style == ScalarStyle::Folded && scalar.text.contains('\n') {
                return write_scalar(emitter, resolved, &refolded(&scalar.text)?);
            }
            write_scalar(emitter, resolved, &scalar.text)
        }
        Value::Sequence(sequence) => {
            emitter.begin_sequence(CollectionStyle::block(sequence.items.len()));
            for item in &sequence.items {
                write_node(emitter, item)?;
            }
            emitter.end_sequence();
            Ok(())
        }
        Value::Mapping(mapping) => {
            let mut entries: Vec<(&str, &Node)> =
                mapping.iter().map(|(key, value)| (key.text().unwrap_or_default(), value)).collect();
            sort_keys(&mut entries, |(key, _)| key, Dialect::V2);
            emitter.begin_mapping(CollectionStyle::block(entries.len()));
            for (key, value) in entries {
                write_json_key(emitter, key)?;
                write_node(emitter, value)?;
            }
            emitter.end_mapping();
            Ok(())
        }
        Value::Alias(name) => {
            Err(Error::new(ErrorKind::Alias, format!("unknown anchor '{name}' referenced")).into())
        }
    }
}

/// What becomes of folded text on its way: go-yaml v3 gets some of the breaks wrong when it prints them. That
/// does not depend on where the text stands, so a document of its own shows it.
fn refolded(text: &str) -> Result<String, EmitError> {
    let printed =
        format_node(&Node::mapping(vec![(Node::plain("a"), Node::quoted(text, ScalarStyle::Folded))]))?;
    let read = parse_one(printed.as_bytes(), &Options::new(Schema::V3))?;
    let text = read.as_ref().and_then(|document| document.root.get("a")?.text());
    Ok(text.unwrap_or_default().to_owned())
}

fn write_scalar(emitter: &mut Emitter, resolved: Resolved, text: &str) -> Result<(), EmitError> {
    match resolved {
        Resolved::Null => emitter.null(),
        Resolved::Bool(value) => emitter.bool(value),
        Resolved::Int(value) => emitter.int(value),
        Resolved::Uint(value) => emitter.uint(value),
        Resolved::Float(value) => match json_float(value) {
            Some(text) => write_json_number(emitter, &text),
            None => return Err(crate::decode::unsupported_float(value).into()),
        },
        Resolved::String | Resolved::Merge => write_json_string(emitter, text)?,
        // The JSON string is read back as a string, which v2 has to quote to keep it one.
        Resolved::Timestamp(time) => emitter.scalar(&time.to_string(), ScalarStyle::DoubleQuoted),
        Resolved::Binary => write_json_string(emitter, &crate::binary::binary_text(text)?)?,
    }
    Ok(())
}
