//! JSON as Go's encoding/json reads it into an `interface{}`, with its complaints.

use crate::strconv;
use crate::unicode::{push_rune, runes};
use crate::value::{List, Map, MapEntries, Str, Value};

/// Go's own limit.
const MAX_DEPTH: usize = 10_000;

/// Reads one JSON document; every number is a float64. The error is Go's text.
pub fn decode(text: &[u8]) -> Result<Value, String> {
    let mut decoder = Decoder { text, at: 0, depth: 0 };
    // The whole text is checked before anything is read, so a late mistake is still the first complaint.
    let value = decoder.value()?;
    decoder.space();
    match decoder.peek() {
        None => Ok(value),
        Some(_) => Err(decoder.invalid("after top-level value")),
    }
}

struct Decoder<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

type Decoded<T> = Result<T, String>;

impl Decoder<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The complaint about the current character. At the end Go pretends to read a space, which is wrong only within a
    /// token.
    fn invalid(&self, context: &str) -> String {
        match self.peek() {
            None if context.starts_with("in literal")
                || context.ends_with("numeric literal")
                || context.ends_with("escape")
                || context.ends_with("escape code") =>
            {
                format!("invalid character ' ' {context}")
            }
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => {
                let shown = match byte {
                    b'\'' => "'\\''".to_owned(),
                    b'"' => "'\"'".to_owned(),
                    byte => {
                        let quoted = strconv::quote(char::from(byte).encode_utf8(&mut [0; 4]).as_bytes());
                        format!("'{}'", &quoted[1..quoted.len() - 1])
                    }
                };
                format!("invalid character {shown} {context}")
            }
        }
    }

    fn value(&mut self) -> Decoded<Value> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Value::String(Str::from_bytes(self.string()?))),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Nil),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.invalid("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Decoded<Value>) -> Decoded<Value> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        let value = crate::stack::grow(|| read(self))?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Decoded<Value> {
        let mut entries = MapEntries::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(Map::new()));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.invalid("looking for beginning of object key string"));
            }
            let key = Str::from_bytes(self.string()?);
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.invalid("after object key"));
            }
            self.at += 1;
            let value = self.value()?;
            entries.insert(key, value);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.invalid("after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(Value::Map(Map::typed(crate::value::Type::MAP, entries)))
    }

    fn array(&mut self) -> Decoded<Value> {
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(List::new(items)));
        }
        loop {
            items.push(self.value()?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.invalid("after array element")),
            }
        }
        self.at += 1;
        Ok(Value::List(List::new(items)))
    }

    fn literal(&mut self, word: &str, value: Value) -> Decoded<Value> {
        for (at, expected) in word.bytes().enumerate() {
            if self.peek() != Some(expected) {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                debug_assert!(at > 0);
                return Err(self.invalid(&context));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Decoded<Value> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => {
                self.digits();
            }
            _ => return Err(self.invalid("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.invalid("after decimal point in numeric literal"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.invalid("in exponent of numeric literal"));
            }
        }
        let text = &self.text[start..self.at];
        strconv::parse_float(text).map(Value::Float64).map_err(|_| {
            let text = String::from_utf8_lossy(text);
            format!("json: cannot unmarshal number {text} into Go value of type float64")
        })
    }

    fn string(&mut self) -> Decoded<Vec<u8>> {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            let plain = &self.text[start..self.at];
            match std::str::from_utf8(plain) {
                Ok(_) => out.extend_from_slice(plain),
                Err(_) => runes(plain).for_each(|(_, rune, _)| push_rune(&mut out, rune as u32)),
            }
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                _ => return Err(self.invalid("in string literal")),
            }
        }
        self.at += 1;
        Ok(out)
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Decoded<()> {
        let simple = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode(out);
            }
            _ => return Err(self.invalid("in string escape code")),
        };
        self.at += 1;
        out.push(simple);
        Ok(())
    }

    fn unicode(&mut self, out: &mut Vec<u8>) -> Decoded<()> {
        let first = self.hex4()?;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                push_rune(out, 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
                return Ok(());
            }
            self.at = before;
        }
        push_rune(out, first);
        Ok(())
    }

    fn hex4(&mut self) -> Decoded<u32> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.invalid("in \\u hexadecimal character escape"));
            };
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }
}
