//! Writes tables back as OpenAPI v3 schemas, for the document an API server publishes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::Schemas;
use crate::schema::{ListType, MapType, Schema};
use crate::tables::Type;

impl Schemas {
    /// The OpenAPI v3 schema of the named definition and of everything it refers to.
    ///
    /// `x-kubernetes-unions` is not kept; everything else reads as Kubernetes publishes it.
    pub fn openapi_v3(&self, names: impl IntoIterator<Item = impl Into<String>>) -> BTreeMap<String, Value> {
        let mut waiting: Vec<String> = names.into_iter().map(Into::into).collect();
        let mut done = BTreeMap::new();
        while let Some(name) = waiting.pop() {
            if done.contains_key(&name) {
                continue;
            }
            let Some(schema) = self.definition(&name) else { continue };
            let mut written = write_type(schema, &mut waiting);
            if let Some(text) = schema.type_description() {
                written.insert("description".into(), text.into());
            }
            done.insert(name, Value::Object(written));
        }
        for (name, written) in &mut done {
            self.add_kinds(name, written);
        }
        done
    }

    fn add_kinds(&self, name: &str, written: &mut Value) {
        let kinds: Vec<Value> = self
            .kinds()
            .filter(|kind| kind.schema().and_then(Schema::definition_name) == Some(name))
            .map(|kind| json!({"group": kind.group(), "kind": kind.kind(), "version": kind.version()}))
            .collect();
        if !kinds.is_empty() {
            written["x-kubernetes-group-version-kind"] = kinds.into();
        }
    }
}

fn write_use(schema: Schema<'_>, seen: &mut Vec<String>) -> Value {
    let mut out = Map::new();
    if let Some(name) = schema.use_of_definition() {
        seen.push(name.to_owned());
        let reference = json!({"$ref": format!("#/components/schemas/{name}")});
        write_own(schema, &mut out);
        if let Some(map_type) = schema.own_map_type() {
            out.insert("x-kubernetes-map-type".into(), map_type_name(map_type).into());
        }
        if out.is_empty() {
            return reference;
        }
        out.insert("allOf".into(), json!([reference]));
        return Value::Object(out);
    }
    out = write_type(schema, seen);
    write_own(schema, &mut out);
    Value::Object(out)
}

/// What only this use of the type says.
fn write_own(schema: Schema<'_>, out: &mut Map<String, Value>) {
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.into(), value);
        }
    };
    put("description", schema.use_description().map(Value::from));
    put("default", schema.default());
    put("x-kubernetes-patch-strategy", schema.patch_strategy().map(Value::from));
    put("x-kubernetes-patch-merge-key", schema.merge_key().map(Value::from));
}

fn write_type(schema: Schema<'_>, seen: &mut Vec<String>) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.into(), value);
        }
    };
    let list = |values: Vec<Value>| (!values.is_empty()).then_some(Value::Array(values));
    put("type", type_name(schema.type_()).map(Value::from));
    put("format", schema.format().map(Value::from));
    if schema.is_int_or_string() {
        put("oneOf", Some(json!([{"type": "integer"}, {"type": "string"}])));
    } else if schema.is_quantity() {
        put("oneOf", Some(json!([{"type": "string"}, {"type": "number"}])));
    }
    put("required", list(schema.required().map(Value::from).collect()));
    put("enum", list(schema.enum_values().collect()));
    put("x-kubernetes-list-map-keys", list(schema.list_map_keys().map(Value::from).collect()));
    put(
        "x-kubernetes-list-type",
        schema.list_type().map(|list_type| match list_type {
            ListType::Atomic => "atomic".into(),
            ListType::Set => "set".into(),
            ListType::Map => "map".into(),
        }),
    );
    if schema.use_of_definition().is_none() {
        put("x-kubernetes-map-type", schema.map_type().map(|map_type| map_type_name(map_type).into()));
    }
    put("items", schema.items().map(|items| write_use(items, seen)));
    put("additionalProperties", schema.map_values().map(|values| write_use(values, seen)));
    put("additionalProperties", schema.additional_properties().map(Value::from));
    let fields: Map<String, Value> =
        schema.fields().map(|(name, field)| (name.to_owned(), write_use(field, seen))).collect();
    put("properties", (!fields.is_empty()).then_some(Value::Object(fields)));
    for (key, set) in [
        ("x-kubernetes-preserve-unknown-fields", schema.preserves_unknown_fields()),
        ("x-kubernetes-embedded-resource", schema.is_embedded_resource()),
        ("nullable", schema.is_nullable()),
    ] {
        put(key, set.then_some(Value::Bool(true)));
    }
    out
}

fn type_name(type_: Type) -> Option<&'static str> {
    match type_ {
        Type::Any => None,
        Type::Object => Some("object"),
        Type::Array => Some("array"),
        Type::String => Some("string"),
        Type::Integer => Some("integer"),
        Type::Number => Some("number"),
        Type::Boolean => Some("boolean"),
    }
}

fn map_type_name(map_type: MapType) -> &'static str {
    match map_type {
        MapType::Atomic => "atomic",
        MapType::Granular => "granular",
    }
}
