//! `fromToml`: TOML 1.1, with the texts of errors that BurntSushi/toml has, since a template shows them as the value of `Error`.
//!
//! Reads from left to right and stores as it goes: which error comes first, and what it calls the last key, depends on that order.

mod scalar;

use std::collections::{BTreeMap, BTreeSet};

use gotemplate::{List, Type, Value};

/// Arrays and inline tables within each other.
const MAX_DEPTH: usize = 200;

pub(super) fn read(text: &str) -> Result<Value, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.bytes().take(6).any(|byte| byte == 0) {
        let cause = "files cannot contain NULL bytes; probably using UTF-16; TOML files must be UTF-8";
        return Err(format!("toml: line 1: {cause}"));
    }
    let mut reader = Reader {
        text,
        at: 0,
        line: 1,
        ended: false,
        key_line: 1,
        root: Table::new(),
        implicit: BTreeSet::new(),
        context: Vec::new(),
        key: String::new(),
    };
    reader.document()?;
    Ok(value_of(Node::Table(reader.root)))
}

type Table = BTreeMap<String, Node>;

enum Node {
    Table(Table),
    /// What `[[name]]` adds to.
    Tables(Vec<Table>),
    /// A list in brackets, which a list of tables cannot add to.
    Array(Vec<Node>),
    Value(Value),
}

fn value_of(node: Node) -> Value {
    static TABLES: Type = Type::Slice(&Type::MAP);
    let table = |table: Table| Value::map(table.into_iter().map(|(key, node)| (key, value_of(node))));
    match node {
        Node::Table(entries) => table(entries),
        Node::Tables(tables) => Value::List(List::typed(TABLES, tables.into_iter().map(table).collect())),
        Node::Array(items) => Value::list(items.into_iter().map(value_of).collect()),
        Node::Value(value) => value,
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    /// Whether the end has been read, as if it were a character.
    ended: bool,
    /// Where the key that is being set stands.
    key_line: usize,
    root: Table,
    /// Tables that were only implied by the names of others, and may still be defined.
    implicit: BTreeSet<String>,
    context: Vec<String>,
    key: String,
}

/// What Go reads at the end.
const END: char = '\0';

impl Reader<'_> {
    /// The next character, [`END`] at the end. Control characters are refused wherever they stand.
    fn next(&mut self) -> Result<char, String> {
        let Some(next) = self.text[self.at..].chars().next() else {
            self.ended = true;
            return Ok(END);
        };
        let alone = next == '\r' && !self.text[self.at + 1..].starts_with('\n');
        let control = next < ' ' && !matches!(next, '\t' | '\r' | '\n');
        if control || alone || next == '\x7f' {
            let cause = format!("TOML files cannot contain control characters: '0x{:02x}'", next as u32);
            return Err(self.error_at(self.line, &cause));
        }
        self.line += usize::from(next == '\n');
        self.at += next.len_utf8();
        Ok(next)
    }

    fn peek(&self) -> char {
        self.text[self.at..].chars().next().unwrap_or(END)
    }

    fn skip_blanks(&mut self) {
        self.at += self.text[self.at..].bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    }

    /// An error about what was read last. At the end it is about the line before, if that has ended.
    fn error<T>(&self, cause: &str) -> Result<T, String> {
        let after_line = self.ended && self.text.ends_with('\n');
        Err(self.error_at(self.line - usize::from(after_line), cause))
    }

    /// An error about the line that has just ended.
    fn error_before<T>(&self, cause: &str) -> Result<T, String> {
        Err(self.error_at(self.line - 1, cause))
    }

    fn error_at(&self, line: usize, cause: &str) -> String {
        let context = dotted(&self.context);
        let last = match (self.key.is_empty(), context.is_empty()) {
            (true, _) => context,
            (false, true) => self.key.clone(),
            (false, false) => format!("{context}.{}", self.key),
        };
        match last.as_str() {
            "" => format!("toml: line {line}: {cause}"),
            last => format!("toml: line {line} (last key {}): {cause}", crate::quote::go_quote(last)),
        }
    }

    fn document(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                ' ' | '\t' | '\r' | '\n' => continue,
                '#' => self.comment()?,
                END if self.ended => return Ok(()),
                '[' => {
                    self.table_header()?;
                    self.end_of_item()?;
                }
                first => {
                    self.at -= first.len_utf8();
                    let outer = self.context.clone();
                    self.key_and_value(0)?;
                    self.context = outer;
                    self.key.clear();
                    self.end_of_item()?;
                }
            }
            if self.ended {
                return Ok(());
            }
        }
    }

    fn comment(&mut self) -> Result<(), String> {
        while !matches!(self.peek(), '\n' | '\r') && self.at < self.text.len() {
            self.next()?;
        }
        Ok(())
    }

    fn end_of_item(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                '#' => return self.comment(),
                ' ' | '\t' => {}
                '\n' | '\r' => return Ok(()),
                END if self.ended => return Ok(()),
                other => {
                    let shown = rune(other);
                    return self.error(&format!(
                        "expected a top-level item to end with a newline, comment, or EOF, but got {shown} instead"
                    ));
                }
            }
        }
    }

    fn table_header(&mut self) -> Result<(), String> {
        let is_list = self.peek() == '[';
        if is_list {
            self.next()?;
        }
        let mut key = Vec::new();
        loop {
            self.skip_blanks();
            if key.is_empty() {
                self.key_line = self.line;
            }
            match self.peek() {
                ']' => return self.error("unexpected end of table name (table names cannot be empty)"),
                END if self.at == self.text.len() => {
                    self.ended = true;
                    return self.error("unexpected end of table name (table names cannot be empty)");
                }
                '.' => return self.error("unexpected table separator (table names cannot be empty)"),
                _ => key.push(self.name()?),
            }
            self.skip_blanks();
            match self.next()? {
                '.' => {}
                ']' => break,
                other => {
                    let shown = rune(other);
                    return self
                        .error(&format!("expected '.' or ']' to end table name, but got {shown} instead"));
                }
            }
        }
        if is_list {
            let end = self.next()?;
            if end != ']' {
                let shown = rune(end);
                return self.error(&format!(
                    "expected end of table array name delimiter ']', but got {shown} instead"
                ));
            }
        }
        self.open(&key, is_list)
    }

    /// One part of a key or of a table's name.
    fn name(&mut self) -> Result<String, String> {
        match self.peek() {
            '"' => {
                self.next()?;
                self.basic_string()
            }
            '\'' => {
                self.next()?;
                self.literal_string()
            }
            _ => {
                let start = self.at;
                let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                self.at += self.text[start..].bytes().take_while(|byte| is_bare(*byte)).count();
                Ok(self.text[start..self.at].to_owned())
            }
        }
    }

    /// `a.b = value`, stored. The context is left at the table the value went to.
    fn key_and_value(&mut self, depth: usize) -> Result<(), String> {
        self.skip_blanks();
        match self.peek() {
            '=' => return self.error("unexpected '=': key name appears blank"),
            END if self.at == self.text.len() => {
                self.ended = true;
                return self.error("unexpected '=': key name appears blank");
            }
            '.' => return self.error("unexpected '.': keys cannot start with a '.'"),
            _ => self.key_line = self.line,
        }
        let mut parts = Vec::new();
        loop {
            self.skip_blanks();
            match self.peek() {
                '=' => return self.error("unexpected '='"),
                '.' => return self.error("unexpected '.'"),
                _ => parts.push(self.name()?),
            }
            self.skip_blanks();
            match self.next()? {
                '.' => {}
                '=' => break,
                END if self.ended => return self.error("unexpected EOF; expected key separator '='"),
                '\n' => return self.error_before("expected '.' or '=', but got '\\n' instead"),
                other => {
                    let shown = rune(other);
                    return self.error(&format!("expected '.' or '=', but got {shown} instead"));
                }
            }
        }
        let last = parts.pop().unwrap_or_default();
        self.key.clone_from(&last);
        for part in parts {
            let path: Vec<String> = self.context.iter().cloned().chain([part]).collect();
            self.implicit.insert(dotted(&path));
            self.open(&path, false)?;
        }
        let value = self.value(depth, false)?;
        self.key.clone_from(&last);
        self.set(&last, value)
    }

    fn value(&mut self, depth: usize, in_array: bool) -> Result<Node, String> {
        if depth > MAX_DEPTH {
            return self.error("nested too deeply");
        }
        self.skip_blanks();
        match self.next()? {
            '[' => gotemplate::grow(|| self.array(depth)),
            '{' => gotemplate::grow(|| self.inline_table(depth, in_array)),
            first => self.scalar(first).map(Node::Value),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node, String> {
        let mut items = Vec::new();
        loop {
            match self.peek() {
                ' ' | '\t' | '\r' | '\n' => {
                    self.next()?;
                }
                '#' => self.comment()?,
                ',' => {
                    self.next()?;
                    return self.error("unexpected comma");
                }
                ']' => break,
                _ => {
                    items.push(self.value(depth + 1, true)?);
                    if self.after_item(']', "a comma (',') or array terminator (']')", "")? {
                        return Ok(Node::Array(items));
                    }
                }
            }
        }
        self.next()?;
        Ok(Node::Array(items))
    }

    /// What stands between items; whether it was the end of the collection.
    fn after_item(&mut self, end: char, wanted: &str, instead: &str) -> Result<bool, String> {
        loop {
            match self.next()? {
                ' ' | '\t' | '\r' | '\n' => {}
                '#' => self.comment()?,
                ',' => return Ok(false),
                found if found == end => return Ok(true),
                found => {
                    let shown = if self.ended { "end of file".to_owned() } else { format!("'{found}'") };
                    return self.error(&format!("expected {wanted}, but got {shown}{instead}"));
                }
            }
        }
    }

    fn inline_table(&mut self, depth: usize, in_array: bool) -> Result<Node, String> {
        let (outer_context, outer_key) = (self.context.clone(), std::mem::take(&mut self.key));
        // Tables within an array have no place of their own while they are read: they get one, and it is taken away again.
        let (root, implicit) = if in_array {
            (Some(std::mem::take(&mut self.root)), Some(std::mem::take(&mut self.implicit)))
        } else {
            (None, None)
        };
        self.context.push(outer_key.clone());
        let context = self.context.clone();
        self.implicit.insert(dotted(&context));
        self.open(&context, false)?;
        loop {
            match self.peek() {
                ' ' | '\t' | '\r' | '\n' => {
                    self.next()?;
                }
                '#' => self.comment()?,
                ',' => {
                    self.next()?;
                    return self.error("unexpected comma");
                }
                '}' => {
                    self.next()?;
                    break;
                }
                _ => {
                    self.key_and_value(depth + 1)?;
                    self.context.clone_from(&context);
                    if self.after_item('}', "a comma or an inline table terminator '}'", " instead")? {
                        break;
                    }
                }
            }
        }
        let table = self.take(&context);
        if let (Some(root), Some(implicit)) = (root, implicit) {
            self.root = root;
            self.implicit = implicit;
        }
        self.context = outer_context;
        self.key = outer_key;
        Ok(Node::Table(table))
    }

    /// Goes to a table, and makes it and those above it where they are missing.
    fn open(&mut self, key: &[String], is_list: bool) -> Result<(), String> {
        let Some((last, parents)) = key.split_last() else { return Ok(()) };
        let mut seen = Vec::new();
        let mut table = &mut self.root;
        for part in parents {
            seen.push(part.clone());
            if !table.contains_key(part) {
                self.implicit.insert(dotted(&seen));
            }
            let node = table.entry(part.clone()).or_insert_with(|| Node::Table(Table::new()));
            let below = match node {
                Node::Tables(tables) => tables.last_mut(),
                Node::Table(table) => Some(table),
                Node::Array(_) | Node::Value(_) => None,
            };
            match below {
                Some(below) => table = below,
                None => {
                    let cause = format!("Key '{}' was already created as a hash.", dotted(&seen));
                    return Err(self.error_at(self.key_line, &cause));
                }
            }
        }
        if is_list {
            let node = table.entry(last.clone()).or_insert_with(|| Node::Tables(Vec::new()));
            let Node::Tables(tables) = node else {
                let cause =
                    format!("Key '{}' was already created and cannot be used as an array.", dotted(key));
                self.context = parents.to_vec();
                return Err(self.error_at(self.key_line, &cause));
            };
            tables.push(Table::new());
            self.context = parents.to_vec();
        } else {
            self.context = parents.to_vec();
            self.set(last, Node::Table(Table::new()))?;
        }
        self.context.push(last.clone());
        Ok(())
    }

    /// The table of the current context, or the key that stands in its way.
    fn current(&mut self) -> Result<&mut Table, String> {
        let mut seen: Vec<String> = Vec::new();
        let mut table = &mut self.root;
        for part in &self.context {
            seen.push(part.clone());
            let below = match table.get_mut(part) {
                Some(Node::Tables(tables)) => tables.last_mut(),
                Some(Node::Table(table)) => Some(table),
                _ => None,
            };
            table = below.ok_or_else(|| dotted(&seen))?;
        }
        Ok(table)
    }

    fn set(&mut self, key: &str, node: Node) -> Result<(), String> {
        let path: Vec<String> = self.context.iter().cloned().chain([key.to_owned()]).collect();
        let name = dotted(&path);
        let line = self.key_line;
        let defined = |name: &str| format!("Key '{name}' has already been defined.");
        let in_the_way = match self.current() {
            Ok(table) if !table.contains_key(key) => {
                table.insert(key.to_owned(), node);
                return Ok(());
            }
            Ok(_) => name,
            Err(other) => return Err(self.error_at(line, &defined(&other))),
        };
        if self.implicit.remove(&in_the_way) {
            return Ok(());
        }
        Err(self.error_at(line, &defined(&in_the_way)))
    }

    /// A copy of what was read into a table that is still to be stored by its owner.
    fn take(&mut self, path: &[String]) -> Table {
        let outer = std::mem::replace(&mut self.context, path.to_vec());
        let table = self.current().map(std::mem::take).unwrap_or_default();
        self.context = outer;
        self.context.clone_from(&path[..path.len().saturating_sub(1)].to_vec());
        if let (Some(last), Ok(parent)) = (path.last(), self.current()) {
            parent.remove(last);
        }
        table
    }
}

/// A key as it would be written.
fn dotted(parts: &[String]) -> String {
    parts.iter().map(|part| super::to_toml::bare_or_quoted(part)).collect::<Vec<_>>().join(".")
}

/// Go's `%q` of a character; the end is 0.
fn rune(c: char) -> String {
    gotemplate::quote_rune(u32::from(c))
}
