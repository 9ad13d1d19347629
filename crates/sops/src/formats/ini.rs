//! INI files as the Go library that sops uses (gopkg.in/ini.v1) reads and writes them: sections may repeat, the
//! keys of a section are aligned, comments stand above their key.

use super::{Format, output, shown, syntax};
use crate::Error;
use crate::tree::{Branch, Comment, Item, Value, flat_text};

/// What stands before the first header.
const DEFAULT_SECTION: &[u8] = b"DEFAULT";
const DELIMITERS: [u8; 2] = [b'=', b':'];

pub(super) fn read(bytes: &[u8]) -> Result<Branch, Error> {
    let mut reader = Reader { rest: without_mark(bytes), line: 0, comment: Vec::new() };
    let mut sections = vec![Section::new(DEFAULT_SECTION, Vec::new())];
    let mut unnamed = 1;
    while let Some(line) = reader.next_line() {
        let line = trim_start(line);
        let Some(first) = line.first() else { continue };
        match first {
            b'#' | b';' => reader.comment.extend_from_slice(line),
            b'[' => {
                let Some(close) = line.iter().rposition(|byte| *byte == b']') else {
                    return Err(reader.problem("the header of a section has no `]`"));
                };
                if close == 1 {
                    return Err(reader.problem("a section has no name"));
                }
                if let Some(at) = line[close..].iter().position(|byte| matches!(byte, b'#' | b';')) {
                    reader.comment.extend_from_slice(&line[close + at..]);
                }
                sections.push(Section::new(&line[1..close], reader.take_comment()));
                unnamed = 1;
            }
            _ => {
                let (name, offset) = key_name(line).map_err(|problem| reader.problem(problem))?;
                let mut name = name.to_vec();
                if name == b"-" {
                    name = format!("#{unnamed}").into_bytes();
                    unnamed += 1;
                }
                let value = reader.value(&line[offset..])?;
                if name.is_empty() {
                    return Err(reader.problem("a key has no name"));
                }
                let comment = reader.take_comment();
                if let Some(section) = sections.last_mut() {
                    section.set(name, value, comment);
                }
            }
        }
    }
    Ok(sections.into_iter().map(Section::into_item).collect())
}

/// The mark at the beginning of a text, which editors on Windows write.
fn without_mark(bytes: &[u8]) -> &[u8] {
    [&b"\xef\xbb\xbf"[..], b"\xfe\xff", b"\xff\xfe"]
        .iter()
        .find_map(|mark| bytes.strip_prefix(*mark))
        .unwrap_or(bytes)
}

struct Section {
    name: Vec<u8>,
    comment: Vec<u8>,
    keys: Vec<Key>,
}

struct Key {
    name: Vec<u8>,
    value: Vec<u8>,
    comment: Vec<u8>,
}

impl Section {
    fn new(name: &[u8], comment: Vec<u8>) -> Self {
        Self { name: name.to_vec(), comment, keys: Vec::new() }
    }

    /// A key that is given again keeps its place.
    fn set(&mut self, name: Vec<u8>, value: Vec<u8>, comment: Vec<u8>) {
        match self.keys.iter_mut().find(|key| key.name == name) {
            Some(key) => (key.value, key.comment) = (value, comment),
            None => self.keys.push(Key { name, value, comment }),
        }
    }

    fn into_item(self) -> Item {
        let mut branch = Vec::new();
        push_comment(&mut branch, &self.comment);
        for key in self.keys {
            branch.push(Item::Entry(key.name, Value::Str(key.value)));
            push_comment(&mut branch, &key.comment);
        }
        Item::Entry(self.name, Value::Map(branch))
    }
}

fn push_comment(branch: &mut Branch, comment: &[u8]) {
    let Some(mark @ (b'#' | b';')) = comment.first() else { return };
    let marks = comment.iter().take_while(|byte| *byte == mark || **byte == b' ').count();
    branch.push(Item::Comment(Comment { text: comment[marks..].to_vec(), inline: false }));
}

struct Reader<'a> {
    rest: &'a [u8],
    line: usize,
    /// Comment lines and comments at the end of lines that wait for their key.
    comment: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// The next line with its line break.
    fn next_line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let length = self.rest.iter().position(|byte| *byte == b'\n').map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.line += 1;
        Some(line)
    }

    fn problem(&self, problem: &str) -> Error {
        syntax(Format::Ini, format!("line {}: {problem}", self.line))
    }

    fn take_comment(&mut self) -> Vec<u8> {
        trim(&std::mem::take(&mut self.comment)).to_vec()
    }

    fn value(&mut self, text: &[u8]) -> Result<Vec<u8>, Error> {
        let line = trim_start(text);
        if line.is_empty() {
            return Ok(Vec::new());
        }
        let quote: &[u8] = if line.len() > 3 && line.starts_with(b"\"\"\"") {
            b"\"\"\""
        } else if line[0] == b'`' {
            b"`"
        } else {
            b""
        };
        if !quote.is_empty() {
            let inner = &line[quote.len()..];
            return match find_last(inner, quote) {
                Some(at) => Ok(inner[..at].to_vec()),
                None => self.quoted_lines(inner, quote),
            };
        }
        let line = trim(line);
        if let Some(start) = line.strip_suffix(b"\\") {
            return Ok(self.continued_lines(start));
        }
        let mut line = line;
        if let Some(at) = line.iter().position(|byte| matches!(byte, b'#' | b';')) {
            self.comment.extend_from_slice(&line[at..]);
            line = trim(&line[..at]);
        }
        Ok(without_quotes(line).to_vec())
    }

    fn quoted_lines(&mut self, start: &[u8], quote: &[u8]) -> Result<Vec<u8>, Error> {
        let mut value = start.to_vec();
        while let Some(line) = self.next_line() {
            if let Some(at) = find_last(line, quote) {
                if trim(&line[at + quote.len()..]).ends_with(b"\\") {
                    value.extend_from_slice(line);
                    continue;
                }
                value.extend_from_slice(&line[..at]);
                if let Some(mark) = line[at..].iter().position(|byte| matches!(byte, b'#' | b';')) {
                    self.comment.extend_from_slice(trim(&line[at + mark..]));
                }
                return Ok(value);
            }
            value.extend_from_slice(line);
        }
        Err(self.problem("a quoted value has no end"))
    }

    fn continued_lines(&mut self, start: &[u8]) -> Vec<u8> {
        let mut value = start.to_vec();
        while let Some(line) = self.next_line() {
            let line = trim(line);
            if line.is_empty() {
                break;
            }
            value.extend_from_slice(line);
            if value.last() != Some(&b'\\') {
                break;
            }
            value.pop();
        }
        value
    }
}

/// The name of a key and where its value begins.
fn key_name(line: &[u8]) -> Result<(&[u8], usize), &'static str> {
    const NO_DELIMITER: &str = "neither a section nor a comment nor `key = value`";
    let quote: &[u8] = match line[0] {
        b'"' if line.len() > 6 && line.starts_with(b"\"\"\"") => b"\"\"\"",
        b'"' => b"\"",
        b'`' => b"`",
        _ => b"",
    };
    let delimiter = |text: &[u8]| text.iter().position(|byte| DELIMITERS.contains(byte));
    if quote.is_empty() {
        return match delimiter(line) {
            None => Err(NO_DELIMITER),
            Some(0) => Err("a key has no name"),
            Some(at) => Ok((trim(&line[..at]), at + 1)),
        };
    }
    let start = quote.len();
    let end = start + find_first(&line[start..], quote).ok_or("the quotes of a key have no end")?;
    let after = line.get(end + start..).unwrap_or_default();
    let at = delimiter(after).ok_or(NO_DELIMITER)?;
    Ok((trim(&line[start..end]), end + start + at + 1))
}

/// One pair of quotes around all of the value, and none of the kind within, does not count.
fn without_quotes(line: &[u8]) -> &[u8] {
    for quote in *b"'\"" {
        if let [first, inner @ .., last] = line
            && [*first, *last] == [quote, quote]
            && !inner.contains(&quote)
        {
            return inner;
        }
    }
    line
}

fn find_first(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn find_last(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).rposition(|window| window == what)
}

fn trim_start(text: &[u8]) -> &[u8] {
    std::str::from_utf8(text).map_or_else(|_| text.trim_ascii_start(), |text| text.trim_start().as_bytes())
}

fn trim(text: &[u8]) -> &[u8] {
    std::str::from_utf8(text).map_or_else(|_| text.trim_ascii(), |text| text.trim().as_bytes())
}

pub(super) fn write(branches: &[Branch]) -> Result<Vec<u8>, Error> {
    let mut sections = Vec::new();
    for item in branches.iter().flatten() {
        let Item::Entry(name, value) = item else { continue };
        let Value::Map(branch) = value else {
            let problem = format!("{} is {}, not a section", shown(name), value.kind());
            return Err(output(Format::Ini, problem));
        };
        if name.is_empty() {
            return Err(output(Format::Ini, "a section has no name"));
        }
        sections.push(section(name, branch)?);
    }
    let mut out = Vec::new();
    let count = sections.len();
    for (index, section) in sections.iter().enumerate() {
        if !section.comment.is_empty() {
            write_comment(&mut out, &section.comment, false);
        }
        if index > 0 || !section.name.eq_ignore_ascii_case(DEFAULT_SECTION) {
            out.push(b'[');
            out.extend_from_slice(&section.name);
            out.extend_from_slice(b"]\n");
        } else if section.keys.is_empty() {
            continue;
        }
        write_keys(&mut out, &section.keys);
        if index + 1 < count {
            out.push(b'\n');
        }
    }
    Ok(out)
}

/// The first comment is that of the section, later ones belong to the key before them.
fn section(name: &[u8], branch: &[Item]) -> Result<Section, Error> {
    let mut section = Section::new(name, Vec::new());
    let mut last = None;
    for (index, item) in branch.iter().enumerate() {
        match item {
            Item::Comment(comment) if index == 0 => section.comment = comment.text.clone(),
            Item::Comment(comment) => {
                if let Some(key) = last.and_then(|at: usize| section.keys.get_mut(at)) {
                    key.comment = comment.text.clone();
                }
            }
            Item::Entry(key, value) => {
                if key.is_empty() {
                    return Err(output(Format::Ini, "a key has no name"));
                }
                let text = flat_text(value)
                    .ok_or_else(|| output(Format::Ini, format!("{} is {}", shown(key), value.kind())))?;
                match section.keys.iter().position(|known| known.name == *key) {
                    Some(at) => {
                        section.keys[at].value = text;
                        last = Some(at);
                    }
                    None => {
                        section.keys.push(Key { name: key.clone(), value: text, comment: Vec::new() });
                        last = Some(section.keys.len() - 1);
                    }
                }
            }
        }
    }
    Ok(section)
}

fn write_comment(out: &mut Vec<u8>, comment: &[u8], trimmed: bool) {
    for line in comment.split(|byte| *byte == b'\n') {
        match line {
            [mark @ (b'#' | b';'), text @ ..] => {
                out.extend_from_slice(&[*mark, b' ']);
                out.extend_from_slice(trim(text));
            }
            _ => {
                out.extend_from_slice(b"; ");
                out.extend_from_slice(if trimmed { trim(line) } else { line });
            }
        }
        out.push(b'\n');
    }
}

fn write_keys(out: &mut Vec<u8>, keys: &[Key]) {
    let names: Vec<Vec<u8>> = keys.iter().map(|key| quoted_name(&key.name)).collect();
    let width = names.iter().map(Vec::len).max().unwrap_or(0);
    for (key, name) in keys.iter().zip(&names) {
        if !key.comment.is_empty() {
            write_comment(out, &key.comment, true);
        }
        out.extend_from_slice(name);
        out.extend(std::iter::repeat_n(b' ', width - name.len()));
        out.extend_from_slice(b" = ");
        let value = key.value.as_slice();
        let quote: &[u8] = if value.iter().any(|byte| matches!(byte, b'\n' | b'`')) {
            b"\"\"\""
        } else if value.iter().any(|byte| matches!(byte, b'#' | b';')) {
            b"`"
        } else if trim(value).len() != value.len() {
            b"\""
        } else {
            b""
        };
        out.extend_from_slice(quote);
        out.extend_from_slice(value);
        out.extend_from_slice(quote);
        out.push(b'\n');
    }
}

fn quoted_name(name: &[u8]) -> Vec<u8> {
    let quote: &[u8] = if name.iter().any(|byte| *byte == b'"' || DELIMITERS.contains(byte)) {
        b"`"
    } else if name.contains(&b'`') {
        b"\"\"\""
    } else {
        b""
    };
    [quote, name, quote].concat()
}
