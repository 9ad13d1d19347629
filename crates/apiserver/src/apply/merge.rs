//! Merging an applied configuration into a live object, by type.
//!
//! Nothing is removed here. Where both say something, the applied side wins; lists keep the applied order and
//! weave in what only the live side has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::path::PathElement;
use super::schema::{Atom, List, MapOf, Type};
use super::typed::{Mismatches, Treated, check_scalar, deduce, element_of, treat};

pub(super) fn merge(
    live: Option<&Value>,
    applied: Option<&Value>,
    type_: Type<'_>,
) -> Result<Option<Value>, Mismatches> {
    let atom = type_.atom();
    let (of_live, of_applied) = (deduce(atom, live), deduce(atom, applied));
    match (live, applied) {
        (_, None) => walk(of_live, live, applied),
        (None, _) => walk(of_applied, live, applied),
        _ if same(of_live, of_applied) => walk(of_applied, live, applied),
        // The kinds differ: both must be possible, the applied one decides.
        _ => walk(of_live, live, applied).and_then(|_| walk(of_applied, live, applied)),
    }
}

/// Whether two narrowings of one atom are the same.
pub(super) fn same(left: Atom<'_>, right: Atom<'_>) -> bool {
    let parts = |atom: Atom<'_>| (atom.scalar.is_some(), atom.list.is_some(), atom.map.is_some());
    parts(left) == parts(right)
}

fn walk(atom: Atom<'_>, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, Mismatches> {
    let leaf = || Ok(applied.or(live).cloned());
    match treat(atom)? {
        Treated::Scalar(scalar) => {
            let check = |value: Option<&Value>, side| value.map(|value| check_scalar(scalar, value, side));
            if let (Some(mut left), Some(right)) = (check(live, "lhs: "), check(applied, "rhs: "))
                && !left.is_empty()
                && !right.is_empty()
            {
                left.add(right, &"");
                return Err(left);
            }
            leaf()
        }
        Treated::List(list) => {
            let items =
                |value: Option<&'_ Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
            let (live_items, applied_items) = (items(live), items(applied));
            if list.is_atomic() || live_items.is_empty() && applied_items.is_empty() {
                return leaf();
            }
            merge_items(&live_items, &applied_items, list)
        }
        Treated::Map(map) => {
            let none = Map::new();
            let live_entries = live.and_then(Value::as_object).unwrap_or(&none);
            let applied_entries = applied.and_then(Value::as_object).unwrap_or(&none);
            if map.atomic || live_entries.is_empty() && applied_entries.is_empty() {
                return leaf();
            }
            merge_entries(live_entries, applied_entries, map)
        }
    }
}

fn merge_entries(
    live: &Map<String, Value>,
    applied: &Map<String, Value>,
    map: MapOf<'_>,
) -> Result<Option<Value>, Mismatches> {
    let names: BTreeSet<&String> = live.keys().chain(applied.keys()).collect();
    let (mut out, mut wrong) = (Map::new(), Mismatches::default());
    for name in names {
        match merge(live.get(name), applied.get(name), map.child(name)) {
            Ok(Some(value)) => {
                out.insert(name.clone(), value);
            }
            Ok(None) => {}
            Err(mismatches) => wrong.add(mismatches, &PathElement::field(name)),
        }
    }
    wrong.result((!out.is_empty()).then_some(Value::Object(out)))
}

fn merge_items(live: &[Value], applied: &[Value], list: List<'_>) -> Result<Option<Value>, Mismatches> {
    let applied = Items::index(applied, list, false)?;
    let live = Items::index(live, list, true)?;
    let mut shared: VecDeque<&PathElement> =
        applied.order.iter().filter(|element| live.by_element.contains_key(element)).collect();
    let mut next_shared = shared.pop_front();
    let mut merged = BTreeSet::new();
    let mut out = Vec::new();
    let mut take = |element: &PathElement, left: Option<&Value>, right: Option<&Value>| {
        let value = merge(left, right, list.items).map_err(|mismatches| {
            let mut out = Mismatches::default();
            out.add(mismatches, element);
            out
        })?;
        out.extend(value);
        Ok::<(), Mismatches>(())
    };
    // Both lists are walked at once. Items that both have stand in the applied order; an item that only the live
    // list has stays before the item it preceded there.
    let (mut at_live, mut at_applied) = (0, 0);
    while at_live < live.order.len() || at_applied < applied.order.len() {
        if let (Some(left), Some(right)) = (live.order.get(at_live), applied.order.get(at_applied)) {
            if left == right {
                merged.insert(left);
                take(left, live.get(left), applied.get(left))?;
                at_live += 1;
                at_applied += 1;
                next_shared = shared.pop_front();
                continue;
            }
            if applied.by_element.contains_key(left) && next_shared.is_some_and(|next| next != left) {
                at_live += 1;
                continue;
            }
        }
        if let Some(left) = live.order.get(at_live) {
            if !applied.by_element.contains_key(left) {
                take(left, live.values.get(at_live).copied(), None)?;
                at_live += 1;
                continue;
            }
            if merged.contains(left) {
                at_live += 1;
            }
        }
        if let Some(right) = applied.order.get(at_applied) {
            merged.insert(right);
            take(right, live.get(right), applied.get(right))?;
            at_applied += 1;
            if next_shared == Some(right) {
                next_shared = shared.pop_front();
            }
        }
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

struct Items<'a> {
    order: Vec<PathElement>,
    values: Vec<&'a Value>,
    by_element: BTreeMap<PathElement, Value>,
}

impl<'a> Items<'a> {
    fn index(items: &'a [Value], list: List<'_>, duplicates: bool) -> Result<Self, Mismatches> {
        let mut out = Items { order: Vec::new(), values: Vec::new(), by_element: BTreeMap::new() };
        let mut wrong = Mismatches::default();
        for (index, item) in items.iter().enumerate() {
            let element = match element_of(item, list) {
                Ok(element) => element,
                Err(error) => {
                    wrong.add(Mismatches::one(format!("element {index}: {error}")), &"");
                    continue;
                }
            };
            let known = out.by_element.contains_key(&element);
            if known && !duplicates {
                wrong.add(Mismatches::one(format!("duplicate entries for key {element}")), &"");
                continue;
            }
            // An item that is there twice is merged with nothing.
            out.by_element.insert(element.clone(), if known { Value::Null } else { item.clone() });
            out.order.push(element);
            out.values.push(item);
        }
        wrong.result(out)
    }

    fn get(&self, element: &PathElement) -> Option<&Value> {
        self.by_element.get(element)
    }
}
