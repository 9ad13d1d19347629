//! Files to resources: documents are split, checked for what makes an object, and lists are taken apart.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use serde_json::Value as Json;

use crate::error::{Class, Error};
use crate::resource::Resource;
use crate::tree::{self, Kind, NodeId, Tree};

/// All resources of a text.
pub(crate) fn resources(tree: &mut Tree, content: &[u8]) -> Result<Vec<Resource>, Error> {
    let nodes = objects(tree, content)?;
    let nodes = drop_bad(tree, nodes)?;
    inline_lists(tree, nodes)?.into_iter().map(|node| Resource::new(tree, node)).collect()
}

/// An error of [`resources`], with the file it is about.
pub(crate) fn in_file(error: Error, path: &str) -> Error {
    let text = error.to_string();
    if text.contains("error converting YAML to JSON") || text.contains("error unmarshaling JSON") {
        return Error::new(Class::Yaml, format!("YAML file [{path}] encounters a format error.\n{text}\n"));
    }
    if is_malformed(&error) {
        return Error::new(Class::Yaml, format!("{text} in File: {path}"));
    }
    error
}

/// Whether a text is no YAML at all.
pub(crate) fn is_malformed(error: &Error) -> bool {
    error.to_string().contains("MalformedYAMLError")
}

/// The documents of a text, a lone `List` already taken apart.
fn objects(tree: &mut Tree, content: &[u8]) -> Result<Vec<NodeId>, Error> {
    let content = unix_lines(content);
    let documents = split_documents(&content)?;
    let alone = documents.len() == 1;
    let mut found = Vec::new();
    for document in documents {
        let malformed = |text: String| Error::new(Class::Yaml, format!("MalformedYAMLError: {text}"));
        let Some(node) = tree::parse(document).map_err(|error| limit_or(error, malformed))? else { continue };
        let node = tree.take(node).map_err(|text| Error::new(Class::Yaml, text))?;
        if tree.is_null(node) {
            continue;
        }
        let kind = tree.get(node, "kind").map_or("", |kind| tree.text(kind));
        let wraps = tree.get(node, "items").is_some() || tree.get(node, "functionConfig").is_some();
        if alone && matches!(kind, "ResourceList" | "List") && wraps {
            if let Some(items) = tree.get(node, "items") {
                found.extend_from_slice(tree.content(items));
            }
            continue;
        }
        found.push(node);
    }
    Ok(found)
}

fn limit_or(error: yaml::Error, other: impl FnOnce(String) -> Error) -> Error {
    if error.kind == yaml::ErrorKind::Limit {
        return Error::new(Class::Limit, error.to_string());
    }
    other(error.to_string())
}

fn unix_lines(content: &[u8]) -> Cow<'_, [u8]> {
    if !content.windows(2).any(|pair| pair == b"\r\n") {
        return Cow::Borrowed(content);
    }
    let mut out = Vec::with_capacity(content.len());
    let mut bytes = content.iter().peekable();
    while let Some(byte) = bytes.next() {
        if *byte != b'\r' || bytes.peek() != Some(&&b'\n') {
            out.push(*byte);
        }
    }
    Cow::Owned(out)
}

/// kyaml looks for lines that begin with `---` before it parses anything; only the first document of each part
/// is read.
fn split_documents(content: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let mut documents = Vec::new();
    if content.is_empty() {
        return Ok(documents);
    }
    let (mut start, mut at) = (0, 0);
    while let Some(found) = find(&content[at..], b"\n---") {
        let line = at + found + 1;
        let Some(length) = content[line..].iter().position(|byte| *byte == b'\n') else { break };
        let rest = String::from_utf8_lossy(&content[line + 3..line + length]);
        let rest = rest.trim();
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(Error::new(
                Class::Yaml,
                format!(
                    "invalid document separator: ---{}",
                    &rest_of_line(&content[line + 3..line + length])
                ),
            ));
        }
        documents.push(&content[start..line]);
        start = line + length + 1;
        at = start;
    }
    documents.push(&content[start..]);
    Ok(documents)
}

fn rest_of_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|byte| *byte == needle[0]) {
        if haystack[from + at..].starts_with(needle) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn drop_bad(tree: &Tree, nodes: Vec<NodeId>) -> Result<Vec<NodeId>, Error> {
    let mut good = Vec::with_capacity(nodes.len());
    for node in nodes {
        if tree.is_null_or_empty(node) {
            continue;
        }
        check_metadata(tree, node)?;
        good.push(node);
    }
    Ok(good)
}

/// Refuses what has no kind or no name.
pub(crate) fn check_metadata(tree: &Tree, node: NodeId) -> Result<(), Error> {
    let meta = Meta::read(tree, node).ok_or_else(|| Error::new(Class::Yaml, "missing Resource metadata"))?;
    let missing =
        |what: &str| Err(Error::new(Class::Yaml, format!("missing {what} in object {}", meta.go_text())));
    if meta.kind.is_empty() {
        return missing("kind");
    }
    if !meta.kind.ends_with("List") && meta.name.is_empty() {
        return missing("metadata.name");
    }
    Ok(())
}

/// The metadata of an object as kyaml reads it.
#[derive(Default)]
struct Meta {
    api_version: String,
    kind: String,
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Meta {
    /// Nothing when there is no metadata whatsoever.
    fn read(tree: &Tree, node: NodeId) -> Option<Self> {
        let mut meta = Self::default();
        let mut any = false;
        let filled =
            |map: NodeId, name: &str| tree.get(map, name).filter(|node| !tree.is_null_or_empty(*node));
        let mut text = |map: NodeId, name: &str| {
            let found = filled(map, name);
            any |= found.is_some();
            found.map(|node| tree.text(node).to_owned()).unwrap_or_default()
        };
        meta.api_version = text(node, "apiVersion");
        meta.kind = text(node, "kind");
        if let Some(metadata) = filled(node, "metadata") {
            meta.name = text(metadata, "name");
            meta.namespace = text(metadata, "namespace");
            for (field, place) in [("labels", &mut meta.labels), ("annotations", &mut meta.annotations)] {
                if let Some(map) = filled(metadata, field) {
                    any = true;
                    place.extend(
                        tree.entries(map)
                            .map(|(key, value)| (value_text(tree, key), value_text(tree, value))),
                    );
                }
            }
        }
        any.then_some(meta)
    }

    /// As Go prints the struct with `%v`.
    fn go_text(&self) -> String {
        format!(
            "{{{{{} {}}} {{{{{} {}}} {} {}}}}}",
            self.api_version,
            self.kind,
            self.name,
            self.namespace,
            crate::go_text::map(&self.labels),
            crate::go_text::map(&self.annotations)
        )
    }
}

fn value_text(tree: &Tree, node: NodeId) -> String {
    if tree.is_null(node) { String::new() } else { tree.text(node).to_owned() }
}

/// How deep lists may hold lists.
const MAX_LISTS: usize = 1_000_000;

/// Objects of kind `…List` with items are replaced by these, at the end of the queue.
fn inline_lists(tree: &mut Tree, nodes: Vec<NodeId>) -> Result<Vec<NodeId>, Error> {
    let mut queue = VecDeque::from(nodes);
    let mut result = Vec::with_capacity(queue.len());
    while let Some(node) = queue.pop_front() {
        let kind = tree.get(node, "kind").map_or("", |kind| tree.text(kind)).to_owned();
        if !kind.ends_with("List") || tree.get(node, "items").is_none() {
            result.push(node);
            continue;
        }
        let json = tree.to_json(node).map_err(|error| {
            let text = format!(
                "trouble expanding list of {kind}; received error {error} for the following resource:\n{}",
                tree.kyaml_text(node)
            );
            Error::new(Class::Yaml, text)
        })?;
        let items = match json.get("items") {
            Some(Json::Array(items)) => items,
            None | Some(Json::Null) => continue,
            Some(other) => {
                let text = format!("expected array in {kind}/items, but found {}", go_type(other));
                return Err(Error::new(Class::Yaml, text));
            }
        };
        for item in items {
            let node = tree.add_json_text(item);
            let inner = unwrap_lone_list(tree, node);
            queue.extend(drop_bad(tree, inner)?);
        }
        if result.len() + queue.len() > MAX_LISTS {
            return Err(Error::new(Class::Limit, format!("lists hold more than {MAX_LISTS} objects")));
        }
    }
    Ok(result)
}

fn unwrap_lone_list(tree: &Tree, node: NodeId) -> Vec<NodeId> {
    let kind = tree.get(node, "kind").map_or("", |kind| tree.text(kind));
    match tree.get(node, "items") {
        Some(items) if matches!(kind, "ResourceList" | "List") => tree.content(items).to_vec(),
        _ if tree.is_null(node) || tree.kind(node) == Kind::Scalar => vec![node],
        _ => vec![node],
    }
}

fn go_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>, Error> {
        let mut tree = Tree::default();
        let resources = resources(&mut tree, text.as_bytes())?;
        Ok(resources.iter().map(|resource| resource.name(&tree).to_string()).collect())
    }

    #[test]
    fn documents_are_split_before_they_are_parsed() {
        let text = "# a\n---\nkind: A\nmetadata: {name: a}\n--- # two\nkind: B\nmetadata: {name: b}\n---\n";
        assert_eq!(names(text).unwrap(), ["a", "b"]);
        let error = names("kind: A\nmetadata: {name: a}\n--- x\n").unwrap_err();
        assert_eq!(error.to_string(), "invalid document separator: --- x");
    }

    #[test]
    fn items_of_lists_become_resources() {
        let list = "kind: List\nitems:\n- {kind: A, metadata: {name: a}}\n- {kind: B, metadata: {name: b}}\n";
        assert_eq!(names(list).unwrap(), ["a", "b"]);
        let two = format!("{list}---\nkind: C\nmetadata: {{name: c}}\n");
        assert_eq!(names(&two).unwrap(), ["c", "a", "b"]);
        assert_eq!(names("kind: List\nitems:\n").unwrap(), [""; 0]);
    }

    #[test]
    fn objects_without_kind_or_name_are_refused() {
        assert_eq!(
            names("apiVersion: v1\nmetadata: {name: x}\n").unwrap_err().to_string(),
            "missing kind in object {{v1 } {{x } map[] map[]}}"
        );
        assert_eq!(
            names("apiVersion: v1\nkind: Foo\n").unwrap_err().to_string(),
            "missing metadata.name in object {{v1 Foo} {{ } map[] map[]}}"
        );
        assert_eq!(names("a: b\n").unwrap_err().to_string(), "missing Resource metadata");
    }
}
