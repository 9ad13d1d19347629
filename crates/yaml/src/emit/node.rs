//! Nodes as kyaml's `RNode.String()` writes them: go-yaml v3 with two columns and compact sequences.

use super::emitter::{CollectionStyle, Emitter, Properties, Step};
use super::{Dialect, EmitError, Layout};
use crate::Document;
use crate::node::{Flow, LONG_TAG_PREFIX, Node, Scalar, ScalarStyle, Tag, Value};
use crate::resolve::implicit_tag;
use crate::{Comments, Schema};

/// The text of one node as a document of its own.
pub fn format_node(node: &Node) -> Result<String, EmitError> {
    format_node_with(node, Layout::KYAML)
}

pub fn format_node_with(node: &Node, layout: Layout) -> Result<String, EmitError> {
    let mut emitter = Emitter::new(Dialect::V3).with_layout(layout);
    write_node(&mut emitter, node, node.comments(), "")?;
    Ok(emitter.finish())
}

/// The text of a document with the comments above and below it.
pub fn format_document(document: &Document) -> Result<String, EmitError> {
    format_document_with(document, Layout::KYAML)
}

pub fn format_document_with(document: &Document, layout: Layout) -> Result<String, EmitError> {
    let mut emitter = Emitter::new(Dialect::V3).with_layout(layout);
    emitter.document_head(&document.comments.head);
    write_node(&mut emitter, &document.root, document.root.comments(), "")?;
    Ok(emitter.finish_with_foot(&document.comments.foot))
}

fn write_node(
    emitter: &mut Emitter,
    node: &Node,
    comments: Option<&Comments>,
    tail: &str,
) -> Result<(), EmitError> {
    let (tag, quote) = shown_tag(node);
    let all = properties(node, &tag, comments, tail);
    // The line and foot comments of a collection stand behind its end.
    let opening = Properties { line: "", foot: "", ..all };
    let closing = Properties { anchor: "", tag: "", head: "", tail: "", ..all };
    match &node.value {
        Value::Scalar(scalar) => emitter.step(Step::Scalar(&scalar.text, scalar_style(scalar, quote)), &all),
        Value::Alias(name) => {
            emitter.step(Step::Alias(name), &Properties { anchor: "", tag: "", tail: "", ..all })
        }
        Value::Sequence(sequence) => {
            let style =
                CollectionStyle { flow: sequence.flow == Flow::Flow, empty: sequence.items.is_empty() };
            emitter.step(Step::Sequence(style), &Properties { tail: "", ..opening })?;
            for item in &sequence.items {
                write_node(emitter, item, item.comments(), "")?;
            }
            emitter.end_collection(&closing);
            Ok(())
        }
        Value::Mapping(mapping) => {
            let style =
                CollectionStyle { flow: mapping.flow == Flow::Flow, empty: mapping.entries.is_empty() };
            emitter.step(Step::Mapping(style), &opening)?;
            let tail = write_entries(emitter, &mapping.entries)?;
            emitter.end_collection(&Properties { tail, ..closing });
            Ok(())
        }
    }
}

/// The foot comment of a key is written above the next key, when its value is done. Returns the last one.
fn write_entries<'a>(emitter: &mut Emitter, entries: &'a [(Node, Node)]) -> Result<&'a str, EmitError> {
    let mut tail = "";
    for (key, value) in entries {
        match key.comments().filter(|comments| !comments.foot.is_empty()) {
            None => {
                write_node(emitter, key, key.comments(), tail)?;
                tail = "";
            }
            Some(comments) => {
                let above = Comments { foot: Default::default(), ..comments.clone() };
                write_node(emitter, key, Some(&above), tail)?;
                tail = &comments.foot;
            }
        }
        write_node(emitter, value, value.comments(), "")?;
    }
    Ok(tail)
}

fn properties<'a>(
    node: &'a Node,
    tag: &'a str,
    comments: Option<&'a Comments>,
    tail: &'a str,
) -> Properties<'a> {
    let (head, line, foot) =
        comments.map_or(("", "", ""), |comments| (&*comments.head, &*comments.line, &*comments.foot));
    Properties { anchor: node.anchor().unwrap_or_default(), tag, head, line, foot, tail }
}

/// The tag to write in its long form, and whether the text must be quoted to stay a string without it.
fn shown_tag(node: &Node) -> (String, bool) {
    if matches!(node.tag, Tag::Implicit | Tag::NonSpecific) {
        return (String::new(), false);
    }
    if !node.tag_shown {
        match &node.value {
            Value::Scalar(scalar) => {
                if node.tag == Tag::Str && scalar.style != ScalarStyle::Plain {
                    return (String::new(), false);
                }
                if implicit_tag(&scalar.text, Schema::V3) == node.tag {
                    return (String::new(), false);
                }
                if node.tag == Tag::Str {
                    return (String::new(), true);
                }
            }
            Value::Mapping(_) if node.tag == Tag::Map => return (String::new(), false),
            Value::Sequence(_) if node.tag == Tag::Seq => return (String::new(), false),
            Value::Mapping(_) | Value::Sequence(_) | Value::Alias(_) => {}
        }
    }
    let text = node.tag_text();
    (
        text.strip_prefix("!!").map_or_else(|| text.to_owned(), |name| format!("{LONG_TAG_PREFIX}{name}")),
        false,
    )
}

fn scalar_style(scalar: &Scalar, quote: bool) -> ScalarStyle {
    match scalar.style {
        ScalarStyle::Plain if scalar.text.contains('\n') => ScalarStyle::Literal,
        ScalarStyle::Plain if quote => ScalarStyle::DoubleQuoted,
        style => style,
    }
}
