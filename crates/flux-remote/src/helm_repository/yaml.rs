//! An index that is YAML, cut into its entries by its lines.
//!
//! In the form that every tool writes, a top-level `entries:` holds chart names, one deeper, each with a list in block
//! style. Nothing that belongs to a list item can stand as far left as the item's own dash, so indentation alone
//! says where items end. Anything else (flow style, aliases across entries, several documents) is left to a reader of
//! the whole text.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde_json::{Map, Value as Json};

use super::Error;
use super::scan::{Format, LARGEST_HEAD, Layout, MOST_ENTRIES, Span, Uncut};

const LONGEST_LINE: usize = 8 << 20;

pub(super) fn scan(reader: &mut impl BufRead) -> Result<Layout, Uncut> {
    let mut state = State::default();
    let mut line = Vec::new();
    let mut offset = 0;
    loop {
        line.clear();
        let length = read_line(reader, &mut line)?;
        if length == 0 {
            break;
        }
        state.line(&line, offset)?;
        offset += length as u64;
    }
    state.finish(offset)
}

fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> Result<usize, Uncut> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(line.len());
        }
        let (length, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        line.extend_from_slice(&buffer[..length]);
        reader.consume(length);
        if line.len() > LONGEST_LINE {
            return Err(Uncut::Failed(Error::Malformed(format!("a line of more than {LONGEST_LINE} bytes"))));
        }
        if ended {
            return Ok(line.len());
        }
    }
}

#[derive(Default)]
struct State {
    head: Vec<u8>,
    entries: BTreeMap<String, Vec<Span>>,
    count: usize,
    seen_entries: bool,
    in_entries: bool,
    chart_indent: Option<usize>,
    chart: Option<String>,
    item_indent: Option<usize>,
    item_start: Option<u64>,
    ended: bool,
}

impl State {
    fn line(&mut self, line: &[u8], offset: u64) -> Result<(), Uncut> {
        let indent = line.iter().take_while(|byte| **byte == b' ').count();
        let rest = line[indent..].trim_ascii_end();
        if rest.is_empty() || rest[0] == b'#' {
            return Ok(());
        }
        if rest[0] == b'\t' || rest[0] == b'%' || self.ended {
            return Err(Uncut::Irregular);
        }
        if indent == 0 {
            return self.top_level(line, rest, offset);
        }
        if self.in_entries {
            return self.below_entries(indent, rest, offset);
        }
        self.keep_head(line)
    }

    fn top_level(&mut self, line: &[u8], rest: &[u8], offset: u64) -> Result<(), Uncut> {
        match rest {
            b"---" if self.head.is_empty() && !self.seen_entries => return Ok(()),
            b"..." => {
                self.end_item(offset);
                self.ended = true;
                return Ok(());
            }
            // Go's libraries read the first document only; we would have to tell where it ends.
            _ if rest.starts_with(b"---") => return Err(Uncut::Irregular),
            // A list as far left as its key: not below `entries`, where it would be no map.
            _ if is_item(rest) && self.in_entries => return Err(Uncut::Irregular),
            _ => {}
        }
        self.end_item(offset);
        (self.in_entries, self.chart) = (false, None);
        if is_item(rest) {
            return self.keep_head(line);
        }
        match key(rest)? {
            (name, value) if name == "entries" => {
                if self.seen_entries {
                    return Err(duplicate(&name));
                }
                self.seen_entries = true;
                match value.as_str() {
                    "" => self.in_entries = true,
                    "{}" | "null" | "~" => {}
                    _ => return Err(Uncut::Irregular),
                }
                Ok(())
            }
            _ => self.keep_head(line),
        }
    }

    fn below_entries(&mut self, indent: usize, rest: &[u8], offset: u64) -> Result<(), Uncut> {
        let chart_indent = *self.chart_indent.get_or_insert(indent);
        if indent < chart_indent {
            return Err(Uncut::Irregular);
        }
        if is_item(rest) && self.chart.is_some() {
            let item_indent = *self.item_indent.get_or_insert(indent);
            if indent == item_indent {
                self.end_item(offset);
                self.item_start = Some(offset);
                return Ok(());
            }
            if indent < item_indent {
                return Err(Uncut::Irregular);
            }
            return Ok(());
        }
        if indent > chart_indent {
            // Part of an item, or something that is no list at all.
            let inside = self.item_start.is_some() && self.item_indent.is_some_and(|item| indent > item);
            return if inside { Ok(()) } else { Err(Uncut::Irregular) };
        }
        self.end_item(offset);
        let (name, value) = key(rest)?;
        if !matches!(value.as_str(), "" | "[]" | "null" | "~") {
            return Err(Uncut::Irregular);
        }
        if self.entries.insert(name.clone(), Vec::new()).is_some() {
            return Err(duplicate(&name));
        }
        self.chart = Some(name);
        self.item_indent = None;
        Ok(())
    }

    fn end_item(&mut self, end: u64) {
        if let (Some(start), Some(chart)) = (self.item_start.take(), &self.chart)
            && let Some(spans) = self.entries.get_mut(chart)
        {
            spans.push(Span { start, end });
            self.count += 1;
        }
    }

    fn keep_head(&mut self, line: &[u8]) -> Result<(), Uncut> {
        self.head.extend_from_slice(line);
        if self.head.len() > LARGEST_HEAD {
            let problem = format!("more than {LARGEST_HEAD} bytes beside the entries");
            return Err(Uncut::Failed(Error::Malformed(problem)));
        }
        Ok(())
    }

    fn finish(mut self, end: u64) -> Result<Layout, Uncut> {
        self.end_item(end);
        if self.count > MOST_ENTRIES {
            return Err(Uncut::Failed(Error::Malformed(format!("more than {MOST_ENTRIES} entries"))));
        }
        let head = match yaml::to_json_strict(&self.head) {
            Ok(Json::Object(head)) => head,
            Ok(Json::Null) => Map::new(),
            Ok(_) => return Err(Uncut::Irregular),
            Err(error) => {
                let problem = format!("error converting YAML to JSON: {error}");
                return Err(Uncut::Failed(Error::Malformed(problem)));
            }
        };
        Ok(Layout { format: Format::Yaml, head, entries: self.entries })
    }
}

fn is_item(rest: &[u8]) -> bool {
    rest == b"-" || rest.starts_with(b"- ")
}

/// `name:` and what follows on the line, comments left out.
fn key(rest: &[u8]) -> Result<(String, String), Uncut> {
    let text = std::str::from_utf8(rest).map_err(|_| Uncut::Irregular)?;
    let colon = match text.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            // A quoted name with an escape is left to the whole parser.
            let end = text[1..].find(quote).ok_or(Uncut::Irregular)? + 1;
            if text[..end].contains('\\') || !text[end + 1..].starts_with(':') {
                return Err(Uncut::Irregular);
            }
            end + 1
        }
        Some('?' | '&' | '*' | '!' | '{' | '[' | '|' | '>') | None => return Err(Uncut::Irregular),
        Some(_) if text.ends_with(':') && !text.contains(": ") => text.len() - 1,
        Some(_) => text.find(": ").ok_or(Uncut::Irregular)?,
    };
    let name = text[..colon].trim_matches(['"', '\'']).to_owned();
    let value = text[colon + 1..].trim();
    let value = if value.starts_with('#') { "" } else { value };
    let value = value.split_once(" #").map_or(value, |(value, _)| value.trim_end());
    Ok((name, value.to_owned()))
}

fn duplicate(name: &str) -> Uncut {
    let problem = format!("error converting YAML to JSON: key \"{name}\" already set in map");
    Uncut::Failed(Error::Malformed(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Option<Vec<(String, Vec<String>)>> {
        let layout = match scan(&mut text.as_bytes()) {
            Ok(layout) => layout,
            Err(Uncut::Irregular) => return None,
            Err(Uncut::Failed(error)) => panic!("{error}"),
        };
        let piece = |span: &Span| text[span.start as usize..span.end as usize].to_owned();
        Some(
            layout
                .entries
                .iter()
                .map(|(name, spans)| (name.clone(), spans.iter().map(piece).collect()))
                .collect(),
        )
    }

    #[test]
    fn items_end_where_the_indentation_says_so() {
        let text = "---\napiVersion: v1\nentries:\n  a:\n  - description: |\n      - not an item\n\n      text\n    version: 1\n\
            # comment\n  - version: 2\n  \"b\": # none\n  c:\n    - version: 3\ngenerated: now\n";
        let found = pieces(text).unwrap();
        assert_eq!(found[0].1.len(), 2);
        assert!(found[0].1[0].contains("text") && !found[0].1[0].contains("version: 2"));
        assert_eq!(found[1], ("b".to_owned(), vec![]));
        assert_eq!(found[2].1, ["    - version: 3\n"]);
    }

    #[test]
    fn unusual_forms_are_left_to_others() {
        for text in [
            "entries: {a: [{version: 1}]}\n",
            "entries:\n  a: [{version: 1}]\n",
            "entries:\n  a:\n    version: 1\n",
            "entries:\n  ? a\n  : - version: 1\n",
            "a: 1\n---\nb: 2\n",
        ] {
            assert_eq!(pieces(text), None, "{text}");
        }
    }
}
