//! YAML, comments included, as sops takes it apart and go-yaml v3 writes it: four columns, no styles kept.

use std::collections::HashMap;

use ::yaml::resolve::resolve_scalar;
use ::yaml::{
    Aliases, Comments, Dialect, Document, DuplicateKeys, Emitter, ErrorKind, Layout, Node, Options, Resolved,
    Scalar, ScalarStyle, Schema, Text, format_document_with, parse_one, parse_stream,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::{Format, output, shown, syntax};
use crate::Error;
use crate::tree::{Branch, Comment, Item, Value};

/// Nodes that aliases may stand for in all.
const MAX_EXPANDED: usize = 250_000;

pub(super) fn read(bytes: &[u8]) -> Result<Vec<Branch>, Error> {
    let options = Options { aliases: Aliases::Keep, ..Options::new(Schema::V3).with_comments() };
    // sops decodes the first document into a map beforehand, only to find keys that are given twice.
    let strict = Options { duplicate_keys: DuplicateKeys::Refuse, comments: false, ..options };
    parse_one(bytes, &strict).map_err(explain)?;
    let documents = parse_stream(bytes, &options).map_err(explain)?;
    let mut reader = Reader { anchors: HashMap::new(), open: Vec::new(), expanded: 0, strict: true };
    let mut branches = Vec::with_capacity(documents.len());
    for document in &documents {
        branches.push(reader.document(document)?);
        reader.strict = false;
    }
    Ok(branches)
}

/// go-yaml's words, unless they would show a value.
fn explain(error: ::yaml::Error) -> Error {
    let line = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
    match error.kind {
        ErrorKind::Value => syntax(Format::Yaml, format!("{line}a value is not what its tag says")),
        ErrorKind::Encoding
        | ErrorKind::Syntax
        | ErrorKind::Alias
        | ErrorKind::DuplicateKey
        | ErrorKind::Limit => syntax(Format::Yaml, format!("{line}{}", error.message())),
    }
}

struct Reader<'a> {
    anchors: HashMap<&'a str, &'a Node>,
    /// The anchors that are being expanded: none may contain itself.
    open: Vec<&'a str>,
    expanded: usize,
    /// Whether a scalar that is not what its tag says is an error. sops only looks at the first document; in later
    /// ones it takes such a value for null.
    strict: bool,
}

fn problem(node: &Node, what: &str) -> Error {
    syntax(Format::Yaml, format!("line {}: {what}", node.position().line.max(1)))
}

impl<'a> Reader<'a> {
    fn document(&mut self, document: &'a Document) -> Result<Branch, Error> {
        let mut branch = Vec::new();
        push_comments(&mut branch, &document.comments.head, false);
        self.root(&document.root, &mut branch)?;
        push_comments(&mut branch, &document.comments.foot, false);
        Ok(branch)
    }

    fn root(&mut self, node: &'a Node, branch: &mut Branch) -> Result<(), Error> {
        match &node.value {
            ::yaml::Value::Mapping(_) => self.mapping(node, branch, false),
            ::yaml::Value::Sequence(_) => Err(problem(node, "the document is a list, not a mapping")),
            ::yaml::Value::Alias(_) => Err(problem(node, "the document is an alias")),
            ::yaml::Value::Scalar(_) if node.is_null() => {
                let comments = node.comments().cloned().unwrap_or_default();
                push_comments(branch, &comments.head, false);
                push_comments(branch, &comments.line, false);
                // A document of nothing ends here in sops, without its foot.
                Ok(())
            }
            ::yaml::Value::Scalar(_) => Err(problem(node, "the document is a single value, not a mapping")),
        }
    }

    fn remember(&mut self, node: &'a Node) {
        if let Some(anchor) = node.anchor() {
            self.anchors.insert(anchor, node);
        }
    }

    fn mapping(&mut self, node: &'a Node, branch: &mut Branch, comments_done: bool) -> Result<(), Error> {
        self.remember(node);
        let comments = node.comments().filter(|_| !comments_done);
        if let Some(comments) = comments {
            push_comments(branch, &comments.head, false);
            push_comments(branch, &comments.line, false);
        }
        for (key, value) in node.entries() {
            self.remember(key);
            let of_key = key.comments().cloned().unwrap_or_default();
            push_comments(branch, &of_key.head, false);
            push_comments(branch, &of_key.line, false);
            let is_leaf = matches!(value.value, ::yaml::Value::Scalar(_) | ::yaml::Value::Alias(_));
            let of_value = value.comments().filter(|_| is_leaf).cloned().unwrap_or_default();
            push_comments(branch, &of_value.head, false);
            push_comments(branch, &of_value.line, true);
            let Value::Str(name) = self.value(key, true)? else {
                return Err(problem(key, "a key is not a string"));
            };
            let value = self.value(value, is_leaf)?;
            branch.push(Item::Entry(name, value));
            push_comments(branch, &of_value.foot, false);
            push_comments(branch, &of_key.foot, false);
        }
        if let Some(comments) = comments {
            push_comments(branch, &comments.foot, false);
        }
        Ok(())
    }

    fn value(&mut self, node: &'a Node, comments_done: bool) -> Result<Value, Error> {
        match &node.value {
            ::yaml::Value::Scalar(scalar) => {
                self.remember(node);
                self.scalar(node, scalar)
            }
            ::yaml::Value::Mapping(_) => {
                let mut branch = Vec::new();
                self.mapping(node, &mut branch, comments_done)?;
                Ok(Value::Map(branch))
            }
            ::yaml::Value::Sequence(_) => self.sequence(node, comments_done).map(Value::List),
            ::yaml::Value::Alias(name) => self.alias(node, name),
        }
    }

    fn sequence(&mut self, node: &'a Node, comments_done: bool) -> Result<Vec<Value>, Error> {
        self.remember(node);
        let mut list = Vec::new();
        let comments = node.comments().filter(|_| !comments_done);
        if let Some(comments) = comments {
            list_comments(&mut list, &comments.head, false);
            list_comments(&mut list, &comments.line, false);
        }
        for item in node.items() {
            let of_item = item.comments().cloned().unwrap_or_default();
            list_comments(&mut list, &of_item.head, false);
            list_comments(&mut list, &of_item.line, true);
            let value = self.value(item, true)?;
            list.push(value);
            list_comments(&mut list, &of_item.foot, false);
        }
        if let Some(comments) = comments {
            list_comments(&mut list, &comments.foot, false);
        }
        Ok(list)
    }

    fn alias(&mut self, node: &'a Node, name: &'a Text) -> Result<Value, Error> {
        let Some(target) = self.anchors.get(name.as_str()).copied() else {
            return Err(problem(node, "an alias has no anchor"));
        };
        let anchor = target.anchor().unwrap_or_default();
        if self.open.contains(&anchor) || self.open.len() > 64 {
            return Err(problem(node, "an anchor contains itself"));
        }
        self.expanded += 1;
        if self.expanded > MAX_EXPANDED {
            return Err(problem(node, "too many aliases"));
        }
        self.open.push(anchor);
        let value = self.value(target, false);
        self.open.pop();
        value
    }

    fn scalar(&mut self, node: &Node, scalar: &Scalar) -> Result<Value, Error> {
        if !self.open.is_empty() {
            self.expanded += 1;
            if self.expanded > MAX_EXPANDED {
                return Err(problem(node, "too many aliases"));
            }
        }
        let text = || Value::Str(scalar.text.as_bytes().to_vec());
        Ok(match resolve_scalar(&scalar.text, scalar.style, node.tag, Schema::V3) {
            Ok(Resolved::Null) => Value::Null,
            Ok(Resolved::Bool(flag)) => Value::Bool(flag),
            Ok(Resolved::Int(number)) => Value::Int(number),
            Ok(Resolved::Uint(_)) => {
                return Err(problem(node, "an integer above 9223372036854775807, which sops cannot hold"));
            }
            Ok(Resolved::Float(number)) => Value::Float(number),
            Ok(Resolved::Timestamp(time)) => Value::Time(time),
            Ok(Resolved::String | Resolved::Merge) => text(),
            Ok(Resolved::Binary) => {
                let base64: String = scalar.text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
                match BASE64_STANDARD.decode(base64) {
                    Ok(bytes) => Value::Str(bytes),
                    Err(_) if self.strict => return Err(problem(node, "!!binary that is not base64")),
                    Err(_) => Value::Null,
                }
            }
            Err(_) if self.strict => return Err(problem(node, "a value is not what its tag says")),
            Err(_) => Value::Null,
        })
    }
}

fn comment_lines(text: &str, inline: bool) -> impl Iterator<Item = Comment> + '_ {
    text.split('\n')
        .filter(|line| !line.is_empty())
        .map(move |line| Comment { text: line.as_bytes()[1..].to_vec(), inline })
}

fn push_comments(branch: &mut Branch, text: &str, inline: bool) {
    branch.extend(comment_lines(text, inline).map(Item::Comment));
}

fn list_comments(list: &mut Vec<Value>, text: &str, inline: bool) {
    list.extend(comment_lines(text, inline).map(Value::Comment));
}

pub(super) fn write(branches: &[Branch]) -> Result<Vec<u8>, Error> {
    let mut out = String::new();
    for (index, branch) in branches.iter().enumerate() {
        if index > 0 {
            out.push_str("---\n");
        }
        let document = Document {
            root: mapping_node(branch)?,
            comments: Comments::default(),
            explicit_start: index > 0,
        };
        let text = format_document_with(&document, Layout::GO_YAML).map_err(refuse)?;
        out.push_str(&text);
    }
    Ok(out.into_bytes())
}

fn refuse(error: ::yaml::EmitError) -> Error {
    match error {
        ::yaml::EmitError::Value(_) => output(Format::Yaml, "a value has no form in YAML"),
        error => output(Format::Yaml, error.to_string()),
    }
}

/// Comments that wait for the entry they stand before.
#[derive(Default)]
struct Waiting {
    above: Vec<Text>,
    beside: Vec<Text>,
}

impl Waiting {
    fn add(&mut self, comment: &Comment) {
        let text = String::from_utf8_lossy(&comment.text);
        let place = if comment.inline { &mut self.beside } else { &mut self.above };
        place.push(format!("#{text}").into());
    }

    fn write_above(&mut self, node: &mut Node) {
        if let Some(lines) = joined(&mut self.above) {
            let head = &mut node.comments_mut().head;
            *head = if head.is_empty() { lines } else { format!("{lines}\n{head}").into() };
        }
    }

    fn write_beside(&mut self, node: &mut Node) {
        if let Some(lines) = joined(&mut self.beside) {
            let line = &mut node.comments_mut().line;
            *line = if line.is_empty() { lines } else { format!("{line}\n{lines}").into() };
        }
    }

    /// What is left at the end of a collection.
    fn write_below(mut self, node: &mut Node) {
        self.above.append(&mut self.beside);
        if let Some(lines) = joined(&mut self.above) {
            let foot = &mut node.comments_mut().foot;
            *foot = if foot.is_empty() { lines } else { format!("{foot}\n{lines}").into() };
        }
    }
}

fn joined(lines: &mut Vec<Text>) -> Option<Text> {
    if lines.is_empty() {
        return None;
    }
    let lines: Vec<Text> = std::mem::take(lines);
    Some(lines.join("\n").into())
}

/// Comments before the first entry belong to the mapping itself, as in sops.
fn mapping_node(branch: &[Item]) -> Result<Node, Error> {
    let mut waiting = Waiting::default();
    let mut head = Node::null();
    let mut entries: Vec<(Node, Node)> = Vec::new();
    for item in branch {
        match item {
            Item::Comment(comment) => waiting.add(comment),
            Item::Entry(key, value) => {
                if entries.is_empty() {
                    waiting.write_above(&mut head);
                }
                let mut key_node = string_node(key)?;
                waiting.write_above(&mut key_node);
                let mut node = value_node(value, key)?;
                waiting.write_beside(&mut node);
                entries.push((key_node, node));
            }
        }
    }
    match entries.last_mut() {
        Some((key, _)) => waiting.write_below(key),
        None => {
            waiting.above.append(&mut waiting.beside);
            waiting.write_above(&mut head);
        }
    }
    Ok(with_head(Node::mapping(entries), head))
}

fn sequence_node(items: &[Value], key: &[u8]) -> Result<Node, Error> {
    let mut waiting = Waiting::default();
    let mut head = Node::null();
    let mut nodes: Vec<Node> = Vec::new();
    for item in items {
        if let Value::Comment(comment) = item {
            waiting.add(comment);
            continue;
        }
        if nodes.is_empty() {
            waiting.write_above(&mut head);
        }
        let mut node = value_node(item, key)?;
        waiting.write_above(&mut node);
        waiting.write_beside(&mut node);
        nodes.push(node);
    }
    match nodes.last_mut() {
        Some(node) => waiting.write_below(node),
        None => {
            waiting.above.append(&mut waiting.beside);
            waiting.write_above(&mut head);
        }
    }
    Ok(with_head(Node::sequence(nodes), head))
}

fn with_head(mut node: Node, head: Node) -> Node {
    if let Some(comments) = head.comments() {
        *node.comments_mut() = comments.clone();
    }
    node
}

fn value_node(value: &Value, key: &[u8]) -> Result<Node, Error> {
    Ok(match value {
        Value::Null => Node::null(),
        Value::Str(text) => string_node(text)?,
        Value::Int(number) => Node::int(*number),
        Value::Float(number) => Node::plain(::yaml::format_float_g(*number)),
        Value::Bool(flag) => Node::bool(*flag),
        Value::Time(time) => Node::plain(time.to_string()),
        Value::Bytes(bytes) => Node::sequence(bytes.iter().map(|byte| Node::int(i64::from(*byte))).collect()),
        Value::List(items) => sequence_node(items, key)?,
        Value::Map(branch) => mapping_node(branch)?,
        Value::Comment(_) => {
            return Err(output(Format::Yaml, format!("{} is a comment", shown(key))));
        }
    })
}

/// A string in the style go-yaml's `Node.Encode` gives it: written once, and read back.
fn string_node(text: &[u8]) -> Result<Node, Error> {
    let Ok(text) = std::str::from_utf8(text) else { return Ok(binary_node(text)) };
    if is_plainly_a_word(text) {
        return Ok(Node::string(text));
    }
    let mut emitter = Emitter::new(Dialect::V3).with_layout(Layout::GO_YAML);
    emitter.string(text);
    let written = emitter.finish();
    let read = parse_one(written.as_bytes(), &Options::new(Schema::V3));
    let document = read.ok().flatten();
    Ok(document.map_or_else(|| Node::quoted(text, ScalarStyle::DoubleQuoted), |document| document.root))
}

/// Letters and digits that cannot mean anything but themselves: most keys.
fn is_plainly_a_word(text: &str) -> bool {
    text.len() > 5
        && text.as_bytes()[0].is_ascii_alphabetic()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'))
}

/// What is not UTF-8 becomes base64, folded as go-yaml folds it.
fn binary_node(bytes: &[u8]) -> Node {
    const COLUMNS: usize = 70;
    let base64 = BASE64_STANDARD.encode(bytes);
    let text = if base64.len() < COLUMNS {
        base64
    } else {
        let mut folded = String::with_capacity(base64.len() + base64.len() / COLUMNS + 1);
        for (index, c) in base64.chars().enumerate() {
            folded.push(c);
            if (index + 1) % COLUMNS == 0 {
                folded.push('\n');
            }
        }
        if !folded.ends_with('\n') {
            folded.push('\n');
        }
        folded
    };
    let style = if text.contains('\n') { ScalarStyle::Literal } else { ScalarStyle::Plain };
    let mut node = Node::quoted(text, style);
    node.set_tag("!!binary", true);
    node
}
