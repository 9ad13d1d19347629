//! The Swagger 2 document in protobuf (`openapi.v2.Document` of gnostic): the form kubectl asks for when it checks a `List`
//! by itself. It reads the definitions only, so the paths stay empty.

use serde_json::{Map, Value};

/// As clients ask for it.
pub const ASKED_FOR: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// As it is answered: what clients ask for is no media type by the rules.
pub const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The parts of the document that a client-side check needs.
pub fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    out.message(8, |_| {});
    out.message(9, |definitions| named_schemas(definitions, &document["definitions"]));
    out.0
}

fn named_schemas(out: &mut Message, schemas: &Value) {
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        out.message(1, |named| {
            named.bytes(1, name.as_bytes());
            named.message(2, |out| fields(out, schema));
        });
    }
}

fn fields(out: &mut Message, schema: &Value) {
    let Some(schema) = schema.as_object() else { return };
    for (number, key) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        out.text(number, schema.get(key).unwrap_or(&Value::Null));
    }
    if let Some(default) = schema.get("default") {
        out.message(5, |any| any.yaml(default));
    }
    for (number, key) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        out.double(number, schema.get(key));
    }
    for (number, key) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        out.boolean(number, schema.get(key));
    }
    for (number, key) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        out.integer(number, schema.get(key));
    }
    inner(out, schema);
    for (name, value) in schema.iter().filter(|(name, _)| name.starts_with("x-")) {
        out.message(31, |named| {
            named.bytes(1, name.as_bytes());
            named.message(2, |any| any.yaml(value));
        });
    }
}

fn inner(out: &mut Message, schema: &Map<String, Value>) {
    let list = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    for name in list("required") {
        out.text(19, name);
    }
    for value in list("enum") {
        out.message(20, |any| any.yaml(value));
    }
    match schema.get("additionalProperties") {
        // One of two: also false is written.
        Some(Value::Bool(open)) => out.message(21, |item| {
            item.key(2, 0);
            item.varint((*open).into());
        }),
        Some(values) => out.message(21, |item| item.message(1, |out| fields(out, values))),
        None => {}
    }
    if let Some(kind) = schema.get("type") {
        out.message(22, |item| item.text(1, kind));
    }
    if let Some(items) = schema.get("items") {
        out.message(23, |item| item.message(1, |out| fields(out, items)));
    }
    for part in list("allOf") {
        out.message(24, |out| fields(out, part));
    }
    if let Some(properties) = schema.get("properties") {
        out.message(25, |out| named_schemas(out, properties));
    }
}

/// A message as it is written; empty values are left out, as the format wants it.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, number: u64, wire: u64) {
        self.varint(number << 3 | wire);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.key(number, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn text(&mut self, number: u64, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    /// JSON is YAML, too.
    fn yaml(&mut self, value: &Value) {
        self.bytes(2, value.to_string().as_bytes());
    }

    fn double(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_f64).filter(|value| *value != 0.0) {
            self.key(number, 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn boolean(&mut self, number: u64, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.key(number, 0);
            self.varint(1);
        }
    }

    fn integer(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_u64).filter(|value| *value != 0) {
            self.key(number, 0);
            self.varint(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_written_field_by_field() {
        let short = json!({"swagger": "2.0", "info": {"title": "K", "version": "1"}, "definitions": {
            "a": {"type": "object", "minLength": 300, "additionalProperties": true, "x-y": 1}}});
        let written = document(&short);
        let schema = b"\x60\xac\x02\xaa\x01\x02\x10\x01\xb2\x01\x08\x0a\x06object\xfa\x01\x0a\x0a\x03x-y\x12\x03\x12\x011";
        let mut expected = b"\x0a\x032.0\x12\x06\x0a\x01K\x12\x011\x42\x00".to_vec();
        let length = schema.len() as u8;
        expected.extend([0x4a, length + 7, 0x0a, length + 5, 0x0a, 1, b'a', 0x12, length]);
        expected.extend(schema);
        assert_eq!(written, expected);
    }
}
