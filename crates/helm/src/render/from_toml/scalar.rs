//! Strings, numbers, booleans and times.

use std::rc::Rc;

use gotemplate::{Time, Value, Zone};

use super::{END, Reader, rune};
use crate::quote::go_quote;

impl Reader<'_> {
    /// A value that starts with `first`, which has been read.
    pub(super) fn scalar(&mut self, first: char) -> Result<Value, String> {
        match first {
            '"' if self.text[self.at..].starts_with("\"\"") => {
                self.at += 2;
                self.multi_line_basic().map(Value::from)
            }
            '"' => self.basic_string().map(Value::from),
            '\'' if self.text[self.at..].starts_with("''") => {
                self.at += 2;
                self.multi_line_literal().map(Value::from)
            }
            '\'' => self.literal_string().map(Value::from),
            '.' => self.error("floats must start with a digit, not '.'"),
            '0'..='9' => {
                self.at -= 1;
                self.number_or_date()
            }
            '-' | '+' => self.signed(first),
            END if self.ended => self.error("unexpected EOF; expected value"),
            '\n' => self.error_before("expected value but found '\\n' instead"),
            first if first.is_alphabetic() => {
                self.at -= first.len_utf8();
                self.word()
            }
            other => self.error(&format!("expected value but found {} instead", rune(other))),
        }
    }

    fn word(&mut self) -> Result<Value, String> {
        let rest = &self.text[self.at..];
        for (text, value) in [("inf", f64::INFINITY), ("nan", f64::NAN)] {
            if rest.starts_with(text) {
                self.at += text.len();
                return Ok(Value::Float64(value));
            }
        }
        let word: String = rest.chars().take_while(|c| c.is_alphabetic()).collect();
        self.at += word.len();
        match word.as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            other => self.error(&format!("expected value but found {} instead", go_quote(other))),
        }
    }

    fn signed(&mut self, sign: char) -> Result<Value, String> {
        let rest = &self.text[self.at..];
        let start = self.at - 1;
        for (text, value) in [("inf", f64::INFINITY), ("nan", f64::NAN)] {
            if rest.starts_with(text) {
                self.at += text.len();
                return Ok(Value::Float64(if sign == '-' { -value } else { value }));
            }
        }
        match self.next()? {
            c @ ('i' | 'n') => {
                let more = if c == 'i' { ['n', 'f'] } else { ['a', 'n'] };
                for wanted in more {
                    if self.peek() != wanted {
                        break;
                    }
                    self.at += 1;
                }
                self.error(&format!("invalid float: '{}'", &self.text[start..self.at]))
            }
            '0' if matches!(self.peek(), 'b' | 'o' | 'x') => self.error(&format!(
                "cannot use sign with non-decimal numbers: '{}{}'",
                &self.text[start..self.at],
                self.peek()
            )),
            '.' => self.error("floats must start with a digit, not '.'"),
            '0'..='9' => {
                let end = self.span(|byte| byte.is_ascii_digit() || byte == b'_');
                self.at = end;
                if matches!(self.peek(), '.' | 'e' | 'E') {
                    return self.float(start);
                }
                self.integer(start)
            }
            other => self.error(&format!("expected a digit but got {}", rune(other))),
        }
    }

    /// Where bytes of a kind end.
    fn span(&self, of: impl Fn(u8) -> bool) -> usize {
        self.at + self.text[self.at..].bytes().take_while(|byte| of(*byte)).count()
    }

    fn number_or_date(&mut self) -> Result<Value, String> {
        let start = self.at;
        let bytes = &self.text.as_bytes()[start..];
        if let [b'0', base @ (b'b' | b'o' | b'x'), ..] = bytes {
            let (digit, name): (fn(u8) -> bool, &str) = match base {
                b'b' => (|byte| matches!(byte, b'0' | b'1'), "a binary"),
                b'o' => (|byte| matches!(byte, b'0'..=b'7'), "an octal"),
                _ => (|byte| byte.is_ascii_hexdigit(), "a hexadecimal"),
            };
            self.at += 2;
            if !bytes.get(2).is_some_and(|byte| digit(*byte)) {
                let found = format!("{}{}", &self.text[start..self.at], self.peek());
                return self.error(&format!("not {name} number: '{found}'"));
            }
            self.at = self.span(|byte| digit(byte) || byte == b'_');
            return self.integer(start);
        }
        self.at = self.span(|byte| byte.is_ascii_digit());
        let is_single_zero = self.at == start + 1 && bytes.starts_with(b"0");
        match self.peek() {
            '-' | ':' if !is_single_zero => return self.date(start),
            '_' => self.at = self.span(|byte| byte.is_ascii_digit() || byte == b'_'),
            _ => {}
        }
        if matches!(self.peek(), '.' | 'e' | 'E') { self.float(start) } else { self.integer(start) }
    }

    fn integer(&mut self, start: usize) -> Result<Value, String> {
        let text = &self.text[start..self.at];
        if !underscores_fit(text) {
            let cause =
                format!("Invalid integer {}: underscores must be surrounded by digits", go_quote(text));
            return self.error(&cause);
        }
        if has_leading_zero(text) {
            return self.error(&format!("Invalid integer {}: cannot have leading zeroes", go_quote(text)));
        }
        let digits = text.replace('_', "");
        let parsed = match digits.as_bytes() {
            [b'0', b'b', ..] => i64::from_str_radix(&digits[2..], 2),
            [b'0', b'o', ..] => i64::from_str_radix(&digits[2..], 8),
            [b'0', b'x', ..] => i64::from_str_radix(&digits[2..], 16),
            _ => digits.parse(),
        };
        match parsed {
            Ok(number) => Ok(Value::Int64(number)),
            Err(_) => self.error(&format!("{text} is out of range for int64")),
        }
    }

    fn float(&mut self, start: usize) -> Result<Value, String> {
        self.at = self
            .span(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-' | b'+' | b'e' | b'E'));
        let text = &self.text[start..self.at];
        let invalid = |why: &str| format!("Invalid float {}: {why}", go_quote(text));
        let parts: Vec<&str> = text.split(['.', 'e', 'E']).filter(|part| !part.is_empty()).collect();
        if !parts.iter().all(|part| underscores_fit(part)) {
            return self.error(&invalid("underscores must be surrounded by digits"));
        }
        if parts.first().is_some_and(|part| has_leading_zero(part)) {
            return self.error(&invalid("cannot have leading zeroes"));
        }
        let followed = |(at, _): (usize, &str)| text[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        if !text.match_indices('.').all(followed) {
            return self.error(&invalid("'.' must be followed by one or more digits"));
        }
        match text.replace('_', "").parse::<f64>() {
            Ok(number) if number.is_infinite() => self.error(&format!("{text} is out of range for float64")),
            Ok(number) => Ok(Value::Float64(number)),
            Err(_) => self.error(&format!("Invalid float value: {}", go_quote(text))),
        }
    }

    fn date(&mut self, start: usize) -> Result<Value, String> {
        self.at = self.span(|byte| {
            byte.is_ascii_digit()
                || matches!(byte, b'-' | b':' | b'T' | b't' | b' ' | b'.' | b'Z' | b'z' | b'+')
        });
        let text = self.text[start..self.at].trim().replace('z', "Z").replace(['t', ' '], "T");
        match time(&text) {
            Some(time) => Ok(Value::Time(Rc::new(time))),
            None => self.error(&format!("invalid datetime: {}", go_quote(&text))),
        }
    }

    /// The rest of a string whose quote has been read.
    pub(super) fn basic_string(&mut self) -> Result<String, String> {
        let mut out = String::new();
        loop {
            match self.next()? {
                END if self.ended => return self.error("unexpected EOF; expected '\"'"),
                '\n' | '\r' => return self.newline_in_string(),
                '\\' => self.escape(&mut out)?,
                '"' => return Ok(out),
                c => out.push(c),
            }
        }
    }

    pub(super) fn literal_string(&mut self) -> Result<String, String> {
        let mut out = String::new();
        loop {
            match self.next()? {
                END if self.ended => return self.error("unexpected EOF; expected \"'\""),
                '\n' | '\r' => return self.newline_in_string(),
                '\'' => return Ok(out),
                c => out.push(c),
            }
        }
    }

    fn newline_in_string(&self) -> Result<String, String> {
        self.error_before("strings cannot contain newlines")
    }

    fn multi_line_basic(&mut self) -> Result<String, String> {
        let mut out = String::new();
        self.skip_first_newline();
        loop {
            match self.next()? {
                END if self.ended => return self.error("unexpected EOF; expected '\"\"\"'"),
                '\\' if self.ends_line() => {
                    while matches!(self.peek(), ' ' | '\t' | '\r' | '\n') {
                        self.next()?;
                    }
                }
                '\\' => self.escape(&mut out)?,
                '"' if self.closes('"', &mut out)? => return Ok(out),
                c => out.push(c),
            }
        }
    }

    fn multi_line_literal(&mut self) -> Result<String, String> {
        let mut out = String::new();
        self.skip_first_newline();
        loop {
            match self.next()? {
                END if self.ended => return self.error("unexpected EOF; expected \"'''\""),
                '\'' if self.closes('\'', &mut out)? => return Ok(out),
                c => out.push(c),
            }
        }
    }

    fn skip_first_newline(&mut self) {
        for newline in ["\r\n", "\n"] {
            if self.text[self.at..].starts_with(newline) {
                self.at += newline.len();
                self.line += 1;
                return;
            }
        }
    }

    /// Whether nothing but blanks follows on the line.
    fn ends_line(&self) -> bool {
        self.text[self.at..].trim_start_matches([' ', '\t']).starts_with(['\n', '\r'])
    }

    /// Whether the quote just read is the first of the three that end a string; up to two more belong to the text.
    fn closes(&mut self, quote: char, out: &mut String) -> Result<bool, String> {
        let more = self.text[self.at..].chars().take_while(|c| *c == quote).count();
        if more < 2 {
            return Ok(false);
        }
        if more > 4 {
            let six = quote.to_string().repeat(6);
            let around = if quote == '"' { '\'' } else { '"' };
            return self.error(&format!("unexpected {around}{six}{around}"));
        }
        out.extend(std::iter::repeat_n(quote, more - 2));
        self.at += more;
        Ok(true)
    }

    fn escape(&mut self, out: &mut String) -> Result<(), String> {
        let simple = match self.next()? {
            'b' => '\x08',
            't' => '\t',
            'n' => '\n',
            'f' => '\x0c',
            'r' => '\r',
            'e' => '\x1b',
            '"' => '"',
            '\\' => '\\',
            'x' => return self.code(out, 2, "two", 'x'),
            'u' => return self.code(out, 4, "four", 'u'),
            'U' => return self.code(out, 8, "eight", 'U'),
            blank @ (' ' | '\t') => return self.error(&format!("invalid escape: '\\{blank}'")),
            other => return self.error(&format!("invalid escape in string '\\{other}'")),
        };
        out.push(simple);
        Ok(())
    }

    fn code(&mut self, out: &mut String, count: usize, word: &str, kind: char) -> Result<(), String> {
        let start = self.at;
        for _ in 0..count {
            if !self.next()?.is_ascii_hexdigit() {
                let found = go_quote(&self.text[start..self.at]);
                return self.error(&format!(
                    "expected {word} hexadecimal digits after '\\{kind}', but got {found} instead"
                ));
            }
        }
        let digits = &self.text[start..self.at];
        match u32::from_str_radix(digits, 16).ok().and_then(char::from_u32) {
            Some(c) => {
                out.push(c);
                Ok(())
            }
            None => self.error(&format!("Escaped character '\\u{digits}' is not valid UTF-8.")),
        }
    }
}

/// Each underscore stands between digits.
fn underscores_fit(text: &str) -> bool {
    let mut after_digit = false;
    for byte in text.bytes() {
        if byte == b'_' && !after_digit {
            return false;
        }
        after_digit = byte.is_ascii_hexdigit();
    }
    after_digit
}

fn has_leading_zero(text: &str) -> bool {
    match text.as_bytes() {
        [b'0', next, ..] => !matches!(next, b'b' | b'o' | b'x'),
        [b'+' | b'-', b'0', _, ..] => true,
        _ => false,
    }
}

/// A time with an offset, or one of the local kinds, which Go tells apart by the name of their zone.
fn time(text: &str) -> Option<Time> {
    let (local, offset) = split_offset(text)?;
    let has_date = local.as_bytes().get(4) == Some(&b'-');
    let has_time = local.contains(':');
    let (name, civil) = match (has_date, has_time, offset) {
        (true, true, Some(_)) => ("", local.to_owned()),
        (true, true, None) => ("datetime-local", local.to_owned()),
        (true, false, None) => ("date-local", format!("{local}T00:00:00")),
        (false, true, None) => ("time-local", format!("0000-01-01T{local}")),
        _ => return None,
    };
    let civil = parse_civil(&civil)?;
    let seconds = offset.unwrap_or(0);
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).ok()?);
    let at = civil.to_zoned(zone).ok()?.timestamp();
    let zone = if offset == Some(0) { Zone::Utc } else { Zone::Fixed(name.to_owned(), seconds) };
    Some(Time { at, zone })
}

/// Local time and offset in seconds, `None` when there is none.
fn split_offset(text: &str) -> Option<(&str, Option<i32>)> {
    if let Some(local) = text.strip_suffix('Z') {
        return Some((local, Some(0)));
    }
    let Some(at) = text.find('T').and_then(|t| text[t..].find(['+', '-']).map(|at| t + at)) else {
        return Some((text, None));
    };
    let (local, offset) = text.split_at(at);
    let (hours, minutes) = offset[1..].split_once(':')?;
    let digits = |part: &str| (part.len() == 2).then(|| part.parse::<i32>().ok()).flatten();
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    if hours > 24 || minutes > 59 {
        return None;
    }
    let seconds = hours * 3600 + minutes * 60;
    Some((local, Some(if offset.starts_with('-') { -seconds } else { seconds })))
}

/// `2006-01-02T15:04`, with or without seconds and their fraction, each number with all its digits.
fn parse_civil(text: &str) -> Option<jiff::civil::DateTime> {
    let bytes = text.as_bytes();
    let fits = |pattern: &[u8]| {
        bytes.len() >= pattern.len()
            && pattern.iter().zip(bytes).all(|(p, b)| if *p == b'0' { b.is_ascii_digit() } else { p == b })
    };
    if fits(b"0000-00-00T00:00:00") {
        let fraction = &text[19..];
        let is_fraction = fraction
            .strip_prefix('.')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
        // Go reads nine digits and passes over the rest.
        let kept = text.get(..text.len().min(29)).filter(|_| fraction.is_empty() || is_fraction)?;
        return kept.parse().ok();
    }
    (text.len() == 16 && fits(b"0000-00-00T00:00")).then(|| format!("{text}:00").parse().ok()).flatten()
}
