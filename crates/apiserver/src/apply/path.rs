//! Path elements: how `managedFields` names a field, a list item or a set member.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

/// One step of a path. The order of the variants is the order in which they sort.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// `f:name`: a field of an object, or an entry of a map.
    Field(String),
    /// `k:{"name":"x"}`: an item of a list by its keys, which are sorted by name.
    Key(Vec<(String, Value)>),
    /// `v:"x"`: a member of a set.
    Value(Value),
    /// `i:0`: an item by its place. Kubernetes reads it but never writes it.
    Index(i64),
}

impl PathElement {
    pub fn field(name: &str) -> Self {
        PathElement::Field(name.to_owned())
    }

    /// Reads the form used in `fieldsV1`; none for a kind of element this version does not know.
    pub fn parse(text: &str) -> Result<Option<Self>, BadElement> {
        let bad = || BadElement(text.to_owned());
        let (kind, rest) = text.split_at_checked(2).ok_or_else(bad)?;
        match kind {
            "f:" => Ok(Some(PathElement::Field(rest.to_owned()))),
            "v:" => Ok(Some(PathElement::Value(serde_json::from_str(rest).map_err(|_| bad())?))),
            "k:" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).map_err(|_| bad())?;
                Ok(Some(PathElement::Key(keys.into_iter().collect())))
            }
            "i:" => Ok(Some(PathElement::Index(rest.parse().map_err(|_| bad())?))),
            _ if kind.ends_with(':') => Ok(None),
            _ => Err(bad()),
        }
    }

    /// The form used in `fieldsV1`.
    pub fn to_key(&self) -> String {
        match self {
            PathElement::Field(name) => format!("f:{name}"),
            PathElement::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{}:{}", go_json(&name.as_str().into()), go_json(value)))
                    .collect();
                format!("k:{{{}}}", keys.join(","))
            }
            PathElement::Value(value) => format!("v:{}", go_json(value)),
            PathElement::Index(index) => format!("i:{index}"),
        }
    }
}

/// A key of `fieldsV1` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parsing key as path element: {0:?}")]
pub struct BadElement(String);

/// As people read it in a conflict: `.spec.ports[port=80,protocol="TCP"].name`.
impl fmt::Display for PathElement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(out, ".{name}"),
            PathElement::Key(keys) => {
                let keys: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{name}={}", readable(value))).collect();
                write!(out, "[{}]", keys.join(","))
            }
            PathElement::Value(value) => write!(out, "[={}]", readable(value)),
            PathElement::Index(index) => write!(out, "[{index}]"),
        }
    }
}

fn readable(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(readable).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(key, value)| format!("{key}={}", readable(value))).collect(),
        Value::String(text) => go_quote(text),
        other => other.to_string(),
    }
}

/// Go's `%q`.
pub(super) fn go_quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            control if control.is_control() && (control as u32) < 0x80 => {
                out.push_str(&format!("\\x{:02x}", control as u32));
            }
            control if control.is_control() => out.push_str(&format!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// JSON as Go's encoder writes it: `<`, `>`, `&` and the two line separators are escaped.
pub(super) fn go_json(value: &Value) -> String {
    let text = match value.as_f64().filter(|_| value.is_f64()) {
        // A whole float reads back as the integer it was in the object.
        Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{}", float as i64),
        _ => value.to_string(),
    };
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(left), PathElement::Field(right)) => left.cmp(right),
            (PathElement::Key(left), PathElement::Key(right)) => compare_keys(left, right),
            (PathElement::Value(left), PathElement::Value(right)) => compare(left, right),
            (PathElement::Index(left), PathElement::Index(right)) => left.cmp(right),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

fn compare_keys(left: &[(String, Value)], right: &[(String, Value)]) -> Ordering {
    for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
        let order = left_name.cmp(right_name).then_with(|| compare(left_value, right_value));
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

/// A total order over JSON: numbers, strings, booleans, lists, maps, null. Integers and floats
/// compare by value: `fieldsV1` is read back as floats.
pub(super) fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(_), Value::Number(_)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => {
                let float = |value: &Value| value.as_f64().unwrap_or(0.0);
                float(left).total_cmp(&float(right))
            }
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let differs =
                left.iter().zip(right).map(|(left, right)| compare(left, right)).find(|order| order.is_ne());
            differs.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let pairs = left.iter().zip(right).map(|((left_key, left), (right_key, right))| {
                left_key.cmp(right_key).then_with(|| compare(left, right))
            });
            pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (left, right) => json_rank(left).cmp(&json_rank(right)),
    }
}

pub(super) fn equal(left: &Value, right: &Value) -> bool {
    compare(left, right) == Ordering::Equal
}

fn json_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// A path from the object's root.
pub type Path = Vec<PathElement>;

/// The whole path as people read it.
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(PathElement::to_string).collect()
}
