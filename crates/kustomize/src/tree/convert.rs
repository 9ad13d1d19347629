//! Between the arena and the YAML crate's nodes: reading, writing, and JSON both ways.

use serde_json::Value as Json;
use yaml::resolve::{implicit_tag, resolve_v3};
use yaml::{Flow, Limits, Mapping, Node, Scalar, Schema, Sequence, Value};

use super::{Body, NodeData, NodeId, ScalarStyle, Tag, Tree};

/// Nodes that aliases may add to a text of this many bytes. A text alone cannot have more nodes than bytes.
fn limits(bytes: usize) -> Limits {
    Limits { nodes: 200_000 + bytes, ..Limits::default() }
}

/// The first document of a text, its aliases expanded; nothing if there is none.
pub(crate) fn parse(text: &[u8]) -> Result<Option<Node>, yaml::Error> {
    let mut options = yaml::Options::new(Schema::V3).with_expanded_aliases();
    options.limits = limits(text.len());
    // Comments only matter where one may be a schema: see `Tree::schema_comment`.
    options.comments = text.windows(3).any(|bytes| matches!(bytes, b"# {" | [b'#', b'{', _]));
    Ok(yaml::parse_one(text, &options)?.map(|document| document.root))
}

impl Tree {
    /// Takes a parsed node in, merge keys applied.
    pub(crate) fn take(&mut self, node: Node) -> Result<NodeId, String> {
        let comments = node.comments().cloned();
        let id = self.take_uncommented(node)?;
        if let Some(comments) = comments {
            self.comments.insert(id, comments);
        }
        Ok(id)
    }

    fn take_uncommented(&mut self, node: Node) -> Result<NodeId, String> {
        let Node { value, tag, tag_shown, .. } = node;
        let body = match value {
            Value::Scalar(Scalar { text, style }) => {
                let tag = match tag {
                    Tag::Implicit | Tag::NonSpecific if style == ScalarStyle::Plain => {
                        implicit_tag(&text, Schema::V3)
                    }
                    Tag::Implicit | Tag::NonSpecific => Tag::Str,
                    explicit => explicit,
                };
                let shown = tag_shown && tag != Tag::NonSpecific;
                return Ok(self.add(NodeData { body: Body::Scalar { text, style }, tag, tag_shown: shown }));
            }
            Value::Sequence(Sequence { items, flow }) => {
                let mut content = Vec::with_capacity(items.len());
                for item in items {
                    content.push(self.take(item)?);
                }
                Body::Seq { content, flow: flow == Flow::Flow }
            }
            Value::Mapping(Mapping { entries, flow }) => {
                let mut content = Vec::with_capacity(entries.len() * 2);
                let mut merge = None;
                for (key, value) in entries {
                    let key = self.take(key)?;
                    let value = self.take(value)?;
                    if self[key].tag != Tag::Merge {
                        content.push(key);
                        content.push(value);
                    } else if merge.replace(value).is_some() {
                        return Err("duplicate merge key".to_owned());
                    }
                }
                if let Some(merge) = merge {
                    self.merge_into(&mut content, merge)?;
                }
                Body::Map { content, flow: flow == Flow::Flow }
            }
            Value::Alias(name) => return Err(format!("unknown anchor '{name}' referenced")),
        };
        let default = if matches!(body, Body::Map { .. }) { Tag::Map } else { Tag::Seq };
        let tag = if matches!(tag, Tag::Implicit | Tag::NonSpecific) { default } else { tag };
        Ok(self.add(NodeData { body, tag, tag_shown }))
    }

    /// Applies the value of a `<<` key: what the map has itself stays, of several maps the first wins.
    fn merge_into(&mut self, content: &mut Vec<NodeId>, value: NodeId) -> Result<(), String> {
        let maps: Vec<NodeId> = match &self[value].body {
            Body::Map { .. } => vec![value],
            Body::Seq { content, .. } => content.clone(),
            Body::Scalar { .. } => {
                return Err("map merge requires map or sequence of maps as the value".to_owned());
            }
        };
        for map in maps {
            let Body::Map { content: theirs, .. } = &self[map].body else {
                return Err("invalid map merge: received a nested sequence".to_owned());
            };
            for pair in theirs.clone().chunks_exact(2) {
                let known = content.iter().step_by(2).any(|key| self.text(*key) == self.text(pair[0]));
                if !known {
                    content.extend_from_slice(pair);
                }
            }
        }
        Ok(())
    }

    /// The node as the YAML crate holds it.
    pub(crate) fn to_yaml(&self, id: NodeId) -> Node {
        let data = &self[id];
        let flow = |flow: bool| if flow { Flow::Flow } else { Flow::Block };
        let value = match &data.body {
            Body::Scalar { text, style } => Value::Scalar(Scalar { text: text.clone(), style: *style }),
            Body::Seq { content, flow: is_flow } => Value::Sequence(Sequence {
                items: content.iter().map(|item| self.to_yaml(*item)).collect(),
                flow: flow(*is_flow),
            }),
            Body::Map { content, flow: is_flow } => Value::Mapping(Mapping {
                entries: content
                    .chunks_exact(2)
                    .map(|pair| (self.to_yaml(pair[0]), self.to_yaml(pair[1])))
                    .collect(),
                flow: flow(*is_flow),
            }),
        };
        let mut node = Node::from(value);
        node.tag = if self.quotes_hide_tag(id) { Tag::Str } else { data.tag };
        node.tag_shown = data.tag_shown;
        if let Some(comments) = self.comments.get(&id) {
            *node.comments_mut() = comments.clone();
        }
        node
    }

    /// A number that took over the quotes of the text it replaced. go-yaml does not write a tag that can be
    /// guessed from the text, so that only the quotes remain, and they make it a string.
    fn quotes_hide_tag(&self, id: NodeId) -> bool {
        let data = &self[id];
        match &data.body {
            Body::Scalar { text, style } => {
                *style != ScalarStyle::Plain
                    && !data.tag_shown
                    && !matches!(data.tag, Tag::Str | Tag::Implicit)
                    && implicit_tag(text, Schema::V3) == data.tag
            }
            Body::Map { .. } | Body::Seq { .. } => false,
        }
    }

    /// Whether the comment of a node is a JSON object: kyaml takes that for a schema, which then hides the one
    /// that the place of the node has.
    pub(crate) fn schema_comment(&self, id: NodeId) -> bool {
        let Some(comments) = self.comments.get(&id) else { return false };
        let first = [&comments.line, &comments.head].into_iter().find(|text| !text.is_empty());
        let json = first.and_then(|text| serde_json::from_str::<Json>(text.trim_start_matches('#')).ok());
        matches!(json, Some(Json::Object(fields)) if !fields.is_empty())
    }

    /// The node as kyaml prints it.
    pub(crate) fn kyaml_text(&self, id: NodeId) -> String {
        yaml::format_node(&self.to_yaml(id)).unwrap_or_default()
    }

    /// The node as JSON, the way kyaml converts it.
    pub(crate) fn to_json(&self, id: NodeId) -> Result<Json, yaml::EmitError> {
        yaml::kustomize_json(&self.to_yaml(id))
    }

    /// The path of the first field that JSON cannot hold: a key that is no string, or a number without end.
    pub(crate) fn field_without_json(&self, root: NodeId) -> Option<String> {
        let (path, key) = self.find_unwritable(root, true)?;
        let path = if path.is_empty() { "the object".to_owned() } else { path };
        Some(match key {
            Some(key) => format!("{path} has the key {key}, which is no string"),
            None => format!("{path} is no number that JSON knows"),
        })
    }

    fn find_unwritable(&self, id: NodeId, is_top: bool) -> Option<(String, Option<String>)> {
        let below = |name: String, found: (String, Option<String>)| {
            let (rest, key) = found;
            let path = if rest.is_empty() || rest.starts_with('[') {
                name + &rest
            } else {
                format!("{name}.{rest}")
            };
            (path, key)
        };
        match &self[id].body {
            Body::Scalar { text, .. } => {
                let infinite = matches!(resolve_v3(text), yaml::Resolved::Float(value) if !value.is_finite());
                (infinite && !self.is_read_as_string(id)).then(Default::default)
            }
            Body::Seq { content, .. } => content.iter().enumerate().find_map(|(at, item)| {
                self.find_unwritable(*item, false).map(|found| below(format!("[{at}]"), found))
            }),
            Body::Map { content, .. } => {
                let odd = content.iter().step_by(2).find(|key| !is_top && !self.is_read_as_string(**key));
                if let Some(key) = odd {
                    return Some((String::new(), Some(self.text(*key).to_owned())));
                }
                content.chunks_exact(2).find_map(|pair| {
                    self.find_unwritable(pair[1], false)
                        .map(|found| below(self.text(pair[0]).to_owned(), found))
                })
            }
        }
    }

    /// The text of a scalar, read as YAML.
    pub(crate) fn parse_text(&mut self, scalar: NodeId) -> Result<NodeId, String> {
        self.parse_document(scalar).map(|(root, _)| root)
    }

    /// As [`Self::parse_text`], with the comments around the document.
    pub(crate) fn parse_document(&mut self, scalar: NodeId) -> Result<(NodeId, yaml::Comments), String> {
        let text = self.owned_text(scalar);
        let mut options = yaml::Options::new(Schema::V3).with_expanded_aliases().with_comments();
        options.limits = limits(text.len());
        match yaml::parse_one(text.as_bytes(), &options).map_err(|error| error.to_string())? {
            Some(document) => Ok((self.take(document.root)?, document.comments)),
            None => Err("wrong node kind: expected MappingNode but got : node contents:\nnull\n".to_owned()),
        }
    }

    /// A document as kyaml prints it.
    pub(crate) fn document_text(&self, root: NodeId, comments: yaml::Comments) -> String {
        let document = yaml::Document { root: self.to_yaml(root), comments, explicit_start: false };
        yaml::format_document(&document).unwrap_or_default()
    }

    /// JSON as kyaml takes it in after a JSON patch: every number became a float on the way, and strings are
    /// quoted where they have to be.
    pub(crate) fn add_decoded_json(&mut self, value: &Json) -> NodeId {
        match value {
            Json::Null => self.scalar("null", Tag::Null, ScalarStyle::Plain),
            Json::Bool(flag) => self.scalar(flag.to_string(), Tag::Bool, ScalarStyle::Plain),
            Json::Number(number) => {
                let text = yaml::format_float_g(number.as_f64().unwrap_or_default());
                let tag = implicit_tag(&text, Schema::V3);
                self.scalar(text, tag, ScalarStyle::Plain)
            }
            Json::String(text) => self.marshalled_string(text),
            Json::Array(items) => {
                let content = items.iter().map(|item| self.add_decoded_json(item)).collect();
                self.seq(content)
            }
            Json::Object(entries) => {
                let mut content = Vec::with_capacity(entries.len() * 2);
                for (key, value) in entries {
                    content.push(self.marshalled_string(key));
                    content.push(self.add_decoded_json(value));
                }
                self.map(content)
            }
        }
    }

    /// A string in the style go-yaml v3 would write it with.
    fn marshalled_string(&mut self, text: &str) -> NodeId {
        let style = if text.contains('\n') {
            ScalarStyle::Literal
        } else if resolve_v3(text).tag() == Tag::Str && !looks_like_yaml_1_1(text) {
            ScalarStyle::Plain
        } else {
            ScalarStyle::DoubleQuoted
        };
        self.scalar(text, Tag::Str, style)
    }

    /// JSON as a reader of YAML takes it in: every string quoted.
    pub(crate) fn add_json_text(&mut self, value: &Json) -> NodeId {
        match value {
            Json::Null => self.scalar("null", Tag::Null, ScalarStyle::Plain),
            Json::Bool(flag) => self.scalar(flag.to_string(), Tag::Bool, ScalarStyle::Plain),
            Json::Number(_) => {
                let text = yaml::json_text(value);
                let tag = implicit_tag(&text, Schema::V3);
                self.scalar(text, tag, ScalarStyle::Plain)
            }
            Json::String(text) => self.scalar(text, Tag::Str, ScalarStyle::DoubleQuoted),
            Json::Array(items) => {
                let content = items.iter().map(|item| self.add_json_text(item)).collect();
                self.add(NodeData {
                    body: Body::Seq { content, flow: true },
                    tag: Tag::Seq,
                    tag_shown: false,
                })
            }
            Json::Object(entries) => {
                let mut content = Vec::with_capacity(entries.len() * 2);
                for (key, value) in entries {
                    content.push(self.scalar(key, Tag::Str, ScalarStyle::DoubleQuoted));
                    content.push(self.add_json_text(value));
                }
                self.add(NodeData {
                    body: Body::Map { content, flow: true },
                    tag: Tag::Map,
                    tag_shown: false,
                })
            }
        }
    }
}

fn looks_like_yaml_1_1(text: &str) -> bool {
    const OLD_BOOLEANS: [&str; 16] =
        ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF"];
    OLD_BOOLEANS.contains(&text) || is_base_60(text)
}

/// `1:20:30.5`, a number to YAML 1.1.
fn is_base_60(text: &str) -> bool {
    let digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let mut rest = parts.peekable();
    first.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
        && digits(first)
        && rest.peek().is_some()
        && rest.all(|part| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']))
        && (fraction.is_empty() || digits(fraction))
}
