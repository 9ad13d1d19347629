//! Nodes as the values Go's decoders make of them, and those as JSON.
//!
//! Aliases are followed and merge keys applied as each library does it: v2 where they stand, so that they
//! override what comes before; v3 at the end, so that they never override anything.

use std::collections::HashMap;

use serde_json::{Map, Number, Value as Json};

use crate::binary::binary_text;
use crate::go_value::{GoValue, go_flag_syntax, go_infinite, go_quote, go_value_syntax, key_rank};
use crate::node::{Mapping, Node, ScalarStyle, Tag, Text, Value};
use crate::number::format_float_g32;
use crate::resolve::{Resolved, resolve_scalar};
use crate::{Error, ErrorKind, Limits, Options, Schema, parse_one};

/// sigs.k8s.io/yaml's `YAMLToJSON`: the first document of a text as JSON. Of duplicate keys the last one counts.
pub fn to_json(yaml: &[u8]) -> Result<Json, Error> {
    let document = parse_one(yaml, &Options::new(Schema::V2))?;
    document.map_or(Ok(Json::Null), |document| Decoder::new(Schema::V2).json(&document.root))
}

/// `YAMLToJSONStrict`: a duplicate key is an error.
pub fn to_json_strict(yaml: &[u8]) -> Result<Json, Error> {
    let document = parse_one(yaml, &Options::new(Schema::V2))?;
    document.map_or(Ok(Json::Null), |document| Decoder::new(Schema::V2).strict().json(&document.root))
}

/// A node as JSON. v2: as sigs.k8s.io/yaml converts it; v3: as kyaml's `RNode.MarshalJSON` does.
pub fn node_to_json(node: &Node, schema: Schema) -> Result<Json, Error> {
    Decoder::new(schema).json(node)
}

/// The first document of a text as Go's `%#v` shows it: for comparing with the Go libraries, and for people.
pub fn go_syntax(yaml: &[u8], schema: Schema) -> Result<String, Error> {
    let document = parse_one(yaml, &Options::new(schema))?;
    let value = match &document {
        Some(document) => Decoder::new(schema).interface(&document.root)?,
        None => GoValue::Nil,
    };
    Ok(if value == GoValue::Nil { "<nil>".to_owned() } else { go_value_syntax(&value) })
}

/// Decodes nodes the way one of the libraries does.
pub struct Decoder<'a> {
    schema: Schema,
    strict: bool,
    max_nodes: usize,
    /// The target of each alias, by the address of the alias node.
    targets: HashMap<usize, &'a Node>,
    /// Aliases being followed, to find those that contain themselves.
    open: Vec<usize>,
    problems: Vec<String>,
    decoded: usize,
    through_aliases: usize,
    /// How deep the value being decoded is, the way through aliases included.
    depth: usize,
}

impl<'a> Decoder<'a> {
    pub fn new(schema: Schema) -> Self {
        Self {
            schema,
            strict: false,
            max_nodes: Limits::default().nodes,
            targets: HashMap::new(),
            open: Vec::new(),
            problems: Vec::new(),
            decoded: 0,
            through_aliases: 0,
            depth: 0,
        }
    }

    /// Refuses duplicate keys, which only v2 has to be told.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    pub fn json(mut self, root: &'a Node) -> Result<Json, Error> {
        let schema = self.schema;
        let value = match schema {
            Schema::V2 => self.interface(root)?,
            Schema::V3 => self.resource(root)?,
        };
        let mut refused = None;
        let json = to_json_value(value, schema, &mut refused)?;
        refused.map_or(Ok(json), Err)
    }

    fn interface(&mut self, root: &'a Node) -> Result<GoValue, Error> {
        bind_aliases(root, &mut HashMap::new(), &mut self.targets)?;
        let value = self.value(root)?;
        self.finish(value)
    }

    /// kyaml decodes a resource into a map of strings: the keys at the top are taken by their text.
    fn resource(&mut self, root: &'a Node) -> Result<GoValue, Error> {
        let mapping = match &root.value {
            Value::Mapping(mapping) => mapping,
            Value::Sequence(_) | Value::Alias(_) => return self.interface(root),
            Value::Scalar(scalar) => {
                return match self.value(root)? {
                    GoValue::Nil => Ok(GoValue::Map { entries: Vec::new(), string_keys: true }),
                    _ => Err(not_a_map(root, &scalar.text)),
                };
            }
        };
        bind_aliases(root, &mut HashMap::new(), &mut self.targets)?;
        self.count()?;
        let value = self.mapping(mapping, true)?;
        self.finish(value)
    }

    fn finish(&mut self, value: GoValue) -> Result<GoValue, Error> {
        if self.problems.is_empty() {
            return Ok(value);
        }
        let lines = self.problems.join("\n  ");
        Err(Error::new(ErrorKind::DuplicateKey, format!("unmarshal errors:\n  {lines}")))
    }

    fn value(&mut self, node: &'a Node) -> Result<GoValue, Error> {
        self.count()?;
        self.deeper(|decoder| decoder.content(node))
    }

    fn deeper<T>(&mut self, decode: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        // An alias is a level of its own, so this is twice what a text can have.
        let limit = 2 * Limits::default().depth;
        if self.depth >= limit {
            return Err(Error::new(ErrorKind::Limit, format!("exceeded max depth of {limit}")));
        }
        self.depth += 1;
        let value = decode(self);
        self.depth -= 1;
        value
    }

    fn content(&mut self, node: &'a Node) -> Result<GoValue, Error> {
        match &node.value {
            Value::Scalar(scalar) => scalar_value(&scalar.text, scalar.style, node.tag, self.schema),
            Value::Sequence(sequence) => Ok(GoValue::Slice(
                sequence.items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?,
            )),
            Value::Mapping(mapping) => self.mapping(mapping, false),
            Value::Alias(name) => {
                let target = self.target(node, name)?;
                self.follow(node, name, |decoder| decoder.value(target))
            }
        }
    }

    fn count(&mut self) -> Result<(), Error> {
        self.decoded += 1;
        self.through_aliases += usize::from(!self.open.is_empty());
        #[expect(clippy::cast_precision_loss, reason = "the ratio needs no precision")]
        let ratio = self.through_aliases as f64 / self.decoded as f64;
        if self.through_aliases > 100 && self.decoded > 1000 && ratio > allowed_alias_ratio(self.decoded) {
            return Err(Error::new(ErrorKind::Limit, "document contains excessive aliasing"));
        }
        if self.decoded > self.max_nodes {
            return Err(Error::new(ErrorKind::Limit, "document has too many nodes"));
        }
        Ok(())
    }

    fn target(&self, alias: &Node, name: &str) -> Result<&'a Node, Error> {
        self.targets
            .get(&address(alias))
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Alias, format!("unknown anchor '{name}' referenced")))
    }

    fn follow<T>(
        &mut self,
        alias: &Node,
        name: &str,
        decode: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.open.contains(&address(alias)) {
            return Err(Error::new(ErrorKind::Alias, format!("anchor '{name}' value contains itself")));
        }
        self.open.push(address(alias));
        let value = self.deeper(decode);
        self.open.pop();
        value
    }

    fn mapping(&mut self, mapping: &'a Mapping, text_keys: bool) -> Result<GoValue, Error> {
        let mut found = Entries::default();
        match self.schema {
            Schema::V2 => {
                self.entries_v2(mapping, &mut found)?;
                Ok(found.into_map(false))
            }
            Schema::V3 => {
                let string_keys = text_keys || self.has_string_keys(mapping);
                self.entries_v3(mapping, &mut found, text_keys)?;
                Ok(found.into_map(string_keys))
            }
        }
    }

    fn entries_v2(&mut self, mapping: &'a Mapping, found: &mut Entries) -> Result<(), Error> {
        for (key_node, value_node) in &mapping.entries {
            if is_merge_v2(key_node) {
                self.merge(value_node, true, &mut |decoder, merged| decoder.entries_v2(merged, found))?;
                continue;
            }
            let key = self.key(key_node)?;
            let value = self.value(value_node)?;
            if self.strict && found.contains(&key) && self.problems.len() < MAX_PROBLEMS {
                let line = value_node.position().line;
                self.problems.push(format!("line {line}: key {} already set in map", go_value_syntax(&key)));
            } else {
                found.set(key, value);
            }
        }
        Ok(())
    }

    fn entries_v3(
        &mut self,
        mapping: &'a Mapping,
        found: &mut Entries,
        text_keys: bool,
    ) -> Result<(), Error> {
        if !self.keys_are_unique(mapping) {
            return Ok(());
        }
        let mut merge = None;
        for (key_node, value_node) in &mapping.entries {
            if is_merge_v3(key_node) {
                merge = Some(value_node);
                continue;
            }
            let key = match if text_keys { self.text_key(key_node)? } else { Some(self.key(key_node)?) } {
                Some(key) => key,
                None => continue,
            };
            let value = self.value(value_node)?;
            if !found.merging || !found.contains(&key) {
                found.set(key, value);
            }
        }
        let Some(value) = merge else { return Ok(()) };
        let outer = std::mem::replace(&mut found.merging, true);
        self.merge(value, false, &mut |decoder, merged| decoder.entries_v3(merged, found, text_keys))?;
        found.merging = outer;
        Ok(())
    }

    /// Hands each mapping that `node` merges in to `apply`. v2 starts from the back, as the first one wins there
    /// by coming last.
    fn merge(
        &mut self,
        node: &'a Node,
        backwards: bool,
        apply: &mut dyn FnMut(&mut Self, &'a Mapping) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let refuse =
            || Error::new(ErrorKind::Value, "map merge requires map or sequence of maps as the value");
        match &node.value {
            Value::Mapping(_) | Value::Alias(_) => self.merge_one(node, apply),
            Value::Sequence(sequence) => {
                let each =
                    |item: &'a Node,
                     decoder: &mut Self,
                     apply: &mut dyn FnMut(&mut Self, &'a Mapping) -> Result<(), Error>| {
                        match item.value {
                            Value::Mapping(_) | Value::Alias(_) => decoder.merge_one(item, apply),
                            Value::Scalar(_) | Value::Sequence(_) => Err(refuse()),
                        }
                    };
                if backwards {
                    sequence.items.iter().rev().try_for_each(|item| each(item, self, apply))
                } else {
                    sequence.items.iter().try_for_each(|item| each(item, self, apply))
                }
            }
            Value::Scalar(_) => Err(refuse()),
        }
    }

    fn merge_one(
        &mut self,
        node: &'a Node,
        apply: &mut dyn FnMut(&mut Self, &'a Mapping) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.count()?;
        match &node.value {
            Value::Mapping(mapping) => apply(self, mapping),
            Value::Alias(name) => match &self.target(node, name)?.value {
                Value::Mapping(mapping) => self.follow(node, name, |decoder| {
                    decoder.count()?;
                    apply(decoder, mapping)
                }),
                Value::Scalar(_) | Value::Sequence(_) | Value::Alias(_) => Err(Error::new(
                    ErrorKind::Value,
                    "map merge requires map or sequence of maps as the value",
                )),
            },
            Value::Scalar(_) | Value::Sequence(_) => Ok(()),
        }
    }

    /// A key decoded into a string. A null cannot be, and its entry is lost without a word.
    fn text_key(&mut self, node: &'a Node) -> Result<Option<GoValue>, Error> {
        Ok(match (&node.value, self.value(node)?) {
            (_, GoValue::Nil) => None,
            (_, key @ GoValue::String(_)) => Some(key),
            (Value::Scalar(scalar), _) => Some(GoValue::String(scalar.text.clone())),
            (_, key) => {
                let tag = if matches!(key, GoValue::Map { .. }) { "!!map" } else { "!!seq" };
                let line = node.position().line;
                self.problems.push(format!("line {line}: cannot unmarshal {tag} into string"));
                None
            }
        })
    }

    fn key(&mut self, node: &'a Node) -> Result<GoValue, Error> {
        let key = self.value(node)?;
        if matches!(key, GoValue::Slice(_) | GoValue::Map { .. }) {
            return Err(Error::new(ErrorKind::Value, format!("invalid map key: {}", go_value_syntax(&key))));
        }
        Ok(key)
    }

    fn has_string_keys(&self, mapping: &Mapping) -> bool {
        mapping.iter().all(|(key, _)| {
            let key =
                if let Value::Alias(name) = &key.value { self.target(key, name).unwrap_or(key) } else { key };
            matches!(key.short_tag(), "!!str" | "!!merge")
        })
    }

    /// v3 compares the texts of the keys, whatever they mean, and names every pair that is the same.
    fn keys_are_unique(&mut self, mapping: &Mapping) -> bool {
        let keys: Vec<_> = mapping.iter().map(|(key, _)| (key_identity(key), key.position().line)).collect();
        let mut places: HashMap<KeyIdentity<'_>, Vec<usize>> = HashMap::with_capacity(keys.len());
        for (at, (key, _)) in keys.iter().enumerate() {
            places.entry(*key).or_default().push(at);
        }
        if places.len() == keys.len() {
            return true;
        }
        for (at, (key, first)) in keys.iter().enumerate() {
            for later in places[key].iter().filter(|later| **later > at) {
                if self.problems.len() >= MAX_PROBLEMS {
                    return false;
                }
                let line = keys[*later].1;
                let text = go_quote(key.1);
                self.problems
                    .push(format!("line {line}: mapping key {text} already defined at line {first}"));
            }
        }
        false
    }
}

/// Enough to see what is wrong; the pairs of many equal keys are too many to name.
const MAX_PROBLEMS: usize = 1_000;

type KeyIdentity<'a> = (std::mem::Discriminant<Value>, &'a str);

fn key_identity(key: &Node) -> KeyIdentity<'_> {
    let text = match &key.value {
        Value::Scalar(scalar) => scalar.text.as_str(),
        Value::Alias(name) => name.as_str(),
        // Go compares the empty texts of two collections, so two of them are always the same key.
        Value::Mapping(_) | Value::Sequence(_) => "",
    };
    (std::mem::discriminant(&key.value), text)
}

/// The entries of a map while it is filled; large ones are indexed.
#[derive(Default)]
struct Entries {
    list: Vec<(GoValue, GoValue)>,
    index: HashMap<(u8, String), usize>,
    /// Whether what is added now comes from a v3 merge key.
    merging: bool,
}

const INDEX_FROM: usize = 16;

impl Entries {
    fn find(&self, key: &GoValue) -> Option<usize> {
        if self.index.is_empty() {
            return self.list.iter().position(|(other, _)| other == key);
        }
        self.index.get(&index_key(key)).copied()
    }

    fn contains(&self, key: &GoValue) -> bool {
        self.find(key).is_some()
    }

    fn set(&mut self, key: GoValue, value: GoValue) {
        if let Some(at) = self.find(&key) {
            self.list[at].1 = value;
            return;
        }
        if !self.index.is_empty() {
            self.index.insert(index_key(&key), self.list.len());
        }
        self.list.push((key, value));
        if self.index.is_empty() && self.list.len() > INDEX_FROM {
            self.index = self.list.iter().enumerate().map(|(at, (key, _))| (index_key(key), at)).collect();
        }
    }

    fn into_map(self, string_keys: bool) -> GoValue {
        GoValue::Map { entries: self.list, string_keys }
    }
}

/// Keys of different types are different keys, even if they print the same.
fn index_key(key: &GoValue) -> (u8, String) {
    (key_rank(key), go_value_syntax(key))
}

fn scalar_value(text: &Text, style: ScalarStyle, tag: Tag, schema: Schema) -> Result<GoValue, Error> {
    Ok(match resolve_scalar(text, style, tag, schema)? {
        Resolved::Null => GoValue::Nil,
        Resolved::Bool(value) => GoValue::Bool(value),
        Resolved::Int(value) => GoValue::Int(value),
        Resolved::Uint(value) => GoValue::Uint(value),
        Resolved::Float(value) => GoValue::Float(value),
        Resolved::String | Resolved::Merge => GoValue::String(text.clone()),
        Resolved::Timestamp(time) => match schema {
            Schema::V2 => GoValue::String(text.clone()),
            Schema::V3 => GoValue::Time(time),
        },
        Resolved::Binary => GoValue::String(binary_text(text)?.into()),
    })
}

/// go-yaml's guard against documents that are mostly aliases, as strict as the document is long.
fn allowed_alias_ratio(decoded: usize) -> f64 {
    const LOW: usize = 400_000;
    const HIGH: usize = 4_000_000;
    #[expect(clippy::cast_precision_loss, reason = "the ratio needs no precision")]
    match decoded {
        0..=LOW => 0.99,
        HIGH.. => 0.10,
        _ => 0.99 - 0.89 * ((decoded - LOW) as f64 / (HIGH - LOW) as f64),
    }
}

fn address(node: &Node) -> usize {
    std::ptr::from_ref(node).addr()
}

/// Finds the anchor each alias means: the last one of its name before it.
fn bind_aliases<'a>(
    node: &'a Node,
    anchors: &mut HashMap<&'a str, &'a Node>,
    targets: &mut HashMap<usize, &'a Node>,
) -> Result<(), Error> {
    if let Some(anchor) = node.anchor() {
        anchors.insert(anchor, node);
    }
    match &node.value {
        Value::Scalar(_) => Ok(()),
        Value::Sequence(sequence) => {
            sequence.items.iter().try_for_each(|item| bind_aliases(item, anchors, targets))
        }
        Value::Mapping(mapping) => mapping.iter().try_for_each(|(key, value)| {
            bind_aliases(key, anchors, targets)?;
            bind_aliases(value, anchors, targets)
        }),
        Value::Alias(name) => {
            let target = anchors
                .get(name.as_str())
                .ok_or_else(|| Error::new(ErrorKind::Alias, format!("unknown anchor '{name}' referenced")))?;
            targets.insert(address(node), target);
            Ok(())
        }
    }
}

fn is_merge_v2(key: &Node) -> bool {
    let Value::Scalar(scalar) = &key.value else { return false };
    scalar.text == "<<"
        && (key.tag == Tag::Merge || (scalar.style == ScalarStyle::Plain && key.tag == Tag::Implicit))
}

fn is_merge_v3(key: &Node) -> bool {
    let Value::Scalar(scalar) = &key.value else { return false };
    scalar.text == "<<"
        && (key.tag == Tag::Merge || (scalar.style == ScalarStyle::Plain && key.tag == Tag::Implicit))
}

/// Keys that cannot be are found before values that cannot be: the latter are left in `refused`.
fn to_json_value(value: GoValue, schema: Schema, refused: &mut Option<Error>) -> Result<Json, Error> {
    Ok(match value {
        GoValue::Nil => Json::Null,
        GoValue::Bool(value) => Json::Bool(value),
        GoValue::Int(value) => Json::Number(value.into()),
        GoValue::Uint(value) => Json::Number(value.into()),
        GoValue::Float(value) => match Number::from_f64(value) {
            Some(number) => Json::Number(number),
            None => {
                refused.get_or_insert_with(|| unsupported_float(value));
                Json::Null
            }
        },
        GoValue::String(text) => Json::String(text.into()),
        GoValue::Time(time) => Json::String(time.to_string()),
        GoValue::Slice(items) => Json::Array(
            items.into_iter().map(|item| to_json_value(item, schema, refused)).collect::<Result<_, _>>()?,
        ),
        GoValue::Map { entries, string_keys } => {
            if schema == Schema::V3 && !string_keys {
                let message = "json: unsupported type: map[interface {}]interface {}";
                return Err(Error::new(ErrorKind::Value, message));
            }
            let mut map = Map::new();
            for (key, value) in entries {
                let key = key_text(key, &value)?;
                map.insert(key, to_json_value(value, schema, refused)?);
            }
            Json::Object(map)
        }
    })
}

pub(crate) fn unsupported_float(value: f64) -> Error {
    Error::new(ErrorKind::Value, format!("json: unsupported value: {}", go_infinite(value)))
}

fn key_text(key: GoValue, value: &GoValue) -> Result<String, Error> {
    Ok(match key {
        GoValue::String(text) => text.into(),
        GoValue::Int(value) => value.to_string(),
        GoValue::Float(value) => format_float_g32(value),
        GoValue::Bool(value) => value.to_string(),
        GoValue::Nil | GoValue::Uint(_) | GoValue::Time(_) | GoValue::Slice(_) | GoValue::Map { .. } => {
            let kind = match key {
                GoValue::Nil => "%!s(<nil>)",
                GoValue::Uint(_) => "uint64",
                _ => "time.Time",
            };
            let message = format!(
                "unsupported map key of type: {kind}, key: {}, value: {}",
                go_flag_syntax(&key),
                go_flag_syntax(value)
            );
            return Err(Error::new(ErrorKind::Value, message));
        }
    })
}

/// An error if a mapping has a key twice, in go-yaml v3's words.
pub(crate) fn refuse_duplicates(node: &Node) -> Result<(), Error> {
    let Value::Mapping(mapping) = &node.value else { return Ok(()) };
    let mut decoder = Decoder::new(Schema::V3);
    if decoder.keys_are_unique(mapping) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::DuplicateKey,
        format!("unmarshal errors:\n  {}", decoder.problems.join("\n  ")),
    ))
}

/// go-yaml v3 on a scalar where an object is expected.
fn not_a_map(node: &Node, text: &str) -> Error {
    let line = node.position().line.max(1);
    let shown =
        if text.len() > 10 { format!("{}...", text.get(..7).unwrap_or(text)) } else { text.to_owned() };
    let tag = node.short_tag();
    let message = format!(
        "unmarshal errors:\n  line {line}: cannot unmarshal {tag} `{shown}` into map[string]interface {{}}"
    );
    Error::new(ErrorKind::Value, message)
}
