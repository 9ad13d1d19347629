//! Protobuf bodies: what client-go programs send for builtin kinds, read into the JSON everything else works on.
//!
//! Field numbers come from a table recorded off Kubernetes' published descriptions (`examples/record-protobuf.rs`).
//! Reading only: answers are JSON, which every client that sends protobuf also understands; the one document that must be
//! written is `openapi::proto`'s.

mod special;
mod wire;

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use kube_schema::Schemas;
use serde_json::{Map, Value};

use crate::media::BODY_TYPES;
use crate::status::Status;
use wire::{Field, Reader};

const MAGIC: &[u8] = b"k8s\0";
/// Messages nested deeper than this are refused.
const MAX_DEPTH: usize = 100;

#[derive(Debug)]
struct Message {
    fields: HashMap<u64, Declared>,
    /// The name of the same type in the OpenAPI document.
    definition: String,
}

#[derive(Debug)]
struct Declared {
    name: String,
    kind: Kind,
    repeated: bool,
    /// Go writes the value always; JSON shows it only when there is one.
    hidden_when_empty: bool,
}

#[derive(Debug, Clone)]
enum Kind {
    String,
    Bytes,
    Bool,
    Integer,
    Double,
    Float,
    Message(String),
    Map(Box<Kind>),
}

static MESSAGES: LazyLock<HashMap<&str, Message>> = LazyLock::new(|| {
    let lines = include_str!("messages.tsv").lines();
    lines
        .map(|line| line.split_once('\t').unwrap_or((line, "")))
        .map(|(name, fields)| (name, message(name, fields)))
        .collect()
});

fn message(name: &str, fields: &str) -> Message {
    let fields = fields.split('\t').filter_map(|field| {
        let mut parts = field.splitn(3, ':');
        let (number, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let (kind, repeated) = kind.strip_suffix('*').map_or((kind, false), |kind| (kind, true));
        let (kind, hidden_when_empty) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
        let declared =
            Declared { name: special::json_name(name), kind: kind_of(kind), repeated, hidden_when_empty };
        Some((number, declared))
    });
    let definition = name.replacen("k8s.io.", "io.k8s.", 1).replace('_', "-");
    Message { fields: fields.collect(), definition }
}

fn kind_of(text: &str) -> Kind {
    if let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        return Kind::Map(Box::new(kind_of(inner)));
    }
    match text {
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        "bool" => Kind::Bool,
        "int32" | "int64" => Kind::Integer,
        "double" => Kind::Double,
        "float" => Kind::Float,
        message => Kind::Message(message.to_owned()),
    }
}

/// The object in a protobuf body, with its kind and version.
pub fn to_json(bytes: &[u8]) -> Result<Value, Status> {
    let unreadable = || Status::bad_request("the body of the request is not a Kubernetes protobuf message");
    let unknown = bytes.strip_prefix(MAGIC).ok_or_else(unreadable)?;
    let (mut type_meta, mut raw) = (&[][..], &[][..]);
    for field in Reader::new(unknown) {
        match field.map_err(|_| unreadable())? {
            (1, Field::Bytes(bytes)) => type_meta = bytes,
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (mut api_version, mut kind) = (String::new(), String::new());
    for field in Reader::new(type_meta) {
        match field.map_err(|_| unreadable())? {
            (1, Field::Bytes(bytes)) => api_version = String::from_utf8_lossy(bytes).into_owned(),
            (2, Field::Bytes(bytes)) => kind = String::from_utf8_lossy(bytes).into_owned(),
            _ => {}
        }
    }
    let name =
        message_name(&api_version, &kind).ok_or_else(|| Status::unsupported_media_type(&BODY_TYPES[..2]))?;
    let mut object = decode(name, raw, MAX_DEPTH).map_err(|_| unreadable())?;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), api_version.into());
        fields.insert("kind".into(), kind.into());
    }
    Ok(object)
}

/// The message a kind is written as.
fn message_name(api_version: &str, kind: &str) -> Option<&'static str> {
    // Options travel under the version of the object they are about.
    if matches!(kind, "DeleteOptions" | "CreateOptions" | "UpdateOptions" | "PatchOptions") {
        let name = format!("k8s.io.apimachinery.pkg.apis.meta.v1.{kind}");
        return MESSAGES.keys().find(|known| **known == name).copied();
    }
    let definition = Schemas::kubernetes().kind_of(api_version, kind)?.schema()?.definition_name()?;
    MESSAGES.iter().find(|(_, message)| message.definition == definition).map(|(name, _)| *name)
}

#[derive(Debug)]
struct Malformed;

fn decode(name: &str, bytes: &[u8], depth: usize) -> Result<Value, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    if let Some(value) = special::decode(name, bytes, depth)? {
        return Ok(value);
    }
    let message = MESSAGES.get(name).ok_or(Malformed)?;
    let mut object = Map::new();
    for field in Reader::new(bytes) {
        let (number, value) = field.map_err(|_| Malformed)?;
        let Some(declared) = message.fields.get(&number) else { continue };
        add(&mut object, message, declared, value, depth)?;
    }
    Ok(Value::Object(object))
}

fn add(
    object: &mut Map<String, Value>,
    message: &Message,
    declared: &Declared,
    field: Field<'_>,
    depth: usize,
) -> Result<(), Malformed> {
    if let Kind::Map(value) = &declared.kind {
        let Field::Bytes(entry) = field else { return Err(Malformed) };
        let (key, value) = map_entry(entry, value, depth)?;
        crate::object::map_in(object, &declared.name).insert(key, value);
        return Ok(());
    }
    let value = scalar(&declared.kind, field, depth)?;
    if declared.repeated {
        crate::object::list_in(object, &declared.name).push(value);
        return Ok(());
    }
    let empty = match &value {
        Value::String(text) => text.is_empty(),
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    };
    if declared.hidden_when_empty && empty {
        return Ok(());
    }
    // A structure that JSON shows inside its parent: `Probe` holds its handler so.
    let inlined = matches!(declared.kind, Kind::Message(_))
        && Schemas::kubernetes()
            .definition(&message.definition)
            .is_some_and(|schema| schema.fields().len() > 0 && schema.field(&declared.name).is_none());
    match value {
        Value::Object(inner) if inlined => object.extend(inner),
        value => drop(object.insert(declared.name.clone(), value)),
    }
    Ok(())
}

fn scalar(kind: &Kind, field: Field<'_>, depth: usize) -> Result<Value, Malformed> {
    Ok(match (kind, field) {
        (Kind::String, Field::Bytes(bytes)) => {
            String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)?.into()
        }
        (Kind::Bytes, Field::Bytes(bytes)) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        (Kind::Bool, Field::Integer(number)) => (number != 0).into(),
        (Kind::Integer, Field::Integer(number)) => number.cast_signed().into(),
        (Kind::Double, Field::Eight(bytes)) => f64::from_le_bytes(bytes).into(),
        (Kind::Float, Field::Four(bytes)) => f32::from_le_bytes(bytes).into(),
        (Kind::Message(name), Field::Bytes(bytes)) => decode(name, bytes, depth)?,
        _ => return Err(Malformed),
    })
}

fn map_entry(bytes: &[u8], kind: &Kind, depth: usize) -> Result<(String, Value), Malformed> {
    let (mut key, mut found) = (String::new(), None);
    for field in Reader::new(bytes) {
        match field.map_err(|_| Malformed)? {
            (1, Field::Bytes(bytes)) => key = String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)?,
            (2, value) => found = Some(scalar(kind, value, depth)?),
            _ => {}
        }
    }
    // An empty value is not written at all.
    let value = match (found, kind) {
        (Some(value), _) => value,
        (None, Kind::String | Kind::Bytes) => Value::String(String::new()),
        (None, Kind::Message(name)) => decode(name, &[], depth)?,
        (None, _) => Value::Null,
    };
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        assert!(content.len() < 128);
        out.push(content.len() as u8);
        out.extend_from_slice(content);
        out
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [text(1, api_version.as_bytes()), text(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), text(1, &meta), text(2, raw)].concat()
    }

    #[test]
    fn a_config_map_is_read() {
        let entry = [text(1, b"k"), text(2, b"v")].concat();
        let raw = [text(1, &text(1, b"name")), text(2, &entry)].concat();
        let object = to_json(&envelope("v1", "ConfigMap", &raw)).unwrap();
        assert_eq!(
            object,
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "name" }, "data": { "k": "v" } })
        );
    }

    #[test]
    fn empty_values_are_shown_as_json_would_show_them() {
        // ObjectMeta { name = 1 "", generateName = 2 "x" }: Go writes empty strings too.
        let meta = [text(1, b""), text(2, b"x")].concat();
        let raw = [text(1, &meta), vec![4 << 3, 0]].concat();
        let object = to_json(&envelope("v1", "ConfigMap", &raw)).unwrap();
        // `immutable` is a pointer in Go: false is not the same as nothing.
        assert_eq!(object["metadata"], json!({ "generateName": "x" }));
        assert_eq!(object["immutable"], json!(false));
    }

    #[test]
    fn inlined_structures_and_special_types_are_read() {
        // Volume { name = 1, volumeSource = 2 { emptyDir = 2 {} } }
        let volume = [text(1, b"v"), text(2, &text(2, b""))].concat();
        let value = decode("k8s.io.api.core.v1.Volume", &volume, MAX_DEPTH).unwrap();
        assert_eq!(value, json!({ "name": "v", "emptyDir": {} }));
        let port =
            decode("k8s.io.apimachinery.pkg.util.intstr.IntOrString", &[8, 0, 16, 80], MAX_DEPTH).unwrap();
        assert_eq!(port, json!(80));
        let time = decode("k8s.io.apimachinery.pkg.apis.meta.v1.Time", &[8, 60], MAX_DEPTH).unwrap();
        assert_eq!(time, json!("1970-01-01T00:01:00Z"));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        for bytes in [&b""[..], b"k8s\0\xff\xff\xff", b"k8s\0\x0a\xff\xff\xff\xff\x0f", b"{}"] {
            assert!(to_json(bytes).is_err());
        }
        let nested = text(1, &text(1, b"x"));
        assert!(decode("k8s.io.api.core.v1.Pod", &nested, 1).is_err(), "deeper than allowed");
        assert!(decode("k8s.io.api.core.v1.Pod", &nested, 2).is_ok());
    }
}
