//! JSON as Go's `encoding/json` reads it into `interface{}`, with Go's words for what is wrong.

use serde_json::Value as Json;

use crate::document::MAX_DOCUMENT;

const END_OF_INPUT: &str = "unexpected end of JSON input";

/// The tree, every number a float. Deeper than serde_json allows is an error, long before Go's own limit.
pub(crate) fn parse(text: &str) -> Result<Json, String> {
    parse_exact(text).map(crate::document::with_float_numbers)
}

/// The tree with its numbers as they are written.
pub(crate) fn parse_exact(text: &str) -> Result<Json, String> {
    if text.len() > MAX_DOCUMENT {
        return Err(format!("document is larger than the maximum size {MAX_DOCUMENT}"));
    }
    match serde_json::from_str::<Json>(text) {
        Ok(tree) => Ok(tree),
        Err(error) => {
            let explain = |text: &str| Scanner { bytes: text.as_bytes(), at: 0 }.explain();
            // Go's scanner takes the end for a space: in the middle of a literal that is what it complains about.
            let at_end = explain(text)
                .filter(|cause| cause == END_OF_INPUT)
                .and_then(|_| explain(&format!("{text} ")));
            Err(at_end.or_else(|| explain(text)).unwrap_or_else(|| error.to_string()))
        }
    }
}

/// Walks the text as far as Go's scanner would get, to say what it says there.
struct Scanner<'t> {
    bytes: &'t [u8],
    at: usize,
}

type Step = Result<(), String>;

impl Scanner<'_> {
    fn explain(mut self) -> Option<String> {
        let result = self.value(0).and_then(|()| {
            self.spaces();
            match self.peek() {
                None => Ok(()),
                Some(_) => self.unexpected("after top-level value"),
            }
        });
        result.err()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, context: &str) -> Step {
        match self.peek() {
            None => Err(END_OF_INPUT.to_owned()),
            Some(byte) => Err(format!("invalid character {} {context}", quoted(byte))),
        }
    }

    fn value(&mut self, depth: usize) -> Step {
        self.spaces();
        if depth > 500 {
            return Err("exceeded max depth".to_owned());
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => self.unexpected("looking for beginning of value"),
        }
    }

    fn object(&mut self, depth: usize) -> Step {
        self.at += 1;
        self.spaces();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.spaces();
            if self.peek() != Some(b'"') {
                return self.unexpected("looking for beginning of object key string");
            }
            self.string()?;
            self.spaces();
            if self.peek() != Some(b':') {
                return self.unexpected("after object key");
            }
            self.at += 1;
            self.value(depth + 1)?;
            self.spaces();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.unexpected("after object key:value pair"),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Step {
        self.at += 1;
        self.spaces();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.spaces();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.unexpected("after array element"),
            }
        }
    }

    fn string(&mut self) -> Step {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(byte) if byte < 0x20 => return self.unexpected("in string literal"),
                Some(_) => self.at += 1,
                None => return self.unexpected(""),
            }
        }
    }

    fn escape(&mut self) -> Step {
        match self.peek() {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                        return self.unexpected("in \\u hexadecimal character escape");
                    }
                    self.at += 1;
                }
                Ok(())
            }
            _ => self.unexpected("in string escape code"),
        }
    }

    fn number(&mut self) -> Step {
        if self.peek() == Some(b'-') {
            self.at += 1;
            if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
                return self.unexpected("in numeric literal");
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.digits() {
                return self.unexpected("after decimal point in numeric literal");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.digits() {
                return self.unexpected("in exponent of numeric literal");
            }
        }
        Ok(())
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.at > start
    }

    fn literal(&mut self, word: &str) -> Step {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return self.unexpected(&format!("in literal {word} (expecting {})", quoted(expected)));
            }
            self.at += 1;
        }
        Ok(())
    }
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let text = crate::quote::go_quote(&char::from(byte).to_string());
            format!("'{}'", &text[1..text.len() - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn complaints_are_gos() {
        for (text, expected) in [
            ("bad", "invalid character 'b' looking for beginning of value"),
            ("", "unexpected end of JSON input"),
            ("{\"a\":1", "unexpected end of JSON input"),
            ("nul", "invalid character ' ' in literal null (expecting 'l')"),
            ("-", "invalid character ' ' in numeric literal"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("1 2", "invalid character '2' after top-level value"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ] {
            assert_eq!(super::parse(text), Err(expected.to_owned()), "{text}");
        }
    }
}
