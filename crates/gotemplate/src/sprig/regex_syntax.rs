//! Go's regular expressions, checked with Go's complaints and written for the regex crate.
//!
//! The two languages differ in little: `\d`, `\w`, `\s` and `\b` are ASCII in Go, `\Q…\E` and octal escapes exist
//! only there, and counted repetitions may not multiply to more than 1000.

/// Groups within groups; the regex crate's own limit is set to the same.
const MAX_DEPTH: usize = 240;
const MAX_REPEAT: u32 = 1_000;

/// The expression for the regex crate, or Go's complaint without its `error parsing regexp: `.
pub fn translate(pattern: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(pattern)
        .map_err(|_| complaint("invalid UTF-8", &String::from_utf8_lossy(pattern)))?;
    let mut parser = Parser { whole: text, rest: text, out: String::new(), groups: vec![Group::default()] };
    parser.parse()?;
    Ok(parser.out)
}

fn complaint(what: &str, expression: &str) -> String {
    format!("{what}: `{expression}`")
}

/// One open parenthesis.
#[derive(Default)]
struct Group {
    /// How often the last atom may be repeated in all, or nothing if there is no atom a repetition could follow.
    last: Option<u32>,
    /// The most of any atom.
    most: u32,
}

struct Parser<'p> {
    whole: &'p str,
    rest: &'p str,
    out: String,
    groups: Vec<Group>,
}

impl<'p> Parser<'p> {
    fn parse(&mut self) -> Result<(), String> {
        let mut last_repeat: Option<&'p str> = None;
        while let Some(next) = self.rest.chars().next() {
            let before = self.rest;
            let mut repeat = None;
            match next {
                '(' => self.open()?,
                '|' => {
                    self.skip(1);
                    self.out.push('|');
                    self.group().last = None;
                }
                ')' => self.close()?,
                '^' | '$' | '.' => {
                    self.skip(1);
                    self.atom(&next.to_string());
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    self.skip(1);
                    self.repeat(before, &next.to_string(), 1, last_repeat)?;
                    repeat = Some(before);
                }
                '{' => match counted(self.rest) {
                    None => {
                        self.skip(1);
                        self.literal('{');
                    }
                    Some(count) => {
                        self.skip(count.length);
                        if !count.valid {
                            return Err(complaint("invalid repeat count", &before[..count.length]));
                        }
                        self.repeat(before, &before[..count.length], count.times, last_repeat)?;
                        repeat = Some(before);
                    }
                },
                '\\' => self.backslash()?,
                literal => {
                    self.skip(literal.len_utf8());
                    self.literal(literal);
                }
            }
            last_repeat = repeat;
        }
        match self.groups.len() {
            1 => Ok(()),
            _ => Err(complaint("missing closing )", self.whole)),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn group(&mut self) -> &mut Group {
        self.groups.last_mut().expect("the outermost group is never closed")
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.counted_atom(1);
    }

    fn counted_atom(&mut self, times: u32) {
        let group = self.group();
        group.last = Some(times);
        group.most = group.most.max(times);
    }

    fn literal(&mut self, c: char) {
        push_literal(&mut self.out, c);
        self.counted_atom(1);
    }

    fn open(&mut self) -> Result<(), String> {
        if self.groups.len() > MAX_DEPTH {
            return Err(complaint("expression nests too deeply", self.whole));
        }
        if self.rest.starts_with("(?") {
            return self.perl_group();
        }
        self.skip(1);
        self.out.push('(');
        self.groups.push(Group::default());
        Ok(())
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` and `(?flags:`.
    fn perl_group(&mut self) -> Result<(), String> {
        let text = self.rest;
        let name_at = if text.starts_with("(?P<") && text.len() > 4 {
            Some(4)
        } else if text.starts_with("(?<") && text.len() > 3 {
            Some(3)
        } else {
            None
        };
        if let Some(start) = name_at {
            let Some(end) = text.find('>') else { return Err(complaint("invalid named capture", text)) };
            let name = &text[start..end];
            if name.is_empty() || !name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                return Err(complaint("invalid named capture", &text[..=end]));
            }
            self.skip(end + 1);
            // The regex crate wants names to start with a letter; such a group is then only known by its number.
            match name.as_bytes()[0].is_ascii_digit() {
                true => self.out.push('('),
                false => self.out.push_str(&format!("(?P<{name}>")),
            }
            self.groups.push(Group::default());
            return Ok(());
        }
        self.flags()
    }

    fn flags(&mut self) -> Result<(), String> {
        let text = self.rest;
        let mut negative = false;
        let mut saw_flag = false;
        for (at, c) in text.char_indices().skip(2) {
            let end = at + c.len_utf8();
            match c {
                'i' | 'm' | 's' | 'U' => saw_flag = true,
                '-' if !negative => {
                    negative = true;
                    saw_flag = false;
                }
                ':' | ')' if !negative || saw_flag => {
                    self.skip(end);
                    let flags = &text[2..at];
                    if c == ':' {
                        self.out.push_str(&format!("(?{flags}:"));
                        self.groups.push(Group::default());
                    } else if !flags.is_empty() {
                        self.out.push_str(&format!("(?{flags})"));
                    }
                    return Ok(());
                }
                _ => return Err(complaint("invalid or unsupported Perl syntax", &text[..end])),
            }
        }
        Err(complaint("invalid or unsupported Perl syntax", text))
    }

    fn close(&mut self) -> Result<(), String> {
        if self.groups.len() == 1 {
            return Err(complaint("unexpected )", self.whole));
        }
        let inner = self.groups.pop().map_or(1, |group| group.most);
        self.skip(1);
        self.out.push(')');
        self.counted_atom(inner.max(1));
        Ok(())
    }

    fn repeat(&mut self, before: &str, operator: &str, times: u32, last: Option<&str>) -> Result<(), String> {
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.skip(1);
        }
        let written = |from: &str| from[..from.len() - self.rest.len()].to_owned();
        if let Some(last) = last {
            return Err(complaint("invalid nested repetition operator", &written(last)));
        }
        let Some(inner) = self.groups.last().and_then(|group| group.last) else {
            return Err(complaint("missing argument to repetition operator", &written(before)));
        };
        let total = inner.saturating_mul(times.max(1));
        if operator.starts_with('{') && times >= 2 && total > MAX_REPEAT {
            return Err(complaint("invalid repeat count", &written(before)));
        }
        self.out.push_str(operator);
        if lazy {
            self.out.push('?');
        }
        self.counted_atom(total);
        Ok(())
    }

    fn backslash(&mut self) -> Result<(), String> {
        let text = self.rest;
        match text[1..].chars().next() {
            Some('A') => self.escaped_atom("\\A"),
            Some('z') => self.escaped_atom("\\z"),
            Some('b') => self.escaped_atom("(?-u:\\b)"),
            Some('B') => self.escaped_atom("(?-u:\\B)"),
            Some('C') => return Err(complaint("invalid escape sequence", &text[..2])),
            Some('Q') => {
                let (literal, rest) = text[2..].split_once("\\E").unwrap_or((&text[2..], ""));
                literal.chars().for_each(|c| self.literal(c));
                self.rest = rest;
            }
            Some('p' | 'P') => {
                let class = self.unicode_class()?;
                self.atom(&class);
            }
            Some(c) if perl_class(c).is_some() => {
                let (negated, members) = perl_class(c).expect("just looked at");
                let caret = if negated { "^" } else { "" };
                self.escaped_atom(&format!("[{caret}{members}]"));
            }
            _ => {
                let c = self.escape()?;
                self.literal(c);
            }
        }
        Ok(())
    }

    fn escaped_atom(&mut self, text: &str) {
        self.skip(2);
        self.atom(text);
    }

    /// `\pN`, `\p{Greek}`, `\P{^Greek}`
    fn unicode_class(&mut self) -> Result<String, String> {
        let text = self.rest;
        let mut negated = text.starts_with("\\P");
        let (sequence, mut name) = match text[2..].chars().next() {
            None => return Err(complaint("invalid character class range", text)),
            Some('{') => {
                let Some(end) = text.find('}') else {
                    return Err(complaint("invalid character class range", text));
                };
                (&text[..=end], &text[3..end])
            }
            Some(letter) => (&text[..2 + letter.len_utf8()], &text[2..2 + letter.len_utf8()]),
        };
        if let Some(rest) = name.strip_prefix('^') {
            negated = !negated;
            name = rest;
        }
        let class = format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' });
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') || unknown(&class)
        {
            return Err(complaint("invalid character class range", sequence));
        }
        self.skip(sequence.len());
        Ok(class)
    }

    /// An escape that stands for one character.
    fn escape(&mut self) -> Result<char, String> {
        let text = self.rest;
        let mut chars = text[1..].chars();
        let Some(first) = chars.next() else {
            return Err(complaint("trailing backslash at end of expression", ""));
        };
        let simple = match first {
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c),
            _ => None,
        };
        if let Some(c) = simple {
            self.skip(2);
            return Ok(c);
        }
        let bad = |end: usize| complaint("invalid escape sequence", &text[..end.min(text.len())]);
        match first {
            '0'..='7' => {
                let digits =
                    text[1..].bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                if first != '0' && digits < 2 {
                    return Err(bad(2));
                }
                let code = u32::from_str_radix(&text[1..1 + digits], 8).unwrap_or(0);
                self.skip(1 + digits);
                char::from_u32(code).ok_or_else(|| bad(1 + digits))
            }
            'x' => self.hex_escape(),
            other => Err(bad(1 + other.len_utf8())),
        }
    }

    fn hex_escape(&mut self) -> Result<char, String> {
        let text = self.rest;
        let bad = |end: usize| {
            let end = (end.min(text.len())..=text.len()).find(|&end| text.is_char_boundary(end));
            complaint("invalid escape sequence", &text[..end.unwrap_or(text.len())])
        };
        if let Some(braced) = text[2..].strip_prefix('{') {
            let mut code: u32 = 0;
            for (digits, (at, c)) in braced.char_indices().enumerate() {
                let end = 3 + at + c.len_utf8();
                if c == '}' {
                    if digits == 0 {
                        return Err(bad(end));
                    }
                    self.skip(end);
                    return char::from_u32(code).ok_or_else(|| bad(end));
                }
                let Some(digit) = c.to_digit(16) else { return Err(bad(end)) };
                code = code.saturating_mul(16).saturating_add(digit);
                if code > 0x10_ffff {
                    return Err(bad(end));
                }
            }
            return Err(bad(text.len()));
        }
        let digits: Option<Vec<u32>> = text[2..].chars().take(2).map(|c| c.to_digit(16)).collect();
        match digits.as_deref() {
            Some([high, low]) => {
                self.skip(4);
                char::from_u32(high * 16 + low).ok_or_else(|| bad(4))
            }
            _ => Err(bad(4)),
        }
    }

    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        self.skip(1);
        let mut out = String::from('[');
        if self.rest.starts_with('^') {
            self.skip(1);
            out.push('^');
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if self.rest.starts_with("[:")
                && let Some(end) = self.rest[2..].find(":]")
            {
                let name = &self.rest[..end + 4];
                if !is_posix(&name[2..name.len() - 2]) {
                    return Err(complaint("invalid character class range", name));
                }
                out.push_str(name);
                self.skip(name.len());
                continue;
            }
            if self.rest.starts_with("\\p") || self.rest.starts_with("\\P") {
                let class = self.unicode_class()?;
                out.push_str(&class);
                continue;
            }
            if let Some((negated, members)) =
                self.rest.strip_prefix('\\').and_then(|rest| perl_class(rest.chars().next()?))
            {
                self.skip(2);
                match negated {
                    true => out.push_str(&format!("[^{members}]")),
                    false => out.push_str(members),
                }
                continue;
            }
            let range = self.rest;
            let low = self.class_char(whole)?;
            push_literal(&mut out, low);
            let mut ahead = self.rest.chars();
            if ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']') {
                self.skip(1);
                let high = self.class_char(whole)?;
                if high < low {
                    let range = &range[..range.len() - self.rest.len()];
                    return Err(complaint("invalid character class range", range));
                }
                out.push('-');
                push_literal(&mut out, high);
            }
        }
        self.skip(1);
        out.push(']');
        self.atom(&out);
        Ok(())
    }

    fn class_char(&mut self, whole: &str) -> Result<char, String> {
        match self.rest.chars().next() {
            None => Err(complaint("missing closing ]", whole)),
            Some('\\') => self.escape(),
            Some(c) => {
                self.skip(c.len_utf8());
                Ok(c)
            }
        }
    }
}

/// A literal, written so that it means nothing else anywhere.
fn push_literal(out: &mut String, c: char) {
    match c.is_ascii_alphanumeric() || !c.is_ascii() {
        true => out.push(c),
        false => out.push_str(&format!("\\x{{{:x}}}", c as u32)),
    }
}

/// Whether it is negated, and its members, which are ASCII.
fn perl_class(c: char) -> Option<(bool, &'static str)> {
    let members = match c.to_ascii_lowercase() {
        'd' => "0-9",
        's' => "\\t\\n\\f\\r\\x20",
        'w' => "0-9A-Za-z_",
        _ => return None,
    };
    Some((c.is_ascii_uppercase(), members))
}

fn is_posix(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
        "upper", "word", "xdigit",
    ];
    NAMES.contains(&name.strip_prefix('^').unwrap_or(name))
}

/// Whether the regex crate does not know a class.
fn unknown(class: &str) -> bool {
    regex::Regex::new(class).is_err()
}

struct Counted {
    length: usize,
    /// The larger bound, or the smaller if there is no larger.
    times: u32,
    valid: bool,
}

/// `{n}`, `{n,}` or `{n,m}`; anything else is a literal brace.
fn counted(text: &str) -> Option<Counted> {
    let end = text.find('}')?;
    let body = &text[1..end];
    let number = |digits: &str| -> Option<u32> {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // Go reads no number with a leading zero here.
        (plain && (digits.len() == 1 || !digits.starts_with('0'))).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (least, most) = match body.split_once(',') {
        None => (number(body)?, Some(number(body)?)),
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    let valid = least <= MAX_REPEAT && most.is_none_or(|most| most <= MAX_REPEAT && least <= most);
    Some(Counted { length: end + 1, times: most.unwrap_or(least), valid })
}
