//! Keys and values of a generator: from literals, whole files, and lines of env files.

use std::borrow::Cow;

use crate::error::{Class, Error};
use crate::go_text::{list, quote};
use crate::load::Loader;

/// Where keys and values come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    pub literals: &'a [String],
    pub files: &'a [String],
    pub envs: &'a [String],
    /// Values are not shown in errors.
    pub secret: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub key: String,
    pub value: Vec<u8>,
}

/// Lines of env files end here; the rest of a file with a longer one is ignored, as kustomize does.
const MAX_LINE: usize = 64 * 1024;

impl Sources<'_> {
    pub(crate) fn load(&self, loader: &Loader<'_>) -> Result<Vec<KeyValue>, Error> {
        let mut all = Vec::new();
        for path in self.envs {
            let place = |error: Error| error.context(format!("env source files: {}", list(self.envs)));
            let content = loader.load(path).map_err(place)?;
            all.extend(from_lines(&content, self.secret).map_err(place)?);
        }
        for literal in self.literals {
            let shown = |literal: &String| if self.secret { hidden(literal) } else { literal.clone() };
            let parsed = from_literal(literal).ok_or_else(|| {
                invalid(format!("invalid literal source {}, expected key=value", shown(literal)))
            });
            all.push(parsed.map_err(|error| {
                let all: Vec<String> = self.literals.iter().map(shown).collect();
                error.context(format!("literal sources {}", list(&all)))
            })?);
        }
        for source in self.files {
            all.push(
                from_file(loader, source)
                    .map_err(|error| error.context(format!("file sources: {}", list(self.files))))?,
            );
        }
        Ok(all)
    }
}

fn invalid(text: String) -> Error {
    Error::new(Class::Generator, text)
}

/// `key=value`; one pair of quotes around the value is dropped.
fn from_literal(source: &str) -> Option<KeyValue> {
    let (key, value) = source.split_once('=').filter(|(key, _)| !key.is_empty())?;
    Some(KeyValue { key: key.to_owned(), value: unquoted(value).as_bytes().to_vec() })
}

/// A literal without its value.
fn hidden(literal: &str) -> String {
    literal.split_once('=').map_or_else(|| "***".to_owned(), |(key, _)| format!("{key}=***"))
}

fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if text.len() >= 2
            && let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
        {
            return inner;
        }
    }
    text
}

/// `path` or `key=path`.
fn from_file(loader: &Loader<'_>, source: &str) -> Result<KeyValue, Error> {
    let (key, path) = match source.split_once('=') {
        None => (base_name(source), source),
        Some((_, rest)) if rest.contains('=') => {
            return Err(invalid(format!("source {} key name or file path contains '='", quote(source))));
        }
        Some(("", path)) => {
            return Err(invalid(format!(
                "missing key name for file path {} in source {}",
                quote(path),
                quote(source)
            )));
        }
        Some((key, "")) => {
            return Err(invalid(format!(
                "missing file path for key name {} in source {}",
                quote(key),
                quote(source)
            )));
        }
        Some((key, path)) => (key, path),
    };
    Ok(KeyValue { key: key.to_owned(), value: loader.load(path)?.into_owned() })
}

/// Go's `path.Base`.
fn base_name(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed.rsplit('/').next().unwrap_or(trimmed) }
}

fn from_lines(content: &[u8], secret: bool) -> Result<Vec<KeyValue>, Error> {
    let mut all = Vec::new();
    let mut lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    for (number, line) in lines.into_iter().enumerate() {
        if line.len() >= MAX_LINE {
            break;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(_) if secret => return Err(invalid(format!("line {} has invalid utf8 bytes", number + 1))),
            Err(_) => {
                let numbers: Vec<String> = line.iter().map(u8::to_string).collect();
                let shown: Cow<'_, str> = String::from_utf8_lossy(line);
                return Err(invalid(format!("line {} has invalid utf8 bytes : {shown}", list(&numbers))));
            }
        };
        let text = if number == 0 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        let text = text.trim_start();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        // A line without a key is skipped like a comment.
        if !key.is_empty() {
            all.push(KeyValue { key: key.to_owned(), value: value.as_bytes().to_vec() });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let all = from_lines(text.as_bytes(), false).unwrap();
        all.into_iter().map(|pair| (pair.key, String::from_utf8(pair.value).unwrap())).collect()
    }

    #[test]
    fn lines_keep_their_quotes_and_spaces() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            pairs("\u{feff}A=1\r\n# c\n\n  B = \"x\" \nC\n=D\n"),
            [pair("A", "1"), pair("B ", " \"x\" "), pair("C", "")]
        );
    }

    #[test]
    fn literals_lose_one_pair_of_quotes() {
        assert_eq!(from_literal("a='b=c'").unwrap().value, b"b=c");
        assert_eq!(from_literal("a=\"").unwrap().value, b"\"");
        assert_eq!(from_literal("=b"), None);
        assert_eq!(from_literal("b"), None);
    }

    #[test]
    fn names_of_files_are_their_last_part() {
        assert_eq!(base_name("a/b.txt"), "b.txt");
        assert_eq!(base_name("a/b/"), "b");
    }
}
