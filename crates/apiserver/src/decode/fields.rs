//! Reading a builtin kind by its schema: unknown fields fall away, fields that are null too, and a wrong type is an error
//! in the words of Go's decoder, which users of the real server know.

use base64::Engine as _;
use kube_schema::{Schema, Schemas, Type};
use serde_json::Value;

use crate::structural::builtin;

/// Reads `value` as this kind, in place; answers with the paths of unknown fields. A kind without a schema is left as
/// it is.
pub fn read(api_version: &str, kind: &str, value: &mut Value) -> Result<Vec<String>, String> {
    let Some(schema) = Schemas::kubernetes().kind_of(api_version, kind).and_then(|kind| kind.schema()) else {
        return Ok(Vec::new());
    };
    let mut reader = Reader { unknown: Vec::new(), path: Vec::new() };
    reader.value(schema, value, kind)?;
    Ok(reader.unknown)
}

/// Reads only `metadata`, of any kind.
pub fn read_metadata(value: &mut Value) -> Result<Vec<String>, String> {
    let Some(schema) = Schemas::kubernetes().definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    else {
        return Ok(Vec::new());
    };
    let Some(meta) = value.get_mut("metadata").filter(|meta| !meta.is_null()) else { return Ok(Vec::new()) };
    let mut reader = Reader { unknown: Vec::new(), path: vec!["metadata".into()] };
    reader.value(schema, meta, "ObjectMeta")?;
    let managed = meta.get("managedFields").cloned();
    *meta = builtin::round_trip(meta, schema);
    // An empty entry asks to forget all owners: the round trip would lose it.
    if let (Some(managed), Some(fields)) = (managed, meta.as_object_mut()) {
        fields.insert("managedFields".into(), managed);
    }
    Ok(reader.unknown)
}

struct Reader {
    unknown: Vec<String>,
    /// Field names from the root; list positions as `[0]`.
    path: Vec<String>,
}

impl Reader {
    fn value(&mut self, schema: Schema<'_>, value: &mut Value, owner: &str) -> Result<(), String> {
        // In a list or a map it stands for the empty value.
        if value.is_null() {
            *value = builtin::zero(schema);
            return Ok(());
        }
        if schema.is_quantity() {
            return quantity(value);
        }
        if schema.is_int_or_string() {
            return match value {
                Value::String(_) => Ok(()),
                Value::Number(number) if number.is_i64() || number.is_u64() => Ok(()),
                other => Err(self.mismatch(other, owner, "int32")),
            };
        }
        match (schema.type_(), &mut *value) {
            (Type::Any, _) => Ok(()),
            (Type::Object, Value::Object(_)) => self.object(schema, value, owner),
            (Type::Array, Value::Array(items)) => {
                let Some(item) = schema.items() else { return Ok(()) };
                for (at, element) in items.iter_mut().enumerate() {
                    self.path.push(format!("[{at}]"));
                    self.value(item, element, owner)?;
                    self.path.pop();
                }
                Ok(())
            }
            (Type::String, Value::String(text)) => match schema.format() {
                Some("date-time") => time(text),
                Some("byte") => base64_bytes(text),
                _ => Ok(()),
            },
            (Type::Integer, Value::Number(number)) => match number.as_i64() {
                Some(whole) if schema.format() != Some("int32") || i32::try_from(whole).is_ok() => Ok(()),
                _ => Err(self.mismatch(value, owner, schema.format().unwrap_or("int64"))),
            },
            (Type::Number, Value::Number(_)) | (Type::Boolean, Value::Bool(_)) => Ok(()),
            (_, other) => Err(self.mismatch(other, owner, &go_type(schema))),
        }
    }

    fn object(&mut self, schema: Schema<'_>, value: &mut Value, outer: &str) -> Result<(), String> {
        let Value::Object(fields) = value else { return Ok(()) };
        if schema.is_opaque() {
            return Ok(());
        }
        fields.retain(|key, value| !value.is_null() || schema.field(key).is_none());
        let keys: Vec<String> = fields.keys().cloned().collect();
        let owner = schema.definition_name().map(short_name).unwrap_or_default().to_owned();
        for key in keys {
            let Some(child) = schema.child(&key) else {
                self.unknown.push(self.path_to(&key));
                fields.remove(&key);
                continue;
            };
            // A map's keys are shown like list positions: in paths to unknown fields, but not in complaints about types.
            let in_map = schema.field(&key).is_none();
            self.path.push(if in_map { format!("\u{0}{key}") } else { key.clone() });
            let slot = fields.get_mut(&key).expect("the key was just listed");
            self.value(child, slot, if in_map { outer } else { &owner })?;
            self.path.pop();
        }
        Ok(())
    }

    fn path_to(&self, key: &str) -> String {
        let mut path = String::new();
        for part in self.path.iter().map(String::as_str).chain([key]) {
            if !path.is_empty() && !part.starts_with('[') {
                path.push('.');
            }
            path.push_str(part.trim_start_matches('\u{0}'));
        }
        path
    }

    /// Go names the struct that holds the field, and the path to it without list positions.
    fn mismatch(&self, value: &Value, owner: &str, wanted: &str) -> String {
        let path: Vec<&str> =
            self.path.iter().map(String::as_str).filter(|part| !part.starts_with(['[', '\u{0}'])).collect();
        let shown = match value {
            Value::Number(number) if !number.is_i64() || wanted == "int32" => format!("number {number}"),
            other => go_kind(other).to_owned(),
        };
        let shown = if wanted == "string" { go_kind(value).to_owned() } else { shown };
        format!(
            "json: cannot unmarshal {shown} into Go struct field {owner}.{} of type {wanted}",
            path.join(".")
        )
    }
}

pub fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `io.k8s.api.apps.v1.DeploymentSpec` → `DeploymentSpec`.
fn short_name(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

fn go_type(schema: Schema<'_>) -> String {
    if let Some(name) = schema.definition_name() {
        let mut parts = name.rsplit('.');
        let (short, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return format!("{package}.{short}");
    }
    match schema.type_() {
        Type::Array => format!("[]{}", schema.items().map(go_type).unwrap_or_default()),
        Type::Object => format!("map[string]{}", schema.map_values().map(go_type).unwrap_or_default()),
        Type::Integer => schema.format().unwrap_or("int64").to_owned(),
        Type::Number => "float64".into(),
        Type::Boolean => "bool".into(),
        Type::String | Type::Any => "string".into(),
    }
}

/// Quantities may be written as numbers; they are kept as text.
fn quantity(value: &mut Value) -> Result<(), String> {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::from("?"),
    };
    match kube_cel::Quantity::canonical(&text) {
        Ok(text) => {
            *value = text.into();
            Ok(())
        }
        Err(_) => Err("quantities must match the regular expression \
                     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .into()),
    }
}

fn time(text: &str) -> Result<(), String> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    let quoted = Value::from(text);
    Err(format!("parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\""))
}

fn base64_bytes(text: &str) -> Result<(), String> {
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let problem = base64::engine::general_purpose::STANDARD.decode(&compact).err();
    match problem {
        None => Ok(()),
        Some(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Some(_) => Err(format!("illegal base64 data at input byte {}", compact.len() / 4 * 4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(spec: Value) -> Result<Vec<String>, String> {
        read("apps/v1", "Deployment", &mut json!({ "metadata": { "name": "a" }, "spec": spec }))
    }

    #[test]
    fn wrong_types_are_told_in_the_real_servers_words() {
        let cases = [
            (
                json!({ "replicas": "x" }),
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({ "replicas": 1.5 }),
                "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!([]),
                "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
            ),
            (
                json!({ "template": { "spec": { "containers": { "name": 1 } } } }),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
            (
                json!({ "template": { "spec": { "containers": [{ "name": 1 }] } } }),
                "json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.name of type string",
            ),
            (
                json!({ "template": { "spec": { "containers": [{ "ports": [{ "containerPort": "80" }] }] } } }),
                "json: cannot unmarshal string into Go struct field ContainerPort.spec.template.spec.containers.ports.containerPort of type int32",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(deployment(spec).unwrap_err(), expected);
        }
    }

    #[test]
    fn unknown_fields_and_nulls_fall_away() {
        let mut value = json!({ "metadata": { "name": "a", "foo": 1, "creationTimestamp": null }, "data": { "x": "1" }, "bogus": true });
        let unknown = read("v1", "ConfigMap", &mut value).unwrap();
        assert_eq!(unknown, ["bogus", "metadata.foo"]);
        assert_eq!(value, json!({ "metadata": { "name": "a" }, "data": { "x": "1" } }));
    }

    #[test]
    fn quantities_are_kept_in_their_canonical_form() {
        let mut value = json!({ "spec": { "containers": [{ "name": "x", "resources": { "limits": { "cpu": 1, "memory": "1024Mi" } } }] } });
        read("v1", "Pod", &mut value).unwrap();
        assert_eq!(
            value["spec"]["containers"][0]["resources"]["limits"],
            json!({ "cpu": "1", "memory": "1Gi" })
        );
    }
}
