//! JSON as Go's encoding/json writes it.

use super::json_decode::decode;
use super::{Answer, base64, string, text_arg};
use crate::context::{Context, Failure};
use crate::error::Limit;
use crate::function::Function;
use crate::strconv;
use crate::unicode::runes;
use crate::value::{ToJsonError, Type, Value};

const ANY: &[Type] = &[Type::Any];
const S: &[Type] = &[Type::String];

pub const FUNCTIONS: &[Function] = &[
    Function::new("toJson", ANY, |ctx, args| lenient(ctx, &args[0], JsonStyle::Compact)),
    Function::new("toPrettyJson", ANY, |ctx, args| lenient(ctx, &args[0], JsonStyle::Pretty)),
    Function::new("toRawJson", ANY, |ctx, args| strict(ctx, &args[0], JsonStyle::Raw)),
    Function::new("mustToJson", ANY, |ctx, args| strict(ctx, &args[0], JsonStyle::Compact)),
    Function::new("mustToPrettyJson", ANY, |ctx, args| strict(ctx, &args[0], JsonStyle::Pretty)),
    Function::new("mustToRawJson", ANY, |ctx, args| strict(ctx, &args[0], JsonStyle::Raw)),
    Function::new("fromJson", S, |ctx, args| Ok(from_json(ctx, args).unwrap_or(Value::Nil))),
    Function::new("mustFromJson", S, from_json),
];

/// How JSON is laid out and escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonStyle {
    /// `json.Marshal`: one line, `<`, `>` and `&` escaped.
    Compact,
    /// `json.MarshalIndent` with two spaces.
    Pretty,
    /// One line, HTML left as it is.
    Raw,
}

/// Errors give nothing, except that what is too large is refused.
fn lenient(ctx: &Context<'_>, value: &Value, style: JsonStyle) -> Answer {
    let text = match encode(value, style) {
        Err(ToJsonError::TooLarge) => return Err(too_large(ctx)),
        encoded => encoded.unwrap_or_default(),
    };
    counted(ctx, text)
}

fn strict(ctx: &Context<'_>, value: &Value, style: JsonStyle) -> Answer {
    match encode(value, style) {
        Ok(text) => counted(ctx, text),
        Err(ToJsonError::TooLarge) => Err(too_large(ctx)),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

fn too_large(ctx: &Context<'_>) -> Failure {
    Limit::ValueSize(ctx.session().limits().value_bytes).into()
}

fn counted(ctx: &Context<'_>, text: Vec<u8>) -> Answer {
    ctx.charge(text.len())?;
    ctx.work(text.len() as u64 / 64)?;
    string(text)
}

fn from_json(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let text = text_arg(args, 0);
    ctx.charge(text.len())?;
    decode(text).map_err(Failure::new)
}

/// A value as JSON text, byte for byte as Go has it.
pub fn encode(value: &Value, style: JsonStyle) -> Result<Vec<u8>, ToJsonError> {
    let mut encoder = Encoder { out: Vec::new(), style, depth: 0 };
    encoder.value(value)?;
    Ok(encoder.out)
}

struct Encoder {
    out: Vec<u8>,
    style: JsonStyle,
    depth: usize,
}

/// Deeper than this is a cycle, or might as well be one.
const MAX_DEPTH: usize = 1_000;
/// Longer than this is refused, whatever the session allows.
const MAX_BYTES: usize = 32 << 20;

impl Encoder {
    fn value(&mut self, value: &Value) -> Result<(), ToJsonError> {
        if self.depth > MAX_DEPTH {
            return Err(ToJsonError::Cycle(value.type_of().to_string()));
        }
        if self.out.len() > MAX_BYTES {
            return Err(ToJsonError::TooLarge);
        }
        match value {
            Value::Nil | Value::NoValue => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Float64(value) => self.float(*value)?,
            Value::String(text) => self.string(text.as_bytes()),
            Value::Bytes(bytes) => {
                self.out.push(b'"');
                self.out.extend_from_slice(base64::encode(bytes).as_bytes());
                self.out.push(b'"');
            }
            Value::List(list) if list.is_nil() => self.out.extend_from_slice(b"null"),
            Value::List(list) => {
                let items = list.iter().map(|item| (None, item));
                crate::stack::grow(|| self.container(b"[]", items))?;
            }
            Value::Map(map) if map.is_nil() => self.out.extend_from_slice(b"null"),
            Value::Map(map) => {
                let entries = map.entries();
                let items = entries.iter().map(|(key, value)| (Some(key.as_bytes()), value));
                crate::stack::grow(|| self.container(b"{}", items))?;
            }
            Value::Time(time) => self.string(time.rfc3339_nano().as_bytes()),
            Value::Object(object) if object.marshal_text().is_some() => {
                self.string(object.marshal_text().unwrap_or_default().as_bytes());
            }
            Value::Object(object) => {
                let fields = object.json_fields();
                self.container(b"{}", fields.iter().map(|(name, value)| (Some(name.as_bytes()), value)))?;
            }
            Value::Func(_) | Value::Complex(_) => {
                return Err(ToJsonError::Unsupported(value.type_of().to_string()));
            }
            number => {
                let text = match (number.as_int(), number.as_uint()) {
                    (Some(int), _) => int.to_string(),
                    (None, uint) => uint.unwrap_or(0).to_string(),
                };
                self.out.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }

    fn container<'v>(
        &mut self,
        brackets: &[u8; 2],
        items: impl Iterator<Item = (Option<&'v [u8]>, &'v Value)>,
    ) -> Result<(), ToJsonError> {
        self.out.push(brackets[0]);
        self.depth += 1;
        let mut any = false;
        for (key, value) in items {
            if any {
                self.out.push(b',');
            }
            any = true;
            self.newline();
            if let Some(key) = key {
                self.string(key);
                self.out.extend_from_slice(if self.style == JsonStyle::Pretty { b": " } else { b":" });
            }
            self.value(value)?;
        }
        self.depth -= 1;
        if any {
            self.newline();
        }
        self.out.push(brackets[1]);
        Ok(())
    }

    fn newline(&mut self) {
        if self.style == JsonStyle::Pretty {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + 2 * self.depth, b' ');
        }
    }

    fn float(&mut self, value: f64) -> Result<(), ToJsonError> {
        if !value.is_finite() {
            return Err(ToJsonError::UnsupportedValue(strconv::format_float(value, b'g', -1)));
        }
        let magnitude = value.abs();
        if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
            let text = strconv::format_float(value, b'e', -1);
            // e-09 is written e-9.
            let text = match text.as_bytes() {
                [.., b'e', b'-', b'0', _] => text.replacen("e-0", "e-", 1),
                _ => text,
            };
            self.out.extend_from_slice(text.as_bytes());
        } else {
            strconv::append_float(&mut self.out, value, b'f', -1);
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        let escapes_html = self.style != JsonStyle::Raw;
        self.out.push(b'"');
        for (at, rune, length) in runes(text) {
            match rune {
                '"' => self.out.extend_from_slice(b"\\\""),
                '\\' => self.out.extend_from_slice(b"\\\\"),
                '\u{8}' => self.out.extend_from_slice(b"\\b"),
                '\u{c}' => self.out.extend_from_slice(b"\\f"),
                '\n' => self.out.extend_from_slice(b"\\n"),
                '\r' => self.out.extend_from_slice(b"\\r"),
                '\t' => self.out.extend_from_slice(b"\\t"),
                '<' | '>' | '&' if escapes_html => self.escape(rune),
                '\u{2028}' | '\u{2029}' => self.escape(rune),
                control if control < ' ' => self.escape(rune),
                '\u{fffd}' if length == 1 => self.out.extend_from_slice(b"\\ufffd"),
                _ => self.out.extend_from_slice(&text[at..at + length]),
            }
        }
        self.out.push(b'"');
    }

    fn escape(&mut self, rune: char) {
        self.out.extend_from_slice(format!("\\u{:04x}", rune as u32).as_bytes());
    }
}
