//! The patch types that change an object as JSON: JSON patch, merge patch, strategic merge patch.
//!
//! Each takes the stored object and the patch and answers the new object; decoding, defaults and ownership follow elsewhere.
//! What a real server answers to a patch that does not apply is [`Rejected`]'s to say.

mod json;

use kube_schema::{Schema, strategic_merge};
use serde_json::{Map, Value};

pub use json::{MAX_OPERATIONS, json};

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// 400: the patch is not what its type says.
    #[error("{0}")]
    BadRequest(String),
    /// 413: too many operations.
    #[error("{0}")]
    TooLarge(String),
    /// 422 without saying why: the server's words are always the same, ours are for the log.
    #[error("{0}")]
    Unprocessable(String),
    /// 500: a failure that the server does not classify, with its text as message.
    #[error("{0}")]
    Internal(String),
}

/// Objects nested deeper than this are left as they are.
const MAX_DEPTH: usize = 250;

/// JSON merge patch (RFC 7396): null removes, objects merge, everything else replaces.
pub fn merge(document: &mut Value, patch: &Value) -> Result<(), Rejected> {
    let Value::Object(patch) = patch else { return Err(not_an_object(patch)) };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    merge_object(document, patch, MAX_DEPTH);
    Ok(())
}

/// Strategic merge patch, for kinds whose structure the server knows by heart. Custom resources have none (415).
pub fn strategic(document: &Value, patch: &Value, schema: Schema<'_>) -> Result<Value, Rejected> {
    if !patch.is_object() {
        return Err(not_an_object(patch));
    }
    use strategic_merge::Error;
    strategic_merge::merge(document, patch, schema).map_err(|error| match error {
        Error::NotAnObject | Error::PrimitiveList | Error::RetainKeys | Error::SetElementOrder => {
            Rejected::BadRequest(error.to_string())
        }
        Error::ListOfLists => Rejected::Unprocessable(error.to_string()),
        other => Rejected::Internal(other.to_string()),
    })
}

fn not_an_object(patch: &Value) -> Rejected {
    Rejected::BadRequest(format!(
        "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
        go_kind(patch)
    ))
}

/// What Go's decoder calls a JSON value.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn merge_object(document: &mut Value, patch: &Map<String, Value>, depth: usize) {
    let (Some(depth), Value::Object(fields)) = (depth.checked_sub(1), document) else { return };
    for (name, change) in patch {
        match change {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(change) => {
                let field = fields.entry(name.clone()).or_insert(Value::Null);
                if !field.is_object() {
                    *field = Value::Object(Map::new());
                }
                merge_object(field, change, depth);
            }
            other => {
                fields.insert(name.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_schema::Schemas;
    use serde_json::json;

    #[test]
    fn merging_removes_nulls_and_replaces_lists() {
        let mut document = json!({"a": {"b": 1, "c": [1]}, "d": 1});
        merge(&mut document, &json!({"a": {"b": null, "c": [2]}, "d": {"e": {"f": null}}})).unwrap();
        assert_eq!(document, json!({"a": {"c": [2]}, "d": {"e": {}}}));
        let error = merge(&mut document, &json!([1])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }

    #[test]
    fn strategic_failures_have_the_servers_codes() {
        let schema = Schemas::kubernetes().kind("", "v1", "ConfigMap").unwrap().schema().unwrap();
        let document = json!({"metadata": {"name": "a", "labels": {"a": "1"}}, "data": {"k": "v"}});
        let unknown = strategic(&document, &json!({"$patch": "bogus"}), schema).unwrap_err();
        assert_eq!(unknown, Rejected::Internal("unknown patch type: bogus in map: map[$patch:bogus]".into()));
        let keys = json!({"metadata": {"$retainKeys": ["name"], "labels": {"x": "1"}}});
        let error = strategic(&document, &keys, schema).unwrap_err();
        assert_eq!(error, Rejected::BadRequest("invalid patch format of retainKeys".into()));
        let replaced =
            strategic(&document, &json!({"metadata": {"labels": {"$patch": "replace", "z": "1"}}}), schema);
        assert_eq!(replaced.unwrap()["metadata"]["labels"], json!({"z": "1"}));
    }
}
