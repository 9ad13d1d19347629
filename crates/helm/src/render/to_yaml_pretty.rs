//! `toYamlPretty`: go-yaml v3 with an indentation of two, which also indents sequences below their key.

use gotemplate::{Object, Value};
use yaml::{CollectionStyle, Dialect, Emitter, Layout, ScalarStyle};

const MAX_DEPTH: usize = 500;

pub(super) fn write(value: &Value) -> Option<String> {
    let layout = Layout { indent: 2, compact_sequences: false };
    let mut emitter = Emitter::new(Dialect::V3).with_layout(layout);
    node(&mut emitter, value, 0)?;
    let mut text = emitter.finish();
    if text.ends_with('\n') {
        text.pop();
    }
    Some(text)
}

fn node(emitter: &mut Emitter, value: &Value, depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match value {
        Value::Nil | Value::NoValue => emitter.null(),
        Value::Map(map) => {
            let entries = map.snapshot();
            let mut entries: Vec<_> = entries.iter().map(|(key, value)| (key.to_lossy(), value)).collect();
            yaml::sort_keys(&mut entries, |(key, _)| key, Dialect::V3);
            emitter.begin_mapping(CollectionStyle::block(entries.len()));
            for (key, value) in entries {
                emitter.string(&key);
                gotemplate::grow(|| node(emitter, value, depth + 1))?;
            }
            emitter.end_mapping();
        }
        Value::List(list) => {
            emitter.begin_sequence(CollectionStyle::block(list.len()));
            for item in list.iter() {
                gotemplate::grow(|| node(emitter, item, depth + 1))?;
            }
            emitter.end_sequence();
        }
        Value::Bool(value) => emitter.bool(*value),
        Value::Float64(value) => emitter.float(*value),
        Value::String(text) => emitter.string(&text.to_lossy()),
        Value::Duration(duration) => emitter.string(&duration.to_string()),
        Value::Time(time) => emitter.scalar(&time.rfc3339_nano(), ScalarStyle::Plain),
        Value::Object(object) => match object.marshal_text() {
            Some(text) => emitter.string(&text),
            None => fields(emitter, &**object, depth)?,
        },
        other => match (other.as_int(), other.as_uint()) {
            (Some(value), _) => emitter.int(value),
            (None, Some(value)) => emitter.uint(value),
            (None, None) => return None,
        },
    }
    Some(())
}

/// The exported fields of a struct, in small letters and in their order.
fn fields(emitter: &mut Emitter, object: &dyn Object, depth: usize) -> Option<()> {
    let fields = exported(object);
    emitter.begin_mapping(CollectionStyle::block(fields.len()));
    for (name, value) in &fields {
        emitter.string(&name.to_lowercase());
        node(emitter, value, depth + 1)?;
    }
    emitter.end_mapping();
    Some(())
}

/// What encoders other than JSON's see of a struct.
pub(super) fn exported(object: &dyn Object) -> Vec<(&'static str, Value)> {
    let is_exported = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase());
    object.fields().into_iter().filter(|(name, _)| is_exported(name)).collect()
}
