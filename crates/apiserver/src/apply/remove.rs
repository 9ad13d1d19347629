//! Taking fields out of an object.

use serde_json::{Map, Value};

use super::path::PathElement;
use super::schema::Type;
use super::set::Set;
use super::typed::{Treated, deduce, element_of, treat};

/// The object without the fields of the set. A list or map that loses everything becomes null, as upstream leaves it:
/// who converts the object back drops it.
pub(super) fn remove(value: &Value, fields: &Set, type_: Type<'_>) -> Value {
    match (treat(deduce(type_.atom(), Some(value))), value) {
        (Ok(Treated::Scalar(_)), value) => value.clone(),
        (Ok(Treated::List(list)), Value::Array(items)) if !list.is_atomic() => {
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let Ok(element) = element_of(item, list) else { return Some(item.clone()) };
                    keep(item, &element, fields, list.items)
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Ok(Treated::Map(map)), Value::Object(entries)) if !map.atomic => {
            let kept: Map<String, Value> = entries
                .iter()
                .filter_map(|(name, value)| {
                    Some((name.clone(), keep(value, &PathElement::field(name), fields, map.child(name))?))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        _ => Value::Null,
    }
}

fn keep(value: &Value, element: &PathElement, fields: &Set, type_: Type<'_>) -> Option<Value> {
    if fields.members.contains(element) {
        return None;
    }
    match fields.children.get(element).filter(|below| !below.is_empty()) {
        Some(below) => Some(remove(value, below, type_)),
        None => Some(value.clone()),
    }
}
