//! Freeing values that are nested deeply: in a loop, since the compiler's own way would go as deep as they do.

use super::Value;

/// Drops the values, and what only they held, without recursion.
pub fn teardown(mut stack: Vec<Value>) {
    while let Some(value) = stack.pop() {
        match value {
            Value::List(list) => list.into_items(&mut stack),
            Value::Map(map) => map.into_values(&mut stack),
            _ => {}
        }
    }
}

/// Whether a value can hold others.
pub fn holds_others(value: &Value) -> bool {
    matches!(value, Value::List(_) | Value::Map(_))
}
