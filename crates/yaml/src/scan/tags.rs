//! Anchors, aliases, tags and directives.

use std::borrow::Cow;

use super::{Mark, Scanner, TokenValue};
use crate::Error;

impl<'a> Scanner<'a> {
    pub(super) fn fetch_anchor(&mut self) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        let is_alias = self.at(0) == b'*';
        self.skip_ascii(1);
        let name = self.read_word();
        let ends = self.is_blank_or_end(0)
            || matches!(self.at(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends {
            return Err(self.fail("did not find expected alphabetic or numeric character", start));
        }
        let value = if is_alias { TokenValue::Alias(name) } else { TokenValue::Anchor(name) };
        self.push(value, start, self.mark());
        Ok(())
    }

    pub(super) fn fetch_tag(&mut self) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        let (handle, suffix) = if self.at(1) == b'<' {
            self.skip_ascii(2);
            let uri = self.scan_uri("", start)?;
            if self.at(0) != b'>' {
                return Err(self.fail("did not find the expected '>'", start));
            }
            self.skip_ascii(1);
            (Cow::Borrowed(""), uri)
        } else {
            self.scan_shorthand(start)?
        };
        if !self.is_blank_or_end(0) {
            return Err(self.fail("did not find expected whitespace or line break", start));
        }
        self.push(TokenValue::Tag(Box::new((handle, suffix))), start, self.mark());
        Ok(())
    }

    /// `!suffix`, `!!suffix`, `!handle!suffix` or a lone `!`.
    fn scan_shorthand(&mut self, start: Mark) -> Result<(Cow<'a, str>, Cow<'a, str>), Error> {
        let handle = self.scan_handle(false, start)?;
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = self.scan_uri("", start)?;
            return Ok((Cow::Borrowed(handle), suffix));
        }
        let suffix = self.scan_uri(handle, start)?;
        // A lone `!` is a tag of its own, without a handle.
        Ok(if suffix.is_empty() {
            (Cow::Borrowed(""), Cow::Borrowed("!"))
        } else {
            (Cow::Borrowed("!"), suffix)
        })
    }

    fn scan_handle(&mut self, directive: bool, start: Mark) -> Result<&'a str, Error> {
        let from = self.pos;
        if self.at(0) != b'!' {
            return Err(self.fail("did not find expected '!'", start));
        }
        self.skip_ascii(1);
        let word = self.read_word();
        if self.at(0) == b'!' {
            self.skip_ascii(1);
        } else if directive && !word.is_empty() {
            return Err(self.fail("did not find expected '!'", start));
        }
        Ok(&self.text[from..self.pos])
    }

    /// A tag after `head`, of which the first character (`!`) does not count.
    fn scan_uri(&mut self, head: &str, start: Mark) -> Result<Cow<'a, str>, Error> {
        let mut out = head.get(1..).unwrap_or_default().as_bytes().to_vec();
        let mut found = !head.is_empty();
        loop {
            let byte = self.at(0);
            if byte == b'%' {
                self.scan_escape(&mut out, start)?;
            } else if byte.is_ascii_alphanumeric() || b"_-;/?:@&=+$,.!~*'()[]".contains(&byte) {
                out.push(byte);
                self.skip_ascii(1);
            } else {
                break;
            }
            found = true;
        }
        if !found {
            return Err(self.fail("did not find expected tag URI", start));
        }
        Ok(Cow::Owned(String::from_utf8_lossy(&out).into_owned()))
    }

    /// One character as `%xx` for each of its bytes.
    fn scan_escape(&mut self, out: &mut Vec<u8>, start: Mark) -> Result<(), Error> {
        let mut left = None;
        while left != Some(0) {
            let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let (b'%', Some(high), Some(low)) = (self.at(0), hex(self.at(1)), hex(self.at(2))) else {
                return Err(self.fail("did not find URI escaped octet", start));
            };
            let octet = high << 4 | low;
            let rest = match left {
                Some(left) if octet & 0xc0 == 0x80 => left,
                Some(_) => return Err(self.fail("found an incorrect trailing UTF-8 octet", start)),
                None => match octet {
                    0..=0x7f => 1,
                    0xc0..=0xdf => 2,
                    0xe0..=0xef => 3,
                    0xf0..=0xf7 => 4,
                    _ => return Err(self.fail("found an incorrect leading UTF-8 octet", start)),
                },
            };
            left = Some(rest - 1);
            out.push(octet);
            self.skip_ascii(3);
        }
        Ok(())
    }

    pub(super) fn fetch_directive(&mut self) -> Result<(), Error> {
        let start = self.mark();
        self.unroll_indent(-1, start);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.skip_ascii(1);
        let name = self.read_word();
        if name.is_empty() {
            return Err(self.fail("could not find expected directive name", start));
        }
        if !self.is_blank_or_end(0) {
            return Err(self.fail("found unexpected non-alphabetical character", start));
        }
        let value = match name {
            "YAML" => self.scan_version(start)?,
            "TAG" => self.scan_tag_directive(start)?,
            _ => return Err(self.fail("found unknown directive name", start)),
        };
        let end = self.mark();
        self.skip_blanks();
        if self.at(0) == b'#' {
            self.skip_to_line_end();
        }
        if !self.is_break_or_end(0) {
            return Err(self.fail("did not find expected comment or line break", start));
        }
        self.skip_line();
        self.push(value, start, end);
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip_blank();
        }
    }

    fn scan_version(&mut self, start: Mark) -> Result<TokenValue<'a>, Error> {
        self.skip_blanks();
        let major = self.scan_version_number(start)?;
        if self.at(0) != b'.' {
            return Err(self.fail("did not find expected digit or '.' character", start));
        }
        self.skip_ascii(1);
        let minor = self.scan_version_number(start)?;
        Ok(TokenValue::VersionDirective(major, minor))
    }

    fn scan_version_number(&mut self, start: Mark) -> Result<u8, Error> {
        let (mut value, mut length) = (0, 0);
        while self.at(0).is_ascii_digit() {
            length += 1;
            if length > 2 {
                return Err(self.fail("found extremely long version number", start));
            }
            value = value * 10 + (self.at(0) - b'0');
            self.skip_ascii(1);
        }
        if length == 0 {
            return Err(self.fail("did not find expected version number", start));
        }
        Ok(value)
    }

    fn scan_tag_directive(&mut self, start: Mark) -> Result<TokenValue<'a>, Error> {
        self.skip_blanks();
        let handle = self.scan_handle(true, start)?;
        if !self.is_blank(0) {
            return Err(self.fail("did not find expected whitespace", start));
        }
        self.skip_blanks();
        let prefix = self.scan_uri("", start)?;
        if !self.is_blank_or_end(0) {
            return Err(self.fail("did not find expected whitespace or line break", start));
        }
        Ok(TokenValue::TagDirective(Box::new((Cow::Borrowed(handle), prefix))))
    }
}
