//! Applying a patch: lists, and the order of their items.
//!
//! Order of precedence: `$setElementOrder`, then the patch's own order, then the live list's.

use std::collections::HashMap;

use serde_json::Value;

use super::merge::{Mode, bad_directive, list_at, list_name, merge_object, without_directives};
use super::{
    DIRECTIVE, Error, Field, Object, SET_ORDER, Strategy, as_list, as_map, go_kind, go_text, go_type,
    lookup_list, merge_value,
};
use crate::schema::Schema;

pub(super) fn apply_set_order(
    original: &mut Object,
    patch: &mut Object,
    schema: Schema<'_>,
    mode: Mode,
) -> Result<(), Error> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        if mode == Mode::Combine {
            match original.get(&directive) {
                Some(before) if *before != order => return Err(Error::SetElementOrder),
                Some(_) => {}
                None => {
                    original.insert(directive.clone(), order.clone());
                }
            }
        }
        let order = as_list(&order)?;
        let name = list_name(&directive, SET_ORDER).ok_or(Error::SetElementOrder)?;
        let before = list_at(original, &name)?.cloned();
        let change = list_at(patch, &name)?.cloned();
        let field = lookup_list(schema, &name)?;
        check_order(change.as_deref().unwrap_or(&[]), order, field.merge_key)?;
        let merged = match (&before, &change) {
            (None, None) => continue,
            (Some(before), None) => before.clone(),
            (None, Some(change)) => change.iter().cloned().filter_map(without_directives).collect(),
            (Some(before), Some(change)) if field.strategy == Strategy::Merge => {
                merge_list(before.clone(), change.clone(), field, mode, false)?
            }
            (Some(_), Some(change)) => change.clone(),
        };
        let maps = element_is_map(&[before.as_deref().unwrap_or(&[]), change.as_deref().unwrap_or(&[])])?;
        let live = match (&before, &change) {
            (Some(before), Some(change)) if maps && field.strategy == Strategy::Merge => {
                order_left_behind(before, change, field.merge_key)?
            }
            _ => before.unwrap_or_default(),
        };
        let (named, rest) = partition(merged, order, field.merge_key)?;
        let all = in_order(named, rest, order, &live, field.merge_key, maps)?;
        original.insert(name.clone(), Value::Array(all));
        patch.remove(&name);
    }
    Ok(())
}

pub(super) fn merge_list(
    mut original: Vec<Value>,
    mut patch: Vec<Value>,
    field: Field<'_>,
    mode: Mode,
    deletes: bool,
) -> Result<Vec<Value>, Error> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let maps = element_is_map(&[&original, &patch])?;
    let merged = if maps {
        if field.merge_key.is_empty() {
            return Err(Error::ListWithoutMergeKey(go_kind(field.schema)));
        }
        (original, patch) = apply_item_directives(original, patch, field.merge_key)?;
        merge_items(original.clone(), &patch, field, mode)?
    } else {
        if mode == Mode::Apply && deletes {
            original.retain(|value| !patch.contains(value));
            return Ok(original);
        }
        let mut both = original.clone();
        both.extend(patch.iter().cloned());
        deduplicate(both)
    };
    let (named, rest) = partition(merged, &patch, field.merge_key)?;
    in_order(named, rest, &patch, &original, field.merge_key, maps)
}

/// The live order as upstream sees it after merging: its merge deletes from and appends to the same memory,
/// so new items stand where deleted ones made room.
fn order_left_behind(before: &[Value], change: &[Value], key: &str) -> Result<Vec<Value>, Error> {
    let room = before.len();
    let (mut kept, plain) = apply_item_directives(before.to_vec(), change.to_vec(), key)?;
    let places = Places::of(&kept, key, true);
    let new: Vec<Value> = plain.into_iter().filter(|item| places.get(item).is_none()).collect();
    kept.extend(new);
    kept.truncate(room);
    Ok(kept)
}

/// Handles items that carry `$patch`, and returns the list and the patch without them.
fn apply_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        let map = as_map(&item)?;
        match map.get(DIRECTIVE).map(|directive| (directive.as_str(), directive)) {
            None => plain.push(item),
            Some((Some("delete"), _)) => {
                let value = merge_value(&item, key)?;
                for (index, item) in original.iter().enumerate() {
                    item.as_object().ok_or(Error::ItemNotAMap(index))?;
                }
                original.retain(|item| item.get(key) != Some(value));
            }
            Some((Some("replace"), _)) => replace = true,
            Some((Some("merge"), _)) => return Err(Error::MergeDirectiveInList),
            Some((_, directive)) => return Err(bad_directive(directive.clone(), map.clone())),
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (original, plain) })
}

fn merge_items(
    mut original: Vec<Value>,
    patch: &[Value],
    field: Field<'_>,
    mode: Mode,
) -> Result<Vec<Value>, Error> {
    for item in patch {
        let value = merge_value(item, field.merge_key)?;
        match original.iter_mut().find(|item| item.get(field.merge_key) == Some(value)) {
            Some(found) => {
                let (Value::Object(before), Value::Object(change)) = (found.take(), item.clone()) else {
                    return Err(Error::ItemNotAMap(0));
                };
                *found = Value::Object(merge_object(before, change, field.schema, mode)?);
            }
            None => original.push(item.clone()),
        }
    }
    Ok(original)
}

/// Keeps the first of equal scalars. Upstream shuffles what follows; every caller orders it again.
pub(super) fn deduplicate(values: Vec<Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for value in values {
        if seen.insert(scalar_key(&value)) {
            kept.push(value);
        }
    }
    kept
}

/// Text that is equal for equal scalars only: type and value.
fn scalar_key(value: &Value) -> String {
    value.to_string()
}

/// Splits into what `by` names and what it does not.
fn partition(list: Vec<Value>, by: &[Value], key: &str) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut names = std::collections::HashSet::new();
    for (index, item) in by.iter().enumerate() {
        if key.is_empty() {
            names.insert(scalar_key(item));
        } else if list.is_empty() {
            break;
        } else if let Some(value) = item.as_object().ok_or(Error::ItemNotAMap(index))?.get(key) {
            names.insert(scalar_key(value));
        }
    }
    let (mut named, mut rest) = (Vec::new(), Vec::new());
    for item in list {
        let name = if key.is_empty() { scalar_key(&item) } else { scalar_key(merge_value(&item, key)?) };
        if names.contains(&name) { named.push(item) } else { rest.push(item) }
    }
    Ok((named, rest))
}

/// Sorts both lists, then weaves the rest into the named ones where the live order says so.
fn in_order(
    named: Vec<Value>,
    rest: Vec<Value>,
    order: &[Value],
    live: &[Value],
    key: &str,
    maps: bool,
) -> Result<Vec<Value>, Error> {
    let named = sorted(named, order, key, maps)?;
    let rest = sorted(rest, live, key, maps)?;
    let places = Places::of(live, key, maps);
    let mut woven = Vec::with_capacity(named.len() + rest.len());
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    loop {
        let take_rest = match (rest.peek(), named.peek()) {
            (None, None) => return Ok(woven),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => match (places.get(left), places.get(right)) {
                (Some(left), Some(right)) => left < right,
                _ => false,
            },
        };
        woven.extend(if take_rest { rest.next() } else { named.next() });
    }
}

/// Sorts a list by the order given; items to be deleted go last.
pub(super) fn sorted(list: Vec<Value>, order: &[Value], key: &str, maps: bool) -> Result<Vec<Value>, Error> {
    if maps {
        for item in list.iter().chain(order) {
            merge_value(item, key)?;
        }
    }
    let is_delete = |item: &Value| maps && item.get(DIRECTIVE).is_some_and(|directive| directive == "delete");
    let (deleted, mut kept): (Vec<Value>, Vec<Value>) = list.into_iter().partition(is_delete);
    let places = Places::of(order, key, maps);
    let mut placed: Vec<(Option<usize>, Value)> =
        kept.drain(..).map(|item| (places.get(&item), item)).collect();
    if placed.iter().all(|(place, _)| place.is_some()) {
        placed.sort_by_key(|(place, _)| *place);
    } else {
        // Upstream's comparison calls an unplaced item smaller than anything, both ways round: only an
        // insertion sort, which its library uses for short lists, gives its answer.
        insertion_sort(&mut placed, |left, right| match (left.0, right.0) {
            (Some(left), Some(right)) => left < right,
            _ => true,
        });
    }
    Ok(placed.into_iter().map(|(_, item)| item).chain(deleted).collect())
}

pub(super) fn insertion_sort<T>(list: &mut [T], less: impl Fn(&T, &T) -> bool) {
    for end in 1..list.len() {
        let mut at = end;
        while at > 0 && less(&list[at], &list[at - 1]) {
            list.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Where each item stands first.
struct Places<'a> {
    key: &'a str,
    maps: bool,
    first: HashMap<String, usize>,
}

impl<'a> Places<'a> {
    fn of(list: &[Value], key: &'a str, maps: bool) -> Self {
        let mut places = Places { key, maps, first: HashMap::new() };
        for (index, item) in list.iter().enumerate() {
            places.first.entry(places.name(item)).or_insert(index);
        }
        places
    }

    fn get(&self, item: &Value) -> Option<usize> {
        self.first.get(&self.name(item)).copied()
    }

    fn name(&self, item: &Value) -> String {
        if self.maps { item.get(self.key).map(scalar_key).unwrap_or_default() } else { scalar_key(item) }
    }
}

/// Whether the lists hold maps; they must all hold the same type, and no lists.
pub(super) fn element_is_map(lists: &[&[Value]]) -> Result<bool, Error> {
    let mut first = None;
    for value in lists.iter().flat_map(|list| list.iter()) {
        match first {
            None if value.is_array() => return Err(Error::ListOfLists),
            None => first = Some(value),
            Some(before) if go_type(before) != go_type(value) => {
                let lists = lists.iter().map(|list| Value::Array(list.to_vec())).collect();
                return Err(Error::MixedList(go_text(&Value::Array(lists))));
            }
            Some(_) => {}
        }
    }
    first.map(Value::is_object).ok_or(Error::EmptyLists)
}

/// The patch's items must all be in the order list, and in its order.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut expected = order.iter().peekable();
    for item in patch {
        if !key.is_empty() && as_map(item)?.get(DIRECTIVE).is_some_and(|directive| directive == "delete") {
            continue;
        }
        // Other directives pass only while there is order left to compare with: upstream's loop ends there.
        if expected.peek().is_some() && item.get(DIRECTIVE).is_some() {
            continue;
        }
        let mut found = false;
        for candidate in expected.by_ref() {
            if same(item, candidate, key)? {
                found = true;
                break;
            }
        }
        if !found {
            let text = |list: &[Value]| go_text(&Value::Array(list.to_vec()));
            return Err(Error::OrderMismatch { patch: text(patch), order: text(order) });
        }
    }
    Ok(())
}

pub(super) fn same(left: &Value, right: &Value, key: &str) -> Result<bool, Error> {
    if key.is_empty() {
        return Ok(left == right);
    }
    Ok(merge_value(left, key)? == merge_value(right, key)?)
}
