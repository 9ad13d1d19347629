//! Sets of fields, and their `fieldsV1` form.
//!
//! A set is a tree. Being a member and having members beneath are independent: an item of a list is usually both
//! (`"k:{…}": {".": {}, "f:image": {}}`), a structure only has members beneath.

use std::collections::{BTreeMap, BTreeSet};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::path::{BadElement, Path, PathElement};
use super::schema::Type;

/// `fieldsV1` nested deeper than this is refused; the deepest real one has about 20 levels.
const MAX_DEPTH: usize = 250;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    pub(super) members: BTreeSet<PathElement>,
    pub(super) children: BTreeMap<PathElement, Set>,
}

/// Why `fieldsV1` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFields {
    #[error(transparent)]
    Element(#[from] BadElement),
    #[error("fieldsV1 holds something that is no object")]
    NotAnObject,
    #[error("fieldsV1 is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl Set {
    /// A set of fields given as names: `Set::of(&[&["spec"], &["metadata", "labels"]])`.
    pub fn of(paths: &[&[&str]]) -> Set {
        let mut set = Set::default();
        for path in paths {
            let path: Path = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds the field; its parents are not added.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            // Nobody owns the whole object.
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|set| set.has(rest)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Set::is_empty)
    }

    /// Every path, members of a level before those beneath them.
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Path, out: &mut Vec<Path>) {
        for member in &self.members {
            out.push(prefix.iter().chain([member]).cloned().collect());
        }
        for (element, set) in &self.children {
            prefix.push(element.clone());
            set.collect(prefix, out);
            prefix.pop();
        }
    }

    pub fn union(&self, other: &Set) -> Set {
        let mut out = self.clone();
        out.members.extend(other.members.iter().cloned());
        for (element, set) in &other.children {
            match out.children.get_mut(element) {
                Some(own) => *own = own.union(set),
                None => {
                    out.children.insert(element.clone(), set.clone());
                }
            }
        }
        out
    }

    pub fn intersection(&self, other: &Set) -> Set {
        let both = |(element, set): (&PathElement, &Set)| {
            let set = set.intersection(other.children.get(element)?);
            (!set.is_empty()).then(|| (element.clone(), set))
        };
        Set {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(both).collect(),
        }
    }

    /// What is in `self` and not in `other`, path by path.
    pub fn difference(&self, other: &Set) -> Set {
        let left = |(element, set): (&PathElement, &Set)| {
            let Some(taken) = other.children.get(element) else {
                return Some((element.clone(), set.clone()));
            };
            let set = set.difference(taken);
            (!set.is_empty()).then(|| (element.clone(), set))
        };
        Set {
            members: self.members.difference(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(left).collect(),
        }
    }

    /// As [`Set::difference`], but a path in `other` also takes everything beneath it.
    pub fn recursive_difference(&self, other: &Set) -> Set {
        let left = |(element, set): (&PathElement, &Set)| {
            if other.members.contains(element) {
                return None;
            }
            let Some(taken) = other.children.get(element) else {
                return Some((element.clone(), set.clone()));
            };
            let set = set.recursive_difference(taken);
            (!set.is_empty()).then(|| (element.clone(), set))
        };
        Set {
            members: self.members.difference(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(left).collect(),
        }
    }

    /// The set with every named field on the way to a member made a member too. Entries of maps are not named fields.
    pub(super) fn with_named_fields(&self, type_: Type<'_>) -> Set {
        let map = type_.map();
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (element, set) in &self.children {
            let below = match element {
                PathElement::Field(name) => map.map_or(Type::Missing, |map| {
                    if map.field(name).is_some() {
                        members.insert(element.clone());
                    }
                    map.child(name)
                }),
                PathElement::Key(_) => type_.list().map_or(Type::Missing, |list| list.items),
                PathElement::Value(_) | PathElement::Index(_) => Type::Missing,
            };
            children.insert(element.clone(), set.with_named_fields(below));
        }
        Set { members, children }
    }

    /// Reads `fieldsV1`.
    pub fn from_fields(fields: &Value) -> Result<Set, BadFields> {
        let fields = fields.as_object().ok_or(BadFields::NotAnObject)?;
        Ok(read(fields, MAX_DEPTH)?.0.unwrap_or_default())
    }

    /// Writes `fieldsV1`. A `Value` sorts its keys as text; [`InOrder`] writes them as Go does.
    pub fn to_fields(&self) -> Value {
        Value::Object(self.write(false))
    }

    fn write(&self, is_member: bool) -> Map<String, Value> {
        let mut out = Map::new();
        if is_member && !(self.members.is_empty() && self.children.is_empty()) {
            out.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for member in self.members.iter().filter(|member| !self.children.contains_key(member)) {
            out.insert(member.to_key(), Value::Object(Map::new()));
        }
        for (element, set) in &self.children {
            out.insert(element.to_key(), Value::Object(set.write(self.members.contains(element))));
        }
        out
    }
}

/// The set beneath, and whether the place itself is a member (`.`, or nothing beneath).
fn read(fields: &Map<String, Value>, depth: usize) -> Result<(Option<Set>, bool), BadFields> {
    let depth = depth.checked_sub(1).ok_or(BadFields::TooDeep)?;
    let (mut set, mut is_member): (Option<Set>, bool) = (None, false);
    for (key, value) in fields {
        if key == "." {
            is_member = true;
            continue;
        }
        let Some(element) = PathElement::parse(key)? else { continue };
        let value = match value {
            Value::Null => &Map::new(),
            value => value.as_object().ok_or(BadFields::NotAnObject)?,
        };
        let (below, below_is_member) = read(value, depth)?;
        let set = set.get_or_insert_default();
        if below_is_member {
            set.members.insert(element.clone());
        }
        if let Some(below) = below {
            set.children.insert(element, below);
        }
    }
    is_member |= set.is_none();
    Ok((set, is_member))
}

/// Serializes an object with every `fieldsV1` in Go's order: `k:{"port":80}` before `k:{"port":443}`.
pub struct InOrder<'a>(pub &'a Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map {
                    match key.as_str() {
                        "fieldsV1" => out.serialize_entry(key, &FieldsInOrder(value))?,
                        _ => out.serialize_entry(key, &InOrder(value))?,
                    }
                }
                out.end()
            }
            Value::Array(list) => serializer.collect_seq(list.iter().map(InOrder)),
            other => other.serialize(serializer),
        }
    }
}

struct FieldsInOrder<'a>(&'a Value);

impl Serialize for FieldsInOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(map) = self.0 else { return self.0.serialize(serializer) };
        let mut keys: Vec<(Option<PathElement>, &String, &Value)> =
            map.iter().map(|(key, value)| (PathElement::parse(key).ok().flatten(), key, value)).collect();
        keys.sort_by(|left, right| (&left.0, left.1).cmp(&(&right.0, right.1)));
        serializer.collect_map(keys.into_iter().map(|(_, key, value)| (key, FieldsInOrder(value))))
    }
}
