//! JSON, read as Go's decoder reads it token by token (order and duplicates kept) and written as sops writes it:
//! indented by tabs, `<`, `>` and `&` escaped.

use ::yaml::json_float;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::{Format, output, shown, syntax};
use crate::Error;
use crate::tree::{Branch, Item, Value};

const MAX_DEPTH: usize = 256;

/// The top-level object. What follows it is not looked at, as in sops.
pub(super) fn read(bytes: &[u8], format: Format) -> Result<Branch, Error> {
    let mut reader = Reader { bytes, at: 0 };
    reader.skip_space();
    let result = match reader.peek() {
        Some(b'{') => reader.object(1),
        Some(_) => Err("the top level must be an object"),
        None => Err("the file is empty"),
    };
    result.map_err(|problem| {
        let line = bytes[..reader.at.min(bytes.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
        syntax(format, format!("line {line}: {problem}"))
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Read<T> = Result<T, &'static str>;

const TRUNCATED: &str = "the file ends too early";

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Read<u8> {
        let byte = self.peek().ok_or(TRUNCATED)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn token(&mut self) -> Read<u8> {
        self.skip_space();
        self.peek().ok_or(TRUNCATED)
    }

    fn object(&mut self, depth: usize) -> Read<Branch> {
        if depth > MAX_DEPTH {
            return Err("nested too deeply");
        }
        self.at += 1;
        let mut branch = Vec::new();
        if self.token()? == b'}' {
            self.at += 1;
            return Ok(branch);
        }
        loop {
            if self.token()? != b'"' {
                return Err("a key in quotes is expected");
            }
            let key = self.string()?;
            if self.token()? != b':' {
                return Err("`:` is expected after a key");
            }
            self.at += 1;
            branch.push(Item::Entry(key, self.value(depth)?));
            match self.token()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(branch);
                }
                _ => return Err("`,` or `}` is expected after a value"),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Read<Vec<Value>> {
        if depth > MAX_DEPTH {
            return Err("nested too deeply");
        }
        self.at += 1;
        let mut items = Vec::new();
        if self.token()? == b']' {
            self.at += 1;
            return Ok(items);
        }
        loop {
            items.push(self.value(depth)?);
            match self.token()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(items);
                }
                _ => return Err("`,` or `]` is expected after an item"),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        match self.token()? {
            b'{' => self.object(depth + 1).map(Value::Map),
            b'[' => self.array(depth + 1).map(Value::List),
            b'"' => self.string().map(Value::Str),
            b'-' | b'0'..=b'9' => self.number(),
            _ => {
                for (word, value) in
                    [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)]
                {
                    if self.bytes[self.at..].starts_with(word.as_bytes()) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err("a value is expected")
            }
        }
    }

    fn digits(&mut self) -> Read<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err("a number is malformed");
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    /// An integer if it fits 64 bits and is spelled like one, else a float.
    fn number(&mut self) -> Read<Value> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).map_err(|_| "a number is malformed")?;
        if let Ok(number) = text.parse() {
            return Ok(Value::Int(number));
        }
        let float = text.parse().ok().filter(|float: &f64| float.is_finite());
        float.map(Value::Float).ok_or("a number is too large")
    }

    fn string(&mut self) -> Read<Vec<u8>> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.next()? {
                b'"' => break,
                b'\\' => self.escape(&mut out)?,
                0..=0x1f => return Err("a control character in a string"),
                byte => out.push(byte),
            }
        }
        // Go replaces each byte that is not UTF-8.
        if std::str::from_utf8(&out).is_ok() {
            return Ok(out);
        }
        Ok(replace_invalid(&out).into_bytes())
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Read<()> {
        let byte = match self.next()? {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'u' => {
                let c = self.code_point()?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err("an unknown escape in a string"),
        };
        out.push(byte);
        Ok(())
    }

    /// The character of `\uXXXX`; half a pair of surrogates is replaced.
    fn code_point(&mut self) -> Read<char> {
        let high = self.hex()?;
        if (0xd800..0xdc00).contains(&high) && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Read<u32> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16).ok_or("an unknown escape in a string")?;
            value = value * 16 + digit;
        }
        Ok(value)
    }
}

fn replace_invalid(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len()));
    }
    out
}

/// The first document only: JSON has one.
pub(super) fn write(branches: &[Branch]) -> Result<Vec<u8>, Error> {
    let mut out = String::new();
    let empty = Vec::new();
    write_branch(&mut out, branches.first().unwrap_or(&empty), 0)?;
    out.push('\n');
    Ok(out.into_bytes())
}

fn write_branch(out: &mut String, branch: &[Item], depth: usize) -> Result<(), Error> {
    let entries: Vec<(&Vec<u8>, &Value)> = branch
        .iter()
        .filter_map(|item| match item {
            Item::Entry(key, value) => Some((key, value)),
            Item::Comment(_) => None,
        })
        .collect();
    write_all(out, ('{', '}'), &entries, depth, |out, (key, value)| {
        write_string(out, key);
        out.push_str(": ");
        write_value(out, value, depth + 1, key)
    })
}

/// Brackets around one item per line.
fn write_all<T>(
    out: &mut String,
    (open, close): (char, char),
    items: &[T],
    depth: usize,
    mut write: impl FnMut(&mut String, &T) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        new_line(out, depth + 1);
        write(out, item)?;
    }
    if !items.is_empty() {
        new_line(out, depth);
    }
    out.push(close);
    Ok(())
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n('\t', depth));
}

fn write_value(out: &mut String, value: &Value, depth: usize, key: &[u8]) -> Result<(), Error> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Str(text) => write_string(out, text),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(
            &json_float(*number)
                .ok_or_else(|| output(Format::Json, format!("{} is not a finite number", shown(key))))?,
        ),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Time(time) => write_string(out, time.to_string().as_bytes()),
        Value::Bytes(bytes) => write_string(out, BASE64_STANDARD.encode(bytes).as_bytes()),
        Value::Map(branch) => write_branch(out, branch, depth)?,
        Value::List(items) => {
            let items: Vec<&Value> = items.iter().filter(|item| !matches!(item, Value::Comment(_))).collect();
            write_all(out, ('[', ']'), &items, depth, |out, item| write_value(out, item, depth + 1, key))?;
        }
        Value::Comment(_) => {}
    }
    Ok(())
}

/// As encoding/json writes strings: safe for HTML, and an escape for each byte that is not UTF-8.
fn write_string(out: &mut String, text: &[u8]) {
    out.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    out.push_str(&format!("\\u{:04x}", u32::from(c)));
                }
                _ => out.push(c),
            }
        }
        for _ in chunk.invalid() {
            out.push_str("\\ufffd");
        }
    }
    out.push('"');
}
