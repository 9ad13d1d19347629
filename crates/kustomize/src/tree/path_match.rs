//! kyaml's `PathMatcher`: all nodes at a path in which elements are picked by regular expression or `*`.

use regex::Regex;

use super::lookup::{element_selector, go_int, is_element_selector, is_index, kind_before};
use super::{Kind, NodeId, Tree};

/// A search below one node. With `create`, missing fields and elements are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMatch {
    /// The kind of the last node, when missing ones are to be made.
    pub create: Option<Kind>,
}

impl PathMatch {
    pub(crate) fn find<S: AsRef<str>>(
        self,
        tree: &mut Tree,
        start: NodeId,
        path: &[S],
    ) -> Result<Vec<NodeId>, String> {
        let parts: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        self.walk(tree, start, &parts)
    }

    fn walk(self, tree: &mut Tree, at: NodeId, path: &[&str]) -> Result<Vec<NodeId>, String> {
        let Some((part, rest)) = path.split_first() else { return Ok(vec![at]) };
        if is_index(part) {
            self.index(tree, at, part, rest)
        } else if is_element_selector(part) {
            self.selected(tree, at, part, rest)
        } else if *part == "*" {
            let mut found = Vec::new();
            for item in items(tree, at)? {
                found.extend(self.walk(tree, item, rest)?);
            }
            Ok(found)
        } else {
            self.field(tree, at, part, rest)
        }
    }

    fn field(self, tree: &mut Tree, at: NodeId, name: &str, rest: &[&str]) -> Result<Vec<NodeId>, String> {
        if name.is_empty() {
            // To kyaml an empty name means the node itself, which it then takes for a scalar.
            let found = tree.kind(at).name();
            let contents = tree.kyaml_text(at);
            return Err(format!(
                "wrong node kind: expected ScalarNode but got {found}: node contents:\n{contents}"
            ));
        }
        let field = match (tree.field(at, name).map_err(|error| error.to_string())?, self.create) {
            (Some(field), _) => field,
            (None, None) => return Ok(Vec::new()),
            (None, Some(kind)) => {
                let made = tree.empty(kind_before(rest.first().copied(), kind));
                tree.set_field(at, name, made).map_err(|error| error.to_string())?
            }
        };
        if tree.kind(field) == Kind::Scalar && !rest.is_empty() {
            // The path goes on inside a text: the match is found in a copy, and writing to it changes nothing.
            let inner = tree.parse_text(field)?;
            return self.walk(tree, inner, rest);
        }
        self.walk(tree, field, rest)
    }

    fn index(self, tree: &mut Tree, at: NodeId, part: &str, rest: &[&str]) -> Result<Vec<NodeId>, String> {
        let index = go_int(part).and_then(|index| usize::try_from(index).ok()).unwrap_or(usize::MAX);
        let mut elements = items(tree, at)?;
        if let Some(kind) = self.create
            && elements.len() == index
        {
            let made = tree.empty(kind_before(rest.first().copied(), kind));
            append(tree, at, made);
            elements.push(made);
        }
        let Some(element) = elements.get(index) else {
            return Err(format!("index {index} specified but only {} elements found", elements.len()));
        };
        self.walk(tree, *element, rest)
    }

    fn selected(self, tree: &mut Tree, at: NodeId, part: &str, rest: &[&str]) -> Result<Vec<NodeId>, String> {
        let (key, pattern) = element_selector(part)?;
        let regex = crate::go_text::regex(pattern)?;
        let found = self.matching(tree, at, key, &regex, rest)?;
        if !found.is_empty() || self.create.is_none() {
            return Ok(found);
        }
        let value = tree.plain(pattern);
        let element = if key.is_empty() {
            value
        } else {
            let map = tree.empty(Kind::Map);
            let key = tree.plain(key);
            tree.push_field(map, key, value);
            map
        };
        append(tree, at, element);
        let found = self.matching(tree, at, key, &regex, rest)?;
        if found.is_empty() {
            // kustomize would go on adding elements for ever: the pattern does not match its own text.
            return Err(format!("failed to create element for {}", crate::go_text::quote(part)));
        }
        Ok(found)
    }

    fn matching(
        self,
        tree: &mut Tree,
        at: NodeId,
        key: &str,
        regex: &Regex,
        rest: &[&str],
    ) -> Result<Vec<NodeId>, String> {
        let mut found = Vec::new();
        for item in items(tree, at)? {
            let subject = if key.is_empty() { Some(item) } else { tree.get(item, key) };
            let Some(subject) = subject else { continue };
            // The text is compared as it would be written, quotes included.
            if !regex.is_match(tree.kyaml_text(subject).trim()) {
                continue;
            }
            if key.is_empty() {
                found.push(item);
            } else {
                found.extend(self.walk(tree, item, rest)?);
            }
        }
        Ok(found)
    }
}

fn items(tree: &Tree, list: NodeId) -> Result<Vec<NodeId>, String> {
    tree.elements(list).map(<[NodeId]>::to_vec).map_err(|error| error.to_string())
}

fn append(tree: &mut Tree, list: NodeId, element: NodeId) {
    if let Some(content) = tree.content_mut(list) {
        content.push(element);
    }
}
