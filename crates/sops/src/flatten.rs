//! Metadata in formats that have no nesting: `age__list_0__map_enc` becomes a list of mappings again.

use std::collections::BTreeMap;

use crate::Error;
use crate::tree::{Branch, Item, Value};

const MAP: &[u8] = b"__map_";
const LIST: &[u8] = b"__list_";
/// Deeper than any metadata sops writes, shallow enough to be walked by recursion.
const MAX_DEPTH: usize = 16;

#[derive(Default)]
struct Place {
    value: Option<Value>,
    entries: BTreeMap<Vec<u8>, Place>,
    items: BTreeMap<usize, Place>,
}

enum Step {
    Key(Vec<u8>),
    Index(usize),
}

/// The nested form of flat metadata. Comments in it are dropped.
pub(crate) fn unflatten(flat: Branch) -> Result<Branch, Error> {
    let mut root = Place::default();
    for item in flat {
        let Item::Entry(key, value) = item else { continue };
        let mut place = &mut root;
        let steps = steps(&key);
        if steps.len() > MAX_DEPTH {
            return Err(problem(&key, "too deep"));
        }
        for step in steps {
            place = match step {
                Step::Key(key) => place.entries.entry(key).or_default(),
                Step::Index(index) => place.items.entry(index).or_default(),
            };
        }
        if place.value.replace(value).is_some() {
            return Err(problem(&key, "given twice"));
        }
    }
    match nested(root)? {
        Value::Map(branch) => Ok(branch),
        _ => Err(Error::NotEncrypted),
    }
}

fn problem(key: &[u8], problem: &str) -> Error {
    Error::Metadata { field: String::from_utf8_lossy(key).into_owned(), problem: problem.to_owned() }
}

fn steps(key: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut make: fn(&[u8]) -> Step = key_step;
    let (mut start, mut at) = (0, 0);
    while at < key.len() {
        let (next, length): (fn(&[u8]) -> Step, usize) = if key[at..].starts_with(MAP) {
            (key_step, MAP.len())
        } else if key[at..].starts_with(LIST) {
            (index_step, LIST.len())
        } else {
            at += 1;
            continue;
        };
        steps.push(make(&key[start..at]));
        make = next;
        at += length;
        start = at;
    }
    steps.push(make(&key[start..]));
    steps
}

fn key_step(text: &[u8]) -> Step {
    Step::Key(text.to_vec())
}

/// What is no number counts as zero in sops, too: two of them are then "given twice".
fn index_step(text: &[u8]) -> Step {
    Step::Index(std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn nested(place: Place) -> Result<Value, Error> {
    let Place { value, entries, items } = place;
    match (value, entries.is_empty(), items.is_empty()) {
        (Some(value), true, true) => Ok(value),
        (None, false, true) => entries
            .into_iter()
            .map(|(key, place)| Ok(Item::Entry(key, nested(place)?)))
            .collect::<Result<Branch, Error>>()
            .map(Value::Map),
        (None, true, false) => {
            if !items.keys().copied().eq(0..items.len()) {
                return Err(problem(b"list", "indices are missing"));
            }
            items.into_values().map(nested).collect::<Result<Vec<Value>, Error>>().map(Value::List)
        }
        (None, true, true) => Ok(Value::Map(Vec::new())),
        (_, _, _) => {
            Err(problem(b"key", "is a value and a collection, or a list and a mapping, at the same time"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(keys: &[&str]) -> Branch {
        keys.iter().map(|key| Item::Entry(key.as_bytes().to_vec(), Value::Bool(true))).collect()
    }

    #[test]
    fn separators_nest() {
        let branch = unflatten(flat(&["mac", "age__list_0__map_enc", "age__list_1__map_enc"])).unwrap();
        let [Item::Entry(age, Value::List(items)), Item::Entry(mac, Value::Bool(true))] = &branch[..] else {
            panic!("two entries, sorted")
        };
        assert_eq!((age.as_slice(), mac.as_slice(), items.len()), (&b"age"[..], &b"mac"[..], 2));
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(unflatten(flat(&["a", "a"])).is_err());
        assert!(unflatten(flat(&["a", "a__map_b"])).is_err());
        assert!(unflatten(flat(&["a__list_1"])).is_err());
        assert!(unflatten(flat(&["a__list_x", "a__list_0"])).is_err());
        assert!(unflatten(flat(&["a__map_b".repeat(20).as_str()])).is_err());
    }
}
