//! An index that is JSON, cut into its entries.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde_json::{Map, Value as Json};

use super::Error;
use super::scan::{Format, LARGEST_HEAD, Layout, MOST_ENTRIES, Span, Uncut};

pub(super) fn scan(reader: &mut impl BufRead) -> Result<Layout, Uncut> {
    let mut scanner = Scanner { reader, offset: 0 };
    let mut layout = Layout { format: Format::Json, head: Map::new(), entries: BTreeMap::new() };
    scanner.expect(b'{')?;
    scanner.members(b'}', |scanner| {
        let key = scanner.key()?;
        if key == "entries" {
            return entries(scanner, &mut layout.entries);
        }
        let value = scanner.text(LARGEST_HEAD)?;
        layout.head.insert(key, value);
        Ok(())
    })?;
    Ok(layout)
}

fn entries<R: BufRead>(
    scanner: &mut Scanner<'_, R>,
    found: &mut BTreeMap<String, Vec<Span>>,
) -> Result<(), Uncut> {
    let mut count = 0;
    if scanner.next_token()? == b'n' {
        return scanner.skip();
    }
    scanner.expect(b'{')?;
    scanner.members(b'}', |scanner| {
        let name = scanner.key()?;
        let mut spans = Vec::new();
        if scanner.next_token()? == b'n' {
            scanner.skip()?;
        } else {
            scanner.expect(b'[')?;
            scanner.members(b']', |scanner| {
                scanner.next_token()?;
                let start = scanner.offset;
                scanner.skip()?;
                count += 1;
                if count > MOST_ENTRIES {
                    return Err(malformed(format!("more than {MOST_ENTRIES} entries")));
                }
                spans.push(Span { start, end: scanner.offset });
                Ok(())
            })?;
        }
        found.insert(name, spans);
        Ok(())
    })
}

fn malformed(cause: impl Into<String>) -> Uncut {
    Uncut::Failed(Error::Malformed(cause.into()))
}

/// Reads JSON without keeping it.
struct Scanner<'a, R> {
    reader: &'a mut R,
    offset: u64,
}

impl<R: BufRead> Scanner<'_, R> {
    fn peek(&mut self) -> Result<u8, Uncut> {
        let buffer = self.reader.fill_buf()?;
        buffer.first().copied().ok_or_else(|| malformed("unexpected end of JSON input"))
    }

    fn advance(&mut self) {
        self.reader.consume(1);
        self.offset += 1;
    }

    /// The next byte that is no space.
    fn next_token(&mut self) -> Result<u8, Uncut> {
        loop {
            let byte = self.peek()?;
            if !byte.is_ascii_whitespace() {
                return Ok(byte);
            }
            self.advance();
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Uncut> {
        let found = self.next_token()?;
        if found != wanted {
            let (wanted, found) = (char::from(wanted), char::from(found));
            return Err(malformed(format!("expected '{wanted}' at byte {}, found '{found}'", self.offset)));
        }
        self.advance();
        Ok(())
    }

    /// Calls `each` at the start of every member until `end`.
    fn members(
        &mut self,
        end: u8,
        mut each: impl FnMut(&mut Self) -> Result<(), Uncut>,
    ) -> Result<(), Uncut> {
        if self.next_token()? == end {
            self.advance();
            return Ok(());
        }
        loop {
            each(self)?;
            match self.next_token()? {
                b',' => self.advance(),
                byte if byte == end => {
                    self.advance();
                    return Ok(());
                }
                byte => {
                    let found = char::from(byte);
                    return Err(malformed(format!("unexpected '{found}' at byte {}", self.offset)));
                }
            }
        }
    }

    fn key(&mut self) -> Result<String, Uncut> {
        let key: Json = self.text(1 << 16)?;
        self.expect(b':')?;
        match key {
            Json::String(key) => Ok(key),
            _ => Err(malformed(format!("a key that is no string, before byte {}", self.offset))),
        }
    }

    /// The next value, decoded.
    fn text(&mut self, longest: usize) -> Result<Json, Uncut> {
        self.next_token()?;
        let mut bytes = Vec::new();
        self.walk(|byte| {
            bytes.push(byte);
            bytes.len() <= longest
        })?;
        serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))
    }

    /// Passes over the next value.
    fn skip(&mut self) -> Result<(), Uncut> {
        self.next_token()?;
        self.walk(|_| true)
    }

    /// Goes through one value; `each` sees its bytes and may end it.
    fn walk(&mut self, mut each: impl FnMut(u8) -> bool) -> Result<(), Uncut> {
        let (mut depth, mut in_string, mut escaped) = (0_u64, false, false);
        loop {
            let byte = match self.peek() {
                Ok(byte) => byte,
                Err(Uncut::Failed(Error::Malformed(_))) if depth == 0 && !in_string => return Ok(()),
                Err(error) => return Err(error),
            };
            let ends_scalar = matches!(byte, b',' | b':' | b'}' | b']') || byte.is_ascii_whitespace();
            if depth == 0 && !in_string && ends_scalar {
                return Ok(());
            }
            self.advance();
            if !each(byte) {
                return Err(malformed(format!("a value that is too long, before byte {}", self.offset)));
            }
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => {
                    in_string = !in_string;
                    if !in_string && depth == 0 {
                        return Ok(());
                    }
                }
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> Result<Layout, Uncut> {
        scan(&mut text.as_bytes())
    }

    #[test]
    fn entries_are_found_whatever_is_in_them() {
        let text = r#"{"apiVersion":"v1", "entries": {"a\"b": [ {"x":"}]\"{"} , {"y":[1,2]}], "none": null, "e":[]},
            "generated":"now"} "#;
        let layout = scanned(text).ok().unwrap();
        let pieces: Vec<&str> =
            layout.entries["a\"b"].iter().map(|span| &text[span.start as usize..span.end as usize]).collect();
        assert_eq!(pieces, [r#"{"x":"}]\"{"}"#, r#"{"y":[1,2]}"#]);
        assert!(layout.entries["none"].is_empty() && layout.entries["e"].is_empty());
        assert_eq!(layout.head["generated"], "now");
    }

    #[test]
    fn what_is_cut_off_or_wrong_is_an_error() {
        for text in [
            "{",
            r#"{"entries":{"a":[{"#,
            r#"{"a" 1}"#,
            r#"{"entries":{"a":[{}}}"#,
            "{1:2}",
            r#"{"entries":[]}"#,
        ] {
            assert!(matches!(scanned(text), Err(Uncut::Failed(Error::Malformed(_)))), "{text}");
        }
    }
}
