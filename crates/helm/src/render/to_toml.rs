//! `toToml`: TOML as BurntSushi/toml lays it out. Plain keys come before tables, and tables are indented by their depth.

use std::fmt::Write as _;

use gotemplate::{Str, Time, Value, Zone};

use super::to_yaml_pretty::exported;

const MAX_DEPTH: usize = 500;

/// Why there is no TOML.
pub(super) enum Error {
    /// What the encoder answers.
    Refused(String),
    /// What stops it: a panic, which fails the template.
    Panic(&'static str),
}

pub(super) fn write(value: &Value) -> Result<String, Error> {
    if value.is_nil() {
        return Err(Error::Panic("reflect: call of reflect.Value.Type on zero Value"));
    }
    let mut encoder = Encoder { out: String::new() };
    encoder.encode(&mut Vec::new(), value, 0).map_err(Error::Refused)?;
    Ok(encoder.out)
}

struct Encoder {
    out: String,
}

impl Encoder {
    fn encode(&mut self, key: &mut Vec<Str>, value: &Value, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("toml: nested too deeply".to_owned());
        }
        match value {
            Value::Nil | Value::NoValue => Ok(()),
            value if is_table(value) => self.table(key, value, depth),
            Value::List(list) if is_table_array(value)? => {
                if key.is_empty() {
                    return Err("toml: top-level values must be Go maps or structs".to_owned());
                }
                for item in list.iter() {
                    self.newline();
                    let (indent, name) = (indent(key), dotted(key));
                    self.put(&format!("{indent}[[{name}]]"));
                    self.newline();
                    self.entries(key, item, depth)?;
                }
                Ok(())
            }
            Value::Func(_) | Value::Complex(_) => {
                Err(format!("unsupported type for key '{}': {}", dotted(key), value.type_of()))
            }
            value => self.key_value(key, value, false, depth),
        }
    }

    fn table(&mut self, key: &mut Vec<Str>, value: &Value, depth: usize) -> Result<(), String> {
        if key.len() == 1 {
            self.newline();
        }
        if !key.is_empty() {
            let (indent, name) = (indent(key), dotted(key));
            self.put(&format!("{indent}[{name}]"));
            self.newline();
        }
        self.entries(key, value, depth)
    }

    fn entries(&mut self, key: &mut Vec<Str>, value: &Value, depth: usize) -> Result<(), String> {
        let (direct, tables) = ordered(value)?;
        for (name, value) in direct.into_iter().chain(tables) {
            key.push(name);
            gotemplate::grow(|| self.encode(key, &value, depth + 1))?;
            key.pop();
        }
        Ok(())
    }

    fn key_value(&mut self, key: &[Str], value: &Value, inline: bool, depth: usize) -> Result<(), String> {
        if let Some(name) = key.last() {
            let indent = if inline { String::new() } else { indent(key) };
            self.put(&format!("{indent}{} = ", bare_or_quoted(&name.to_lossy())));
        }
        self.element(value, depth)?;
        if !inline && !key.is_empty() {
            self.newline();
        }
        Ok(())
    }

    fn element(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("toml: nested too deeply".to_owned());
        }
        match value {
            Value::Bool(value) => self.put(&value.to_string()),
            Value::Float64(value) => self.put(&float(*value)),
            Value::String(text) => self.put(&quoted(&text.to_lossy())),
            Value::Duration(duration) => self.put(&quoted(&duration.to_string())),
            Value::Time(time) => self.put(&time_text(time)),
            Value::Bytes(bytes) => {
                let items = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
                self.put(&format!("[{items}]"));
            }
            Value::List(items) => {
                self.put("[");
                for (at, item) in items.iter().enumerate() {
                    self.put(if at == 0 { "" } else { ", " });
                    gotemplate::grow(|| self.element(item, depth + 1))?;
                }
                self.put("]");
            }
            value if is_table(value) => self.inline_table(value, depth)?,
            Value::Object(object) => self.put(&quoted(&object.marshal_text().unwrap_or_default())),
            other => match (other.as_int(), other.as_uint()) {
                (Some(value), _) => self.put(&value.to_string()),
                (None, Some(value)) => self.put(&value.to_string()),
                (None, None) => return Err(format!("unexpected type: {}", other.type_of())),
            },
        }
        Ok(())
    }

    /// Commas stand between all keys, also before a null that is then left out: go-toml's output is no TOML there.
    fn inline_table(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        let (direct, tables) = ordered(value)?;
        self.put("{");
        for (keys, more_follow) in [(&direct, !tables.is_empty()), (&tables, false)] {
            for (at, (name, value)) in keys.iter().enumerate() {
                if value.is_nil() {
                    continue;
                }
                gotemplate::grow(|| self.key_value(std::slice::from_ref(name), value, true, depth + 1))?;
                if more_follow || at + 1 < keys.len() {
                    self.put(", ");
                }
            }
        }
        self.put("}");
        Ok(())
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Only once something has been written.
    fn newline(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
    }
}

type Entries = Vec<(Str, Value)>;

/// The entries of a map, sorted: plain values, and tables.
fn ordered(value: &Value) -> Result<(Entries, Entries), String> {
    let entries = match value {
        Value::Map(map) => map.snapshot(),
        Value::Object(object) => {
            exported(&**object).into_iter().map(|(name, value)| (Str::from(name), value)).collect()
        }
        _ => Vec::new(),
    };
    let (mut direct, mut tables) = (Vec::new(), Vec::new());
    for (key, value) in entries {
        if is_table(&value) || is_table_array(&value)? {
            tables.push((key, value))
        } else {
            direct.push((key, value))
        }
    }
    Ok((direct, tables))
}

/// Maps, and structs that have no text of their own.
fn is_table(value: &Value) -> bool {
    match value {
        Value::Map(_) => true,
        Value::Object(object) => object.marshal_text().is_none(),
        _ => false,
    }
}

/// Whether a value is a list of nothing but tables. Nulls are refused wherever they stand in a list of lists.
fn is_table_array(value: &Value) -> Result<bool, String> {
    is_table_array_at(value, 0)
}

fn is_table_array_at(value: &Value, depth: usize) -> Result<bool, String> {
    let Value::List(items) = value else { return Ok(false) };
    if depth > MAX_DEPTH {
        return Err("toml: nested too deeply".to_owned());
    }
    for item in items.iter() {
        if item.is_nil() {
            return Err("toml: cannot encode array with nil element".to_owned());
        }
        gotemplate::grow(|| is_table_array_at(item, depth + 1))?;
    }
    Ok(!items.is_empty() && items.iter().all(is_table))
}

/// Times without an offset, or without a date, are known by the name of their zone.
fn time_text(time: &Time) -> String {
    let text = time.rfc3339_nano();
    let local = text.trim_end_matches('Z');
    match &time.zone {
        Zone::Fixed(name, 0) if name == "datetime-local" => local.to_owned(),
        Zone::Fixed(name, 0) if name == "date-local" => local.chars().take(10).collect(),
        Zone::Fixed(name, 0) if name == "time-local" => local.chars().skip(11).collect(),
        _ => text,
    }
}

fn indent(key: &[Str]) -> String {
    "  ".repeat(key.len().saturating_sub(1))
}

fn dotted(key: &[Str]) -> String {
    key.iter().map(|part| bare_or_quoted(&part.to_lossy())).collect::<Vec<_>>().join(".")
}

pub(super) fn bare_or_quoted(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x08' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\x1f' | '\x7f' => write!(out, "\\u{:04x}", c as u32).expect("a String takes all"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Go's `%g` with at least one digit after the point.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = yaml::format_float_g(value);
    if text.contains(['e', '.']) { text } else { format!("{text}.0") }
}
