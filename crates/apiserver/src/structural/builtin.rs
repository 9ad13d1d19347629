//! What a builtin object looks like after Kubernetes decoded it into its Go structures and encoded it again.
//!
//! Unknown fields and nulls vanish, so do empty values of `omitempty` fields; structures that are no pointers appear even
//! when nobody wrote them (`resources: {}`, `status: {}`); quantities and times get their canonical text. Field ownership
//! depends on it, for it compares objects in this form.
//!
//! Deliberately absent: defaults, and complaints. A value of the wrong type is passed through: see `structural::decode`.

use kube_cel::Quantity;
use kube_schema::{GoField, GoValue, Schema, Schemas};
use serde_json::{Map, Value};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Objects nested deeper than this are left as they are.
const MAX_DEPTH: usize = 250;

/// The object after a round trip.
pub fn round_trip(object: &Value, schema: Schema<'_>) -> Value {
    encode(object, schema, MAX_DEPTH)
}

/// A custom resource after Kubernetes read its metadata: the rest of it stays as it is.
pub fn with_metadata(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(found @ Value::Object(_)) = object.get_mut("metadata") {
        *found = metadata(found);
    }
    object
}

/// Metadata after a round trip.
pub(super) fn metadata(value: &Value) -> Value {
    let schema = Schemas::kubernetes().definition(OBJECT_META);
    schema.map_or_else(|| value.clone(), |schema| round_trip(value, schema))
}

pub(super) fn is_metadata_field(name: &str) -> bool {
    Schemas::kubernetes().definition(OBJECT_META).is_some_and(|schema| schema.field(name).is_some())
}

/// An object of the kind that nobody has filled in, with apiVersion and kind.
pub fn empty(api_version: &str, kind: &str, schema: Schema<'_>) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    round_trip(&Value::Object(object), schema)
}

fn encode(value: &Value, schema: Schema<'_>, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return value.clone() };
    match schema.definition_name() {
        Some(QUANTITY) => return quantity(value),
        Some(TIME) => return time(value, 0),
        Some(MICRO_TIME) => return time(value, 6),
        _ => {}
    }
    match value {
        Value::Object(entries) if schema.fields().len() > 0 => {
            let fields = schema.fields().filter_map(|(name, field)| {
                let value = encode_field(entries.get(name), field, depth)?;
                Some((name.to_owned(), value))
            });
            Value::Object(fields.collect())
        }
        Value::Object(entries) => match schema.map_values() {
            Some(values) => Value::Object(
                entries.iter().map(|(key, value)| (key.clone(), item(value, values, depth))).collect(),
            ),
            None => value.clone(),
        },
        Value::Array(items) => match schema.items() {
            Some(of) => items.iter().map(|value| item(value, of, depth)).collect(),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

/// An item of a list or map: null stands for the empty value.
fn item(value: &Value, schema: Schema<'_>, depth: usize) -> Value {
    if value.is_null() { zero_at(schema, depth) } else { encode(value, schema, depth) }
}

fn encode_field(value: Option<&Value>, schema: Schema<'_>, depth: usize) -> Option<Value> {
    let Some(go) = schema.go_field() else { return value.map(|value| encode(value, schema, depth)) };
    match value.filter(|value| !value.is_null()) {
        Some(value) => {
            let value = encode(value, schema, depth);
            let vanishes =
                !go.pointer && go.omit_empty && is_empty(&value, go) || go.omit_zero && value.is_null();
            (!vanishes).then_some(value)
        }
        None if go.pointer || matches!(go.holds, GoValue::Slice | GoValue::Map) => {
            (!go.omit_empty).then_some(Value::Null)
        }
        None => match go.holds {
            GoValue::Struct => (!go.omit_zero).then(|| zero_at(schema, depth)),
            GoValue::Slice | GoValue::Map | GoValue::Scalar => {
                (!go.omit_empty).then(|| zero_at(schema, depth))
            }
        },
    }
}

fn is_empty(value: &Value, go: GoField<'_>) -> bool {
    match (go.holds, value) {
        // Go never calls a structure empty.
        (GoValue::Struct, _) => false,
        (_, Value::Null) => true,
        (_, Value::Bool(value)) => !value,
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Array(list)) => list.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
    }
}

/// The value that Go gives where nobody gives one.
pub fn zero(schema: Schema<'_>) -> Value {
    zero_at(schema, MAX_DEPTH)
}

fn zero_at(schema: Schema<'_>, depth: usize) -> Value {
    match schema.definition_name() {
        Some(QUANTITY) => return "0".into(),
        Some(INT_OR_STRING) => return 0.into(),
        Some(_) if schema.fields().len() == 0 => return Value::Null,
        _ => {}
    }
    match schema.type_() {
        kube_schema::Type::Object if schema.fields().len() > 0 => {
            encode(&Value::Object(Map::new()), schema, depth)
        }
        kube_schema::Type::String => "".into(),
        kube_schema::Type::Integer | kube_schema::Type::Number => 0.into(),
        kube_schema::Type::Boolean => false.into(),
        kube_schema::Type::Object | kube_schema::Type::Array | kube_schema::Type::Any => Value::Null,
    }
}

fn quantity(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => return other.clone(),
    };
    Quantity::canonical(&text).map_or_else(|_| value.clone(), Value::from)
}

/// RFC 3339 in UTC, with this many digits of a second.
fn time(value: &Value, digits: usize) -> Value {
    let time = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    time.map_or_else(|| value.clone(), |time| format!("{time:.digits$}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment() -> Schema<'static> {
        Schemas::kubernetes().kind("apps", "v1", "Deployment").unwrap().schema().unwrap()
    }

    #[test]
    fn structures_appear_and_empty_values_vanish() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "labels": {}, "creationTimestamp": null},
            "spec": {
                "replicas": 0, "minReadySeconds": 0, "paused": false, "nonsense": 1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"spec": {"containers": [{
                    "name": "x", "args": [], "env": [{"name": "A", "value": ""}],
                    "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}
                }], "volumes": [{"name": "e", "emptyDir": {}}]}}
            }
        });
        assert_eq!(
            round_trip(&object, deployment()),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a"},
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": {"a": "b"}},
                    "strategy": {},
                    "template": {"metadata": {}, "spec": {"containers": [{
                        "name": "x", "env": [{"name": "A"}],
                        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}
                    }], "volumes": [{"name": "e", "emptyDir": {}}]}}
                },
                "status": {}
            })
        );
    }

    #[test]
    fn the_empty_object_shows_what_is_no_pointer() {
        assert_eq!(
            empty("apps/v1", "Deployment", deployment()),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
                "spec": {"selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}},
                "status": {}
            })
        );
    }

    #[test]
    fn times_are_utc_and_cut() {
        let schema =
            Schemas::kubernetes().kind("coordination.k8s.io", "v1", "Lease").unwrap().schema().unwrap();
        let object = json!({"metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"},
            "spec": {"renewTime": "2026-01-01T00:00:00.123456789Z"}});
        let out = round_trip(&object, schema);
        assert_eq!(out["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(out["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
    }
}
