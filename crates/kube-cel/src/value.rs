//! Values. JSON is borrowed: looking at one field of an object does not copy the rest.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value as Json;

use crate::libraries::{Cidr, NamedFormat, Semver, Url, base64};
use crate::quantity::Quantity;

/// A literal of the expression.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// What an expression evaluates to.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Timestamp(Timestamp),
    /// Nanoseconds.
    Duration(i64),
    Optional(Option<Box<Value<'a>>>),
    /// The name of a type: `type(1)`.
    Type(Arc<str>),
    Quantity(Arc<Quantity>),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Arc<Url>),
    Semver(Arc<Semver>),
    NamedFormat(NamedFormat),
}

/// Text, borrowed where it can be.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Owned(Arc<str>),
}

#[derive(Clone, Debug)]
pub enum List<'a> {
    Json(&'a [Json]),
    Owned(Arc<Vec<Value<'a>>>),
    /// A list whose order says nothing: a set, or (with keys) a map whose items are found by these fields.
    /// Such lists are equal in any order, and adding to one adds only what is new.
    Unordered(Arc<Vec<Value<'a>>>, Arc<[String]>),
}

#[derive(Clone, Debug)]
pub enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>),
    Owned(Arc<BTreeMap<Key, Value<'a>>>),
}

/// A key of a map. Integers of both kinds are one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Bool(bool),
    Int(i128),
    String(Arc<str>),
}

impl<'a> Value<'a> {
    /// JSON as CEL sees it: whole numbers are ints, others doubles.
    pub fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Int(value),
                (None, Some(value)) => Value::Uint(value),
                (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::String(Text::Borrowed(text)),
            Json::Array(list) => Value::List(List::Json(list)),
            Json::Object(map) => Value::Map(Map::Json(map)),
        }
    }

    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Value::String(Text::Owned(text.into()))
    }

    pub(crate) fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List::Owned(Arc::new(items)))
    }

    pub(crate) fn map(entries: BTreeMap<Key, Value<'a>>) -> Self {
        Value::Map(Map::Owned(Arc::new(entries)))
    }

    pub(crate) fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Box::new(value)))
    }

    pub(crate) fn of_literal(literal: &Literal) -> Self {
        match literal {
            Literal::Null => Value::Null,
            Literal::Bool(value) => Value::Bool(*value),
            Literal::Int(value) => Value::Int(*value),
            Literal::Uint(value) => Value::Uint(*value),
            Literal::Double(value) => Value::Double(*value),
            Literal::String(value) => Value::String(Text::Owned(value.clone())),
            Literal::Bytes(value) => Value::Bytes(value.clone()),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The value as JSON; none for what JSON cannot say (types, addresses, optionals).
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Value::Null => Json::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => serde_json::Number::from_f64(*value)?.into(),
            Value::String(text) => text.as_str().into(),
            Value::List(list) => Json::Array(list.iter().map(|item| item.to_json()).collect::<Option<_>>()?),
            Value::Map(map) => Json::Object(
                map.iter()
                    .map(|(key, value)| Some((key.to_string(), value.to_json()?)))
                    .collect::<Option<_>>()?,
            ),
            Value::Timestamp(time) => time.to_string().into(),
            Value::Duration(nanos) => crate::libraries::duration_text(*nanos).into(),
            Value::Bytes(bytes) => base64::encode(bytes).into(),
            Value::Optional(_)
            | Value::Type(_)
            | Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::NamedFormat(_) => return None,
        })
    }

    /// What `type()` calls it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Url(_) => "kubernetes.URL",
            Value::Semver(_) => "kubernetes.Semver",
            Value::NamedFormat(_) => "kubernetes.NamedFormat",
        }
    }

    pub(crate) fn to_key(&self) -> Option<Key> {
        match self {
            Value::Bool(value) => Some(Key::Bool(*value)),
            Value::Int(value) => Some(Key::Int((*value).into())),
            Value::Uint(value) => Some(Key::Int((*value).into())),
            // A whole double finds the integer key of its value.
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 1e18 => {
                Some(Key::Int(*value as i128))
            }
            Value::String(text) => Some(Key::String(text.as_str().into())),
            _ => None,
        }
    }

    /// Equality across kinds of numbers; different types are unequal, not an error.
    pub(crate) fn equals(&self, other: &Value<'_>) -> bool {
        if let Some(order) = compare_numbers(self, other) {
            return order == Ordering::Equal;
        }
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::String(left), Value::String(right)) => left.as_str() == right.as_str(),
            (Value::Bytes(left), Value::Bytes(right)) => left == right,
            (Value::List(left), Value::List(right)) => left.equals(right),
            (Value::Map(left), Value::Map(right)) => {
                left.len() == right.len()
                    && left
                        .iter()
                        .all(|(key, value)| right.get(&key).is_some_and(|other| value.equals(&other)))
            }
            (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
            (Value::Duration(left), Value::Duration(right)) => left == right,
            (Value::Optional(left), Value::Optional(right)) => match (left, right) {
                (None, None) => true,
                (Some(left), Some(right)) => left.equals(right),
                _ => false,
            },
            (Value::Type(left), Value::Type(right)) => left == right,
            (Value::Quantity(left), Value::Quantity(right)) => left == right,
            (Value::Ip(left), Value::Ip(right)) => left == right,
            (Value::Cidr(left), Value::Cidr(right)) => left == right,
            (Value::Url(left), Value::Url(right)) => left == right,
            (Value::Semver(left), Value::Semver(right)) => left.compare(right) == Ordering::Equal,
            (Value::NamedFormat(left), Value::NamedFormat(right)) => left == right,
            _ => false,
        }
    }

    /// The order of two values, if their types have one.
    pub(crate) fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        if let Some(order) = compare_numbers(self, other) {
            return Some(order);
        }
        match (self, other) {
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            (Value::String(left), Value::String(right)) => Some(left.as_str().cmp(right.as_str())),
            (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
            (Value::Timestamp(left), Value::Timestamp(right)) => Some(left.cmp(right)),
            (Value::Duration(left), Value::Duration(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }
}

fn compare_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    let integer = |value: &Value<'_>| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    let float = |value: &Value<'_>| match value {
        Value::Double(value) => Some(*value),
        other => integer(other).map(|value| value as f64),
    };
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        // NaN is neither smaller nor larger than, nor equal to, anything: callers see it as "greater".
        _ => Some(float(left)?.partial_cmp(&float(right)?).unwrap_or(Ordering::Greater)),
    }
}

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(text) => text,
        }
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Json(list) => list.len(),
            List::Owned(list) | List::Unordered(list, _) => list.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn equals(&self, other: &List<'_>) -> bool {
        let unordered = matches!(self, List::Unordered(..)) || matches!(other, List::Unordered(..));
        if self.len() != other.len() {
            return false;
        }
        if unordered {
            return self.iter().all(|item| other.iter().any(|other| item.equals(&other)));
        }
        self.iter().zip(other.iter()).all(|(left, right)| left.equals(&right))
    }

    /// The two lists as one.
    pub(crate) fn join(&self, other: &List<'a>) -> List<'a> {
        let List::Unordered(items, keys) = self else {
            return List::Owned(Arc::new(self.iter().chain(other.iter()).collect()));
        };
        let mut out = items.to_vec();
        for item in other.iter() {
            match out.iter_mut().find(|known| same_item(known, &item, keys)) {
                // An item of a map replaces the one with its keys; a member of a set is there already.
                Some(known) => *known = item,
                None => out.push(item),
            }
        }
        List::Unordered(Arc::new(out), keys.clone())
    }

    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Json(list) => list.get(index).map(Value::from_json),
            List::Owned(list) | List::Unordered(list, _) => list.get(index).cloned(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

fn same_item(left: &Value<'_>, right: &Value<'_>, keys: &[String]) -> bool {
    let (Value::Map(left_map), Value::Map(right_map)) = (left, right) else { return left.equals(right) };
    if keys.is_empty() {
        return left.equals(right);
    }
    keys.iter().all(|key| match (left_map.field(key), right_map.field(key)) {
        (Some(left), Some(right)) => left.equals(&right),
        (None, None) => true,
        _ => false,
    })
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Json(map) => map.len(),
            Map::Owned(map) => map.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, key: &Key) -> Option<Value<'a>> {
        match (self, key) {
            (Map::Json(map), Key::String(name)) => map.get(&**name).map(Value::from_json),
            (Map::Json(_), Key::Bool(_) | Key::Int(_)) => None,
            (Map::Owned(map), key) => map.get(key).cloned(),
        }
    }

    /// The entry under a name, without making a key of it.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Map::Json(map) => map.get(name).map(Value::from_json),
            Map::Owned(map) => map.get(&Key::String(name.into())).cloned(),
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = (Key, Value<'a>)> + '_> {
        match self {
            Map::Json(map) => Box::new(
                map.iter().map(|(key, value)| (Key::String(key.as_str().into()), Value::from_json(value))),
            ),
            Map::Owned(map) => Box::new(map.iter().map(|(key, value)| (key.clone(), value.clone()))),
        }
    }
}

impl Key {
    pub(crate) fn to_value<'a>(&self) -> Value<'a> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => i64::try_from(*value).map_or(Value::Uint(*value as u64), Value::Int),
            Key::String(text) => Value::String(Text::Owned(text.clone())),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Bool(value) => write!(out, "{value}"),
            Key::Int(value) => write!(out, "{value}"),
            Key::String(text) => out.write_str(text),
        }
    }
}
