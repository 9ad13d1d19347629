//! JSON patch as the server's library applies it, which is looser than RFC 6902: `replace` and `copy` take a missing field for
//! null, negative numbers count from a list's end, and whatever stands before a path's first slash is dropped.

use serde_json::{Map, Value};

use super::{Rejected, go_kind};

/// As many operations as the server takes in one patch.
pub const MAX_OPERATIONS: usize = 10_000;
/// What copies may add up to, in bytes.
const MAX_COPIED: usize = 3 << 20;

/// Applies a list of operations, all or none.
pub fn json(document: &Value, operations: &Value) -> Result<Value, Rejected> {
    let Value::Array(operations) = operations else {
        return Err(undecodable(operations, "[]handlers.jsonPatchOp"));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(Rejected::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    if let Some(wrong) = operations.iter().find(|operation| !operation.is_object()) {
        return Err(undecodable(wrong, "handlers.jsonPatchOp"));
    }
    let mut document = document.clone();
    let mut copied = 0;
    for operation in operations {
        apply(&mut document, operation, &mut copied).map_err(Rejected::Unprocessable)?;
    }
    Ok(document)
}

fn undecodable(value: &Value, wanted: &str) -> Rejected {
    Rejected::BadRequest(format!(
        "error decoding patch: json: cannot unmarshal {} into Go value of type {wanted}",
        go_kind(value)
    ))
}

fn apply(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let kind = operation["op"].as_str().unwrap_or("unknown");
    let text = |name: &str| {
        operation
            .get(name)
            .and_then(Value::as_str)
            .ok_or_else(|| format!("{kind} operation failed to decode {name}"))
    };
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match kind {
        "add" => {
            let path = text("path")?;
            let (place, key) = find(document, path).ok_or_else(|| missing(kind, path))?;
            place.add(&key, value())
        }
        "remove" => {
            let path = text("path")?;
            let (place, key) = find(document, path).ok_or_else(|| missing(kind, path))?;
            place.remove(&key).map(drop)
        }
        "replace" => {
            let path = text("path")?;
            if path.is_empty() {
                *document = match value() {
                    new @ (Value::Object(_) | Value::Array(_)) => new,
                    _ => return Err("replace operation value must be object or array".to_owned()),
                };
                return Ok(());
            }
            let (place, key) = find(document, path).ok_or_else(|| missing(kind, path))?;
            place.set(&key, value())
        }
        "move" => {
            let from = text("from")?;
            let (place, key) = find(document, from).ok_or_else(|| missing(kind, from))?;
            let value = place.remove(&key)?;
            let path = text("path")?;
            let (place, key) = find(document, path).ok_or_else(|| missing(kind, path))?;
            place.add(&key, value)
        }
        "copy" => {
            let from = text("from")?;
            let (place, key) = find(document, from).ok_or_else(|| missing(kind, from))?;
            let value = place.get(&key)?.unwrap_or(Value::Null);
            *copied = copied.saturating_add(value.to_string().len());
            if *copied > MAX_COPIED {
                return Err(format!("copies of more than {MAX_COPIED} bytes"));
            }
            let path = text("path")?;
            let (place, key) = find(document, path).ok_or_else(|| missing(kind, path))?;
            place.add(&key, value)
        }
        "test" => {
            let path = text("path")?;
            let wanted = value();
            let is = if path.is_empty() {
                Some(document.clone())
            } else {
                let (place, key) = find(document, path).ok_or_else(|| missing(kind, path))?;
                place.get(&key)?
            };
            if same(&is.unwrap_or(Value::Null), &wanted) {
                Ok(())
            } else {
                Err(format!("testing value {path} failed"))
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn missing(kind: &str, path: &str) -> String {
    format!("{kind} operation does not apply: doc is missing path: \"{path}\"")
}

/// Numbers are equal by value.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(_), Value::Number(_)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| same(value, other)))
        }
        (left, right) => left == right,
    }
}

/// Where a path's last step is taken.
enum Place<'a> {
    Object(&'a mut Map<String, Value>),
    List(&'a mut Vec<Value>),
}

/// The object or list that holds the path's last step, and that step; none if the way is not there.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(Place<'a>, String)> {
    let mut steps = path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    let mut here = document;
    let mut step = steps.next()?;
    for next in steps {
        here = match here {
            Value::Object(map) => map.get_mut(&step)?,
            Value::Array(list) => {
                let index = index(&step, list.len()).ok()?;
                list.get_mut(index)?
            }
            _ => return None,
        };
        step = next;
    }
    match here {
        Value::Object(map) => Some((Place::Object(map), step)),
        Value::Array(list) => Some((Place::List(list), step)),
        _ => None,
    }
}

/// A place in a list of this length; negative numbers count from its end.
fn index(step: &str, length: usize) -> Result<usize, String> {
    let wrong = || format!("Unable to access invalid index: {step}");
    let number: i64 = step.parse().map_err(|_| wrong())?;
    let number = if number < 0 { number + length as i64 } else { number };
    usize::try_from(number).ok().filter(|index| *index < length).ok_or_else(wrong)
}

impl Place<'_> {
    fn get(&self, key: &str) -> Result<Option<Value>, String> {
        match self {
            Place::Object(map) => Ok(map.get(key).cloned()),
            Place::List(list) => Ok(list.get(index(key, list.len())?).cloned()),
        }
    }

    fn set(self, key: &str, value: Value) -> Result<(), String> {
        match self {
            Place::Object(map) => {
                map.insert(key.to_owned(), value);
            }
            Place::List(list) => {
                let at = index(key, list.len())?;
                list[at] = value;
            }
        }
        Ok(())
    }

    fn add(self, key: &str, value: Value) -> Result<(), String> {
        match self {
            Place::Object(map) => {
                map.insert(key.to_owned(), value);
            }
            Place::List(list) if key == "-" => list.push(value),
            Place::List(list) => {
                let at = index(key, list.len() + 1)?;
                list.insert(at, value);
            }
        }
        Ok(())
    }

    fn remove(self, key: &str) -> Result<Value, String> {
        match self {
            Place::Object(map) => {
                map.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}"))
            }
            Place::List(list) => {
                let at = index(key, list.len())?;
                Ok(list.remove(at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn document() -> Value {
        json!({"metadata": {"labels": {"a": "1"}, "annotations": {"a/b": "s"}, "finalizers": ["a", "b"]}, "data": {"k": "v"}})
    }

    /// What a real server made of each operation on [`document`]: the changed part, or none for a refusal.
    #[test]
    fn operations_do_what_a_real_server_does() {
        let cases = [
            (json!({"op": "remove", "path": "/data/zz"}), None),
            (
                json!({"op": "replace", "path": "/data/zz", "value": "1"}),
                Some(("/data", json!({"k": "v", "zz": "1"}))),
            ),
            (json!({"op": "test", "path": "/data/k", "value": "x"}), None),
            (json!({"op": "test", "path": "/data/k", "value": "v"}), Some(("/data", json!({"k": "v"})))),
            (json!({"op": "test", "path": "/data/zz", "value": null}), Some(("/data", json!({"k": "v"})))),
            (json!({"op": "test", "path": "/data/zz", "value": "x"}), None),
            (
                json!({"op": "add", "path": "/metadata/finalizers/-", "value": "c"}),
                Some(("/metadata/finalizers", json!(["a", "b", "c"]))),
            ),
            (
                json!({"op": "add", "path": "/metadata/finalizers/0", "value": "c"}),
                Some(("/metadata/finalizers", json!(["c", "a", "b"]))),
            ),
            (json!({"op": "add", "path": "/metadata/finalizers/9", "value": "c"}), None),
            (
                json!({"op": "add", "path": "/metadata/finalizers/-1", "value": "c"}),
                Some(("/metadata/finalizers", json!(["a", "b", "c"]))),
            ),
            (
                json!({"op": "remove", "path": "/metadata/finalizers/-1"}),
                Some(("/metadata/finalizers", json!(["a"]))),
            ),
            (json!({"op": "remove", "path": "/metadata/finalizers/5"}), None),
            (json!({"op": "remove", "path": "/metadata/finalizers/x"}), None),
            (
                json!({"op": "replace", "path": "/metadata/finalizers/-1", "value": "z"}),
                Some(("/metadata/finalizers", json!(["a", "z"]))),
            ),
            (json!({"op": "replace", "path": "/metadata/finalizers/7", "value": "z"}), None),
            (json!({"op": "move", "from": "/data/k", "path": "/data/n"}), Some(("/data", json!({"n": "v"})))),
            (json!({"op": "move", "from": "/data/zz", "path": "/data/n"}), None),
            (
                json!({"op": "copy", "from": "/data/k", "path": "/data/n"}),
                Some(("/data", json!({"k": "v", "n": "v"}))),
            ),
            (
                json!({"op": "copy", "from": "/data/zz", "path": "/data/n"}),
                Some(("/data", json!({"k": "v", "n": null}))),
            ),
            (json!({"op": "add", "path": "/nope/x", "value": "1"}), None),
            (json!({"op": "add", "path": "", "value": {}}), None),
            (json!({"op": "bogus", "path": "/data/k"}), None),
            (json!({"op": "remove"}), None),
            (json!({"path": "/data/k"}), None),
            (json!({"op": "replace", "path": "/data/k"}), Some(("/data", json!({"k": null})))),
            (
                json!({"op": "add", "path": "/metadata/annotations/a~1b", "value": "q"}),
                Some(("/metadata/annotations", json!({"a/b": "q"}))),
            ),
            (json!({"op": "replace", "path": "data/k", "value": "1"}), Some(("/data", json!({"k": "v"})))),
            (json!({"op": "add", "path": "/data/k/x", "value": "1"}), None),
            (json!({"op": "remove", "path": "/"}), None),
        ];
        for (operation, expected) in cases {
            let answer = json(&document(), &json!([operation]));
            match expected {
                Some((place, value)) => {
                    assert_eq!(answer.unwrap().pointer(place), Some(&value), "{operation}")
                }
                None => assert!(matches!(answer, Err(Rejected::Unprocessable(_))), "{operation}: {answer:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_list_of_operations_is_a_bad_request() {
        for (patch, text) in [
            (json!({"op": "x"}), "object into Go value of type []handlers.jsonPatchOp"),
            (json!("str"), "string into Go value of type []handlers.jsonPatchOp"),
            (json!([1]), "number into Go value of type handlers.jsonPatchOp"),
        ] {
            let error = json(&document(), &patch).unwrap_err();
            assert_eq!(
                error,
                Rejected::BadRequest(format!("error decoding patch: json: cannot unmarshal {text}"))
            );
        }
        let many =
            Value::Array(vec![json!({"op": "test", "path": "/data/k", "value": "v"}); MAX_OPERATIONS + 1]);
        assert!(matches!(json(&document(), &many), Err(Rejected::TooLarge(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(9),
            failure_persistence: None,
            ..ProptestConfig::with_cases(2000)
        })]

        #[test]
        fn nothing_panics(steps in prop::collection::vec((
            prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]),
            "(/(data|metadata|finalizers|k|-|-1|0|5|~1|~0|)){0,4}",
            "(/(data|metadata|finalizers|k|-1|0)){0,4}",
        ), 0..6)) {
            let operations: Vec<Value> = steps.iter().map(|(op, path, from)| json!({"op": op, "path": path, "from": from, "value": {"x": [1]}})).collect();
            let _ = json(&document(), &Value::Array(operations));
        }
    }
}
