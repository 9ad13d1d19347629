//! `toYamlPretty`: go-yaml v3 with an indentation of two, which also indents sequences below their key.

use gotemplate::Value;
use yaml::{Dialect, Emitter};

const MAX_DEPTH: usize = 500;

pub(super) fn write(value: &Value) -> Option<String> {
    let mut out = String::new();
    node(value, 0, Place::Start, &mut out, 0)?;
    Some(out.trim_end_matches('\n').to_owned())
}

/// Where a node begins: at the start of a line that is already indented, or after `key:` or `-`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    AfterKey,
    AfterDash,
}

fn node(value: &Value, indent: usize, place: Place, out: &mut String, depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match value {
        Value::Map(map) if !map.is_empty() => {
            let mut entries = map.snapshot();
            entries.sort_by(|(a, _), (b, _)| yaml::key_order(&a.to_lossy(), &b.to_lossy(), Dialect::V3));
            if place == Place::AfterKey {
                out.push('\n');
            }
            for (at, (key, value)) in entries.iter().enumerate() {
                if at > 0 || place == Place::AfterKey {
                    spaces(indent, out);
                }
                out.push_str(scalar(|e| e.string(&key.to_lossy())).trim_end_matches('\n'));
                out.push(':');
                node(value, indent + 2, Place::AfterKey, out, depth + 1)?;
            }
        }
        Value::List(list) if !list.is_empty() => {
            if place == Place::AfterKey {
                out.push('\n');
            }
            for (at, item) in list.iter().enumerate() {
                if at > 0 || place == Place::AfterKey {
                    spaces(indent, out);
                }
                out.push('-');
                if matches!(item, Value::Map(_) | Value::List(_)) {
                    out.push(' ');
                }
                node(item, indent + 2, Place::AfterDash, out, depth + 1)?;
            }
        }
        value => {
            let text = scalar_text(value)?;
            let separate = place == Place::AfterKey
                || (place == Place::AfterDash && !matches!(value, Value::Map(_) | Value::List(_)));
            if separate {
                out.push(' ');
            }
            let mut lines = text.trim_end_matches('\n').split('\n');
            out.push_str(lines.next().unwrap_or_default());
            for line in lines {
                out.push('\n');
                if !line.is_empty() {
                    // Block scalars are written at the top of a document, two columns in already.
                    spaces(indent.saturating_sub(2), out);
                    out.push_str(line);
                }
            }
            out.push('\n');
        }
    }
    Some(())
}

fn spaces(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', count));
}

fn scalar_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Nil | Value::NoValue => "null".to_owned(),
        Value::Map(_) => "{}".to_owned(),
        Value::List(_) => "[]".to_owned(),
        Value::Bool(value) => scalar(|e| e.bool(*value)),
        Value::Float64(value) => scalar(|e| e.float(*value)),
        Value::String(text) => scalar(|e| e.string(&text.to_lossy())),
        Value::Duration(duration) => scalar(|e| e.string(&duration.to_string())),
        other => match (other.as_int(), other.as_uint()) {
            (Some(value), _) => scalar(|e| e.int(value)),
            (None, Some(value)) => scalar(|e| e.uint(value)),
            (None, None) => return None,
        },
    })
}

fn scalar(write: impl FnOnce(&mut Emitter)) -> String {
    let mut emitter = Emitter::new(Dialect::V3);
    write(&mut emitter);
    emitter.finish()
}
