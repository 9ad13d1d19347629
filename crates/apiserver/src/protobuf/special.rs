//! Types whose JSON looks nothing like their message: times, quantities, int-or-string, raw JSON, lists in disguise.

use jiff::Timestamp;
use serde_json::Value;

use super::wire::{Field, Reader};
use super::{Malformed, decode as decode_message};

/// The JSON of a special type; `None` when the message is an ordinary one.
pub(super) fn decode(name: &str, bytes: &[u8], depth: usize) -> Result<Option<Value>, Malformed> {
    let short = name.rsplit('.').next().unwrap_or(name);
    let value = match short {
        "Time" | "MicroTime" | "Timestamp" => time(bytes, short == "MicroTime")?,
        "Quantity" => Value::String(text(bytes, 1)?),
        "IntOrString" => int_or_string(bytes)?,
        "RawExtension" | "FieldsV1" | "JSON" => raw_json(bytes)?,
        "Duration" => Value::String(format!("{}ns", integer(bytes, 1)?.unwrap_or(0))),
        "ExtraValue" | "Verbs" | "OptionalNames" => list(bytes)?,
        "JSONSchemaPropsOrBool" => {
            or_schema(name, bytes, depth, integer(bytes, 1)?.map(|allows| Value::Bool(allows != 0)))?
        }
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray" => or_schema(name, bytes, depth, None)?,
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn each(bytes: &[u8]) -> impl Iterator<Item = Result<(u64, Field<'_>), Malformed>> {
    Reader::new(bytes).map(|field| field.map_err(|_| Malformed))
}

fn integer(bytes: &[u8], wanted: u64) -> Result<Option<i64>, Malformed> {
    for field in each(bytes) {
        if let (number, Field::Integer(value)) = field?
            && number == wanted
        {
            return Ok(Some(value.cast_signed()));
        }
    }
    Ok(None)
}

fn find(bytes: &[u8], wanted: u64) -> Result<Option<&[u8]>, Malformed> {
    for field in each(bytes) {
        if let (number, Field::Bytes(value)) = field?
            && number == wanted
        {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn text(bytes: &[u8], wanted: u64) -> Result<String, Malformed> {
    let found = find(bytes, wanted)?.unwrap_or_default();
    String::from_utf8(found.to_vec()).map_err(|_| Malformed)
}

/// Nothing inside means no time at all.
fn time(bytes: &[u8], micros: bool) -> Result<Value, Malformed> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (seconds, nanos) = (integer(bytes, 1)?.unwrap_or(0), integer(bytes, 2)?.unwrap_or(0));
    // Go's zero time, the year 1, is "no time" too.
    if seconds <= -62_135_596_800 {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| Malformed)?;
    if !micros {
        return Ok(Timestamp::new(seconds, 0).map_err(|_| Malformed)?.to_string().into());
    }
    let time = Timestamp::new(seconds, nanos).map_err(|_| Malformed)?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string().into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Malformed> {
    match integer(bytes, 1)?.unwrap_or(0) {
        0 => Ok(integer(bytes, 2)?.unwrap_or(0).into()),
        _ => Ok(text(bytes, 3)?.into()),
    }
}

fn raw_json(bytes: &[u8]) -> Result<Value, Malformed> {
    match find(bytes, 1)? {
        Some(raw) if !raw.is_empty() => serde_json::from_slice(raw).map_err(|_| Malformed),
        _ => Ok(Value::Null),
    }
}

fn list(bytes: &[u8]) -> Result<Value, Malformed> {
    let mut items = Vec::new();
    for field in each(bytes) {
        if let (1, Field::Bytes(item)) = field? {
            items.push(String::from_utf8(item.to_vec()).map_err(|_| Malformed)?.into());
        }
    }
    Ok(Value::Array(items))
}

/// A schema, or the other thing that may stand in its place.
fn or_schema(name: &str, bytes: &[u8], depth: usize, other: Option<Value>) -> Result<Value, Malformed> {
    let package = name.rsplit_once('.').map_or(name, |(package, _)| package);
    let schema = format!("{package}.JSONSchemaProps");
    let at = if name.ends_with("OrBool") { 2 } else { 1 };
    if let Some(inner) = find(bytes, at)? {
        return decode_message(&schema, inner, depth);
    }
    if let Some(other) = other {
        return Ok(other);
    }
    let mut items = Vec::new();
    for field in each(bytes) {
        if let (2, Field::Bytes(item)) = field? {
            items.push(match name.ends_with("StringArray") {
                true => String::from_utf8(item.to_vec()).map_err(|_| Malformed)?.into(),
                false => decode_message(&schema, item, depth)?,
            });
        }
    }
    Ok(Value::Array(items))
}

/// A few fields of CRD schemas are spelled as no protobuf name can be.
pub(super) fn json_name(name: &str) -> String {
    match name {
        "ref" => "$ref".into(),
        _ if name.starts_with("xKubernetes") => name
            .chars()
            .flat_map(|c| if c.is_ascii_uppercase() { vec!['-', c.to_ascii_lowercase()] } else { vec![c] })
            .collect(),
        _ => name.to_owned(),
    }
}
