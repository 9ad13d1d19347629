//! Text into tokens.

use crate::CompileError;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Int(i64),
    /// `9223372036854775808`, which only a minus sign makes an int.
    IntMin,
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Ident(String),
    /// `` `a.b` ``: known to be refused.
    Escaped(String),
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 27] = [
    "&&", "||", "==", "!=", "<=", ">=", "[?", ".?", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ",",
    ".", "(", ")", "[", "]", "{", "}", "=",
];

pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, CompileError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut out = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        out.push((token, start));
        if end {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn error(&self, at: usize, message: impl Into<String>) -> CompileError {
        CompileError::at(self.text, at, format!("Syntax error: {}", message.into()))
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            if blank > 0 {
                self.at += blank;
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Token, CompileError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_digit() || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit())
        {
            return self.number();
        }
        if let Some((prefix, raw, bytes)) = string_prefix(rest) {
            return self.string(prefix, raw, bytes);
        }
        if first == '_' || first.is_ascii_alphabetic() {
            let end =
                rest.find(|next: char| next != '_' && !next.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let name = rest[..end].to_owned();
            self.at += end;
            return Ok(Token::Ident(name));
        }
        if let Some(inner) = rest.strip_prefix('`') {
            let end =
                inner.find('`').ok_or_else(|| self.error(self.at, "token recognition error at: '`'"))?;
            let name = inner[..end].to_owned();
            self.at += end + 2;
            return Ok(Token::Escaped(name));
        }
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
        let sign =
            sign.ok_or_else(|| self.error(self.at, format!("token recognition error at: '{first}'")))?;
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }

    fn number(&mut self) -> Result<Token, CompileError> {
        let start = self.at;
        let rest = self.rest();
        if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let digits = hex.find(|next: char| !next.is_ascii_hexdigit()).unwrap_or(hex.len());
            let text = hex[..digits].to_owned();
            self.at += 2 + digits;
            let value =
                u64::from_str_radix(&text, 16).map_err(|_| self.error(start, "invalid int literal"))?;
            return self.int_or_uint(start, Some(value));
        }
        let count = |text: &str| text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
        let mut length = count(rest);
        let mut is_double = false;
        if rest[length..].starts_with('.') && count(&rest[length + 1..]) > 0 {
            length += 1 + count(&rest[length + 1..]);
            is_double = true;
        }
        if rest[length..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
            let digits = count(&rest[length + 1 + sign..]);
            if digits > 0 {
                length += 1 + sign + digits;
                is_double = true;
            }
        }
        let text = rest[..length].to_owned();
        self.at += length;
        if is_double {
            return text.parse().map(Token::Double).map_err(|_| self.error(start, "invalid double literal"));
        }
        self.int_or_uint(start, text.parse().ok())
    }

    fn int_or_uint(&mut self, start: usize, value: Option<u64>) -> Result<Token, CompileError> {
        let is_uint = self.rest().starts_with(['u', 'U']);
        self.at += usize::from(is_uint);
        let invalid = |lexer: &Self| lexer.error(start, "invalid int literal");
        match value {
            Some(value) if is_uint => Ok(Token::Uint(value)),
            Some(value) if value == 1 << 63 => Ok(Token::IntMin),
            Some(value) => i64::try_from(value).map(Token::Int).map_err(|_| invalid(self)),
            None => Err(invalid(self)),
        }
    }

    fn string(&mut self, prefix: usize, raw: bool, bytes: bool) -> Result<Token, CompileError> {
        let start = self.at;
        self.at += prefix;
        let rest = self.rest();
        let quote = if rest.starts_with('"') { '"' } else { '\'' };
        let triple = quote.to_string().repeat(3);
        let close = if rest.starts_with(&triple) { triple } else { quote.to_string() };
        self.at += close.len();
        let mut out = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(&close) {
                self.at += close.len();
                break;
            }
            let Some(next) = rest.chars().next() else {
                return Err(self.error(start, "token recognition error: unterminated string"));
            };
            if next == '\\' && !raw {
                self.escape(bytes, &mut out)?;
            } else if close.len() == 1 && matches!(next, '\n' | '\r') {
                return Err(self.error(start, "token recognition error: unterminated string"));
            } else {
                // In a raw string a backslash keeps the quote after it from closing.
                let length =
                    next.len_utf8() + usize::from(raw && next == '\\' && rest[1..].starts_with(quote));
                out.extend_from_slice(&rest.as_bytes()[..length]);
                self.at += length;
            }
        }
        if bytes {
            return Ok(Token::Bytes(out));
        }
        String::from_utf8(out).map(Token::String).map_err(|_| self.error(start, "invalid UTF-8 in string"))
    }

    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> Result<(), CompileError> {
        let start = self.at;
        let wrong = |lexer: &Self| lexer.error(start, "unable to unescape string");
        let rest = self.rest();
        let Some(kind) = rest[1..].chars().next() else { return Err(wrong(self)) };
        let simple = match kind {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(b'\n'),
            'r' => Some(b'\r'),
            't' => Some(b'\t'),
            'v' => Some(11),
            '\\' | '\'' | '"' | '`' | '?' => Some(kind as u8),
            _ => None,
        };
        if let Some(byte) = simple {
            out.push(byte);
            self.at += 2;
            return Ok(());
        }
        let (skip, digits, radix) = match kind {
            'x' | 'X' => (2, 2, 16),
            'u' => (2, 4, 16),
            'U' => (2, 8, 16),
            '0'..='3' => (1, 3, 8),
            _ => return Err(wrong(self)),
        };
        let text = rest.get(skip..skip + digits).ok_or_else(|| wrong(self))?;
        let code = u32::from_str_radix(text, radix).map_err(|_| wrong(self))?;
        self.at += skip + digits;
        if bytes && !matches!(kind, 'u' | 'U') {
            out.push(code as u8);
            return Ok(());
        }
        let character = char::from_u32(code).ok_or_else(|| wrong(self))?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }
}

/// How long the prefix before the quote is, and what it says; none if no string starts here.
fn string_prefix(text: &str) -> Option<(usize, bool, bool)> {
    let prefix: String = text.chars().take(3).take_while(|next| "rRbB".contains(*next)).collect();
    if prefix.len() > 2 || !text[prefix.len()..].starts_with(['"', '\'']) {
        return None;
    }
    let lower = prefix.to_ascii_lowercase();
    let (raw, bytes) = (lower.contains('r'), lower.contains('b'));
    (lower.len() == usize::from(raw) + usize::from(bytes)).then_some((prefix.len(), raw, bytes))
}
