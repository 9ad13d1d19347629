//! Making a patch: two-way and three-way.

use serde_json::Value;

use super::lists::{deduplicate, element_is_map, insertion_sort, same, sorted};
use super::merge::{Mode, merge_object};
use super::{
    DELETE_FROM_LIST, DIRECTIVE, Error, Field, Object, RETAIN_KEYS, SET_ORDER, Strategy, as_map, go_text,
    go_type, lookup_list, lookup_object, merge_value, object,
};
use crate::schema::Schema;

/// The patch that turns `original` into `modified`.
pub fn two_way(original: &Value, modified: &Value, schema: Schema<'_>) -> Result<Value, Error> {
    let options = Options { changes: true, deletions: true, set_order: true, retain_keys: false };
    diff(object(original)?, object(modified)?, schema, options).map(Value::Object)
}

/// The patch that brings `current` to `modified` and deletes what `original` had and `modified` has not.
/// What others added to `current` stays.
pub fn three_way(
    original: &Value,
    modified: &Value,
    current: &Value,
    schema: Schema<'_>,
) -> Result<Value, Error> {
    let (original, modified, current) = (object(original)?, object(modified)?, object(current)?);
    let changes = Options { changes: true, deletions: false, set_order: true, retain_keys: false };
    let delta = diff(current, modified, schema, changes)?;
    let deletions = Options { changes: false, deletions: true, set_order: true, retain_keys: false };
    let deletions = diff(original, modified, schema, deletions)?;
    merge_object(deletions, delta, schema, Mode::Combine).map(Value::Object)
}

#[derive(Clone, Copy)]
struct Options {
    changes: bool,
    deletions: bool,
    set_order: bool,
    retain_keys: bool,
}

fn diff(original: &Object, modified: &Object, schema: Schema<'_>, options: Options) -> Result<Object, Error> {
    let mut patch = Object::new();
    for (key, after) in modified {
        let before = original.get(key);
        match (before, after) {
            (Some(before), after) if key == DIRECTIVE => {
                let (Value::String(before), Value::String(text)) = (before, after) else {
                    return Err(Error::DirectiveNotText);
                };
                if before != text {
                    patch.insert(key.clone(), after.clone());
                }
            }
            (Some(Value::Object(before)), Value::Object(after)) => {
                diff_object(key, before, after, &mut patch, schema, options)?;
            }
            (Some(Value::Array(before)), Value::Array(after)) => {
                diff_list(key, before, after, &mut patch, schema, options)?;
            }
            (before, after) => {
                let differs =
                    before.is_none_or(|before| go_type(before) != go_type(after) || before != after);
                if options.changes && differs {
                    patch.insert(key.clone(), after.clone());
                }
            }
        }
    }
    if options.deletions {
        let gone = original.keys().filter(|key| !modified.contains_key(*key));
        patch.extend(gone.map(|key| (key.clone(), Value::Null)));
    }
    if options.retain_keys {
        // `modified` is sorted already, as upstream sorts the names.
        let kept: Vec<Value> = modified
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, _)| key.as_str().into())
            .collect();
        let dropped = original.iter().any(|(key, value)| !value.is_null() && !modified.contains_key(key));
        if !kept.is_empty() && (!patch.is_empty() || dropped) {
            patch.insert(RETAIN_KEYS.to_owned(), Value::Array(kept));
        }
    }
    Ok(patch)
}

fn diff_object(
    key: &str,
    before: &Object,
    after: &Object,
    patch: &mut Object,
    schema: Schema<'_>,
    options: Options,
) -> Result<(), Error> {
    let field = match lookup_object(schema, key) {
        Ok(field) => field,
        // A field nobody knows does no harm while nobody changes it.
        Err(_) if before == after => return Ok(()),
        Err(error) => return Err(error),
    };
    if field.strategy == Strategy::Replace {
        if options.changes {
            patch.insert(key.to_owned(), Value::Object(after.clone()));
        }
        return Ok(());
    }
    let options = Options { retain_keys: field.retain_keys, ..options };
    let change = diff(before, after, field.schema, options)?;
    if !change.is_empty() {
        patch.insert(key.to_owned(), Value::Object(change));
    }
    Ok(())
}

fn diff_list(
    key: &str,
    before: &[Value],
    after: &[Value],
    patch: &mut Object,
    schema: Schema<'_>,
    options: Options,
) -> Result<(), Error> {
    let field = match lookup_list(schema, key) {
        Ok(field) => field,
        Err(_) if before == after => return Ok(()),
        Err(error) => return Err(error),
    };
    if field.strategy != Strategy::Merge {
        if options.changes && before != after {
            patch.insert(key.to_owned(), Value::Array(after.to_vec()));
        }
        return Ok(());
    }
    let options = Options { retain_keys: field.retain_keys, ..options };
    let change = diff_merged_list(before, after, field, options)?;
    for (name, list) in [
        (key.to_owned(), change.add),
        (format!("{DELETE_FROM_LIST}/{key}"), change.delete),
        (format!("{SET_ORDER}/{key}"), change.order),
    ] {
        if !list.is_empty() {
            patch.insert(name, Value::Array(list));
        }
    }
    Ok(())
}

#[derive(Default)]
struct ListChange {
    add: Vec<Value>,
    delete: Vec<Value>,
    order: Vec<Value>,
}

fn diff_merged_list(
    before: &[Value],
    after: &[Value],
    field: Field<'_>,
    options: Options,
) -> Result<ListChange, Error> {
    if before.is_empty() {
        let add = if options.changes { after.to_vec() } else { Vec::new() };
        return Ok(ListChange { add, ..ListChange::default() });
    }
    if !element_is_map(&[before, after])? {
        return diff_scalars(before, after, field, options);
    }
    let (add, delete) = diff_maps(before, after, field, options)?;
    let mut add = sorted(add, after, field.merge_key, true)?;
    let same_order = same_order(before, after, field.merge_key)?;
    add.extend(delete);
    let ordered = options.changes && (!add.is_empty() || !same_order) || options.deletions && !add.is_empty();
    let mut order = Vec::new();
    if options.set_order && ordered {
        for item in after {
            let value = as_map(item)?.get(field.merge_key).cloned().unwrap_or_default();
            order.push(Value::Object([(field.merge_key.to_owned(), value)].into_iter().collect()));
        }
    }
    Ok(ListChange { add, delete: Vec::new(), order })
}

fn same_order(before: &[Value], after: &[Value], key: &str) -> Result<bool, Error> {
    if before.len() != after.len() {
        return Ok(false);
    }
    for (before, after) in before.iter().zip(after) {
        if !same(before, after, key)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn diff_scalars(
    before: &[Value],
    after: &[Value],
    field: Field<'_>,
    options: Options,
) -> Result<ListChange, Error> {
    let by_text = |list: &[Value]| {
        let mut list: Vec<(String, Value)> =
            list.iter().map(|value| (go_text(value), value.clone())).collect();
        list.sort_by(|left, right| left.0.cmp(&right.0));
        list
    };
    let (old, new) = (by_text(before), by_text(after));
    let sorted_before: Vec<Value> = old.iter().map(|(_, value)| value.clone()).collect();
    let (mut add, mut delete) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.0.cmp(&new.0),
        };
        match order {
            std::cmp::Ordering::Equal => {
                old.next();
                new.next();
            }
            std::cmp::Ordering::Less => {
                delete.extend(old.next().filter(|_| options.deletions).map(|(_, value)| value));
            }
            std::cmp::Ordering::Greater => {
                add.extend(new.next().filter(|_| options.changes).map(|(_, value)| value));
            }
        }
    }
    let delete = deduplicate(delete);
    let add = sorted(add, after, field.merge_key, false)?;
    // Upstream has sorted the old list in place by now, and compares that.
    let changed = !sorted_before.iter().eq(after);
    let ordered = options.deletions && !delete.is_empty() || options.changes && changed;
    let order = if options.set_order && ordered { after.to_vec() } else { Vec::new() };
    Ok(ListChange { add, delete, order })
}

fn diff_maps(
    before: &[Value],
    after: &[Value],
    field: Field<'_>,
    options: Options,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let key = field.merge_key;
    let (old, new) = (by_merge_value(before, key), by_merge_value(after, key));
    let (mut add, mut delete) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        // Upstream asks for the merge key as it goes, so a list may fail after some of its items.
        if let Some((_, item)) = old.peek() {
            merge_value(item, key)?;
        }
        if let Some((_, item)) = new.peek() {
            merge_value(item, key)?;
        }
        let order = match (old.peek(), new.peek()) {
            (None, None) => return Ok((add, delete)),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.0.cmp(&new.0),
        };
        match order {
            std::cmp::Ordering::Equal => {
                let (Some((_, old)), Some((_, new))) = (old.next(), new.next()) else { continue };
                let mut change = diff(as_map(old)?, as_map(new)?, field.schema, options)?;
                if !change.is_empty() {
                    change.insert(key.to_owned(), merge_value(new, key)?.clone());
                    add.push(Value::Object(change));
                }
            }
            std::cmp::Ordering::Less => {
                let Some((_, old)) = old.next() else { continue };
                if options.deletions {
                    let value = merge_value(old, key)?.clone();
                    let directive = [(key.to_owned(), value), (DIRECTIVE.to_owned(), "delete".into())];
                    delete.push(Value::Object(directive.into_iter().collect()));
                }
            }
            std::cmp::Ordering::Greater => {
                add.extend(new.next().filter(|_| options.changes).map(|(_, item)| item.clone()));
            }
        }
    }
}

fn by_merge_value<'a>(list: &'a [Value], key: &str) -> Vec<(String, &'a Value)> {
    let text = |item: &Value| item.get(key).map_or_else(|| "<nil>".to_owned(), go_text);
    let mut list: Vec<(String, &Value)> = list.iter().map(|item| (text(item), item)).collect();
    if list.len() <= 12 {
        // Upstream's comparison is "less or equal", which turns the order of equal items round in a
        // short list: two ports of one number and different protocols come out the other way.
        insertion_sort(&mut list, |left, right| left.0 <= right.0);
    } else {
        list.sort_by(|left, right| left.0.cmp(&right.0));
    }
    list
}
